package example.holdfast;

/** The broker refuses the user, or the user lacks a right. */
public final class DeniedException extends HoldfastException {
    DeniedException(Failure failure) {
        super(failure);
    }
}
