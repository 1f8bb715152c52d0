"""Holds that outlive their session and broker: LOCK detached=1."""

import os
import re
import subprocess
import time

from fake_broker import HOLDFAST
from test_auth import AuthCase
from test_kinds import KindsCase

DAY = 86_400_000
LEAST = DAY * 98 // 100  # that is told of it


class DetachedTest(KindsCase):
    lease = "3s"

    def detach(self, client, ask="LOCK d lease=1h"):
        return client.ok(f"{ask} detached=1", count=1).fence

    def test_outlives_session_and_broker(self):
        one, two = self.brokers
        client = self.client(one, "HELLO name=php")
        reply = client.ok("LOCK d lease=24h detached=1 note=batch", count=1)
        self.assertTrue(LEAST < reply.ttl_ms < DAY)
        client.ok("HELD", n=0)
        client.ok("LOCKS", n=0)
        self.assertNotIn("ttl_ms", client.ok("PING"))
        client.ok("QUIT")
        one.kill()
        other = self.client(two)
        other.err("LOCK d wait=0", "BUSY")
        shown = other.ok("SHOW d", state="held", holders=1).items[0]
        self.assertEqual(
            {key: shown[key] for key in ("detached", "name", "note", "fence")},
            {"detached": "1", "name": "php", "note": "batch",
             "fence": str(reply.fence)})
        renewed = other.ok(f"RENEW d fence={reply.fence} lease=2h detached=1")
        self.assertTrue(7_000_000 < renewed.ttl_ms < 7_200_000)
        tag = other.waits("LOCK d")
        last = self.client(two)
        last.ok(f"UNLOCK d fence={reply.fence} detached=1", count=0)
        self.assertGreater(other.wait(tag).fence, reply.fence)
        one.start()

    def test_a_client_that_sends_it_and_ends(self):
        client = self.connect()
        client.send("1 LOCK d lease=1h detached=1")
        client.finish()
        fence = client.wait("1").fence
        client.event("BYE")
        self.connect().ok(f"UNLOCK d fence={fence} detached=1", count=0)

    def test_by_its_fence_alone(self):
        one, two = self.connect(), self.connect()
        fence = self.detach(one)
        for ask in ("UNLOCK d", "RENEW d lease=1h"):
            one.err(ask, "NOTHELD")
            two.err(f"{ask} fence={fence}", "NOTHELD")
            two.err(f"{ask} fence={fence + 1} detached=1", "NOTHELD")
        own = one.ok("LOCK own lease=1h").fence
        for ask in ("UNLOCK own", "RENEW own lease=1h"):
            two.err(f"{ask} fence={own} detached=1", "CONFLICT")
        two.ok(f"UNLOCK d fence={fence} detached=1", count=0)
        two.err(f"UNLOCK d fence={fence} detached=1", "NOTHELD")
        two.err(f"RENEW d fence={fence} lease=1h detached=1", "NOTHELD")
        one.ok("LOCK d wait=0")

    def test_ends_by_itself(self):
        """For those who wait at any broker, and who watch."""
        client, other = self.connect(), self.connect("WATCH d")
        other.event("FREE")
        self.detach(client, "LOCK d lease=500ms delay=300ms")
        other.event("HELD")
        asked = time.monotonic()
        other.ok("LOCK d wait=10s")
        self.assertGreater(time.monotonic() - asked, 0.6)

    def test_released_with_a_delay(self):
        """A job that ran for a moment runs nowhere else for a while."""
        one, two = self.connect(), self.connect()
        fence = self.detach(one)
        two.ok(f"UNLOCK d fence={fence} detached=1 delay=400ms", count=0)
        asked = time.monotonic()
        one.err("LOCK d wait=0", "BUSY")
        tag = one.waits("LOCK d lease=1h detached=1")
        fence = one.granted(tag).fence
        self.assertGreater(time.monotonic() - asked, 0.3)
        tag = one.waits("LOCK d")  # who waits already has it then
        two.ok(f"UNLOCK d fence={fence} detached=1 delay=400ms", count=0)
        one.granted(tag)

    def test_its_owner_asks_again(self):
        client = self.connect()
        fence = self.detach(client)
        client.err("LOCK d wait=0", "BUSY")
        tag = client.waits("LOCK d")
        self.connect().ok(f"UNLOCK d fence={fence} detached=1")
        client.wait(tag)
        client.err("LOCK d lease=1h detached=1", "CONFLICT")
        client.ok("UNLOCK d", count=0)

    def test_shared_and_permits(self):
        one, two = self.connect(), self.connect()
        for kind, refusal in (("mode=shared", "BUSY"), ("limit=3", "CONFLICT")):
            fences = [self.detach(one, f"LOCK d {kind} lease=1h owner={n}")
                      for n in range(3)]
            self.assertEqual(fences, sorted(set(fences)))
            two.err("LOCK d wait=0", refusal)
            for fence in fences:
                two.ok(f"UNLOCK d fence={fence} detached=1")
            two.ok("SHOW d", state="free")

    def test_is_broken(self):
        one, two = self.connect(), self.connect()
        self.detach(one)
        tag = two.waits("LOCK d")
        one.ok("BREAK d", holders=1)
        two.wait(tag)

    def test_is_no_orphan(self):
        broker = self.broker(self.server, {
            "lease.default": self.lease, "audit.warn_after": "1ms"})
        client = self.client(broker)
        self.detach(client)
        item, = [item for item in client.ok("AUDIT").items
                 if item["name"] == "d"]
        self.assertEqual((item["kind"], item["detached"]), ("held", "1"))

    def test_waiters_for_it_are_in_no_deadlock(self):
        one, two = self.connect(), self.connect()
        fence = self.detach(one)
        two.ok("LOCK e")
        first = two.waits("LOCK d")
        second = one.waits("LOCK e")
        time.sleep(0.3)
        self.connect().ok(f"UNLOCK d fence={fence} detached=1")
        two.wait(first)
        two.ok("UNLOCK e")
        one.wait(second)

    def test_its_owner_is_in_a_deadlock_beside_it(self):
        one, two = self.connect(), self.connect()
        self.detach(one, "LOCK d mode=shared lease=1h")
        two.ok("LOCK d mode=shared")
        one.ok("LOCK e")
        two.waits("LOCK e")
        one.err("LOCK d", "DEADLOCK")

    def test_with_wait_0(self):
        client = self.connect()
        self.detach(client, "LOCK d wait=0 lease=1h")
        client.err("LOCK d wait=0 lease=1h detached=1", "BUSY")


class RightsTest(AuthCase):
    def test_rights(self):
        """The right to lock the name, and the fence."""
        broker = self.users_broker()
        shop = self.user(broker, "shop")
        fence = shop.ok("LOCK stock/1 lease=1h detached=1").fence
        for ask in ("UNLOCK stock/1", "RENEW stock/1 lease=1h"):
            refused = self.user(broker, "desk").err(
                f"{ask} fence={fence} detached=1", "DENIED")
            self.assertEqual(refused["right"], "lock")
        shop.err("LOCK other lease=1h detached=1", "DENIED")
        self.user(broker, "ops").ok(f"UNLOCK stock/1 fence={fence} detached=1")


class CommandTest(KindsCase):
    def run_command(self, *words, status=0):
        done = subprocess.run(
            [HOLDFAST, *words], text=True, capture_output=True, check=False,
            timeout=20, env={
                **os.environ, "HOLDFAST_ADDR": next(self.turn).address})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def test_lock_renew_unlock(self):
        """A process each, and two brokers by turns."""
        said = self.run_command(
            "lock", "--detached", "--lease", "1h", "--note", "a b", "--owner",
            "w", "--delay", "1s", "--wait", "5s", "x y")
        fence, ttl_ms = re.fullmatch(
            r"fence=(\d+) ttl_ms=(\d+)\n", said).groups()
        self.assertTrue(3_500_000 < int(ttl_ms) < 3_600_000)
        said = self.run_command("lock", "--detached", "--lease", "1h",
                                "--wait", "0", "x y", status=124)
        self.assertIn("BUSY", said)
        shown = self.run_command("show", "-o", "json", "x y")
        self.assertIn('"note":"a b"', shown)
        self.assertIn('"detached":1', shown)
        self.assertRegex(self.run_command(
            "renew", "--fence", fence, "--lease", "2h", "x y"),
            r"\Attl_ms=7\d{6}\n\Z")
        self.run_command("unlock", "--fence", fence, "--delay", "1h", "x y")
        self.assertIn("NOTHELD", self.run_command(
            "unlock", "--fence", fence, "x y", status=1))
        self.assertIn("lock-delay", self.run_command(
            "lock", "--detached", "--lease", "1h", "--wait", "0", "x y",
            status=124))

    def test_bad_usage(self):
        for words, said, status in (
                ("lock --detached k", "needs --lease", 125),
                ("lock --detached --lease 25h k", "24h", 125),
                ("lock --detached --lease 1h k j", "one KEY, not 2", 125),
                ("lock --detached --lease 1h --keep 5s k", "--keep", 125),
                ("run --detached k -- true", "no option '--detached'", 125),
                ("unlock k", "--fence is missing", 64),
                ("renew --fence 1 k", "--lease is missing", 64),
                ("renew --lease 1h k", "--fence is missing", 64),
                ("renew --fence 1 --lease 0 k", "0 is not a lease", 64),
                ("renew --fence 1 --lease 25h k", "more than 24h", 64)):
            with self.subTest(words=words):
                self.assertIn(said, self.run_command(*words.split(),
                                                     status=status))
