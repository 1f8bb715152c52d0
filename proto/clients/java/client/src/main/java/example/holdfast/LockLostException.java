package example.holdfast;

/** The hold has ended, and the client did not ask for it. */
public final class LockLostException extends HoldfastException {
    LockLostException(Failure failure) {
        super(failure);
    }

    /**
     * Why the hold was lost.
     *
     * @return the reason of the broker, such as {@code expired}, or
     *     {@code deadline}, {@code session} or {@code closed}
     */
    public String why() {
        return failure == null ? "gone"
                : failure.keys().getOrDefault("reason", "gone");
    }
}
