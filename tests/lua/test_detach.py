"""Detached holds: no session's, ended or prolonged by who knows the fence."""

import dataclasses

from script_case import KEY
from scripts import (BUSY, CONFLICT, GONE, GRANTED, HELD, LEASE, LIVING,
                     MISSING, OK, SHARED, WAITING, Who, who)
from test_settled import SETTLES, SettledCase

DAY = 86_400_000
TERM = 3 * LEASE
LATER = 2 * DAY  # a waiter's life
# who(1), asked for at another broker by a later connection
MOVED = dataclasses.replace(who(1, 2), request=b"another!")


class DetachedCase(SettledCase):
    def detach(self, ticket, term=TERM, broker=None, **options):
        """The fence of a hold that is nobody's from now on."""
        broker = broker or self.one
        fence = self.hold(ticket, broker, **options).fence
        self.says(broker.renew(ticket, detaches=True, hold=term), OK,
                  fence=fence, ttl=term)
        return fence

    def unlock(self, fence, broker=None, **options):
        return (broker or self.two).release(Who(), by_fence=True, fence=fence,
                                            **options)

    def prolong(self, fence, term, broker=None):
        return (broker or self.two).renew(Who(), by_fence=True, fence=fence,
                                          hold=term)

    def ends_in(self, ms):
        """Nobody else is granted it for so long, and who(9) then."""
        self.wait(who(9), self.three, lease=LATER)
        self.pass_time(ms - 1)
        self.assertEqual(self.three.look().grants, [])
        self.pass_time(1)
        self.assert_grants(self.three.look(), who(9))


class Detached(DetachedCase):
    def test_lasts_without_a_broker(self):
        self.detach(who(1))
        self.assertTrue(self.assert_holder(who(1)).detached)
        self.ends_in(TERM)

    def test_its_record_lasts_longer(self):
        self.detach(who(1), DAY)
        self.assertGreater(self.connection.command("PTTL", KEY), DAY + LEASE)
        self.wait(who(2))
        self.two.release(who(2))
        self.two.look(watch=True, lease=LEASE)
        self.pass_time(DAY - 1000)
        self.two.look()
        self.assertGreater(self.connection.command("PTTL", KEY), DAY + LEASE)

    def test_its_record_is_forgotten_as_any(self):
        self.unlock(self.detach(who(1), DAY))
        self.assertLess(self.connection.command("PTTL", KEY), 200_000)

    def test_is_given_back_by_its_fence(self):
        fence = self.detach(who(1))
        self.wait(who(2), self.two)
        self.says(self.assert_untouched(self.unlock, fence + 1), GONE)
        self.assert_grants(self.says(self.unlock(fence), OK), who(2))
        self.says(self.assert_untouched(self.unlock, fence), GONE)
        self.assert_holder(who(2))

    def test_is_prolonged_by_its_fence(self):
        fence = self.detach(who(1), TERM)
        self.says(self.prolong(fence + 1, TERM), GONE)
        self.pass_time(TERM - 1)
        self.says(self.prolong(fence, DAY), OK, fence=fence, ttl=DAY)
        self.assertGreater(self.connection.command("PTTL", KEY), DAY + LEASE)
        self.ends_in(DAY)
        self.says(self.prolong(fence, DAY), GONE)

    def test_ends_sooner_where_that_was_asked_for(self):
        fence = self.detach(who(1), DAY)
        self.says(self.prolong(fence, 1000), OK, ttl=1000)
        self.ends_in(1000)

    def test_a_sooner_end_is_told(self):
        """To watchers, and to the broker of the first waiter."""
        fence = self.detach(who(1), DAY)
        self.wait(who(2), self.two)
        self.wait(who(3), self.three)
        self.three.look(watch=True)
        told = self.listen(b"broker-2", b"broker-3", b"watch")
        self.says(self.prolong(fence, DAY), OK)
        self.assertEqual(told(), [])
        self.says(self.prolong(fence, 1000), OK)
        self.assertEqual(told(), [
            (b"broker-2", b"G" + who(2).request + bytes(8)),
            (b"watch", b"W" + KEY.encode())])
        self.says(self.two.renew(who(2)), WAITING, again=1000)

    def test_is_over_with_its_end(self):
        for ask in (lambda fence: self.prolong(fence, TERM), self.unlock):
            fence = self.detach(who(1))
            self.pass_time(TERM)
            self.says(ask(fence), GONE)

    def test_a_late_unlock_passes_it_on(self):
        fence = self.detach(who(1))
        self.wait(who(2), self.two, lease=LATER)
        self.pass_time(TERM)
        self.assert_grants(self.unlock(fence), who(2))

    def test_a_late_unlock_leaves_its_lock_delay(self):
        fence = self.detach(who(1), delay=5000)
        self.pass_time(TERM + 2000)
        self.unlock(fence)
        self.ends_in(3000)

    def test_an_unlock_with_a_delay(self):
        fence = self.detach(who(1))
        self.says(self.unlock(fence, delay=700), OK)
        self.ends_in(700)

    def test_a_late_unlock_begins_no_delay(self):
        fence = self.detach(who(1))
        self.pass_time(TERM)
        self.says(self.unlock(fence, delay=700), GONE)
        self.hold(who(2), no_queue=True)

    def test_other_holds_have_no_part_in_it(self):
        fence = self.hold(who(1)).fence
        for ask in (self.prolong, lambda fence, _: self.unlock(fence)):
            self.says(self.assert_untouched(ask, fence, TERM), CONFLICT)

    def test_nor_grants_that_nobody_has_claimed(self):
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.one.release(who(0))
        holder = self.assert_holder(who(1), LIVING + GRANTED)
        self.says(self.unlock(holder.fence), CONFLICT)

    def test_twice(self):
        """The answer was lost, and the broker asks again."""
        fence = self.detach(who(1))
        self.pass_time(1000)
        self.says(self.one.renew(who(1), detaches=True, hold=TERM), OK,
                  fence=fence, ttl=TERM)
        self.ends_in(TERM)

    def test_its_broker_gives_it_back(self):
        """Nobody was told of it."""
        fence = self.detach(who(1))
        self.says(self.one.release(who(1), fence=fence), OK)
        self.assert_holders()

    def test_a_late_lock_is_taken_back(self):
        """At a node of a quorum that the detachment may have passed."""
        self.detach(who(1), DAY)
        self.says(self.one.release(who(1), spares=True), GONE)
        self.ends_in(DAY)
        for options in ({}, {"mode": SHARED}, {"delay": 5000}):
            self.connection.command("DEL", KEY)
            self.hold(who(1), **options)
            self.says(self.one.release(who(1), spares=True), OK)
            self.assert_holders()

    def test_an_older_question_does_not_cut_it(self):
        """A refresh of the wait, or its LOCK, may run after the detachment."""
        self.detach(who(1), DAY)
        for overdue in (False, True):
            self.says(self.one.renew(who(1), overdue=overdue), GONE)
            self.one.acquire(who(1), retry=True, overdue=overdue)
        self.assertEqual(self.assert_holder(who(1)).ends, self.now + DAY)

    def test_is_no_session_s(self):
        fence = self.detach(who(1))
        self.says(self.two.renew(MOVED, moves=True, fence=fence), GONE)
        self.says(self.two.release(MOVED, moves=True, fence=fence), GONE)
        self.says(self.two.acquire(MOVED, moves=True), WAITING)
        self.assert_order(who(1), MOVED)
        self.says(self.two.acquire(who(1), no_queue=True), BUSY)

    def test_beside_others(self):
        """Readers, and permits: each has its own end and fence."""
        for options in ({"mode": SHARED}, {"limit": 3, "permits": 1}):
            self.connection.command("DEL", KEY)
            first = self.detach(who(1), DAY, **options)
            second = self.detach(who(2), TERM, **options)
            self.hold(who(3), self.two, **options)
            self.says(self.unlock(first), OK)
            self.assert_holders(who(2), who(3))
            self.says(self.two.renew(who(3), lease=TERM + LEASE), OK)
            self.pass_time(TERM)
            self.two.look()
            self.assert_holders(who(3))
            self.says(self.prolong(second, DAY), GONE)

    def test_fences_out_of_order(self):
        """A hold that moved has its place still, and a later fence."""
        self.hold(who(1), mode=SHARED)
        second = self.detach(who(2), mode=SHARED)
        later = self.says(self.two.acquire(MOVED, moves=True, mode=SHARED), OK)
        self.assertGreater(later.fence, second)
        self.says(self.unlock(second), OK)
        self.assert_holders(MOVED)

    def test_a_clock_that_stepped_back(self):
        """No longer than it was to last for."""
        self.detach(who(1), DAY)
        self.pass_time(-3_600_000)
        self.one.look()
        self.pass_time(LEASE + 1)
        self.one.look()
        self.ends_in(DAY - LEASE - 1)

    def test_a_lease_beside_it_is_cut_as_ever(self):
        self.detach(who(1), DAY, mode=SHARED)
        self.hold(who(2), mode=SHARED)
        self.assertEqual(self.record().longest, LEASE)

    def test_is_late_for_no_audit(self):
        self.detach(who(1), DAY)
        self.pass_time(DAY - 1)
        audit = self.one.audit()
        self.assertEqual(audit.suspects, [])
        self.assertEqual((audit.held, audit.detached), (1, 1))
        self.pass_time(1)
        self.assertEqual(self.one.audit().detached, 0)


class Broken(DetachedCase):
    def test_ends_at_once(self):
        fence = self.detach(who(1))
        self.wait(who(2), self.two)
        told = self.listen(b"broker-2")
        self.says(self.three.break_(fence=fence + 1), GONE)
        self.says(self.three.break_(fence=fence), OK, ahead=1, fence=fence)
        self.assert_holder(who(2), LIVING + GRANTED)
        self.assertEqual([payload[:1] for _, payload in told()], [b"G"])

    def test_others_are_told(self):
        self.detach(who(1), mode=SHARED)
        fence = self.hold(who(2), mode=SHARED).fence
        self.says(self.three.break_(), OK, ahead=2, fence=fence)
        self.assertEqual(self.assert_holder(who(2), HELD + 16).fence,
                         self.record().fence)

    def test_its_lock_delay_begins(self):
        self.detach(who(1), delay=5000)
        self.says(self.three.break_(), OK, ahead=1)
        self.says(self.one.acquire(who(2), no_queue=True), BUSY)
        self.pass_time(5000)
        self.hold(who(2))

    def test_its_lock_delay_begins_with_its_end(self):
        self.detach(who(1), delay=5000)
        self.pass_time(TERM)
        self.says(self.one.acquire(who(2), no_queue=True), BUSY)
        self.pass_time(5000)
        self.hold(who(2))


class Failover(DetachedCase):
    def test_its_end_stands(self):
        self.detach(who(1))
        self.failover()
        self.pass_time(SETTLES)
        self.settle()
        self.ends_in(TERM - SETTLES)

    def test_not_before_brokers_are_settled(self):
        self.detach(who(1))
        self.failover()
        self.pass_time(TERM)
        self.wait(who(2), lease=LATER)
        self.assert_holders(who(1))
        self.settle()
        self.assert_grants(self.one.look(), who(2))

    def test_is_given_back_at_once(self):
        fence = self.detach(who(1))
        self.failover()
        self.says(self.unlock(fence), OK)
        self.assertTrue(self.pending())
        self.wait(who(2))
        self.says(self.unlock(fence), GONE)  # for nobody puts it back

    def test_is_prolonged_once_the_broker_is_settled(self):
        """A later holder may not have been back yet."""
        fence = self.detach(who(1))
        self.failover()
        self.says(self.prolong(fence, TERM), MISSING, again=SETTLES)
        self.settle()
        self.says(self.prolong(fence, TERM), OK)

    def test_a_later_hold_shows_that_it_is_over(self):
        """Old data have it, though it was given back."""
        fence = self.detach(who(1))
        self.failover()
        stood = self.record().tickets[0]
        stood.arrival, stood.fence = stood.arrival + 1, fence + 1
        self.says(self.back(self.two, who(2), stood), OK)
        self.assert_holders(who(2))

    def test_a_release_is_repeated(self):
        """Its answer was told; data that lack it may lack DETACHED, too."""
        for begin in (self.detach, lambda ticket: self.hold(ticket).fence):
            fence = begin(who(1))
            self.failover()
            self.says(self.unlock(fence, repeats=True), OK)
            self.assert_holders()
            self.settle()

    def test_a_break_is_repeated(self):
        """Of no hold that came later, nor of one that has a broker."""
        for number in (1, 2, 3):
            fence = self.detach(who(number), mode=SHARED)
        self.hold(who(4), mode=SHARED)
        later = self.detach(who(5), mode=SHARED)
        self.failover()
        self.says(self.unlock(fence, repeats=True, earlier=True), OK)
        self.assert_holders(who(4), who(5))
        self.says(self.unlock(later - 1, repeats=True, earlier=True), GONE)
        self.assert_holders(who(4), who(5))

    def test_a_later_history_does_not_prolong_it(self):
        for _ in range(3):
            self.failover()
            self.settle()
            self.one.look()
        self.detach(who(1))
        self.failover()
        self.settle()
        self.one.look()
        self.ends_in(TERM)
