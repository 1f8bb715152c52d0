package example.holdfast;

import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.ObjLongConsumer;

/**
 * How to ask for a lock. An object never changes: each method returns a
 * changed copy. By default the lock is exclusive, and a wait has no limit.
 */
public final class Ask {
    private static final Duration LONGEST = Duration.ofDays(365);
    private static final Ask PLAIN = new Ask();

    Duration wait;
    Duration lease;
    Duration delay;
    String owner;
    String note;
    String mode;
    int limit;
    int permits;
    boolean tree;
    boolean interrupts = true;
    Consumer<Hold> onLost;
    ObjLongConsumer<Hold> onWanted;

    private Ask() {
    }

    private Ask(Ask other) {
        wait = other.wait;
        lease = other.lease;
        delay = other.delay;
        owner = other.owner;
        note = other.note;
        mode = other.mode;
        limit = other.limit;
        permits = other.permits;
        tree = other.tree;
        interrupts = other.interrupts;
        onLost = other.onLost;
        onWanted = other.onWanted;
    }

    private Ask with(Consumer<Ask> change) {
        Ask copy = new Ask(this);
        change.accept(copy);
        return copy;
    }

    static void checked(String what, Duration time) {
        if (time.isNegative() || time.compareTo(LONGEST) > 0) {
            throw new UsageException(what + "=" + time
                    + " is no time from 0 to " + LONGEST);
        }
    }

    /**
     * An exclusive lock, and a wait without a limit.
     *
     * @return the defaults
     */
    public static Ask plain() {
        return PLAIN;
    }

    /**
     * A limit of the wait.
     *
     * @param time the longest wait; 0 does not wait at all
     * @return the defaults with this limit
     */
    public static Ask within(Duration time) {
        return PLAIN.until(time);
    }

    /**
     * A lock that is shared with others that ask so.
     *
     * @return the defaults for a shared lock
     */
    public static Ask shared() {
        return PLAIN.with(copy -> copy.mode = "shared");
    }

    /**
     * A lock beside shared ones, for {@link Hold#upgrade}.
     *
     * @return the defaults for an upgradable lock
     */
    public static Ask upgradable() {
        return PLAIN.with(copy -> copy.mode = "upgradable");
    }

    /**
     * Permits of a semaphore.
     *
     * @param limit of all permits
     * @param permits of this hold
     * @return the defaults for a semaphore
     */
    public static Ask semaphore(int limit, int permits) {
        if (limit < 1 || permits < 1 || permits > limit) {
            throw new UsageException(permits + " permits of " + limit);
        }
        return PLAIN.with(copy -> {
            copy.limit = limit;
            copy.permits = permits;
        });
    }

    /**
     * A limit of the wait.
     *
     * @param time the longest wait; 0 does not wait at all
     * @return a changed copy
     */
    public Ask until(Duration time) {
        checked("wait", time);
        return with(copy -> copy.wait = time);
    }

    /**
     * An end of the hold. By default the hold lasts until it is given back.
     *
     * @param time from the grant on
     * @return a changed copy
     */
    public Ask lease(Duration time) {
        checked("lease", time);
        return with(copy -> copy.lease = time);
    }

    /**
     * A lock-delay: nobody gets the lock for so long, if this client dies.
     *
     * @param time the time
     * @return a changed copy
     */
    public Ask delay(Duration time) {
        checked("delay", time);
        return with(copy -> copy.delay = time);
    }

    /**
     * The owner of the hold. An owner may take a lock twice, and is part of
     * deadlock detection. By default each hold has an owner of its own, so
     * that threads exclude each other.
     *
     * @param word the owner; it must not begin with {@code ~}
     * @return a changed copy
     */
    public Ask owner(String word) {
        if (word != null && word.startsWith("~")) {
            throw new UsageException(
                    "owner: '" + word + "'; it must not begin with '~'");
        }
        return by(word);
    }

    /** Whether the other one asks for the same kind of lock. */
    boolean isLike(Ask other) {
        return Objects.equals(mode, other.mode) && limit == other.limit
                && permits == other.permits && tree == other.tree;
    }

    /** Of an owner that no user can name, too. */
    Ask by(String word) {
        return with(copy -> copy.owner = word);
    }

    /** With any wait: beyond the longest one it has no limit. */
    Ask forSeconds(double wait) {
        return with(copy -> copy.wait = wait > LONGEST.toSeconds() ? null
                : Duration.ofNanos((long) (Math.max(0, wait) * 1e9)));
    }

    /**
     * A note for others who look, and for those who watch.
     *
     * @param text the note
     * @return a changed copy
     */
    public Ask note(String text) {
        return with(copy -> copy.note = text);
    }

    /**
     * The name is a path: it excludes those above and below it.
     *
     * @return a changed copy
     */
    public Ask tree() {
        return with(copy -> copy.tree = true);
    }

    /**
     * Whether {@link Holdfast#runLocked} and its like interrupt the thread at
     * the loss of the lock. They do by default.
     *
     * @param flag false: they do not
     * @return a changed copy
     */
    public Ask interrupts(boolean flag) {
        return with(copy -> copy.interrupts = flag);
    }

    /**
     * A hook for the loss, also by {@link Holdfast#close}. It runs in the
     * thread of the client, and must not wait.
     *
     * @param hook gets the hold
     * @return a changed copy
     */
    public Ask onLost(Consumer<Hold> hook) {
        return with(copy -> copy.onLost = hook);
    }

    /**
     * A hook for others that wait. It runs in the thread of the client, and
     * must not wait.
     *
     * @param hook gets the hold and the number of waiters
     * @return a changed copy
     */
    public Ask onWanted(ObjLongConsumer<Hold> hook) {
        return with(copy -> copy.onWanted = hook);
    }
}
