"""AWAIT, and LOCK with wanted=1, over two brokers."""

import contextlib
import os

from harness.case import HarnessCase, shared_redis

AWAITS = 1000
CLIENTS = 20
WATCHERS = 10
LONG = 1200
MEMBERS = int(os.environ.get("HOLDFAST_MEMBERS", "200"))


class TwoBrokersCase(HarnessCase):
    def setUp(self):
        self.redis = shared_redis()
        self.one, self.two = (self.broker(self.redis) for _ in range(2))
        for broker in (self.one, self.two):
            broker.wait_log("use=hints")

    @contextlib.contextmanager
    def scripts_run(self, most):
        """So many scripts run in Redis at most."""
        def calls():
            rows = self.redis.info("commandstats")
            return int(rows["cmdstat_evalsha"].split(",")[0].split("=")[1])

        before = calls()
        yield
        self.assertLessEqual(calls() - before, most)


class WantedTest(TwoBrokersCase):
    def test_of_a_waiter_at_another_broker(self):
        holder, waiter = self.client(self.one), self.client(self.two)
        holder.ok("LOCK wanted wanted=1 owner=w")
        holder.ok("SHOW wanted")  # its broker watches the lock by then
        tag = waiter.waits("LOCK wanted wanted=1")
        self.assertEqual(holder.event("WANTED", owner="w")["waiters"], "1")
        self.client(self.one).waits("LOCK wanted")
        holder.ok("UNLOCK wanted owner=w")
        waiter.granted(tag)
        self.assertEqual(waiter.event("WANTED")["waiters"], "1")


class AwaitTest(TwoBrokersCase):
    def test_a_thousand_are_woken_by_one_release(self):
        holder = self.client(self.one, "LOCK page note=v7")
        clients = [self.client((self.one, self.two)[place % 2])
                   for place in range(CLIENTS)]
        with self.scripts_run(AWAITS // 10):
            tags = [(client, client.submit("AWAIT page"))
                    for client in clients for _ in range(AWAITS // CLIENTS)]
            for client in clients:
                client.ok("PING")
            fence = self.client(self.two).request("SHOW page").items[0].fence
        with self.scripts_run(20):
            holder.ok("UNLOCK page")
            for client, tag in tags:
                reply = client.wait(tag)
                self.assertEqual((reply.fence, reply["note"]), (fence, "v7"))

    def test_a_holder_that_dies_with_its_broker(self):
        one = self.broker(self.redis, {"lease.default": "1s"})
        two = self.broker(self.redis, {"lease.default": "1s"})
        self.client(one, "LOCK dead")
        client = self.client(two)
        tag = client.submit("AWAIT dead")
        client.ok("PING")
        one.kill()
        self.assertTrue(client.wait(tag).ok)


class Group:
    """The members that a watcher with members=1 knows by its events."""

    def __init__(self, client, name):
        self.client = client
        self.told, self.lists = [], 0
        client.ok(f"WATCH {name} members=1")
        self.members = {}
        self.read_list()

    def read_list(self):
        """Reads until the list is complete; who is in it by then."""
        while not self.take():
            pass
        return self.members

    def take(self):
        """Takes the next event; whether it is the end of a list."""
        event = self.client.next_event(
            "JOINED", "CHANGED", "LEFT", "MEMBERS")
        if event.word == "MEMBERS":
            if event.get("begin") == "1":
                self.members, self.lists = {}, self.lists + 1
            else:
                assert len(self.members) == int(event["members"]), event.line
            return "members" in event.pairs
        self.told.append((event.word, event.fence))
        joins = event.word == "JOINED"
        assert (event.fence in self.members) != joins, event.line
        self.members[event.fence] = event
        if event.word == "LEFT":
            del self.members[event.fence]
        return False

    def until(self, word, fence):
        self.take()
        while self.told[-1] != (word, fence):
            self.take()


class MembersTest(TwoBrokersCase):
    def test_each_member_is_told_to_all(self):
        groups = [Group(self.client((self.one, self.two)[place % 2]), "group")
                  for place in range(WATCHERS)]
        clients = [self.client((self.one, self.two)[place % 2])
                   for place in range(CLIENTS)]
        for place in range(MEMBERS):
            client = clients[place % CLIENTS]
            client.submit(f"LOCK group mode=shared owner={place} note={place}")
            client.submit(f"UNLOCK group owner={place}")
        for client in clients:
            client.ok("PING")
        fences = []
        for client in clients:
            for tag in range(1, 2 * (MEMBERS // CLIENTS) + 1):
                reply = client.wait(str(tag))
                if "fence" in reply.pairs:
                    fences.append(reply.fence)
        for group in groups:
            while len(group.told) < 2 * MEMBERS:
                group.take()
            self.assertEqual([fence for word, fence in group.told
                              if word == "JOINED"], sorted(fences))
            self.assertEqual((group.members, group.lists), ({}, 1))

    def test_notes_permits_and_an_end_without_unlock(self):
        group = Group(self.client(self.one), "pool")
        member = self.client(self.two, "LOCK pool limit=5 permits=3 note=a")
        fence = member.request("HELD").items[0].fence
        group.until("JOINED", fence)
        member.ok("NOTE pool note=b")
        group.until("CHANGED", fence)
        self.assertEqual(group.members[fence]["note"], "b")
        member.ok("UNLOCK pool permits=1")
        group.until("CHANGED", fence)
        self.assertEqual(group.members[fence]["permits"], "2")
        member.close()
        group.until("LEFT", fence)
        self.assertEqual(group.lists, 1)

    def test_the_list_comes_again_after_a_lost_connection(self):
        client = self.client(self.one)
        group = Group(self.client(self.two), "group")
        for owner in range(LONG):
            client.submit(f"LOCK group mode=shared owner={owner}")
        client.ok("PING")
        while len(group.members) < LONG:
            group.take()
        self.redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        client.ok("UNLOCK group owner=7")
        self.assertEqual(len(group.read_list()), LONG - 1)
        self.assertEqual(group.lists, 2)
        shown, cursor = [], None
        while cursor is None or cursor > 0:
            reply = client.ok(
                f"SHOW group limit=500 cursor={cursor or 0}")
            shown += [item.fence for item in reply.items]
            cursor = int(reply.get("cursor", 0))
        self.assertEqual(shown, sorted(group.members))
        late = Group(self.client(self.two), "group")
        self.assertEqual(sorted(late.members), shown)
