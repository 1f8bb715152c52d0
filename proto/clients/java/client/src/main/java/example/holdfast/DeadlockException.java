package example.holdfast;

import java.util.ArrayList;
import java.util.List;

/**
 * The wait was part of a deadlock: release the locks that are held, and begin
 * again.
 */
public final class DeadlockException extends HoldfastException {
    DeadlockException(Failure failure) {
        super(failure);
    }

    /**
     * The names of the locks of the cycle.
     *
     * @return the names; an empty last one says that there are more
     */
    public List<String> cycle() {
        List<String> names = new ArrayList<>();
        if (failure != null) {
            String cycle = failure.keys().getOrDefault("cycle", "");
            for (String name : cycle.split(",", -1)) {
                // A comma or % within a name has an encoding of its own (6.6).
                names.add(name.replace("%2C", ",").replace("%25", "%"));
            }
        }
        return names;
    }
}
