package example.holdfast;

import static java.time.Duration.ofHours;
import static java.time.Duration.ofMinutes;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The examples of README.md: each is below, and runs. */
@Timeout(30)
class ReadmeTest {
    private static Broker broker;
    private final AtomicInteger works = new AtomicInteger();
    private final Stock stock = new Stock();

    @BeforeAll
    static void begin() throws IOException {
        broker = Broker.start();
    }

    @AfterAll
    static void end() {
        if (broker != null) {
            broker.close();
        }
    }

    /** A resource that refuses an old fence. */
    private static final class Stock {
        private long largest;

        void take(int count, long fence) {
            assertTrue(count > 0 && fence >= largest);
            largest = fence;
        }
    }

    private void work() {
        works.incrementAndGet();
    }

    private CompletableFuture<Integer> workAsync(Hold hold) {
        return CompletableFuture.supplyAsync(() -> {
            hold.check();
            return works.incrementAndGet();
        });
    }

    @Test
    void eachExampleIsHere() throws IOException {
        Readme.shown("", 4, ReadmeTest.class, "broker.address",
                "\"broker-1:4653\", \"broker-2:4653\"");
    }

    @Test
    void first() {
        try (Holdfast hf = Holdfast.connect(
                Options.at(broker.address).keep(ofSeconds(30)))) {
            try (Hold hold = hf.lock("stock/4711",
                    Ask.within(ofSeconds(5)).note("inventory"))) {
                stock.take(1, hold.fence());
                hold.check();
            }
        }
        assertTrue(stock.largest > 0);
    }

    @Test
    void forms() {
        try (Holdfast hf = Holdfast.connect(Options.at(broker.address))) {
            hf.runLocked("job", hold -> work());

            hf.lockAsync("job").thenCompose(hold ->
                    workAsync(hold).whenComplete((done, failure) ->
                            hold.releaseAsync()));

            Lock lock = hf.asLock("job");
            lock.lock();
            try {
                work();
            } finally {
                lock.unlock();
            }
        }
        assertEquals(3, works.get());
    }

    @Test
    void kinds() {
        try (Holdfast hf = Holdfast.connect(Options.at(broker.address))) {
            hf.lock(List.of("from", "to"), Ask.plain());
            hf.lock("report", Ask.shared());
            hf.lock("api", Ask.semaphore(5, 2));
            hf.lock("shop/17", Ask.plain().tree());

            try (Hold reader = hf.lock("page", Ask.upgradable());
                    Hold writer = reader.upgrade(Ask.within(ofSeconds(5)))) {
                work();
            }

            Detached batch = hf.detached("batch",
                    Ask.plain().lease(ofHours(1)));
            hf.adopt("batch", batch.fence()).release();
        }
        assertEquals(1, works.get());
    }

    @Test
    void groups() throws InterruptedException {
        try (Holdfast hf = Holdfast.connect(Options.at(broker.address))) {
            hf.lead("leader/shop", Ask.plain().note("10.0.0.7:80"), hold -> {
                work();
                return null;
            });

            try (Watch<Optional<Member>> watch = hf.watch("leader/shop")) {
                Optional<Member> leader = watch.next();
            }
            try (Watch<List<Member>> watch = hf.members("workers")) {
                List<Member> workers = watch.next();
            }
            hf.awaitFree("deploy", ofMinutes(1));
        }
        assertEquals(1, works.get());
    }
}
