package example.holdfast;

import example.holdfast.Words.Garbage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.DoubleSupplier;

/**
 * The session: greeting, HELLO, BYE, and its moves from broker to broker.
 *
 * <p>Of a connection that has ended, nothing counts beyond `keep` after the
 * sending of the last request that it has answered. On the next one each hold
 * is claimed first; then unanswered requests are sent again (PROTOCOL.md,
 * profile C). The end of a session without `keep` is the end of its holds and
 * calls.
 */
abstract class Session extends Watches {
    /** For the greeting, and for the answer to HELLO. */
    static final double GREETING = 5;
    /** The answer to AUTH takes up to 8 s. */
    private static final double AUTH = 12;
    /** Between rounds of all addresses. */
    private static final double PAUSE_LEAST = 0.05;
    private static final double PAUSE_MOST = 2;
    /** A connection of that age ends the growth of the pauses. */
    private static final double STEADY = 0.5;
    /** All clients leave a draining broker within that time. */
    private static final double MOVE = 5;
    /** The same, if a request waits for it. */
    private static final double MOVE_SOON = 0.2;
    /** BYE with such a reason, and without keep=1, ends a kept session. */
    private static final Set<String> FINAL = Set.of("killed", "quit",
            "resumed", "protocol", "auth");

    Session(Settings settings, DoubleSupplier clock, DoubleSupplier chance) {
        super(settings, clock, chance);
    }

    final void onGreeting(Line line) throws Garbage {
        if (link != Link.GREETING) {
            return;
        }
        if (!line.key("proto").equals("1")) {
            throw new Garbage("the broker speaks another protocol: proto="
                    + line.key("proto"));
        }
        link = Link.HELLO;
        if (settings.user() != null) {
            // Other replies may overtake the one to AUTH: it comes alone.
            double now = now();
            by = now + AUTH;
            send(Call.own("AUTH", settings.user(), settings.secret()), now);
        } else if (line.has("auth")) {
            refuse(new Failure("AUTH", false, line.keys(),
                    "the broker requires a user"));
        } else {
            sayHello();
        }
    }

    private void sayHello() {
        double now = now();
        by = now + GREETING;
        List<String> words = new ArrayList<>();
        if (settings.name() != null) {
            words.add("name=" + Words.encode(settings.name()));
        }
        if (settings.heartbeat() > 0) {
            words.add("heartbeat=" + Words.duration(settings.heartbeat()));
        }
        if (settings.keep() > 0) {
            words.add("keep=" + Words.duration(settings.keep()));
        }
        gen++; // each try is larger, also one without an answer
        if (session != null) {
            words.add("resume=" + session + " gen=" + gen);
        }
        Call call = Call.own("HELLO");
        call.words = String.join(" ", words);
        send(call, now);
    }

    final void onAuth(Failure failure) {
        if (failure != null) {
            refuse(failure);
        } else {
            sayHello();
        }
    }

    /** This broker does not serve us; another may know the session. */
    private void refuse(Failure failure) {
        if (session == null) {
            more = false;
            for (Watched watched : List.copyOf(watches.values())) {
                endWatch(watched, failure);
            }
        }
        drop(failure);
    }

    final void onHello(Line line, Failure failure) throws Garbage {
        if (failure != null) {
            drop(Failure.gone("the broker refuses HELLO: " + failure.code()
                    + " " + failure.text()));
            return;
        }
        double now = now();
        boolean moved = session != null;
        keep = line.has("keep_ms") ? line.seconds("keep_ms") : 0;
        session = keep > 0 ? line.keys().get("session") : null;
        if (line.has("silence_ms")) {
            ttl = line.seconds("silence_ms");
        }
        pingAt = FOREVER; // it was set by what came before this
        link = Link.OPEN;
        by = moveAt = awayAt = FOREVER;
        opened = now;
        if (moved) {
            events.add(new Event.Moved());
        }
        for (Grant grant : List.copyOf(grants.values())) {
            claim(grant, now); // first of all (step 4)
        }
        for (Watched watched : watches.values()) {
            if (watched.begun) {
                rewatch(watched, now);
            }
        }
        flush();
    }

    final void onBye(Line line) {
        String kept = line.keys().get("keep");
        if ((kept == null ? FINAL.contains(line.argument())
                : kept.equals("0")) && link != Link.GREETING) {
            session = null;
        }
        String text = "the broker says BYE " + line.argument();
        drop(line.argument().equals("protocol") ? Failure.protocol(text)
                : Failure.gone(text));
    }

    final void onDrain(Line line) throws Garbage {
        if (session != null) {
            move(Math.min(line.seconds("grace_ms") / 4, MOVE));
        }
    }

    /** Leaves a draining broker, at a random time: not all at once. */
    private void move(double within) {
        if (settings.several()) {
            moveAt = Math.min(moveAt, now() + between(0, within));
        }
    }

    /** A kept session does not tell its caller that a broker drains. */
    final boolean waitsForAnotherBroker(Call call) {
        if (session == null || !call.repeats || call.dropped) {
            return false;
        }
        call.again = true;
        call.after = FOREVER; // until the next broker
        parked.add(call);
        move(MOVE_SOON);
        return true;
    }

    /** The connection has ended, or there was none. */
    final void drop(Failure failure) {
        double now = now();
        Link was = link;
        link = Link.IDLE;
        List<Call> sent = new ArrayList<>(calls.values());
        calls.clear();
        out.setLength(0);
        lines = new Lines();
        ping = null;
        pingAt = by = moveAt = retryAt = FOREVER;
        more = more && was != Link.OPEN;
        if (!more) {
            boolean steady = was == Link.OPEN && now >= opened + STEADY;
            rounds = steady ? 0 : rounds + 1;
        }
        parkAgain(sent, failure);
        if (session != null) {
            if (was == Link.OPEN) {
                away(now);
            }
        } else if (was == Link.OPEN || awayAt < FOREVER) {
            endSession(failure);
        } else if (!more) {
            fail(failure);
        }
        dialAt = more ? now : now + roundPause();
        if (!parked.isEmpty() || !watches.isEmpty() || session != null) {
            link = Link.PAUSE;
        }
    }

    private double roundPause() {
        if (rounds == 0) {
            return between(0, PAUSE_LEAST);
        }
        double pause = Math.min(PAUSE_MOST,
                PAUSE_LEAST * (1 << Math.min(rounds, 10)));
        return between(pause / 2, pause);
    }

    /**
     * The broker may have seen the end of the connection right after the last
     * answer: it keeps the session from then on (step 2).
     */
    private void away(double now) {
        if (awayAt == FOREVER) {
            awayAt = now;
        }
        for (Grant grant : grants.values()) {
            grant.cap(proven + keep);
            soonest = Math.min(soonest, grant.deadline);
            grant.unclaimed = true;
            settling = true;
        }
    }

    /** Requests without an answer are sent again. */
    private void parkAgain(List<Call> sent, Failure failure) {
        List<Call> again = new ArrayList<>();
        for (Call call : sent) {
            call.again = true;
            if (call.repeats && !call.dropped) {
                again.add(call);
            } else {
                finish(call, failure);
            }
        }
        for (Call call : parked) {
            if (!call.verb.equals("CLAIM")) {
                again.add(call);
            }
        }
        for (Call call : again) {
            call.after = Double.NEGATIVE_INFINITY;
        }
        parked = again;
    }

    final void endSession(Failure failure) {
        session = null;
        gen = 0;
        awayAt = FOREVER;
        settling = false;
        List<Grant> all = List.copyOf(grants.values());
        grants.clear();
        for (Grant grant : all) {
            lose(grant, "session");
        }
        soonest = FOREVER;
        fail(failure);
    }

    private void claim(Grant grant, double now) {
        Call call = about("CLAIM", grant);
        call.own = true;
        call.repeats = false;
        if (grant.entries > 1) {
            call.words += " count=" + grant.entries;
        }
        call.words += (grant.wanted ? " wanted=1" : "")
                + (grant.upgrade ? " upgrade=1" : "");
        send(call, now);
    }

    final void onClaim(Call call, Line line, Failure failure)
            throws Garbage {
        Grant grant = call.grant;
        if (failure == null) {
            grant.unclaimed = false;
            double time = line.seconds("ttl_ms");
            date(grant, call.sent, time);
            pingAt = Math.min(pingAt, call.sent + pause(time));
            if (grant.confirming != null) {
                confirm(grant.confirming);
            }
        } else if (failure.is("DRAINING")) {
            move(MOVE_SOON); // the next broker is asked
            return;
        } else if (failure.is("LOST", "NOTHELD", "STALE")) {
            grant.unclaimed = false;
            settle(grant);
        } else { // not known yet: again, until the deadline (step 4)
            later(call);
            return;
        }
        settling = false;
        for (Grant other : grants.values()) {
            settling |= other.unclaimed;
        }
        flush();
    }

    /**
     * The hold is gone, and so are the calls about it. An UNLOCK that was on
     * its way has been carried out (step 5).
     */
    private void settle(Grant grant) {
        boolean inTime = grant.released && now() < grant.deadline;
        lose(grant, "gone");
        forget(grant);
        for (Call call : List.copyOf(parked)) {
            if (call.grant == grant && parked.remove(call)) {
                boolean givenBack = call.verb.equals("UNLOCK") && call.again
                        && inTime;
                finish(call, givenBack ? null
                        : Failure.lost(grant.name(), grant.lost));
            }
        }
    }
}
