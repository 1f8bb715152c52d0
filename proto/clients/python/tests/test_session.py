"""Deadlines, and sessions that move: the core without I/O."""

import unittest

import rig
from holdfast import errors, model
from holdfast.core import Link


class DeadlineTest(rig.CoreTest):
    def test_counts_from_the_sending(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.now += 1
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1")
        hold = call.holds[0]
        self.assertAlmostEqual(hold.left(r.now), 4.94)
        r.sent()
        r.pass_time(1)
        self.assertEqual(r.sent(), ["3 PING"])
        r.now += 0.5
        r.says("3 OK ttl_ms=4000")  # the sooner one counts too
        self.assertAlmostEqual(hold.left(r.now), 3.96 - 0.5)

    def test_passes_and_is_given_back(self):
        r = rig.Rig().open()
        hold = r.grant()
        r.pass_time(7)
        self.assertEqual(hold.lost, "deadline")
        self.assertEqual(r.seen(model.Lost), [model.Lost(hold)])
        self.assertIn("4 UNLOCK a fence=7 owner=~1", r.sent())
        r.says("3 OK ttl_ms=6000")
        self.assertEqual(hold.left(r.now), 0)

    def test_silent_broker_ends_the_session(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.pass_time(15)
        self.assertEqual(self.answered(call), "GONE")

    def test_long_wait_counts_from_the_last_answer(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        for tag in range(3, 9):
            r.pass_time(2)
            self.assertIn(f"{tag} PING", r.sent())
            r.says(f"{tag} OK")
        r.now += 1
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1")
        self.assertIsNone(self.answered(call))
        self.assertAlmostEqual(call.holds[0].left(r.now), 4.94)

    def test_grant_that_lay_in_the_socket_is_confirmed_first(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.sent()
        r.now += 5  # the process was stopped
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1")
        self.assertFalse(call.done)
        r.core.tick()
        self.assertEqual(r.sent(), ["3 PING"])
        r.says("3 OK ttl_ms=6000")
        self.assertIsNone(self.answered(call))
        self.assertAlmostEqual(call.holds[0].left(r.now), 5.94)

    def test_such_a_grant_may_be_lost(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.now += 5
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1",
               "* LOST a fence=7 reason=gone owner=~1")
        self.assertEqual(self.answered(call), "LOST")
        self.assertEqual(r.seen(model.Lost), [])

    def test_lease_beside_a_renewed_hold(self):
        r = rig.Rig().open()
        renewed = r.grant("a")
        lease = r.core.lock(("b",), lease=1)
        r.says("3 OK fence=9 ttl_ms=988 count=1 lease_ms=988")
        r.pass_time(0.9)
        r.says("4 OK ttl_ms=6000")
        self.assertAlmostEqual(lease.holds[0].deadline, r.now + .078, 2)
        r.pass_time(0.2)
        self.assertEqual(lease.holds[0].lost, "deadline")
        self.assertIsNone(renewed.lost)

    def test_lease_that_outlasts_its_ttl_is_asked_for_by_held(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",), lease=60)
        r.says("2 OK fence=7 ttl_ms=6000 count=1 lease_ms=59398")
        r.sent()
        r.pass_time(2)
        self.assertEqual(r.sent(), ["3 HELD"])
        r.says("3 ITEM name=a fence=7 ttl_ms=6000 count=1 lease_ms=57398 "
               "owner=~1", "3 OK n=1")
        self.assertAlmostEqual(call.holds[0].left(r.now), 5.94)

    def test_renew(self):
        r = rig.Rig().open()
        hold = r.grant()
        call = r.core.renew(hold, 20)
        self.assertEqual(r.sent(), ["3 RENEW a fence=7 owner=~1 lease=20000"])
        r.now += 1
        r.says("3 OK ttl_ms=6000 lease_ms=19798")
        self.assertIsNone(self.answered(call))
        self.assertAlmostEqual(hold.left(r.now), 4.94)

    def test_renew_in_doubt(self):
        for code, left in (("INDOUBT", 0.988), ("UNAVAILABLE", 0.988),
                           ("INTERNAL", 0.988), ("LIMIT", 5.94)):
            r = rig.Rig().open()
            hold = r.grant()
            call = r.core.renew(hold, 1)
            r.says(f"3 ERR {code} retry=1")
            self.assertEqual(self.answered(call), code)
            self.assertAlmostEqual(hold.left(r.now), left)
        r = rig.Rig().open()
        hold = r.grant()
        r.core.renew(hold, 20)
        r.says("3 ERR INDOUBT retry=1").sent()
        self.assertAlmostEqual(hold.left(r.now), 5.94)
        r.pass_time(2)
        self.assertEqual(r.sent(), ["4 HELD"])

    def test_renew_without_an_answer(self):
        r = rig.Rig(keep=30).open()
        hold = r.grant(ttl=20000)
        r.core.renew(hold, 15)
        call = r.core.renew(hold, 8)
        self.assertAlmostEqual(hold.left(r.now), 7.918)  # from the sending on
        r.sent()
        r.says("3 OK ttl_ms=14500 lease_ms=14500")
        self.assertAlmostEqual(hold.left(r.now), 7.918)  # by the second one
        r.now += 1
        claim, = r.move()
        r.says(f"{claim.split()[0]} OK fence=7 ttl_ms=15000 count=1")
        again, = r.sent()  # the first one may have arrived all the same
        self.assertIn("RENEW a fence=7 owner=~1 lease=8000", again)
        self.assertAlmostEqual(hold.left(r.now), 6.9, 1)
        r.says(f"{again.split()[0]} ERR LIMIT retry=1")
        self.assertEqual(self.answered(call), "LIMIT")
        self.assertGreater(hold.left(r.now), 13)  # as before
        r.core.renew(hold, 0.5)
        r.pass_time(0.6)
        self.assertEqual(hold.lost, "deadline")

    def test_renew_of_a_detached_hold_without_an_answer(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",), lease=60, detached=True)
        r.says("2 OK fence=7 ttl_ms=59398 count=1 lease_ms=59398")
        r.core.detached("RENEW", call.holds[0], 1)
        self.assertAlmostEqual(call.holds[0].left(r.now), 0.988)
        r.core.lost("test")  # nobody knows what was done
        self.assertAlmostEqual(call.holds[0].left(r.now), 0.988)
        self.assertFalse(call.holds[0].renewals)  # a later OK counts

    def test_renew_of_a_detached_hold_that_was_sent_twice(self):
        r = rig.Rig(keep=30).open()
        call = r.core.lock(("a",), lease=60, detached=True)
        r.says("2 OK fence=7 ttl_ms=59398 count=1 lease_ms=59398").sent()
        r.core.detached("RENEW", call.holds[0], 5)
        r.sent()
        again, = r.move()
        self.assertIn("RENEW a fence=7", again)
        r.says(f"{again.split()[0]} ERR LIMIT retry=1")
        self.assertLess(call.holds[0].left(r.now), 5)  # by the first one

    def test_pong(self):
        r = rig.Rig().open()
        r.says("* PING 17")
        self.assertEqual(r.sent(), ["PONG 17"])

    def test_safe_moves_nothing(self):
        r = rig.Rig().open()
        hold = r.grant()
        r.says("* JEOPARDY a ttl_ms=900", "* SAFE a ttl_ms=60000")
        self.assertAlmostEqual(hold.left(r.now), 5.94)

    def test_idle_client_is_silent(self):
        r = rig.Rig().open()
        r.core.unlock(r.grant())
        r.says("3 OK count=0").sent()
        r.pass_time(100)
        self.assertEqual(r.sent(), [])


class SessionTest(rig.CoreTest):
    def test_end_without_keep_is_the_end(self):
        r = rig.Rig().open()
        hold, call = r.grant(), r.core.lock(("b",))
        r.core.lost("reset")
        self.assertEqual(hold.lost, "session")
        self.assertEqual(self.answered(call), "GONE")
        self.assertIs(r.core.link, Link.IDLE)
        r.core.lock(("c",))  # a new session
        r.dial()
        self.assertEqual(r.greet(), ["5 LOCK c owner=~3"])

    def test_resume_claims_first_and_asks_again_for_the_rest(self):
        r = rig.Rig(keep=30).open()
        hold = r.grant()
        call = r.core.lock(("b",), wait=10)
        r.sent()
        r.now += 1
        r.core.lost("reset")
        r.dial().says(rig.GREETING)
        self.assertEqual(
            r.sent(),
            ["4 HELLO heartbeat=2000 keep=30000 resume=ab12 gen=2"])
        r.says("4 OK session=ab12 keep_ms=30000")
        claim, again = r.sent()
        self.assertEqual(claim, "5 CLAIM a fence=7 owner=~1")
        self.assertRegex(again, "^6 LOCK b owner=~2 wait=8[0-9]{3}$")
        self.assertIn(model.Moved(), r.events())
        r.says("5 OK fence=7 ttl_ms=6000 count=1 renewed=1",
               "6 OK fence=8 ttl_ms=6000 count=1 renewed=1")
        self.assertIsNone(hold.lost)
        self.assertIsNone(self.answered(call))

    def test_keep_bounds_the_deadline_from_the_last_answer(self):
        r = rig.Rig(keep=1).open()
        hold = r.grant(ttl=12000)
        r.now += 0.2
        r.core.lost("reset")
        self.assertAlmostEqual(hold.left(r.now), 0.8)

    def test_ping_tells_nothing_of_an_unclaimed_hold(self):
        r = rig.Rig(keep=30).open()
        hold = r.grant(ttl=6000)
        claim = r.move()[0].split()[0]
        before = hold.deadline
        r.says(f"{claim} ERR UNAVAILABLE retry=1 after_ms=9000")
        r.pass_time(2)
        for line in r.sent():
            if line.endswith("PING"):
                r.says(line.split()[0] + " OK ttl_ms=6000")
        self.assertEqual(hold.deadline, before)

    def test_claim_again_until_it_is_known(self):
        for last, lost in (("OK fence=7 ttl_ms=6000 count=1", None),
                           ("ERR LOST retry=0", "gone")):
            with self.subTest(last):
                r = rig.Rig(keep=30).open()
                hold = r.grant()
                tag = r.move()[0].split()[0]
                lock = r.core.lock(("a",), owner="~1")  # waits for the claim
                for _ in range(3):
                    r.says(f"{tag} ERR UNAVAILABLE retry=1")
                    self.assertEqual(r.sent(), [])
                    r.pass_time(0.2)
                    tag, *words = r.sent()[-1].split()
                    self.assertEqual(words, ["CLAIM", "a", "fence=7",
                                             "owner=~1"])
                r.says(f"{tag} {last}")
                self.assertEqual(hold.lost, lost)
                self.assertIn("LOCK a owner=~1", r.sent()[-1])
                self.assertFalse(lock.done)

    def test_unlock_without_answer_claims_and_unlocks_again(self):
        for claimed, lines in ((True, 1), (False, 0)):
            r = rig.Rig(keep=30).open()
            hold = r.grant()
            call = r.core.unlock(hold)
            claim = r.move()[0].split()
            self.assertEqual(claim[1:], ["CLAIM", "a", "fence=7", "owner=~1"])
            r.says(f"{claim[0]} OK fence=7 ttl_ms=6000 count=1" if claimed
                   else f"{claim[0]} ERR LOST retry=0")
            sent = r.sent()
            self.assertEqual(len(sent), lines)
            if claimed:
                r.says(sent[0].split()[0] + " OK count=0")
            self.assertIsNone(self.answered(call))

    def test_overdue_hold_is_claimed_and_given_back(self):
        r = rig.Rig(keep=30).open()
        hold = r.grant(ttl=1000)
        r.core.lost("reset")
        r.now += 2
        r.core.tick()
        self.assertEqual(hold.lost, "deadline")
        claim = r.dial().greet()[0].split()[0]
        r.says(f"{claim} OK fence=7 ttl_ms=6000 count=1")
        self.assertIn("UNLOCK a fence=7 owner=~1", r.sent()[0])

    def test_keep_that_is_over_ends_the_session(self):
        r = rig.Rig(keep=5).open()
        hold, call = r.grant(), r.core.lock(("b",))
        r.core.lost("reset")
        for _ in range(20):
            r.now = max(r.now, r.core.dial_at)
            r.core.dialing()
            r.core.failed(errors.gone("refused"), False)
            r.core.tick()
        self.assertEqual(hold.lost, "deadline")
        self.assertEqual(self.answered(call), "GONE")
        r.core.ready()
        r.dial().says(rig.GREETING)
        self.assertNotIn("resume", r.sent()[0])

    def test_bye(self):
        for bye, kept in (("drain", True), ("heartbeat", True),
                          ("resumed", False), ("killed", False),
                          ("killed keep=1", True), ("eof keep=0", False)):
            with self.subTest(bye):
                r = rig.Rig(keep=30).open()
                hold = r.grant()
                r.says(f"* BYE {bye}")
                self.assertEqual(hold.lost, None if kept else "session")
                self.assertIs(r.core.link,
                              Link.PAUSE if kept else Link.IDLE)

    def test_drain_moves_to_another_address(self):
        r = rig.Rig(keep=30, several=True).open()
        call = r.core.lock(("a",))
        r.says("2 ERR DRAINING retry=1", "* DRAIN grace_ms=30000").sent()
        self.assertFalse(call.done)
        r.pass_time(0.3)
        self.assertIn("LOCK a owner=~1", r.dial().greet()[0])

    def test_draining_without_keep_is_told(self):
        r = rig.Rig().open()
        call = r.core.lock(("a",))
        r.says("2 ERR DRAINING retry=1")
        self.assertEqual(self.answered(call), "DRAINING")

    def test_broker_without_keep(self):
        r = rig.Rig(keep=30)
        r.core.ready()
        r.dial().says(rig.GREETING, "1 OK session=ab12 proto=1")
        hold = r.core.lock(("a",))
        r.says("2 OK fence=7 ttl_ms=6000 count=1 renewed=1")
        r.core.lost("reset")
        self.assertEqual(hold.holds[0].lost, "session")

    def test_refused_resume_tries_again_with_a_larger_gen(self):
        r = rig.Rig(keep=30).open()
        r.grant()
        r.core.lost("reset")
        for gen in (2, 3, 4):
            r.dial().says(rig.GREETING)
            line, = r.sent()
            self.assertIn(f"gen={gen}", line)
            r.says(f"{line.split()[0]} ERR CONFLICT retry=0")

    def test_detached_lock_is_not_sent_twice(self):
        r = rig.Rig(keep=30).open()
        call = r.core.lock(("a",), lease=60, detached=True)
        self.assertEqual(r.move(), [])
        self.assertEqual(self.answered(call), "GONE")

    def test_close(self):
        r = rig.Rig(keep=30).open()
        hold, call = r.grant(), r.core.lock(("b",))
        r.core.close()
        self.assertEqual(r.sent()[-1], "0 QUIT")
        self.assertEqual(hold.left(r.now), 0)
        self.assertEqual(self.answered(call), "CLOSED")
        self.assertEqual(self.answered(r.core.lock(("c",))), "CLOSED")
        self.assertEqual(r.seen(model.Lost), [])

    def test_call_gives_up_without_a_broker(self):
        r = rig.Rig(keep=60).open()
        r.core.lost("reset")
        call = r.core.lock(("a",), wait=1)
        r.core.dialing()  # which takes long
        r.pass_time(7)
        self.assertEqual(self.answered(call), "GONE")


if __name__ == "__main__":
    unittest.main()
