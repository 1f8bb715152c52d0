package example.holdfast;

import java.time.Duration;

/**
 * No answer now: Redis or all brokers are away, or a limit is reached. After
 * INDOUBT and GONE the outcome is unknown, and nothing is held.
 */
public final class UnavailableException extends HoldfastException {
    UnavailableException(Failure failure) {
        super(failure);
    }

    /**
     * The time before which a new try is in vain.
     *
     * @return the time; 0 if it is not known
     */
    public Duration after() {
        return Duration.ofMillis(failure == null ? 0
                : Line.number(failure.keys(), "after_ms"));
    }
}
