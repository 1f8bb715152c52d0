package example.holdfast;

import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** A watched lock. It goes on at the next connection, until unwatch(). */
final class Watched {
    final String name;
    final boolean members;
    final SortedMap<Long, Member> all = new TreeMap<>();
    boolean listing;
    /** An Optional of a Member, or a list; null: none told yet. */
    Object last;
    /** A broker has answered OK. */
    boolean begun;
    volatile Failure failure;
    final List<Watch<?>> users = new CopyOnWriteArrayList<>();

    /** A user that joins later hears the present state alone. */
    Event.Seen seen(Object news) {
        return new Event.Seen(users.toArray(new Watch<?>[0]), news);
    }

    Watched(String name, boolean members) {
        this.name = name;
        this.members = members;
    }
}
