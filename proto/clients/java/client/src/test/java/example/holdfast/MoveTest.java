package example.holdfast;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Brokers that end, stop or drain. */
@Timeout(60)
class MoveTest {
    @TempDir
    Path folder;
    private Rig rig;
    private String first;
    private String second;
    private Process firstBroker;

    @BeforeEach
    void begin() throws Exception {
        rig = new Rig(folder);
        first = Rig.freeAddress();
        second = Rig.freeAddress();
        firstBroker = rig.broker(first);
    }

    @AfterEach
    void end() throws InterruptedException {
        if (rig != null) {
            rig.close();
        }
    }

    /** A client at the first broker; then the second one starts. */
    private Holdfast between(CountDownLatch moved) throws Exception {
        Holdfast hf = Holdfast.connect(Options.at(first, second)
                .keep(ofSeconds(10)).onMove(moved::countDown));
        rig.broker(second);
        return hf;
    }

    @Test
    void holdsWaitsAndWatchesGoOnAtAnotherBroker() throws Exception {
        CountDownLatch moved = new CountDownLatch(1);
        try (Holdfast hf = between(moved);
                Watch<Optional<Member>> watch = hf.watch("a")) {
            assertTrue(watch.next().isEmpty());
            Hold hold = hf.lock("a", Ask.plain().note("n"));
            CompletableFuture<Hold> next = hf.lockAsync("a");
            firstBroker.destroyForcibly();
            moved.await();
            hold.check();
            hold.note("here");
            hold.close();
            Hold later = next.join();
            assertTrue(later.fence() > hold.fence());
            Optional<Member> seen = watch.next();
            while (seen.isEmpty() || seen.get().fence() != later.fence()) {
                seen = watch.next();
            }
            later.close();
        }
    }

    @Test
    void aDrainIsNotTold() throws Exception {
        CountDownLatch moved = new CountDownLatch(1);
        try (Holdfast hf = between(moved)) {
            Hold hold = hf.lock("a");
            firstBroker.destroy();
            for (int i = 0; i < 100; i++) {
                hf.lock("b").close();
            }
            moved.await();
            hold.release();
        }
    }

    @Test
    void withoutKeepTheEndOfTheConnectionIsTheLoss() throws Exception {
        try (Holdfast hf = Holdfast.connect(Options.at(first, second))) {
            Hold hold = hf.lock("a");
            firstBroker.destroyForcibly();
            assertTrue(hold.awaitLost(ofSeconds(10)));
            assertEquals("session", hold.lost().orElse(""));
            rig.broker(second);
            hf.lock("b", Ask.within(ofSeconds(20))).close();
        }
    }

    @Test
    void aStoppedBrokerDoesNotStopTheDeadline() throws Exception {
        try (Holdfast hf = Holdfast.connect(Options.at(first))) {
            Hold hold = hf.lock("a", Ask.plain().lease(ofMillis(1500)));
            new ProcessBuilder("kill", "-STOP",
                    Long.toString(firstBroker.pid())).start().waitFor();
            hold.check();
            assertTrue(hold.awaitLost(ofSeconds(10)));
            assertEquals("deadline", assertThrows(LockLostException.class,
                    hold::check).why());
        }
    }

    @Test
    void aUnixSocketIsAnAddress() {
        try (Holdfast hf = Holdfast.connect(Options.at(
                Rig.socket(folder, first).toString()))) {
            hf.lock("a").close();
        }
    }

    /** Threads of two clients exclude one another, whatever they cancel. */
    @Test
    void manyThreads() throws Exception {
        try (Holdfast one = Holdfast.connect(Options.at(first));
                Holdfast two = Holdfast.connect(Options.at(first))) {
            List<Holdfast> clients = List.of(one, two);
            AtomicInteger inside = new AtomicInteger();
            AtomicLong last = new AtomicLong();
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            Thread[] threads = new Thread[32];
            for (int i = 0; i < threads.length; i++) {
                Holdfast hf = clients.get(i % 2);
                threads[i] = new Thread(() -> many(hf, inside, last));
                threads[i].setUncaughtExceptionHandler(
                        (thread, failure) -> wrong.set(failure));
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertNull(wrong.get());
            one.lock("a", Ask.within(ofSeconds(10))).close();
        }
    }

    private static void many(Holdfast hf, AtomicInteger inside,
            AtomicLong last) {
        for (int n = 0; n < 20; n++) {
            int ms = ThreadLocalRandom.current().nextInt(1, 40);
            try (Hold hold = hf.lock("a", Ask.within(ofMillis(ms)))) {
                assertEquals(1, inside.incrementAndGet());
                assertTrue(last.getAndSet(hold.fence()) < hold.fence());
                inside.decrementAndGet();
            } catch (TimedOutException e) {
                continue;
            }
        }
    }
}
