"""Readers together and writers alone, in one queue; permits; downgrades."""

import scripts
from script_case import KEY, ClockCase
from scripts import (BUSY, CONFLICT, GONE, GRANTS_MAX, HELD, LEASE, OK, SHARED,
                     WAITING, who)

LAPSE = 2000


class Kinds(ClockCase):
    """Tickets of each kind; letters stand for them: R and W."""

    def read(self, number, broker=None, **options):
        return (broker or self.one).acquire(who(number), mode=SHARED,
                                            **options)

    def write(self, number, broker=None, **options):
        return (broker or self.one).acquire(who(number), **options)

    def stand(self, kinds):
        """`who(0)` and so on, one after another; their results."""
        return [{"R": self.read, "W": self.write}[kind](number)
                for number, kind in enumerate(kinds)]

    def release(self, number, broker=None, **options):
        result = (broker or self.one).release(who(number), **options)
        self.says(result, OK)
        return result

    def numbers(self, *numbers):
        return [who(number) for number in numbers]

    def statuses(self, results):
        return "".join("+" if result.status == OK else "."
                       if result.status == WAITING else "?"
                       for result in results)


class Readers(Kinds):
    def test_together(self):
        results = [self.read(number, broker) for number, broker in enumerate(
            (self.one, self.two, self.one, self.three))]
        self.assertEqual(self.statuses(results), "++++")
        fences = [result.fence for result in results]
        self.assertEqual(fences, [fences[0] + index for index in range(4)])
        self.assertEqual({result.ttl for result in results}, {LEASE})
        self.assertEqual({ticket.flags for ticket in self.record().living},
                         {HELD})
        self.assert_holders(*self.numbers(0, 1, 2, 3))

    def test_who_may_join_whom(self):
        for kinds, expected in (
                ("W", "+"), ("R", "+"), ("WW", "+."), ("WR", "+."),
                ("RW", "+."), ("RR", "++"), ("RRW", "++."), ("RWR", "+.."),
                ("RRWRRW", "++...."), ("WRRR", "+...")):
            self.connection.command("DEL", KEY)
            self.assertEqual(self.statuses(self.stand(kinds)), expected, kinds)

    def test_in_strict_order(self):
        """All leave in the order of their grants: who is there, each time."""
        self.stand("RRWRWWRRR")
        steps = []
        while self.record().live:
            holders = [ticket.who for ticket in self.record().living
                       if ticket.granted]
            steps.append([int(each.request[1:]) for each in holders])
            for each in holders:
                self.says(self.one.release(each), OK)
        self.assertEqual(steps, [[0, 1], [2], [3], [4], [5], [6, 7, 8]])

    def test_only_the_last_one_hands_over(self):
        self.stand("RRRW")
        for number in (1, 0):
            self.assert_grants(self.release(number))
        self.assert_grants(self.release(2), who(3))
        self.assert_holder(who(3))

    def test_a_writer_that_gives_up_lets_the_readers_behind_it_in(self):
        self.stand("RWRRWR")
        self.assert_grants(self.release(1), who(2), who(3))
        self.assert_holders(*self.numbers(0, 2, 3))

    def test_a_writer_whose_life_is_over_is_in_nobodys_way(self):
        self.stand("RWRR")
        self.edit_ticket(1, ends=self.now)
        self.assert_grants(self.says(self.one.renew(who(3)), OK), who(2))
        self.assert_order(*self.numbers(0, 2, 3))

    def test_each_has_its_own_lease(self):
        self.read(0, lease=5000)
        self.read(1, lease=9000)
        self.write(2)
        self.pass_time(5000)
        self.says(self.one.renew(who(2)), WAITING, again=4000)
        self.assert_order(*self.numbers(1, 2))
        self.says(self.one.renew(who(0), lease=5000), GONE)
        self.pass_time(4000)
        self.says(self.one.renew(who(2)), OK)
        self.assert_order(who(2))

    def test_renewals_of_each(self):
        """At each place, after any others."""
        results = self.stand("RRRRW")
        for number in (3, 1, 0, 2):
            self.pass_time(7000)
            self.says(self.one.renew(who(number), place=number,
                                     fence=results[number].fence,
                                     arrival=results[number].arrival), OK)
            self.record()
        self.pass_time(9000)  # the first of them is over
        self.says(self.one.look(), OK)
        self.assert_holders(*self.numbers(0, 1, 2))

    def test_hints_to_other_brokers(self):
        told = self.listen(b"broker-2", b"broker-3")
        fence = self.write(0).fence
        self.read(1, self.two)
        self.read(2)
        self.read(3, self.three)
        self.read(4, self.two)
        result = self.release(0)
        self.assertTrue(result.handed)
        self.assert_grants(result, who(2))
        self.assertEqual(
            [(channel, payload[1:9]) for channel, payload in told()],
            [(b"broker-2", who(1).request), (b"broker-3", who(3).request),
             (b"broker-2", who(4).request)])
        for number, broker in ((1, self.two), (3, self.three), (4, self.two)):
            self.says(broker.renew(who(number)), OK, fence=fence + number,
                      ttl=LEASE)

    def test_a_reader_that_nobody_claims_keeps_no_other_out(self):
        self.write(0)
        self.read(1, self.two)
        self.read(2)
        self.write(3)
        self.release(0)
        self.pass_time(LAPSE)
        self.says(self.one.renew(who(3)), WAITING)
        self.assert_order(who(2), who(3))


class WithoutWaiting(Kinds):
    def test_reader_among_readers(self):
        self.stand("RR")
        self.says(self.read(9, no_queue=True), OK)

    def test_reader_with_a_writer_waiting(self):
        self.stand("RW")
        result = self.read(9, no_queue=True)
        self.says(result, BUSY)
        self.assertGreater(result.again, 0)
        self.assert_order(who(0), who(1))

    def test_writer_among_readers(self):
        self.stand("RR")
        self.says(self.write(9, no_queue=True), BUSY)

    def test_reader_with_a_suspended_writer(self):
        """Its broker is silent: it is in nobody's way."""
        self.write(0)
        self.write(1, self.two)
        self.write(2, self.two)
        self.release(0)
        self.pass_time(LAPSE)
        self.says(self.read(3, no_queue=True), OK)
        self.says(self.read(4, no_queue=True), OK)
        self.assert_order(who(2), who(3), who(4))
        self.assert_holders(who(3), who(4))
        self.says(self.two.renew(who(2)), WAITING, ahead=1)
        self.says(self.read(5, no_queue=True), BUSY)

    def test_a_floor_beyond_belief(self):
        self.read(0)
        self.says(self.assert_untouched(
            self.read, 1, no_queue=True,
            seen=self.now_us + 2 * scripts.FENCE_FAR), scripts.CORRUPT)


class Many(Kinds):
    def fill(self, count, broker=None):
        """A writer, and so many readers behind it."""
        self.write(0)
        broker = broker or self.one
        for first in range(1, count + 1, 100):
            results = broker.call("acquire", *(
                (KEY, scripts.acquire(who(number), mode=SHARED))
                for number in range(first, min(first + 100, count + 1))))
            self.assertEqual({result.status for result in results}, {WAITING})

    def test_a_thousand_at_once(self):
        self.fill(1000)
        result = self.release(0)
        self.assert_grants(result, *self.numbers(*range(1, 1001)))
        self.assertFalse(result.more)
        fences = [grant.fence for grant in result.grants]
        self.assertEqual(fences, [fences[0] + index for index in range(1000)])
        self.assertEqual(self.record().granted, 1000)

    def test_more_than_one_step_grants(self):
        count = GRANTS_MAX + 400
        self.fill(count)
        self.write(count + 1)
        result = self.release(0)
        self.assertTrue(result.more)
        self.assertEqual(len(result.grants), GRANTS_MAX)
        rest = self.one.look()
        self.assertFalse(rest.more)
        self.assert_grants(rest, *self.numbers(
            *range(GRANTS_MAX + 1, count + 1)))
        self.assertFalse(self.one.look().more)
        self.assertEqual(self.record().granted, count)

    def test_more_of_another_broker(self):
        told = self.listen(b"broker-2")
        self.fill(GRANTS_MAX + 1, self.two)
        result = self.release(0)
        self.assertTrue(result.more and result.handed)
        self.assertEqual(len(told()), GRANTS_MAX)
        result = self.one.look()
        self.assertEqual((result.more, result.handed), (False, True))
        self.assertEqual(len(told()), 1)

    def test_as_many_as_one_step_grants(self):
        self.fill(GRANTS_MAX)
        result = self.release(0)
        self.assertEqual((len(result.grants), result.more),
                         (GRANTS_MAX, False))

    def test_a_newcomer_meanwhile_is_behind_them(self):
        self.fill(GRANTS_MAX + 1)
        self.assertTrue(self.release(0).more)
        result = self.read(5000)
        self.says(result, OK)
        self.assert_grants(result, who(GRANTS_MAX + 1))


class Downgrade(Kinds):
    def test_without_a_gap(self):
        first = self.stand("WRRWR")[0]
        self.assert_grants(self.says(self.one.renew(
            who(0), shares=True, fence=first.fence, arrival=first.arrival), OK,
                                     fence=first.fence), who(1), who(2))
        self.assert_holders(*self.numbers(0, 1, 2))
        self.assertEqual(self.record().living[0].fence, first.fence)
        self.release(0)
        self.assert_holders(who(1), who(2))

    def test_newcomers_may_join(self):
        self.write(0)
        self.says(self.one.renew(who(0), shares=True), OK)
        self.says(self.read(1), OK)
        self.says(self.write(2), WAITING)

    def test_a_writer_in_front_keeps_the_readers_out(self):
        self.stand("WWR")
        self.assert_grants(self.one.renew(who(0), shares=True))
        self.assert_holders(who(0))

    def test_twice(self):
        self.stand("WR")
        first = self.one.renew(who(0), shares=True)
        self.pass_time(100)
        self.says(self.one.renew(who(0), shares=True), OK, fence=first.fence,
                  grants=[])
        self.assert_holders(who(0), who(1))

    def test_by_a_claim(self):
        """The grant, the claim and the wish in one."""
        self.write(0)
        self.write(1, self.two)
        self.read(2, self.two)
        self.release(0)
        result = self.says(self.two.renew(who(1), shares=True), OK, ttl=LEASE)
        self.assert_grants(result, who(2))
        self.assertEqual({ticket.flags for ticket in self.record().living},
                         {HELD})

    def test_what_is_over_does_not_share(self):
        self.stand("WR")
        self.edit_ticket(1, ends=self.now + 2 * LEASE)
        self.pass_time(LEASE)
        result = self.says(self.one.renew(who(0), shares=True), GONE)
        self.assert_grants(result, who(1))
        self.assert_order(who(1))

    def test_by_a_claim_after_the_clock_stepped_back(self):
        """It ends sooner than what was known of the grant; that is found."""
        self.write(0)
        self.write(1, self.two, lease=5000)
        self.release(0)
        self.pass_time(-10_000)
        self.says(self.two.renew(who(1), shares=True), OK, ttl=5000)
        self.pass_time(5000)
        self.one.look()
        self.assert_order()

    def test_a_lease_of_another_clock_is_told_as_it_is(self):
        self.write(0)
        self.pass_time(-60000)
        self.assertEqual(self.one.renew(who(0), shares=True).ttl, LEASE)
        self.assertEqual(self.record().living[0].ends, self.now + LEASE)


class Semaphore(Kinds):
    LIMIT = 3

    def take(self, number, permits=1, broker=None, limit=None, **options):
        return (broker or self.one).acquire(
            who(number), permits=permits, limit=limit or self.LIMIT, **options)

    def test_never_more_than_there_are(self):
        results = [self.take(number) for number in range(5)]
        self.assertEqual(self.statuses(results), "+++..")
        record = self.record()
        self.assertEqual((record.limit, record.used, record.granted),
                         (3, 3, 3))
        self.assert_grants(self.release(1), who(3))
        self.assert_holders(*self.numbers(0, 2, 3))

    def test_some_at_once(self):
        self.says(self.take(0, 2), OK)
        self.says(self.take(1, 2), WAITING)
        self.assertEqual(self.record().used, 2)
        self.release(0)
        self.assertEqual(self.record().used, 2)
        self.assert_holders(who(1))
        self.release(1)
        self.assertEqual((self.record().used, self.record().limit), (0, 0))

    def test_many_are_not_starved_by_few(self):
        """A fitting request waits behind one that wants all."""
        self.take(0, 2)
        results = [self.take(1, 3), self.take(2, 1), self.take(3, 1)]
        self.assertEqual(self.statuses(results), "...")
        self.says(self.take(4, 1, no_queue=True), BUSY)
        self.assert_grants(self.release(0), who(1))
        self.assert_grants(self.release(1), who(2), who(3))

    def test_one_release_serves_many(self):
        self.take(0, 3)
        for number, permits in ((1, 1), (2, 1), (3, 2), (4, 1)):
            self.take(number, permits)
        self.assert_grants(self.release(0), who(1), who(2))
        self.assert_grants(self.release(1), who(3))
        self.assert_grants(self.release(2), who(4))
        self.assertEqual(self.record().used, 3)

    def test_a_cancelled_one_lets_the_next_in(self):
        self.take(0, 2)
        self.take(1, 2)
        self.take(2, 1)
        self.assert_grants(self.release(1), who(2))

    def test_some_are_given_back(self):
        """Waiters get them, first come first served, at any broker."""
        fence = self.take(0, 3).fence
        self.take(1, 1)
        self.take(2, 2, self.two)
        self.take(3, 1)
        result = self.one.renew(who(0), fence=fence, keeps=2)
        self.says(result, OK)
        self.assertEqual(result.ttl, LEASE)
        self.assert_grants(result, who(1))
        for keeps in (2, 3, 0):
            self.assert_grants(self.one.renew(who(0), keeps=keeps))
        self.assert_holders(who(0), who(1))
        self.assertTrue(self.one.renew(who(1), keeps=1).status == OK)
        self.assertFalse(self.one.renew(who(0), keeps=1).handed)
        self.assertTrue(self.one.release(who(1)).handed)
        self.assertEqual((self.record().used, self.record().granted), (3, 2))
        self.assert_grants(self.release(0), who(3))

    def test_some_of_a_hold_with_an_end(self):
        """It keeps its end, and a waiter keeps all that it asks for."""
        self.take(0, 3, hold=5000)
        self.take(1, 2)
        self.pass_time(1000)
        self.says(self.one.renew(who(1), keeps=1), WAITING)
        self.assertEqual(self.one.renew(who(0), hold=4000, keeps=1).ttl, 4000)
        self.assertEqual(self.record().used, 3)

    def test_death_gives_them_back(self):
        self.take(0, 2, lease=5000)
        self.take(1, 1, lease=9000)
        self.take(2, 2, lease=9000)
        self.pass_time(5000)
        self.says(self.one.renew(who(2), lease=9000), OK)
        self.assert_holders(who(1), who(2))
        self.assertEqual(self.record().used, 3)

    def test_without_waiting(self):
        self.says(self.take(0, 2, no_queue=True), OK)
        self.says(self.take(1, 2, no_queue=True), BUSY)
        self.says(self.take(2, 1, no_queue=True), OK)
        self.says(self.take(3, 1, no_queue=True), BUSY)

    def test_mode_says_nothing(self):
        self.says(self.take(0, 3, mode=SHARED), OK)
        self.says(self.take(1, 1, mode=SHARED), WAITING)

    def test_one_permit_is_a_lock(self):
        results = [self.take(number, limit=1) for number in range(3)]
        self.assertEqual(self.statuses(results), "+..")


class Conflict(Kinds):
    ASKS = {"exclusive": {}, "shared": {"mode": SHARED},
            "three": {"limit": 3}, "four": {"limit": 4}}

    def agrees(self, one, other):
        return one == other or {one, other} == {"exclusive", "shared"}

    def test_every_pair(self):
        for one, first in self.ASKS.items():
            for other, second in self.ASKS.items():
                for no_queue in (False, True):
                    self.connection.command("DEL", KEY)
                    self.hold(who(0), **first)
                    before = self.raw()
                    result = self.one.acquire(who(1), no_queue=no_queue,
                                              **second)
                    if self.agrees(one, other):
                        self.assertNotEqual(result.status, CONFLICT)
                        continue
                    self.says(result, CONFLICT)
                    self.assertEqual(result.again, 0)
                    self.assertEqual(self.raw(), before)

    def test_not_where_nobody_stands(self):
        asks = list(self.ASKS.values())
        for number, ask in enumerate(asks + asks[::-1]):
            self.hold(who(number), **ask)
            self.assertEqual(self.record().limit, ask.get("limit", 0))
            self.release(number)
            self.assertEqual(self.record().limit, 0)

    def test_not_where_all_are_dead(self):
        self.hold(who(0), limit=3)
        self.pass_time(LEASE)
        self.hold(who(1))
        self.assert_order(who(1))
        self.assertEqual(self.record().limit, 0)
        self.pass_time(LEASE)
        self.says(self.one.acquire(who(2), limit=4, no_queue=True), OK)
        self.assertEqual(self.record().limit, 4)

    def test_who_waits_stands_too(self):
        """Also where its broker is silent and nobody holds it."""
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.wait(who(2), self.two)
        self.release(0)
        self.pass_time(LAPSE)
        self.says(self.one.acquire(who(3), limit=3), CONFLICT)
        self.assert_order(who(2))

    def test_with_a_lock_that_is_kept_free(self):
        """Nobody stands there, so any kind may wait for the delay."""
        self.hold(who(0), delay=1000)
        self.release(0, unclean=True)
        self.wait(who(1), limit=2)
        self.assertEqual(self.record().limit, 2)
        self.says(self.one.acquire(who(2)), CONFLICT)

    def test_what_stands_is_found_as_it_is(self):
        self.hold(who(0), limit=3)
        self.says(self.one.acquire(who(0), retry=True), OK)
        self.assertEqual(self.record().limit, 3)
