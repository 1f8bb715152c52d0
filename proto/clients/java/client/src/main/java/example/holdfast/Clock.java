package example.holdfast;

import java.util.concurrent.atomic.AtomicReference;

/**
 * Seconds that have passed, also while the machine slept. Java's own clock
 * stops then, on Linux: the wall clock tells the difference. A wall clock that
 * is set forward ends a deadline too soon, which is safe (6.5).
 */
final class Clock {
    private static final double STEP = 0.05;

    /** The wall clock less System.nanoTime(), and the sum of its jumps. */
    private record Skew(double least, double jumps) {
    }

    private static final AtomicReference<Skew> SKEW = new AtomicReference<>(
            new Skew(skew(System.nanoTime()), 0));

    private Clock() {
    }

    private static double skew(long nanos) {
        return System.currentTimeMillis() / 1e3 - nanos / 1e9;
    }

    static double now() {
        long nanos = System.nanoTime();
        double skew = skew(nanos);
        while (true) {
            Skew last = SKEW.get();
            double jump = skew - last.least;
            if (jump >= 0 && jump < STEP) {
                return nanos / 1e9 + last.jumps;
            }
            SKEW.compareAndSet(last, new Skew(skew,
                    last.jumps + Math.max(0, jump)));
        }
    }
}
