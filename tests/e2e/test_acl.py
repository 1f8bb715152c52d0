"""The Redis rights of operations.md are enough, and each is needed."""

import os
import re
from pathlib import Path

from harness import HarnessCase
from shared import TREE, read

QUICK = {"lease.default": "3s", "redis.settle": "0s",
         "redis.command_timeout": "900ms", "redis.connect_timeout": "1s"}

# Of connections that were lost; of markers, where nobody settles; of records
# whose time is half over; of audits.
LATER = ("+client|kill", "+get", "+pexpire", "+pttl", "+scan")


def rules():
    """The two rules of operations.md, for Redis and for Sentinels."""
    return [found.replace("\n", " ").split()[2:] for found in re.findall(
        r"```\n(ACL SETUSER holdfast .*?)```",
        read("packaging/doc/operations.md"), re.S)]


class AclTest(HarnessCase):
    def setUp(self):
        self.rule, self.sentinel_rule = rules()
        self.servers = []
        path = os.path.join(self.folder(), "password")
        with open(path, "w", encoding="utf-8") as file:
            file.write("PASSWORD\n")
        self.user = {**QUICK, "redis.username": "holdfast",
                     "redis.password_file": path}
        self.sentinel_user = {"redis.sentinel_username": "holdfast",
                              "redis.sentinel_password_file": path}

    def admit(self, servers, rule):
        self.servers += servers
        for server in servers:
            server.command("ACL", "SETUSER", *rule)

    def use(self, redis, config):
        """All that a broker does, and nothing of it is refused."""
        one, two = (self.broker(redis, config) for _ in range(2))
        holder, waiter, watcher = (
            self.client(broker) for broker in (one, two, two))
        for number in range(8):  # at all nodes of a cluster
            name = f"acl/{number}"
            watcher.ok(f"WATCH {name}")
            holder.ok(f"LOCK {name} note=n wait=5s")
            tag = waiter.waits(f"LOCK {name}")
            two.wait_log("use=hints")
            holder.ok(f"SHOW {name}")
            holder.ok(f"UNLOCK {name}")
            waiter.granted(tag)
            watcher.event("HELD")
            holder.ok(f"BREAK {name}")
        self.assertEqual(holder.ok("AUDIT")["findings"], "0")
        holder.ok("LOCK acl/renewed wait=5s")
        renewals = one.metric("renewals_total")
        self.wait_until(lambda: one.metric("renewals_total") > renewals + 2,
                        10, "it is renewed")
        for server in self.servers:
            self.assertEqual(server.command("ACL", "LOG"), [], server)
        for broker in (one, two):
            self.assertNotRegex(broker.log(), "NOPERM|refuse|level=error")

    def test_single(self):
        redis = self.redis()
        self.admit([redis], self.rule)
        self.use(redis, self.user)

    def test_a_connection_is_killed(self):
        """The next one has it killed once more, and asks who it is."""
        redis = self.redis()
        self.admit([redis], self.rule)
        broker = self.broker(redis, self.user)
        redis.command("CLIENT", "KILL", "USER", "holdfast")
        broker.wait_log("redis_link_lost")
        self.client(broker).ok("LOCK acl/killed wait=5s")
        self.assertEqual(redis.command("ACL", "LOG"), [])

    def test_cluster(self):
        cluster = self.cluster()
        self.admit(cluster.nodes, self.rule)
        self.use(cluster, self.user)

    def test_strict(self):
        cluster = self.cluster(replicas=1)
        self.admit(cluster.nodes, self.rule)
        self.use(cluster, {**self.user, "redis.safety": "strict"})

    def test_sentinels(self):
        redis = self.sentinels(replicas=1)
        self.admit([redis.master], self.rule)
        self.admit(redis.sentinels, self.sentinel_rule)
        self.use(redis, {**self.user, **self.sentinel_user})

    def test_each_is_needed(self):
        """Without any one of them something is refused."""
        redis = self.redis()
        self.admit([redis], self.rule)
        strict = self.rule.index("+cluster|slots")
        words = [word for word in self.rule[:strict] if word[0] == "+"]
        for path in Path(TREE, "lua").glob("*.lua"):
            for called in re.findall(r"call(?:_redis)?\('(\w+)'",
                                     path.read_text(encoding="utf-8")):
                self.assertIn("+" + called.lower(), words, path)
        for word in words:
            if word in LATER:
                continue
            with self.subTest(without=word):
                redis.command("ACL", "SETUSER", "holdfast", "-" + word[1:])
                broker = self.broker(redis, self.user, can_ask=False)
                with broker.client() as client:
                    client.submit("WATCH acl/needed")
                    for owner in "abcd":
                        client.submit(f"LOCK acl/needed owner={owner} note=n")
                    self.wait_until(
                        lambda broker=broker: self.refused(redis, broker), 10,
                        "something is refused")
                broker.stop()
                redis.command("ACL", "SETUSER", "holdfast", word)
                redis.command("ACL", "LOG", "RESET")
                redis.command("FLUSHALL")

    @staticmethod
    def refused(redis, broker):
        return redis.command("ACL", "LOG") or \
            "executing the script can't run" in broker.log()
