"""LOCK with wanted=1, over two brokers."""

from harness.case import HarnessCase, shared_redis


class TwoBrokersCase(HarnessCase):
    def setUp(self):
        self.redis = shared_redis()
        self.one, self.two = (self.broker(self.redis) for _ in range(2))
        for broker in (self.one, self.two):
            broker.wait_log("use=hints")


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
