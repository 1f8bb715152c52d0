package example.holdfast;

import java.util.Map;

/** An error without a stack: that of the exception is its caller's. */
record Failure(String code, boolean retry, Map<String, String> keys,
        String text) {
    /** No broker is reachable, or the session ended before the answer. */
    static Failure gone(String text) {
        return new Failure("GONE", true, Map.of(), text);
    }

    /** The handshake failed, or the certificate is not trusted. */
    static Failure tls(String text) {
        return new Failure("TLS", false, Map.of(), text);
    }

    /** The peer has sent something that is not the protocol. */
    static Failure protocol(String text) {
        return new Failure("PROTOCOL", false, Map.of(), text);
    }

    /** A hold has ended: `reason=` of LOST, `deadline` or `session`. */
    static Failure lost(String name, String why) {
        return new Failure("LOST", false, Map.of("reason", why),
                name + ": " + why);
    }

    static Failure notHeld(String name) {
        return new Failure("NOTHELD", false, Map.of(),
                name + " was given back, or its end is not known");
    }

    static Failure closed() {
        return new Failure("CLOSED", false, Map.of(),
                "the client was closed");
    }

    static Failure cancelled() {
        return new Failure("CANCELLED", true, Map.of(),
                "the wait was cancelled");
    }

    /** The error of an ERR. An unknown code counts by its retry= (2). */
    static Failure of(Line line) {
        return new Failure(line.argument(),
                "1".equals(line.keys().get("retry")), line.keys(),
                line.text());
    }

    boolean is(String... codes) {
        for (String each : codes) {
            if (each.equals(code)) {
                return true;
            }
        }
        return false;
    }

    /** For a caller to throw. */
    HoldfastException exception() {
        return switch (code) {
            case "BUSY" -> new BusyException(this);
            case "TIMEOUT" -> new TimedOutException(this);
            case "CANCELLED" -> new CancelledException(this);
            case "DEADLOCK" -> new DeadlockException(this);
            case "LOST" -> new LockLostException(this);
            case "NOTHELD", "STALE" -> new NotHeldException(this);
            case "CONFLICT" -> new ConflictException(this);
            case "AUTH", "DENIED" -> new DeniedException(this);
            case "UNAVAILABLE", "INDOUBT", "DRAINING", "LIMIT", "GONE",
                "TLS" -> new UnavailableException(this);
            case "PROTOCOL" -> new ProtocolException(this);
            case "BADREQ", "TOOLONG", "USAGE" -> new UsageException(this);
            case "CLOSED" -> new ClosedException(this);
            default -> new HoldfastException(this);
        };
    }
}
