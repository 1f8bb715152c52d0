package example.holdfast;

import java.util.Map;

/** The arguments of a call are wrong. */
public final class UsageException extends HoldfastException {
    UsageException(Failure failure) {
        super(failure);
    }

    UsageException(String text) {
        this(new Failure("USAGE", false, Map.of(), text));
    }
}
