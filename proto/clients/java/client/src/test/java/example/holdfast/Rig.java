package example.holdfast;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;

/** A Redis server, and brokers before it. All end with close(). */
final class Rig implements AutoCloseable {
    private final Path folder;
    private final String redis;
    private final List<Process> processes = new ArrayList<>();

    Rig(Path folder) throws IOException, InterruptedException {
        this.folder = folder;
        Assumptions.assumeTrue(Files.isExecutable(Broker.program()),
                "no holdfastd: " + Broker.program());
        redis = freeAddress();
        start("redis-server", "--port", redis.split(":")[1], "--bind",
                "127.0.0.1", "--dir", folder.toString(), "--save", "",
                "--maxmemory-policy", "noeviction", "--loglevel", "warning");
        reachable(redis);
    }

    static String freeAddress() throws IOException {
        try (ServerSocket socket = new ServerSocket()) {
            socket.bind(new InetSocketAddress("127.0.0.1", 0));
            return "127.0.0.1:" + socket.getLocalPort();
        }
    }

    private Process start(String... command) throws IOException {
        Process process = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        processes.add(process);
        return process;
    }

    /** Waits for a server. */
    private static void reachable(String address)
            throws IOException, InterruptedException {
        String[] parts = address.split(":");
        long end = System.nanoTime() + 10_000_000_000L;
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(parts[0],
                        Integer.parseInt(parts[1])), 1000);
                return;
            } catch (IOException failure) {
                if (System.nanoTime() > end) {
                    throw failure;
                }
                Thread.sleep(5);
            }
        }
    }

    /** Where the Unix socket of the broker is. */
    static Path socket(Path folder, String address) {
        return folder.resolve(address.split(":")[1] + ".sock");
    }

    /** Starts a broker. */
    Process broker(String address) throws IOException, InterruptedException {
        Path file = folder.resolve(address.split(":")[1] + ".yaml");
        Files.writeString(file, String.format("""
                listen: {tcp: ["%s"], unix: ["%s"]}
                admin: {http: ""}
                redis: {topology: single, nodes: ["%s"], settle: 0s}
                log: {level: warn}
                """, address, socket(folder, address), redis));
        Process process = start(Broker.program().toString(), "-c",
                file.toString());
        reachable(address);
        serves(address);
        return process;
    }

    /** Waits for the broker's own connection to Redis. */
    private static void serves(String address) throws InterruptedException {
        try (Holdfast hf = Holdfast.connect(Options.at(address))) {
            while (true) {
                try {
                    hf.lock("rig").close();
                    return;
                } catch (UnavailableException notYet) {
                    Thread.sleep(5);
                }
            }
        }
    }

    @Override
    public void close() throws InterruptedException {
        for (Process process : processes) {
            process.destroyForcibly().waitFor();
        }
    }
}
