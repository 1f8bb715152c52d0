package example.holdfast.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.holdfast.Ask;
import example.holdfast.Broker;
import example.holdfast.BusyException;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.LockLostException;
import example.holdfast.Options;
import example.holdfast.Readme;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.actuate.health.HealthEndpoint;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.test.context.DynamicPropertyRegistry;
import org.springframework.test.context.DynamicPropertySource;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.DefaultTransactionStatus;

/** An application with the starter, at a broker. */
@SpringBootTest
@Timeout(60)
class HoldfastLockedTest {
    private static final Ask NOW = Ask.within(Duration.ZERO);
    private static Broker broker;
    private static Holdfast other;

    @Autowired
    private Stock stock;
    @Autowired
    private Holdfast client;
    @Autowired
    private MeterRegistry meters;
    @Autowired
    private HealthEndpoint health;

    @DynamicPropertySource
    static void begin(DynamicPropertyRegistry registry) throws IOException {
        broker = Broker.start();
        other = Holdfast.connect(Options.at(broker.address()));
        registry.add("holdfast.addresses", broker::address);
    }

    @AfterAll
    static void end() {
        if (broker != null) {
            other.close();
            broker.close();
        }
    }

    private static boolean isFree(String name) {
        try {
            other.lock(name, NOW).close();
            return true;
        } catch (BusyException held) {
            return false;
        }
    }

    /** What refuses a smaller fence. */
    static class Table {
        long fence;

        void write(String id, long with) {
            assertTrue(with >= fence);
            assertFalse(isFree("stock/" + id));
            fence = with;
        }
    }

    /** What is locked: a proxy, so fields are its target's. */
    static class Stock {
        private final Table table = new Table();
        private int done;

        long fence() {
            return table.fence;
        }

        int done() {
            return done;
        }

        @HoldfastLocked(name = "'stock/' + #id", within = "5s")
        void restock(String id, Hold hold) {
            table.write(id, hold.fence());
        }

        @HoldfastLocked(name = "'stock/' + #p0", within = "${stock.wait}")
        int count(String id) throws IOException {
            if (id.equals("none")) {
                throw new IOException(id);
            }
            return id.length();
        }

        @HoldfastLocked(name = "'stock'", skip = true)
        Optional<String> job(Runnable work) {
            work.run();
            return Optional.of("done");
        }

        @HoldfastLocked(name = "'brief'", lease = "1s")
        void brief() throws InterruptedException {
            Thread.sleep(30_000);
        }

        @HoldfastLocked(name = "'read'", shared = true)
        void read(Runnable work) {
            work.run();
        }

        @Transactional
        @HoldfastLocked(name = "'money'")
        void transfer() {
            done++;
        }

        @HoldfastLocked(name = "'later'")
        CompletableFuture<Void> later() {
            return new CompletableFuture<>();
        }

        @HoldfastLocked(name = "'primitive'", skip = true)
        int primitive() {
            return 1;
        }

        @HoldfastLocked(name = "#id")
        void named(String id) {
            done++;
        }
    }

    /** Tells whether the lock is held at the commit. */
    static class Money extends AbstractPlatformTransactionManager {
        boolean locked;

        @Override
        protected Object doGetTransaction() {
            return this;
        }

        @Override
        protected void doBegin(Object transaction,
                TransactionDefinition definition) {
            locked = false;
        }

        @Override
        protected void doCommit(DefaultTransactionStatus status) {
            locked = !isFree("money");
        }

        @Override
        protected void doRollback(DefaultTransactionStatus status) {
            locked = false;
        }
    }

    @Autowired
    private Money money;

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableTransactionManagement
    @Import({Stock.class, Money.class})
    static class Application {
        @Bean
        MeterRegistry meters() {
            return new SimpleMeterRegistry();
        }
    }

    @Test
    void theMethodRunsWithItsLock() throws IOException {
        Readme.shown("Spring Boot", 1, HoldfastLockedTest.class, "",
                "");
        stock.restock("17", null);
        assertTrue(stock.fence() > 0);
        assertTrue(isFree("stock/17"));
        assertEquals(2, stock.count("18"));
        try (Hold hold = other.lock("stock/18")) {
            assertTrue(hold.held());
            assertThrows(BusyException.class, () -> stock.count("18"));
        }
        assertEquals("none", assertThrows(IOException.class,
                () -> stock.count("none")).getMessage());
        assertTrue(isFree("stock/none"));
    }

    @Test
    void aThreadMayEnterItAgain() {
        assertEquals(Optional.of("done"), stock.job(() -> assertEquals(
                Optional.of("done"), stock.job(() -> { }))));
    }

    @Test
    void aSkippedMethodDoesNothing() {
        try (Hold hold = other.lock("stock")) {
            assertTrue(hold.held());
            assertEquals(Optional.empty(), stock.job(() -> {
                throw new AssertionError("not skipped");
            }));
        }
        // not skipped: it is the work that fails
        assertThrows(BusyException.class, () -> stock.job(
                () -> client.lock("stock", NOW)));
    }

    @Test
    void aLossInterruptsTheMethodAndIsCounted()
            throws InterruptedException {
        assertInstanceOf(InterruptedException.class, assertThrows(
                LockLostException.class, stock::brief).getCause());
        while (meters.counter("holdfast.lock.lost").count() != 1) {
            Thread.sleep(5); // the interrupt is sooner
        }
        assertTrue(meters.timer("holdfast.lock.wait").count() > 0);
        assertEquals(0, meters.counter("holdfast.moves").count());
    }

    @Test
    void readersShare() {
        stock.read(() -> other.lock("read",
                Ask.shared().until(Duration.ZERO)).close());
    }

    @Test
    void theTransactionEndsWhileTheLockIsHeld() {
        stock.transfer();
        assertEquals(1, stock.done());
        assertTrue(money.locked);
        assertTrue(isFree("money"));
    }

    @Test
    void methodsThatCannotBeProtectedAreRefused() {
        assertThrows(IllegalStateException.class, stock::later);
        assertThrows(IllegalStateException.class, stock::primitive);
        assertThrows(IllegalStateException.class, () -> stock.named(null));
    }

    @Test
    void theBrokerIsAPartOfTheHealth() {
        assertEquals(Status.UP, health.healthForPath("holdfast").getStatus());
        assertNotNull(health.healthForPath("holdfast"));
        assertNull(health.healthForPath("redis"));
    }
}
