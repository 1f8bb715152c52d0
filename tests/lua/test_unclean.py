"""Ends that nobody wished for: lock-delay, and locks that are broken."""

import struct

from script_case import KEY, ClockCase
from scripts import (BROKEN, BROKEN_NOW, BUSY, CLAIMED, CONFLICT, DELAY_MAX,
                     FULL, GONE, GRANTED, HELD, LEASE, LIVING, MOVED_ON, OK,
                     SHARED, WAITING, who)

LAPSE = 2000
DELAY = 5000
LATER = 3 * LEASE  # a waiter's life, longer than any lease here


class DelayCase(ClockCase):
    def kept_out(self, ms):
        """Nobody is granted it for so long, and then who(1), who waits."""
        self.assert_holders()
        self.says(self.one.renew(who(1), lease=LATER), WAITING, again=ms)
        self.says(self.one.acquire(who(8), no_queue=True), BUSY)
        self.pass_time(ms - 1)
        for _ in range(2):
            self.assertEqual(self.one.look().grants, [])
        self.pass_time(1)
        self.assert_grants(self.one.look(), who(1))
        self.assert_holder(who(1))

    def begin(self, **options):
        self.hold(who(0), delay=DELAY, **options)
        self.wait(who(1), lease=LATER)


class Unlock(DelayCase):
    """A lock-delay that the holder asks for at its release."""

    def test_after_it_nobody_is_granted_the_lock(self):
        for _ in range(2):
            held = self.hold(who(0))
            self.wait(who(1), lease=LATER)
            reply = self.one.release(who(0), arrival=held.arrival,
                                     fence=held.fence, delay=700)
            self.says(reply, OK, grants=[], again=700)
            self.kept_out(700)
            self.one.release(who(1))

    def test_where_nobody_waits(self):
        """Nor is the releaser itself granted it."""
        for _ in range(3):
            held = self.hold(who(0))
            self.says(self.one.release(who(0), arrival=held.arrival,
                                       fence=held.fence, delay=700), OK)
            for _ in range(2):
                self.says(self.one.acquire(who(0), no_queue=True), BUSY,
                          ttl=700)
            self.pass_time(700)

    def test_a_repetition_begins_no_other_delay(self):
        held = self.hold(who(0))
        known = {"arrival": held.arrival, "fence": held.fence, "delay": 700}
        self.one.release(who(0), **known)
        self.pass_time(300)
        for repeats in (False, True):
            self.says(self.one.release(who(0), repeats=repeats, **known), GONE)
        self.wait(who(1), lease=LATER)
        self.kept_out(400)

    def test_it_is_not_that_of_the_hold(self):
        self.begin()
        self.one.release(who(0), delay=700)
        self.kept_out(700)

    def test_the_longer_one_counts(self):
        self.begin()
        self.one.release(who(0), delay=700, unclean=True)
        self.kept_out(DELAY)

    def test_holders_that_are_left_keep_out_as_before(self):
        """Nobody joins those that share the lock."""
        for kind in ({"mode": SHARED}, {"limit": 2}):
            self.hold(who(0), **kind)
            self.hold(who(2), **kind)
            self.one.release(who(0), delay=700)
            self.wait(who(1), lease=LATER, **kind)
            self.pass_time(699)
            self.assertEqual(self.one.look().grants, [])
            self.pass_time(1)
            self.assert_grants(self.one.look(), who(1))
            self.one.release(who(1))
            self.one.release(who(2))

    def test_a_waiter_that_was_a_holder(self):
        """The data are older than its grant."""
        self.queue(2)
        self.says(self.one.release(who(1), repeats=True, delay=700), OK)
        self.one.release(who(0))
        self.wait(who(3), lease=LATER)
        self.pass_time(700)
        self.assert_grants(self.one.look(), who(2))

    def test_the_longest_is_remembered(self):
        self.hold(who(0))
        self.one.release(who(0), delay=DELAY_MAX)
        self.assertGreater(self.record().forget, self.now + DELAY_MAX)


class Delay(DelayCase):
    def test_death(self):
        self.begin()
        self.says(self.one.release(who(0), unclean=True), OK, grants=[])
        self.kept_out(DELAY)

    def test_who_gives_it_back_is_told_when_to_ask(self):
        """Those that wait asked for the end of a lease, and sleep."""
        self.begin()
        self.assertEqual(self.one.release(who(0), unclean=True).again, DELAY)
        self.pass_time(1000)
        self.wait(who(2))
        self.assertEqual(self.two.release(who(2)).again, DELAY - 1000)
        self.pass_time(DELAY - 1000)
        self.assert_grants(self.one.look(), who(1))
        self.assertEqual(self.one.release(who(1)).again, 0)

    def test_nobody_is_told_to_ask_where_nobody_waits(self):
        self.hold(who(0), delay=DELAY, limit=2)
        self.hold(who(1), limit=2)
        self.assertEqual(self.one.release(who(0), unclean=True).again, 0)
        self.assertEqual(self.one.release(who(1), unclean=True).again, 0)

    def test_when_to_ask_at_a_semaphore(self):
        """A permit is free when the delay is over, whoever has another."""
        self.hold(who(0), delay=DELAY, limit=2)
        self.hold(who(2), limit=2)
        self.wait(who(1), limit=2, lease=LATER)
        self.assertEqual(self.one.release(who(0), unclean=True).again, DELAY)
        self.says(self.one.renew(who(1), lease=LATER), WAITING, again=DELAY)
        self.pass_time(DELAY)
        self.assert_grants(self.one.look(), who(1))

    def test_who_is_refused_is_told_when_to_ask(self):
        """Its own broken hold began the delay."""
        self.one.waiters_max = 1
        self.begin()
        self.three.break_()
        for options, status in (({}, FULL), ({"limit": 2}, CONFLICT)):
            self.says(self.one.acquire(who(0), retry=True, **options), status,
                      again=DELAY)

    def test_expiry_is_found_late(self):
        """It counts from the end of the lease."""
        self.begin()
        self.pass_time(LEASE + 2000)
        self.one.look()
        self.kept_out(DELAY - 2000)

    def test_expiry_is_found_too_late(self):
        self.begin()
        self.pass_time(LEASE + DELAY)
        self.assert_grants(self.one.look(), who(1))

    def test_end_of_its_own_lease(self):
        self.begin(hold=700)
        self.pass_time(700)
        self.says(self.one.renew(who(0), hold=1), GONE)
        self.kept_out(DELAY)

    def test_not_after_a_clean_release(self):
        self.begin()
        self.assert_grants(self.one.release(who(0)), who(1))

    def test_of_a_lock_that_was_used_before(self):
        self.hold_once(who(0))
        for _ in range(3):
            held = self.hold(who(0), delay=DELAY)
            self.assertEqual(self.record().holder.delay, DELAY)
            self.one.release(who(0), arrival=held.arrival, fence=held.fence,
                             unclean=True)
            self.says(self.one.acquire(who(1), no_queue=True), BUSY)
            self.pass_time(DELAY)

    def test_nor_where_it_stood_alone(self):
        for _ in range(3):
            held = self.hold(who(0), delay=DELAY)
            self.says(self.one.release(who(0), arrival=held.arrival,
                                       fence=held.fence), OK)
        self.hold(who(1), no_queue=True)

    def test_not_where_none_was_asked_for(self):
        self.queue(1)
        self.assert_grants(self.one.release(who(0), unclean=True), who(1))
        self.edit_ticket(1, ends=self.now)
        self.edit(low=self.now)
        self.hold(who(2), no_queue=True)

    def test_not_after_a_grant_that_nobody_claimed(self):
        for how in ("lapse", "release"):
            self.connection.command("DEL", KEY)
            self.hold(who(0))
            self.wait(who(1), self.two, delay=DELAY)
            self.wait(who(2), self.three)
            self.one.release(who(0))
            if how == "lapse":
                self.pass_time(LAPSE)
                self.three.look()
            else:
                self.two.release(who(1), unclean=True)
            self.assertEqual(self.record().holder.who, who(2))

    def test_not_after_a_waiter(self):
        self.hold(who(0))
        self.wait(who(1), delay=DELAY)
        self.one.release(who(1), unclean=True)
        self.one.release(who(0))
        self.hold(who(2), no_queue=True)

    def test_of_a_claimed_grant(self):
        self.hold(who(0))
        self.wait(who(2), self.two, delay=DELAY)
        self.wait(who(1), lease=LATER)
        self.one.release(who(0))
        self.two.renew(who(2))
        self.two.release(who(2), unclean=True)
        self.kept_out(DELAY)

    def test_where_nobody_waits_yet(self):
        self.hold(who(0), delay=DELAY)
        self.one.release(who(0), unclean=True)
        self.says(self.one.acquire(who(8), no_queue=True), BUSY, again=DELAY,
                  ttl=DELAY)
        self.wait(who(1), lease=LATER)
        self.kept_out(DELAY)

    def test_a_free_lock_when_it_is_over(self):
        self.hold(who(0), delay=DELAY)
        self.one.release(who(0), unclean=True)
        self.pass_time(DELAY - 1)
        self.says(self.one.acquire(who(1), no_queue=True), BUSY)
        self.pass_time(1)
        self.hold(who(1), no_queue=True)

    def test_the_longest_counts(self):
        for number, delay in enumerate((DELAY, 100)):
            self.hold(who(10 + number), mode=SHARED, delay=delay)
        self.wait(who(1), lease=LATER)
        for number in range(2):
            self.one.release(who(10 + number), unclean=True)
        self.kept_out(DELAY)

    def test_other_readers_stay_and_none_joins(self):
        for number in (0, 5):
            self.hold(who(number), mode=SHARED, delay=DELAY)
        self.one.release(who(0), unclean=True)
        self.says(self.one.renew(who(5)), OK)
        self.says(self.one.acquire(who(6), mode=SHARED, no_queue=True), BUSY)
        self.wait(who(6), mode=SHARED)
        self.pass_time(DELAY)
        self.assert_grants(self.one.look(), who(6))

    def test_of_permits(self):
        self.hold(who(0), permits=2, limit=3, delay=DELAY)
        self.one.release(who(0), unclean=True)
        self.wait(who(1), permits=1, limit=3)
        self.pass_time(DELAY)
        self.says(self.one.renew(who(1)), OK)

    def test_from_another_clock(self):
        """However far it steps back, it is that long at most."""
        self.hold(who(0), delay=DELAY)
        self.one.release(who(0), unclean=True)
        self.pass_time(DELAY - 1)
        for _ in range(3):
            self.pass_time(-20 * DELAY)
            self.says(self.one.acquire(who(3), no_queue=True), BUSY,
                      again=DELAY)
            self.pass_time(DELAY - 100)
            self.says(self.one.acquire(who(3), no_queue=True), BUSY, again=100)
        self.pass_time(100)
        self.hold(who(1), no_queue=True)

    def test_a_longer_one_after_it(self):
        """Each of two counts in full, from whichever clock."""
        self.hold(who(0), mode=SHARED, delay=DELAY)
        self.hold(who(1), mode=SHARED, delay=5 * DELAY)
        self.one.release(who(0), unclean=True)
        self.pass_time(-20 * DELAY)
        self.one.release(who(1), unclean=True)
        self.says(self.one.acquire(who(3), no_queue=True), BUSY,
                  again=5 * DELAY)

    def test_a_short_one_long_after_it(self):
        self.hold(who(0), delay=5 * DELAY)
        self.one.release(who(0), unclean=True)
        self.pass_time(5 * DELAY)
        self.hold(who(1), delay=DELAY)
        self.one.release(who(1), unclean=True)
        self.pass_time(-20 * DELAY)
        self.says(self.one.acquire(who(3), no_queue=True), BUSY, again=DELAY)

    def test_the_longest_there_is(self):
        self.hold(who(0), delay=DELAY_MAX)
        self.one.release(who(0), unclean=True)
        self.says(self.one.acquire(who(1), no_queue=True), BUSY)

    def test_the_record_outlives_it(self):
        self.one.forget_after = 60000
        for how in ("release", "expiry"):
            self.connection.command("DEL", KEY)
            self.hold(who(0), delay=600_000)
            if how == "release":
                self.one.release(who(0), unclean=True)
            else:
                self.pass_time(LEASE)
                self.one.look()
            self.assertGreater(self.connection.command("PTTL", KEY), 590_000)
            self.assertGreater(self.record().forget, self.record().delay)


class Break(ClockCase):
    def taken(self, count=1, **options):
        self.says(self.three.break_(**options), OK, ahead=count)

    def not_there(self, **options):
        self.says(self.assert_untouched(self.three.break_, **options), GONE,
                  ahead=0)

    def test_renewals_are_refused(self):
        held = self.queue(1)[0]
        self.taken()
        self.assert_holder(who(0), HELD + BROKEN)
        for options in ({}, {"arrival": held.arrival, "fence": held.fence},
                        {"shares": True}, {"sets_end": True, "hold": 99}):
            self.says(self.assert_untouched(self.one.renew, who(0), **options),
                      BROKEN_NOW, ttl=0, fence=0)

    def test_the_brokers_are_told(self):
        told = self.listen(b"broker-1", b"broker-2", b"broker-3")
        one = self.hold(who(0), mode=SHARED)
        two = self.hold(who(1), self.two, mode=SHARED)
        self.wait(who(2))
        self.taken(2)
        self.assertEqual(told(), [(b"broker-1", b"B" + who(0).request +
                                   struct.pack("<d", one.fence)),
                                  (b"broker-2", b"B" + who(1).request +
                                   struct.pack("<d", two.fence))])
        self.taken(2)  # whoever asks again is not believed to have been told
        self.assertEqual(len(told()), 2)

    def test_one_of_them(self):
        fences = [self.hold(who(number), mode=SHARED).fence
                  for number in range(3)]
        self.taken(1, fence=fences[1])
        statuses = [self.one.renew(who(number)).status for number in range(3)]
        self.assertEqual(statuses, [OK, BROKEN_NOW, OK])

    def test_the_broker_gives_it_back(self):
        held = self.hold(who(0), delay=DELAY)
        self.wait(who(1))
        self.taken()
        self.assertEqual(self.one.look().grants, [])
        self.says(self.one.release(who(0), fence=held.fence,
                                   arrival=held.arrival, unclean=True), OK,
                  grants=[])
        self.pass_time(DELAY)
        self.assert_grants(self.one.look(), who(1))

    def test_the_broker_gives_it_back_without_a_delay(self):
        self.queue(1)
        self.taken()
        self.assert_grants(self.one.release(who(0), unclean=True), who(1))

    def test_the_broker_does_nothing(self):
        self.hold(who(0), delay=DELAY)
        self.wait(who(1), lease=LATER)
        self.pass_time(10000)
        self.taken()
        for _ in range(4):
            self.pass_time(4999)
            self.one.renew(who(0))
            self.assertEqual(self.one.look().grants, [])
        self.pass_time(4)  # its lease is over
        self.assertEqual(self.one.look().grants, [])
        self.assert_order(who(1))
        self.pass_time(DELAY)
        self.assert_grants(self.one.look(), who(1))

    def test_nobody_holds_it(self):
        result = self.one.break_()
        self.assertEqual((result.status, self.raw()), (GONE, None))
        held = self.hold(who(0))
        self.not_there(fence=held.fence + 1)
        self.pass_time(LEASE)
        self.not_there()
        self.one.look()
        self.not_there()

    def test_who_waits_is_left_alone(self):
        self.queue(2)
        self.taken()
        self.one.release(who(0), unclean=True)
        self.says(self.one.renew(who(1)), OK)

    def test_before_it_is_claimed(self):
        """Neither a claim makes it whole nor the lapse."""
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.one.release(who(0))
        self.taken()
        self.says(self.two.renew(who(1)), BROKEN_NOW)
        flags = self.record().holder.flags
        self.assertEqual(flags, LIVING + GRANTED + BROKEN)
        self.assertFalse(flags & CLAIMED)
        self.pass_time(LAPSE)
        self.one.look()
        self.assert_order()

    def test_asking_again_is_asking_anew(self):
        """The broker knows of neither: the client gets a new fence."""
        for moves in (False, True):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0))
            self.taken()
            again = self.says(self.one.acquire(who(0), retry=True,
                                               moves=moves), OK)
            self.assertGreater(again.fence, held.fence)
            self.assertGreater(again.arrival, held.arrival)
            self.assert_order(who(0))
            self.assert_holder(who(0))

    def test_asking_again_before_it_is_claimed(self):
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.one.release(who(0))
        broken = self.record().fence
        self.taken()
        again = self.says(self.two.acquire(who(1), retry=True), OK)
        self.assertGreater(again.fence, broken)
        self.assert_holder(who(1))

    def test_asking_again_is_standing_last(self):
        self.queue(1)
        self.taken()
        again = self.says(self.one.acquire(who(0), retry=True), WAITING)
        self.assert_grants(again, who(1))
        self.assert_order(who(1), who(0))
        self.assert_holder(who(1))

    def test_asking_again_begins_its_delay(self):
        self.hold(who(0), delay=700)
        self.wait(who(1))
        self.taken()
        self.says(self.one.acquire(who(0), retry=True), WAITING, again=700,
                  grants=[])
        self.pass_time(700)
        self.assert_grants(self.one.look(), who(1))

    def test_after_a_move(self):
        """It stays broken, and the new broker gives it back."""
        held = self.queue(1)[0]
        later = who(0, generation=2)
        self.says(self.two.renew(later, moves=True, fence=held.fence), OK)
        self.taken()
        self.says(self.assert_untouched(
            self.two.renew, later, moves=True, fence=held.fence), BROKEN_NOW)
        self.says(self.one.release(who(0)), GONE)
        self.says(self.two.release(later, fence=held.fence, unclean=True), OK,
                  handed=True)
        self.assert_order(who(1))

    def test_before_a_move(self):
        """The claim is told; a release or the lease's end frees the lock."""
        for alive in (True, False):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), delay=DELAY)
            self.wait(who(1), lease=LATER)
            self.taken()
            result = self.assert_untouched(self.two.renew,
                                           who(0, generation=2), moves=True,
                                           fence=held.fence)
            self.assertEqual((result.status, result.grants, result.about),
                             (BROKEN_NOW, [], None))
            if alive:
                self.says(self.one.release(who(0), fence=held.fence,
                                           unclean=True), OK)
            else:
                self.pass_time(LEASE)
                self.assertEqual(self.one.look().grants, [])
            self.assert_order(who(1))
            self.pass_time(DELAY)
            self.assert_grants(self.one.look(), who(1))

    def test_before_a_move_to_the_same_broker(self):
        """Which gives it back in its new generation."""
        held = self.queue(1)[0]
        self.taken()
        later = who(0, generation=2)
        self.says(self.one.renew(later, moves=True, fence=held.fence),
                  BROKEN_NOW)
        self.assert_holder(later, HELD + BROKEN)
        self.assert_grants(self.one.release(later, unclean=True), who(1))

    def test_asking_anew_after_a_move(self):
        """Its own broken hold is not in its way, but its lock-delay is."""
        self.hold(who(0), delay=DELAY)
        self.wait(who(1), lease=LATER)
        self.taken()
        later = who(0, generation=2)
        self.says(self.two.acquire(later, moves=True, lease=LATER), WAITING)
        self.assert_order(who(1), later)
        self.says(self.one.release(who(0), unclean=True), GONE)
        self.pass_time(DELAY - 1)
        self.assertEqual(self.one.look().grants, [])
        self.pass_time(1)
        self.assert_grants(self.one.look(), who(1))

    def test_asking_anew_where_nobody_claimed(self):
        """Nobody had it, so there is no lock-delay."""
        self.hold(who(0))
        self.wait(who(1), self.two, delay=DELAY)
        self.one.release(who(0))
        self.taken()
        self.says(self.three.acquire(who(1, generation=2), moves=True), OK)
        self.assert_order(who(1, generation=2))

    def test_asking_anew_too_late(self):
        """An earlier generation, or the same one elsewhere, ends nothing."""
        later = who(0, generation=2)
        self.hold(later)
        self.taken()
        for ticket in (who(0), later):
            self.says(self.assert_untouched(self.two.acquire, ticket,
                                            moves=True), MOVED_ON)

    def test_many(self):
        for number in range(100):
            self.hold(who(number), mode=SHARED)
        for number in range(40, 60):
            self.one.release(who(number))
        self.wait(who(200))
        self.taken(80)
        self.assertEqual({each.flags for each in self.record().living
                          if each.granted}, {HELD + BROKEN})

    def test_late_by_its_argument(self):
        """The next holder of the same lock is not meant."""
        first = self.hold(who(0))
        self.one.release(who(0))
        self.hold(who(1))
        self.not_there(fence=first.fence)
