package example.holdfast;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock whose owner is the thread. */
final class ThreadLock implements Lock {
    /** A thread and a name. */
    record Key(String name, Thread thread) {
    }

    /** What a thread holds; only this thread uses it. */
    static final class Entry {
        private final Hold hold;
        private int count = 1;

        Entry(Hold hold) {
            this.hold = hold;
        }
    }

    private final Holdfast client;
    private final String name;
    private final Ask ask;

    ThreadLock(Holdfast client, String name, Ask ask) {
        this.client = client;
        this.name = name;
        this.ask = ask;
    }

    private Key key() {
        return new Key(name, Thread.currentThread());
    }

    /** Enters it again; false: this thread does not hold it. */
    private boolean reenter() {
        Entry entry = client.threads.get(key());
        if (entry == null) {
            return false;
        }
        entry.hold.check();
        entry.count++;
        return true;
    }

    private CompletableFuture<Hold> begin(Duration wait) {
        Ask mine = ask.owner("thread-" + Thread.currentThread().getId());
        return client.lockAsync(List.of(name),
                wait == null ? mine : mine.until(wait));
    }

    private void enter(Hold hold) {
        client.threads.put(key(), new Entry(hold));
    }

    private static HoldfastException thrown(ExecutionException failure) {
        return failure.getCause() instanceof HoldfastException known
                ? known.failure.exception()
                : Failure.gone(failure.getCause().toString()).exception();
    }

    @Override
    public void lock() {
        if (reenter()) {
            return;
        }
        CompletableFuture<Hold> future = begin(null);
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    enter(future.get());
                    return;
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } catch (ExecutionException failure) {
            throw thrown(failure);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(null);
    }

    @Override
    public boolean tryLock() {
        try {
            if (!reenter()) {
                enter(client.lock(name, ask.owner("thread-"
                        + Thread.currentThread().getId())
                        .until(Duration.ZERO)));
            }
            return true;
        } catch (BusyException | TimedOutException e) {
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit)
            throws InterruptedException {
        try {
            acquire(Duration.ofNanos(Math.max(0, unit.toNanos(time))));
            return true;
        } catch (BusyException | TimedOutException e) {
            return false;
        }
    }

    private void acquire(Duration wait) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        if (reenter()) {
            return;
        }
        CompletableFuture<Hold> future = begin(wait);
        try {
            enter(future.get());
        } catch (InterruptedException e) {
            future.cancel(true);
            throw e;
        } catch (ExecutionException failure) {
            throw thrown(failure);
        }
    }

    /** LockLostException: it was lost before. */
    @Override
    public void unlock() {
        Entry entry = client.threads.get(key());
        if (entry == null) {
            throw new IllegalMonitorStateException(
                    "this thread does not hold " + name);
        }
        entry.count--;
        if (entry.count == 0) {
            client.threads.remove(key());
            entry.hold.close();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException(
                "a Holdfast lock has no conditions");
    }

    @Override
    public String toString() {
        return "Lock[" + name + "]";
    }
}
