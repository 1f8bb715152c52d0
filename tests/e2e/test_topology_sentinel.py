"""A master that Sentinels watch: real ones."""

import contextlib
import time

from harness import HarnessCase

QUICK = {"redis.command_timeout": "500ms", "redis.connect_timeout": "500ms"}


def served(client, name, within=30.0):
    """The OK of a LOCK that is put again until it is had."""
    end = time.monotonic() + within
    while True:
        reply = client.request(f"LOCK {name} wait=1s")
        if reply.ok or time.monotonic() > end:
            return reply


class SentinelTest(HarnessCase):
    def begin(self, overrides=None, **options):
        redis = self.sentinels(**options)
        return redis, self.broker(redis, {**QUICK, **(overrides or {})})

    def test_finds_the_master(self):
        redis, broker = self.begin()
        client = self.client(broker, "LOCK a")
        self.assertTrue(redis.master.command("EXISTS", "holdfast:{a}"))
        broker.wait_log(f"event=redis_master master=mymaster "
                        f"node={redis.master.address}")
        self.assertEqual(broker.http("/readyz")[0], 200)

    def test_a_minority_of_sentinels_is_away(self):
        redis = self.sentinels()
        redis.sentinels[0].kill()
        client = self.client(self.broker(redis, QUICK))
        self.assertTrue(served(client, "a").ok)

    def test_a_majority_is_away(self):
        """Without Sentinels nothing is granted; all goes on when they are
        back."""
        redis, broker = self.begin({"redis.patience": "500ms"})
        client = self.client(broker, "LOCK a")
        for sentinel in redis.sentinels[:2]:
            sentinel.pause()
        broker.wait_log("event=redis_no_master")
        client.err("LOCK b", "UNAVAILABLE")
        self.assertEqual(broker.http("/readyz")[0], 503)
        for sentinel in redis.sentinels[:2]:
            sentinel.resume()
        self.assertTrue(served(client, "b").ok)
        client.ok("UNLOCK a", count=0)

    def test_a_sentinel_by_two_names(self):
        """It has one vote, which alone is none of three."""
        redis = self.sentinels()
        one, other = redis.sentinels[:2]
        alias = one.address.replace("127.0.0.1", "localhost")
        broker = self.broker(redis, {
            **QUICK, "redis.patience": "500ms",
            "redis.nodes": [one.address, alias, other.address]})
        client = self.client(broker)
        self.assertTrue(served(client, "a").ok)
        broker.wait_log("event=sentinel_twice")
        other.pause()
        broker.wait_log("event=redis_no_master")
        client.err("LOCK b", "UNAVAILABLE")
        other.resume()
        self.assertTrue(served(client, "b").ok)

    def failed_over(self, end):
        """A holder and a waiter; the master ends by `end`."""
        redis, broker = self.begin()
        holder, waiter = self.client(broker), self.client(broker)
        fence = int(holder.ok("LOCK a")["fence"])
        tag = waiter.waits("LOCK a")
        old = redis.master
        # What was told stands at the replicas too.
        self.assertEqual(old.command("WAIT", 2, 10000), 2)
        end(old)
        new = redis.wait_master(other_than=old)
        broker.wait_log(f"event=redis_master master=mymaster "
                        f"node={new.address}")
        return redis, broker, holder, (waiter, tag), fence

    def test_a_killed_master(self):
        redis, _, holder, (waiter, tag), fence = self.failed_over(
            lambda old: old.kill())
        holder.ok("UNLOCK a", count=0)
        reply = waiter.wait(tag, timeout=30)
        self.assertTrue(reply.ok)
        self.assertGreater(int(reply["fence"]), fence)
        other = self.client(self.broker(redis, QUICK))
        other.err("LOCK a wait=0", "BUSY")
        waiter.ok("UNLOCK a", count=0)
        other.ok("LOCK a")

    def test_a_paused_master_comes_back(self):
        """It is told that it is a replica now, and gets nothing to do."""
        old = []

        def pause(master):
            old.append(master)
            master.pause()
        redis, broker, holder, (waiter, tag), _ = self.failed_over(pause)
        old[0].resume()

        def follows():
            with contextlib.suppress(OSError):  # its clients are killed
                return old[0].info("replication")["role"] == "slave"
            return False
        self.wait_until(follows, 30, "it is a replica")
        holder.ok("UNLOCK a", count=0)
        waiter.granted(tag, timeout=30)
        waiter.ok("UNLOCK a", count=0)
        self.assertTrue(served(self.client(broker), "b").ok)

    def test_ordered_failover(self):
        """SENTINEL FAILOVER: the old one lives on as a replica."""
        redis, broker = self.begin()
        client = self.client(broker, "LOCK a")
        old = redis.master
        self.assertEqual(old.command("WAIT", 2, 10000), 2)
        redis.sentinels[0].command("SENTINEL", "FAILOVER", "mymaster")
        new = redis.wait_master(other_than=old)
        broker.wait_log(f"event=redis_master master=mymaster "
                        f"node={new.address}")
        self.assertTrue(served(client, "b").ok)
        client.ok("UNLOCK a", count=0)

    def test_passwords(self):
        redis = self.sentinels(password="of-redis",
                               sentinel_password="of-sentinels")
        files = {}
        for key, word in (("password_file", "of-redis"),
                          ("sentinel_password_file", "of-sentinels")):
            files["redis." + key] = self.folder() + "/password"
            with open(files["redis." + key], "w", encoding="utf-8") as file:
                file.write(word)
        client = self.client(self.broker(redis, {**QUICK, **files}))
        self.assertTrue(served(client, "a").ok)
        wrong = {**QUICK, **files, "redis.patience": "300ms",
                 "redis.sentinel_password_file":
                     files["redis.password_file"]}
        broker = self.broker(redis, wrong, can_ask=False)
        self.client(broker).err("LOCK b", "UNAVAILABLE")
        broker.wait_log("event=redis_refuses")

    def test_a_master_of_another_name(self):
        redis = self.sentinels()
        broker = self.broker(redis, {**QUICK, "redis.patience": "300ms",
                                     "redis.sentinel_master": "other"},
                             can_ask=False)
        self.client(broker).err("LOCK a", "UNAVAILABLE")
        broker.wait_log("event=sentinel_names_none")

    def test_no_sentinel_at_all(self):
        """A Redis where a Sentinel should be."""
        redis = self.redis()
        broker = self.broker(redis, {**QUICK, "redis.patience": "300ms",
                                     "redis.topology": "sentinel"},
                             can_ask=False)
        self.client(broker).err("LOCK a", "UNAVAILABLE")
        broker.wait_log("event=redis_refuses")
