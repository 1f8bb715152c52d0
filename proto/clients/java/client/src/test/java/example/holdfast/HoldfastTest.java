package example.holdfast;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Lock;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Two clients at a broker. */
@Timeout(30)
class HoldfastTest {
    private static final Ask NOW = Ask.within(Duration.ZERO);
    private static Broker broker;
    private Holdfast hf;
    private Holdfast other;

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
        hf = Holdfast.connect(Options.at(broker.address));
        other = Holdfast.connect(Options.at(broker.address));
    }

    @AfterEach
    void close() {
        hf.close();
        other.close();
    }

    @Test
    void aLockExcludesOthersUntilItIsClosed() {
        long fence;
        try (Hold hold = hf.lock("j/lock", Ask.within(ofSeconds(5))
                .note("inventory"))) {
            hold.check();
            fence = hold.fence();
            assertTrue(hold.left().compareTo(ofSeconds(1)) > 0);
            assertThrows(BusyException.class,
                    () -> other.lock("j/lock", NOW));
            HoldfastException late = assertThrows(TimedOutException.class,
                    () -> hf.lock("j/lock", Ask.within(ofMillis(50))));
            assertEquals("TIMEOUT", late.code());
            assertTrue(late.retry());
        }
        try (Hold next = other.lock("j/lock", NOW)) {
            assertTrue(next.fence() > fence);
        }
    }

    @Test
    void aHoldThatWasGivenBackIsNotHeld() {
        Hold hold = hf.lock("j/over");
        hold.close();
        hold.close();
        assertFalse(hold.held());
        assertThrows(NotHeldException.class, hold::check);
        assertThrows(NotHeldException.class, hold::release);
    }

    @Test
    void aLossInterruptsTheWork() {
        LockLostException lost = assertThrows(LockLostException.class,
                () -> hf.runLocked("j/run", Ask.plain().lease(ofMillis(300)),
                        hold -> Thread.sleep(20_000)));
        assertEquals("expired", lost.why().equals("deadline") ? "expired"
                : lost.why());
        assertTrue(lost.getCause() instanceof InterruptedException);
        assertFalse(Thread.currentThread().isInterrupted());
    }

    @Test
    void aLossIsToldOnce() throws InterruptedException {
        AtomicInteger told = new AtomicInteger();
        Hold hold = hf.lock("j/lost", Ask.plain().lease(ofMillis(200))
                .onLost(each -> told.incrementAndGet()));
        assertTrue(hold.awaitLost(ofSeconds(5)));
        assertThrows(LockLostException.class, hold::check);
        assertThrows(LockLostException.class, hold::close);
        assertEquals(1, told.get());
    }

    @Test
    void aCancelledWaitLeavesNothing() throws InterruptedException {
        Hold first = hf.lock("j/cancel");
        CompletableFuture<Hold> wait = other.lockAsync("j/cancel");
        wait.cancel(true);
        first.close();
        hf.lock("j/cancel", Ask.within(ofSeconds(5))).close();
        other.lock("j/cancel", Ask.within(ofSeconds(5))).close();
    }

    @Test
    void aGrantThatCrossesACancelIsGivenBack() {
        for (int i = 0; i < 200; i++) {
            CompletableFuture<Hold> wait = other.lockAsync("j/cross");
            if (!wait.cancel(true)) {
                wait.join().close();
            }
            hf.lock("j/cross", Ask.within(ofSeconds(5))).close();
        }
    }

    @Test
    void anInterruptEndsAWait() throws InterruptedException {
        Hold first = hf.lock("j/interrupt");
        CountDownLatch asked = new CountDownLatch(1);
        AtomicReference<Object> seen = new AtomicReference<>();
        Thread waiter = new Thread(() -> {
            asked.countDown();
            try {
                other.lock("j/interrupt");
            } catch (CancelledException e) {
                seen.set(Thread.currentThread().isInterrupted());
            }
        });
        waiter.start();
        asked.await();
        waiter.interrupt();
        waiter.join();
        assertEquals(true, seen.get());
        first.close();
        hf.lock("j/interrupt", Ask.within(ofSeconds(5))).close();
    }

    @Test
    void anInterruptedThreadLosesNoOtherLock() {
        Hold hold = hf.lock("j/flag");
        Thread.currentThread().interrupt();
        assertThrows(CancelledException.class, () -> hf.lock("j/flag/2"));
        assertTrue(Thread.interrupted());
        hold.check();
        hold.release();
        other.lock("j/flag/2", Ask.within(ofSeconds(5))).close();
    }

    @Test
    void anAsyncLockChains() {
        String done = hf.lockAsync("j/async").thenCompose(hold ->
                hold.releaseAsync().thenApply(nothing -> hold.name())).join();
        assertEquals("j/async", done);
        other.lock("j/async", NOW).close();
    }

    @Test
    void severalNamesAreOneHold() {
        try (Hold both = hf.lock(List.of("j/from", "j/to"), NOW)) {
            assertEquals(2, both.fences().size());
            assertThrows(BusyException.class, () -> other.lock("j/to", NOW));
        }
        other.lock(List.of("j/to", "j/from"), NOW).close();
    }

    @Test
    void sharedUpgradableAndSemaphore() {
        try (Hold reader = hf.lock("j/kinds", Ask.shared());
                Hold second = other.lock("j/kinds",
                        Ask.upgradable().until(Duration.ZERO))) {
            assertThrows(BusyException.class,
                    () -> hf.lock("j/kinds", NOW));
            reader.close();
            try (Hold writer = second.upgrade(Ask.within(ofSeconds(5)))) {
                assertTrue(writer.held());
            }
        }
        Ask two = Ask.semaphore(3, 2).until(Duration.ZERO);
        try (Hold permits = hf.lock("j/permits", two)) {
            assertThrows(BusyException.class,
                    () -> other.lock("j/permits", two));
            permits.give(1);
            other.lock("j/permits", two).close();
        }
    }

    @Test
    void aTreeExcludesThoseBelow() {
        try (Hold part = hf.lock("j/shop/17", NOW.tree())) {
            assertTrue(part.held());
            assertThrows(BusyException.class,
                    () -> other.lock("j/shop", NOW.tree()));
            other.lock("j/shop/18", NOW.tree()).close();
        }
    }

    @Test
    void aLockOfTheThreadIsReentrant() throws InterruptedException {
        Lock lock = hf.asLock("j/thread");
        Lock same = hf.asLock("j/thread");
        assertTrue(hf.held("j/thread").isEmpty());
        lock.lock();
        same.lock();
        assertTrue(hf.held("j/thread").orElseThrow().fence() > 0);
        Lock shared = hf.asLock("j/thread", Ask.shared());
        assertThrows(UsageException.class, shared::lock);
        AtomicInteger taken = new AtomicInteger();
        Thread thread = new Thread(() -> taken.set(lock.tryLock() ? 1 : -1));
        thread.start();
        thread.join();
        assertEquals(-1, taken.get());
        lock.unlock();
        assertThrows(BusyException.class, () -> other.lock("j/thread", NOW));
        same.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        Lock theirs = other.asLock("j/thread");
        assertTrue(theirs.tryLock(1, TimeUnit.SECONDS));
        assertFalse(lock.tryLock(20, TimeUnit.MILLISECONDS));
        theirs.unlock();
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
    }

    @Test
    void aDetachedHoldOutlivesItsClient() {
        Detached batch = hf.detached("j/batch",
                NOW.lease(ofSeconds(60)));
        hf.close();
        assertThrows(BusyException.class, () -> other.lock("j/batch", NOW));
        Detached found = other.adopt("j/batch", batch.fence());
        found.renew(ofSeconds(30));
        found.release();
        other.lock("j/batch", NOW).close();
        assertThrows(NotHeldException.class, found::release);
    }

    @Test
    void aWatchTellsTheHolder() {
        try (Watch<Optional<Member>> watch = other.watch("j/leader");
                Watch<Optional<Member>> second = other.watch("j/leader");
                Watch<List<Member>> group = hf.members("j/leader")) {
            assertTrue(watch.next().isEmpty());
            assertTrue(second.next().isEmpty());
            assertTrue(group.next().isEmpty());
            assertThrows(ConflictException.class,
                    () -> other.members("j/leader"));
            Hold hold = hf.lock("j/leader", Ask.plain().note("10.0.0.7:80"));
            assertEquals("10.0.0.7:80", watch.next().get().note());
            assertEquals(hold.fence(), second.next().get().fence());
            assertEquals(hold.fence(), group.next().get(0).fence());
            hold.note("10.0.0.8:80");
            hold.close();
            Optional<Member> last = watch.next();
            while (last.isPresent()) {
                last = watch.next();
            }
            watch.close();
            assertFalse(watch.hasNext());
        }
    }

    @Test
    void aWaitForAFreeLockTakesNothing() {
        Hold hold = hf.lock("j/deploy", Ask.plain().note("v2"));
        assertThrows(TimedOutException.class,
                () -> other.awaitFree("j/deploy", ofMillis(20)));
        CompletableFuture<Freed> free = other.awaitFreeAsync("j/deploy",
                null);
        hold.close();
        free.join();
        hf.lock("j/deploy", NOW).close();
    }

    @Test
    void aLeaderLeadsAgainAfterALoss() throws Exception {
        AtomicInteger terms = new AtomicInteger();
        int result = hf.lead("j/lead", Ask.plain().lease(ofMillis(200)),
                hold -> {
                    if (terms.incrementAndGet() == 1) {
                        Thread.sleep(20_000);
                    }
                    return terms.get();
                });
        assertEquals(2, result);
    }

    @Test
    void aLeadersWorkEndsWithAFailureOfItsOwn() throws Exception {
        AtomicInteger terms = new AtomicInteger();
        Hold own = hf.lock("j/of-work", Ask.plain().lease(ofMillis(200)));
        assertTrue(own.awaitLost(ofSeconds(10)));
        assertThrows(LockLostException.class, () -> hf.lead("j/lead",
                Ask.plain(), hold -> {
                    terms.incrementAndGet();
                    own.check();
                    return null;
                }));
        assertEquals(1, terms.get());
    }

    @Test
    void othersThatWaitAreTold() throws Exception {
        CompletableFuture<Long> wanted = new CompletableFuture<>();
        try (Hold hold = hf.lock("j/wanted", Ask.plain().onWanted(
                (each, waiters) -> wanted.complete(waiters)))) {
            assertTrue(hold.held());
            CompletableFuture<Hold> wait = other.lockAsync("j/wanted");
            assertEquals(1, wanted.get(5, TimeUnit.SECONDS));
            wait.cancel(true);
        }
    }

    @Test
    void aDeadlockNamesItsCycle() {
        Ask first = Ask.within(ofSeconds(10)).owner("t1");
        Ask second = Ask.within(ofSeconds(10)).owner("t2");
        Hold a = hf.lock("j/a,b", first);
        Hold b = other.lock("j/b%", second);
        CompletableFuture<Hold> one = hf.lockAsync(List.of("j/b%"), first);
        CompletableFuture<Hold> two = other.lockAsync(List.of("j/a,b"), second);
        // The younger wait ends, whichever that is.
        Throwable end = assertThrows(CompletionException.class,
                () -> CompletableFuture.anyOf(one, two).join()).getCause();
        DeadlockException cycle =
                assertInstanceOf(DeadlockException.class, end);
        assertTrue(cycle.cycle().containsAll(List.of("j/a,b", "j/b%")),
                cycle.cycle().toString());
        a.close();
        b.close();
        (one.isCompletedExceptionally() ? two : one).join().close();
    }

    @Test
    void aPingIsAnswered() {
        assertTrue(hf.ping(ofSeconds(5)).compareTo(ofSeconds(5)) < 0);
        hf.close();
        assertThrows(ClosedException.class, () -> hf.ping(ofSeconds(5)));
    }

    @Test
    void hooksOfAKindRunInTheirOrder() {
        List<Integer> order = new CopyOnWriteArrayList<>();
        Options options = Options.at(broker.address)
                .onGrant((hold, waited) -> order.add(1))
                .onGrant((hold, waited) -> order.add(2));
        try (Holdfast hooked = Holdfast.connect(options)) {
            hooked.lock("j/order").close();
        }
        assertEquals(List.of(1, 2), order);
    }

    @Test
    void hooksMayBeginCallsAndFail() throws Exception {
        CompletableFuture<HoldfastException> refused =
                new CompletableFuture<>();
        CompletableFuture<String> queued = new CompletableFuture<>();
        Options options = Options.at(broker.address)
                .onGrant((hold, waited) -> {
                    throw new IllegalStateException("of the test's hook");
                })
                .onWait((hold, keys) -> queued.complete(keys.get("note")));
        try (Holdfast hooked = Holdfast.connect(options)) {
            Hold hold = hooked.lock("j/hooks", Ask.plain().note("first")
                    .onWanted((each, waiters) -> {
                        refused.complete(assertThrows(UsageException.class,
                                each::release));
                        each.releaseAsync();
                    }));
            Hold next = hooked.lock("j/hooks", Ask.within(ofSeconds(5)));
            assertEquals("first", queued.get(5, TimeUnit.SECONDS));
            assertEquals("USAGE", refused.join().code());
            assertFalse(hold.held());
            assertTrue(next.held());
        }
    }

    @Test
    void anErrorInAHookHarmsNothing() throws Exception {
        AtomicInteger logged = new AtomicInteger();
        Logger log = Logger.getLogger("holdfast");
        log.setFilter(record -> {
            logged.incrementAndGet();
            return false;
        });
        Options options = Options.at(broker.address)
                .onGrant((hold, waited) -> {
                    throw new AssertionError("of the test's onGrant");
                })
                .onWait((hold, keys) -> {
                    Thread.currentThread().interrupt();
                    throw new StackOverflowError("of the test's onWait");
                })
                .onLost(hold -> {
                    throw new AssertionError("of the test's onLost");
                });
        try (Holdfast hooked = Holdfast.connect(options)) {
            Hold first = hooked.lock("j/error", Ask.plain().onWanted(
                    (each, waiters) -> {
                        each.releaseAsync();
                        throw new LinkageError("of the test's onWanted");
                    }));
            Hold next = hooked.lock("j/error", Ask.within(ofSeconds(5))
                    .lease(ofMillis(500)).onLost(each -> {
                        throw new AssertionError("of the test's Ask");
                    }));
            assertFalse(first.held());
            assertTrue(next.whenLost().get(5, TimeUnit.SECONDS).length() > 0);
            hooked.lock("j/error", Ask.within(ofSeconds(5))).close();
        } finally {
            log.setFilter(null);
        }
        // three grants, each other hook, maybe another wait
        assertTrue(logged.get() >= 7, logged.toString());
    }

    @Test
    void aClosedClientIsALoss() throws Exception {
        AtomicInteger lost = new AtomicInteger();
        AtomicInteger metric = new AtomicInteger();
        CountDownLatch works = new CountDownLatch(1);
        AtomicReference<Throwable> end = new AtomicReference<>();
        Holdfast closing = Holdfast.connect(Options.at(broker.address)
                .onLost(hold -> metric.incrementAndGet()));
        Hold hold = closing.lock("j/closing", Ask.plain()
                .onLost(each -> lost.incrementAndGet()));
        Thread worker = new Thread(() -> end.set(assertThrows(
                LockLostException.class,
                () -> closing.runLocked("j/closing/2", each -> {
                    works.countDown();
                    Thread.sleep(20_000);
                }))));
        worker.start();
        works.await();
        closing.close();
        assertEquals("closed", hold.whenLost().get(5, TimeUnit.SECONDS));
        worker.join();
        assertEquals("closed", ((LockLostException) end.get()).why());
        assertEquals(1, lost.get());
        assertEquals(0, metric.get());
    }

    @Test
    void aLockOfTheThreadWaitsAnyTime() throws Exception {
        Hold hold = other.lock("j/any", Ask.plain().onWanted(
                (each, waiters) -> each.releaseAsync()));
        Lock lock = hf.asLock("j/any", Ask.within(ofMillis(1)));
        assertTrue(lock.tryLock(Long.MAX_VALUE, TimeUnit.SECONDS));
        assertFalse(hold.held());
        CountDownLatch locked = new CountDownLatch(1);
        Thread second = new Thread(() -> {
            lock.lock(); // the wait of the Ask is not used
            locked.countDown();
            lock.unlock();
        });
        second.start();
        assertFalse(other.asLock("j/any").tryLock(-1, TimeUnit.DAYS));
        assertFalse(locked.await(50, TimeUnit.MILLISECONDS));
        lock.unlock();
        second.join();
        assertEquals(0, locked.getCount());
    }

    @Test
    void anExecutorThatRefusesLeavesNoHold() {
        Options options = Options.at(broker.address).executor(work -> {
            throw new RejectedExecutionException();
        });
        try (Holdfast refusing = Holdfast.connect(options)) {
            CompletableFuture<Hold> wait = refusing.lockAsync("j/refused");
            assertThrows(CompletionException.class, wait::join);
            hf.lock("j/refused", Ask.within(ofSeconds(5))).close();
        }
    }

    @Test
    void aClosedClientEndsItsWaits() {
        Hold hold = other.lock("j/closed");
        CompletableFuture<Hold> wait = hf.lockAsync("j/closed");
        Hold mine = hf.lock("j/closed/mine");
        hf.close();
        assertTrue(assertThrows(CompletionException
                .class, wait::join).getCause() instanceof ClosedException);
        assertThrows(ClosedException.class, () -> hf.lock("j/late"));
        assertEquals("closed", mine.lost().orElse(""));
        hold.close();
    }

    @Test
    void aLoneSurrogateIsRefusedAtTheCall() {
        String bad = "j/\ud83d";
        Options at = Options.at(broker.address);
        Hold held = hf.lock("j/surrogate");
        for (Executable call : List.<Executable>of(
                () -> hf.lock(bad), () -> hf.lockAsync(bad),
                () -> hf.asLock(bad), () -> hf.resize(bad, 2),
                () -> hf.detached(bad, NOW.lease(ofSeconds(1))),
                () -> hf.adopt(bad, 7), () -> hf.adopt("", 7),
                () -> hf.watch(bad), () -> hf.members(bad),
                () -> hf.awaitFree(bad, null), () -> held.note(bad),
                () -> hf.lock("j/s", Ask.plain().note(bad)),
                () -> hf.lock("j/s", Ask.plain().owner(bad)),
                () -> at.name(bad), () -> at.user(bad, ""),
                () -> at.user("", bad))) {
            assertThrows(UsageException.class, call);
        }
        held.note("good");
        held.close();
    }

    @Test
    void badArgumentsAreRefused() {
        assertThrows(UsageException.class, () -> Options.at("host:port"));
        assertNotNull(Options.at("a").serverName("a").context());
        assertThrows(UsageException.class,
                () -> hf.lock(List.of(), Ask.plain()));
        assertThrows(UsageException.class,
                () -> hf.lock("x".repeat(300), NOW));
        assertThrows(UsageException.class,
                () -> Ask.within(ofSeconds(-1)));
        assertThrows(UsageException.class,
                () -> hf.awaitFree("j/bad", ofSeconds(-1)));
        assertThrows(UsageException.class,
                () -> hf.awaitFreeAsync("j/bad", ofSeconds(-1)));
        assertThrows(UnavailableException.class, () -> Holdfast.connect(
                Options.at("127.0.0.1:1").timeout(ofSeconds(3))));
    }
}
