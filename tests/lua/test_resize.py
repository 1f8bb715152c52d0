"""RESIZE: another limit for a semaphore while permits are out."""

import itertools

from script_case import KEY, ClockCase
from scripts import (BUSY, CONFLICT, GONE, HELD, LATE, LEASE, MISSING, OK,
                     WAITING, Record, who)
from test_settled import SETTLES, SettledCase


class Resize(ClockCase):
    def used(self):
        record = Record(self.raw(KEY)).check(resized=True)
        return record.limit, record.used

    def test_it_grows_at_once(self):
        """The waiters that fit are granted it, at each broker."""
        told = self.listen(b"broker-2")
        self.queue(2, limit=1)
        self.wait(who(3), self.two, limit=1)
        self.wait(who(4), limit=1)
        result = self.says(self.one.resize(3), OK, ahead=3, place=3)
        self.assert_grants(result, who(1), who(2))
        self.assertEqual({grant.limit for grant in result.grants}, {3})
        result = self.says(self.one.resize(4), OK, ahead=4, place=4)
        self.assertTrue(result.handed)
        self.assertEqual([message[:1] for _, message in told()], [b"G"])
        self.assert_order(*(who(number) for number in range(5)))

    def test_it_shrinks_as_permits_come_back(self):
        for number in range(4):
            self.hold(who(number), limit=4)
        self.wait(who(4), limit=4)
        self.says(self.two.resize(2), OK, ahead=2, place=4)
        self.says(self.one.renew(who(4)), WAITING)
        for number in (0, 1):
            self.assert_grants(self.one.release(who(number)))
            self.says(self.one.acquire(who(5), limit=2, no_queue=True), BUSY)
        self.says(self.one.renew(who(2), tell=True), OK, ahead=2)
        self.assertEqual(self.used(), (2, 2))
        self.assert_grants(self.one.release(who(2)), who(4))
        self.assertEqual(self.used(), (2, 2))

    def test_who_names_the_old_limit_hears_the_present_one(self):
        self.hold(who(0), limit=2)
        self.one.resize(3)
        self.says(self.one.acquire(who(1), limit=2), CONFLICT, ahead=3)
        self.says(self.one.acquire(who(1), limit=3), OK)
        self.one.release(who(0))
        self.one.release(who(1))
        self.says(self.one.acquire(who(1), limit=7), OK)  # free: any

    def test_a_waiter_that_never_fits_ends(self):
        told = self.listen(b"broker-2")
        self.hold(who(0), limit=4, permits=4)
        self.wait(who(1), self.two, limit=4, permits=3)
        self.wait(who(2), limit=4, permits=2)
        self.says(self.one.resize(2), OK, place=4)
        self.assertEqual(told(), [(b"broker-2", b"G" + who(1).request
                                   + bytes(8))])
        self.says(self.two.renew(who(1)), GONE)
        self.says(self.two.acquire(who(1), limit=4, permits=3), CONFLICT,
                  ahead=2)
        self.assert_grants(self.one.release(who(0)), who(2))

    def test_a_waiter_that_came_back_and_never_fits(self):
        """Its broker is told when it asks, and those behind it go on."""
        self.hold(who(0), limit=3)
        self.wait(who(1), limit=3, permits=3)
        self.wait(who(2), limit=3)
        self.edit(limit=2)
        result = self.says(self.one.renew(who(1)), GONE)
        self.assert_grants(result, who(2))

    def test_what_is_none(self):
        self.says(self.one.resize(3), GONE)
        self.hold_once(who(0), limit=2)
        self.says(self.one.resize(3), GONE)
        self.hold(who(0))
        self.says(self.one.resize(3), CONFLICT, ahead=0)
        self.assert_holder(who(0))
        self.one.release(who(0))
        self.hold(who(0), limit=2)
        self.pass_time(LEASE)
        self.says(self.one.resize(3), GONE)
        self.hold(who(0), limit=2)
        self.says(self.one.resize(3, latest=self.now - 1), LATE)
        self.assertEqual(self.used(), (2, 1))

    def test_a_session_that_moves_keeps_its_permits(self):
        """More permits are out than the limit, and that is no old data."""
        for number in range(3):
            self.hold(who(number), limit=3)
        self.one.resize(1)
        result = self.says(self.two.renew(who(0, 2), moves=True), OK, ahead=1,
                           beyond=True)
        self.assertEqual(result.about.limit, 1)
        self.says(self.two.acquire(who(1, 2), moves=True, limit=3), OK,
                  beyond=True)  # as it was put before
        self.assertEqual(self.used(), (1, 3))

    def test_a_wait_that_moves_keeps_its_place(self):
        self.queue(2, limit=1)
        self.one.resize(2)
        self.says(self.two.acquire(who(2, 2), moves=True, limit=1), WAITING)
        self.assert_order(who(0), who(1), who(2, 2))


class Failovers(SettledCase):
    def test_not_before_old_holders_are_known(self):
        self.hold(who(0), limit=2)
        self.failover()
        self.assert_untouched(self.one.resize, 3)
        self.says(self.one.resize(3), MISSING, again=SETTLES)
        self.connection.command("DEL", KEY)
        self.says(self.one.resize(3), MISSING, again=SETTLES)

    def test_the_latest_grant_has_the_limit(self):
        """Holds come back in any order with the limit that their brokers
        know, and none of them is lost."""
        for order in itertools.permutations(range(3)):
            self.connection.command("DEL", KEY)
            self.settle()
            held = [self.hold(who(0), limit=1)]
            for number in (1, 2):
                self.one.resize(number + 1)
                held.append(self.hold(who(number), limit=number + 1))
            self.failover(lost=True)
            for number in order:
                self.says(self.back(self.one, who(number), held[number],
                                    limit=number + 1), OK)
            record = self.record()
            self.assertEqual((record.limit, record.used), (3, 3), order)

    def test_the_record_has_the_limit_for_a_wait(self):
        held = self.hold(who(0), limit=1)
        waits = self.wait(who(1), limit=1)
        self.one.resize(2)
        self.failover(lost=True)
        self.says(self.back(self.one, who(0), held, limit=2), OK)
        self.says(self.back(self.one, who(1), waits, limit=1), WAITING)
        self.assertEqual(self.record().limit, 2)

    def test_one_that_stands_there(self):
        """A broker that knows the old limit puts back what the data have."""
        held = self.hold(who(0), limit=1)
        self.one.resize(2)
        self.failover()
        self.says(self.back(self.one, who(0), held, limit=1), OK, ahead=2)
        self.assert_holder(who(0), HELD)
