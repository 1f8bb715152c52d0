package example.holdfast;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The examples of README.md: the source of a test has each, and runs it. */
public final class Readme {
    /** Before the sections of the other modules. */
    private static final String FRAMEWORKS = "\n## Frameworks";

    private Readme() {
    }

    /** Blocks of Java without comments and blanks. */
    private static String words(String text) {
        return text.replaceAll("//[^\n]*", "").replaceAll("\\s+", " ");
    }

    /**
     * Fails unless a section has as many blocks of Java, and each is in the
     * source of the test. The section "" is all before the frameworks.
     */
    public static void shown(String section, int count, Class<?> test,
            String from, String to) throws IOException {
        String text = Files.readString(Path.of("../README.md"));
        int end = text.indexOf(FRAMEWORKS);
        if (section.isEmpty()) {
            text = text.substring(0, end);
        } else {
            int begin = text.indexOf("\n### " + section + "\n", end);
            assertTrue(begin > 0, "no section " + section);
            text = text.substring(begin).replaceFirst(
                    "(?s)(\n#.*?)\n##.*", "$1");
        }
        String source = words(Files.readString(Path.of("src/test/java",
                test.getName().replace('.', '/') + ".java"))
                .replace(from, to));
        Matcher block = Pattern.compile("(?s)```java\n(.*?)```")
                .matcher(text);
        int found = 0;
        for (; block.find(); found++) {
            assertTrue(source.contains(words(block.group(1)).strip()),
                    block.group(1));
        }
        assertEquals(count, found);
    }
}
