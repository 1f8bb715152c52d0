package example.holdfast;

/** The peer has sent something that is not the protocol. */
public final class ProtocolException extends HoldfastException {
    ProtocolException(Failure failure) {
        super(failure);
    }
}
