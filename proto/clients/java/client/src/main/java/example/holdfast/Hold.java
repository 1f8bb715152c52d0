package example.holdfast;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A lock of one or several names that was granted. {@link #close} gives it
 * back.
 */
public final class Hold implements AutoCloseable {
    private final Holdfast client;
    final Ask ask;
    final List<String> names;
    private final AtomicBoolean over = new AtomicBoolean();
    private final AtomicBoolean told = new AtomicBoolean();
    private final CompletableFuture<String> gone = new CompletableFuture<>();
    private volatile List<Grant> grants = List.of();

    Hold(Holdfast client, List<String> names, Ask ask) {
        this.client = client;
        this.names = names;
        this.ask = ask;
    }

    /**
     * The first name.
     *
     * @return the name
     */
    public String name() {
        return names.get(0);
    }

    /**
     * The number of the grant, larger than all before: give it to what the
     * lock protects.
     *
     * @return the fence of the first name
     */
    public long fence() {
        return fences().get(0);
    }

    /**
     * The fences of all names, in their order.
     *
     * @return the fences
     */
    public List<Long> fences() {
        List<Long> all = new ArrayList<>();
        for (Grant grant : grants) {
            all.add(grant.fence());
        }
        return all;
    }

    /**
     * The time for which the lock can be relied on without further word.
     * Nobody is asked.
     *
     * @return the time; 0 if the lock is lost, or given back
     */
    public Duration left() {
        double now = Clock.now();
        double least = grants.isEmpty() || over.get() ? 0 : Core.FOREVER;
        for (Grant grant : grants) {
            least = Math.min(least, grant.left(now));
        }
        return Duration.ofNanos((long) (least * 1e9));
    }

    /**
     * Why the lock was lost, also by its deadline. Nobody is asked.
     *
     * @return the reason; empty if it is not lost
     */
    public Optional<String> lost() {
        double now = Clock.now();
        for (Grant grant : grants) {
            if (grant.why(now) != null) {
                return Optional.of(grant.why(now));
            }
        }
        return Optional.empty();
    }

    /**
     * Whether the lock can be relied on now. Nobody is asked.
     *
     * @return true if it can
     */
    public boolean held() {
        return !left().isZero();
    }

    /**
     * Throws if the lock cannot be relied on any more. Nobody is asked.
     *
     * @throws LockLostException if it is lost, also by its deadline
     * @throws NotHeldException if it was given back
     */
    public void check() {
        Optional<String> why = lost();
        if (why.isPresent()) {
            throw Failure.lost(name(), why.get()).exception();
        }
        if (!held()) {
            throw Failure.notHeld(name()).exception();
        }
    }

    /**
     * Done at the loss, with its reason, in {@link Options#executor}. The end
     * of the client is a loss with the reason {@code closed}. A hold that is
     * given back never ends the future.
     *
     * @return a future of its own
     */
    public CompletableFuture<String> whenLost() {
        return gone.copy();
    }

    /**
     * Waits until the lock is lost.
     *
     * @param time the longest wait
     * @return false if it is not lost by then
     * @throws InterruptedException if the thread is interrupted
     */
    public boolean awaitLost(Duration time) throws InterruptedException {
        try {
            gone.get(time.toNanos(), TimeUnit.NANOSECONDS);
            return true;
        } catch (TimeoutException e) {
            return lost().isPresent();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * Gives the lock back, if that was not done. The hold is over from the
     * call on, whatever the broker answers.
     *
     * @throws LockLostException if the lock was lost before
     */
    @Override
    public void close() {
        if (over.get()) {
            return;
        }
        try {
            release();
        } catch (HoldfastException failure) {
            if (!failure.retry()) {
                throw failure; // else the broker goes on with the release
            }
        }
    }

    /**
     * Gives the lock back.
     *
     * @throws LockLostException if the lock was lost before
     * @throws NotHeldException if it was given back before
     */
    public void release() {
        client.await(releasing("", client::begin), Holdfast.RELEASE);
    }

    /**
     * Gives the lock back, and has nobody granted it for a while.
     *
     * @param delay the time
     */
    public void release(Duration delay) {
        Ask.checked("delay", delay);
        client.await(releasing(" delay=" + delay.toMillis(),
                client::begin), Holdfast.RELEASE);
    }

    /**
     * Gives the lock back without a wait.
     *
     * @return done when the broker has answered; its errors are those of
     *     {@link #release()}
     */
    public CompletableFuture<Void> releaseAsync() {
        return client.async(releasing("", client::submit), call -> null);
    }

    private List<Call> releasing(String words,
            Function<Supplier<List<Call>>, List<Call>> begin) {
        return begin.apply(() -> {
            if (!over.compareAndSet(false, true)) {
                throw Failure.notHeld(name()).exception();
            }
            List<Call> calls = new ArrayList<>();
            for (Grant grant : grants) {
                grant.users.remove(this);
                calls.add(client.core().unlock(grant, words));
            }
            return calls;
        });
    }

    /** One call for each name. */
    private List<Call> about(Function<Grant, Call> make) {
        return client.begin(() -> grants.stream().map(make).toList());
    }

    /**
     * A new end of the hold.
     *
     * @param lease the time from now on
     */
    public void renew(Duration lease) {
        Ask.checked("lease", lease);
        client.await(about(grant -> client.core().renew(grant,
                lease.toNanos() / 1e9)), null);
    }

    /**
     * Another note, which others see.
     *
     * @param text the note; "" is none
     */
    public void note(String text) {
        client.await(about(grant -> client.core().note(grant, text)), null);
    }

    /**
     * Gives some permits of a semaphore back, and keeps the others.
     *
     * @param permits how many
     */
    public void give(int permits) {
        client.await(about(grant -> client.core().part(grant, permits)),
                null);
    }

    /**
     * The exclusive lock above an upgradable one; give it back first.
     *
     * @param how the limit of the wait, a note and so on
     * @return the exclusive lock
     */
    public Hold upgrade(Ask how) {
        check();
        return client.lock(names, how.by(grants.get(0).owner()));
    }

    @Override
    public String toString() {
        return "Hold[" + String.join(" ", names) + lost()
                .map(why -> " lost: " + why)
                .orElse(" " + left().toMillis() + " ms left") + "]";
    }

    // --- the client's, with its mutex or in its thread

    void granted(List<Grant> all) {
        grants = all;
        for (Grant grant : all) {
            grant.users.add(this);
        }
    }

    void tellLost(String why) {
        if (over.get() || !told.compareAndSet(false, true)) {
            return;
        }
        if (ask.onLost != null) {
            Engine.guarded(() -> ask.onLost.accept(this));
        }
        if (client.options.onLost != null && !why.equals(Grant.CLOSED)) {
            Engine.guarded(() -> client.options.onLost.accept(this));
        }
        try {
            gone.completeAsync(() -> why, client.options.executor);
        } catch (RuntimeException refused) {
            gone.complete(why); // it may wait for nobody
        }
    }

    void tellWanted(long waiters) {
        if (ask.onWanted != null) {
            Engine.guarded(() -> ask.onWanted.accept(this, waiters));
        }
    }
}
