package example.holdfast;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The engine at a broker of the test. */
@Timeout(30)
class EngineTest {
    private static final String HELLO = "* HELLO proto=1 session=s\n"
            + "1 OK session=s silence_ms=10000\n";

    private static void say(Socket socket, String text) throws IOException {
        socket.getOutputStream().write(
                text.getBytes(StandardCharsets.US_ASCII));
    }

    private static long readAll(Socket socket) throws IOException {
        InputStream in = socket.getInputStream();
        long count = 0;
        for (byte[] some = new byte[1 << 16];;) {
            int n = in.read(some);
            if (n < 0) {
                return count;
            }
            count += n;
        }
    }

    /** Direct buffers of this JVM. */
    private static long directBytes() {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class)
                .stream().filter(pool -> pool.getName().equals("direct"))
                .mapToLong(BufferPoolMXBean::getMemoryUsed).sum();
    }

    @Test
    void threadsThatWriteKeepNoLargeBuffers() throws Exception {
        int count = 8;
        ExecutorService threads = Executors.newFixedThreadPool(count);
        try (ServerSocket server = new ServerSocket(0, 9,
                InetAddress.getLoopbackAddress())) {
            CompletableFuture<Socket> accepted = new CompletableFuture<>();
            threads.execute(() -> {
                try {
                    Socket socket = server.accept();
                    say(socket, HELLO); // and reads nothing
                    accepted.complete(socket);
                } catch (IOException failure) {
                    accepted.completeExceptionally(failure);
                }
            });
            Holdfast hf = Holdfast.connect(Options.at("127.0.0.1:"
                    + server.getLocalPort()).heartbeat(Duration.ZERO));
            Ask large = Ask.plain().note("x".repeat(100_000));
            for (int i = 0; i < 50; i++) { // 5 MB, most in the kernel
                hf.lockAsync(List.of("a"), large);
            }
            long before = directBytes();
            CyclicBarrier all = new CyclicBarrier(count);
            for (Future<?> each : threads.invokeAll(Collections.nCopies(count,
                    () -> {
                        all.await(); // each thread has one
                        return hf.lockAsync(List.of("a"), large);
                    }))) {
                each.get();
            }
            assertTrue(directBytes() - before < 400_000);
            accepted.get().close();
            hf.close();
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aSlowHookLeavesNoSocketBehind() throws Exception {
        CountDownLatch inHook = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        try (ServerSocket server = new ServerSocket(0, 9,
                InetAddress.getLoopbackAddress())) {
            CompletableFuture<Socket> first = CompletableFuture.supplyAsync(
                    () -> {
                        try {
                            Socket socket = server.accept();
                            say(socket, HELLO);
                            return socket;
                        } catch (IOException failure) {
                            throw new IllegalStateException(failure);
                        }
                    });
            Options options = Options.at("127.0.0.1:"
                    + server.getLocalPort()).heartbeat(Duration.ZERO)
                    .onWait((hold, keys) -> {
                        inHook.countDown();
                        try {
                            go.await();
                        } catch (InterruptedException e) {
                            Thread.currentThread().interrupt();
                        }
                    });
            Holdfast hf = Holdfast.connect(options);
            hf.lockAsync("a");
            say(first.join(), "2 QUEUED position=1\n");
            inHook.await();
            Ask large = Ask.plain().note("x".repeat(100_000));
            for (int i = 0; i < 200; i++) { // until it is given up
                hf.lockAsync(List.of("b"), large);
            }
            try (Socket second = server.accept(); Socket old = first.join()) {
                old.setSoTimeout(10_000);
                assertTrue(readAll(old) > 0); // the end comes
                go.countDown();
                say(second, HELLO);
                hf.close();
                assertEquals("CLOSED", hf.core().ready().failure.code());
            }
        }
    }
}
