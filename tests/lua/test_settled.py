"""Failovers: brokers that are not settled, and returning tickets."""

import dataclasses
import random

import scripts
from script_case import KEY, ClockCase, ScriptCase
from scripts import (BROKEN_NOW, BUSY, CHANGED, GONE, GRACE, HELD, LEASE,
                     LIVING, GRANTED, MISSING, OK, SHARED, WAITING, WAITS,
                     who)

SETTLES = 7000
BACK = 1500  # after a hold that comes back nobody is granted it
GATHER = 100  # nor after a waiter that comes back to a lock nobody has

# who(1), asked for at another broker by a later connection
MOVED = dataclasses.replace(who(1, 2), request=b"another!")


class SettledCase(ClockCase):
    def setUp(self):
        super().setUp()
        self.brokers = (self.one, self.two, self.three)
        # Afterwards the id has no predecessor, as other tests expect.
        self.addCleanup(self.server.command, "DEBUG", "CHANGE-REPL-ID")

    def node_id(self):
        return self.server.info("replication")["master_replid"].encode()

    def failover(self, lost=False, known=True):
        """Promotes the node; `lost`: its data; `known`: to the brokers."""
        self.server.command("REPLICAOF", "127.0.0.1", "1")
        self.server.command("REPLICAOF", "NO", "ONE")
        if lost:
            self.connection.command("DEL", KEY)
        for broker in self.brokers:
            broker.settles_in = SETTLES
            if known:
                broker.known_id = self.node_id()

    def settle(self, *brokers):
        for broker in brokers or self.brokers:
            broker.settles_in = 0

    def back(self, broker, ticket, stood, **options):
        """A broker puts a ticket again that stood there."""
        return broker.acquire(ticket, stood=(stood.arrival, stood.fence),
                              **options)

    def pending(self):
        return self.record().id != self.node_id()


class Grants(SettledCase):
    def test_a_lock_that_nobody_knows(self):
        self.failover()
        self.says(self.one.acquire(who(1), no_queue=True), GRACE,
                  again=SETTLES)
        self.assertIsNone(self.raw())
        self.assertEqual(self.wait(who(1)).again, SETTLES)
        self.assertTrue(self.pending())
        self.says(self.one.renew(who(1)), WAITING)
        self.settle(self.two)
        self.says(self.two.acquire(who(2), no_queue=True), BUSY)
        self.assertFalse(self.pending())
        self.assert_holders(who(1))

    def test_its_fence_is_above_all(self):
        fence = self.hold(who(0)).fence
        self.failover(lost=True)
        self.one.clock_us = self.now_us + 3_600_000_000
        self.wait(who(1))
        self.settle()
        result = self.one.renew(who(1))
        self.assertGreater(result.fence, max(fence, self.one.clock_us))

    def test_a_free_lock(self):
        self.hold_once(who(0))
        self.failover()
        self.says(self.one.acquire(who(1), no_queue=True), GRACE)
        self.wait(who(1))
        self.one.release(who(1))
        self.assertTrue(self.pending())
        self.settle()
        self.hold(who(2), no_queue=True)

    def test_a_free_lock_that_was_granted_since(self):
        """A broker that was settled sooner has shown that it is free."""
        self.failover()
        self.settle(self.two)
        self.hold_once(who(1), self.two)
        self.hold(who(2), self.one, no_queue=True)
        self.wait(who(3))
        self.assert_grants(self.one.release(who(2)), who(3))

    def test_an_expired_holder_is_not_passed(self):
        self.hold(who(0))
        self.failover()
        self.pass_time(3 * LEASE)
        self.wait(who(1))
        self.says(self.one.renew(who(1)), WAITING)
        self.one.renew(who(9), look=True)
        self.assertTrue(self.pending())
        self.assert_order(who(0), who(1))
        self.settle()
        self.assertEqual(self.one.renew(who(1)).again, LEASE)
        self.assertFalse(self.pending())

    def test_an_expired_holder_stays_for_a_lease_more(self):
        """Its end is another clock's."""
        self.hold(who(0))
        self.failover()
        self.pass_time(LEASE + 10)
        self.wait(who(1))
        self.settle()
        self.assertEqual(self.one.renew(who(1)).again, LEASE)
        self.assertFalse(self.pending())
        self.pass_time(LEASE - 1)
        self.says(self.one.renew(who(1)), WAITING)
        self.pass_time(1)
        self.says(self.one.renew(who(1)), OK)

    def test_a_grant_that_was_not_claimed_is_none(self):
        """Another one may have followed it."""
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.wait(who(2))
        self.one.release(who(0))
        self.assert_holder(who(1), LIVING + GRANTED)
        self.failover()
        self.says(self.two.renew(who(1)), WAITING)
        self.says(self.two.acquire(who(1), retry=True), WAITING)
        self.settle(self.one)
        self.says(self.one.renew(who(2)), WAITING)
        self.assert_holder(who(1), LIVING + GRANTED)  # a grant of now
        self.says(self.two.renew(who(1)), OK)

    def test_a_grant_that_its_broker_did_not_hear_of(self):
        """Another session may have had the lock after its lease."""
        for over in (False, True):
            held = self.hold(who(1))
            self.failover()
            self.says(self.one.acquire(who(1), retry=True, overdue=over),
                      WAITING if over else OK)
            self.assertEqual(self.pending(), over)
            self.settle()
            again = self.says(self.one.renew(who(1)), OK)
            self.assertEqual(again.fence > held.fence, over)
            self.one.release(who(1))

    def test_a_claim_that_its_broker_did_not_hear_of(self):
        """Nor is one that a waiter claimed. Its renewal ends it."""
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.one.release(who(0))
        claimed = self.says(self.two.renew(who(1)), OK)
        self.failover()
        self.says(self.two.renew(who(1), overdue=True), GONE)
        self.assertTrue(self.pending())
        self.wait(who(1), self.two)
        self.settle()
        again = self.two.renew(who(1), overdue=True)
        self.assertEqual(again.status, OK)  # this grant is a new one
        self.assertGreater(again.fence, claimed.fence)
        self.says(self.two.renew(who(1), overdue=True), GONE)
        self.hold(who(2))

    def test_it_has_had_its_turn(self):
        held = self.hold(who(1))
        self.wait(who(2), self.two)
        self.says(self.one.acquire(who(1), retry=True, overdue=True), WAITING)
        self.assert_order(who(2), who(1))
        self.assertEqual(self.two.renew(who(2)).fence, held.fence + 1)
        self.says(self.one.acquire(who(1), retry=True, overdue=True), WAITING)
        self.assert_order(who(2), who(1))  # a wait is none of that

    def test_who_is_put_back_may_be_next(self):
        held = self.hold(who(0), mode=SHARED)
        self.wait(who(1), self.two)
        self.wait(who(2), self.two, mode=SHARED)
        self.one.release(who(1))
        self.one.renew(who(9), look=True)
        self.assert_holder(who(0))
        self.edit_ticket(2, flags=LIVING + GRANTED, fence=held.fence + 1)
        self.edit(granted=2, used=2, fence=held.fence + 1, id=b"x" * 40)
        self.says(self.one.renew(who(0), fence=held.fence), OK)
        self.assert_holders(who(0), who(2))

    def test_release_and_wait_leave_it_pending(self):
        self.hold(who(0))
        self.failover()
        self.wait(who(1))
        self.says(self.one.release(who(0)), OK)
        self.assertTrue(self.pending())
        self.assert_holders()
        self.settle()
        self.says(self.one.renew(who(1)), OK)

    def test_an_inspection_says_when_its_broker_is_settled(self):
        for lost in (False, True):
            self.hold(who(0))
            self.failover(lost)
            self.assertEqual(self.one.inspect()[0].ttl, SETTLES)
            self.settle()
            self.assertEqual(self.one.inspect()[0].ttl, 0)
            self.one.known_id = b"0" * 40
            self.assertEqual(self.one.inspect()[0].ttl, 1)
            self.one.known_id = self.node_id()
            self.one.release(who(0))

    def test_watching_grants_nothing(self):
        self.failover()
        self.one.renew(who(9), look=True, watch=True)
        self.assertTrue(self.pending())
        self.wait(who(1))
        self.settle()
        self.says(self.one.renew(who(1)), OK)

    def test_a_holder_of_an_earlier_connection(self):
        """Somebody may believe in what followed it."""
        self.hold(who(0))
        self.failover()
        for options in ({}, {"no_queue": True}):
            self.says(self.assert_untouched(self.two.acquire, who(0, 2),
                                            moves=True, **options), GRACE)
        self.settle()
        self.says(self.two.acquire(who(0, 2), moves=True), OK)

    def test_a_wait_that_is_given_up_for_another_kind(self):
        """The new request has to wait, and the first one ends."""
        self.queue(2)
        self.failover()
        self.says(self.two.acquire(who(1, 2), moves=True, no_queue=True,
                                   mode=SHARED), GRACE, again=SETTLES)
        self.assert_order(who(0), who(2))


class Benign(SettledCase):
    """The id has changed, and nothing was lost."""

    def test_without_a_second_id(self):
        held = self.hold(who(0))
        for broker in self.brokers:
            broker.known_id = self.node_id()
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        self.says(self.one.renew(who(0), fence=held.fence), OK)
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        self.one.release(who(0))
        self.hold(who(1), no_queue=True)

    def test_a_record_from_another_node(self):
        """Settled brokers go on: a slot has moved."""
        first = self.queue(1)[0]
        self.edit(id=b"x" * 40)
        self.says(self.one.renew(who(0), fence=first.fence), OK)
        self.assert_grants(self.one.release(who(0)), who(1))
        self.edit(id=b"x" * 40)
        self.one.release(who(1))
        self.hold(who(2), no_queue=True)


class Unknown(SettledCase):
    """A broker that has not heard of the failover."""

    def test_nothing_is_renewed(self):
        held = self.queue(1)[0]
        self.failover(known=False)
        self.settle()
        for ticket, options in ((who(0), {"fence": held.fence}), (who(1), {}),
                                (who(0, 2), {"moves": True})):
            self.says(self.assert_untouched(self.one.renew, ticket, **options),
                      CHANGED)
        self.says(self.assert_untouched(self.back, self.one, who(0), held),
                  CHANGED)

    def test_nothing_is_granted(self):
        self.hold_once(who(0))
        self.failover(known=False)
        self.settle()
        self.says(self.one.acquire(who(1), no_queue=True), CHANGED)
        self.connection.command("DEL", KEY)
        self.says(self.one.acquire(who(1), no_queue=True), CHANGED)
        self.wait(who(1))


class Holders(SettledCase):
    def test_a_renewal_shows_that_nobody_else_has_it(self):
        held = self.queue(1)[0]
        self.failover()
        self.pass_time(LEASE + 1)  # the last renewal may have been lost
        self.one.renew(who(1))
        self.says(self.one.renew(who(0), fence=held.fence), OK, ttl=LEASE)
        self.assertFalse(self.pending())
        released = self.one.release(who(0))
        self.assert_grants(released, who(1))
        self.assertGreater(released.grants[0].fence, self.now_us)

    def test_one_of_several_does_not(self):
        for options in ({"mode": SHARED}, {"permits": 1, "limit": 2}):
            self.connection.command("DEL", KEY)
            first = self.hold(who(0), **options)
            self.hold(who(1), **options)
            self.failover()
            self.says(self.one.renew(who(0), fence=first.fence), OK)
            self.assertTrue(self.pending())
            self.says(self.one.acquire(who(0), retry=True, **options), OK)
            self.assertTrue(self.pending())
            self.settle()

    def test_that_shares_since(self):
        """The data know it as exclusive; since then others have joined."""
        held = self.hold(who(0))
        old = self.raw()
        self.one.renew(who(0), shares=True)
        joined = self.hold(who(1), self.two, mode=SHARED)
        self.failover()
        self.connection.command("SET", KEY, old)
        self.says(self.one.renew(who(0), fence=held.fence, shares=True), OK)
        self.assertTrue(self.pending())
        self.says(self.two.renew(who(1), fence=joined.fence), MISSING,
                  again=SETTLES)
        self.says(self.back(self.two, who(1), joined, mode=SHARED), OK)
        self.assert_holders(who(0), who(1))

    def test_that_has_moved_since(self):
        """The broker that it was claimed from speaks first."""
        held = self.hold(who(0))
        self.failover()
        self.says(self.one.renew(who(0)), OK)
        self.assertFalse(self.pending())
        self.says(self.two.renew(who(0, 2), fence=held.fence), MISSING,
                  again=SETTLES)
        self.says(self.two.renew(who(5), fence=held.fence), GONE)
        self.says(self.back(self.two, who(0, 2), held), OK)
        self.assert_order(who(0, 2))
        self.settle(self.two)
        self.says(self.two.renew(who(0, 3), fence=held.fence), GONE)

    def test_that_is_claimed(self):
        """It may have been given back, and somebody hold what followed."""
        for options in ({}, {"mode": SHARED}, {"permits": 1, "limit": 2}):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), **options)
            self.failover()
            self.says(self.assert_untouched(self.two.renew, who(0, 2),
                                            fence=held.fence, moves=True),
                      MISSING, again=SETTLES)
            # Of the same broker, too, but where it has kept the hold.
            for broker, holds in ((self.one, False), (self.two, True)):
                self.says(self.assert_untouched(broker.renew, who(0, 2),
                                                fence=held.fence, moves=True,
                                                holds=holds), MISSING)
            self.one.renew(who(0), fence=held.fence)
            self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True),
                      OK)
            self.assert_order(who(0, 2))
            self.settle()

    def test_that_is_claimed_and_kept(self):
        for options in ({}, {"mode": SHARED}, {"permits": 1, "limit": 2}):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), **options)
            self.failover()
            self.says(self.one.renew(who(0, 2), fence=held.fence, moves=True,
                                     holds=True), OK)
            self.assert_order(who(0, 2))
            self.settle()

    def test_that_is_claimed_and_broken(self):
        held = self.hold(who(0))
        self.one.break_()
        self.failover()
        self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True),
                  BROKEN_NOW)

    def test_that_is_claimed_beyond_the_limit(self):
        """Others have shown theirs: this one is what was given back."""
        late = self.hold(who(0), permits=2, limit=3)
        old = self.raw()
        self.one.release(who(0))
        held = self.hold(who(1), self.two, permits=2, limit=3)
        self.failover()
        self.connection.command("SET", KEY, old)
        self.says(self.back(self.two, who(1), held, permits=2, limit=3), OK)
        self.settle()
        self.two.renew(who(1), fence=held.fence)
        self.says(self.three.renew(who(0, 2), fence=late.fence, moves=True),
                  GONE)
        self.assert_holders(who(1))
        self.assertEqual(self.record().used, 2)
        # A holder that has shown its own keeps it, however many there are.
        self.says(self.three.renew(who(1, 2), fence=held.fence, moves=True),
                  OK)

    def test_that_is_given_back_for_the_second_time(self):
        """The older data may lack a holder, though this one was shown."""
        for repeats in (False, True):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0))
            self.failover()
            self.one.renew(who(0), fence=held.fence)
            self.assertFalse(self.pending())
            self.says(self.one.release(who(0), fence=held.fence,
                                       repeats=repeats), OK)
            self.says(self.two.acquire(who(1), no_queue=True),
                      GRACE if repeats else OK)
            self.settle()

    def test_that_only_waits_in_older_data(self):
        """It was given back since: place and grant go from older data."""
        for hands_over in (False, True):
            self.connection.command("DEL", KEY)
            first = self.queue(1)[0]
            old = self.raw()
            self.one.release(who(0))
            held = self.one.renew(who(1))
            self.one.release(who(1), fence=held.fence)
            self.failover()
            self.connection.command("SET", KEY, old)
            ends = [(who(1), held.fence), (who(0), first.fence)]
            for ticket, fence in ends[::-1] if hands_over else ends:
                self.says(self.one.release(ticket, fence=fence, repeats=True),
                          OK)
            self.settle()
            self.says(self.two.acquire(who(2), no_queue=True), OK)

    def test_what_its_session_had_before_it_moved(self):
        """Given back elsewhere; the data have an earlier generation."""
        told = self.listen(b"broker-1")
        for grants in (False, True):
            for waited in (False, True):
                self.connection.command("DEL", KEY)
                self.settle()
                self.queue(2)
                if grants:
                    self.one.release(who(0))
                    self.one.renew(who(1))
                    told()
                fence = 0 if waited else self.record().fence + 7
                self.failover()
                self.says(self.two.release(MOVED, fence=fence, moves=True,
                                           repeats=True), OK)
                self.assert_order(*([] if grants else [who(0)]), who(2))
                self.assertEqual(told(), [
                    (b"broker-1", b"M" + who(1).request + b"\2\0\0\0")])

    def test_what_its_session_has_since(self):
        """Its next question, or a later connection's, is none of it."""
        for ticket in (dataclasses.replace(MOVED, request=b"its next"),
                       who(1, 3)):
            for fence in (0, 7):
                self.connection.command("DEL", KEY)
                self.settle()
                self.hold(who(0))
                self.wait(ticket, self.two)
                self.failover()
                self.says(self.assert_untouched(self.two.release, MOVED,
                                                fence=fence, moves=True,
                                                repeats=True), MISSING)

    def test_that_may_be_put_there_yet(self):
        """By the broker that its session has left, until all are settled."""
        holder, stood = self.queue(1)
        self.failover(lost=True)

        def release(repeats):
            return self.two.release(MOVED, fence=stood.arrival + 7, moves=True,
                                    repeats=repeats).status
        self.assertEqual(release(True), MISSING)
        self.back(self.one, who(0), holder)
        self.assertFalse(self.pending())
        self.assertEqual((release(False), release(True)), (GONE, MISSING))
        self.says(self.back(self.one, who(1), stood), WAITING)
        self.assertEqual((release(False), release(True)), (GONE, OK))
        self.settle()
        self.assertEqual(release(True), GONE)

    def test_that_is_claimed_when_all_are_back(self):
        for options in ({}, {"mode": SHARED}):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), **options)
            self.failover()
            self.settle(self.two)
            self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True),
                      OK)
            self.assert_order(who(0, 2))
            self.settle()

    def test_that_is_claimed_in_yet_another_history(self):
        """That its broker was there in the last one says nothing of this."""
        for again in (False, True):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), mode=SHARED)
            self.failover(lost=again)
            if again:
                self.back(self.one, who(0), held, mode=SHARED)
            else:
                self.one.renew(who(0), fence=held.fence)
            self.failover()
            self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True),
                      MISSING)
            self.one.acquire(who(0), retry=True, mode=SHARED)
            self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True),
                      OK)
            self.settle()

    def test_that_is_claimed_after_it_was_put_there_again(self):
        held = self.hold(who(0), mode=SHARED)
        self.failover(lost=True)
        self.back(self.one, who(0), held, mode=SHARED)
        self.assertTrue(self.pending())
        self.says(self.two.renew(who(0, 2), fence=held.fence, moves=True), OK)

    def test_whose_end_was_put_off_since(self):
        for options in ({}, {"mode": SHARED}, {"permits": 1, "limit": 2}):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), hold=8000, **options)
            self.failover()
            self.one.renew(who(0), fence=held.fence, hold=60_000)
            self.assertEqual(self.record().holder.hold, self.now + 60_000)
            # One that is sooner by this broker's clock does not cut it.
            self.one.renew(who(0), fence=held.fence, hold=50_000)
            self.assertEqual(self.record().holder.hold, self.now + 60_000)
            self.settle()
            self.one.renew(who(0), fence=held.fence, hold=90_000)
            self.assertIn(self.record().holder.hold - self.now,
                          (60_000, 90_000))
            self.one.renew(who(0), fence=held.fence, hold=99_000)
            self.assertLess(self.record().holder.hold, self.now + 99_000)

    def test_whose_end_was_put_off_and_that_moved_since(self):
        held = self.hold(who(0), hold=1900)
        self.failover()
        self.says(self.back(self.two, who(0, 2), held, hold=60_000), OK,
                  ttl=LEASE)
        self.assertEqual(self.record().holder.hold, self.now + 60_000)

    def test_nobody_is_granted_before_others_are_back(self):
        stood = self.queue(2)
        self.failover(lost=True)
        self.back(self.one, who(0), stood[0])
        self.back(self.one, who(2), stood[2])
        self.assertEqual(self.one.release(who(0)).grants, [])
        self.pass_time(BACK - 1)
        self.back(self.one, who(1), stood[1])
        self.assert_holders()
        self.pass_time(1)
        self.one.look()
        self.assert_holders(who(1))

    def test_that_the_data_do_not_know(self):
        held = self.hold(who(0), delay=300)
        self.failover(lost=True)
        self.says(self.one.renew(who(0), fence=held.fence), MISSING)
        self.says(self.back(self.one, who(0), held, delay=300, hold=1900,
                            words=(b"o", b"name", b"")), OK, fence=held.fence,
                  ttl=1900)
        self.assertFalse(self.pending())
        ticket = self.assert_holder(who(0))
        self.assertEqual((ticket.delay, ticket.hold,
                          scripts.unpack_words(ticket.words)),
                         (300, self.now + 1900, (b"o", b"name", b"")))
        self.wait(who(1))
        self.pass_time(BACK)
        self.assertGreater(self.one.release(who(0)).grants[0].fence,
                           self.now_us)

    def test_twice(self):
        held = self.hold(who(0))
        self.failover(lost=True)
        self.back(self.one, who(0), held)
        self.pass_time(500)
        self.says(self.back(self.one, who(0), held), OK, ttl=LEASE)
        self.assert_order(who(0))

    def test_late(self):
        """It was put again, given back, and comes once more."""
        held = self.hold(who(0))
        self.failover(lost=True)
        self.back(self.one, who(0), held)
        self.one.release(who(0))
        self.says(self.back(self.one, who(0), held), GONE)
        self.assert_holders()
        self.says(self.one.acquire(who(1), no_queue=True), BUSY)
        self.pass_time(BACK)
        self.hold(who(1), no_queue=True)

    def test_where_nothing_is_in_doubt(self):
        held = self.hold(who(0))
        self.one.release(who(0))
        self.says(self.back(self.one, who(0), held), GONE)
        self.connection.command("DEL", KEY)
        self.says(self.one.renew(who(0), fence=1), GONE)
        self.failover()
        self.says(self.one.renew(who(0), fence=1), MISSING)

    def test_after_it_was_granted_to_another(self):
        held = self.hold(who(0))
        self.failover(lost=True)
        self.settle(self.two)
        self.hold(who(1), self.two)
        self.says(self.back(self.one, who(0), held), GONE)
        self.assert_holders(who(1))

    def test_the_later_of_two_has_it(self):
        """The data are older than the first one's end."""
        first = self.hold(who(0))
        stood = self.wait(who(1))
        old = self.raw()
        held = self.one.release(who(0)).grants[0]
        self.failover()
        self.connection.command("SET", KEY, old)
        self.says(self.one.renew(who(1), arrival=stood.arrival,
                                 fence=held.fence), MISSING)
        self.says(self.back(self.one, who(1), held), OK)
        self.assert_order(who(1))
        self.says(self.back(self.two, who(0), first), GONE)

    def test_an_older_one_is_refused(self):
        first = self.hold(who(0))
        self.one.release(who(0))
        self.hold(who(1))
        self.failover()
        self.says(self.back(self.one, who(0), first), GONE)
        self.assert_holders(who(1))

    def test_broken(self):
        held = self.hold(who(0))
        self.failover()
        self.one.call("break", (KEY, scripts.BREAK.pack(0)))
        self.says(self.back(self.one, who(0), held), BROKEN_NOW)

    def test_readers_in_any_order(self):
        for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
            self.connection.command("DEL", KEY)
            held = [self.hold(who(number), mode=SHARED) for number in range(3)]
            self.failover(lost=True)
            for number in order:
                self.says(self.back(self.one, who(number), held[number],
                                    mode=SHARED), OK)
            self.assert_holders(who(0), who(1), who(2))
            self.assertTrue(self.pending())
            self.says(self.one.acquire(who(5), mode=SHARED, no_queue=True),
                      GRACE)
            self.settle()
            self.assertGreater(self.hold(who(5), mode=SHARED).fence,
                               held[2].fence)

    def test_permits_in_any_order(self):
        held = [self.hold(who(number), permits=2, limit=6)
                for number in range(3)]
        self.failover(lost=True)
        for number in (2, 0, 1):
            self.says(self.back(self.one, who(number), held[number], permits=2,
                                limit=6), OK)
        self.assertEqual(self.record().used, 6)
        self.wait(who(3), permits=1, limit=6)

    def test_no_more_permits_than_the_record_counts(self):
        """Old data may show more permits than there are; the sum is bounded."""
        most = 2 ** 32 - 1
        all_of_it = self.hold(who(0), permits=most, limit=most)
        self.one.release(who(0))
        late = self.hold(who(1), permits=2, limit=most)
        self.failover(lost=True)
        self.says(self.back(self.one, who(1), late, permits=2, limit=most), OK)
        self.says(self.back(self.one, who(0), all_of_it, permits=most,
                            limit=most), GONE)
        self.assertEqual(self.record().used, 2)

    def test_a_reader_where_a_writer_came_later(self):
        reader = self.hold(who(0), mode=SHARED)
        self.one.release(who(0))
        self.hold(who(1))
        self.failover()
        self.says(self.back(self.one, who(0), reader, mode=SHARED), GONE)
        self.assert_holders(who(1))

    def test_another_kind_than_the_data(self):
        self.queue(1)
        old = self.raw()
        self.one.release(who(1))
        self.one.release(who(0))
        held = self.hold(who(2), permits=1, limit=3)
        self.failover()
        self.connection.command("SET", KEY, old)
        self.says(self.back(self.one, who(2), held, permits=1, limit=3), OK)
        self.assert_order(who(2))

    def test_of_an_earlier_connection(self):
        held = self.hold(who(0))
        self.failover()
        self.says(self.back(self.two, who(0, 2), held), OK)
        self.assert_order(who(0, 2))
        self.says(self.back(self.one, who(0), held), scripts.MOVED_ON)

    def test_beside_what_it_waited_for_before(self):
        """The data know of a wait of its session for another kind."""
        self.hold(who(0))
        self.wait(who(1), mode=SHARED)
        old = self.raw()
        self.one.release(who(0))
        self.one.release(who(1))
        held = self.hold(who(1, 2))
        self.failover()
        self.connection.command("SET", KEY, old)
        self.says(self.back(self.two, who(1, 2), held), OK)
        self.assert_order(who(1, 2))

    def test_that_was_given_back_at_another_broker(self):
        """The data know of its grant, and that it is over."""
        for options in ({}, {"mode": SHARED}, {"permits": 1, "limit": 3}):
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), **options)
            self.failover()
            self.two.release(who(0))
            self.says(self.back(self.one, who(0), held, **options), GONE)
            self.assert_holders()
            self.settle()

    def test_that_ends_with_an_earlier_connection(self):
        """Its earlier broker releases it; the data lack the claim."""
        for waits in (False, True):
            for lost in (False, True):
                self.connection.command("DEL", KEY)
                held = self.hold(who(0))
                if waits:
                    self.wait(who(1), self.three)
                self.failover(lost=lost)
                self.back(self.one, who(0), held)
                self.assertFalse(self.pending())
                self.says(self.one.release(who(0), unclean=True), OK,
                          grants=[])
                self.assertTrue(self.pending())
                self.says(self.three.acquire(who(2), no_queue=True), GRACE)
                self.says(self.back(self.two, who(0, 2), held), GONE)
                self.settle(self.three)
                self.pass_time(BACK)
                result = self.hold(who(1), self.three, retry=waits)
                self.assertGreater(result.fence, self.now_us)
                self.settle()

    def test_released_where_it_is_missing(self):
        held = self.hold(who(0))
        self.failover(lost=True)
        self.says(self.one.release(who(0), fence=held.fence), MISSING)
        self.wait(who(1))
        self.says(self.one.release(who(0), fence=held.fence), MISSING)
        self.settle()
        self.says(self.one.release(who(0), fence=held.fence), GONE)


class Waiters(SettledCase):
    def test_come_back_in_their_order(self):
        stood = self.queue(40)
        for seed in range(4):
            chance = random.Random(seed)
            self.failover(lost=True)
            numbers = list(range(41))
            chance.shuffle(numbers)
            newcomers = []
            for number in numbers:
                if chance.random() < 0.2:
                    newcomers.append(who(100 + len(newcomers)))
                    self.wait(newcomers[-1], self.two)
                words = (b"w" * chance.choice((1, 99)), b"", b"") \
                    if chance.random() < 0.3 else ()
                self.says(self.back(self.one, who(number), stood[number],
                                    words=words), WAITING if number else OK)
                self.record()
            self.assert_order(*(who(number) for number in range(41)),
                              *newcomers)
            self.pass_time(BACK)
            self.assert_grants(self.one.release(who(0)), who(1))
            self.settle()

    def test_that_come_late_to_a_free_lock(self):
        stood = self.queue(2)
        self.failover(lost=True)
        self.back(self.one, who(0), stood[0])
        self.one.release(who(0))
        self.pass_time(BACK)
        self.says(self.back(self.one, who(2), stood[2]), WAITING, again=GATHER)
        self.back(self.one, who(1), stood[1])
        self.pass_time(GATHER - 1)
        self.one.look()
        self.assert_holders()
        self.pass_time(1)
        self.one.look()
        self.assert_holders(who(1))

    def test_that_stand_there(self):
        stood = self.queue(3)
        self.failover()
        self.pass_time(1000)
        self.says(self.back(self.one, who(2), stood[2]), WAITING,
                  arrival=stood[2].arrival)
        self.assert_order(who(0), who(1), who(2), who(3))
        self.assertEqual(self.record().living[2].ends, self.now + LEASE)

    def test_whose_place_somebody_else_has(self):
        """They go to the end: no number is anybody else's."""
        stood = self.queue(3)
        self.failover()
        self.says(self.back(self.one, who(9), stood[2]), WAITING)
        self.assert_order(who(0), who(1), who(2), who(3), who(9))
        self.record()

    def test_that_the_data_know_as_holders(self):
        """Then it is not known what followed."""
        stood = self.queue(1)
        self.one.release(who(0))
        self.failover()
        self.says(self.back(self.one, who(1), stood[1]), GONE)

    def test_for_another_kind(self):
        stood = self.queue(2)
        self.failover()
        self.one.release(who(1))
        self.says(self.back(self.one, who(1), stood[1], permits=1, limit=2),
                  GONE)

    def test_of_another_kind_than_stands_there(self):
        """Its client has asked for something else since."""
        stood = self.queue(2)
        self.failover()
        self.says(self.two.acquire(who(1, 2), moves=True, mode=SHARED),
                  WAITING)
        self.says(self.back(self.two, who(1, 2), stood[1]), GONE)

    def test_where_nothing_is_in_doubt(self):
        stood = self.queue(2)
        self.one.release(who(2))
        self.says(self.back(self.one, who(2), stood[2]), GONE)

    def test_beside_others_that_are_granted_it(self):
        """Nothing keeps a reader waiting that comes back late."""
        held = self.hold(who(0))
        stood = [self.wait(who(number), mode=SHARED) for number in (1, 2)]
        self.failover(lost=True)
        self.back(self.one, who(0), held)
        self.back(self.one, who(2), stood[1], mode=SHARED)
        self.pass_time(BACK)
        self.assert_grants(self.one.release(who(0)), who(2))
        self.says(self.back(self.one, who(1), stood[0], mode=SHARED), OK)
        self.assert_holders(who(1), who(2))

    def test_over_a_dead_one(self):
        stood = self.queue(3)
        self.one.release(who(2))
        self.failover()
        self.says(self.back(self.one, who(2), stood[2]), WAITING)
        self.assert_order(who(0), who(1), who(2), who(3))
        self.assertEqual(self.record().stored, 4)
        self.assertEqual(self.record().tickets[2].flags, WAITS)

    def test_are_told_until_when(self):
        self.queue(1)
        self.failover()
        self.assertEqual(self.one.renew(who(1)).again, SETTLES)
        self.settle()
        self.assertEqual(self.one.renew(who(1)).again, LEASE)
        self.assertEqual(self.assert_holder(who(0)).flags, HELD)


class Clock(ScriptCase):
    """A clock that may have stepped ends no lease."""

    def setUp(self):
        super().setUp()
        self.brokers = (self.one, self.two, self.three)
        self.expect(0)

    def expect(self, off, steady_in=0):
        """The clock is `off` s from the brokers' expectation."""
        seconds, micros = self.connection.command("TIME")
        for broker in self.brokers:
            broker.expected_us = (int(seconds) * 1_000_000 + int(micros)
                                  + off * 1_000_000)
            broker.within = 5_000_000
            broker.steady_in = steady_in

    def unsteady(self):
        """Each way in which it may be so."""
        for off, steady_in in ((-6, 0), (6, 0), (0, 9000), (3600, 0)):
            self.expect(off, steady_in)
            yield steady_in
        self.expect(0)

    def test_an_expired_holder(self):
        held = self.hold(who(0))
        self.age(LEASE + 10)
        for steady_in in self.unsteady():
            self.says(self.two.acquire(who(2), no_queue=True), BUSY,
                      again=max(steady_in, 50))
            self.assert_holders(who(0))
        self.expect(-6)
        self.says(self.one.renew(who(0), fence=held.fence), OK, ttl=LEASE)
        self.age(LEASE + 10)
        self.expect(0)
        self.hold(who(2), self.two, no_queue=True)

    def test_an_end_that_is_over(self):
        """Nobody else has it; but whose it was does not have it for longer."""
        self.hold(who(0), hold=LEASE)
        self.wait(who(1))
        over = self.record().holder.hold - LEASE - 10
        self.edit_ticket(0, ends=over, hold=over)
        self.expect(0, 9000)
        self.says(self.one.acquire(who(0), retry=True, hold=LEASE), OK, ttl=0)
        self.assertLessEqual(self.one.renew(who(0)).ttl, 1)
        # A LOCK of its next connection is not what it had; it is in its turn.
        self.says(self.two.acquire(who(0, 2), moves=True), WAITING)
        self.assert_order(who(1), who(0, 2))

    def test_an_end_that_seems_to_be_over(self):
        """Its broker knows better, and its client believes in it."""
        for options in ({}, {"mode": SHARED}, {"permits": 1, "limit": 2}):
            for unsteady in self.unsteady():
                self.connection.command("DEL", KEY)
                held = self.hold(who(0), hold=3 * LEASE, **options)
                self.age(3 * LEASE + 10)
                over = self.record().holder.hold - 3 * LEASE - 10
                self.edit_ticket(0, hold=over)
                with self.subTest(options=options, unsteady=unsteady):
                    self.assertEqual(self.one.renew(who(0), fence=held.fence,
                                                    hold=2 * LEASE).ttl, LEASE)
                    hold = self.record().holder.hold
                    self.assertEqual(hold - self.one.now, 2 * LEASE)
                    # One that is sooner does not cut it.
                    self.one.renew(who(0), fence=held.fence, hold=LEASE)
                    self.assertEqual(self.record().holder.hold, hold)
                    self.expect(0)
                    self.one.renew(who(0), fence=held.fence, hold=9 * LEASE)
                    self.assertEqual(self.record().holder.hold, hold)

    def test_an_end_that_seems_to_be_over_where_it_is_claimed(self):
        """Its client may believe in it for a lease."""
        claims = ((self.two, 0, LEASE), (self.two, 0, LEASE),
                  (self.three, LEASE // 2, LEASE),
                  (self.three, LEASE // 2, LEASE // 2))
        for unsteady in self.unsteady():
            self.connection.command("DEL", KEY)
            held = self.hold(who(0), hold=3 * LEASE)
            for number, (broker, hold, left) in enumerate(claims):
                self.edit_ticket(0, ends=self.one.now, hold=self.one.now)
                with self.subTest(unsteady=unsteady, claim=number):
                    self.says(broker.renew(
                        who(0, 2 + number), fence=held.fence, moves=True,
                        hold=hold), OK, ttl=left, again=left)
                    self.assertEqual(
                        self.record().holder.hold, broker.now + left)
            # By a clock that goes steadily it ends when it should.
            self.expect(0)
            hold = self.record().holder.hold
            self.one.renew(who(0, 9), fence=held.fence, moves=True)
            self.assertEqual(self.record().holder.hold, hold)

    def test_a_lease_that_is_over_where_it_is_made_shared(self):
        held = self.hold(who(0))
        self.age(LEASE + 10)
        self.expect(0, 9000)
        self.says(self.one.renew(who(0), fence=held.fence, shares=True), OK,
                  ttl=LEASE)

    def test_a_grant_that_nobody_claims(self):
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.wait(who(2))
        self.one.release(who(0))
        self.assert_holder(who(1), LIVING + GRANTED)
        self.age(3000)
        self.expect(0, 9000)
        self.says(self.one.renew(who(2)), OK)

    def test_waiters(self):
        """They keep their places."""
        self.queue(2)
        record = self.record()
        for ticket in record.living[1:]:
            self.edit_ticket(ticket.place, ends=ticket.ends - LEASE - 10)
        self.expect(6)
        self.assert_grants(self.one.release(who(0)), who(1))
        self.expect(0)
        self.assert_grants(self.one.release(who(1)))
        self.assert_order()

    def test_break(self):
        self.hold(who(0))
        self.age(LEASE + 10)
        self.expect(6)
        self.says(self.one.call("break", (KEY, scripts.BREAK.pack(0)))[0], OK)

    def test_where_it_does_not_count(self):
        self.hold(who(0))
        self.age(LEASE + 10)
        self.expect(3600)
        self.two.within = 2 ** 32 - 1
        self.hold(who(1), self.two, no_queue=True)
