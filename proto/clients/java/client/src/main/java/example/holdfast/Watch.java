package example.holdfast;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * The news of a watched lock: its present state, then each change. The
 * iterator waits for the next one; it ends with {@link #close}. Of a reader
 * that is slow, only the latest 1000 news are kept.
 *
 * @param <T> a state
 */
public final class Watch<T> implements Iterator<T>, AutoCloseable {
    private static final int UNREAD = 1000;
    private static final Object END = new Object();

    private final Holdfast client;
    private final BlockingQueue<Object> news = new LinkedBlockingQueue<>();
    private final Watched watched;
    private Object next;

    Watch(Holdfast client, String name, boolean members) {
        this.client = client;
        List<Call> calls = client.begin(() -> List.of(
                client.core().watch(name, members, this)));
        watched = calls.get(0).watched;
        try {
            client.await(calls, null);
        } catch (RuntimeException failure) {
            close();
            throw failure;
        }
    }

    /**
     * Waits for the next state.
     *
     * @return false if the watch was closed
     * @throws HoldfastException if the broker has ended the watch
     * @throws CancelledException if the thread is interrupted
     */
    @Override
    public boolean hasNext() {
        try {
            if (next == null) {
                next = news.take();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw Failure.cancelled().exception();
        }
        if (next == END && watched.failure != null) {
            throw watched.failure.exception();
        }
        return next != END;
    }

    /** Waits for the next state. */
    @Override
    @SuppressWarnings("unchecked")
    public T next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the watch was closed");
        }
        T state = (T) next;
        next = null;
        return state;
    }

    /** Ends the watch. */
    @Override
    public void close() {
        if (watched != null) {
            client.engine.act(() -> client.core().unwatch(watched, this));
        }
        tellOver();
    }

    // the client's

    void tell(Object state) {
        if (news.size() >= UNREAD) {
            news.poll();
        }
        news.add(state);
    }

    void tellOver() {
        news.add(END);
    }
}
