package example.holdfast;

import java.util.concurrent.locks.ReentrantLock;

/** Interrupts the thread of some work at the loss of its lock. */
final class Interrupter {
    private final Ask asked;
    private final Thread worker = Thread.currentThread();
    private final ReentrantLock mutex = new ReentrantLock();
    private boolean ended;
    private Failure lost;

    Interrupter(Ask ask) {
        asked = ask;
    }

    /** The ask whose loss interrupts. */
    Ask ask() {
        return asked.onLost(hold -> {
            if (asked.interrupts) {
                interrupt(Failure.lost(hold.name(),
                        hold.lost().orElse("gone")));
            }
            if (asked.onLost != null) {
                asked.onLost.accept(hold);
            }
        });
    }

    private void interrupt(Failure reason) {
        mutex.lock();
        try {
            if (!ended) {
                lost = reason;
                worker.interrupt();
            }
        } finally {
            mutex.unlock();
        }
    }

    /** The work is over: the interrupt was for it alone. */
    void end() {
        mutex.lock();
        try {
            ended = true;
            if (lost != null) {
                Thread.interrupted();
            }
        } finally {
            mutex.unlock();
        }
    }

    /** LockLostException in place of what the interrupted work throws. */
    void lost(Exception failure) {
        mutex.lock();
        try {
            if (lost != null) {
                HoldfastException told = lost.exception();
                told.initCause(failure);
                throw told;
            }
        } finally {
            mutex.unlock();
        }
    }
}
