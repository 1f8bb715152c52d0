package example.holdfast;

/**
 * Any error of a broker, a connection or a call. There is a class for each way
 * that a caller reacts.
 */
public class HoldfastException extends RuntimeException {
    /** What went wrong. */
    final transient Failure failure;
    private final String code;
    private final boolean retry;

    HoldfastException(Failure failure) {
        super(failure.text().isEmpty() ? failure.code()
                : failure.code() + ": " + failure.text());
        this.failure = failure;
        this.code = failure.code();
        this.retry = failure.retry();
    }

    /**
     * The code of the wire, such as BUSY, or one of the client's own: CLOSED,
     * GONE, PROTOCOL, TLS and USAGE.
     *
     * @return the code
     */
    public final String code() {
        return code;
    }

    /**
     * Whether the same call may succeed later.
     *
     * @return true if a later try makes sense
     */
    public final boolean retry() {
        return retry;
    }
}
