package example.holdfast;

/** The client was closed. */
public final class ClosedException extends HoldfastException {
    ClosedException(Failure failure) {
        super(failure);
    }
}
