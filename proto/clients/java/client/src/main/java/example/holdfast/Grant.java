package example.holdfast;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * One lock that was granted. The core alone writes to it; any thread reads
 * the volatile fields.
 */
final class Grant {
    /** What a hold is known by: another owner's, or an earlier one, is not. */
    record Key(String name, String owner, long fence) {
    }

    /** Why holds are lost that their client gave back as a whole. */
    static final String CLOSED = "closed";
    private static final double NEVER = Double.NEGATIVE_INFINITY;

    final Key key;
    /** By answers alone. */
    private double answered = NEVER;
    /** RENEWs that were sent and are not done: each bounds the deadline. */
    private final List<Call> renewals = new ArrayList<>(0);
    /** By the clock of the client; nothing is believed beyond it. */
    volatile double deadline = NEVER;
    /** Why it was lost; null: it was not. */
    volatile String lost;
    /** The client has sent its last UNLOCK. */
    volatile boolean released;
    /** Calls of LOCK that were granted, less those of UNLOCK. */
    int entries;
    boolean upgrade;
    boolean wanted;
    /** A hold with lease= has a deadline of its own (6.5). */
    boolean leased;
    /** Its lease is longer than its ttl_ms: only HELD moves the deadline. */
    boolean outlasts;
    /** The present connection has not claimed it yet. */
    boolean unclaimed;
    /** The call that is answered once the hold is confirmed. */
    Call confirming;
    /** The objects that are told of its loss. */
    final List<Hold> users = new CopyOnWriteArrayList<>();

    Grant(String name, String owner, long fence) {
        key = new Key(name, owner, fence);
    }

    /** An answer sets the deadline. */
    void date(double at) {
        answered = at;
        bound();
    }

    /** The deadline is not later than this, until the next answer. */
    void cap(double at) {
        answered = Math.min(answered, at);
        bound();
    }

    /** A RENEW was sent: its new end may be true from now on (6.5). */
    void renewing(Call call) {
        if (!renewals.contains(call)) {
            renewals.add(call);
        }
        bound();
    }

    /** The RENEW is done. In doubt, its bound stays. */
    void renewed(Call call) {
        renewals.remove(call);
        cap(call.bound);
    }

    private void bound() {
        double least = answered;
        for (Call call : renewals) {
            least = Math.min(least, call.bound);
        }
        deadline = least;
    }

    String name() {
        return key.name();
    }

    String owner() {
        return key.owner();
    }

    long fence() {
        return key.fence();
    }

    /** Why it is lost, also by its deadline; null: it is not. */
    String why(double now) {
        boolean late = !released && deadline != NEVER && now >= deadline;
        return lost == null && late ? "deadline" : lost;
    }

    boolean usable() {
        return lost == null && !released;
    }

    /** Seconds for which it can be relied on; 0: not any more. */
    double left(double now) {
        return usable() ? Math.max(0, deadline - now) : 0;
    }
}
