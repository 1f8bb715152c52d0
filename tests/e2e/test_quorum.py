"""Topology quorum: independent masters, a majority of which grants."""

import time

from harness import HEAD_AT, HarnessCase

QUICK = {"lease.default": "3s", "redis.command_timeout": "500ms",
         "redis.connect_timeout": "500ms"}


class QuorumTest(HarnessCase):
    COUNT = 3

    def setUp(self):
        self.nodes = [self.redis() for _ in range(self.COUNT)]

    def start_any(self, **overrides):
        return self.broker([node.address for node in self.nodes],
                           {**QUICK, "redis.topology": "quorum", **overrides})

    def start(self, **overrides):
        return self.start_any(**overrides).wait_redis()

    def living(self, name):
        """How many tickets the record has at each node."""
        raw = [node.command("GETRANGE", f"holdfast:{{{name}}}",
                            HEAD_AT["LIVE"], HEAD_AT["LIVE"] + 3)
               for node in self.nodes]
        return [int.from_bytes(bytes(words), "little") for words in raw]

    def test_lock(self):
        client = self.client(self.start())
        fence = client.ok("LOCK a note=n", count=1).fence
        self.wait_until(lambda: self.living("a") == [1] * self.COUNT)
        self.assertEqual(client.ok("LOCK a").fence, fence)
        client.ok("UNLOCK a", count=1)
        client.ok("UNLOCK a", count=0)
        self.wait_until(lambda: self.living("a") == [0] * self.COUNT)
        self.assertGreater(client.ok("LOCK a").fence, fence)

    def test_shared(self):
        one, two = self.start(), self.start()
        readers = [self.client(broker) for broker in (one, two)]
        for reader in readers:
            reader.ok("LOCK a mode=shared wait=5s")
        writer = self.client(one)
        tag = writer.waits("LOCK a")
        for reader in readers:
            reader.ok("UNLOCK a")
        writer.granted(tag)
        readers[1].err("LOCK a mode=shared wait=0", "BUSY")

    def test_await_and_wanted(self):
        """A majority shows that nobody holds it; one node may be silent."""
        one, two = self.start(), self.start()
        holder, waiter = self.client(one), self.client(two)
        holder.ok("LOCK a wait=5s note=v7 wanted=1")
        self.client(two).waits("LOCK a")
        self.assertEqual(holder.event("WANTED")["waiters"], "1")
        self.client(one).waits("LOCK a")
        self.assertEqual(holder.event("WANTED")["waiters"], "2")
        fence = holder.ok("LOCK b note=v7").fence
        waiter.err("AWAIT b wait=0", "BUSY")
        tag = waiter.submit("AWAIT b")
        waiter.err("AWAIT b wait=20ms", "TIMEOUT")
        self.nodes[0].pause()
        holder.ok("UNLOCK b")
        reply = waiter.wait(tag)
        self.assertEqual((reply.fence, reply["note"]), (fence, "v7"))

    def test_note_and_lease(self):
        """Each node has the other note and the end; two brokers see them."""
        one, two = self.start(), self.start()
        holder, other = self.client(one), self.client(two)
        other.ok("WATCH a")
        fence = holder.ok("LOCK a note=n wait=5s").fence
        holder.ok(f"NOTE a note=m fence={fence}", renewed=1)
        self.wait_until(lambda: other.event("HELD").get("note") == "m")
        holder.ok("RENEW a lease=1m")
        for item in (holder.ok("HELD").items[0], other.ok("SHOW a").items[0]):
            self.assertEqual(item["note"], "m")
            self.assertNotIn("renewed", item)
            self.assertLess(50000, item.number("lease_ms"))
        other.err("LOCK a wait=0", "BUSY")

    def test_detached(self):
        """A majority agrees to it, and to its end."""
        one, two = self.start(), self.start()
        client = self.client(one)
        fence = client.ok("LOCK d lease=1h detached=1 wait=5s").fence
        one.kill()
        self.nodes[0].pause()
        other = self.client(two)
        other.ok(f"RENEW d fence={fence} lease=2h detached=1")
        self.assertEqual(other.ok("SHOW d").items[0]["detached"], "1")
        other.err("LOCK d wait=0", "BUSY")
        other.err(f"UNLOCK d fence={fence + 16} detached=1", "NOTHELD")
        other.ok(f"UNLOCK d fence={fence} detached=1", count=0)
        self.assertGreater(other.ok("LOCK d wait=5s").fence, fence)
        self.nodes[0].resume()

    def test_unlock_with_delay(self):
        one, two = self.client(self.start()), self.client(self.start())
        for line in ("LOCK a", "LOCK a lease=1h detached=1"):
            reply = one.ok(line)
            tag = two.waits("LOCK a")
            more = (f" fence={reply.fence} detached=1"
                    if "detached" in line else "")
            began = time.monotonic()
            one.ok(f"UNLOCK a delay=500ms{more}", count=0)
            one.err("LOCK a wait=0", "BUSY")
            two.granted(tag, 10)
            self.assertGreater(time.monotonic() - began, 0.5)
            two.ok("UNLOCK a", count=0)

    def test_lists_that_overlap(self):
        """The second list's broker grants nothing until it has the node."""
        first = self.client(self.start(), "LOCK a")
        self.nodes = [self.nodes[2], self.redis(), self.redis()]
        second = self.start_any(**{"redis.patience": "200ms"})
        second.wait_log("event=redis_other_quorum")
        client = self.client(second)
        for name in "ab":
            reply = client.err(f"LOCK {name} wait=0", "UNAVAILABLE")
            self.assertEqual(reply["reason"], "other_quorum")
        self.assertIn("guarantees.md", second.http("/readyz")[1])
        first.ok("LOCK b")
        self.nodes[0].command("DEL", "holdfast:quorum")
        self.wait_until(lambda: second.http("/readyz")[0] == 200, 10, "ready")
        client.ok("LOCK c")

    def test_a_node_by_two_names(self):
        """It has one vote."""
        names = [f"{host}:{node.port}" for host, node in (
            ("127.0.0.1", self.nodes[0]), ("localhost", self.nodes[0]),
            ("127.0.0.1", self.nodes[1]))]
        broker = self.broker(names, {**QUICK, "redis.topology": "quorum",
                                     "redis.patience": "1s"}).wait_redis()
        broker.wait_log("another node of the quorum")
        client = self.client(broker, "LOCK a", "UNLOCK a")
        self.nodes[1].kill()
        client.err("LOCK a", "UNAVAILABLE")

    def test_no_semaphores(self):
        client = self.client(self.start())
        for request in ("LOCK a limit=2", "RESIZE a limit=2"):
            self.assertIn("quorum", str(client.err(request, "BADREQ")))
        client.ok("LOCK a")

    def test_busy(self):
        one, two = self.start(), self.start()
        holder = self.client(one, "HELLO name=first", "LOCK a")
        other = self.client(two)
        self.assertEqual(other.err("LOCK a wait=0", "BUSY")["holder"], "first")
        other.err("LOCK a wait=300ms", "TIMEOUT")
        holder.ok("UNLOCK a")
        other.ok("LOCK a wait=3s")

    def test_hand_over(self):
        """In one broker first come, first served; and to another broker."""
        one, two = self.start(), self.start()
        holder = self.client(one)
        fence = holder.ok("LOCK a").fence
        waiters = []
        for position in range(1, 5):
            waiter = self.client(one)
            tag = waiter.submit("LOCK a progress=1")
            self.assertEqual(waiter.queued(tag)["position"], str(position))
            waiters.append((waiter, tag))
        for waiter, tag in waiters:
            holder.ok("UNLOCK a")
            holder = waiter
            reply = holder.wait(tag)
            self.assertGreater(reply.fence, fence)
            fence = reply.fence
        other = self.client(two)
        tag = other.waits("LOCK a")
        holder.ok("UNLOCK a")
        self.assertGreater(other.wait(tag).fence, fence)

    def test_death(self):
        one, two = self.start(), self.start()
        holder, heir = self.client(one, "LOCK a"), self.client(two)
        tag = heir.waits("LOCK a")
        holder.kill()
        heir.granted(tag, timeout=2)

    def test_one_node_down(self):
        broker = self.start()
        client = self.client(broker)
        fence = client.ok("LOCK a").fence
        self.nodes[0].kill()
        for _ in range(3):
            client.ok("UNLOCK a", count=0)
            reply = client.ok("LOCK a wait=5s")
            self.assertGreater(reply.fence, fence)
            fence = reply.fence
        renewals = broker.metric("renewals_total")
        self.wait_until(lambda: broker.metric("renewals_total") > renewals + 2,
                        10, "it is renewed")
        self.nodes[0].start()
        self.wait_until(lambda: self.living("a") == [1] * self.COUNT, 10,
                        "the node that was away has it, too")
        self.nodes[1].kill()
        client.ok("LOCK a", count=2)
        client.no_event("LOST", 4)

    def test_one_node_is_flushed(self):
        """The hold is put there again, and nobody else can have it."""
        client = self.client(self.start(), "LOCK a")
        self.wait_until(lambda: self.living("a") == [1] * self.COUNT, 10,
                        "all have it, not only the first of them to answer")
        self.nodes[0].command("FLUSHALL")
        self.client(self.start()).err("LOCK a wait=0", "BUSY")
        self.wait_until(lambda: self.living("a") == [1] * self.COUNT, 10,
                        "it is put there again")
        self.assertEqual(list(client.events), [])

    def test_majority_down(self):
        broker = self.start()
        client, other = self.client(broker, "LOCK a"), self.client(broker)
        for node in self.nodes[:self.COUNT // 2 + 1]:
            node.pause()
            self.addCleanup(node.resume)
        other.err("LOCK b wait=1s", "UNAVAILABLE")
        client.event("JEOPARDY")
        client.event("LOST", reason="backend")
        for node in self.nodes[:self.COUNT // 2 + 1]:
            node.resume()
        other.ok("LOCK a wait=10s")

    def test_the_end_of_who_waits_to_be_settled(self):
        """Nothing may be granted yet: whose session ends need not wait."""
        broker = self.broker([node.address for node in self.nodes], {
            **QUICK, "redis.topology": "quorum", "redis.settle": "15s"})
        broker.wait_redis()
        for hello in ("HELLO", "HELLO keep=9s"):
            for bye in ("quit", "eof"):
                client = self.client(broker)
                client.ok(hello)
                tag = client.submit("LOCK a")
                client.no_reply(tag, 0.5)
                begin = time.monotonic()
                if bye == "quit":
                    client.ok("QUIT")
                else:
                    client.finish()
                client.refused(tag, "CANCELLED")
                keep = int("keep" in hello and bye == "eof")
                self.assertEqual(client.at_end()[-1].line,
                                 f"* BYE {bye} keep={keep}")
                self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual(self.living("a"), [0] * self.COUNT)

    def test_break_show_watch(self):
        one, two = self.start(), self.start()
        holder, watcher = self.client(one), self.client(two)
        holder.ok("HELLO name=first")
        watcher.ok("WATCH a")
        watcher.event("FREE")
        fence = holder.ok("LOCK a note=n").fence
        self.assertEqual(watcher.event("HELD")["note"], "n")
        shown = watcher.ok("SHOW a", state="held", holders=1)
        self.assertEqual(shown.items[0]["fence"], str(fence))
        self.assertEqual(shown.items[0]["name"], "first")
        watcher.ok("BREAK a")
        holder.event("LOST", reason="broken")
        watcher.event("FREE")
        watcher.ok("LOCK a wait=2s")

    def shown(self, client, name):
        item = client.ok(f"SHOW {name}", holders=1).items[0]
        return tuple(item.get(key) for key in ("name", "owner", "note"))

    def mended(self, name):
        """Each node loses its data, one after the other."""
        for node in self.nodes:
            self.wait_until(lambda: self.living(name) == [1] * self.COUNT, 10,
                            "all have it")
            node.command("FLUSHALL")
        self.wait_until(lambda: self.living(name) == [1] * self.COUNT, 10,
                        "it is put there again")

    def test_words(self):
        """Holders that waited, came back or moved are still known."""
        one, two = self.start(), self.start()
        first, client, watcher = (self.client(broker)
                                  for broker in (two, one, two))
        watcher.ok("WATCH a")
        first.ok("LOCK a")
        session = client.ok("HELLO name=second keep=20s")["session"]
        tag = client.waits("LOCK a owner=o note=m")
        first.ok("UNLOCK a")
        fence = client.wait(tag, 10).fence
        words = ("second", "o", "m")
        self.assertEqual(self.shown(watcher, "a"), words)
        self.assertEqual(watcher.event("HELD", fence=fence)["note"], "m")
        self.mended("a")
        self.assertEqual(self.shown(watcher, "a"), words)
        client.close()
        client = self.client(two)
        client.ok(f"HELLO name=second keep=20s resume={session} gen=2")
        client.ok(f"CLAIM a owner=o fence={fence}", fence=fence)
        self.mended("a")
        self.assertEqual(self.shown(watcher, "a"), words)

    def test_session_moves(self):
        one, two = self.start(), self.start()
        client = self.client(one)
        session = client.ok("HELLO keep=20s")["session"]
        fence = client.ok("LOCK a").fence
        one.kill()
        client = self.client(two, f"HELLO keep=20s resume={session} gen=2")
        client.ok(f"CLAIM a fence={fence}", fence=fence)
        client.ok("UNLOCK a", count=0)

    def test_a_wait_moves(self):
        """Its rest at the first broker takes the lock from nobody."""
        one, two = self.start(), self.start()
        holder, client = self.client(two, "LOCK a"), self.client(one)
        session = client.ok("HELLO keep=60s")["session"]
        client.submit("LOCK a")
        self.wait_until(lambda: self.client(one).ok("SHOW a")["waiters"] == "1",
                        10, "it waits")
        client.close()
        client = self.client(two, f"HELLO keep=60s resume={session} gen=2")
        tag = client.submit("LOCK a")
        holder.ok("UNLOCK a", count=0)
        self.assertIsNone(client.wait(tag, 10).code)
        client.ok("UNLOCK a", count=0)
        for broker in (one, two):
            other = self.client(broker, "LOCK a wait=10s")
            other.ok("UNLOCK a", count=0)

    def away(self, broker, line):
        """A session whose connection has ended while it waits."""
        client = self.client(broker)
        session = client.ok("HELLO keep=20s")["session"]
        client.queued(client.submit(f"{line} progress=1"))
        client.kill()
        return session

    def back(self, broker, session, line):
        client = self.client(broker, f"HELLO keep=20s resume={session} gen=2")
        return client, client.submit(f"{line} progress=1")

    def test_a_reader_comes_back(self):
        """To a wait that has been granted: the others go on reading."""
        one, two = self.start(), self.start()
        writer, reader = self.client(two, "LOCK a"), self.client(one)
        first = reader.waits("LOCK a mode=shared")
        session = self.away(one, "LOCK a mode=shared")
        writer.ok("UNLOCK a")
        reader.granted(first, 10)
        second, tag = self.back(one, session, "LOCK a mode=shared")
        second.granted(tag, 10)
        second.ok("UNLOCK a", count=0)
        reader.ok("UNLOCK a", count=0)
        self.assertEqual(list(reader.events), [])
        writer.ok("LOCK a wait=1s")

    def test_a_place_is_kept(self):
        """At the same broker; and where limits.waiters is met meanwhile."""
        broker = self.start(**{"limits.waiters": 2})
        holder, other, third = (self.client(broker) for _ in range(3))
        holder.ok("LOCK a")
        for line in ("LOCK a", "LOCK a delay=1s"):
            session = self.away(broker, line)
            behind = other.waits("LOCK a")
            self.wait_until(lambda: holder.ok("SHOW a")["waiters"] == "1", 10,
                            "who is away is passed by")
            extra = third.waits("LOCK a wait=30s")
            client, tag = self.back(broker, session, line)
            self.assertEqual(client.queued(tag)["position"], "1")
            holder.ok("UNLOCK a", count=0)
            client.granted(tag, 10)
            client.ok("UNLOCK a", count=0)
            other.granted(behind, 10)
            other.ok("UNLOCK a", count=0)
            third.granted(extra, 10)
            third.ok("UNLOCK a", count=0)
            holder.ok("LOCK a wait=5s")

    def test_what_became_shared_is_put_again(self):
        one, two = self.start(), self.start()
        client, other = self.client(one, "LOCK a"), self.client(two)
        client.ok("LOCK a mode=shared", count=2)
        client.ok("UNLOCK a", count=1)
        other.ok("LOCK a mode=shared wait=5s")
        for node in self.nodes:
            self.wait_until(lambda: self.living("a") == [2] * self.COUNT, 10,
                            "all have both")
            node.command("FLUSHALL")
        self.wait_until(lambda: self.living("a") == [2] * self.COUNT, 10,
                        "they are put there again")
        self.assertEqual(list(client.events) + list(other.events), [])

    def test_break_without_a_majority(self):
        """It may have taken effect."""
        broker = self.start()
        holder, other = self.client(broker, "LOCK a"), self.client(broker)
        for node in self.nodes[:self.COUNT // 2 + 1]:
            node.pause()
            self.addCleanup(node.resume)
        other.err("BREAK a", "INDOUBT")
        for node in self.nodes[:self.COUNT // 2 + 1]:
            node.resume()
        holder.event("LOST", reason="broken")

    def test_fences_grow(self):
        """With nodes that take turns at being down."""
        brokers = [self.start(), self.start()]
        clients = [self.client(broker) for broker in brokers]
        last = 0
        for turn in range(30):
            if turn % 5 == 4:
                node = self.nodes[turn // 5 % self.COUNT]
                node.restart(kill=True)
            client = clients[turn % 2]
            fence = client.ok("LOCK a wait=10s").fence
            self.assertGreater(fence, last)
            last = fence
            client.ok("UNLOCK a")

    def test_contest(self):
        """Many at once: never two, and all are served."""
        brokers = [self.start(), self.start(), self.start()]
        inside, most, fences = [], [], []

        def work(client):
            for _ in range(10):
                fence = client.ok("LOCK a wait=30s", timeout=40).fence
                inside.append(fence)
                most.append(len(inside))
                fences.append(fence)
                inside.remove(fence)
                client.ok("UNLOCK a", count=0)

        self.side_by_side(work, *((self.client(brokers[i % 3], timeout=40),)
                                  for i in range(9)))
        self.assertEqual(max(most), 1)
        self.assertEqual(len(fences), 90)
        self.assertEqual(fences, sorted(set(fences)))


class QuorumOfFiveTest(QuorumTest):
    COUNT = 5
