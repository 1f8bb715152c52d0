package example.holdfast.integration;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.holdfast.Ask;
import example.holdfast.Broker;
import example.holdfast.BusyException;
import example.holdfast.Holdfast;
import example.holdfast.LockLostException;
import example.holdfast.Options;
import example.holdfast.Readme;
import java.io.IOException;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.event.EventListener;
import org.springframework.integration.leader.AbstractCandidate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.leader.event.OnGrantedEvent;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;

/** What Spring's own tests ask of its registries, of two processes. */
@Timeout(60)
class HoldfastLockRegistryTest {
    private static Broker broker;
    private Holdfast hf;
    private Holdfast other;
    private HoldfastLockRegistry registry;
    private HoldfastLockRegistry second;

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

    @BeforeEach
    void connect() {
        hf = Holdfast.connect(Options.at(broker.address()));
        other = Holdfast.connect(Options.at(broker.address()));
        registry = new HoldfastLockRegistry(hf, "test");
        second = new HoldfastLockRegistry(other, "test");
    }

    @AfterEach
    void close() {
        hf.close();
        other.close();
    }

    private static <T> T elsewhere(Callable<T> work) throws Exception {
        FutureTask<T> task = new FutureTask<>(work);
        new Thread(task).start();
        return task.get();
    }

    @Test
    void aLockIsReentrantAndOneForItsKey() throws Exception {
        Lock lock = registry.obtain("foo");
        lock.lockInterruptibly();
        Lock same = registry.obtain("foo");
        assertTrue(same.tryLock());
        assertFalse(elsewhere(() -> registry.obtain("foo").tryLock()));
        assertFalse(second.obtain("foo").tryLock());
        assertTrue(second.obtain("bar").tryLock());
        same.unlock();
        assertFalse(second.obtain("foo").tryLock(20, TimeUnit.MILLISECONDS));
        lock.unlock();
        assertTrue(second.obtain("foo").tryLock());
        assertTrue(new HoldfastLockRegistry(hf, "else").obtain("foo")
                .tryLock());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void anotherThreadCannotUnlock() throws Exception {
        Lock lock = registry.obtain("foo");
        lock.lock();
        elsewhere(() -> assertThrows(IllegalMonitorStateException.class,
                lock::unlock));
        lock.unlock();
    }

    @Test
    void aWaiterGetsTheLockAndTheNextFence() throws Exception {
        Lock lock = registry.obtain(17);
        lock.lock();
        long fence = registry.held(17).orElseThrow().fence();
        CountDownLatch waits = new CountDownLatch(1);
        FutureTask<Long> next = new FutureTask<>(() ->
                second.executeLocked(17, () ->
                        second.held(17).orElseThrow().fence()));
        new Thread(() -> {
            waits.countDown();
            next.run();
        }).start();
        waits.await();
        lock.unlock();
        assertTrue(next.get() > fence);
        assertTrue(registry.held(17).isEmpty());
    }

    @Test
    void executeLockedGivesUp() throws Exception {
        Lock lock = second.obtain("foo");
        lock.lock();
        assertThrows(TimeoutException.class, () -> registry.executeLocked(
                "foo", Duration.ofMillis(50), () -> "never"));
        lock.unlock();
        assertEquals("done", registry.executeLocked("foo",
                Duration.ofSeconds(10), () -> "done"));
    }

    @Test
    void onlyAHeldLockIsRenewed() {
        assertThrows(IllegalStateException.class,
                () -> registry.renewLock("foo"));
        Lock lock = registry.obtain("foo");
        lock.lock();
        registry.renewLock("foo");
        hf.close();
        assertThrows(LockLostException.class,
                () -> registry.renewLock("foo"));
    }

    @Test
    void aKeyHasATextOfItsOwn() {
        registry.obtain(UUID.randomUUID());
        assertThrows(IllegalArgumentException.class,
                () -> registry.obtain(new Object()));
    }

    /** Tells when it leads. */
    private static final class Candidate extends AbstractCandidate {
        private final LinkedBlockingQueue<Boolean> leads =
                new LinkedBlockingQueue<>();

        Candidate() {
            super(null, "leader");
        }

        @Override
        public void onGranted(Context context) {
            leads.add(true);
        }

        @Override
        public void onRevoked(Context context) {
            leads.add(false);
        }
    }

    private static LockRegistryLeaderInitiator initiator(
            LockRegistry locks, Candidate candidate) {
        LockRegistryLeaderInitiator initiator =
                new LockRegistryLeaderInitiator(locks, candidate);
        initiator.setHeartBeatMillis(50);
        initiator.setBusyWaitMillis(10);
        initiator.start();
        return initiator;
    }

    @Test
    void leadershipPassesOn() throws Exception {
        Candidate first = new Candidate();
        Candidate next = new Candidate();
        LockRegistryLeaderInitiator one = initiator(registry, first);
        assertTrue(first.leads.take());
        LockRegistryLeaderInitiator two = initiator(second, next);
        assertThrows(BusyException.class, () -> other.lock("test/leader",
                Ask.within(Duration.ZERO)));
        one.stop();
        assertFalse(first.leads.take());
        assertTrue(next.leads.take());
        other.close(); // a lost lock is a lost leadership
        assertFalse(next.leads.take());
        two.stop();
    }

    private static final CountDownLatch LEADS = new CountDownLatch(1);

    @Configuration(proxyBeanMethods = false)
    static class Example {
        @Bean
        Holdfast client() {
            return Holdfast.connect(Options.at(broker.address()));
        }

        @Bean
        LockRegistry locks(Holdfast hf) {
            return new HoldfastLockRegistry(hf, "orders");
        }

        @Bean
        LockRegistryLeaderInitiator leader(LockRegistry locks) {
            return new LockRegistryLeaderInitiator(locks,
                    new DefaultCandidate("node-1", "shop"));
        }

        @EventListener
        void leads(OnGrantedEvent event) {
            LEADS.countDown();
        }
    }

    @Test
    void theExampleLeads() throws Exception {
        Readme.shown("Spring Integration", 1, HoldfastLockRegistryTest.class,
                "", "");
        try (var context = new AnnotationConfigApplicationContext(
                Example.class)) {
            LEADS.await();
            assertTrue(context.getBean(LockRegistryLeaderInitiator.class)
                    .getContext().isLeader());
        }
    }
}
