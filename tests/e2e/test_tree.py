"""The whole and its parts: LOCK tree=1."""

from test_kinds import KindsCase


class TreeTest(KindsCase):
    lease = "2s"

    def test_whole_and_parts(self):
        one, two = (self.client(broker) for broker in self.brokers)
        part = one.ok("LOCK shop/orders/17 tree=1")
        other = two.ok("LOCK shop/orders/18 tree=1")
        three = self.client(self.brokers[1])
        for name in ("shop", "shop/orders"):
            three.err(f"LOCK {name} tree=1 wait=0", "BUSY")
        three.err("LOCK shop mode=shared wait=0", "BUSY")
        three.ok("LOCK shop/carts tree=1 wait=0")
        three.err("LOCK shop/17 shop/orders/17 tree=1 wait=0", "BUSY")
        shown = one.ok("SHOW shop/orders", mode="intent", holders=3)
        self.assertEqual({item["mode"] for item in shown.items}, {"intent"})
        shown = one.ok("SHOW shop/orders/17", holders=1).items[0]
        self.assertEqual(shown["tree"], "1")
        self.assertNotEqual(part.fence, other.fence)
        for client, name in ((one, "orders/17"), (two, "orders/18"),
                             (three, "carts")):
            client.ok(f"UNLOCK shop/{name}", count=0)
        three.ok("LOCK shop tree=1", count=1)
        tag = one.waits("LOCK shop/orders/17 tree=1")
        three.ok("UNLOCK shop")
        one.granted(tag)

    def test_shared_parts(self):
        one, two = (self.client(broker) for broker in self.brokers)
        one.ok("LOCK shop/a tree=1 mode=shared")
        two.ok("LOCK shop tree=1 mode=shared wait=0")
        two.ok("LOCK shop/a tree=1 mode=shared wait=0 owner=w")
        one.err("LOCK shop/b tree=1 wait=0 owner=w", "BUSY")

    def test_the_whole_waits_and_is_not_overtaken(self):
        one, two = (self.client(broker) for broker in self.brokers)
        late = [self.client(broker) for broker in self.brokers]
        for client in late:  # these have an idle intention
            client.ok("LOCK shop/1 tree=1")
            client.ok("UNLOCK shop/1")
        one.ok("LOCK shop/2 tree=1")
        whole = two.waits("LOCK shop tree=1")
        self.wait_until(  # the brokers hear of it, and give the idle ones back
            lambda: one.ok("SHOW shop").get("holders") == "1",
            what="an end of the idle intentions")
        tags = [client.waits(f"LOCK shop/3{i} tree=1")
                for i, client in enumerate(late)]
        one.ok("LOCK shop/4 tree=1 wait=0")  # its owner has a part
        one.ok("UNLOCK shop/2 shop/4")
        two.granted(whole)
        for client, tag in zip(late, tags):
            client.no_reply(tag, 0.02)
        two.ok("UNLOCK shop")
        for client, tag in zip(late, tags):
            client.granted(tag)

    def test_a_broker_that_is_killed(self):
        one, two = self.brokers
        client = self.client(one)
        session = client.ok("HELLO keep=10s")["session"]
        fence = client.ok("LOCK shop/1 tree=1").fence
        other = self.client(two)
        one.kill()
        tag = other.waits("LOCK shop tree=1")
        moved = self.client(two, f"HELLO resume={session} gen=2 keep=10s")
        moved.err(f"CLAIM shop/1 fence={fence}", "LOST")
        # Its intention stands, so it has its place.
        self.assertGreater(moved.ok("LOCK shop/1 tree=1").fence, fence)
        other.no_reply(tag, 0.02)
        moved.ok("QUIT")
        other.granted(tag)
        one.start()

    def test_a_killed_broker_is_waited_for(self):
        one, two = self.brokers
        client = self.client(one)
        client.ok("LOCK shop/1 tree=1")
        one.kill()
        self.client(two).ok("LOCK shop tree=1 wait=5s")
        one.start()

    def test_an_idle_intention_keeps_nobody_out(self):
        one, two = (self.client(broker) for broker in self.brokers)
        for name in ("1", "2/3"):
            one.ok(f"LOCK shop/{name} tree=1")
            one.ok(f"UNLOCK shop/{name}")
        two.ok("LOCK shop tree=1 wait=0")
        two.ok("UNLOCK shop")
        one.ok("LOCK shop/1 tree=1 wait=0")

    def test_deadlock(self):
        one, two = (self.client(broker) for broker in self.brokers)
        one.ok("LOCK shop/1 tree=1")
        two.ok("LOCK other")
        first = one.waits("LOCK other")
        second = two.waits("LOCK shop tree=1")
        two.refused(second, "DEADLOCK")
        two.ok("UNLOCK other")
        one.granted(first)

    def test_break_of_the_whole(self):
        one, two = (self.client(broker) for broker in self.brokers)
        fence = one.ok("LOCK shop/1 tree=1").fence
        two.ok("BREAK shop", holders=1)
        self.assertEqual(one.event("LOST").fence, fence)
        two.ok("LOCK shop tree=1 wait=1s")
        two.ok("AUDIT")
