package example.holdfast;

import example.holdfast.Words.Garbage;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.DoubleSupplier;

/**
 * Watched locks and groups (PROTOCOL.md, WATCH). A watch goes on at each next
 * connection, also in a new session. Its news are the present state: after a
 * move, only a changed state is news.
 */
abstract class Watches extends Grants {
    Watches(Settings settings, DoubleSupplier clock, DoubleSupplier chance) {
        super(settings, clock, chance);
    }

    /**
     * WATCH. A session has one for a name: further users share it, and hear
     * its present state first.
     */
    final Call watch(String name, boolean members, Watch<?> user) {
        Call call = new Call("WATCH", name);
        Watched watched = watches.get(name);
        if (link == Link.CLOSED) {
            return submit(call);
        }
        if (watched != null && watched.members != members) {
            finish(call, new Failure("CONFLICT", false, Map.of(),
                    "this client watches it in the other way"));
            return call;
        }
        if (watched != null) {
            watched.users.add(user);
            call.watched = watched;
            finish(call, null);
            if (watched.last != null) {
                events.add(new Event.Seen(new Watch<?>[] {user},
                        watched.last));
            }
            return call;
        }
        call.watched = new Watched(name, members);
        call.watched.users.add(user);
        watches.put(name, call.watched);
        call.words = members ? "members=1" : "";
        return submit(call);
    }

    /** UNWATCH, after the last user. No news comes after it. */
    final void unwatch(Watched watched, Watch<?> user) {
        watched.users.remove(user);
        if (watched.users.isEmpty()
                && watches.remove(watched.name, watched)
                && link == Link.OPEN) {
            submit(Call.own("UNWATCH", watched.name));
        }
    }

    final void rewatch(Watched watched, double now) {
        Call call = Call.own("WATCH", watched.name);
        call.words = watched.members ? "members=1" : "";
        call.watched = watched;
        call.again = true;
        send(call, now);
    }

    final void onWatch(Call call, Failure failure) {
        Watched watched = call.watched;
        if (failure == null) {
            watched.begun = true;
        } else if (watches.get(watched.name) == watched) {
            if (call.own && failure.retry()) {
                later(call);
                return;
            }
            endWatch(watched, failure);
        }
        finish(call, failure);
    }

    final void endWatch(Watched watched, Failure failure) {
        watches.remove(watched.name, watched);
        watched.failure = failure;
        events.add(new Event.WatchOver(watched));
    }

    final void onNews(Line line) throws Garbage {
        Watched watched = watches.get(line.argument());
        if (watched == null || watched.members) {
            return;
        }
        Optional<Member> news = line.word().equals("FREE")
                ? Optional.empty() : Optional.of(member(line));
        if (!news.equals(watched.last)) {
            watched.last = news;
            events.add(watched.seen(news));
        }
    }

    final void onMember(Line line) throws Garbage {
        Watched watched = watches.get(line.argument());
        if (watched == null || !watched.members) {
            return;
        }
        switch (line.word()) {
            case "MEMBERS" -> {
                watched.listing = line.has("begin");
                if (watched.listing) {
                    watched.all.clear(); // an earlier list is void
                }
            }
            case "LEFT" -> watched.all.remove(line.number("fence"));
            default -> watched.all.put(line.number("fence"), member(line));
        }
        if (!watched.listing) {
            watched.last = List.copyOf(watched.all.values());
            events.add(watched.seen(watched.last));
        }
    }

    private static Member member(Line line) throws Garbage {
        return new Member(line.argument(), line.number("fence"),
                line.key("note"), line.key("name"), line.key("owner"),
                line.key("session"),
                line.has("permits") ? line.number("permits") : 1,
                line.has("holders") ? line.number("holders") : 1,
                line.has("detached"));
    }
}
