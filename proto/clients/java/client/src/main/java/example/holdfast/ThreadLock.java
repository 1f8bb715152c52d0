package example.holdfast;

import java.util.Optional;
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
        private final Ask ask;
        private int count = 1;

        Entry(Hold hold, Ask ask) {
            this.hold = hold;
            this.ask = ask;
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

    static Optional<Hold> held(Holdfast client, String name) {
        return Optional.ofNullable(client.threads.get(
                new Key(name, Thread.currentThread())))
                .map(entry -> entry.hold);
    }

    /** Enters it again; false: this thread does not hold it. */
    private boolean reenter() {
        Entry entry = client.threads.get(key());
        if (entry == null) {
            return false;
        }
        if (!entry.ask.isLike(ask)) {
            throw new UsageException("this thread holds '" + name
                    + "' as another kind of lock; unlock that first");
        }
        entry.hold.check();
        entry.count++;
        return true;
    }

    /** The owner is the thread, so brokers see its deadlocks. */
    private Ask mine(double seconds) {
        return ask.by("~thread-" + Thread.currentThread().getId())
                .forSeconds(seconds);
    }

    private void enter(Hold hold) {
        client.threads.put(key(), new Entry(hold, ask));
    }

    @Override
    public void lock() {
        if (!reenter()) {
            enter(client.lockThrough(name, mine(Calls.FOREVER)));
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire(mine(Calls.FOREVER));
    }

    @Override
    public boolean tryLock() {
        try {
            if (!reenter()) {
                enter(client.lockThrough(name, mine(0)));
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
            acquire(mine(unit.toNanos(time) / 1e9));
            return true;
        } catch (BusyException | TimedOutException e) {
            return false;
        }
    }

    private void acquire(Ask how) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        try {
            if (!reenter()) {
                enter(client.lock(name, how));
            }
        } catch (CancelledException e) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            throw e;
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
