"""Every kind of lock, through the daemon's sockets, over two brokers."""

import itertools
import time

from harness import (ClientError, HarnessCase, encode, shared_cluster,
                     shared_redis)
from shared import stats


class KindsCase(HarnessCase):
    """Two brokers of a class's tests; clients come from them by turns."""

    lease = "10s"

    def setUp(self):
        self.server = shared_redis()
        self.brokers = [self.broker(self.server, {"lease.default": self.lease})
                        for _ in range(2)]
        self.turn = itertools.cycle(self.brokers)

    def connect(self, *lines):
        return self.client(next(self.turn), *lines)


class SharedTest(KindsCase):
    def test_readers_together_writers_alone(self):
        readers = [self.connect() for _ in range(4)]
        writer, late = self.connect(), self.connect()
        fences = [client.ok("LOCK s mode=shared", count=1).fence
                  for client in readers]
        self.assertEqual(fences, sorted(set(fences)))
        tag = writer.waits("LOCK s")
        # Behind one who waits to have it alone, also without waiting.
        late_tag = late.waits("LOCK s mode=shared")
        self.connect().err("LOCK s mode=shared wait=0", "BUSY")
        for client in readers:
            self.assertFalse(late.events)
            client.ok("UNLOCK s", count=0)
        alone = writer.wait(tag).fence
        self.assertGreater(alone, fences[-1])
        self.connect().err("LOCK s mode=shared wait=0", "BUSY")
        writer.ok("UNLOCK s")
        self.assertGreater(late.wait(late_tag).fence, alone)

    def test_a_batch_of_readers(self):
        writer = self.connect("LOCK s")
        readers = [self.connect() for _ in range(30)]
        tags = [client.waits("LOCK s mode=shared") for client in readers]
        writer.ok("UNLOCK s")
        fences = {client.wait(tag).fence
                  for client, tag in zip(readers, tags)}
        self.assertEqual(len(fences), 30)
        reply = writer.ok("SHOW s", mode="shared", holders=30, waiters=0)
        self.assertEqual({item["mode"] for item in reply.items}, {"shared"})

    def test_reentry(self):
        """Even behind a writer that waits: it would wait for itself."""
        reader, writer = self.connect(), self.connect()
        fence = reader.ok("LOCK s mode=shared").fence
        tag = writer.waits("LOCK s")
        reader.ok("LOCK s mode=shared", fence=fence, count=2)
        reader.err("LOCK s mode=upgradable", "CONFLICT")
        reader.err("LOCK s limit=2 wait=0", "CONFLICT")
        reader.ok("UNLOCK s", count=1)
        reader.ok("UNLOCK s", count=0)
        writer.granted(tag)

    def test_downgrade(self):
        holder, reader, writer = (self.connect() for _ in range(3))
        fence = holder.ok("LOCK s").fence
        tag = reader.waits("LOCK s mode=shared")
        behind = writer.waits("LOCK s")
        holder.ok("LOCK s mode=shared", fence=fence, count=2)
        reader.granted(tag)
        holder.err("LOCK s", "CONFLICT")
        holder.ok("UNLOCK s", count=1)
        reader.ok("UNLOCK s")
        self.assertFalse(writer.events)
        holder.ok("UNLOCK s", count=0)
        writer.granted(behind)

    def test_a_reader_dies(self):
        reader, other, writer = (self.connect() for _ in range(3))
        reader.ok("LOCK s mode=shared")
        other.ok("LOCK s mode=shared")
        tag = writer.waits("LOCK s")
        reader.kill()
        other.ok("UNLOCK s")
        writer.granted(tag)


class SemaphoreTest(KindsCase):
    def test_never_more_than_the_limit(self):
        clients = [self.connect() for _ in range(5)]
        clients[0].ok("LOCK p limit=5 permits=3")
        clients[1].ok("LOCK p limit=5 permits=2")
        clients[2].err("LOCK p limit=5 wait=0", "BUSY")
        many = clients[2].waits("LOCK p limit=5 permits=4")
        few = clients[3].waits("LOCK p limit=5")
        # What is free would be enough for the last one only.
        clients[1].ok("UNLOCK p")
        self.assertFalse(clients[3].events)
        clients[0].ok("UNLOCK p")
        clients[2].granted(many)
        clients[3].granted(few)
        clients[4].ok("SHOW p", mode="semaphore", limit=5, permits=5,
                      holders=2)

    def test_conflicts(self):
        one, two = self.connect("LOCK p limit=3"), self.connect()
        for line in ("LOCK p", "LOCK p mode=shared", "LOCK p limit=4",
                     "LOCK p limit=2 wait=0"):
            two.err(line, "CONFLICT")
        one.err("LOCK p limit=3 permits=2", "CONFLICT")
        one.ok("LOCK p limit=3", count=2)
        one.ok("UNLOCK p", count=1)
        one.ok("UNLOCK p", count=0)
        two.ok("LOCK p mode=shared")

    def test_a_crash_gives_permits_back(self):
        one, two = self.connect("LOCK p limit=2 permits=2"), self.connect()
        tag = two.waits("LOCK p limit=2")
        one.kill()
        two.granted(tag)


class DelayTest(KindsCase):
    def delayed(self, end):
        holder, other = self.connect("LOCK d delay=1h"), self.connect()
        tag = other.waits("LOCK d")
        end(holder)
        return other, tag

    def test_after_death(self):
        other, _ = self.delayed(lambda holder: holder.kill())
        self.wait_until(lambda: other.ok("SHOW d").get("state") == "free",
                        what="the holder is gone")
        left = other.ok("SHOW d", waiters=1).number("delay_ms")
        self.assertTrue(0 < left <= 3600000, left)
        self.connect().err("LOCK d wait=0", "BUSY")

    def test_not_after_unlock(self):
        other, tag = self.delayed(lambda holder: holder.ok("UNLOCK d"))
        other.granted(tag)

    def test_not_after_quit(self):
        other, tag = self.delayed(lambda holder: holder.ok("QUIT"))
        other.granted(tag)

    def test_it_ends(self):
        holder, other = self.connect("LOCK d delay=300ms"), self.connect()
        tag = other.waits("LOCK d")
        holder.kill()
        other.granted(tag)

    def test_of_an_unlock(self):
        """For waiters at any broker, and for the releaser itself."""
        holder, other = self.connect("LOCK d"), self.connect("WATCH d")
        other.event("HELD")
        tag = other.waits("LOCK d")
        began = time.monotonic()
        holder.ok("UNLOCK d delay=500ms", count=0)
        other.event("FREE")
        again = holder.waits("LOCK d")
        shown = holder.ok("SHOW d", state="free", waiters=2)
        self.assertTrue(0 < shown.number("delay_ms") <= 500)
        other.granted(tag)
        self.assertGreater(time.monotonic() - began, 0.5)
        other.ok("UNLOCK d", count=0)
        holder.granted(again)

    def test_of_an_unlock_without_waiters(self):
        holder, other = self.connect("LOCK d e"), self.connect()
        holder.ok("UNLOCK d e delay=300ms", count=0)
        for line in ("LOCK d wait=0", "LOCK e wait=0", "AWAIT d wait=0"):
            left = other.err(line, "BUSY").number("delay_ms")
            self.assertTrue(0 < left <= 300, left)
        other.ok("AWAIT d")
        other.ok("LOCK d e")

    def test_of_an_unlock_of_one_that_shares(self):
        one, two = self.connect(), self.connect()
        for kind in ("mode=shared", "limit=2"):
            for client in (one, two):
                client.ok(f"LOCK d {kind}")
            one.ok("UNLOCK d delay=300ms", count=0)
            one.err(f"LOCK d {kind} wait=0", "BUSY")
            one.ok(f"LOCK d {kind}")
            for client in (one, two):
                client.ok("UNLOCK d", count=0)


class ShowTest(KindsCase):
    lease = "1s"

    def test_waiters_of_a_killed_broker(self):
        """They are not listed when their life is over, held or not."""
        doomed, other = self.brokers
        holder = self.client(other, "LOCK s")
        self.client(doomed).waits("LOCK s")
        self.assertEqual(holder.ok("SHOW s")["waiters"], "1")
        doomed.kill()
        reply = self.wait_until(
            lambda: (found := holder.ok("SHOW s"))["waiters"] == "0" and found,
            what="the waiter is over")
        self.assertEqual(len(reply.items), 1)


class NamesTest(KindsCase):
    def test_all(self):
        client = self.connect()
        reply = client.ok("LOCK n/b n/a n/c", count=1)
        fences = reply["fence"].split(",")
        held = {item["name"]: item["fence"]
                for item in client.ok("HELD", n=3).items}
        self.assertEqual([held[f"n/{name}"] for name in "bac"], fences)
        for name in "abc":
            client.ok(f"UNLOCK n/{name}", count=0)

    def test_none(self):
        one, two, three = (self.connect() for _ in range(3))
        one.ok("LOCK n/m")
        reply = two.err("LOCK n/z n/a n/m wait=0", "BUSY")
        self.assertEqual(reply["name"], "n/m")
        two.ok("HELD", n=0)
        tag = two.submit("LOCK n/z n/a n/m progress=1 wait=1h")
        self.assertEqual(two.queued(tag)["name"], "n/m")
        two.ok("HELD", n=0)
        unlock = two.submit("UNLOCK n/a")
        three.err("LOCK n/a wait=0", "BUSY")
        two.ok(f"CANCEL {tag}")
        two.refused(tag, "CANCELLED")
        two.refused(unlock, "NOTHELD")
        three.ok("LOCK n/a wait=9s")

    def test_what_follows_it(self):
        """Requests on any of its names take effect after it, in one write."""
        one, two = (self.connect() for _ in range(2))
        tags = [one.submit(line) for line in
                ("LOCK n/f n/g", "UNLOCK n/f", "UNLOCK n/g", "LOCK n/g",
                 "UNLOCK n/g")]
        self.assertEqual(one.wait(tags[0])["count"], "1")
        for tag in tags[1:3]:
            self.assertEqual(one.wait(tag)["count"], "0")
        self.assertEqual(one.wait(tags[3])["count"], "1")
        self.assertEqual(one.wait(tags[4])["count"], "0")
        two.ok("LOCK n/f n/g wait=0")

    def test_time_out_and_death(self):
        one, two, three = (self.connect() for _ in range(3))
        one.ok("LOCK n/b")
        two.err("LOCK n/a n/b wait=50ms", "TIMEOUT")
        three.ok("LOCK n/a wait=9s")
        three.ok("UNLOCK n/a")
        two.waits("LOCK n/a n/b")
        two.kill()
        three.ok("LOCK n/a wait=9s")

    def test_crosswise(self):
        """In any order, and at the same time, over a cluster's nodes."""
        cluster = shared_cluster()
        brokers = [self.broker(cluster) for _ in range(2)]
        names = [f"n/{number}" for number in range(4)]

        def work(client, order):
            for _ in range(25):
                reply = client.ok("LOCK " + " ".join(order), 60)
                self.assertEqual(len(reply["fence"].split(",")), len(order))
                for name in order:
                    client.ok(f"UNLOCK {name}", count=0)

        self.side_by_side(work, *(
            (self.client(broker, timeout=60), order) for broker, order in zip(
                itertools.cycle(brokers),
                list(itertools.permutations(names, 3))[::4])))
        self.assertEqual(stats(self.client(brokers[0]))["deadlocks"], 0)

    def test_lease_of_all(self):
        one, two = self.connect("LOCK n/b"), self.connect()
        tag = two.waits("LOCK n/a n/b lease=1s")
        two.no_event("LOST", 1.2)
        one.ok("UNLOCK n/b")
        two.granted(tag)
        for name in ("n/a", "n/b"):
            two.event("LOST", reason="expired")


class WatchTest(KindsCase):
    def test_over_brokers(self):
        watcher = self.client(self.brokers[0])
        leader, next_one = (self.client(self.brokers[1]) for _ in range(2))
        leader.ok("HELLO name=shop%201")
        watcher.ok("WATCH w")
        self.assertEqual(watcher.event("FREE").words, ["w"])
        fence = leader.ok("LOCK w note=10.0.0.7:80").fence
        event = watcher.event("HELD", fence=fence)
        self.assertEqual((event["name"], event["note"]),
                         ("shop 1", "10.0.0.7:80"))
        tag = next_one.waits("LOCK w note=" + encode("10.0.0.9=x"))
        leader.kill()
        event = watcher.event("HELD", fence=next_one.wait(tag).fence)
        self.assertEqual(event["note"], "10.0.0.9=x")
        next_one.ok("UNLOCK w")
        watcher.event("FREE")
        watcher.ok("UNWATCH w")
        watcher.err("UNWATCH w", "NOTHELD")

    def test_what_is_told_only_grows(self):
        watcher, client = self.connect("WATCH w"), self.connect()
        for _ in range(300):
            last = client.ok("LOCK w").fence
            client.ok("UNLOCK w")
        last = client.ok("LOCK w").fence
        fences = []
        while not fences or fences[-1] < last:
            fences.append(watcher.event("HELD").fence)
        self.assertEqual(fences, sorted(set(fences)))
        watcher.err("WATCH w", "CONFLICT")

    def test_the_subscription_breaks(self):
        watcher, client = self.connect("WATCH w"), self.connect()
        watcher.event("FREE")
        self.server.command("CLIENT", "KILL", "TYPE", "pubsub")
        fence = client.ok("LOCK w").fence
        watcher.event("HELD", fence=fence)

    def test_many_watches(self):
        watcher, client = self.connect(), self.connect()
        for number in range(200):
            watcher.send(f"{number} WATCH w/{number}")
        for number in range(200):
            watcher.granted(str(number))
        channels = self.server.command("PUBSUB", "CHANNELS", "*")
        self.assertLessEqual(len(channels), 3)
        for number in range(200):
            client.ok(f"LOCK w/{number}")
        for number in range(200):
            watcher.event("HELD")


class MoveTest(KindsCase):
    lease = "20s"

    def session(self, broker, lines=()):
        client = self.client(broker)
        session = client.ok("HELLO keep=30s", keep_ms=30000)["session"]
        return client, session, [client.ok(line).fence for line in lines]

    def test_the_same_broker(self):
        broker = self.brokers[0]
        client, session, (fence, _) = self.session(
            broker, ("LOCK m", "LOCK m"))
        waiter, waiting, _ = self.session(broker)
        waiter.waits("LOCK m")
        self.connect().waits("LOCK m")
        client.kill()
        waiter.kill()
        heir, next_one = self.client(broker), self.client(broker)
        heir.ok(f"HELLO resume={session} gen=2", session=session, gen=2)
        heir.ok(f"CLAIM m fence={fence} count=2", fence=fence, count=2)
        next_one.ok(f"HELLO resume={waiting} gen=2")
        tag = next_one.submit("LOCK m progress=1")
        self.assertEqual(next_one.queued(tag)["position"], "1")
        heir.ok("UNLOCK m", count=1)
        heir.ok("UNLOCK m", count=0)
        self.assertGreater(next_one.wait(tag).fence, fence)

    def test_keep_is_named(self):
        """keep= is the connection's own, at whichever broker."""
        broker = self.brokers[0]
        for keep, kept in (("", None), (" keep=0", None), (" keep=5s", 5000)):
            client, session, _ = self.session(broker, (f"LOCK k{len(keep)}",))
            client.kill()
            client = self.client(broker)
            said = client.ok(f"HELLO{keep} resume={session} gen=2")
            self.assertEqual(said.get("keep_ms"), kept and str(kept))

    def test_a_broker_is_killed(self):
        doomed, other = self.brokers
        client, session, (fence, shared) = self.session(
            doomed, ("LOCK m note=inventory", "LOCK r mode=shared"))
        waiter, waiting, _ = self.session(doomed)
        waiter.waits("LOCK m")
        behind = self.client(other)
        last = behind.waits("LOCK m")
        doomed.kill()
        heir, next_one = self.client(other), self.client(other)
        heir.ok(f"HELLO keep=30s resume={session} gen=2")
        heir.ok(f"CLAIM m fence={fence}", fence=fence, count=1)
        heir.ok(f"CLAIM r fence={shared}")
        self.assertEqual([item.pairs.get("note") for item
                          in heir.ok("HELD").items], ["inventory", None])
        heir.err("LOCK r mode=upgradable", "CONFLICT")
        heir.err(f"CLAIM nothing fence={fence}", "LOST")
        next_one.ok(f"HELLO keep=30s resume={waiting} gen=2")
        tag = next_one.waits("LOCK m")
        heir.ok("UNLOCK m", count=0)
        self.assertGreater(next_one.wait(tag).fence, fence)
        self.assertFalse(behind.events)
        next_one.ok("UNLOCK m")
        behind.granted(last)

    def test_the_old_broker_is_late(self):
        """It was stopped, and still believes that it holds the lock."""
        old, new = self.brokers
        client, session, (fence,) = self.session(old, ("LOCK m",))
        old.process.pause()
        heir = self.client(new, f"HELLO keep=30s resume={session} gen=2")
        heir.ok(f"CLAIM m fence={fence}", fence=fence)
        client.send("1 UNLOCK m")
        old.process.resume()
        try:  # it hears from Redis, or first of all where the session is
            self.assertIn(client.wait("1").code, ("LOST", "INDOUBT"))
        except ClientError:
            self.assertEqual(client.event("BYE").words, ["resumed"])
        heir.ok("SHOW m", state="held")
        heir.ok("UNLOCK m", count=0)

    def test_half_open(self):
        broker = self.brokers[0]
        client, session, (fence,) = self.session(broker, ("LOCK m",))
        tag = client.waits("LOCK m owner=b")
        heir = self.client(broker, f"HELLO resume={session} gen=7")
        client.refused(tag, "CANCELLED")
        self.assertEqual(client.event("BYE").words, ["resumed"])
        heir.ok(f"CLAIM m fence={fence}")
        for gen in (7, 3):
            self.client(broker).err(f"HELLO resume={session} gen={gen}",
                                    "CONFLICT")
        heir.err(f"HELLO resume={session} gen=8", "CONFLICT")

    def test_given_back_elsewhere(self):
        """The broker that it comes back to knows the old hold."""
        here, there = self.brokers
        client, session, (fence,) = self.session(here, ("LOCK m mode=shared",))
        client.kill()
        heir = self.client(there, f"HELLO keep=30s resume={session} gen=2",
                           f"CLAIM m fence={fence}", "UNLOCK m")
        heir.kill()
        client = self.client(here, f"HELLO keep=30s resume={session} gen=3")
        self.assertGreater(client.ok("LOCK m", count=1).fence, fence)

    def test_permits_given_back_elsewhere(self):
        """The earlier broker takes nobody else's hold for lost."""
        here, there = self.brokers
        stays = self.client(here)
        held = stays.ok("LOCK m limit=3").fence
        client, session, (fence,) = self.session(
            here, ("LOCK m limit=3 permits=2",))
        client.kill()
        heir = self.client(there, f"HELLO keep=30s resume={session} gen=2",
                           f"CLAIM m fence={fence}", "UNLOCK m")
        self.client(here).ok("LOCK m limit=3 permits=2")
        stays.ok(f"UNLOCK m fence={held}", count=0)
        self.assertFalse(stays.events)

    def test_waits_for_another_kind_elsewhere(self):
        """The broker that it comes back to knows the old wait."""
        here, there = self.brokers
        holder = self.client(here, "LOCK m")
        client, session, _ = self.session(here)
        client.waits("LOCK m mode=shared")
        client.kill()
        heir = self.client(there, f"HELLO keep=30s resume={session} gen=2")
        tag = heir.waits("LOCK m mode=shared")
        heir.ok(f"CANCEL {tag}")
        heir.refused(tag, "CANCELLED")
        heir.waits("LOCK m")
        heir.kill()
        client = self.client(here, f"HELLO keep=30s resume={session} gen=3")
        tag = client.waits("LOCK m")
        client.ok("SHOW m", waiters=1)
        holder.ok("UNLOCK m")
        client.granted(tag)

    def test_nobody_comes(self):
        broker = self.brokers[0]
        client = self.client(broker, "HELLO keep=200ms", "LOCK m")
        other = self.client(broker)
        tag = other.waits("LOCK m")
        client.kill()
        other.granted(tag)

    def test_quit_keeps_nothing(self):
        broker = self.brokers[0]
        client, _, _ = self.session(broker, ("LOCK m",))
        other = self.connect()
        tag = other.waits("LOCK m")
        client.ok("QUIT")
        other.granted(tag)

    def test_a_rolling_restart(self):
        """Each broker in turn: the fence and the place stay."""
        client, session, (fence,) = self.session(self.brokers[0], ("LOCK m",))
        other, waiting, _ = self.session(self.brokers[0])
        tag = other.waits("LOCK m")
        behind = self.client(self.brokers[1])
        for turn in range(4):
            broker, target = self.brokers[turn % 2], self.brokers[1 - turn % 2]
            broker.terminate()
            client.event("DRAIN")
            other.refused(tag, "DRAINING")
            for old in (client, other):
                old.close()
            client, other = self.client(target), self.client(target)
            client.ok(f"HELLO keep=30s resume={session} gen={turn + 2}")
            client.ok(f"CLAIM m fence={fence}", fence=fence)
            other.ok(f"HELLO keep=30s resume={waiting} gen={turn + 2}")
            tag = other.waits("LOCK m")
            if turn == 0:
                last = behind.waits("LOCK m deadlock=0")
            self.assertEqual(broker.wait_exit(), 0)
            self.brokers[turn % 2] = self.broker(
                self.server, {"lease.default": self.lease})
            if turn == 0:
                self.assertFalse(behind.events)
                behind.ok(f"CANCEL {last}")
                behind.refused(last, "CANCELLED")
        client.ok("UNLOCK m", count=0)
        self.assertGreater(other.wait(tag).fence, fence)


class DeadlockTest(KindsCase):
    def test_a_circle(self):
        for size in (2, 3, 5, 8, 32):
            clients = [self.connect() for _ in range(size)]
            for number, client in enumerate(clients):
                client.ok(f"LOCK c{size}/{number}")
            tags = [client.waits(f"LOCK c{size}/{(number + 1) % size}")
                    for number, client in enumerate(clients[:-1])]
            reply = clients[-1].err(f"LOCK c{size}/0", "DEADLOCK")
            self.assertEqual(sorted(reply["cycle"].split(",")),
                             sorted(f"c{size}/{number}"
                                    for number in range(size)))
            clients[-1].ok(f"UNLOCK c{size}/{size - 1}")
            for client, tag in reversed(list(zip(clients, tags))):
                client.granted(tag)
                client.ok("QUIT")

    def test_a_larger_circle_stands(self):
        clients = [self.connect() for _ in range(33)]
        for number, client in enumerate(clients):
            client.ok(f"LOCK l/{number}")
        for number, client in enumerate(clients[:-1]):
            client.waits(f"LOCK l/{number + 1}")
        clients[-1].err("LOCK l/0 wait=500ms", "TIMEOUT")

    def test_beside_a_crowd(self):
        """Many owners that wait for several locks hide no circle."""
        holder, crowd = self.connect(), self.connect()
        one, two = self.connect(), self.connect()
        names = [f"crowd/{number}" for number in range(8)]
        for name in names:
            holder.ok(f"LOCK {name}")
        tags = [crowd.submit(f"LOCK {name} owner=o{number} progress=1" +
                             (" mode=shared" if number % 2 else ""))
                for number in range(100) for name in names]
        for tag in tags:
            crowd.queued(tag)
        one.ok("LOCK beside/a")
        two.ok("LOCK beside/b")
        one.waits("LOCK beside/b")
        two.err("LOCK beside/a", "DEADLOCK")

    def test_readers_and_writers(self):
        one, two, writer = (self.connect() for _ in range(3))
        one.ok("LOCK d/s mode=shared")
        two.ok("LOCK d/x")
        writer.waits("LOCK d/s")
        tag = two.waits("LOCK d/s mode=shared")
        one.err("LOCK d/x", "DEADLOCK")
        one.ok("UNLOCK d/s")
        self.assertFalse(two.events)
        writer.kill()
        two.granted(tag)

    def test_off(self):
        one, two = self.connect("LOCK d/a"), self.connect("LOCK d/b")
        tag = one.waits("LOCK d/b deadlock=0")
        two.err("LOCK d/a wait=1s", "TIMEOUT")
        two.ok("UNLOCK d/b")
        one.granted(tag)

    def test_no_alarm(self):
        """Much waiting, and no circle."""
        def work(client, number):
            for turn in range(40):
                first, second = sorted((number % 3, (number + turn) % 4))
                client.ok(f"LOCK f/{first}", 30)
                if second != first:
                    client.ok(f"LOCK f/{second}", 30)
                    client.ok(f"UNLOCK f/{second}")
                client.ok(f"UNLOCK f/{first}")

        self.side_by_side(work, *((self.connect(), number)
                                  for number in range(6)))


class OrderTest(KindsCase):
    def test_break(self):
        holder, other, operator = (self.connect() for _ in range(3))
        fence = holder.ok("LOCK o").fence
        tag = other.waits("LOCK o")
        operator.ok(f"BREAK o fence={fence + 1}", holders=0)
        operator.ok(f"BREAK o fence={fence}", holders=1)
        holder.event("LOST", fence=fence, reason="broken")
        self.assertGreater(other.wait(tag).fence, fence)
        holder.err("UNLOCK o", "NOTHELD")
        operator.ok("BREAK nothing", holders=0)

    def test_break_where_the_broker_hangs(self):
        """Its renewal is refused when it goes on."""
        holder = self.client(self.brokers[0])
        operator = self.client(self.brokers[1])
        fence = holder.ok("LOCK o").fence
        self.brokers[0].process.pause()
        self.server.command("CLIENT", "KILL", "TYPE", "pubsub")
        operator.ok("BREAK o", holders=1)
        self.assertEqual(operator.ok("SHOW o").items[0]["broken"], "1")
        self.brokers[0].process.resume()
        holder.event("LOST", fence=fence, reason="broken", timeout=20)

    def test_kill(self):
        victim, other, operator = (self.client(self.brokers[0])
                                   for _ in range(3))
        victim.ok("HELLO name=victim keep=1h")
        victim.ok("LOCK o")
        tag = other.waits("LOCK o")
        short = [item["session"] for item in operator.ok("SESSIONS").items
                 if item.get("name") == "victim"][0]
        operator.ok(f"KILL {short}")
        self.assertEqual(victim.event("BYE").words, ["killed"])
        other.granted(tag)
        operator.err(f"KILL {short}", "NOTHELD")
        operator.err(f"KILL {'0' * 32}", "NOTHELD")

    def test_drain(self):
        client, operator = (self.client(self.brokers[0]) for _ in range(2))
        client.ok("LOCK o")
        operator.ok("DRAIN")
        client.event("DRAIN")
        client.err("LOCK p", "DRAINING")
        client.ok("UNLOCK o")
        self.assertEqual(client.event("BYE").words, ["drain"])
        self.assertEqual(self.brokers[0].wait_exit(), 0)

    def test_a_signal_after_drain(self):
        """It is the first one: what is left of the grace stays."""
        client, operator = (self.client(self.brokers[0]) for _ in range(2))
        client.ok("LOCK o")
        operator.ok("DRAIN")
        client.event("DRAIN")
        self.brokers[0].terminate()
        self.brokers[0].wait_log("event=stopping")
        client.no_event("BYE", 0.3)
        client.ok("UNLOCK o")
        self.assertEqual(client.event("BYE").words, ["drain"])
        self.assertEqual(self.brokers[0].wait_exit(), 0)

    def test_after_the_grace(self):
        """The session stands for a lease, also without HELLO keep=."""
        broker = self.broker(self.server, {"lease.default": self.lease,
                                           "session.stop_grace": "200ms"})
        client = self.client(broker)
        fence = client.ok("LOCK o").fence
        broker.terminate()
        client.event("DRAIN", grace_ms=200)
        self.assertEqual(client.event("BYE").line, "* BYE drain keep=1")
        self.assertEqual(broker.wait_exit(), 0)
        again = self.client(self.brokers[1])
        again.ok(f"HELLO keep=9s resume={client.hello['session']} gen=2")
        again.ok(f"CLAIM o fence={fence}")

    def test_a_second_signal(self):
        client = self.client(self.brokers[0], "LOCK o")
        self.brokers[0].terminate()
        client.event("DRAIN")
        self.brokers[0].terminate()
        client.at_end(timeout=2)
        self.assertEqual(self.brokers[0].wait_exit(), 0)

    def test_who_is_in_the_way(self):
        holder = self.connect("HELLO name=shop-7", "LOCK o note=inventory")
        other = self.connect()
        reply = other.err("LOCK o wait=0", "BUSY")
        self.assertEqual((reply["holder"], reply["note"], reply["position"]),
                         ("shop-7", "inventory", "1"))
        self.assertTrue(reply["age_ms"].isdigit())
        tag = other.submit("LOCK o progress=1")
        self.assertEqual(other.queued(tag)["holder"], "shop-7")
        holder.ok("UNLOCK o")
        other.wait(tag)
        third = self.connect()
        # By now one hold has been seen from begin to end.
        tag = third.submit("LOCK o progress=1")
        self.assertTrue(third.queued(tag)["estimate_ms"].isdigit())


