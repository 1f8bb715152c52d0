"""Redis Cluster: shards, moving slots, nodes that come, go and come back."""

import contextlib
import re
import shlex
import subprocess
import time

from contest import Contest
from harness import HarnessCase, RedisCluster, RedisServer, slot_of
from harness.redis_server import CLUSTER_DEFAULTS
from shared import TREE, read, stats

NODE = {name.replace("-", "_"): value
        for name, value in CLUSTER_DEFAULTS.items()}
NODE["cluster_node_timeout"] = "1500"
NODE["cluster_require_full_coverage"] = "no"


def key_of(name):
    return f"holdfast:{{{name}}}"


def slot_of_lock(name):
    return slot_of(key_of(name))


class ClusterCase(HarnessCase):
    """One cluster for all tests of a class; each leaves it whole."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.redis = RedisCluster(3, 0, **NODE)
        cls.addClassCleanup(cls.redis.close)
        cls.redis.start()

    def setUp(self):
        self.redis.flush()

    def brokers(self, count, **overrides):
        brokers = [self.broker(self.redis, {"lease.default": "3s",
                                            **overrides})
                   for _ in range(count)]
        for broker in brokers:
            broker.wait_log("event=redis_map ")
        return brokers

    def names_at(self, node, count, prefix="at"):
        """Names of locks that a node serves."""
        found, number = [], 0
        while len(found) < count:
            name = f"{prefix}/{number}"
            if self.redis.node_of(key_of(name)) is node:
                found.append(name)
            number += 1
        return found

    def other_node(self, node):
        return next(each for each in self.redis.masters if each is not node)


class ShardTest(ClusterCase):
    def test_all_shards(self):
        one, two = self.brokers(2)
        client, other = self.client(one), self.client(two)
        names = [f"shard/{number}" for number in range(300)]
        client.send("\n".join(f"{n} LOCK {name}"
                              for n, name in enumerate(names)))
        for number in range(300):
            client.granted(f"{number}")
        sizes = [len(node.command("KEYS", "holdfast:{*"))
                 for node in self.redis.masters]
        self.assertEqual(sum(sizes), 300)
        self.assertGreater(min(sizes), 50)
        for name in names[::30]:
            self.assertEqual(other.ok(f"SHOW {name}")["state"], "held")
            other.err(f"LOCK {name} wait=0", "BUSY")
        tags = [other.submit(f"LOCK {name} progress=1") for name in names]
        for tag in tags:
            other.queued(tag)
        client.send("\n".join(f"{n} UNLOCK {name}"
                              for n, name in enumerate(names)))
        for tag in tags:
            other.granted(tag)
        self.assertEqual(other.ok("HELD").number("n"), 300)

    def test_names_with_braces(self):
        """A lock is one key, whatever its name looks like."""
        (broker,) = self.brokers(1)
        client = self.client(broker)
        names = ["{", "}", "{}", "}{", "{a}b", "a}b{c}", "}}}", "{{{", "a{b"]
        for name in names:
            client.ok(f"LOCK {name}", count=1)
        for name in names:
            self.assertEqual(client.ok(f"SHOW {name}")["state"], "held")
            client.ok(f"UNLOCK {name}", count=0)

    def test_commands_of_the_guarantees(self):
        """A user can type them after `make run`, with the port of any node."""
        typed = re.findall(r"^\$ (redis-cli .*)\n(.*)$",
                           read("packaging/doc/guarantees.md"), re.M)
        self.assertEqual(len(typed), 2)
        for address in self.redis.addresses:
            self.redis.flush()
            for line, told in typed:
                words = shlex.split(line.replace(
                    "-p 7000", f"-p {address.rpartition(':')[2]}"))
                done = subprocess.run(words, cwd=TREE, check=True, text=True,
                                      timeout=20, stdout=subprocess.PIPE)
                self.assertEqual(done.stdout.strip(), told.split()[-1], line)

    def test_contest(self):
        brokers = self.brokers(3)
        contest = self.closing(Contest(brokers, players=18, seed=41, names=[
            f"shard/contest-{number}" for number in range(6)]))
        contest.play(grants=800)
        contest.finish()
        self.assertEqual(contest.lost, 0)


    def test_names_that_are_not_known_yet(self):
        """A cluster on its way to names says `?` for a node without one."""
        for kind in ("hostname", "unknown-endpoint", "ip"):
            for node in self.redis.masters:
                node.command("CONFIG", "SET",
                             "cluster-preferred-endpoint-type", kind)
            broker = self.brokers(1)[0]
            client = self.client(broker)
            for node in self.redis.masters:
                name, = self.names_at(node, 1, f"names/{kind}")
                client.ok(f"LOCK {name} wait=5s")
            self.assertNotIn("slots=", broker.log().split("slots=16384", 1)[0])


class MigrationTest(ClusterCase):
    def test_under_load(self):
        """Two locks of a slot go there and back while all work on them."""
        brokers = self.brokers(2)
        first = "move/0"
        slot = slot_of_lock(first)
        number = 1
        while slot_of_lock(f"move/{number}") != slot:
            number += 1
        names = [first, f"move/{number}", "move/elsewhere"]
        source = self.redis.node_of_slot(slot)
        target = self.other_node(source)
        contest = self.closing(Contest(brokers, players=14, seed=42,
                                       names=names, cuts=0.01))
        faults, moving = [], []

        def begin(where):
            moving.append(self.redis.begin_migration(slot, where))

        for turn in range(4):
            at = 0.3 + 0.9 * turn
            where = source if turn % 2 else target
            faults += [
                (at, lambda where=where: begin(where)),
                (at + 0.25, lambda: self.redis.migrate_keys(moving[-1], 1)),
                (at + 0.4, lambda: self.redis.migrate_keys(moving[-1])),
                (at + 0.6, lambda: self.redis.end_migration(moving[-1]))]
        before = sum(stats(self.client(broker))["redis_moved"]
                     for broker in brokers)
        contest.play(seconds=4.2, faults=faults)
        contest.play(grants=100)
        contest.finish()
        self.assertEqual(contest.lost, 0)
        self.assertNotIn("UNAVAILABLE", contest.refused)
        self.assertNotIn("INDOUBT", contest.refused)
        for name in names:
            self.assertGreater(contest.grants_of[name], 20)
        counts = [stats(self.client(broker)) for broker in brokers]
        self.assertGreater(sum(c["redis_moved"] for c in counts), before)
        self.assertGreater(sum(c["redis_ask"] for c in counts), 0)
        # One refresh at a time, however many answers said MOVED.
        self.assertLess(max(c["redis_map_refreshes"] for c in counts), 60)

    def test_holders_and_waiters_move(self):
        """They stand while the slot goes; nobody loses a place."""
        one, two = self.brokers(2)
        name = "move/stand"
        slot = slot_of_lock(name)
        source = self.redis.node_of_slot(slot)
        target = self.other_node(source)
        holder = self.client(one)
        fence = holder.ok(f"LOCK {name}").fence
        line = []
        for number in range(6):
            client = self.client((one, two)[number % 2])
            tag = client.waits(f"LOCK {name}")
            line.append((client, tag))
        self.redis.migrate_slot(slot, target)
        self.addCleanup(self.redis.migrate_slot, slot, source)
        renewals = stats(holder)["renewals"]
        self.wait_until(lambda: stats(holder)["renewals"] > renewals, 10,
                        "it is renewed at the new node")
        for client, tag in line:
            holder.ok(f"UNLOCK {name}", count=0)
            reply = client.wait(tag)
            self.assertGreater(reply.fence, fence)
            holder, fence = client, reply.fence
        holder.ok(f"UNLOCK {name}", count=0)

    def test_a_node_is_added(self):
        """A node unknown at the start gets a slot, and loses it again."""
        (broker,) = self.brokers(1, **{"redis.settle": "3s"})
        client = self.client(broker)
        name = "move/new"
        slot = slot_of_lock(name)
        source = self.redis.node_of_slot(slot)
        client.ok(f"LOCK {name}")
        node = RedisServer(**NODE)
        self.addCleanup(self.forget, node)
        node.start()
        node.id = node.text("CLUSTER", "MYID")
        self.redis.nodes.append(node)
        source.command("CLUSTER", "MEET", node.host, node.port, node.bus_port)
        self.wait_until(
            lambda: all(node.id in each.text("CLUSTER", "NODES") and
                        each.id in node.text("CLUSTER", "NODES")
                        for each in self.redis.masters), 20, "it is known")
        self.wait_until(lambda: "handshake" not in
                        node.text("CLUSTER", "NODES"), 20, "it is met")
        # A new node does not write for its first two seconds.
        self.redis.wait_ok()
        self.assertEqual(self.redis.migrate_slot(slot, node), 1)
        client.ok(f"LOCK {name}", count=2)
        client.ok(f"UNLOCK {name}", count=1)
        client.ok(f"UNLOCK {name}", count=0)
        client.ok(f"LOCK {name} wait=5s", count=1)
        self.assertGreater(node.command("EXISTS", key_of(name)), 0)
        # Without a slot it becomes a replica of who has got it; nothing was
        # lost.
        doubts = f"event=redis_unsettled node={source.host}:{source.port}"
        broker.wait_log(f"event=redis_settled node={source.host}:"
                        f"{source.port}")
        before = broker.log().count(doubts)
        self.redis.migrate_slot(slot, source)
        client.ok(f"UNLOCK {name}", count=0)
        client.ok(f"LOCK {name} wait=5s", count=1)
        client.no_event("LOST", 0)
        self.wait_until(lambda: node.info("replication")["role"] == "slave",
                        10, "it is a replica")
        client.ok(f"UNLOCK {name}", count=0)
        client.ok(f"LOCK {name} wait=5s", count=1)
        self.assertEqual(broker.log().count(doubts), before)

    def forget(self, node):
        if node in self.redis.nodes:
            self.redis.nodes.remove(node)
        for each in self.redis.masters:
            with contextlib.suppress(Exception):
                each.command("CLUSTER", "FORGET", node.id)
        node.close()


class OtherClusterTest(HarnessCase):
    def test_a_seed_that_is_in_another_cluster_by_now(self):
        """Its map is not taken as long as the others have theirs."""
        redis = self.cluster(2, 0, **NODE)
        gone = self.redis(**NODE)
        broker = self.broker([*redis.addresses, gone.address],
                             {"redis.topology": "cluster"}, can_ask=False)
        broker.wait_redis()
        gone.command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        client = self.client(broker)
        for number in range(8):  # each has the map asked for
            redis.masters[0].command("CLIENT", "KILL", "TYPE", "normal",
                                     "SKIPME", "yes")
            client.ok(f"LOCK other/{number} wait=9s")
            time.sleep(0.3)
        self.assertEqual(gone.command("DBSIZE"), 0)


class NodeDeathTest(ClusterCase):
    QUICK = {"redis.patience": "500ms", "redis.command_timeout": "300ms",
             "redis.connect_timeout": "300ms"}

    def revive(self, node):
        if not node.running:
            node.start()
        self.redis.wait_ok()

    def test_its_slots_are_away_and_the_others_work(self):
        (broker,) = self.brokers(1, **self.QUICK)
        client = self.client(broker)
        dead = self.redis.masters[1]
        here = self.names_at(self.redis.masters[0], 20, "alive")
        there = self.names_at(dead, 5, "dead")
        fence = client.ok(f"LOCK {there[0]}").fence
        client.ok(f"LOCK {here[0]}")
        dead.kill()
        self.addCleanup(self.revive, dead)
        client.err(f"LOCK {there[1]} wait=0", "UNAVAILABLE")
        client.err(f"LOCK {there[1]}", "UNAVAILABLE")
        for name in here[1:]:
            client.ok(f"LOCK {name} wait=5s", count=1)
            client.ok(f"UNLOCK {name}", count=0)
        client.event("LOST", reason="backend", fence=fence)
        for name in here[1:]:
            client.ok(f"LOCK {name} wait=5s", count=1)
        client.ok(f"UNLOCK {here[0]}", count=0)
        self.revive(dead)
        self.wait_until(lambda: client.request(f"LOCK {there[1]}").ok, 15,
                        "its slots are served again")
        self.assertGreater(client.ok(f"LOCK {there[0]} wait=5s").fence, fence)

    def test_the_channel_of_hints_moves(self):
        one, two = self.brokers(2, **self.QUICK)
        dead = self.hints_of(two)[-1]
        holder, waiter = self.client(one), self.client(two)
        name = self.names_at(self.other_node(dead), 1, "hint")[0]
        holder.ok(f"LOCK {name}")
        tag = waiter.waits(f"LOCK {name}")
        dead.kill()
        self.addCleanup(self.revive, dead)
        self.wait_until(lambda: self.hints_of(two)[-1] is not dead, 10,
                        "it has subscribed at another node")
        holder.ok(f"UNLOCK {name}", count=0)
        waiter.granted(tag)
        self.assertGreaterEqual(stats(waiter)["hints"], 1)

    def hints_of(self, broker):
        """The nodes at which a broker has listened, in order."""
        broker.wait_log("use=hints")
        ports = re.findall(r"redis_link_ready node=\S+:(\d+) use=hints",
                           broker.log())
        return [self.redis.node_with_port(int(port)) for port in ports]

    def test_one_seed_is_enough(self):
        broker = self.broker([self.redis.masters[2].address],
                             {"redis.topology": "cluster"})
        client = self.client(broker)
        for node in self.redis.masters:
            for name in self.names_at(node, 3, "seed"):
                client.ok(f"LOCK {name} wait=9s", count=1)

    def test_single_is_told_to_be_a_cluster(self):
        broker = self.broker([self.redis.masters[0].address], self.QUICK)
        self.client(broker).err("LOCK x", "UNAVAILABLE")
        broker.wait_log("reason=in_cluster")


class AddressTest(HarnessCase):
    def test_a_node_whose_address_nobody_knows(self):
        """It became another one; the map is good for the others."""
        redis = self.cluster(3, 1, **NODE)
        broker = self.broker(redis, {"redis.patience": "20s"})
        other, master = redis.masters[:2]
        (replica,) = redis.replicas_of(master)
        name = next(f"noaddr/{number}" for number in range(100)
                    if redis.node_of(key_of(f"noaddr/{number}")) is master)
        redis.replicas_of(other)[0].kill()  # nor does anybody take over there
        other.command("FLUSHALL")
        other.command("CLUSTER", "RESET", "HARD")
        self.wait_until(
            lambda: f"{other.id} :0@0" in master.text("CLUSTER", "NODES"), 20,
            "its address is forgotten")
        master.kill()
        redis.failover(replica)
        self.client(broker).ok(f"LOCK {name} wait=15s", timeout=20)


class AssignedTest(HarnessCase):
    def test_slots_of_a_dead_node(self):
        """They are assigned to another one, which has none of the locks."""
        redis = self.cluster(3, 0, **NODE)
        overrides = {"lease.default": "9s", "redis.settle": "9s",
                     "redis.patience": "30s"}
        one, two = (self.broker(redis, overrides) for _ in range(2))
        dead = redis.masters[1]
        name = next(f"dead/{number}" for number in range(100)
                    if redis.node_of(key_of(f"dead/{number}")) is dead)
        holder, other = self.client(one), self.client(two)
        fence = holder.ok(f"LOCK {name}", timeout=30).fence
        others = [node for node in redis.masters if node is not dead]
        dead.kill()
        for node in others:
            node.command("CLUSTER", "FORGET", dead.id)
        for broker in (one, two):
            broker.wait_log("event=redis_map slots=10923")
        others[0].command("CLUSTER", "ADDSLOTSRANGE", *redis.slots_of(1))
        reply = other.request(f"LOCK {name} wait=6s", timeout=20)
        self.assertIn(reply.code, ("TIMEOUT", "UNAVAILABLE"), reply.line)
        holder.no_event("LOST", 0)
        self.assertEqual(holder.ok("HELD").items[0].fence, fence)


class FailoverTest(HarnessCase):
    def begin(self):
        """Each master with a replica, and two clients."""
        redis = self.cluster(3, 1)
        broker = self.broker(redis, {
            "lease.default": "8s", "redis.command_timeout": "500ms"})
        return redis, self.client(broker), self.client(broker)

    @staticmethod
    def held(redis, name, client, waiter):
        """A holder and a waiter: the fence, the wait's tag, the nodes."""
        fence = client.ok(f"LOCK {name} wait=9s").fence
        tag = waiter.waits(f"LOCK {name}")
        master = redis.node_of(key_of(name))
        (replica,) = redis.replicas_of(master)
        return fence, tag, master, replica

    def test_ordered(self):
        """CLUSTER FAILOVER: nothing is lost, and the old master follows."""
        name = "failover/ordered"
        redis, client, waiter = self.begin()
        fence, tag, master, replica = self.held(redis, name, client, waiter)
        # The order is heard, and voted for, by who knows the replica for one.
        self.wait_until(
            lambda: all(each.command("CLUSTER", "REPLICAS", master.id)
                        for each in redis.masters), 20,
            "all masters know the replica")
        redis.failover(replica, how="")
        self.wait_until(lambda: master.info("replication")["role"] == "slave",
                        20, "the old master is a replica")
        renewals = stats(client)["renewals"]
        self.wait_until(lambda: stats(client)["renewals"] > renewals, 10,
                        "the hold is renewed at the new master")
        self.assertEqual(client.ok("HELD").items[0].fence, fence)
        self.assertEqual(
            [each["kind"] for each in client.ok(f"SHOW {name}").items],
            ["holder", "waiter"])
        client.ok(f"UNLOCK {name} fence={fence}", count=0)
        self.assertGreater(waiter.wait(tag).fence, fence)
        client.no_event("LOST", 0)

    def test_a_replica_takes_over(self):
        name = "failover/a"
        redis, client, waiter = self.begin()
        fence, tag, master, replica = self.held(redis, name, client, waiter)
        self.wait_until(
            lambda: master.info("replication")["master_repl_offset"] ==
            replica.info("replication")["master_repl_offset"], 10,
            "the replica has it all")
        master.kill()
        redis.failover(replica)
        renewals = stats(client)["renewals"]
        self.wait_until(lambda: stats(client)["renewals"] > renewals, 10,
                        "the hold is renewed at the new master")
        self.assertEqual(client.ok("HELD").items[0].fence, fence)
        client.ok(f"UNLOCK {name} fence={fence}", count=0)
        # Beyond what a lost suffix of writes may have issued.
        self.assertGreater(waiter.wait(tag).fence, fence + 1)
        client.no_event("LOST", 0)
