package example.holdfast.bench;

import com.sun.management.OperatingSystemMXBean;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.Options;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Pairs of lock and unlock a second, beside Redisson, in one run on one Redis
 * server. The client has no dependency, so this is no module of its build:
 *
 * <pre>
 * mvn -q -f proto/clients/java -DskipTests install
 * mvn -q -f proto/clients/java/bench compile exec:java \
 *     -Dexec.args="BROKER REDIS [SECONDS]"
 * </pre>
 *
 * <p>Each thread has a lock of its own, and then all have one lock in common.
 * A hand-over is the time from the call that releases the lock to the return
 * of the next call that takes it.
 */
public final class Bench {
    /** Takes a lock, and returns the means to release it. */
    private interface Take {
        Runnable take(String name);
    }

    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory
                    .getOperatingSystemMXBean();

    private Bench() {
    }

    /**
     * Runs all.
     *
     * @param arguments addresses of the broker and of its Redis; seconds
     * @throws InterruptedException if it is interrupted
     */
    public static void main(String[] arguments) throws InterruptedException {
        double seconds = arguments.length > 2
                ? Double.parseDouble(arguments[2]) : 3;
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + arguments[1]);
        RedissonClient redisson = Redisson.create(config);
        try (Holdfast hf = Holdfast.connect(Options.at(arguments[0]))) {
            Take holdfast = name -> {
                Hold hold = hf.lock(name);
                return hold::close;
            };
            Take peer = name -> {
                RLock lock = redisson.getLock("redisson/" + name);
                lock.lock();
                return lock::unlock;
            };
            run("warm-up", holdfast, 8, false, seconds);
            run("warm-up", peer, 8, false, seconds);
            for (int users : new int[] {1, 32, 64}) {
                for (boolean one : new boolean[] {false, true}) {
                    run("holdfast", holdfast, users, one, seconds);
                    run("redisson", peer, users, one, seconds);
                }
            }
        } finally {
            redisson.shutdown();
        }
    }

    private static void run(String what, Take take, int users, boolean one,
            double seconds) throws InterruptedException {
        AtomicLong released = new AtomicLong();
        List<List<Long>> times = new ArrayList<>();
        Thread[] threads = new Thread[users];
        long[] pairs = new long[users];
        long used = SYSTEM.getProcessCpuTime();
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        for (int i = 0; i < users; i++) {
            int user = i;
            List<Long> own = new ArrayList<>();
            times.add(own);
            threads[i] = new Thread(() -> {
                String name = one ? "one" : "lock/" + user;
                while (System.nanoTime() < end) {
                    Runnable release = take.take(name);
                    long now = System.nanoTime();
                    long at = released.getAndSet(0);
                    if (one && at > 0) {
                        own.add(now - at);
                    }
                    released.set(System.nanoTime());
                    release.run();
                    pairs[user]++;
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double took = (System.nanoTime() - begin) / 1e9;
        long count = Math.max(1, Arrays.stream(pairs).sum());
        System.out.printf("%-9s %-9s %3d users %7.0f pairs/s %5d us CPU/pair",
                what, one ? "one lock" : "own locks", users, count / took,
                (SYSTEM.getProcessCpuTime() - used) / 1000 / count);
        long[] sorted = times.stream().flatMap(List::stream)
                .mapToLong(Long::longValue).sorted().toArray();
        if (sorted.length > 0) {
            System.out.printf("  hand-over p50 %d us, p99 %d us",
                    sorted[sorted.length / 2] / 1000,
                    sorted[sorted.length * 99 / 100] / 1000);
        }
        System.out.println();
    }
}
