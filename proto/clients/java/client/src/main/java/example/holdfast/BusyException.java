package example.holdfast;

/** Another client holds the lock, and the wait was 0. */
public final class BusyException extends HoldfastException {
    BusyException(Failure failure) {
        super(failure);
    }
}
