"""AWAIT, and LOCK with wanted=1, over two brokers."""

import contextlib

from harness.case import HarnessCase, shared_redis

AWAITS = 1000
CLIENTS = 20


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
