package example.holdfast.spring;

import example.holdfast.Options;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;

/** Meters of Micrometer, by the hooks of the client. */
final class HoldfastMetrics {
    private HoldfastMetrics() {
    }

    static Options bind(Options options, MeterRegistry registry) {
        Timer wait = Timer.builder("holdfast.lock.wait").description(
                "Waits for locks that were granted").register(registry);
        Counter queued = Counter.builder("holdfast.lock.queued").description(
                "Places in a queue that brokers have told").register(registry);
        Counter lost = Counter.builder("holdfast.lock.lost").description(
                "Locks that were lost").register(registry);
        Counter moves = Counter.builder("holdfast.moves").description(
                "Moves of the session to another connection")
                .register(registry);
        return options.onGrant((hold, waited) -> wait.record(waited))
                .onWait((hold, keys) -> queued.increment())
                .onLost(hold -> lost.increment())
                .onMove(moves::increment);
    }
}
