"""Safety level strict: what replicas have not got yet is not told."""

import contextlib
import os
import subprocess
import time

from harness import HarnessCase, RedisError, broker_path, slot_of

STRICT = {"redis.safety": "strict", "redis.settle": "0s",
          "lease.default": "3s", "redis.command_timeout": "500ms",
          "redis.connect_timeout": "500ms", "redis.patience": "1s"}


class StrictTest(HarnessCase):
    def begin(self, replicas=1):
        """A master and its replicas, which are up to date."""
        self.master = self.redis()
        self.replicas = [
            self.redis(replicaof=f"{self.master.host} {self.master.port}")
            for _ in range(replicas)]
        self.wait_until(lambda: self.online() == replicas, 20,
                        "the replicas are there")

    def online(self):
        info = self.master.info("replication")
        return sum("state=online" in str(info[f"slave{number}"])
                   for number in range(int(info["connected_slaves"])))

    def refused(self, client, line):
        """It is not granted, whatever is said."""
        reply = client.request(line)
        self.assertIn(reply.code, ("INDOUBT", "UNAVAILABLE"), reply.line)

    def test_without_a_replica(self):
        redis = self.redis()
        path = os.path.join(self.folder(), "holdfast.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                f"listen: {{tcp: ['127.0.0.1:0']}}\nadmin: {{http: none}}\n"
                f"redis: {{topology: single, nodes: ['{redis.address}'], "
                f"safety: strict}}\n")
        done = subprocess.run([broker_path(), "-c", path], text=True,
                              capture_output=True, timeout=20, check=False)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn('event=cannot_start why="redis.safety is strict, and a '
                      'master has no replica that could confirm a grant"',
                      done.stderr)

    def test_replicas_that_are_slow_to_start(self):
        """They are waited for, since the configuration speaks of them."""
        self.master = self.redis()
        broker = self.broker(self.master, {**STRICT, "redis.replicas": "1"},
                             can_ask=False)
        broker.wait_log("event=redis_replicas_missing")
        time.sleep(6)  # for so long it would look for some
        self.client(broker).err("LOCK a", "UNAVAILABLE")
        self.redis(replicaof=f"{self.master.host} {self.master.port}")
        broker.wait_redis()
        self.client(broker).ok("LOCK a")

    def test_it_waits_for_replicas(self):
        self.begin(2)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s", "UNLOCK a")
        before = broker.metric("redis_waits_total")
        fence = client.ok("LOCK b").fence
        for replica in self.replicas:  # which have not seen it before
            self.assertTrue(replica.command("EXISTS", "holdfast:{b}"))
        client.ok("LOCK b", count=2)
        client.ok("UNLOCK b")
        client.ok("UNLOCK b", count=0)
        self.assertEqual(broker.metric("redis_waits_total"), before + 1)
        self.assertGreater(client.ok("LOCK b").fence, fence)

    def test_a_replica_is_behind(self):
        self.begin(2)
        broker = self.broker(self.master, {**STRICT, "redis.patience": "10s"})
        holder, other = self.client(broker), self.client(broker)
        waiter = self.client(broker)
        fence = holder.ok("LOCK a").fence
        tag = waiter.submit("LOCK a wait=30s")
        self.replicas[1].pause()
        begin = time.monotonic()
        self.refused(other, "LOCK b wait=0")
        holder.event("JEOPARDY", 5)
        self.assertEqual(holder.event("LOST", 5)["reason"], "backend")
        self.assertLess(time.monotonic() - begin, 5)
        self.refused(other, "LOCK c wait=0")
        self.replicas[1].resume()
        granted = waiter.wait(tag)
        self.assertTrue(granted.ok, granted.line)
        self.assertGreater(granted.fence, fence)
        other.ok("LOCK b wait=10s")

    def test_a_replica_is_gone(self):
        """Nothing is asked for until it is back."""
        self.begin(2)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a")
        self.replicas[0].kill()
        broker.wait_log("event=redis_replicas_missing")
        self.refused(client, "LOCK b wait=0")
        self.assertEqual(broker.http("/readyz")[0], 503)
        self.assertFalse(self.master.command("EXISTS", "holdfast:{c}"))
        self.refused(client, "LOCK c wait=0")
        self.assertFalse(self.master.command("EXISTS", "holdfast:{c}"))
        self.replicas[0].start()
        broker.wait_log("event=redis_replicas_back")
        client.ok("LOCK c wait=10s")

    def test_a_master_that_was_replaced(self):
        """It lives on, and nobody believes what it says."""
        self.begin(1)
        old = self.broker(self.master, STRICT)
        holder, other = self.client(old), self.client(old)
        fence = holder.ok("LOCK a").fence
        (replica,) = self.replicas
        replica.command("REPLICAOF", "NO", "ONE")
        self.refused(other, "LOCK b wait=0")
        self.assertEqual(holder.event("LOST", 6)["reason"], "backend")
        new = self.broker(replica, {**STRICT, "redis.safety": "fenced",
                                    "redis.settle": "3s"})
        new.wait_log("event=redis_settled")
        self.assertGreater(self.client(new).ok("LOCK a wait=10s").fence, fence)
        self.refused(other, "LOCK a wait=0")

    def test_another_one_in_its_place(self):
        """As many as before are no use where one of them is another one."""
        self.begin(2)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s")
        gone = self.replicas[1]
        gone.command("REPLICAOF", "NO", "ONE")
        broker.wait_log(f'missing="{gone.address}"')
        self.redis(replicaof=f"{self.master.host} {self.master.port}")
        self.wait_until(lambda: self.online() == 2, 20, "it is there")
        self.refused(client, "LOCK b wait=2s")
        # It was removed for good: guarantees.md, "Strict", has brokers restart.
        other = self.broker(self.master, STRICT)
        self.client(other).ok("LOCK b wait=10s")

    def test_a_master_that_is_restarted(self):
        """With its data or without; and a broker, where it is told."""
        self.begin(2)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s")
        self.replicas[1].kill()
        broker.wait_log("event=redis_replicas_missing")
        told = self.broker(self.master, {**STRICT, "redis.replicas": 2},
                           can_ask=False)
        told.wait_log("event=redis_replicas_missing")
        self.refused(self.client(told), "LOCK b wait=0")
        self.master.restart(kill=True)
        self.wait_until(lambda: self.online() == 1, 20, "the first one")
        self.refused(client, "LOCK b wait=3s")
        self.replicas[1].start()
        broker.wait_log("event=redis_replicas_back")
        client.ok("LOCK b wait=10s")

    def test_a_replica_comes_late(self):
        """The daemon waits for it some seconds."""
        self.master = self.redis()
        broker = self.broker(self.master, STRICT, can_ask=False)
        broker.wait_log("event=redis_replicas_missing")
        self.redis(replicaof=f"{self.master.host} {self.master.port}")
        self.client(broker.wait_redis()).ok("LOCK a wait=10s")

    def test_a_backup(self):
        """A reader of the data is no replica: no grant waits for it."""
        self.begin(1)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s")
        self.master.command("DEBUG", "POPULATE", 100000, "x", 200)
        before = broker.log().count("event=redis_replicas_")
        backup = subprocess.Popen(
            ["redis-cli", "-p", str(self.master.port), "--rdb",
             os.path.join(self.folder(), "dump.rdb")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while backup.poll() is None:
                client.ok("LOCK b wait=0")
                client.ok("UNLOCK b")
        finally:
            if backup.poll() is None:
                backup.kill()
            backup.wait()
        self.assertEqual(backup.returncode, 0)
        client.ok("LOCK b wait=0")
        self.assertEqual(broker.log().count("event=redis_replicas_"), before)

    def test_wait_is_not_allowed(self):
        self.begin(1)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s")
        self.master.command("ACL", "SETUSER", "default", "-wait")
        self.refused(client, "LOCK b wait=0")
        broker.wait_log("event=redis_replicas_unasked")
        self.refused(client, "LOCK c wait=1s")
        self.assertEqual(broker.http("/readyz")[0], 503)
        self.assertEqual(broker.log().count("redis_replicas_unasked"), 1)
        self.master.command("ACL", "SETUSER", "default", "+wait")
        broker.wait_log("event=redis_replicas_back")
        client.ok("LOCK c wait=10s")

    def test_a_full_redis(self):
        """Holders keep their locks there."""
        self.begin(1)
        broker = self.broker(self.master, STRICT)
        client = self.client(broker, "LOCK a wait=10s")
        self.master.command("CONFIG", "SET", "maxmemory", "1")
        client.err("LOCK b wait=0", "UNAVAILABLE")
        client.no_event("LOST", 4)  # longer than the lease
        self.master.command("CONFIG", "SET", "maxmemory", "0")
        client.ok("LOCK b wait=10s")


class StrictClusterTest(HarnessCase):
    def test_a_node_is_left_while_answers_wait(self):
        cluster = self.cluster(masters=2, replicas=1)
        one, two = cluster.masters
        (replica,) = cluster.replicas_of(one)
        if one.info("server").get("server_name") == "valkey":
            self.skipTest("there CLUSTER SETSLOT waits for replicas, too")
        broker = self.broker([two.address], {
            **STRICT, "redis.topology": "cluster", "lease.default": "20s",
            "redis.command_timeout": "2s", "redis.patience": "3s"})
        client = self.client(broker.wait_redis(30))
        first, last = cluster.slots_of(0)
        name = next(name for name in map("k{}".format, range(9999))
                    if first <= slot_of(name) <= last)
        client.ok(f"LOCK {name} wait=10s")
        client.ok(f"UNLOCK {name}")
        replica.pause()
        tag = client.submit(f"LOCK {name} wait=0")
        self.wait_until(lambda: one.command("EXISTS", f"holdfast:{{{name}}}"),
                        10, "it is asked")
        for node in (one, two):
            with node.connect() as connection:
                for slot in range(first, last + 1):
                    # Who has keys there does not let it go.
                    with contextlib.suppress(RedisError):
                        connection.command(
                            "CLUSTER", "SETSLOT", slot, "NODE", two.id)
        other = self.client(broker)
        other.request(f"LOCK {name} wait=0", 12)
        self.assertEqual(client.wait(tag, 12).code, "INDOUBT")
        replica.resume()

    def test_a_broker_that_has_never_seen_it(self):
        """The cluster knows of the replica that is down."""
        cluster = self.cluster(masters=2, replicas=2)
        one = cluster.masters[0]
        settings = {**STRICT, "redis.topology": "cluster"}
        gone, stays = cluster.replicas_of(one)
        self.wait_until(lambda: len(one.command(
            "CLUSTER", "REPLICAS", one.id)) == 2, 20, "it knows of them")
        first = self.broker(cluster, settings)
        self.client(first).ok("LOCK a wait=10s")
        gone.kill()
        self.wait_until(lambda: "connected_slaves:1" in str(
            one.command("INFO", "replication")), 10, "it is gone")
        second = self.broker(cluster, settings, can_ask=False)
        second.wait_log("event=redis_replicas_missing")
        self.assertEqual(second.http("/readyz")[0], 503)
        # It is taken away for good.
        known = gone.id
        for node in cluster.nodes:
            if node is not gone:
                node.command("CLUSTER", "FORGET", known)
        second.wait_log("event=redis_replicas_back")
        for broker in (first, second):
            client = self.client(broker, "LOCK b wait=10s", "UNLOCK b")
        self.assertTrue(stays.running)
