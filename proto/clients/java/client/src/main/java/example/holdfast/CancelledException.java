package example.holdfast;

/** The wait was cancelled, or its thread interrupted. */
public final class CancelledException extends HoldfastException {
    CancelledException(Failure failure) {
        super(failure);
    }
}
