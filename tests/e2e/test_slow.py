"""SLOW: what took long, what was lost, and who waited in a circle."""

import json
import subprocess

from fake_broker import HOLDFAST
from harness import HarnessCase

STAGES = ("queued_us", "redis_us", "confirm_us")


class SlowTest(HarnessCase):
    def setUp(self):
        self.redis_server = self.redis()
        self.addCleanup(self.redis_server.resume)

    def start(self, **overrides):
        return self.broker(self.redis_server, overrides)

    def slow(self, client, kind):
        return client.ok(f"SLOW kind={kind}").items

    def of(self, items, name, **pairs):
        """The items of one lock."""
        return [item for item in items if item["name"] == name and all(
            item.get(key) == value for key, value in pairs.items())]

    def wait_in_redis(self, client, line):
        """Sends it while Redis stands still, and has it answered then."""
        self.redis_server.pause()
        tag = client.submit(line)
        client.no_reply(tag, within=0.3)
        self.redis_server.resume()
        return client.wait(tag)

    def test_a_slow_redis(self):
        broker = self.start(**{"slow.threshold": "10ms"})
        client = self.client(broker, "HELLO name=shop")
        reply = self.wait_in_redis(client, "LOCK a%20b owner=w note=secret")
        self.assertTrue(reply.ok, reply)
        items = self.slow(client, "slow")
        item = self.of(items, "a b", op="acquire")[0]
        self.assertEqual(item["kind"], "slow")
        self.assertEqual(item["client"], "shop")
        self.assertEqual(item["owner"], "w")
        self.assertEqual(item["result"], "ok")
        self.assertEqual(item.number("tries"), 1)
        self.assertGreaterEqual(item.number("total_us"), 10000)
        self.assertEqual(item.number("total_us"),
                         sum(item.number(stage) for stage in STAGES))
        self.assertGreater(item.number("redis_us"), item.number("queued_us"))
        self.assertEqual(item.number("confirm_us"), 0)
        self.assertNotIn("secret", "".join(item.line for item in items))
        self.assertGreaterEqual(broker.metric("slow_operations_total"), 1)

    def test_a_redis_that_is_gone(self):
        """An unsent call was queued all the time."""
        broker = self.start(**{"slow.threshold": "10ms"})
        client = self.client(broker)
        self.redis_server.kill()
        broker.wait_log("redis_link_lost")
        client.err("LOCK a wait=300ms", "UNAVAILABLE")
        item = self.of(self.slow(client, "slow"), "a")[0]
        self.assertEqual(item["result"], "unsent")
        self.assertEqual(item["queued_us"], item["total_us"])
        self.assertEqual(item["tries"], "0")
        self.redis_server.start()

    def test_nothing_is_slow(self):
        broker = self.start(**{"slow.threshold": "0s"})
        client = self.client(broker)
        self.assertTrue(self.wait_in_redis(client, "LOCK a").ok)
        self.assertEqual(self.slow(client, "slow"), [])

    def test_a_loss(self):
        broker = self.start()
        client = self.client(broker)
        fence = client.ok("LOCK a lease=500ms owner=w").fence
        client.event("LOST")
        items = self.slow(client, "lost")
        self.assertEqual(len(items), 1)
        self.assertEqual(items[0]["reason"], "expired")
        self.assertEqual(items[0]["owner"], "w")
        self.assertEqual(items[0].fence, fence)
        self.assertGreater(items[0].number("held_ms"), 0)
        client.ok("LOCK b")
        client.ok("BREAK b")
        client.event("LOST", reason="broken")
        items = self.slow(client, "lost")
        self.assertEqual([item["name"] for item in items], ["b", "a"])
        self.assertEqual((items[0]["reason"], items[0]["late_us"]),
                         ("broken", "0"))
        self.assertEqual(client.ok("SLOW limit=1 kind=lost").number("n"), 1)

    def test_a_late_loss(self):
        """The broker was stopped when its deadline came."""
        broker = self.start()
        client = self.client(broker, "LOCK a lease=500ms")
        broker.pause()
        self.addCleanup(broker.resume)
        client.no_event("LOST", within=1.0)
        broker.resume()
        client.event("LOST")
        item = self.slow(client, "lost")[0]
        self.assertGreater(item.number("late_us"), 100000)

    def test_a_deadlock(self):
        broker = self.start()
        clients = [self.client(broker), self.client(broker)]
        for client, name in zip(clients, "ab"):
            client.ok(f"LOCK {name}")
        waits = [client.submit(f"LOCK {name} progress=1")
                 for client, name in zip(clients, "ba")]
        self.wait_until(lambda: self.slow(clients[0], "deadlock"),
                        what="a deadlock")
        item = self.slow(clients[0], "deadlock")[0]
        ended = "ba".index(item["name"])
        reply = clients[ended].wait(waits[ended])
        self.assertEqual(reply.code, "DEADLOCK")
        self.assertEqual(item["cycle"], reply["cycle"])
        sessions = {held["session"] for held in
                    clients[0].ok("SESSIONS").items if held["waits"] == "1"}
        self.assertEqual(len(item["sessions"].split(",")), 2)
        self.assertIn(item["session"], item["sessions"].split(","))
        self.assertLessEqual(sessions, set(item["sessions"].split(",")))

    def test_bad(self):
        client = self.client(self.start())
        client.err("SLOW kind=fast", "BADREQ")
        client.err("SLOW a", "BADREQ")
        client.err("SLOW limit=x", "BADREQ")
        client.ok("slow KIND=lost limit=0", n=0)

    def test_the_command(self):
        broker = self.start()
        client = self.client(broker)
        for name in "abc":
            client.ok(f"LOCK {name} lease=200ms")
            client.event("LOST")
        result = subprocess.run(
            [HOLDFAST, "-a", broker.address, "-o", "json", "slow", "--kind",
             "lost", "--limit", "2"],
            check=True, stdout=subprocess.PIPE, timeout=30)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([row["name"] for row in rows], ["c", "b"])
        for row in rows:
            self.assertEqual(row["reason"], "expired")
            self.assertIsInstance(row["fence"], int)
            self.assertIsInstance(row["late_us"], int)
