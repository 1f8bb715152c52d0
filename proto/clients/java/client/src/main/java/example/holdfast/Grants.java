package example.holdfast;

import example.holdfast.Words.Garbage;
import java.util.ArrayList;
import java.util.List;
import java.util.function.DoubleSupplier;

/**
 * Locks: requests about them, their answers, their loss, their deadlines.
 *
 * <p>A deadline counts from the sending of the request that was answered.
 * Nothing but an answer moves it on. One timer sends PING at a third of the
 * ttl, and notices the deadlines that pass (PROTOCOL.md 6.5).
 */
abstract class Grants extends Calls {
    private long owners;

    Grants(Settings settings, DoubleSupplier clock, DoubleSupplier chance) {
        super(settings, clock, chance);
    }

    /**
     * LOCK. Without an owner it has one of its own: two tasks of one session
     * exclude each other (profile B).
     */
    final Call lock(List<String> names, Ask ask, boolean detached) {
        Call call = new Call("LOCK", names);
        // No named owner begins so: it would enter another task's hold.
        call.owner = ask.owner != null ? ask.owner : "~" + ++owners;
        StringBuilder words = new StringBuilder("owner=")
                .append(Words.encode(call.owner));
        if (ask.lease != null) {
            words.append(" lease=").append(ask.lease.toMillis());
        }
        if (ask.delay != null) {
            words.append(" delay=").append(ask.delay.toMillis());
        }
        if (ask.mode != null) {
            words.append(" mode=").append(ask.mode);
        }
        if (ask.limit > 0) {
            words.append(" limit=").append(ask.limit)
                    .append(" permits=").append(ask.permits);
        }
        if (ask.note != null) {
            words.append(" note=").append(Words.encode(ask.note));
        }
        words.append(ask.onWanted != null ? " wanted=1" : "")
                .append(detached ? " detached=1" : "")
                .append(ask.tree ? " tree=1" : "")
                .append(settings.progress() ? " progress=1" : "");
        call.words = words.toString();
        call.wait = ask.wait == null ? -1 : ask.wait.toNanos() / 1e9;
        call.wanted = ask.onWanted != null;
        call.leased = ask.lease != null;
        call.detached = detached;
        // The OK of a detached LOCK may be lost: sent again, it would wait
        // for its own first hold (3.4).
        call.repeats = !detached;
        return submit(call);
    }

    /** UNLOCK, always with the fence. The hold is over from now on. */
    final Call unlock(Grant grant, String words) {
        Call call = about("UNLOCK", grant);
        call.words += words;
        if (grant.usable()) {
            grant.entries--;
            grant.released = grant.entries == 0;
        }
        return submit(call);
    }

    /** RENEW. From now on PING tells nothing of the hold (6.5). */
    final Call renew(Grant grant, double lease) {
        Call call = about("RENEW", grant);
        call.words += " lease=" + Words.duration(lease);
        call.lease = lease;
        grant.leased = true;
        grant.outlasts = true; // as far as is known
        return submit(call);
    }

    /** NOTE; the empty note is none. */
    final Call note(Grant grant, String note) {
        Call call = about("NOTE", grant);
        if (!note.isEmpty()) {
            call.words += " note=" + Words.encode(note);
        }
        return submit(call);
    }

    /** UNLOCK of some permits. Sent twice, it would give back twice. */
    final Call part(Grant grant, int permits) {
        Call call = about("UNLOCK", grant);
        call.repeats = false;
        call.words += " permits=" + permits;
        return submit(call);
    }

    /** UNLOCK of a detached hold, whoever took it. */
    final Call detached(String verb, Grant grant, String words) {
        return submit(ofDetached(verb, grant, words));
    }

    /** RENEW of a detached hold, whoever took it. */
    final Call renewDetached(Grant grant, double lease) {
        Call call = ofDetached("RENEW", grant,
                " lease=" + Words.duration(lease));
        call.lease = lease;
        return submit(call);
    }

    private static Call ofDetached(String verb, Grant grant, String words) {
        Call call = new Call(verb, grant.name());
        call.grant = grant;
        call.words = "fence=" + grant.fence() + " detached=1" + words;
        call.detached = true;
        return call;
    }

    final void onLock(Call call, Line line, Failure failure) throws Garbage {
        if (failure != null) {
            finish(call, failure);
            return;
        }
        String[] fences = line.key("fence").split(",", -1);
        if (fences.length != call.names.size()) {
            throw new Garbage("the OK of a LOCK without its fences");
        }
        for (String fence : fences) {
            if (Words.number(fence) < 0) {
                throw new Garbage("the OK of a LOCK with fence=" + fence);
            }
        }
        double time = line.seconds("ttl_ms");
        // The OK of a wait: counted from the last request that was answered
        // before it, if that was sent later (6.5).
        double base = Math.max(call.sent, proven);
        List<Grant> granted = new ArrayList<>();
        for (int i = 0; i < fences.length; i++) {
            granted.add(enter(call, call.names.get(i),
                    Words.number(fences[i]), line));
            date(granted.get(i), base, time);
        }
        call.grants = List.copyOf(granted);
        if (call.dropped) {
            for (Grant grant : granted) {
                giveBack(grant, call.detached);
            }
        } else if (call.detached) {
            finish(call, null);
        } else if (now() + time / 2 <= base + time) {
            pingAt = Math.min(pingAt, base + pause(time));
            finish(call, null);
        } else { // too old to begin with: the answer to a PING comes first
            pingAt = Double.NEGATIVE_INFINITY;
            for (Grant grant : granted) {
                grant.confirming = call;
            }
        }
    }

    private Grant enter(Call call, String name, long fence, Line line)
            throws Garbage {
        Grant.Key key = new Grant.Key(name, call.owner, fence);
        Grant grant = grants.get(key);
        if (grant == null || !grant.usable()) {
            grant = new Grant(name, call.owner, fence);
            grant.leased = call.leased;
            grant.upgrade = line.has("upgrade");
            if (!call.detached) {
                grants.put(key, grant);
            }
        }
        grant.outlasts = outlasts(line);
        grant.wanted = grant.wanted || call.wanted;
        grant.entries++;
        return grant;
    }

    private static boolean outlasts(Line line) throws Garbage {
        return line.has("lease_ms")
                && line.number("lease_ms") > line.number("ttl_ms");
    }

    final void onUnlock(Call call, Line line, Failure failure)
            throws Garbage {
        Grant grant = call.grant;
        if (call.detached) {
            grant.released = grant.released || failure == null;
            onOther(call, failure);
            return;
        }
        if (failure != null && failure.is("LIMIT")) {
            later(call); // nothing was done
            return;
        }
        Failure why = failure;
        if (failure != null && failure.is("INDOUBT") && grant.released) {
            why = null; // the broker goes on with the release (profile B)
        } else if (failure != null && grant.lost != null
                && failure.is("NOTHELD", "STALE", "LOST")) {
            why = Failure.lost(grant.name(), grant.lost);
        }
        finish(call, why);
        long count = failure == null ? line.number("count") : 0;
        if (failure == null && count == 0) {
            grant.released = true; // all its permits, maybe
        }
        if (grant.usable()) {
            return;
        }
        if (count > 0 && !beside(grant)) {
            // A LOCK that was sent again was counted twice.
            giveBack(grant, false);
        } else {
            forget(grant);
        }
    }

    /** Whether it has an upgrade, or is one. `count` is then of both. */
    private boolean beside(Grant grant) {
        for (Grant other : grants.values()) {
            if (other != grant && other.name().equals(grant.name())
                    && other.owner().equals(grant.owner())) {
                return true;
            }
        }
        return false;
    }

    /** A hold that nobody uses, and that the broker may still renew. */
    final void giveBack(Grant grant, boolean detached) {
        grant.entries = 0;
        grant.confirming = null;
        grant.released = true;
        if (detached) {
            detached("UNLOCK", grant, "").own = true;
            return;
        }
        Call call = about("UNLOCK", grant);
        call.own = true;
        submit(call);
    }

    final void forget(Grant grant) {
        grants.remove(grant.key, grant);
    }

    final void onRenew(Call call, Line line, Failure failure)
            throws Garbage {
        Grant grant = call.grant;
        if (failure == null) {
            grant.outlasts = outlasts(line);
            double time = line.seconds("ttl_ms");
            date(grant, call.sent, time);
            pingAt = Math.min(pingAt, call.sent + pause(time));
        }
        boolean doubt = failure != null && (call.again
                || failure.is("UNAVAILABLE", "INDOUBT", "INTERNAL"));
        if (!doubt) {
            call.bound = FOREVER;
        }
        finish(call, failure);
    }

    private Grant named(String name, Line line) throws Garbage {
        return grants.get(new Grant.Key(name, line.key("owner"),
                line.number("fence")));
    }

    /** Another owner's hold, or an earlier one of the lock, is not ours. */
    final void onLost(Line line) throws Garbage {
        Grant grant = named(line.argument(), line);
        if (grant != null) {
            lose(grant, line.keys().getOrDefault("reason", "gone"));
            forget(grant);
        }
    }

    final void onWanted(Line line) throws Garbage {
        for (Grant grant : grants.values()) {
            if (grant.wanted && grant.name().equals(line.argument())
                    && grant.owner().equals(line.key("owner"))) {
                events.add(new Event.Wanted(grant, line.number("waiters")));
            }
        }
    }

    /** For how long a PING may have no answer. */
    final double silence() {
        return session == null ? SILENCE
                : Math.min(Math.max(ttl / 4, 1), 5);
    }

    /** The latest answer counts, even where it is sooner. */
    final void date(Grant grant, double base, double time) {
        grant.date(base + time * DRIFT);
        soonest = Math.min(soonest, grant.deadline);
    }

    /** PING, while something depends on its answer; HELD beside leases. */
    final void ask(double now) {
        pingAt = FOREVER;
        if (grants.isEmpty() && calls.isEmpty()) {
            return;
        }
        boolean leases = false;
        for (Grant grant : grants.values()) {
            leases |= grant.leased && grant.lost == null
                    && (grant.outlasts || grant.confirming != null);
        }
        ping = Call.own(leases ? "HELD" : "PING");
        send(ping, now);
    }

    final void onItem(Call call, Line line) throws Garbage {
        Grant grant = named(line.key("name"), line);
        if (grant == null || grant.unclaimed) {
            return;
        }
        if (line.has("lease_ms")) {
            grant.outlasts = outlasts(line);
        }
        double time = line.seconds("ttl_ms");
        call.least = Math.min(call.least, time);
        date(grant, call.sent, time);
    }

    final void onPingAnswer(Call call, Line line) throws Garbage {
        if (call != ping) {
            finish(call, null); // of a caller, who asks for the answer alone
            return;
        }
        ping = null;
        double time = call.least;
        if (line.has("ttl_ms")) {
            time = line.seconds("ttl_ms");
            for (Grant grant : grants.values()) {
                // It covers neither leases nor holds that are not claimed.
                if (!grant.leased && !grant.unclaimed) {
                    date(grant, call.sent, time);
                }
            }
        }
        if (time < FOREVER) {
            ttl = time;
        }
        pingAt = call.sent + pause(ttl);
        for (Grant grant : List.copyOf(grants.values())) {
            if (grant.confirming != null && !grant.unclaimed) {
                confirm(grant.confirming);
            }
        }
    }

    /** A grant that came late is told, once its deadline is known. */
    final void confirm(Call call) {
        double now = now();
        for (Grant grant : call.grants) {
            if (grant.unclaimed) {
                return;
            }
        }
        for (Grant grant : call.grants) {
            if (now >= grant.deadline) {
                pingAt = now;
                return;
            }
        }
        for (Grant grant : call.grants) {
            grant.confirming = null;
        }
        finish(call, null);
    }

    /**
     * Deadlines that have passed. The broker may still renew such a hold: it
     * is given back (profile B).
     */
    final void expire(double now) {
        soonest = FOREVER;
        for (Grant grant : List.copyOf(grants.values())) {
            if (!grant.usable()
                    || grant.confirming != null && link == Link.OPEN) {
                continue;
            }
            if (now < grant.deadline) {
                soonest = Math.min(soonest, grant.deadline);
            } else {
                lose(grant, "deadline");
                giveBack(grant, false);
            }
        }
    }

    final void lose(Grant grant, String why) {
        if (grant.lost != null) {
            return;
        }
        grant.lost = why;
        Call call = grant.confirming;
        if (call != null) { // nobody was told that it is held
            grant.confirming = null;
            finish(call, why.equals("session")
                    ? Failure.gone("the session has ended")
                    : Failure.lost(grant.name(), why));
            for (Grant other : call.grants) {
                if (other != grant && other.confirming == call) {
                    giveBack(other, false);
                }
            }
        } else if (!grant.released) {
            events.add(new Event.Lost(grant));
        }
    }
}
