"""redis.lock.Lock in its place, and that of redis.asyncio."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import unittest

import fixture
import rig
from fixture import holdfast

fixture.frameworks()
import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from redis.exceptions import LockError, LockNotOwnedError  # noqa: E402

from holdfast import redis_lock  # noqa: E402

RELEASE = """
import sys
sys.path[:0] = sys.argv[3:]
import holdfast, redis
from holdfast import redis_lock
with holdfast.connect(sys.argv[1]) as hf:
    lock = redis.Redis().lock("job", timeout=60,
                              lock_class=redis_lock.lock_class(hf))
    lock.local.token = sys.argv[2].encode()
    print(lock.owned(), lock.extend(60), lock.fence)
    lock.release()
"""


class RedisLockTest(fixture.BrokerCase):
    def setUp(self):
        self.hf = self.connect(self.broker_)
        self.redis = redis.Redis(port=1)  # nobody asks it

    def lock(self, name="a", **options):
        return self.redis.lock(
            name, lock_class=redis_lock.lock_class(self.hf), **options)

    def test_acquire_and_release(self):
        for timeout in (None, 30):
            with self.subTest(timeout=timeout):
                lock, other = self.lock(timeout=timeout), self.lock()
                self.assertFalse(lock.locked() or lock.owned())
                self.assertTrue(lock.acquire(blocking=False))
                self.assertTrue(lock.locked() and lock.owned())
                self.assertTrue(other.locked() and not other.owned())
                self.assertEqual(lock.local.token, b"%d" % lock.fence)
                self.assertIs(other.acquire(blocking=False), False)
                begin = time.monotonic()
                self.assertIs(other.acquire(blocking_timeout=0.2), False)
                self.assertGreaterEqual(time.monotonic() - begin, 0.2)
                lock.release()
                self.assertIsNone(lock.local.token)
                with self.assertRaises(LockError):
                    lock.release()
                self.assertTrue(other.acquire())
                other.release()

    def test_context_manager(self):
        with self.lock(timeout=30) as lock:
            self.assertTrue(self.taken(self.broker_, "a"))
            with self.assertRaisesRegex(LockError, "within the time"):
                with self.lock(blocking_timeout=0.05):
                    pass
            with self.assertRaisesRegex(LockError, "the fence"):
                self.lock().acquire(token="mine")
        self.assertFalse(self.taken(self.broker_, "a"))
        self.assertFalse(lock.owned())

    def test_lost(self):
        for timeout in (None, 30):
            for strict in (True, False):
                lock = self.lock(timeout=timeout,
                                 raise_on_release_error=strict)
                with self.subTest(timeout=timeout, strict=strict):
                    try:
                        with lock:
                            self.client(self.broker_).ok("BREAK a")
                            self.wait_until(lambda: not lock.owned())
                    except LockNotOwnedError as error:
                        self.assertTrue(strict)
                        self.assertEqual(error.lock_name, "a")
                        self.assertIsInstance(error.__cause__,
                                              holdfast.HoldfastError)
                    else:
                        self.assertFalse(strict)

    def test_timeout_ends_it(self):
        lock = self.lock(timeout=0.2)
        self.assertTrue(lock.acquire())
        with self.lock(blocking_timeout=5):
            self.assertFalse(lock.owned())
            for use in (lock.reacquire, lambda: lock.extend(5), lock.release):
                with self.assertRaises(LockNotOwnedError):
                    use()

    def test_extend_and_reacquire(self):
        lock = self.lock(timeout=20)
        for use in (lock.reacquire, lambda: lock.extend(5)):
            with self.assertRaises(LockError):
                use()
        with lock:
            self.assertIs(lock.extend(20), True)
            self.assertTrue(38 < lock.local.hold.left() < 40)
            lock.extend(10, replace_ttl=True)
            self.assertTrue(9 < lock.local.hold.left() < 10)
            self.assertIs(lock.reacquire(), True)
            self.assertTrue(19 < lock.local.hold.left() < 20)
        with self.lock() as lock:
            for use in (lock.reacquire, lambda: lock.extend(5)):
                with self.assertRaisesRegex(LockError, "no timeout"):
                    use()

    def test_token_in_another_process(self):
        lock = self.lock("job", timeout=60)
        lock.acquire()
        self.hf.close()
        paths = [os.path.join(rig.FOLDER, "src"), *sys.path]
        told = subprocess.run(
            [sys.executable, "-c", RELEASE, self.broker_.address,
             lock.local.token, *paths], check=True, capture_output=True,
            text=True, timeout=60).stdout
        self.assertEqual(told.split(), ["True", "True", str(lock.fence)])
        self.assertFalse(self.taken(self.broker_, "job"))

    def test_tokens(self):
        for timeout in (None, 60):
            one, two = self.lock(timeout=timeout), self.lock(timeout=timeout)
            one.acquire()
            for wrong in (b"7", "0c1d", "-1"):
                with self.assertRaises(LockError):
                    two.do_release(wrong)
            two.local.token = one.local.token
            self.assertTrue(two.owned())
            two.release()
            with self.assertRaises(LockNotOwnedError):
                one.release()

    def test_threads(self):
        for local in (True, False):
            lock, seen = self.lock(thread_local=local), []
            lock.acquire()

            def use():
                seen.append(lock.owned())
                try:
                    lock.release()
                except LockError:
                    seen.append("not mine")
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            self.assertEqual(seen, [False, "not mine"] if local else [True])
            if local:
                lock.release()

    def test_example(self):
        fences = []
        exec(fixture.example("redis-py", self.broker_), {
            "write": lambda fence: fences.append(fence)})
        self.assertEqual(len(fences), 1)

    def test_no_broker(self):
        self.hf.close()
        with self.assertRaisesRegex(LockError, "CLOSED"):
            self.lock().acquire()

    def test_asyncio(self):
        async def work(hf):
            client = redis.asyncio.Redis(port=1)

            def lock(**options):
                return client.lock(
                    "a", lock_class=redis_lock.lock_class(hf), **options)
            for timeout in (None, 20):
                async with lock(timeout=timeout) as held:
                    self.assertTrue(await held.owned() and
                                    await held.locked())
                    other = lock(timeout=timeout, blocking_timeout=0.1)
                    self.assertFalse(await other.acquire())
                    self.assertFalse(await other.owned())
                    with self.assertRaises(LockError):
                        await other.release()
                    if timeout:
                        await held.extend(20)
                        self.assertGreater(held.local.hold.left(), 38)
                        await held.reacquire()
                        self.assertLess(held.local.hold.left(), 20)
                self.assertFalse(await held.locked())
            held = lock(timeout=0.1)
            await held.acquire()
            async with lock():
                with self.assertRaises(LockNotOwnedError):
                    await held.release()
        self.run_async(work, self.broker_)


if __name__ == "__main__":
    unittest.main()
