package example.holdfast;

/** There is no such hold. */
public final class NotHeldException extends HoldfastException {
    NotHeldException(Failure failure) {
        super(failure);
    }
}
