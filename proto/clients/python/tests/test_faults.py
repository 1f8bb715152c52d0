"""Brokers that stop, die, drain and refuse, and clients that die."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest

import fixture
import rig
from fixture import QUICK, holdfast

from harness import Authority  # noqa: E402
from holdfast.net import addresses_of  # noqa: E402

HOLDER = """
import sys
sys.path.insert(0, sys.argv[2])
import holdfast
lock = holdfast.connect(sys.argv[1]).lock("a").acquire()
print(lock.fence, flush=True)
lock.wait_lost()
"""


class StopTest(fixture.Case):
    def test_stopped_broker_and_give_back(self):
        broker = self.broker()
        lost = queue.Queue()
        hf = self.connect(broker, heartbeat=QUICK, on_lost=lost.put)
        lock = hf.lock("a").acquire()
        broker.process.pause()
        begin = time.monotonic()
        self.assertIs(lost.get(timeout=5), lock)
        self.assertLess(time.monotonic() - begin, 3 * QUICK + 0.5)
        with self.assertRaises(holdfast.LockLost) as caught:
            lock.check()
        self.assertEqual(caught.exception.why, "deadline")
        broker.process.resume()
        self.wait_until(lambda: not self.taken(broker, "a"), 10)

    def test_check_asks_nobody(self):
        broker = self.broker()
        hf = self.connect(broker, heartbeat=QUICK)
        lock = hf.lock("a").acquire()
        broker.process.pause()
        begin = time.monotonic()
        lock.check()
        while lock.held:
            lock.left()
        self.assertLess(time.monotonic() - begin, 3 * QUICK + 0.5)
        broker.process.resume()

    def test_deadline_moves_on(self):
        hf = self.connect(self.broker(), heartbeat=QUICK)
        with hf.lock("a") as lock:
            self.assertFalse(lock.wait_lost(3 * QUICK + 1))
            lock.check()


class DeathTest(fixture.Case):
    def test_killed_client(self):
        broker = self.broker()
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, broker.address,
             os.path.join(rig.FOLDER, "src")], stdout=subprocess.PIPE)
        self.addCleanup(child.stdout.close)
        fence = int(child.stdout.readline())
        hf = self.connect(broker)
        with self.assertRaises(holdfast.Busy):
            hf.lock("a", wait=0).acquire()
        child.send_signal(signal.SIGKILL)
        child.wait()
        with hf.lock("a", wait=2) as lock:
            self.assertGreater(lock.fence, fence)

    def test_killed_broker_without_keep(self):
        broker = self.broker()
        hf = self.connect(broker)
        lock = hf.lock("a").acquire()
        errors = queue.Queue()

        def wait():
            try:
                hf.lock("a").acquire()
            except holdfast.HoldfastError as error:
                errors.put(error)

        thread = threading.Thread(target=wait)
        thread.start()
        broker.kill()
        self.assertTrue(lock.wait_lost(5))
        self.assertEqual(lock.lost, "session")
        error = errors.get(timeout=5)
        self.assertEqual((error.code, error.retry), ("GONE", True))
        self.assertIn(f"GONE 'a': {broker.address}: ", str(error))
        with self.assertRaisesRegex(holdfast.LockLost, "^LOST 'a': session$"):
            lock.check()
        with self.assertRaises(holdfast.Unavailable):
            hf.lock("b").acquire()
        broker.start().wait_redis()
        with hf.lock("b") as again:
            again.check()

    def test_kept_session_outlives_its_broker(self):
        broker = self.broker()
        moves = queue.Queue()
        hf = self.connect(broker, keep=20,
                          on_move=lambda: moves.put(None))
        with hf.lock("a") as lock:
            broker.restart(kill=True)
            moves.get(timeout=10)
            self.wait_until(lambda: lock.left() > 3)
            self.assertIsNone(lock.lost)
            self.assertTrue(self.taken(broker, "a"))
        self.assertFalse(self.taken(broker, "a"))

    def test_drain_moves_locks_and_waits(self):
        one, two = self.broker(), self.broker()
        moves = queue.Queue()
        hf = self.connect(one, two, keep=20,
                          on_move=lambda: moves.put(None))
        held = hf.lock("mine").acquire()
        other = self.client(one)  # which holds what hf waits for
        other.ok("LOCK theirs")
        got = queue.Queue()
        thread = threading.Thread(
            target=lambda: got.put(hf.lock("theirs").acquire()))
        thread.start()
        watch = hf.watch("theirs")
        self.assertIsNotNone(next(watch))
        serving = one if one.metric("sessions") > 1 else two
        serving.process.asked_to_end = True
        self.client(serving).ok("DRAIN")
        moves.get(timeout=10)
        self.wait_until(lambda: held.left() > 3)
        other.close()
        lock = got.get(timeout=15)
        lock.release()
        held.release()
        thread.join()

    def test_first_address_does_not_answer(self):
        deaf = self.closing(fixture.deaf())
        broker = self.broker()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        for addresses in ([address, broker.address],
                          [broker.address, address]):
            hf = holdfast.connect(addresses)
            with hf.lock("a"):
                pass
            hf.close()

    def test_no_broker(self):
        port = self.port()
        begin = time.monotonic()
        with self.assertRaises(holdfast.Unavailable) as caught:
            holdfast.connect(f"127.0.0.1:{port.number}")
        self.assertEqual(caught.exception.code, "GONE")
        self.assertIn(f"127.0.0.1:{port.number}: ", str(caught.exception))
        self.assertLess(time.monotonic() - begin, 5)


class AccessTest(fixture.Case):
    def test_users(self):
        path = os.path.join(self.folder(), "users")
        with open(path, "w", encoding="utf-8") as file:
            file.write(fixture.users_line("shop", "s =\u00e9", "lock=stock/*"))
        os.chmod(path, 0o600)
        secret = os.path.join(self.folder(), "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("s =\u00e9\n")
        broker = self.broker(overrides={"auth.users_file": path})
        hf = self.connect(broker, user="shop", secret_file=secret)
        with hf.lock("stock/1"):
            pass
        with self.assertRaises(holdfast.Denied) as caught:
            hf.lock("other").acquire()
        self.assertEqual(caught.exception.code, "DENIED")
        for options in ({}, {"user": "shop", "secret": "wrong"}):
            with self.assertRaises(holdfast.Denied) as caught:
                holdfast.connect(broker.address, **options)
            self.assertEqual(caught.exception.code, "AUTH")
        for options in ({"user": "shop"}, {"secret": "s"},
                        {"user": "shop", "secret": "hidden" * 50},
                        {"user": "shop", "secret": "hidden\ud800"},
                        {"user": "shop", "secret": b"hidden"},
                        {"user": "shop", "secret": "s",
                         "secret_file": secret}):
            with self.assertRaises((holdfast.UsageError, TypeError)) as wrong:
                holdfast.connect(broker.address, **options)
            self.assertNotIn("hidden", str(wrong.exception))

    def test_tls(self):
        trusted, other = Authority(), Authority("other")
        broker = self._started(fixture.TlsBroker(
            trusted.issue("broker", "127.0.0.1")))
        broker.wait_redis()
        hf = self.connect(broker.tls, ca=trusted.cert)
        with hf.lock("a"):
            self.assertTrue(self.taken(broker, "a"))
        self.side_by_side(lambda name: self.pairs(hf, name), "x", "y", "z")
        for options in ({"ca": other.cert},
                        {"ca": trusted.cert, "server_name": "other.example"}):
            with self.assertRaises(holdfast.Unavailable) as caught:
                holdfast.connect(broker.tls, **options)
            self.assertEqual((caught.exception.code, caught.exception.retry),
                             ("TLS", False))
        for options in ({"tls": True}, {"server_name": "127.0.0.1"}):
            with self.assertRaises(holdfast.Unavailable) as caught:
                holdfast.connect(broker.address, **options)  # a plain port
            self.assertEqual(caught.exception.code, "TLS")
        with self.assertRaises(holdfast.UsageError):
            holdfast.connect(broker.tls, key=trusted.cert)
        self.assertEqual(addresses_of("a,[::1],b:1", tls=True),
                         [("a", 4655), ("::1", 4655), ("b", 1)])

    @staticmethod
    def pairs(hf, name):
        for _ in range(50):
            with hf.lock(name):
                pass

    def test_unix_socket(self):
        broker = fixture.Broker(fixture.shared_redis())
        broker.config["listen"]["unix"] = [broker.unix_path]
        self._started(broker).wait_redis()
        with self.connect(broker.unix_path).lock("a"):
            self.assertTrue(self.taken(broker, "a"))


if __name__ == "__main__":
    unittest.main()
