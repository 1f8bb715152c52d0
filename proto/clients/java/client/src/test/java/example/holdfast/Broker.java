package example.holdfast;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/** A broker of `holdfastd --dev=0`: its Redis ends with it. */
public final class Broker implements AutoCloseable {
    final String address;
    private final Process process;

    private Broker(Process process, String address) {
        this.process = process;
        this.address = address;
    }

    /** $HOLDFASTD, or build/holdfastd of the tree. */
    static Path program() {
        String given = System.getenv("HOLDFASTD");
        return Path.of(given != null ? given
                : "../../../../build/holdfastd");
    }

    /** `HOST:PORT`. */
    public String address() {
        return address;
    }

    /** Skips the test without the program. */
    public static Broker start() throws IOException {
        Path program = program();
        Assumptions.assumeTrue(Files.isExecutable(program),
                "no holdfastd: " + program);
        Process process = new ProcessBuilder(program.toString(), "--dev=0")
                .redirectErrorStream(true).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(
                process.getInputStream(), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null;
                line = lines.readLine()) {
            if (line.startsWith("listening on ")) {
                Thread rest = new Thread(() -> lines.lines()
                        .forEach(ignored -> { }), "broker-output");
                rest.setDaemon(true);
                rest.setUncaughtExceptionHandler((thread, end) -> { });
                rest.start();
                return new Broker(process,
                        line.substring("listening on ".length()).strip());
            }
        }
        throw new IOException("holdfastd --dev=0 has ended");
    }

    @Override
    public void close() {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
    }
}
