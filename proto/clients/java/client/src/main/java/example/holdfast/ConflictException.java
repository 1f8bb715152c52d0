package example.holdfast;

/** The request does not fit what is held. */
public final class ConflictException extends HoldfastException {
    ConflictException(Failure failure) {
        super(failure);
    }
}
