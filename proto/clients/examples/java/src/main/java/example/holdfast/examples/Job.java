package example.holdfast.examples;

import static java.time.Duration.ZERO;
import static java.time.Duration.ofMinutes;

import example.holdfast.Ask;
import example.holdfast.BusyException;
import example.holdfast.Hold;
import example.holdfast.Holdfast;
import example.holdfast.Options;
import java.io.PrintStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Three nodes have the same schedule, and clocks that differ. Each job runs on
 * one node: the name of its lock has the scheduled time. For a minute after the
 * job no node gets the lock, however late it is.
 */
public final class Job {
    private static final int NODES = 3;
    private static final int JOBS = 3;
    private static final int CLOCKS_MS = 100;
    private static final int PERIOD_MS = 200;

    private Job() {
    }

    private static void once(Holdfast hf, Instant time, Runnable job) {
        Hold hold;
        try {
            hold = hf.lock("job/" + time, Ask.within(ZERO));
        } catch (BusyException another) {
            return; // runs it, or has run it
        }
        job.run();
        hold.release(ofMinutes(1));
    }

    static void run(String broker, PrintStream out)
            throws InterruptedException {
        CountDownLatch done = new CountDownLatch(NODES * JOBS);
        List<Holdfast> clients = new ArrayList<>();
        ScheduledExecutorService clock =
                Executors.newScheduledThreadPool(NODES);
        Instant first = Instant.now();
        for (int node = 1; node <= NODES; node++) {
            String name = "node-" + node;
            Holdfast hf = Holdfast.connect(Options.at(broker).name(name));
            clients.add(hf);
            for (int i = 0; i < JOBS; i++) {
                Instant time = first.plusMillis(i * PERIOD_MS);
                clock.schedule(() -> {
                    try {
                        once(hf, time, () -> out.println(
                                name + " runs the job of " + time));
                    } finally {
                        done.countDown();
                    }
                }, i * PERIOD_MS + ThreadLocalRandom.current()
                        .nextInt(CLOCKS_MS), TimeUnit.MILLISECONDS);
            }
        }
        done.await();
        clock.shutdown();
        clients.forEach(Holdfast::close);
    }

    /**
     * Runs the example.
     *
     * @param arguments none; the property {@code broker} is an address
     * @throws InterruptedException if the thread is interrupted
     */
    public static void main(String[] arguments) throws InterruptedException {
        run(System.getProperty("broker", "127.0.0.1:4653"), System.out);
    }
}
