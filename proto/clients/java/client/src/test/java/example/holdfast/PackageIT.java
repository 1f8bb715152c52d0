package example.holdfast;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.JarFile;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The jars, as a user has them: a module without a dependency. */
@Timeout(60)
class PackageIT {
    private static final String JAR = System.getProperty("jar");

    @TempDir
    Path folder;

    private Path write(String name, String text) throws IOException {
        return Files.writeString(folder.resolve(name), text);
    }

    @Test
    void aModuleTakesALock() throws Exception {
        String name = Path.of(JAR + ".jar").toAbsolutePath().toString();
        Path module = write("module-info.java",
                "module user { requires example.holdfast; }");
        Files.createDirectory(folder.resolve("user"));
        Path main = write("user/Main.java", """
                package user;

                import example.holdfast.*;

                public class Main {
                    public static void main(String[] arguments) {
                        try (Holdfast hf = Holdfast.connect(
                                Options.at(arguments[0]));
                                Hold hold = hf.lock("package")) {
                            System.out.print(hold.held());
                        }
                    }
                }
                """);
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null,
                null, "-p", name, "-d", folder.toString(), module.toString(),
                main.toString()));
        try (Broker broker = Broker.start()) {
            Process user = new ProcessBuilder(
                    Path.of(System.getProperty("java.home"), "bin", "java")
                            .toString(),
                    "-p", name + File.pathSeparator + folder,
                    "-m", "user/user.Main", broker.address)
                    .redirectErrorStream(true).start();
            assertEquals("true", new String(
                    user.getInputStream().readAllBytes(),
                    StandardCharsets.UTF_8));
            assertEquals(0, user.waitFor());
        }
    }

    @Test
    void eachJarHasItsPart() throws IOException {
        String folder = "example/holdfast/";
        try (JarFile classes = new JarFile(JAR + ".jar");
                JarFile sources = new JarFile(JAR + "-sources.jar");
                JarFile pages = new JarFile(JAR + "-javadoc.jar")) {
            assertNotNull(classes.getEntry(folder + "Hold.class"));
            assertNotNull(sources.getEntry(folder + "Hold.java"));
            assertNotNull(pages.getEntry(
                    "example.holdfast/" + folder + "Hold.html"));
            assertNull(pages.getEntry(
                    "example.holdfast/" + folder + "Core.html"));
        }
    }
}
