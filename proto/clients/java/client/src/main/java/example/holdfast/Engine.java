package example.holdfast;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;

/**
 * The thread behind a client: its socket, its timer, its hooks.
 *
 * <p>One mutex guards the core, the socket and TLS; nobody waits with it. A
 * caller encodes and sends its request itself. The thread reads, keeps the
 * deadlines, and calls the hooks, without the mutex. Connecting blocks, so it
 * has a thread of its own.
 */
final class Engine {
    /** For one address: the connection, and the TLS handshake. */
    private static final int CONNECT_MS = 3000;
    /** For the answer to QUIT, in seconds. */
    private static final double CLOSE = 2;
    /** Bytes that a broker leaves unread. */
    private static final int UNSENT_MAX = 4 << 20;

    final Core core;
    private final Consumer<Event> act;
    private final SSLContext context;
    private final String serverName;
    private final Places places;
    private final ReentrantLock mutex = new ReentrantLock();
    private final Selector selector;
    private final ByteBuffer input = ByteBuffer.allocateDirect(65536);
    /**
     * What is sent next. Java has a direct buffer for each thread that writes
     * from another one, as large as that.
     */
    private final ByteBuffer output = ByteBuffer.allocateDirect(65536)
            .limit(0);

    // with the mutex
    private volatile Thread thread;
    private SocketChannel channel;
    private Tls tls;
    /** What comes behind `output`. */
    private final Deque<ByteBuffer> unsent = new ArrayDeque<>();
    private int unsentBytes;
    private List<Event> events = new ArrayList<>();
    private double until;
    private double end = Calls.FOREVER;
    private boolean over;

    // the thread's
    private SocketChannel registered;
    private SelectionKey key;
    private boolean telling;

    /** `act` gets all events but Answered, without the mutex. */
    Engine(Options options, Consumer<Event> act) {
        this.act = act;
        context = options.context();
        serverName = options.serverName;
        places = new Places(options.addresses, context != null);
        core = new Core(options.settings(), Clock::now, Math::random);
        try {
            selector = Selector.open();
        } catch (IOException failure) {
            throw Failure.gone("no selector: " + failure).exception();
        }
    }

    // --- callers

    /** UsageException: this is the thread of the client, in a hook. */
    void checkMayWait() {
        if (Thread.currentThread() == thread) {
            throw new UsageException("a hook must not wait for the broker");
        }
    }

    /** Makes calls under the mutex. Each waiter is done with its answer. */
    List<Call> begin(Supplier<List<Call>> make) {
        List<Call> calls;
        mutex.lock();
        try {
            calls = make.get();
            for (Call call : calls) {
                call.waiter = new CompletableFuture<>();
            }
            settle();
        } finally {
            mutex.unlock();
        }
        tellTheRest();
        return calls;
    }

    /** Something that has no answer. */
    void act(Runnable what) {
        mutex.lock();
        try {
            what.run();
            settle();
        } finally {
            mutex.unlock();
        }
        tellTheRest();
    }

    /** Nobody waits any more. A lock that came is given back. */
    void giveUp(List<Call> calls) {
        act(() -> {
            for (Call call : calls) {
                if (!call.done) {
                    if (!call.verb.equals("UNLOCK")) {
                        core.abandon(call);
                    }
                } else if (call.verb.equals("LOCK") && call.failure == null) {
                    for (Grant grant : call.grants) {
                        grant.users.remove(call.user);
                        Call undo = call.detached
                                ? core.detached("UNLOCK", grant, "")
                                : core.unlock(grant, "");
                        undo.own = true;
                    }
                }
                call.own = true; // others go on without a caller
            }
        });
    }

    /** Gives back all, and ends the thread. */
    void close() {
        Thread ending;
        mutex.lock();
        try {
            boolean quits = core.link == Calls.Link.OPEN;
            core.close();
            end = quits ? Clock.now() + CLOSE : 0;
            settle();
            ending = thread;
            over |= thread == null;
            selector.wakeup();
        } finally {
            mutex.unlock();
        }
        tellTheRest();
        if (ending != null && ending != Thread.currentThread()) {
            try {
                ending.join((long) (CLOSE * 1000) + 1000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** The thread has ended: its callers tell. */
    private void tellTheRest() {
        List<Event> rest;
        mutex.lock();
        try {
            if (!over || events.isEmpty()) {
                return;
            }
            rest = events;
            events = new ArrayList<>();
        } finally {
            mutex.unlock();
        }
        tell(rest);
    }

    // --- with the mutex

    /** After each use of the core: sends, connects, tells. */
    private void settle() {
        send(core.take());
        if (core.link == Calls.Link.PAUSE && Clock.now() >= core.dialAt) {
            hangUp(); // the thread may be in a hook
            core.dialing();
            start(this::dial, "holdfast-dial");
        }
        for (Event event : core.events()) {
            if (event instanceof Event.Answered answered
                    && answered.call().user != null
                    && answered.call().failure == null) {
                // LOST may be the next line
                answered.call().user.granted(answered.call().grants);
            }
            events.add(event);
        }
        if (thread == null) {
            if (core.link != Calls.Link.IDLE
                    && core.link != Calls.Link.CLOSED) {
                thread = start(this::run, "holdfast");
            }
        } else if ((Thread.currentThread() != thread || telling)
                && (!events.isEmpty() || hasUnsent()
                        || core.due() < until)) {
            selector.wakeup();
        }
    }

    private static Thread start(Runnable what, String name) {
        Thread started = new Thread(what, name);
        started.setDaemon(true);
        started.start();
        return started;
    }

    private void send(byte[] data) {
        if (channel == null) {
            return;
        }
        try {
            if (data.length > 0) {
                byte[] sealed = tls != null ? tls.encrypt(data) : data;
                unsent.add(ByteBuffer.wrap(sealed));
                unsentBytes += sealed.length;
            }
            flush();
            if (unsentBytes > UNSENT_MAX) {
                ended("the broker does not read", false);
            }
        } catch (IOException failure) {
            ended(failure.toString(), false);
        }
    }

    /** Sends until nothing is left, or the socket takes no more. */
    private void flush() throws IOException {
        while (hasUnsent()) {
            output.compact();
            while (output.hasRemaining() && !unsent.isEmpty()) {
                ByteBuffer next = unsent.peek();
                int count = Math.min(next.remaining(), output.remaining());
                output.put(next.slice().limit(count));
                next.position(next.position() + count);
                unsentBytes -= count;
                if (!next.hasRemaining()) {
                    unsent.poll();
                }
            }
            output.flip();
            channel.write(output);
            if (output.hasRemaining()) {
                return;
            }
        }
    }

    private boolean hasUnsent() {
        return output.hasRemaining() || !unsent.isEmpty();
    }

    private void hangUp() {
        shut(channel);
        channel = null;
        tls = null;
        output.limit(0);
        unsent.clear();
        unsentBytes = 0;
    }

    private void ended(String reason, boolean ofTls) {
        hangUp();
        end = 0;
        core.lost(reason, ofTls);
    }

    private void receive() {
        if (channel == null) {
            return;
        }
        try {
            input.clear();
            if (channel.read(input) < 0) {
                ended("the broker has closed the connection", false);
                return;
            }
            input.flip();
            core.receive(tls == null ? input : tls.decrypt(input));
        } catch (SSLException failure) {
            ended(failure.toString(), true);
        } catch (IOException failure) {
            ended(failure.toString(), false);
        }
    }

    /** All that is due; the seconds until the next turn, negative: over. */
    private double turn() throws IOException {
        if (Clock.now() >= core.due()) {
            receive(); // an answer that has come counts
            core.tick();
        }
        settle();
        boolean closed = core.link == Calls.Link.CLOSED;
        boolean needed = core.link.connected()
                || closed && Clock.now() < end;
        if (channel != null && !needed) {
            hangUp();
        }
        if (closed && channel == null) {
            over = true;
            return -1;
        }
        if (channel != registered) {
            registered = channel;
            key = channel == null ? null
                    : channel.register(selector, SelectionKey.OP_READ);
        }
        if (key != null) {
            key.interestOps(SelectionKey.OP_READ | (hasUnsent()
                    ? SelectionKey.OP_WRITE : 0));
        }
        until = closed ? end : core.due();
        return Math.max(0, until - Clock.now());
    }

    // --- the thread

    private void run() {
        try {
            while (true) {
                double pause;
                List<Event> told;
                mutex.lock();
                try {
                    pause = turn();
                    told = events;
                    events = new ArrayList<>();
                } finally {
                    mutex.unlock();
                }
                tell(told);
                if (pause < 0) {
                    selector.close();
                    return;
                }
                wait(pause);
            }
        } catch (Throwable failure) {
            failed(failure);
        }
    }

    /** A defect, or no more descriptors: nobody must wait for ever. */
    private void failed(Throwable failure) {
        log("the thread of holdfast has failed", failure);
        mutex.lock();
        try {
            core.close();
            events.addAll(core.events());
            over = true;
            hangUp();
        } finally {
            mutex.unlock();
        }
        tellTheRest();
    }

    private void wait(double pause) throws IOException {
        long ms = (long) Math.ceil(Math.min(pause, 3600) * 1000);
        if (ms == 0) {
            selector.selectNow();
        } else {
            selector.select(ms);
        }
        if (selector.selectedKeys().isEmpty()) {
            return;
        }
        selector.selectedKeys().clear();
        mutex.lock();
        try {
            if (channel == registered && key != null && key.isValid()
                    && key.isReadable()) {
                receive();
            }
        } finally {
            mutex.unlock();
        }
    }

    private void tell(List<Event> told) {
        boolean mine = Thread.currentThread() == thread;
        telling |= mine;
        for (Event event : told) {
            if (!(event instanceof Event.Answered answered)) {
                guarded(() -> act.accept(event));
            } else if (answered.call().waiter != null) {
                answered.call().waiter.complete(null);
            }
        }
        telling &= !mine;
        if (mine) {
            Thread.interrupted(); // by a hook: select() would not wait
        }
    }

    /**
     * Runs a hook, which must not end the thread or lose a lock. What it
     * throws goes to the log.
     */
    static void guarded(Runnable hook) {
        try {
            hook.run();
        } catch (Throwable failure) {
            log("a hook of holdfast has failed", failure);
        }
    }

    private static void log(String text, Throwable failure) {
        System.getLogger("holdfast").log(System.Logger.Level.ERROR, text,
                failure);
    }

    // --- connecting

    /** Tries one place, in a thread of its own. */
    private void dial() {
        SocketChannel made = null;
        Tls[] sealed = new Tls[1];
        Failure failure = null;
        try {
            if (!core.more) {
                places.begin();
            }
            made = connect(places.next(), sealed);
        } catch (SSLException error) {
            failure = Failure.tls(error.toString());
        } catch (Throwable error) {
            failure = Failure.gone(error.toString());
        }
        mutex.lock();
        try {
            if (core.link != Calls.Link.DIALING) {
                shut(made);
                return;
            }
            if (made == null) {
                core.failed(failure, places.more());
            } else {
                channel = made;
                tls = sealed[0];
                core.connected(places.more());
                if (tls != null) { // bytes may have come with the handshake
                    decryptFirst();
                }
            }
            settle();
            selector.wakeup();
        } finally {
            mutex.unlock();
        }
    }

    private void decryptFirst() {
        try {
            core.receive(tls.decrypt(ByteBuffer.allocate(0)));
        } catch (SSLException failure) {
            ended(failure.toString(), true);
        }
    }

    private SocketChannel connect(Places.Endpoint place, Tls[] sealed)
            throws IOException {
        boolean inet = place.address() instanceof InetSocketAddress;
        SocketChannel made = inet ? SocketChannel.open()
                : SocketChannel.open(place.address());
        try {
            if (inet) {
                made.socket().connect(place.address(), CONNECT_MS);
                made.setOption(StandardSocketOptions.TCP_NODELAY, true);
                made.setOption(StandardSocketOptions.SO_KEEPALIVE, true);
            }
            if (context != null && inet) {
                sealed[0] = new Tls(context, serverName != null ? serverName
                        : place.host(), place.port());
                sealed[0].shake(made.socket(), CONNECT_MS);
            }
            made.configureBlocking(false);
            return made;
        } catch (IOException | RuntimeException failure) {
            shut(made);
            throw failure;
        }
    }

    private static void shut(SocketChannel made) {
        if (made != null) {
            try {
                made.close();
            } catch (IOException failure) {
                log("a socket of holdfast does not close", failure);
            }
        }
    }
}
