package example.holdfast;

import java.util.Map;

/** What the core tells its driver. */
sealed interface Event {
    /** A call is done. */
    record Answered(Call call) implements Event {
    }

    /** A LOCK waits; the keys of QUEUED. */
    record Queued(Call call, Map<String, String> keys) implements Event {
    }

    /** A hold was lost: grant.lost says why. */
    record Lost(Grant grant) implements Event {
    }

    /** Others wait for a hold. */
    record Wanted(Grant grant, long waiters) implements Event {
    }

    /** News of a watch, for those who used it when the news came. */
    record Seen(Watch<?>[] users, Object news) implements Event {
    }

    /** A watch has ended; watched.failure says why. */
    record WatchOver(Watched watched) implements Event {
    }

    /** The session goes on at another connection. */
    record Moved() implements Event {
    }
}
