package example.holdfast;

import example.holdfast.Words.Garbage;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.DoubleSupplier;

/**
 * A client without I/O: bytes and time in, bytes and events out.
 *
 * <p>The driver (Engine) owns the socket and does as `link` says:
 *
 * <pre>
 * IDLE       nothing; a request makes it PAUSE
 * PAUSE      no socket until dialAt; then dialing(), and connect
 * DIALING    connected() or failed()
 * GREETING   the peer has not greeted; then AUTH and HELLO are sent
 * HELLO      they are not answered
 * OPEN       requests go out
 * CLOSED     nothing more; what take() gives is still sent
 * </pre>
 *
 * <p>In GREETING, HELLO and OPEN bytes go both ways; in any other state the
 * driver has no socket. After each call it sends take(), acts on events(), and
 * calls tick() at due(). It reads before it calls tick(): an answer that has
 * come counts.
 */
final class Core extends Session {
    /** A call waits for a broker that much longer than its wait. */
    private static final double PARKED = 5;

    Core(Settings settings, DoubleSupplier clock, DoubleSupplier chance) {
        super(settings, clock, chance);
    }

    /** When a call that no broker can be asked gives up. */
    private static double limit(Call call) {
        return call.wait < 0 ? FOREVER : call.asked + call.wait + PARKED;
    }

    /** Done when a broker serves the session. */
    Call ready() {
        return submit(new Call(""));
    }

    /** PING, for a caller. */
    Call ping() {
        return submit(new Call("PING"));
    }

    /** RESIZE, of a semaphore. */
    Call resize(String name, int limit) {
        Call call = new Call("RESIZE", name);
        call.words = "limit=" + limit;
        return submit(call);
    }

    /** AWAIT. call.keys has fence and note. */
    Call awaitFree(String name, double wait) {
        Call call = new Call("AWAIT", name);
        call.wait = wait;
        return submit(call);
    }

    /** The caller does not wait any more. A late grant is given back. */
    void abandon(Call call) {
        if (call.done || call.dropped) {
            return;
        }
        call.dropped = true;
        if (!parked.remove(call) && calls.get(call.tag) == call
                && (call.verb.equals("LOCK") || call.verb.equals("AWAIT"))) {
            submit(Call.own("CANCEL", call.tag));
        }
        for (Grant grant : call.grants) { // it waits for its confirmation
            giveBack(grant, false);
        }
    }

    /** QUIT gives back all holds: they are lost. Later calls get CLOSED. */
    void close() {
        if (link == Link.CLOSED) {
            return;
        }
        if (link == Link.OPEN) {
            out.append("0 QUIT\n");
        } else {
            out.setLength(0);
        }
        link = Link.CLOSED;
        for (Grant grant : List.copyOf(grants.values())) {
            lose(grant, Grant.CLOSED);
        }
        fail(Failure.closed());
        for (Watched watched : List.copyOf(watches.values())) {
            endWatch(watched, Failure.closed());
        }
    }

    /** The driver begins to connect. */
    void dialing() {
        link = Link.DIALING;
        dialAt = FOREVER;
    }

    /** There is a connection; with others, this round has more addresses. */
    void connected(boolean others) {
        if (link == Link.DIALING) {
            link = Link.GREETING;
            more = others;
            by = now() + GREETING;
        }
    }

    /** There is none. */
    void failed(Failure failure, boolean others) {
        if (link == Link.DIALING) {
            more = others;
            drop(failure);
        }
    }

    /**
     * The connection has ended. An error of TLS counts as one of the
     * handshake until the peer has greeted.
     */
    void lost(String reason, boolean tls) {
        if (link.connected()) {
            drop(tls && link == Link.GREETING ? Failure.tls(reason)
                    : Failure.gone(reason));
        }
    }

    /** Bytes of the broker. Garbage ends the connection. */
    void receive(ByteBuffer data) {
        Lines mine = lines;
        mine.feed(data);
        try {
            while (link.connected() && lines == mine) {
                Line line = mine.next();
                if (line == null) {
                    return;
                }
                take(line);
            }
        } catch (Garbage garbage) {
            drop(Failure.protocol(garbage.getMessage()));
        }
    }

    /** Bytes to send. */
    byte[] take() {
        byte[] data = out.toString().getBytes(StandardCharsets.ISO_8859_1);
        out.setLength(0);
        return data;
    }

    /** The news since the last call. */
    List<Event> events() {
        List<Event> news = events;
        events = new ArrayList<>();
        return news;
    }

    /** When tick() must be called. */
    double due() {
        if (link == Link.CLOSED) {
            return FOREVER;
        }
        double due = Math.min(Math.min(Math.min(soonest, retryAt),
                Math.min(by, moveAt)), awayAt + keep);
        if (link == Link.PAUSE) {
            due = Math.min(due, dialAt);
        } else if (ping != null) {
            due = Math.min(due, ping.sent + silence());
        } else {
            due = Math.min(due, pingAt);
        }
        for (Call call : parked) {
            due = Math.min(due, limit(call));
        }
        return due;
    }

    /** Acts on the time that has passed. */
    void tick() {
        double now = now();
        if (link == Link.CLOSED) {
            return;
        }
        if (now >= soonest) {
            expire(now);
        }
        if (link == Link.OPEN) {
            tickOpen(now);
        } else if (now >= awayAt + keep) {
            endSession(Failure.gone("no broker has taken the session"));
        } else if (now >= by) {
            drop(Failure.gone("the broker does not greet"));
        }
        for (Call call : List.copyOf(parked)) {
            if (now >= limit(call)) {
                parked.remove(call);
                finish(call, Failure.gone("no broker can be asked"));
            }
        }
    }

    private void tickOpen(double now) {
        if (ping != null) {
            if (now >= ping.sent + silence()) {
                drop(Failure.gone("the broker is silent"));
                return;
            }
        } else if (now >= pingAt) {
            ask(now);
        }
        if (now >= moveAt) {
            drop(Failure.gone("the broker drains"));
            dialAt = now;
        } else if (now >= retryAt) {
            flush();
        }
    }

    private void take(Line line) throws Garbage {
        if (line.tag().equals("*")) {
            event(line);
            return;
        }
        if (link == Link.GREETING) {
            throw new Garbage("the peer is not a Holdfast broker");
        }
        Call call = calls.get(line.tag());
        if (call == null) { // nothing of ours has this tag (6.1)
            return;
        }
        switch (line.word()) {
            case "OK", "ERR" -> answered(call, line);
            case "ITEM" -> {
                if (call.verb.equals("HELD")) {
                    onItem(call, line);
                }
            }
            case "QUEUED" -> {
                if (!call.dropped) {
                    events.add(new Event.Queued(call, line.keys()));
                }
            }
            default -> { }
        }
    }

    private void answered(Call call, Line line) throws Garbage {
        proven = Math.max(proven, call.sent);
        call.keys = line.keys();
        Failure failure = line.word().equals("OK") ? null : Failure.of(line);
        if (failure == null || !failure.is("DRAINING")
                || !waitsForAnotherBroker(call)) {
            switch (call.verb) {
                case "AUTH" -> onAuth(failure);
                case "HELLO" -> onHello(line, failure);
                case "CLAIM" -> onClaim(call, line, failure);
                case "LOCK" -> onLock(call, line, failure);
                case "UNLOCK" -> onUnlock(call, line, failure);
                case "RENEW" -> onRenew(call, line, failure);
                case "PING", "HELD" -> onPingAnswer(call, line);
                case "WATCH" -> onWatch(call, failure);
                default -> onOther(call, failure);
            }
        }
        calls.remove(line.tag(), call);
    }

    private void event(Line line) throws Garbage {
        switch (line.word()) {
            case "HELLO" -> onGreeting(line);
            case "BYE" -> onBye(line);
            case "DRAIN" -> onDrain(line);
            case "PING" -> out.append("PONG ")
                    .append(Words.encode(line.argument())).append('\n');
            case "LOST" -> onLost(line);
            case "WANTED" -> onWanted(line);
            case "HELD", "FREE" -> onNews(line);
            case "MEMBERS", "JOINED", "CHANGED", "LEFT" -> onMember(line);
            default -> { } // of a later version
        }
    }
}
