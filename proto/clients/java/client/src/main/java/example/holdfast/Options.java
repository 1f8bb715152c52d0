package example.holdfast;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;

/**
 * The options of {@link Holdfast#connect}. An object never changes: each
 * method returns a changed copy.
 *
 * <p>Hooks run in the thread of the client, and must not wait. What a hook
 * throws, also an {@link Error}, goes to the {@link System.Logger}
 * {@code holdfast}, and harms no lock. Several hooks of a kind run in the order
 * in which they were given.
 */
public final class Options {
    private static final Duration HEARTBEAT = Duration.ofSeconds(2);
    private static final Duration TIMEOUT = Duration.ofSeconds(15);

    final List<Places.Address> addresses;
    private String name;
    private String user;
    private String secret;
    private Duration keep = Duration.ZERO;
    private Duration heartbeat = HEARTBEAT;
    private SSLContext context;
    private boolean tls;
    private Path ca;
    private Path cert;
    private Path key;
    String serverName;
    Duration timeout = TIMEOUT;
    Executor executor = ForkJoinPool.commonPool();
    BiConsumer<Hold, Map<String, String>> onWait;
    BiConsumer<Hold, Duration> onGrant;
    Consumer<Hold> onLost;
    Runnable onMove;

    private Options(List<Places.Address> addresses) {
        this.addresses = addresses;
    }

    private Options(Options other) {
        addresses = other.addresses;
        name = other.name;
        user = other.user;
        secret = other.secret;
        keep = other.keep;
        heartbeat = other.heartbeat;
        context = other.context;
        tls = other.tls;
        ca = other.ca;
        cert = other.cert;
        key = other.key;
        serverName = other.serverName;
        timeout = other.timeout;
        executor = other.executor;
        onWait = other.onWait;
        onGrant = other.onGrant;
        onLost = other.onLost;
        onMove = other.onMove;
    }

    private Options with(Consumer<Options> change) {
        Options copy = new Options(this);
        change.accept(copy);
        return copy;
    }

    /**
     * Where the brokers are.
     *
     * @param addresses {@code HOST[:PORT]}, {@code [V6]:PORT} or the
     *     {@code /PATH} of a socket, several also with commas: brokers of the
     *     same Redis, tried in turn. The usual port is 4653, with TLS 4655
     * @return options with all defaults
     */
    public static Options at(String... addresses) {
        List<Places.Address> found = new ArrayList<>();
        for (String each : addresses) {
            for (String item : each.split(",", -1)) {
                found.add(Places.Address.of(item));
            }
        }
        if (found.isEmpty()) {
            throw new UsageException("no address");
        }
        return new Options(List.copyOf(found));
    }

    /**
     * A name of the client, for people.
     *
     * @param word the name
     * @return changed options
     */
    public Options name(String word) {
        Words.bytes(word);
        return with(copy -> copy.name = word);
    }

    /**
     * For a broker with users.
     *
     * @param word the user
     * @param password the secret of the user
     * @return changed options
     */
    public Options user(String word, String password) {
        if (word == null || password == null) {
            throw new UsageException("user and secret go together");
        }
        Words.bytes(word);
        Words.bytes(password);
        return with(copy -> {
            copy.user = word;
            copy.secret = password;
        });
    }

    /**
     * How long the locks outlive a connection. They move to the next broker,
     * or to the same one after its restart. With 0, the default, they end.
     *
     * @param time the time
     * @return changed options
     */
    public Options keep(Duration time) {
        Ask.checked("keep", time);
        return with(copy -> copy.keep = time);
    }

    /**
     * The pace at which the broker asks for a sign of life. A client that
     * hangs, or is cut off, is noticed after three heartbeats. The default is
     * 2 s; 0 turns heartbeats off.
     *
     * @param time the time
     * @return changed options
     */
    public Options heartbeat(Duration time) {
        Ask.checked("heartbeat", time);
        return with(copy -> copy.heartbeat = time);
    }

    /**
     * TLS with the certificates that Java trusts.
     *
     * @return changed options
     */
    public Options tls() {
        return with(copy -> copy.tls = true);
    }

    /**
     * TLS with a context of the caller. The client verifies the name of the
     * broker all the same.
     *
     * @param ssl the context
     * @return changed options
     */
    public Options tls(SSLContext ssl) {
        return with(copy -> copy.context = ssl);
    }

    /**
     * TLS with the certificates of a PEM file.
     *
     * @param file the file
     * @return changed options
     */
    public Options ca(Path file) {
        return with(copy -> copy.ca = file);
    }

    /**
     * The certificate of the client, and TLS.
     *
     * @param chain a PEM file with the certificate and those above it
     * @param secretKey a PEM file with the key in PKCS #8
     * @return changed options
     */
    public Options cert(Path chain, Path secretKey) {
        return with(copy -> {
            copy.cert = chain;
            copy.key = secretKey;
        });
    }

    /**
     * The name in the certificate of the broker. The default is the host of
     * its address.
     *
     * @param host the name
     * @return changed options
     */
    public Options serverName(String host) {
        return with(copy -> copy.serverName = host);
    }

    /**
     * How long {@link Holdfast#connect} tries. The default is 15 s: a log-in
     * alone may take 8 s.
     *
     * @param time the time
     * @return changed options
     */
    public Options timeout(Duration time) {
        return with(copy -> copy.timeout = time);
    }

    /**
     * What completes the futures of the client. The default is the common
     * pool.
     *
     * @param futures the executor
     * @return changed options
     */
    public Options executor(Executor futures) {
        return with(copy -> copy.executor = futures);
    }

    /**
     * A hook for each place that the broker tells a wait.
     *
     * @param hook gets the hold to be, and {@code position}, {@code note},
     *     {@code age_ms} and so on
     * @return changed options
     */
    public Options onWait(BiConsumer<Hold, Map<String, String>> hook) {
        return with(copy -> copy.onWait = onWait == null ? hook
                : onWait.andThen(hook));
    }

    /**
     * A hook for each grant.
     *
     * @param hook gets the hold, and the time that it waited
     * @return changed options
     */
    public Options onGrant(BiConsumer<Hold, Duration> hook) {
        return with(copy -> copy.onGrant = onGrant == null ? hook
                : onGrant.andThen(hook));
    }

    /**
     * A hook for each loss, but not for those by {@link Holdfast#close}.
     *
     * @param hook gets the hold
     * @return changed options
     */
    public Options onLost(Consumer<Hold> hook) {
        return with(copy -> copy.onLost = onLost == null ? hook
                : onLost.andThen(hook));
    }

    /**
     * A hook for each move to another connection.
     *
     * @param hook is run
     * @return changed options
     */
    public Options onMove(Runnable hook) {
        Runnable before = onMove;
        return with(copy -> copy.onMove = before == null ? hook : () -> {
            before.run();
            hook.run();
        });
    }

    Settings settings() {
        return new Settings(name, user, secret == null ? "" : secret,
                keep.toNanos() / 1e9, heartbeat.toNanos() / 1e9,
                onWait != null, addresses.size() > 1);
    }

    /** Null: no TLS. */
    SSLContext context() {
        if (context == null && !tls && ca == null && cert == null
                && serverName == null) {
            return null;
        }
        for (Places.Address each : addresses) {
            if (each.port() == 0) {
                throw new UsageException("a Unix socket has no TLS");
            }
        }
        return context != null ? context
                : Certificates.context(ca, cert, key);
    }
}
