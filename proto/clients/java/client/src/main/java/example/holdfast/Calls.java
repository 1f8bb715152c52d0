package example.holdfast;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleSupplier;

/**
 * Requests and their final replies: the lowest part of the core. A call is
 * parked until a broker serves the session, or until an earlier call about the
 * same hold is answered. Sent, it has a tag that is never used again.
 *
 * <p>The parts of the core are one object: Calls, Grants, Watches, Session,
 * Core. Each part knows those before it in this list.
 */
abstract class Calls {
    static final double FOREVER = Double.POSITIVE_INFINITY;
    /** Of a broker that does not answer a PING. */
    static final double SILENCE = 10;
    private static final double PING_LEAST = 0.05;
    /** Clocks do not run alike: 1 % of each time is not used. */
    static final double DRIFT = 0.99;
    /** A lease ends that much sooner for its client. */
    private static final double LEASE_SLACK = 0.002;

    /** The connection, as Core explains. */
    enum Link {
        IDLE, PAUSE, DIALING, GREETING, HELLO, OPEN, CLOSED;

        boolean connected() {
            return this == GREETING || this == HELLO || this == OPEN;
        }
    }

    final Settings settings;
    final DoubleSupplier clock;
    final DoubleSupplier chance;
    Link link = Link.IDLE;
    double dialAt;
    final Map<Grant.Key, Grant> grants = new LinkedHashMap<>();
    final StringBuilder out = new StringBuilder();
    List<Event> events = new ArrayList<>();
    Lines lines = new Lines();
    private long tags;
    /** Sent, by tag. */
    final Map<String, Call> calls = new LinkedHashMap<>();
    /** Not sent, in their order. */
    List<Call> parked = new ArrayList<>();
    final Map<String, Watched> watches = new LinkedHashMap<>();

    // the session
    /** Its ID, if it is kept. */
    String session;
    /** As the broker has agreed. */
    double keep;
    long gen;
    double awayAt = FOREVER;
    /** Holds are to be claimed. */
    boolean settling;

    // the connection
    /** The next connection is of the same round of all addresses. */
    boolean more;
    int rounds;
    double opened;
    /** Greeting and HELLO must have come. */
    double by = FOREVER;
    double moveAt = FOREVER;
    /** The first parked call that is due. */
    double retryAt = FOREVER;

    // deadlines
    /** No deadline is sooner. */
    double soonest = FOREVER;
    /** The last sending of an answered request. */
    double proven;
    /** As last told, or silence_ms of HELLO. */
    double ttl = SILENCE;
    Call ping;
    double pingAt = FOREVER;

    Calls(Settings settings, DoubleSupplier clock, DoubleSupplier chance) {
        this.settings = settings;
        this.clock = clock;
        this.chance = chance;
        proven = Double.NEGATIVE_INFINITY;
        dialAt = Double.NEGATIVE_INFINITY;
    }

    final double now() {
        return clock.getAsDouble();
    }

    final Call about(String verb, Grant grant) {
        Call call = new Call(verb, grant.name());
        call.words = "fence=" + grant.fence();
        if (!grant.owner().isEmpty()) {
            call.words += " owner=" + Words.encode(grant.owner());
        }
        call.owner = grant.owner();
        call.grant = grant;
        return call;
    }

    final Call submit(Call call) {
        double now = now();
        call.asked = now;
        if (link == Link.CLOSED) {
            finish(call, Failure.closed());
        } else if (call.grant != null && call.grant.lost != null
                && !call.own) {
            finish(call, Failure.lost(call.grant.name(),
                    call.grant.lost));
        } else if (link == Link.OPEN && !blocked(call, now)) {
            send(call, now);
        } else {
            parked.add(call);
            if (link == Link.IDLE) {
                link = Link.PAUSE;
            }
        }
        return call;
    }

    /**
     * An unclaimed hold comes first: a LOCK would take it for its own first
     * one (profile C, 4).
     */
    private boolean blocked(Call call, double now) {
        if (call.after > now) {
            return true;
        }
        if (call.verb.equals("CLAIM")) {
            return false;
        }
        if (call.grant != null) {
            return call.grant.unclaimed;
        }
        if (settling && call.verb.equals("LOCK")) {
            for (Grant grant : grants.values()) {
                if (grant.unclaimed && grant.owner().equals(call.owner)
                        && call.names.contains(grant.name())) {
                    return true;
                }
            }
        }
        return false;
    }

    final void send(Call call, double now) {
        if (call.verb.isEmpty()) { // ready()
            finish(call, null);
            return;
        }
        call.tag = Long.toString(++tags);
        call.sent = now;
        calls.put(call.tag, call);
        call.write(out, now);
        if (call.lease > 0) {
            call.bound = Math.min(call.bound,
                    now + call.lease * DRIFT - LEASE_SLACK);
            call.grant.renewing(call);
            soonest = Math.min(soonest, call.grant.deadline);
        }
        if (pingAt == FOREVER && ping == null) {
            pingAt = now + pause(ttl);
        }
    }

    /** Sends what was parked, in its order. */
    final void flush() {
        double now = now();
        List<Call> before = parked;
        parked = new ArrayList<>();
        retryAt = FOREVER;
        for (Call call : before) {
            if (blocked(call, now)) {
                parked.add(call);
                if (call.after > now) {
                    retryAt = Math.min(retryAt, call.after);
                }
            } else {
                send(call, now);
            }
        }
    }

    /** Sends it again after a pause. */
    final void later(Call call) {
        call.again = true;
        call.after = now() + between(0.1, 0.3);
        retryAt = Math.min(retryAt, call.after);
        parked.add(call);
    }

    final double between(double least, double most) {
        return least + (most - least) * chance.getAsDouble();
    }

    /**
     * Between two PINGs: a third of the ttl, and of what a kept session may
     * rely on after the end of its connection.
     */
    final double pause(double time) {
        double bound = session != null ? Math.min(time, keep) : time;
        return Math.max(bound / 3, PING_LEAST);
    }

    /** Ends a call; without a failure it has succeeded. */
    final void finish(Call call, Failure failure) {
        if (call.done) {
            return;
        }
        call.done = true;
        call.failure = failure;
        if (call.lease > 0) {
            call.grant.renewed(call);
        }
        if (failure != null && call.watched != null && !call.watched.begun) {
            watches.remove(call.watched.name, call.watched);
        }
        if (!call.own && !call.dropped) {
            events.add(new Event.Answered(call));
        }
    }

    /** No call gets an answer any more. */
    final void fail(Failure failure) {
        List<Call> all = new ArrayList<>(calls.values());
        all.addAll(parked);
        calls.clear();
        parked.clear();
        retryAt = FOREVER;
        for (Call call : all) {
            finish(call, failure);
        }
    }

    /** A reply that changes nothing here. */
    final void onOther(Call call, Failure failure) {
        boolean carriedOut = failure != null && call.again
                && call.verb.equals("UNLOCK") && failure.is("NOTHELD");
        finish(call, carriedOut ? null : failure);
    }
}
