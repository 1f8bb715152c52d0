"""Connecting, and locks: the core without I/O."""

import unittest

import rig
from holdfast import errors, model
from holdfast.core import Link
from holdfast.wire import LINE_MAX


class ConnectTest(rig.CoreTest):
    def test_greeting_and_hello_come_first(self):
        r = rig.Rig(name="shop 7", keep=30)
        ready, lock = r.core.ready(), r.core.lock(("a",))
        r.dial().says(rig.GREETING)
        self.assertEqual(
            r.sent(), ["1 HELLO name=shop%207 heartbeat=2000 keep=30000"])
        self.assertFalse(ready.done)
        r.says("1 OK session=ab12 proto=1 keep_ms=30000")
        self.assertEqual(r.sent(), ["2 LOCK a owner=~1"])
        self.assertTrue(ready.done)
        self.assertFalse(lock.done)

    def test_auth_is_answered_before_anything_is_sent(self):
        r = rig.Rig(user="u", secret="s =", heartbeat=0)
        ready = r.core.ready()
        r.core.lock(("a",))
        r.dial().says(rig.GREETING + " auth=required")
        self.assertEqual(r.sent(), ["1 AUTH u s%20%3D"])
        r.now += 8  # as long as an AUTH may take
        r.core.tick()
        r.says("1 OK")
        self.assertEqual(r.sent(), ["2 HELLO"])
        r.says("2 OK session=ab12 proto=1")
        self.assertEqual(r.sent(), ["3 LOCK a owner=~1"])
        self.assertIsNone(self.answered(ready))

    def test_refused_user(self):
        for lines, user in ((("1 ERR AUTH retry=0",), "u"),
                            ((), None)):
            with self.subTest(user=user):
                r = rig.Rig(user=user, secret="s")
                ready = r.core.ready()
                r.dial(more=True)
                r.says(rig.GREETING + " auth=required", *lines)
                self.assertEqual(self.answered(ready), "AUTH")
                self.assertIsInstance(ready.error, errors.Denied)
                self.assertIs(r.core.link, Link.IDLE)

    def test_next_address_of_the_round(self):
        r = rig.Rig()
        ready = r.core.ready()
        r.dial(more=True).says("* BYE limit")
        self.assertFalse(ready.done)
        self.assertEqual(r.core.dial_at, r.now)  # without a pause
        r.dial(more=False).says("* BYE limit")
        self.assertEqual(self.answered(ready), "GONE")

    def test_silent_and_foreign_peers(self):
        r = rig.Rig()
        for what, end in (
                ("silent", lambda: r.pass_time(10)),
                ("other protocol", lambda: r.says("* HELLO proto=2")),
                ("other peer", lambda: r.says("SSH-2.0-OpenSSH_9")),
                ("control bytes", lambda: r.core.receive(b"\x15\3\1\0\n")),
                ("too long", lambda: r.core.receive(b"x" * LINE_MAX + b"x")),
                ("bad escape", lambda: r.says("* HELLO proto=%1"))):
            with self.subTest(what):
                ready = r.core.ready()
                r.dial()
                end()
                self.assertEqual(self.answered(ready),
                                 "GONE" if what == "silent" else "PROTOCOL")

    def test_pauses_grow(self):
        r = rig.Rig()
        pauses = []
        for _ in range(9):
            r.core.ready()
            r.dial()
            r.core.lost("reset")
            pauses.append(r.core.dial_at - r.now)
        self.assertEqual(pauses, sorted(pauses))
        self.assertLess(pauses[0], 0.2)
        self.assertTrue(1 <= pauses[-1] <= 2)


class LockTest(rig.CoreTest):
    def test_each_lock_has_its_owner(self):
        r = rig.Rig().open()
        r.core.lock(("a",))
        r.core.lock(("a",))
        r.core.lock(("a", "b"), owner="till 3", wait=0, lease=1.5, limit=5,
                    permits=2, mode="shared", note="n", delay=2, wanted=True,
                    detached=True, tree=True)
        self.assertEqual(r.sent(), [
            "2 LOCK a owner=~1", "3 LOCK a owner=~2",
            "4 LOCK a b owner=till%203 lease=1500 delay=2000 mode=shared "
            "limit=5 permits=2 note=n wanted=1 detached=1 tree=1 wait=0"])

    def test_unlock_has_the_fence(self):
        r = rig.Rig().open()
        hold = r.grant()
        call = r.core.unlock(hold)
        self.assertEqual(r.sent(), ["3 UNLOCK a fence=7 owner=~1"])
        self.assertEqual(hold.left(r.now), 0)  # from the sending on
        r.says("3 OK count=0")
        self.assertIsNone(self.answered(call))
        self.assertEqual(r.core.holds, {})

    def test_errors(self):
        r = rig.Rig().open()
        for line, kind, retry in (
                ("BUSY retry=1 position=1", errors.Busy, True),
                ("TIMEOUT retry=1", errors.TimedOut, True),
                ("UNAVAILABLE retry=1 after_ms=1500", errors.Unavailable,
                 True),
                ("NEWCODE retry=1 :text", errors.HoldfastError, True),
                ("DEADLOCK retry=1 cycle=a,b%252Cc,", errors.Deadlock, True),
                ("BADREQ retry=0", errors.UsageError, False)):
            call = r.core.lock(("a",))
            tag = r.sent()[0].split()[0]
            r.says(f"{tag} ERR {line}")
            self.assertIs(type(call.error), kind)
            self.assertEqual(call.error.code, line.split()[0])
            self.assertEqual(call.error.retry, retry)
            if kind is errors.Deadlock:
                self.assertEqual(call.error.cycle, ["a", "b,c", ""])
            if kind is errors.Unavailable:
                self.assertEqual(call.error.after, 1.5)

    def test_lost_is_of_name_owner_and_fence(self):
        r = rig.Rig().open()
        hold = r.grant()
        r.says("* LOST a fence=6 reason=gone owner=~1",
               "* LOST a fence=7 reason=gone owner=~2",
               "* LOST b fence=7 reason=gone owner=~1")
        self.assertIsNone(hold.lost)
        r.says("* LOST a fence=7 reason=expired owner=~1")
        self.assertEqual(hold.lost, "expired")
        self.assertEqual(r.seen(model.Lost), [model.Lost(hold)])
        call = r.core.unlock(hold)
        self.assertEqual(self.answered(call), "LOST")
        self.assertEqual(r.sent(), [])

    def test_lost_while_unlocking(self):
        r = rig.Rig().open()
        hold = r.grant()
        call = r.core.unlock(hold)
        r.says("* LOST a fence=7 reason=gone owner=~1", "3 ERR LOST retry=0")
        self.assertEqual(self.answered(call), "LOST")
        self.assertEqual(r.seen(model.Lost), [])

    def test_unlock_that_is_refused_by_a_limit_is_sent_again(self):
        r = rig.Rig().open()
        call = r.core.unlock(r.grant())
        r.says("3 ERR LIMIT retry=1 limit=outstanding").sent()
        r.pass_time(0.3)
        self.assertEqual(r.sent(), ["4 UNLOCK a fence=7 owner=~1"])
        r.says("4 OK count=0")
        self.assertIsNone(self.answered(call))

    def test_cancelled_wait_gives_back_a_late_grant(self):
        r = rig.Rig().open()
        call = r.core.lock(("a", "b"))
        r.core.abandon(call)
        self.assertEqual(r.sent(), ["2 LOCK a b owner=~1", "3 CANCEL 2"])
        r.says("2 OK fence=7,8 ttl_ms=6000 count=1 renewed=1")
        self.assertEqual(r.sent(), ["4 UNLOCK a fence=7 owner=~1",
                                    "5 UNLOCK b fence=8 owner=~1"])
        r.says("3 ERR BADREQ retry=0", "4 OK count=0", "5 OK count=0")
        self.assertEqual(r.events(), [])
        self.assertEqual(r.core.holds, {})

    def test_wait_without_an_answer_ends_in_time(self):
        r = rig.Rig().open()
        wait, other = r.core.lock(("a",), wait=2), r.core.lock(("b",))
        r.sent()
        r.pass_time(7.9)
        self.assertFalse(wait.done)
        r.pass_time(0.2)  # the wait, command_ms, and 5 s for the network
        self.assertEqual(self.answered(wait), "GONE")
        self.assertFalse(other.done)
        self.assertEqual(r.sent(), ["4 PING", "5 CANCEL 2"])
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1")
        self.assertEqual(r.sent(), ["6 UNLOCK a fence=7 owner=~1"])
        self.assertIs(r.core.link, Link.OPEN)

    def test_late_grant_without_its_confirmation_ends_in_time(self):
        r = rig.Rig().open()
        wait = r.core.lock(("a",), wait=2)
        r.now += 5
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1").sent()
        r.pass_time(3.1)
        self.assertEqual(self.answered(wait), "GONE")
        self.assertIn("4 UNLOCK a fence=7 owner=~1", r.sent())

    def test_reentry_of_a_named_owner(self):
        r = rig.Rig(keep=30).open()
        hold = r.grant(owner="o")
        again = r.core.lock(("a",), owner="o")
        r.says("3 OK fence=7 ttl_ms=6000 count=2 renewed=1")
        self.assertIs(again.holds[0], hold)
        self.assertIn("CLAIM a fence=7 owner=o count=2", r.move()[0])
        r.says("5 OK fence=7 ttl_ms=6000 count=2 renewed=1")
        r.core.unlock(hold)
        self.assertGreater(hold.left(r.now), 0)
        r.core.unlock(hold)
        self.assertEqual(hold.left(r.now), 0)

    def test_detached(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",), lease=60, detached=True)
        r.says("2 OK fence=7 ttl_ms=59398 count=1 lease_ms=59398")
        hold = call.holds[0]
        self.assertGreater(hold.left(r.now), 58)
        self.assertEqual(r.core.holds, {})  # it is not the session's
        r.sent()
        r.core.detached("RENEW", hold, 60)
        r.core.detached("UNLOCK", hold)
        self.assertEqual(r.sent(), ["3 RENEW a fence=7 detached=1 lease=60000",
                                    "4 UNLOCK a fence=7 detached=1"])

    def test_missing_keys(self):
        for line in ("2 OK ttl_ms=5", "2 OK fence=7 ttl_ms=x",
                     "2 OK fence=7,8 ttl_ms=5000 count=1", "* LOST a"):
            with self.subTest(line):
                r = rig.Rig().open()
                call = r.core.lock(("a",))
                r.says(line)
                self.assertEqual(self.answered(call), "PROTOCOL")
                self.assertIs(r.core.link, Link.IDLE)

    def test_unknown_things_are_ignored(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.says("* NEWS of=it", "99 OK fence=5 ttl_ms=6000", "2 NEWLINE x=y",
               "- ERR BADREQ retry=0",
               "2 OK new=1 fence=7 ttl_ms=6000 count=1 renewed=1 :text")
        self.assertIsNone(self.answered(call))


class WatchTest(rig.CoreTest):
    def test_holder(self):
        r = rig.Rig().open()
        call = r.core.watch("a b")
        self.assertEqual(r.sent(), ["2 WATCH a%20b"])
        r.says("2 OK", "* FREE a%20b", "* HELD a%20b fence=7 note=x",
               "* HELD a%20b fence=7 note=x", "* FREE other")
        news = [event.news for event in r.seen(model.Seen)]
        self.assertEqual(news, [None, model.Member("a b", 7, "x")])
        r.core.unwatch(call.watch)
        r.says("* FREE a%20b")
        self.assertEqual(r.seen(model.Seen), [])
        self.assertEqual(r.sent(), ["3 UNWATCH a%20b"])

    def test_members(self):
        r = rig.Rig().open()
        r.core.watch("g", members=True)
        r.says("2 OK", "* MEMBERS g begin=1", "* JOINED g fence=7 session=s",
               "* MEMBERS g members=1", "* JOINED g fence=9 session=t note=n",
               "* LEFT g fence=7 session=s")
        self.assertEqual(
            [[member.fence for member in event.news]
             for event in r.seen(model.Seen)], [[7], [7, 9], [9]])

    def test_goes_on_in_the_next_session(self):
        r = rig.Rig().open()
        r.core.watch("a")
        r.says("2 OK", "* FREE a").events()
        line, = r.move()
        self.assertEqual(line.split()[1:], ["WATCH", "a"])
        r.says(line.split()[0] + " ERR UNAVAILABLE retry=1")
        r.pass_time(0.3)
        tag = r.sent()[0].split()[0]
        r.says(f"{tag} OK", "* FREE a", "* HELD a fence=7")
        self.assertEqual([event.news for event in r.seen(model.Seen)],
                         [model.Member("a", 7)])


if __name__ == "__main__":
    unittest.main()
