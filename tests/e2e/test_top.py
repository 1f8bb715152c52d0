"""TOP: what is waited for most, and who is oldest."""

import json
import subprocess

from fake_broker import HOLDFAST
from harness import HarnessCase
from test_auth import AuthCase


def of_kind(items, kind):
    return [item for item in items if item["kind"] == kind]


class TopTest(HarnessCase):
    def start(self):
        return self.broker(self.redis())

    def top(self, client, kind, request="TOP"):
        return of_kind(client.ok(request).items, kind)

    def waiting(self, client, count):
        """Once so many wait, those that TOP tells of."""
        self.wait_until(lambda: len(self.top(client, "waiter")) == count,
                        what=f"{count} waits")
        return self.top(client, "waiter")

    def test_what_is_told(self):
        broker = self.start()
        one, two, three = (self.client(broker) for _ in range(3))
        one.ok("HELLO name=shop%20%31")
        fence = one.ok("LOCK hot%20%3D owner=w note=n%0A").fence
        one.ok("LOCK cold")
        first = two.submit("LOCK hot%20%3D note=second")
        self.waiting(one, 1)
        second = three.submit("LOCK hot%20%3D mode=shared")
        waiters = self.waiting(one, 2)
        self.assertEqual([(item["name"], item.get("note"), item.get("mode"))
                          for item in waiters],
                         [("hot =", "second", None), ("hot =", None, "shared")])
        holders = self.top(one, "holder")
        self.assertEqual([item["name"] for item in holders], ["hot =", "cold"])
        held = holders[0]
        self.assertEqual((held["client"], held["owner"], held["note"]),
                         ("shop 1", "w", "n\n"))
        self.assertEqual(held.fence, fence)
        shown = one.ok("SHOW hot%20%3D").items
        self.assertEqual(held["session"], shown[0]["session"])
        contended, = self.top(one, "contended")
        self.assertEqual((contended["name"], contended["waits"],
                          contended["waiters"]), ("hot =", "2", "2"))
        one.ok("UNLOCK hot%20%3D owner=w")
        two.granted(first)
        self.waiting(one, 1)
        self.assertEqual([item["name"] for item in self.top(one, "holder")],
                         ["cold", "hot ="])
        two.ok("UNLOCK hot%20%3D")
        three.granted(second)
        self.waiting(one, 0)
        contended, = self.top(one, "contended")
        self.assertEqual((contended["waits"], contended["waiters"]),
                         ("2", "0"))
        self.assertEqual(self.top(one, "waiter", "TOP limit=0"), [])
        self.assertEqual(one.ok("TOP limit=1").number("n"), 2)

    def test_bad(self):
        client = self.client(self.start())
        client.err("TOP a", "BADREQ")
        client.err("TOP limit=x", "BADREQ")
        client.err("TOP kind=holder", "BADREQ")
        client.ok("top LIMIT=0", n=0)

    def test_the_command(self):
        broker = self.start()
        client = self.client(broker, "LOCK a%09b note=123", "LOCK c")

        def top(*words):
            return subprocess.run(
                [HOLDFAST, "-a", broker.address, "top", *words],
                check=True, stdout=subprocess.PIPE, timeout=30).stdout

        row = json.loads(top("-o", "json", "-n", "1"))
        self.assertEqual((row["kind"], row["name"], row["note"]),
                         ("holder", "a\tb", "123"))
        self.assertIsInstance(row["fence"], int)
        self.assertIsInstance(row["age_ms"], int)
        rows = top().decode().splitlines()
        self.assertEqual(len(rows), 2)
        fields = rows[0].split("\t")
        self.assertEqual(len(fields), 13)
        self.assertEqual((fields[0], fields[1], fields[10]),
                         ("holder", r"a\x09b", "123"))
        self.assertIn("KIND", top("-o", "columns").decode())


class RightsTest(AuthCase):
    def test_who_is_told(self):
        broker = self.users_broker()
        shop, desk, ops = (self.user(broker, name)
                           for name in ("shop", "desk", "ops"))
        shop.ok("LOCK nightly")
        shop.ok("LOCK stock/1")
        tags = [ops.submit(f"LOCK {name}") for name in ("nightly", "stock/1")]
        self.wait_until(lambda: ops.ok("TOP").number("n") == 6,
                        what="two waits")
        for client, names in ((shop, {"nightly", "stock/1"}),
                              (desk, {"stock/1"}),
                              (ops, {"nightly", "stock/1"})):
            items = client.ok("TOP").items
            self.assertEqual(len(items), 3 * len(names))
            self.assertEqual({item["name"] for item in items}, names)
        nobody = self.client(broker)
        nobody.err("TOP", "AUTH")
        for tag in tags:
            ops.ok(f"CANCEL {tag}")

    def test_the_command(self):
        broker = self.users_broker()
        self.user(broker, "shop").ok("LOCK nightly")
        self.ends(0, broker, "desk", "top", out=b"")
        done = self.command(broker, "shop", "top")
        self.assertTrue(done.stdout.startswith(b"holder\tnightly\t"))
        self.ends(1, broker, None, "top", err=b"AUTH")


del AuthCase  # its tests are none of this file
