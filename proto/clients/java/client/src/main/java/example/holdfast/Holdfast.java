package example.holdfast;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A client: any number of locks, for all threads of the process, over one
 * connection. It reconnects by itself. Without
 * {@link Options#keep} the end of a connection is the end of its locks; with
 * it they move to the next broker.
 *
 * <p>Calls that wait may be interrupted. They throw
 * {@link CancelledException} then, and keep the interrupt status. A lock that
 * comes late is given back.
 */
public final class Holdfast implements AutoCloseable {
    /** For the answer to an UNLOCK; the hold is over before. */
    static final Duration RELEASE = Duration.ofSeconds(10);
    private static final int NAMES_MAX = 16;
    private static final Duration LEAD_PAUSE = Duration.ofSeconds(1);

    final Options options;
    final Engine engine;
    final Map<ThreadLock.Key, ThreadLock.Entry> threads =
            new ConcurrentHashMap<>();

    private Holdfast(Options options) {
        this.options = options;
        engine = new Engine(options, this::act);
    }

    /**
     * Connects to a broker, within {@link Options#timeout}.
     *
     * @param options addresses and so on
     * @return a client
     * @throws UnavailableException if no broker answers
     * @throws DeniedException if the broker refuses the user
     */
    public static Holdfast connect(Options options) {
        Holdfast client = new Holdfast(options);
        try {
            client.await(client.begin(() -> List.of(client.core().ready())),
                    options.timeout);
            return client;
        } catch (RuntimeException failure) {
            client.close();
            throw failure;
        }
    }

    /**
     * Gives all locks back. For a hold that is still in use this is a loss with
     * the reason {@code closed}: it ends {@link Hold#whenLost}, runs
     * {@link Ask#onLost}, and interrupts the work of {@link #runLocked}.
     * {@link Options#onLost} is not run. Calls that wait get a
     * {@link ClosedException}.
     */
    @Override
    public void close() {
        engine.close();
    }

    // --- calls

    /** The state; only within begin() and Engine.act(). */
    Core core() {
        return engine.core;
    }

    /** Calls whose answers this thread awaits. */
    List<Call> begin(Supplier<List<Call>> make) {
        engine.checkMayWait();
        return engine.begin(make);
    }

    /** Calls that nobody waits for here: hooks may do this, too. */
    List<Call> submit(Supplier<List<Call>> make) {
        return engine.begin(make);
    }

    /** Waits for all answers, and throws the first error. */
    List<Call> await(List<Call> calls, Duration limit) {
        try {
            CompletableFuture<Void> all = all(calls);
            if (limit == null) {
                all.get();
            } else {
                all.get(limit.toNanos(), TimeUnit.NANOSECONDS);
            }
        } catch (InterruptedException e) {
            engine.giveUp(calls);
            Thread.currentThread().interrupt();
            throw Failure.cancelled().exception();
        } catch (TimeoutException e) {
            engine.giveUp(calls);
            throw Failure.gone("no broker answers").exception();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e);
        }
        throwFirst(calls);
        return calls;
    }

    private static void throwFirst(List<Call> calls) {
        for (Call call : calls) {
            if (call.failure != null) {
                throw call.failure.exception();
            }
        }
    }

    private static CompletableFuture<Void> all(List<Call> calls) {
        return calls.size() == 1 ? calls.get(0).waiter
                : CompletableFuture.allOf(calls.stream()
                        .map(call -> call.waiter)
                        .toArray(CompletableFuture<?>[]::new));
    }

    /** The same without a wait. To end the future is to give up. */
    <T> CompletableFuture<T> async(List<Call> calls,
            Function<Call, T> result) {
        CompletableFuture<T> future = new CompletableFuture<>();
        all(calls).thenRunAsync(() -> {
            throwFirst(calls);
            future.complete(result.apply(calls.get(0)));
        }, options.executor).exceptionally(failure -> {
            future.completeExceptionally(
                    failure instanceof CompletionException
                            ? failure.getCause() : failure);
            return null;
        });
        future.whenComplete((value, failure) -> {
            if (failure != null) {
                engine.giveUp(calls);
            }
        });
        return future;
    }

    // --- locks

    /**
     * Takes an exclusive lock; waits without a limit.
     *
     * @param name of the lock
     * @return the lock
     */
    public Hold lock(String name) {
        return lock(name, Ask.plain());
    }

    /**
     * Takes a lock.
     *
     * @param name of the lock
     * @param ask the kind of the lock, the limit of the wait and so on
     * @return the lock
     * @throws BusyException if it is held, and the wait is 0
     * @throws TimedOutException if it was held until the wait was over
     * @throws DeadlockException if the wait was part of a deadlock
     * @throws UnavailableException if there is no answer now
     */
    public Hold lock(String name, Ask ask) {
        return lock(List.of(name), ask);
    }

    /**
     * Takes a lock of all names, or of none.
     *
     * @param names 1 to 16 names
     * @param ask as for one name
     * @return the lock of all names
     */
    public Hold lock(List<String> names, Ask ask) {
        Hold hold = new Hold(this, checked(names), ask);
        long began = System.nanoTime();
        engine.checkMayWait();
        await(locking(hold), null);
        granted(hold, began);
        return hold;
    }

    /** The same for a thread that no interrupt stops from waiting. */
    Hold lockThrough(String name, Ask ask) {
        Hold hold = new Hold(this, List.of(name), ask);
        long began = System.nanoTime();
        engine.checkMayWait();
        List<Call> calls = locking(hold);
        all(calls).join();
        throwFirst(calls);
        granted(hold, began);
        return hold;
    }

    private List<Call> locking(Hold hold) {
        return submit(() -> {
            Call call = core().lock(hold.names, hold.ask, false);
            call.user = hold;
            return List.of(call);
        });
    }

    private void granted(Hold hold, long began) {
        if (options.onGrant != null) {
            Duration waited = Duration.ofNanos(System.nanoTime() - began);
            Engine.guarded(() -> options.onGrant.accept(hold, waited));
        }
    }

    private static List<String> checked(List<String> names) {
        if (names.isEmpty() || names.size() > NAMES_MAX
                || names.contains("")) {
            throw new UsageException("1 to " + NAMES_MAX + " names, not "
                    + names);
        }
        names.forEach(Words::bytes);
        return List.copyOf(names);
    }

    private static String checked(String name) {
        return checked(List.of(name)).get(0);
    }

    /**
     * Takes an exclusive lock without a wait of the caller.
     *
     * @param name of the lock
     * @return the lock to be. To cancel it gives back a lock that comes late.
     *     If cancel() is false, the lock is held
     */
    public CompletableFuture<Hold> lockAsync(String name) {
        return lockAsync(List.of(name), Ask.plain());
    }

    /**
     * Takes a lock without a wait of the caller.
     *
     * @param names 1 to 16 names
     * @param ask as for {@link #lock(String, Ask)}, with the same errors
     * @return the lock to be. To cancel it gives back a lock that comes late.
     *     If cancel() is false, the lock is held
     */
    public CompletableFuture<Hold> lockAsync(List<String> names, Ask ask) {
        Hold hold = new Hold(this, checked(names), ask);
        long began = System.nanoTime();
        return async(locking(hold), call -> {
            granted(hold, began);
            return hold;
        });
    }

    /**
     * Work that a lock protects.
     *
     * @param <T> its result
     * @param <E> what it may throw
     */
    @FunctionalInterface
    public interface Work<T, E extends Exception> {
        /**
         * Does the work.
         *
         * @param hold the lock
         * @return the result
         * @throws E as it likes
         */
        T run(Hold hold) throws E;
    }

    /**
     * Work without a result.
     *
     * @param <E> what it may throw
     */
    @FunctionalInterface
    public interface Task<E extends Exception> {
        /**
         * Does the work.
         *
         * @param hold the lock
         * @throws E as it likes
         */
        void run(Hold hold) throws E;
    }

    /**
     * Runs work with an exclusive lock. At the loss of the lock the thread is
     * interrupted, and this throws a {@link LockLostException}.
     *
     * @param <E> what the work may throw
     * @param name of the lock
     * @param task the work
     * @throws E of the work
     */
    public <E extends Exception> void runLocked(String name, Task<E> task)
            throws E {
        runLocked(name, Ask.plain(), task);
    }

    /**
     * Runs work with a lock.
     *
     * @param <E> what the work may throw
     * @param name of the lock
     * @param ask as for {@link #lock(String, Ask)}; and
     *     {@link Ask#interrupts}
     * @param task the work
     * @throws E of the work
     */
    public <E extends Exception> void runLocked(String name, Ask ask,
            Task<E> task) throws E {
        this.<Void, E>callLocked(name, ask, hold -> {
            task.run(hold);
            return null;
        });
    }

    /**
     * Runs work with a lock, and returns its result.
     *
     * @param <T> the result
     * @param <E> what the work may throw
     * @param name of the lock
     * @param ask as for {@link #runLocked(String, Ask, Task)}
     * @param work the work
     * @return the result
     * @throws E of the work
     */
    public <T, E extends Exception> T callLocked(String name, Ask ask,
            Work<T, E> work) throws E {
        Interrupter interrupter = new Interrupter(ask);
        try (Hold hold = lock(name, interrupter.ask())) {
            try {
                return work.run(hold);
            } catch (Exception failure) {
                interrupter.lost(failure);
                throw failure;
            } finally {
                interrupter.end();
            }
        }
    }

    /**
     * A lock as {@link java.util.concurrent.locks.Lock}. It is re-entrant:
     * its owner is the thread. It has no conditions.
     *
     * @param name of the lock
     * @return a lock; others of the same name and client are the same lock
     */
    public Lock asLock(String name) {
        return asLock(name, Ask.plain());
    }

    /**
     * A lock as {@link java.util.concurrent.locks.Lock}.
     *
     * @param name of the lock
     * @param ask the kind of the lock and so on; owner and wait are not used
     * @return a lock
     */
    public Lock asLock(String name, Ask ask) {
        return new ThreadLock(this, checked(name), ask);
    }

    /**
     * What this thread holds by {@link #asLock(String)}: its fence, say.
     *
     * @param name of the lock
     * @return the hold, which {@code unlock()} gives back; empty if this
     *     thread does not hold the lock
     */
    public Optional<Hold> held(String name) {
        return ThreadLock.held(this, name);
    }

    /**
     * Takes a lock that outlives this client.
     *
     * @param name of the lock
     * @param ask with {@link Ask#lease}
     * @return the lock, by its fence
     */
    public Detached detached(String name, Ask ask) {
        Call call = await(begin(() -> List.of(core().lock(
                List.of(checked(name)), ask, true))), null).get(0);
        return new Detached(this, call.grants.get(0));
    }

    /**
     * A detached hold that another program took. Nobody is asked.
     *
     * @param name of the lock
     * @param fence of the hold
     * @return the hold
     */
    public Detached adopt(String name, long fence) {
        return new Detached(this, new Grant(checked(name), "", fence));
    }

    /**
     * Asks the broker for an answer: is it there?
     *
     * @param wait the longest wait, also for a connection
     * @return the time that the answer took
     * @throws UnavailableException if there is no answer by then
     */
    public Duration ping(Duration wait) {
        Ask.checked("wait", wait);
        long began = System.nanoTime();
        await(begin(() -> List.of(core().ping())), wait);
        return Duration.ofNanos(System.nanoTime() - began);
    }

    /**
     * Another limit for a semaphore that is held or waited for.
     *
     * @param name of the semaphore
     * @param limit of all permits
     */
    public void resize(String name, int limit) {
        await(begin(() -> List.of(core().resize(
                checked(name), limit))), null);
    }

    /**
     * Waits until nobody holds a lock, and takes nothing.
     *
     * @param name of the lock
     * @param wait the longest wait; null has no limit
     * @return what is known of the last grant
     * @throws TimedOutException if the wait is over
     */
    public Freed awaitFree(String name, Duration wait) {
        engine.checkMayWait();
        return freed(await(awaiting(name, wait), null).get(0));
    }

    /**
     * The same without a wait of the caller.
     *
     * @param name of the lock
     * @param wait the longest wait; null has no limit
     * @return done when the lock is free
     */
    public CompletableFuture<Freed> awaitFreeAsync(String name,
            Duration wait) {
        return async(awaiting(name, wait), Holdfast::freed);
    }

    private List<Call> awaiting(String name, Duration wait) {
        if (wait != null) {
            Ask.checked("wait", wait);
        }
        return submit(() -> List.of(core().awaitFree(checked(name),
                wait == null ? -1 : wait.toNanos() / 1e9)));
    }

    private static Freed freed(Call call) {
        return new Freed(Line.number(call.keys, "fence"),
                call.keys.getOrDefault("note", ""));
    }

    // --- others' locks

    /**
     * Who holds a lock: now, and after each change.
     *
     * @param name of the lock
     * @return the holders; an empty one if the lock is free
     */
    public Watch<Optional<Member>> watch(String name) {
        return new Watch<>(this, checked(name), false);
    }

    /**
     * All holders of a lock, by their fences: now, and after each change.
     *
     * @param name of the lock
     * @return the lists
     */
    public Watch<List<Member>> members(String name) {
        return new Watch<>(this, checked(name), true);
    }

    /**
     * Runs work as the leader, again after each loss.
     *
     * @param <T> the result
     * @param <E> what the work may throw
     * @param name of the lock of the leaders
     * @param ask with a note that tells others who leads
     * @param work is interrupted at a loss
     * @return the result of the work
     * @throws E of the work
     * @throws InterruptedException if the thread is interrupted in a pause
     */
    public <T, E extends Exception> T lead(String name, Ask ask,
            Work<T, E> work) throws E, InterruptedException {
        while (true) {
            AtomicReference<Hold> led = new AtomicReference<>();
            AtomicBoolean done = new AtomicBoolean();
            try {
                return callLocked(name, ask, hold -> {
                    led.set(hold);
                    T result = work.run(hold);
                    done.set(true);
                    return result;
                });
            } catch (LockLostException lost) {
                // Of another lock it is the end of the work, like any failure.
                if (led.get() != null && !done.get()
                        && led.get().lost().isEmpty()) {
                    throw lost;
                }
            } catch (UnavailableException failure) {
                if (led.get() != null || !failure.retry()) {
                    throw failure;
                }
                Duration pause = failure.after().isZero() ? LEAD_PAUSE
                        : failure.after();
                Thread.sleep(pause.toMillis());
            }
        }
    }

    // --- events, in the client's thread

    private void act(Event event) {
        if (event instanceof Event.Lost lost) {
            for (Hold hold : lost.grant().users) {
                hold.tellLost(lost.grant().lost);
            }
        } else if (event instanceof Event.Wanted wanted) {
            for (Hold hold : wanted.grant().users) {
                hold.tellWanted(wanted.waiters());
            }
        } else if (event instanceof Event.Seen seen) {
            for (Watch<?> watch : seen.users()) {
                watch.tell(seen.news());
            }
        } else if (event instanceof Event.WatchOver over) {
            over.watched().users.forEach(Watch::tellOver);
        } else if (event instanceof Event.Queued queued) {
            if (options.onWait != null && queued.call().user != null) {
                options.onWait.accept(queued.call().user, queued.keys());
            }
        } else if (event instanceof Event.Moved && options.onMove != null) {
            options.onMove.run();
        }
    }
}
