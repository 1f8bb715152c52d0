package example.holdfast;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;

/** A request, from its call to its final reply. */
final class Call {
    final String verb;
    final List<String> names;
    private final String encoded;
    String words = "";
    /** How long to wait, in seconds; negative: without end. */
    double wait = -1;
    String owner = "";
    Grant grant;
    Watched watched;
    /** It is the core's own: nobody waits for its answer. */
    boolean own;
    /** After a move it is sent again. */
    boolean repeats = true;
    double asked;
    double sent;
    String tag = "";
    /** It was sent on an earlier connection too. */
    boolean again;
    /** It is not sent before. */
    double after = Double.NEGATIVE_INFINITY;
    /** Its caller has given it up. */
    boolean dropped;
    boolean done;
    /** Why it failed; null: it did not. */
    volatile Failure failure;
    volatile Map<String, String> keys = Map.of();
    volatile List<Grant> grants = List.of();
    boolean wanted;
    boolean leased;
    /** Of a RENEW, in seconds. */
    double lease;
    /** Of the hold, by a RENEW without an answer; of all its sendings. */
    double bound = Core.FOREVER;
    boolean detached;
    /** Of the ttl in its ITEMs. */
    double least = Core.FOREVER;
    /** Done when the caller is told. */
    CompletableFuture<Void> waiter;
    /** Who takes its grants. */
    Hold user;

    Call(String verb, String... names) {
        this(verb, List.of(names));
    }

    /** UsageException: a name has a lone surrogate. */
    Call(String verb, List<String> names) {
        this.verb = verb;
        this.names = names;
        encoded = names.stream().map(name -> " " + Words.encode(name))
                .collect(Collectors.joining());
    }

    /** A request of the core itself, which belongs to its connection. */
    static Call own(String verb, String... names) {
        Call call = new Call(verb, names);
        call.own = true;
        call.repeats = false;
        return call;
    }

    /** The request, with what is left of its wait (profile C). */
    void write(StringBuilder out, double now) {
        out.append(tag).append(' ').append(verb).append(encoded);
        if (!words.isEmpty()) {
            out.append(' ').append(words);
        }
        if (wait >= 0) {
            out.append(" wait=").append(Words.duration(
                    Math.max(0, asked + wait - now)));
        }
        out.append('\n');
    }
}
