package example.holdfast;

/** The lock was held until the wait was over. */
public final class TimedOutException extends HoldfastException {
    TimedOutException(Failure failure) {
        super(failure);
    }
}
