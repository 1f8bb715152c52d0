"""The scripts in a cluster: one slot a call, and slots that migrate."""

from harness import RedisError, shared_cluster, slot_of

import scripts
from script_case import ResultCase
from scripts import HELD, KEY, OK, WAITING, Record, who

SAME = ["{same}:a", "{same}:b", "{same}:c"]


class Cluster(ResultCase):
    def setUp(self):
        self.cluster = shared_cluster()
        self.connections = {}

    def connection(self, node):
        """One for a node, for all of the test."""
        if node.port not in self.connections:
            connection = self.closing(scripts.connect(node))
            self.connections[node.port] = connection
        return self.connections[node.port]

    def broker(self, node):
        return scripts.Broker(self.connection(node))

    def ends(self, key):
        """(slot, the node that has it, another one)."""
        slot = slot_of(key)
        source = self.cluster.node_of_slot(slot)
        target = next(node for node in self.cluster.masters
                      if node is not source)
        return slot, source, target

    def begin(self, key):
        """The key's slot migrates; brokers at its source and its target."""
        slot, source, target = self.ends(key)
        migration = self.cluster.begin_migration(slot, target)
        self.addCleanup(self.abort, migration)
        return migration, self.broker(source), self.broker(target)

    def abort(self, migration):
        """The slot stays where it was; what had moved is thrown away."""
        self.cluster.flush()
        self.cluster.abort_migration(migration)

    def asking(self, broker, ask, *arguments, **options):
        self.assertEqual(broker.connection.command("ASKING"), "OK")
        return ask(*arguments, **options)


class Slots(Cluster):
    def test_one_slot_a_call(self):
        slot = slot_of("same")
        broker = self.broker(self.cluster.node_of_slot(slot))
        results = broker.call("acquire", *(
            (key, scripts.acquire(who(number)))
            for number, key in enumerate(SAME)))
        self.assertEqual([result.status for result in results], [OK] * 3)
        results = broker.call("release", *(
            (key, scripts.release(who(number)))
            for number, key in enumerate(SAME)))
        self.assertEqual([result.status for result in results], [OK] * 3)

    def test_two_slots_in_a_call(self):
        broker = self.broker(self.cluster.node_of_slot(0))
        with self.assertRaises(RedisError) as caught:
            broker.call("acquire", ("{a}", scripts.acquire(who(1))),
                        ("{b}", scripts.acquire(who(1))))
        self.assertIn(caught.exception.code, ("CROSSSLOT", "MOVED"))

    def test_another_nodes_slot(self):
        _, source, target = self.ends("holdfast:{a}")
        text = self.assert_error("MOVED", self.broker(target).acquire, who(1),
                            key="holdfast:{a}")
        self.assertTrue(text.endswith(f":{source.port}"), text)

    def test_grant_is_published_on_every_node(self):
        """A broker that listens at any one node hears of it."""
        listener = self.closing(scripts.connect(self.cluster.masters[0]))
        listener.subscribe(scripts.CHANNEL + b"broker-2")
        for number in range(3):
            first, _ = self.cluster.slots_of(number)
            key = next(f"holdfast:{{{name}}}" for name in range(10000)
                       if self.cluster.node_of_slot(slot_of(str(name)))
                       is self.cluster.node_of_slot(first))
            one = self.broker(self.cluster.node_of(key))
            two = scripts.Broker(one.connection, b"broker-2")
            one.acquire(who(1), key=key)
            two.acquire(who(2), key=key)
            self.assertTrue(one.release(who(1), key=key).handed)
            _, payload = listener.message()
            self.assertEqual(payload[1:9], who(2).request)


class Migration(Cluster):
    def test_one_key_works_all_the_way(self):
        """At the source until it moved, then at the target after ASKING."""
        slot, node, other = self.ends(KEY)
        before = self.broker(node)
        held = before.acquire(who(1))
        self.says(held, OK)
        migration, source, target = self.begin(KEY)
        self.assertEqual(migration[:3], (slot, node, other))
        self.says(source.acquire(who(2)), WAITING)
        self.says(source.renew(who(1)), OK)
        self.assertEqual(self.cluster.migrate_keys(migration), 1)
        for ask in (source.renew, source.release):
            self.assert_error("ASK", ask, who(1))
        self.assert_error("MOVED", target.renew, who(1))
        renewed = self.asking(target, target.renew, who(1),
                              arrival=held.arrival, fence=held.fence)
        self.says(renewed, OK, fence=held.fence)
        raised = target.last.time_us + scripts.FENCE_JUMP
        released = self.asking(target, target.release, who(1))
        self.assertEqual(released.grants[0].request, who(2).request)
        self.assertEqual(released.grants[0].fence, raised + 1)
        self.assertGreater(raised, held.fence)
        result, _, tickets = self.asking(target, target.inspect)
        self.assertEqual((result.status, [each.who for each in tickets]),
                         (OK, [who(2)]))

    def test_new_lock_during_the_migration(self):
        """Nobody has its key: it is made at the target."""
        _, source, target = self.begin(KEY)
        self.assert_error("ASK", source.acquire, who(1))
        self.says(self.asking(target, target.acquire, who(1)), OK)
        self.assert_error("MOVED", target.release, who(1))
        self.says(self.asking(target, target.release, who(1)), OK)

    def test_asking_is_good_for_one_call(self):
        _, _, target = self.begin(KEY)
        self.asking(target, target.acquire, who(1))
        self.assert_error("MOVED", target.renew, who(1))

    def test_several_keys_with_one_missing(self):
        """TRYAGAIN at both ends, and nothing done; one by one it goes."""
        slot = slot_of("same")
        broker = self.broker(self.cluster.node_of_slot(slot))
        for number, key in enumerate(SAME):
            broker.acquire(who(number), key=key)
        migration, source, target = self.begin(SAME[0])
        self.assertEqual(self.cluster.migrate_keys(migration, count=1), 1)
        here = self.at_source(source)
        moved = [key for key in SAME if key not in here]
        self.assertEqual((len(here), len(moved)), (2, 1))
        batch = [(key, scripts.renew(who(number)))
                 for number, key in enumerate(SAME)]
        self.assert_error("TRYAGAIN", source.call, "renew", *batch)
        self.assert_error("TRYAGAIN", self.asking, target, target.call,
                          "renew", *batch)
        for key, argument in batch:
            if key in here:
                results = source.call("renew", (key, argument))
            else:
                results = self.asking(target, target.call, "renew",
                                      (key, argument))
            self.says(results[0], OK)

    def at_source(self, broker):
        """The keys that have not moved yet."""
        slot = slot_of("same")
        keys = broker.connection.command("CLUSTER", "GETKEYSINSLOT", slot, 10)
        return [key.decode() for key in keys]

    def test_record_arrives_whole(self):
        """With its queue and its expiry; the fences go on above."""
        _, node, _ = self.ends(KEY)
        before = self.broker(node)
        fence = before.acquire(who(0)).fence
        for number in range(1, 20):
            before.acquire(who(number))
        raw = before.connection.command("GET", KEY)
        migration, _, target = self.begin(KEY)
        self.cluster.migrate_keys(migration)
        connection = target.connection
        connection.command("ASKING")
        self.assertEqual(connection.command("GET", KEY), raw)
        connection.command("ASKING")
        self.assertGreater(connection.command("PTTL", KEY), 60_000)
        for number in range(19):
            result = self.asking(target, target.release, who(number))
            grant = result.grants[0]
            self.assertEqual(grant.request, who(number + 1).request)
            self.assertGreater(grant.fence, fence)
            fence = grant.fence
        connection.command("ASKING")
        record = Record(connection.command("GET", KEY)).check()
        self.assertEqual((record.holder.who, record.holder.flags),
                         (who(19), HELD))
