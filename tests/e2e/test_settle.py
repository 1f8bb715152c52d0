"""Brokers that are not settled with a Redis grant nothing that may be held."""

import time

from harness import HarnessCase

LEASE = {"lease.default": "3s", "redis.settle": "3s",
         "redis.command_timeout": "500ms", "redis.connect_timeout": "500ms"}
LONG = {"lease.default": "10s", "redis.settle": "10s"}


class SettleCase(HarnessCase):
    def begin(self, brokers=1, **options):
        """A Redis that saves nothing, and brokers that are settled with it."""
        self.redis_one = self.redis()
        self.brokers = [self.broker(self.redis_one, LEASE | options)
                        for _ in range(brokers)]
        for broker in self.brokers:
            broker.wait_log("event=redis_settled")
        return self.client(self.brokers[0])

    def marked(self):
        self.wait_until(lambda: self.redis_one.command(
            "EXISTS", "holdfast:settled"), 10, "the marker is written")

    def grace(self, client, line):
        """It is refused, and says for how long."""
        reply = client.err(line, "UNAVAILABLE")
        self.assertEqual(reply["retry"], "1")
        self.assertTrue(0 < reply.number("after_ms") <= 3000, reply.line)
        return reply


class StartTest(SettleCase):
    def test_the_first_start(self):
        redis = self.redis()
        broker = self.broker(redis, LEASE)
        client, waiter = self.client(broker), self.client(broker)
        self.grace(client, "LOCK a wait=0")
        self.grace(client, "LOCK a wait=50ms")
        self.grace(client, "LOCK a b wait=50ms")
        begin = time.monotonic()
        tag = waiter.submit("LOCK a progress=1")
        self.assertEqual(waiter.queued(tag)["position"], "1")
        waiter.granted(tag)
        self.assertLess(time.monotonic() - begin, 5)
        client.err("LOCK a wait=0", "BUSY")
        client.ok("LOCK b wait=0")

    def test_without_a_wait(self):
        """redis.settle: 0s, for a first start; the next one need not wait."""
        self.redis_one = self.redis()
        first = self.broker(self.redis_one, {**LEASE, "redis.settle": "0s"})
        self.client(first).ok("LOCK a wait=0")
        self.marked()
        first.stop()
        second = self.broker(self.redis_one, LEASE)
        second.wait_log("why=marker")
        self.client(second).ok("LOCK b wait=0")

    def test_another_broker(self):
        self.begin()
        self.marked()
        other = self.broker(self.redis_one, LEASE)
        other.wait_log("why=marker")
        self.client(other).ok("LOCK a wait=0")


class LossTest(SettleCase):
    def lose(self):
        """Redis comes back and knows nothing; all brokers have met it."""
        before = [broker.log().count("event=redis_unsettled")
                  for broker in self.brokers]
        self.redis_one.restart(kill=True)
        for broker, count in zip(self.brokers, before):
            self.wait_until(
                lambda: broker.log().count("event=redis_unsettled") > count and
                broker.asks(), 10, "the broker is back")

    def repeated(self, count):
        clients = [self.client(broker) for broker in self.brokers]
        self.wait_until(
            lambda: sum(int(item["value"]) for client in clients
                        for item in client.ok("STATS").items
                        if item["name"] == "releases_repeated") == count,
            10, "the releases are repeated")

    def test_who_holds_it_keeps_it(self):
        holder = self.begin(2)
        here, there = (self.client(broker) for broker in self.brokers)
        fence = holder.ok("LOCK a note=me").fence
        reader = self.client(self.brokers[1])
        shared = reader.ok("LOCK r mode=shared").fence
        first = here.waits("LOCK a")
        second = there.waits("LOCK a")
        other = self.client(self.brokers[1])
        awaits = other.submit("AWAIT r")
        self.lose()
        self.grace(other, "LOCK new wait=0")
        self.grace(other, "AWAIT new wait=0")
        self.wait_until(
            lambda: self.redis_one.command("EXISTS", "holdfast:{a}"), 10,
            "it was put again")
        self.assertEqual(holder.ok("LOCK a").fence, fence)
        (item,) = holder.ok("HELD").items
        self.assertEqual(item["note"], "me")
        holder.ok("UNLOCK a", count=1)
        self.assertGreater(other.ok("LOCK new").fence, fence)
        holder.ok("UNLOCK a", count=0)
        granted = here.wait(first)
        self.assertGreater(granted.fence, fence)
        here.ok("UNLOCK a")
        self.assertGreater(there.wait(second).fence, granted.fence)
        other.no_reply(awaits, 0)
        reader.ok("UNLOCK r")
        self.assertGreaterEqual(other.wait(awaits).fence, shared)
        self.assertGreater(other.ok("LOCK r").fence, shared)
        self.assertEqual([list(client.events) for client in
                          (holder, here, there, reader)], [[]] * 4)

    def test_who_is_dead_is_waited_for_no_longer(self):
        self.begin(2)
        doomed = self.client(self.brokers[1], "LOCK a")
        self.brokers[1].kill()
        self.brokers.pop()
        self.lose()
        client = self.client(self.brokers[0])
        begin = time.monotonic()
        client.ok("LOCK a")
        self.assertLess(time.monotonic() - begin, 6)

    def test_an_unlock_in_between(self):
        """Nobody can have been granted it since."""
        client = self.begin()
        client.ok("LOCK a")
        self.lose()
        client.ok("UNLOCK a", count=0)
        client.ok("LOCK a")

    def test_releases_that_were_lost(self):
        """Released holds come back: they go before the grace is over."""
        client, dropped = self.begin(2), self.client(self.brokers[1])
        names = [f"r/{number}" for number in range(200)]
        for number, name in enumerate(names):
            (dropped if number % 2 else client).ok(f"LOCK {name}")
        kept = client.ok("LOCK kept").fence
        self.redis_one.command("SAVE")
        for name in names[::2]:
            client.ok(f"UNLOCK {name}", count=0)
        dropped.close()
        free = self.client(self.brokers[1])
        for name in names:
            free.ok(f"LOCK {name}")
            free.ok(f"UNLOCK {name}", count=0)
        self.lose()
        self.repeated(len(names))
        for name in names:
            self.assertEqual(free.ok(f"SHOW {name}").items, [])
        self.grace(free, f"LOCK {names[0]} wait=0")
        self.assertEqual(client.ok("LOCK kept").fence, kept)
        for name in names:
            free.ok(f"LOCK {name}")

    def test_of_sessions_that_had_moved(self):
        """Redis has their holds as those of their earlier connections."""
        self.begin(2)
        movers = []
        for number in range(2):
            mover = self.client(self.brokers[0])
            session = mover.ok("HELLO keep=60s")["session"]
            movers.append((mover, session, mover.ok(f"LOCK m/{number}").fence))
        self.redis_one.command("SAVE")
        for number, (mover, session, fence) in enumerate(movers):
            mover.kill()
            mover = self.client(self.brokers[number])
            mover.ok(f"HELLO resume={session} gen=2 keep=60s")
            mover.ok(f"CLAIM m/{number} fence={fence}")
            mover.ok(f"UNLOCK m/{number}", count=0)
        self.lose()
        self.repeated(2)
        client = self.client(self.brokers[0])
        for number in range(2):
            self.assertEqual(client.ok(f"SHOW m/{number}").items, [])

    def test_a_wait_that_was_called_off(self):
        """Redis has it in the queue again; else it would be granted it."""
        holder = self.begin(2)
        holder.ok("LOCK a")
        waiter = self.client(self.brokers[1])
        tag = waiter.waits("LOCK a")
        self.redis_one.command("SAVE")
        waiter.ok(f"CANCEL {tag}")
        waiter.refused(tag, "CANCELLED")
        self.wait_until(lambda: holder.ok("SHOW a")["waiters"] == "0", 10,
                        "Redis has heard of it")
        # So has its broker of that; else it asks again and repeats nothing.
        self.wait_until(lambda: self.brokers[1].metric("operations_pending") ==
                        0, 10, "Redis has answered")
        self.lose()
        self.repeated(1)
        self.assertEqual(holder.ok("SHOW a", state="held")["waiters"], "0")

    def test_a_claim_of_what_was_given_back(self):
        """Redis shows a released hold, and not the next one: the next one
        stays, and the claim at another broker is refused."""
        self.begin(3)
        late = self.client(self.brokers[0])
        session = late.ok("HELLO keep=200ms")["session"]
        fence = late.ok("LOCK a").fence
        self.redis_one.command("SAVE")
        late.kill()
        holder = self.client(self.brokers[2])
        later = holder.ok("LOCK a wait=10s").fence
        self.brokers.pop(0).kill()
        self.lose()
        late = self.client(self.brokers[0], f"HELLO resume={session} gen=2")

        def is_lost():
            reply = late.request(f"CLAIM a fence={fence}")
            self.assertIn(reply.code, ("UNAVAILABLE", "LOST"), reply)
            return reply.code == "LOST"
        self.wait_until(is_lost, 20, "the claim is refused")
        self.assertEqual(holder.ok("LOCK a").fence, later)
        self.assertEqual(list(holder.events), [])

    def test_a_claim_of_a_hold_with_a_lease(self):
        """Nobody renews it; its broker shows it all the same."""
        self.begin(2, **LONG)
        client = self.client(self.brokers[0])
        session = client.ok("HELLO keep=60s")["session"]
        fence = client.ok("LOCK a lease=10s").fence
        self.redis_one.command("SAVE")
        self.lose()
        client.kill()
        client = self.client(self.brokers[1])
        client.ok(f"HELLO resume={session} gen=2 keep=60s")
        self.wait_until(
            lambda: client.request(f"CLAIM a fence={fence}").code is None, 8,
            "it can be claimed")

    def test_a_hold_that_moved_and_was_given_back(self):
        """Redis has it as it was before it moved. Its first broker says
        nothing for it, and its second one gives it back again, late; whoever
        has been granted it since, and is not renewed, keeps it."""
        self.begin(4, **LONG)
        first, second, third, fourth = self.brokers
        mover = self.client(first)
        session = mover.ok("HELLO keep=60s")["session"]
        fence = mover.ok("LOCK a").fence
        self.redis_one.command("SAVE")
        mover.kill()
        mover = self.client(second, f"HELLO resume={session} gen=2 keep=60s",
                            f"CLAIM a fence={fence}")
        mover.ok("UNLOCK a", count=0)
        holder = self.client(third)
        later = holder.ok("LOCK a lease=10s").fence
        second.pause()
        self.brokers.remove(second)
        self.lose()
        self.wait_until(
            lambda: holder.ok("SHOW a").items and
            holder.ok("SHOW a").items[0]["fence"] == str(later), 8,
            "it has been put again")
        second.resume()
        self.brokers.append(second)
        self.assertIn(self.client(fourth).request("LOCK a wait=500ms").code,
                      ("UNAVAILABLE", "TIMEOUT"))
        holder.ok("UNLOCK a", count=0)
        self.assertEqual(list(holder.events), [])

    def test_while_redis_takes_no_writes(self):
        """An untaken grant is given back again."""
        client = self.begin()
        client.ok("LOCK a")
        self.redis_one.command("SAVE")
        client.ok("UNLOCK a", count=0)
        self.redis_one.config["min-replicas-to-write"] = "1"
        self.lose()
        self.wait_until(
            lambda: "redis_refuses_for_now" in self.brokers[0].log(), 10,
            "it refuses")
        self.assertEqual(client.request("LOCK b wait=1200ms").code,
                         "UNAVAILABLE")
        self.redis_one.command("CONFIG", "SET", "min-replicas-to-write", "0")
        self.repeated(1)
        self.assertEqual(client.ok("SHOW a").items, [])


class BenignTest(SettleCase):
    """Changes of the replication id without a loss."""

    def test_a_backup_and_a_replica(self):
        client = self.begin()
        fence = client.ok("LOCK a").fence
        changes = (
            lambda: self.redis_one.command("DEBUG", "CHANGE-REPL-ID"),
            lambda: self.redis(replicaof=f"127.0.0.1 {self.redis_one.port}"))
        for change in changes:
            before = self.redis_one.info("replication")["master_replid"]
            change()
            self.wait_until(lambda: self.redis_one.info("replication")[
                "master_replid"] != before, 10, "the id changes")
            again = client.ok("LOCK b wait=0").fence
            client.ok("UNLOCK b")
            self.assertGreater(again, fence)
        client.ok("UNLOCK a", count=0)
        self.assertNotIn("redis_unsettled",
                         self.brokers[0].log().split("redis_settled")[-1])

    def test_the_end_of_the_backlog(self):
        """A while after the last replica has gone: another id, and no other
        history."""
        client = self.begin(**{"lease.default": "1s", "redis.settle": "1s",
                               "redis.command_timeout": "300ms"})
        self.redis_one.command("CONFIG", "SET", "repl-backlog-ttl", "1")

        def told():
            return self.redis_one.info("replication")
        with self.redis(replicaof=f"127.0.0.1 {self.redis_one.port}"):
            self.wait_until(lambda: told()["connected_slaves"] == "1", 20,
                            "a replica follows")
        client.ok("LOCK a")
        before = told()
        self.assertEqual(before["repl_backlog_active"], "1")
        self.wait_until(lambda: told()["repl_backlog_active"] == "0", 20,
                        "the backlog is given up")
        self.assertNotEqual(told()["master_replid"], before["master_replid"])
        client.ok("LOCK b wait=0")
        client.ok("UNLOCK a", count=0)
        self.assertNotIn("redis_unsettled",
                         self.brokers[0].log().split("redis_settled")[-1])

    def test_a_broker_comes_back(self):
        client = self.begin()
        self.marked()
        client.ok("LOCK a")
        client.ok("UNLOCK a")
        self.brokers[0].restart()
        self.brokers[0].wait_log("why=marker")
        self.client(self.brokers[0]).ok("LOCK a wait=0")


class PromotionTest(HarnessCase):
    def test_writes_that_the_replica_lacks(self):
        """Its locks are kept and wait for one another; the other shards do
        not notice."""
        redis = self.cluster(3, 1)
        brokers = [self.broker(redis, LEASE) for _ in range(2)]
        for broker in brokers:
            self.wait_until(
                lambda b=broker: b.log().count("event=redis_settled") >= 3, 15,
                "it is settled with all masters")
        master = redis.masters[0]
        (replica,) = redis.replicas_of(master)
        names = [name for name in map("p/{}".format, range(200))
                 if redis.node_of(f"holdfast:{{{name}}}") is master]
        clients = [self.client(broker) for broker in brokers]
        replica.kill()
        fences = {name: clients[number % 2].ok(f"LOCK {name}").fence
                  for number, name in enumerate(names[1:])}
        waiter = self.client(brokers[0])
        tag = waiter.waits(f"LOCK {names[1]}")
        master.kill()
        replica.start()
        redis.failover(replica)
        self.wait_until(lambda: len(replica.command("KEYS", "holdfast:{*")) >=
                        len(fences), 10, "all of them are there again")
        other = self.client(brokers[1])
        reply = other.err(f"LOCK {names[0]} wait=0", "UNAVAILABLE")
        self.assertLessEqual(reply.number("after_ms"), 3000, reply.line)
        for number, name in enumerate(names[1:]):
            clients[number % 2].ok(f"UNLOCK {name} fence={fences[name]}",
                                   count=0)
        self.assertGreater(waiter.wait(tag).fence, fences[names[1]])
        other.ok(f"LOCK {names[0]}")
        for name in names[2:]:
            self.assertGreater(other.ok(f"LOCK {name}").fence, fences[name])
        for client in clients:
            client.no_event("LOST", 0)
