"""Locks for threads, at a real broker."""

import concurrent.futures
import linecache
import os
import queue
import signal
import socket
import sys
import threading
import time
import unittest

import fixture
from fixture import holdfast
from holdfast import once


class LockTest(fixture.BrokerCase):
    def setUp(self):
        self.hf = self.connect(self.broker_)

    def test_lock(self):
        with self.hf.lock("a b", wait=5, note="n") as lock:
            self.assertEqual(lock.name, "a b")
            first = lock.fence
            self.assertTrue(0 < lock.left() <= 6)
            lock.check()
            self.assertIn("a b", repr(lock))
            with self.assertRaises(holdfast.Busy):
                self.hf.lock("a b", wait=0).acquire()
            with self.assertRaises(holdfast.TimedOut):
                self.hf.lock("a b", wait=0.1).acquire()
        with self.assertRaises(holdfast.NotHeld):
            lock.check()
        with self.assertRaises(holdfast.NotHeld):
            lock.release()
        with lock:  # once more
            self.assertGreater(lock.fence, first)

    def test_threads_exclude_each_other(self):
        inside, most, done = [], [], []

        def work(_):
            for _ in range(20):
                with self.hf.lock("one"):
                    inside.append(1)
                    most.append(len(inside))
                    time.sleep(0.001)  # others would come in
                    inside.pop()
                    done.append(1)

        self.side_by_side(work, *[(user,) for user in range(8)])
        self.assertEqual((max(most), len(done)), (1, 160))

    def test_owner_may_enter_twice(self):
        with self.hf.lock("a", owner="o") as one:
            with self.hf.lock("a", owner="o") as two:
                self.assertEqual(one.fence, two.fence)
            one.check()
            self.assertTrue(self.taken(self.broker_, "a"))
        self.assertFalse(self.taken(self.broker_, "a"))

    def test_help_has_all_arguments(self):
        for kind in (holdfast.ConnectArgs, holdfast.LockArgs):
            for key in kind.__annotations__:
                self.assertRegex(kind.__doc__, rf"\b{key}(, \w+)*: ")

    def test_named_owner_is_not_the_default_one(self):
        with self.hf.lock("a") as lock:
            for owner in ("1", "2", "3"):
                with self.assertRaises(holdfast.Busy):
                    self.hf.lock("a", owner=owner, wait=0).acquire()
            with self.assertRaises(holdfast.UsageError):
                self.hf.lock("a", owner=lock._holds[0].owner)

    def test_several_names(self):
        with self.hf.lock("x/1", "x/2") as (one, two):
            self.assertEqual((one.name, two.name), ("x/1", "x/2"))
            two.check()
            with self.assertRaises(holdfast.Busy):
                self.hf.lock("x/2", wait=0).acquire()
        with self.hf.lock("x/2", wait=0):
            pass

    def test_kinds(self):
        hf = self.hf
        with hf.shared("s"), hf.shared("s", wait=0):
            with self.assertRaises(holdfast.Busy):
                hf.lock("s", wait=0).acquire()
        with hf.semaphore("p", limit=3, permits=3) as permits:
            permits.give(1)
            with hf.semaphore("p", limit=3, wait=0):
                hf.resize("p", 5)
            with self.assertRaises(holdfast.Conflict):
                hf.semaphore("p", limit=3).acquire()
        with hf.upgradable("u") as reader, hf.shared("u") as other:
            with self.assertRaises(holdfast.TimedOut):
                reader.upgrade(wait=0.1).acquire()
            other.release()
            with reader.upgrade() as writer:
                self.assertGreater(writer.fence, reader.fence)
                self.assertTrue(self.taken(self.broker_, "u"))
            with hf.shared("u", wait=0):
                reader.check()
        with hf.lock("t/1/x", tree=True), hf.lock("t/2", tree=True, wait=0):
            with self.assertRaises(holdfast.Busy):
                hf.lock("t/1", tree=True, wait=0).acquire()

    def test_lease_renew_and_note(self):
        watch = self.hf.watch("a")
        self.assertIsNone(next(watch))
        with self.hf.lock("a", lease=0.5, note="one") as lock:
            self.assertEqual(next(watch).note, "one")
            lock.renew(60)
            self.assertGreater(lock.left(), 3)
            lock.note("two")
            self.assertEqual(next(watch), holdfast.Member(
                "a", lock.fence, "two", owner=lock._holds[0].owner))
        self.assertIsNone(next(watch))
        watch.close()
        self.assertEqual(list(watch), [])

    def test_lease_ends(self):
        lost = queue.Queue()
        lock = self.hf.lock("a", lease=0.2, on_lost=lost.put).acquire()
        self.assertTrue(lock.wait_lost(5))
        self.assertIs(lost.get(timeout=5), lock)
        with self.assertRaises(holdfast.LockLost) as caught:
            lock.check()
        self.assertIn(caught.exception.why, ("expired", "deadline"))
        with self.assertRaises(holdfast.LockLost):
            lock.release()

    def test_body_that_was_not_protected(self):
        with self.assertRaises(holdfast.LockLost):
            with self.hf.lock("a") as lock:
                self.client(self.broker_).ok("BREAK a")
                self.assertTrue(lock.wait_lost(5))
                with self.assertRaisesRegex(holdfast.LockLost, "'a': broken"):
                    lock.renew(5)
        with self.assertRaises(KeyError):  # it counts more
            with self.hf.lock("a") as lock:
                self.client(self.broker_).ok("BREAK a")
                self.assertTrue(lock.wait_lost(5))
                raise KeyError("x")

    def test_detached(self):
        taken = self.hf.detached("job", lease=60)
        with self.connect(self.broker_) as other:
            held = other.adopt("job", taken.fence)
            held.renew(30)
            self.assertTrue(25 < held.left() < 30)
            held.release()
            with self.assertRaises(holdfast.NotHeld):
                held.release()
        self.assertFalse(self.taken(self.broker_, "job"))

    def test_await_free(self):
        freed = []
        with self.hf.lock("a", note="n") as lock:
            with self.assertRaises(holdfast.Busy):
                self.hf.await_free("a", wait=0)
            waiter = threading.Thread(
                target=lambda: freed.append(self.hf.await_free("a", wait=5)))
            waiter.start()
            self.wait_until(lambda: self.broker_.metric("awaiting") == 1)
        waiter.join()
        self.assertEqual(freed[0].fence, lock.fence)

    def test_members(self):
        with self.hf.members("g") as members:
            self.assertEqual(next(members), [])
            with self.hf.shared("g", note="w1"), self.hf.shared("g"):
                self.assertEqual([one.note for one in next(members)], ["w1"])
                self.assertEqual(len(next(members)), 2)
            self.assertEqual(len(next(members)), 1)

    def test_two_watches_of_one_name(self):
        with self.hf.watch("a"):
            with self.assertRaises(holdfast.Conflict):
                self.hf.watch("a")

    def test_wanted(self):
        told = queue.Queue()
        with self.hf.lock("a", on_wanted=lambda *args: told.put(args)) as lock:
            other = self.client(self.broker_)
            other.send("1 LOCK a")
            self.assertEqual(told.get(timeout=5), (lock, 1))
        other.granted("1")

    def test_decorator(self):
        runs = []

        @self.hf.locked("job-{0}", wait=0, skip=True)
        def job(day, fail=False):
            """Of the day."""
            runs.append(day)
            job("other")
            job(day)  # it is held: skipped
            return day

        with self.hf.lock("job-busy"):
            self.assertIsNone(job("busy"))
        self.assertEqual(job("mon"), "mon")
        self.assertEqual(job.__doc__, "Of the day.")
        self.assertEqual(runs, ["mon", "other"])
        named = self.hf.locked("job-{day}-{part}", wait=0)(
            lambda day, part=1: self.taken(self.broker_, f"job-{day}-{part}"))
        for held in (job(day="tue"), named("mon"), named(day="mon", part=2)):
            self.assertTrue(held)
        with self.assertRaisesRegex(TypeError, "day"):
            named()

    def test_lead(self):
        terms = []

        def work(lock):
            terms.append(lock.fence)
            if len(terms) == 1:
                self.client(self.broker_).ok("BREAK leader")
                lock.wait_lost()
                lock.check()
            return "done"

        self.assertEqual(self.hf.lead("leader", work, note="me"), "done")
        self.assertEqual(len(terms), 2)

    def test_lead_ends_by_the_loss_of_another_lock(self):
        terms = []

        def work(lock):
            terms.append(lock.fence)
            with self.hf.lock("other") as other:
                self.client(self.broker_).ok("BREAK other")
                other.wait_lost()
                other.check()

        with self.assertRaisesRegex(holdfast.LockLost, "'other'"):
            self.hf.lead("leader", work)
        self.assertEqual(len(terms), 1)

    def test_release_without_its_answer(self):
        for _ in range(100):
            with self.hf.lock("a", wait=5, confirm=False):
                pass
        with self.assertRaises(holdfast.LockLost):
            with self.hf.lock("a", confirm=False) as lock:
                self.client(self.broker_).ok("BREAK a")
                self.assertTrue(lock.wait_lost(5))
        with self.hf.lock("a", wait=5) as lock:
            lock.release(delay=0.2)
        with self.assertRaises(holdfast.Busy):
            self.hf.lock("a", wait=0).acquire()
        with self.hf.lock("a", wait=5):
            pass

    def test_deadlock(self):
        hf = self.hf
        with hf.lock("d1", owner="a"), hf.lock("d2", owner="b"):
            caught = []
            self.side_by_side(
                lambda lock: self.keep_error(lock, caught),
                (hf.lock("d2", owner="a", wait=5),),
                (hf.lock("d1", owner="b", wait=5),))
        cycles = [set(error.cycle) for error in caught
                  if isinstance(error, holdfast.Deadlock)]
        self.assertEqual(cycles, [{"d1", "d2"}])

    @staticmethod
    def keep_error(lock, errors):
        try:
            with lock:
                pass
        except holdfast.HoldfastError as error:
            errors.append(error)

    def test_cancel(self):
        token = holdfast.Canceller()
        with self.hf.lock("a"):
            timer = threading.Timer(0.1, token.cancel)
            timer.start()
            with self.assertRaises(holdfast.Cancelled):
                self.hf.lock("a", cancel=token).acquire()
            with self.assertRaises(holdfast.Cancelled):  # it stays so
                self.hf.await_free("a", cancel=token)
        with self.hf.lock("a", wait=2):  # no place in the queue is left
            pass

    def test_close_ends_waits(self):
        errors = queue.Queue()

        def wait():
            try:
                self.hf.lock("a").acquire()
            except holdfast.HoldfastError as error:
                errors.put(error)

        lost = queue.Queue()
        lock = self.hf.lock("a", on_lost=lost.put).acquire()
        threading.Thread(target=wait).start()
        ends = threading.Thread(target=lambda: lost.put(lock.wait_lost(20)))
        ends.start()
        self.wait_until(lambda: lock._gone is not None)
        self.wait_until(lambda: self.broker_.metric("tickets") == 2)
        self.hf.close()
        self.assertIs(lost.get(timeout=1), True)
        self.assertIsInstance(errors.get(timeout=1), holdfast.Closed)
        self.assertFalse(lock.held)
        self.assertFalse(self.taken(self.broker_, "a"))
        for _ in range(20):  # in threads that may have the old one's number
            threading.Thread(target=wait).start()
            self.assertIsInstance(errors.get(timeout=1), holdfast.Closed)

    def test_close_leaves_no_socket(self):
        with self.assertRaises(holdfast.Unavailable):
            holdfast.connect("127.0.0.1:1")
        with holdfast.connect(self.broker_.address) as hf, hf.lock("a"):
            own = [hf.engine._bell, hf.engine._ear, hf.engine._sock]
        self.assertEqual([sock.fileno() for sock in own], [-1] * 3)
        with self.assertRaises(holdfast.Closed):
            hf.lock("a").acquire()

    def test_hooks(self):
        told = queue.Queue()
        hf = self.connect(
            self.broker_, name="shop 7",
            on_wait=lambda lock, keys: told.put(("wait", keys["position"])),
            on_grant=lambda lock, seconds: told.put(("grant", seconds > 0)))
        with hf.lock("a"):
            threading.Thread(target=self.keep_error,
                             args=(hf.lock("a", wait=5), [])).start()
            self.assertEqual(told.get(timeout=5), ("grant", True))
            self.assertEqual(told.get(timeout=5), ("wait", "1"))
        self.assertEqual(told.get(timeout=5), ("grant", True))

    def test_hook_that_would_block_the_thread(self):
        told = queue.Queue()

        def hook(_lock):
            try:
                self.hf.lock("b").acquire()
            except holdfast.HoldfastError as error:
                told.put(error)

        self.hf.lock("a", lease=0.1, on_lost=hook).acquire()
        self.assertIsInstance(told.get(timeout=5), holdfast.UsageError)
        with self.hf.lock("c"):
            pass

    def test_arguments(self):
        for wrong in (lambda: self.hf.lock(), lambda: self.hf.lock(""),
                      lambda: self.hf.lock("a", wait=-1),
                      lambda: self.hf.lock(*map(str, range(17)))):
            with self.assertRaises(holdfast.UsageError):
                wrong()
        with self.assertRaises(TypeError):
            self.hf.lock("a", wat=1)
        with self.assertRaises(holdfast.UsageError):
            self.hf.lock("\ud800")
        with self.hf.lock("a") as lock, \
                self.assertRaises(holdfast.UsageError):
            lock.acquire()
        for wrong in ("", "a:b", ":1", "a:99999", "::1", "tcp://a:4653",
                      [], "a,"):
            with self.assertRaises(holdfast.UsageError):
                holdfast.connect(wrong)
        for wrong in (None, 4653, b"a", ("a", 4653)):
            with self.assertRaises(TypeError):
                holdfast.connect(wrong)
        with self.assertRaises(holdfast.UsageError):
            holdfast.connect("a", user="u")

    def test_errors_of_arguments_have_the_value(self):
        usage, lock, connect = holdfast.UsageError, self.hf.lock, \
            holdfast.connect
        for call, error, keys in (
                (lock, TypeError, {"wait": "5s"}), (lock, usage, {"wait": -1}),
                (lock, usage, {"lease": 0}), (lock, TypeError, {"lease": "1"}),
                (lock, usage, {"delay": 1e6}), (lock, usage, {"note": ""}),
                (lock, usage, {"owner": ""}), (lock, TypeError, {"owner": 7}),
                (lock, TypeError, {"on_lost": "f"}),
                (lock, TypeError, {"cancel": "c"}),
                (self.hf.await_free, usage, {"wait": -1}),
                (connect, TypeError, {"keep": "30s"}),
                (connect, usage, {"keep": float("nan")}),
                (connect, usage, {"heartbeat": 0.01}),
                (connect, TypeError, {"heartbeat": "2"}),
                (connect, TypeError, {"name": 7}),
                (connect, usage, {"name": "x" * 65}),
                (connect, TypeError, {"on_move": 5})):
            (key, value), = keys.items()
            with self.subTest(call=call.__name__, key=key, value=value), \
                    self.assertRaises(error) as raised:
                call("a", **keys)
            self.assertIn(key, str(raised.exception))
            self.assertIn(str(value)[:40], str(raised.exception))
        for name in (None, 5, ["a"]):
            with self.assertRaises(TypeError):
                lock(name)
        with self.assertRaisesRegex(usage, "256 bytes"):
            lock("x" * 256)

    def test_refused_release_keeps_the_lock(self):
        with self.hf.lock("a") as lock:
            for delay, error in ((-1, holdfast.UsageError), ("1", TypeError)):
                with self.assertRaises(error):
                    lock.release(delay=delay)
            with self.assertRaises(holdfast.UsageError):
                lock.renew(-1)
            lock.check()
        self.assertFalse(self.taken(self.broker_, "a"))

    def test_bytes_in_names(self):
        for name in (b"\xff\x00 =%:", ":x", "caf\u00e9", "x" * 255):
            with self.hf.lock(name) as lock:
                lock.check()
                with self.assertRaises(holdfast.Busy):
                    self.hf.lock(name, wait=0).acquire()

    def test_interrupted_wait(self):
        def interrupt(_number, _frame):
            raise KeyboardInterrupt

        other = self.connect(self.broker_)
        with other.lock("a"):
            for after in (0.005, 0.2):  # the caller reads, the thread does
                before = signal.signal(signal.SIGALRM, interrupt)
                try:
                    with self.assertRaises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, after)
                        self.hf.lock("a").acquire()
                finally:
                    signal.signal(signal.SIGALRM, before)
                begin = time.monotonic()
                for _ in range(5):
                    with self.hf.lock("b"):
                        pass
                self.assertLess(time.monotonic() - begin, 1)
        with other.lock("a", wait=2):
            pass

    def test_interrupt_at_each_line_of_a_grant(self):
        other = self.connect(self.broker_)

        def enter(take, at):
            """Whether the body is reached, with Ctrl-C at that line."""
            left = [at]

            def trace(frame, kind, _argument):
                code = frame.f_code
                ours = code.co_filename == holdfast.threads.__file__ or \
                    code.co_name in ("ask", "_read_own")
                # No signal comes just before the end of a `with`, nor at the
                # return to a caller that keeps what it gets.
                if ours and (kind == "line" and "mutex:" not in
                             linecache.getline(code.co_filename,
                                               frame.f_lineno) or
                             kind == "return" and code.co_name not in
                             ("__enter__", "detached")):
                    left[0] -= 1
                    if left[0] == 0:
                        sys.settrace(None)
                        raise KeyboardInterrupt
                return trace if ours else None

            try:
                sys.settrace(trace)
                return take()
            except KeyboardInterrupt:
                return False
            finally:
                sys.settrace(None)

        def lock():
            with self.hf.lock("a", wait=5):
                sys.settrace(None)
                return True

        def detached():
            held = self.hf.detached("a", lease=60, wait=5)
            sys.settrace(None)
            held.release()
            return True

        for take, least in ((lock, 40), (detached, 20)):
            at = 1
            while not enter(take, at):
                with self.subTest(take=take.__name__, at=at), \
                        other.lock("a", wait=5):
                    pass
                at += 1
            self.assertGreater(at, least)

    def test_one_attempt_for_all_who_wait(self):
        """As frameworks connect: three threads, and a peer that is silent."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = once.Once(lambda: {
                "addresses": "127.0.0.1:%d" % silent.getsockname()[1],
                "timeout": 2})
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                errors = [task.exception() for task in [
                    pool.submit(client) for _ in range(3)]]
        self.assertIsInstance(errors[0], holdfast.Unavailable)
        self.assertEqual(len(set(map(id, errors))), 1)

    def test_interrupt_at_each_line_of_a_release(self):
        other, lock = self.connect(self.broker_), self.hf.lock("a", wait=5)

        def ended(at):
            """Whether release() ended, with Ctrl-C at that line."""
            left = [at]

            def trace(frame, kind, _argument):
                if frame.f_code.co_name not in ("ask", "make", "_read_own"):
                    return None
                left[0] -= kind == "line" and "mutex:" not in linecache.getline(
                    frame.f_code.co_filename, frame.f_lineno)
                if left[0] == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
                return trace

            try:
                sys.settrace(trace)
                lock.release()
                return True
            except KeyboardInterrupt:
                return False
            finally:
                sys.settrace(None)

        at, over = 0, False
        while not over:
            at += 1
            lock.acquire()
            over = ended(at)
            with self.subTest(at=at), other.lock("a", wait=5):
                self.assertFalse(lock.held)
        self.assertGreater(at, 20)

    def test_object_that_holds_nothing(self):
        lock = self.hf.lock("a")
        for _ in range(2):
            for use in (lock.release, lock.upgrade, lock.note,
                        lambda: lock.renew(5), lambda: lock.give(1)):
                with self.assertRaisesRegex(holdfast.NotHeld, "'a'"):
                    use()
            with lock:
                pass

    def test_fork(self):
        with self.hf.lock("a") as lock:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    lock.check()
                except holdfast.LockLost:
                    try:
                        self.hf.lock("a", wait=0).acquire()
                    except holdfast.Busy:  # by a connection of its own
                        status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            lock.check()
            self.assertTrue(self.taken(self.broker_, "a"))


if __name__ == "__main__":
    unittest.main()
