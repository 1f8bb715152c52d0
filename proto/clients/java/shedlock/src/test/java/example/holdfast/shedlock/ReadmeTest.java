package example.holdfast.shedlock;

import static java.time.Duration.ofMinutes;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;

import example.holdfast.Broker;
import example.holdfast.Holdfast;
import example.holdfast.Options;
import example.holdfast.Readme;
import java.io.IOException;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import org.junit.jupiter.api.Test;

/** The example of README.md runs on two nodes. */
class ReadmeTest {
    private final AtomicInteger works = new AtomicInteger();

    private void work() {
        works.incrementAndGet();
    }

    private void node(Holdfast hf) {
        LockProvider locks = new HoldfastLockProvider(hf);
        new DefaultLockingTaskExecutor(locks).executeWithLock(
                (Runnable) () -> work(),
                new LockConfiguration(Instant.now(), "nightly",
                        ofMinutes(10), ofSeconds(30)));
    }

    @Test
    void aJobRunsOnce() throws IOException {
        Readme.shown("ShedLock", 1, ReadmeTest.class, "", "");
        try (Broker broker = Broker.start();
                Holdfast one = Holdfast.connect(Options.at(broker.address()));
                Holdfast two = Holdfast.connect(
                        Options.at(broker.address()))) {
            node(one);
            node(two);
        }
        assertEquals(1, works.get());
    }
}
