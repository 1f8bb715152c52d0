"""First come, first served, over brokers; whoever dies is passed over."""

import time

from contest import Contest
from harness import HarnessCase, shared_redis
from shared import stats, unread

LEASE = 1.0
SLACK = 1.0  # for a loaded machine


class FifoTest(HarnessCase):
    """Two and three brokers before one Redis."""

    def brokers(self, count, redis=None, **overrides):
        redis = redis or shared_redis()
        return [self.broker(redis, overrides) for _ in range(count)]

    def queue(self, name, brokers, count):
        """A holder and `count` waiters, over the brokers in turn; their
        (client, tag)."""
        holder = self.client(brokers[0], f"LOCK {name}")
        line = []
        for number in range(count):
            client = self.client(brokers[number % len(brokers)])
            tag = client.submit(f"LOCK {name} progress=1")
            self.assertEqual(client.queued(tag)["position"], str(number + 1))
            line.append((client, tag))
        return holder, line

    def pass_on(self, name, holder, line):
        """Each gets it after the one before, and no other does."""
        fence = 0
        for place, (client, tag) in enumerate(line):
            holder.ok(f"UNLOCK {name}", count=0)
            reply = client.wait(tag)
            self.assertTrue(reply.ok, reply.line)
            self.assertGreater(reply.fence, fence)
            for later, other_tag in line[place + 1:]:
                self.assertNotIn(f"{other_tag} OK".encode(), unread(later))
            holder, fence = client, reply.fence
        holder.ok(f"UNLOCK {name}", count=0)

    def test_one_two_and_three_brokers(self):
        for count in (1, 2, 3):
            with self.subTest(brokers=count):
                brokers = self.brokers(count)
                name = f"fifo/{count}"
                self.pass_on(name, *self.queue(name, brokers, 12))

    def test_owners_of_one_session_queue_as_others_do(self):
        brokers = self.brokers(2)
        holder = self.client(brokers[0])
        clients = [self.client(broker) for broker in brokers]
        holder.ok("LOCK fifo/owners")
        tags = []
        for number in range(10):
            client = clients[number % 2]
            tags.append(client.submit(
                f"LOCK fifo/owners owner={number} progress=1"))
            client.queued(tags[-1])
        holder.ok("UNLOCK fifo/owners")
        for number, tag in enumerate(tags):
            client = clients[number % 2]
            client.granted(tag)
            client.ok(f"UNLOCK fifo/owners owner={number}", count=0)

    def test_same_broker_needs_no_message(self):
        (broker,) = self.brokers(1)
        before = stats(self.client(broker))
        self.pass_on("fifo/own", *self.queue("fifo/own", [broker], 5))
        after = stats(self.client(broker))
        self.assertEqual(after["grants_handed_over"] -
                         before["grants_handed_over"], 5)
        self.assertEqual(after["hints"], before["hints"])

    def test_other_broker_gets_a_hint(self):
        one, two = self.brokers(2)
        holder, waiter = self.client(one, "LOCK fifo/hint"), self.client(two)
        tag = waiter.waits("LOCK fifo/hint")
        self.hears(two)
        holder.ok("UNLOCK fifo/hint")
        waiter.granted(tag)
        after = stats(waiter)
        self.assertEqual((after["hints"], after["grants_claimed"]), (1, 1))

    def hears(self, broker):
        """Waits until it has subscribed to its channel."""
        broker.wait_log("use=hints")

    def test_a_waiter_that_dies_is_passed_over(self):
        brokers = self.brokers(3)
        holder, line = self.queue("fifo/dead", brokers, 9)
        for place in (0, 1, 4, 8):
            client, _ = line[place]
            client.kill() if place % 2 else client.close()
        living = [pair for place, pair in enumerate(line)
                  if place not in (0, 1, 4, 8)]
        shower = self.client(brokers[0])
        self.wait_until(lambda: shower.ok("SHOW fifo/dead")["waiters"] == "5",
                        5, "the dead have left the queue")
        self.pass_on("fifo/dead", holder, living)

    def test_death_of_a_holder_hands_over(self):
        one, two = self.brokers(2)
        holder, line = self.queue("fifo/death", [one, two], 4)
        for client, tag in line:
            begin = time.monotonic()
            holder.kill()
            client.granted(tag)
            self.assertLess(time.monotonic() - begin, 5)
            holder = client

    def test_a_hint_that_is_lost(self):
        """A broker that heard nothing asks about its waiters afterwards."""
        redis = self.redis()
        one, two = self.brokers(2, redis)
        self.hears(two)
        holder, line = self.queue("fifo/deaf", [one, two], 2)
        client, tag = line[1]
        first, first_tag = line[0]
        holder.ok("UNLOCK fifo/deaf")
        first.granted(first_tag)
        redis.command("CLIENT", "KILL", "TYPE", "pubsub")
        first.ok("UNLOCK fifo/deaf")
        client.granted(tag)


class BrokerDeathTest(HarnessCase):
    def brokers(self, count, **overrides):
        redis = shared_redis()
        return [self.broker(redis, {"lease.default": "1s", **overrides})
                for _ in range(count)]

    def test_its_lock_passes_on(self):
        one, two = self.brokers(2)
        holder, waiter = self.client(one), self.client(two)
        holder.ok("LOCK death/holder")
        tag = waiter.waits("LOCK death/holder")
        one.kill()
        begin = time.monotonic()
        waiter.granted(tag)
        # Half a second on top of the lease is promised.
        self.assertLess(time.monotonic() - begin, LEASE + 0.5 + SLACK)

    def test_its_waiters_are_passed_over(self):
        one, two = self.brokers(2)
        holder, last = self.client(two, "LOCK death/waiters"), self.client(two)
        for number in range(5):
            dead = self.client(one)
            dead.queued(dead.submit("LOCK death/waiters progress=1"))
        tag = last.submit("LOCK death/waiters progress=1")
        self.assertEqual(last.queued(tag)["position"], "6")
        one.kill()
        begin = time.monotonic()
        holder.ok("UNLOCK death/waiters")
        last.granted(tag)
        # One lapse for all of them, or their life's end: whatever is first.
        self.assertLess(time.monotonic() - begin, 2.0 + LEASE + SLACK)

    def test_nobody_is_forgotten_when_its_broker_dies_in_between(self):
        """Dead and living waiters in turn, the holder's broker dead too."""
        one, two, three = self.brokers(3)
        holder = self.client(one, "LOCK death/mixed")
        living = []
        for number in range(6):
            broker = (one, two, three)[number % 3]
            client = self.client(broker)
            tag = client.waits("LOCK death/mixed")
            if broker is not one:
                living.append((client, tag))
        one.kill()
        for client, tag in living:
            client.granted(tag)
            client.ok("UNLOCK death/mixed", count=0)


class StressTest(HarnessCase):
    """Random clients over several brokers, and a referee."""

    def brokers(self, count):
        redis = shared_redis()
        return [self.broker(redis, {"lease.default": "1s"})
                for _ in range(count)]

    def check_clean(self, contest, brokers):
        """Everybody has left: no hold, wait or request is anywhere."""
        contest.finish()
        for broker in brokers:
            if not broker.running:
                continue
            with broker.client() as client:
                self.wait_until(
                    lambda client=client: stats(client)["locks_now"] == 0,
                    10, "no lock is left")
                now = stats(client)
                self.assertEqual((now["held_now"], now["waiting_now"],
                                  now["requests_now"], now["tickets_now"]),
                                 (0, 0, 0, 0))
                for name in contest.names:
                    client.ok(f"LOCK {name} wait=3s", count=1)
                    client.ok(f"UNLOCK {name}", count=0)

    def test_cancels_and_deaths(self):
        brokers = self.brokers(3)
        contest = self.closing(Contest(brokers, players=18, seed=7))
        contest.play(grants=1500)
        self.assertGreater(contest.refused.get("CANCELLED", 0), 20)
        self.assertGreater(contest.refused.get("BUSY", 0), 20)
        self.assertEqual(contest.lost, 0)
        self.check_clean(contest, brokers)

    def test_cancels_of_grants(self):
        """All wait for one lock that nobody keeps, and call it off."""
        brokers = self.brokers(2)
        contest = self.closing(Contest(
            brokers, players=10, names=["contest/one"], seed=8, cancels=0.8,
            cuts=0.1, hold=0))
        contest.play(grants=1000)
        self.check_clean(contest, brokers)

    def test_brokers_are_killed(self):
        brokers = self.brokers(3)
        contest = self.closing(Contest(brokers, players=15, seed=9,
                                       more_refusals=["DRAINING"]))
        contest.play(seconds=6, faults=[
            (1.0, brokers[0].kill), (1.6, brokers[0].start),
            (2.5, brokers[1].kill), (2.6, brokers[1].start),
            (4.0, brokers[2].stop), (4.5, brokers[2].start)])
        self.assertGreater(contest.grants, 200)
        contest.play(grants=100)
        self.check_clean(contest, brokers)


