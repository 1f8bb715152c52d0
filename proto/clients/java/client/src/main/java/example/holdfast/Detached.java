package example.holdfast;

import java.time.Duration;
import java.util.List;

/** A hold that outlives its client: its name and fence are all it takes. */
public final class Detached {
    private final Holdfast client;
    private final Grant grant;

    Detached(Holdfast client, Grant grant) {
        this.client = client;
        this.grant = grant;
    }

    /**
     * The name of the lock.
     *
     * @return the name
     */
    public String name() {
        return grant.name();
    }

    /**
     * The number of the grant, larger than all before.
     *
     * @return the fence
     */
    public long fence() {
        return grant.fence();
    }

    /**
     * The time for which the lock can be relied on. Nobody is asked.
     *
     * @return the time; 0 also before the first {@link #renew} of an adopted
     *     hold
     */
    public Duration left() {
        return Duration.ofNanos((long) (grant.left(Clock.now()) * 1e9));
    }

    /**
     * Throws if the lock cannot be relied on. Nobody is asked.
     *
     * @throws LockLostException if its end has come
     * @throws NotHeldException if it was given back, or its end is not known
     */
    public void check() {
        double now = Clock.now();
        if (grant.why(now) != null) {
            throw Failure.lost(name(), grant.why(now)).exception();
        }
        if (grant.left(now) == 0) {
            throw Failure.notHeld(name()).exception();
        }
    }

    /**
     * A new end of the hold.
     *
     * @param lease the time from now on, 24 h at most
     * @throws NotHeldException if it has ended
     */
    public void renew(Duration lease) {
        Ask.checked("lease", lease);
        client.await(client.begin(() -> List.of(client.core()
                .renewDetached(grant, lease.toNanos() / 1e9))), null);
    }

    /**
     * Gives the lock back.
     *
     * @throws NotHeldException if it has ended
     */
    public void release() {
        release("");
    }

    /**
     * Gives the lock back, and has nobody granted it for a while.
     *
     * @param delay the time, 24 h at most
     * @throws NotHeldException if the hold has ended
     */
    public void release(Duration delay) {
        Ask.checked("delay", delay);
        release(" delay=" + delay.toMillis());
    }

    private void release(String words) {
        client.await(client.begin(() -> List.of(client.core().detached(
                "UNLOCK", grant, words))), null);
    }
}
