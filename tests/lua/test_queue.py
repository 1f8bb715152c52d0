"""Queues: order, hand-over, claims, lapses, expiry, cancels, squeezing."""

import collections
import random
import struct

import scripts
from script_case import KEY, ScriptCase
from scripts import (BUSY, CLAIMED, GONE, GRANTED, HELD, LATE, LEASE,
                     LIVING, OK, SUSPENDED, WAITING, WAITS, bytes_of, who)

LAPSE = 2000
UNCLAIMED = LIVING + GRANTED


class Order(ScriptCase):
    def test_first_come_first_served_over_brokers(self):
        """60 tickets of three brokers: granted in order, fences grow."""
        brokers = [self.one, self.two, self.three]
        places = random.Random(1).choices(range(3), k=60)
        for number, which in enumerate(places):
            brokers[which].acquire(who(number))
        fences = []
        for number, which in enumerate(places):
            broker = brokers[which]
            ticket = self.assert_holder(who(number),
                                        self.record().holder.flags)
            fences.append(ticket.fence)
            self.says(broker.renew(who(number), fence=ticket.fence), OK)
            self.assert_holder(who(number))
            self.says(broker.release(who(number), fence=ticket.fence), OK)
        self.assertEqual(fences, [fences[0] + index for index in range(60)])
        self.assert_order()

    def test_waiting_result(self):
        queue = self.queue(3)
        for number, result in enumerate(queue[1:], 1):
            self.assertEqual((result.place, result.ahead, result.ttl),
                             (number, number, LEASE))
            self.assertEqual(result.arrival, queue[0].arrival + number)
            self.assertLessEqual(result.again, LEASE)
            self.assertGreater(result.again, LEASE - 10000)

    def test_cancel_in_the_middle(self):
        queue = self.queue(4)
        for number in (2, 4):
            self.says(self.one.release(who(number), place=queue[number].place,
                                       arrival=queue[number].arrival), OK,
                      grants=[])
        self.assert_order(who(0), who(1), who(3))
        result = self.one.release(who(0))
        self.assertEqual(result.grants[0].request, who(1).request)
        result = self.one.release(who(1))
        self.assertEqual(result.grants[0].request, who(3).request)
        self.assert_order(who(3))

    def test_cancelled_is_cancelled(self):
        """Its place is still there, struck out: nothing finds it."""
        queue = self.queue(3)
        known = {"place": 2, "arrival": queue[2].arrival}
        self.says(self.one.release(who(2), **known), OK)
        for ask in (self.one.release, self.one.renew):
            for options in (known, {}):
                self.says(self.assert_untouched(ask, who(2), **options), GONE)

    def test_cancel_of_the_last(self):
        self.queue(2)
        self.one.release(who(2))
        self.one.release(who(1))
        self.assert_order(who(0))
        self.assertEqual(self.one.release(who(0)).grants, [])
        self.assert_order()


class HandOver(ScriptCase):
    def test_own_broker(self):
        queue = self.queue(2)
        result = self.one.release(who(0))
        self.assertFalse(result.handed)
        self.assertEqual(result.grants, [scripts.Grant(
            who(1).request, queue[0].fence + 1, queue[1].arrival, LEASE, 1,
            0)])
        holder = self.assert_holder(who(1))
        self.assertEqual((holder.ends, holder.since),
                         (self.one.now + LEASE, self.one.last.time_us))

    def test_own_broker_short_hold(self):
        self.hold(who(0))
        self.wait(who(1), hold=700)
        self.assertEqual(self.one.release(who(0)).grants[0].ttl, 700)

    def test_other_broker_short_hold(self):
        """It begins with the claim: an unclaimed grant lapses as any other."""
        self.hold(who(0))
        self.wait(who(1), self.two, hold=1)
        self.wait(who(2), self.two, lease=700)
        for number, term in ((1, 2000), (2, 700)):
            self.one.release(who(number - 1))
            holder = self.assert_holder(who(number), LIVING + GRANTED)
            self.assertEqual(holder.ends, self.one.now + term)
            if number == 1:
                self.assertEqual(holder.hold, 1)
                self.assertEqual(self.two.renew(who(1)).ttl, 1)

    def test_other_broker(self):
        listener = self.closing(scripts.connect(self.server))
        listener.subscribe(scripts.CHANNEL + b"broker-1", scripts.CHANNEL +
                           b"broker-2", scripts.CHANNEL + b"broker-3")
        first = self.hold(who(0))
        self.wait(who(1), self.two)
        self.wait(who(2), self.three)
        result = self.one.release(who(0))
        self.assertTrue(result.handed)
        self.assertEqual(result.grants, [])
        channel, payload = listener.message()
        self.assertEqual(channel, scripts.CHANNEL + b"broker-2")
        self.assertEqual(payload, b"G" + who(1).request
                         + struct.pack("<d", first.fence + 1))
        holder = self.assert_holder(who(1), UNCLAIMED)
        self.assertEqual(holder.ends, self.one.now + LAPSE)

    def test_lapse_is_never_longer_than_the_lease(self):
        self.hold(who(0))
        self.wait(who(1), self.two, lease=900)
        self.one.release(who(0))
        self.assertEqual(self.record().holder.ends, self.one.now + 900)

    def test_handed_flag_is_of_one_result(self):
        keys = [f"holdfast:{{{number}}}" for number in range(3)]
        for key in keys:
            self.hold(who(0), key=key)
        self.wait(who(1), self.two, key=keys[1])
        results = self.one.call("release", *(
            (key, scripts.release(who(0))) for key in keys))
        self.assertEqual([result.handed for result in results],
                         [False, True, False])

    def test_claim(self):
        self.queue(1, self.two)
        self.one.release(who(0))
        fence = self.record().holder.fence
        self.says(self.two.renew(who(1), fence=fence), OK, fence=fence,
                  ttl=LEASE)
        holder = self.assert_holder(who(1))
        self.assertEqual(holder.ends, self.two.now + LEASE)
        self.assertTrue(holder.flags & CLAIMED)
        self.says(self.two.renew(who(1), fence=fence), OK)

    def test_claim_by_a_waiters_refresh(self):
        """The hint was lost: the refresh of a waiter finds the grant."""
        self.queue(1, self.two)
        self.one.release(who(0))
        result = self.two.renew(who(1))  # fence 0
        self.says(result, OK)
        self.assertEqual(result.fence, self.record().fence)
        self.assert_holder(who(1))

    def test_claim_comes_too_late(self):
        self.queue(1, self.two)
        self.one.release(who(0))
        self.age(LAPSE)
        self.says(self.two.renew(who(1)), GONE)
        self.assert_order()


class Lapse(ScriptCase):
    """A broker is dead and does not claim."""

    def setUp(self):
        super().setUp()
        self.hold(who(0))
        for number in (1, 2, 3):
            self.wait(who(number), self.two)
        self.wait(who(4), self.three)
        self.wait(who(5), self.two)
        self.wait(who(6), self.one)
        self.one.release(who(0))
        self.assert_holder(who(1), UNCLAIMED)

    def lapse(self):
        self.edit_ticket(1, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)

    def test_others_ask_again_when_it_lapses(self):
        result = self.says(self.one.renew(who(6)), WAITING)
        self.assertLessEqual(result.again, LAPSE)

    def test_the_rest_of_that_broker_is_passed_over(self):
        self.lapse()
        self.assertTrue(self.says(self.one.renew(who(6)), WAITING).handed)
        self.assert_order(who(2), who(3), who(4), who(5), who(6))
        self.assert_holder(who(4), UNCLAIMED)
        flags = {ticket.who: ticket.flags for ticket in self.record().living}
        self.assertEqual([flags[who(number)] for number in (2, 3, 5, 6)],
                         [WAITS + SUSPENDED] * 3 + [WAITS])

    def test_they_are_back_when_their_broker_speaks(self):
        self.lapse()
        self.one.renew(who(6))
        self.says(self.two.renew(who(3)), WAITING)
        self.three.renew(who(4))
        self.assertTrue(self.three.release(who(4)).handed)
        self.assert_holder(who(3), UNCLAIMED)  # who(2) is suspended still
        self.says(self.two.renew(who(3)), OK)
        result = self.two.release(who(3))  # who(2) and who(5) still are
        self.assertTrue(result.handed)
        self.assert_holder(who(6), UNCLAIMED)
        self.assert_order(who(2), who(5), who(6))

    def test_speaking_again_by_a_second_acquire(self):
        self.lapse()
        self.one.renew(who(6))
        self.says(self.two.acquire(who(2), retry=True), WAITING)
        flags = {ticket.who: ticket.flags for ticket in self.record().living}
        self.assertEqual(flags[who(2)], WAITS)

    def test_who_speaks_at_the_lapse_is_not_suspended(self):
        """The refresh that finds the lapse is a word of that broker."""
        self.lapse()
        self.says(self.two.renew(who(2)), OK)
        self.assert_holder(who(2))

    def test_who_speaks_at_the_lapse_keeps_its_turn(self):
        self.lapse()
        self.says(self.two.renew(who(5)), WAITING)
        flags = {ticket.who: ticket.flags for ticket in self.record().living}
        self.assertEqual(flags[who(5)], WAITS)
        self.assertEqual(flags[who(2)], WAITS + SUSPENDED)
        self.assert_holder(who(4), UNCLAIMED)

    def test_all_are_suspended(self):
        """Nobody to grant it to: whoever asks next gets it."""
        for number in (4, 6):
            self.one.release(who(number))
        self.lapse()
        result = self.three.look()
        self.assertFalse(result.handed)
        self.assertEqual(self.record().granted, 0)
        self.assertEqual(result.again, 0)  # their broker must ask
        self.hold(who(7), self.three)
        self.assert_order(who(2), who(3), who(5), who(7))
        self.assert_holder(who(7))

    def test_the_suspended_are_in_nobodys_way(self):
        for number in (4, 6):
            self.one.release(who(number))
        self.lapse()
        self.hold(who(7), self.three, no_queue=True)
        self.assert_holder(who(7))
        self.says(self.one.acquire(who(8), no_queue=True), BUSY)
        self.three.release(who(7))
        self.says(self.two.renew(who(3)), OK)

    def test_suspended_die_after_their_life(self):
        self.lapse()
        self.one.renew(who(6))
        for ticket in self.record().living:
            if ticket.flags & SUSPENDED:
                self.edit_ticket(ticket.place, ends=self.one.now - 1)
        self.three.renew(who(4))
        self.three.release(who(4))
        self.one.renew(who(6))
        self.one.release(who(6))
        self.assert_order()

    def test_a_claimed_hold_that_ends_suspends_nobody(self):
        self.two.renew(who(1))
        self.age(LEASE)
        for number in (2, 3, 4, 5, 6):
            self.edit_ticket(number, ends=self.one.now + LEASE)
        self.one.look()
        self.assert_holder(who(2), UNCLAIMED)
        self.assertFalse(any(ticket.flags & SUSPENDED
                             for ticket in self.record().living))


class Expiry(ScriptCase):
    def test_refresh_passes_it_on(self):
        queue = self.queue(2)
        self.edit_ticket(0, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        self.says(self.one.renew(who(1), place=1, arrival=queue[1].arrival),
                  OK, fence=queue[0].fence + 1, ttl=LEASE)
        self.assert_order(who(1), who(2))

    def test_refresh_of_a_later_one_passes_it_to_the_first(self):
        self.queue(1)
        self.wait(who(2), self.two)
        self.edit_ticket(0, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        self.says(self.two.renew(who(2)), WAITING, handed=True)
        self.assert_holder(who(1), UNCLAIMED)

    def test_look_passes_it_on(self):
        self.queue(2)
        self.edit_ticket(0, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        result = self.says(self.one.look(), OK)
        self.assert_grants(result, who(1))
        self.assertGreater(result.again, 0)  # who(2) still waits
        self.assert_holder(who(1))

    def test_look_at_nothing(self):
        self.says(self.one.look(), GONE)
        self.hold(who(0))
        self.says(self.assert_untouched(self.one.look), OK, again=0)

    def test_look_leaves_who_is_not_over(self):
        self.queue(1)
        result = self.assert_untouched(self.one.look)
        self.assertGreater(result.again, LEASE - 10000)
        self.assert_holder(who(0))

    def test_second_ticket_passes_it_on(self):
        self.queue(1)
        self.edit_ticket(0, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        self.assert_grants(self.wait(who(2)), who(1))

    def test_waiter_dies_after_its_life(self):
        self.queue(3)
        for number in (1, 3):
            self.edit_ticket(number, ends=self.one.now - 1)
        self.assert_grants(self.one.release(who(0)), who(2))
        self.one.release(who(2))
        self.assert_order()

    def test_refresh_prolongs_a_waiters_life(self):
        queue = self.queue(1)
        self.edit_ticket(1, ends=self.one.now + 60)
        self.says(self.one.renew(who(1), arrival=queue[1].arrival, place=1),
                  WAITING, ttl=LEASE)
        self.assertEqual(self.record().tickets[1].ends, self.one.now + LEASE)

    def test_refresh_shows_how_many_are_ahead(self):
        self.queue(3)
        self.assertEqual(self.one.renew(who(3)).ahead, 3)
        self.one.release(who(0))
        self.assertEqual(self.one.renew(who(3)).ahead, 2)

    def test_clock_stepped_back(self):
        """An end further off than one lease is cut to one lease."""
        self.queue(1)
        ahead = self.one.now + 3_600_000
        self.edit_ticket(0, ends=ahead)
        self.edit(low=ahead)
        self.assertLessEqual(self.one.renew(who(1)).again, LEASE)
        record = self.record()
        self.assertEqual(record.holder.ends, self.one.now + LEASE)
        self.assertEqual(record.low, self.one.now + LEASE)

    def test_clock_stepped_back_and_the_holder_lives(self):
        for shape in ({}, {"words": (b"o", b"", b"")}):
            self.hold(who(0), **shape)
            ahead = self.one.now + 3_600_000
            self.edit_ticket(0, ends=ahead)
            self.edit(low=ahead)
            self.says(self.one.renew(who(0)), OK)
            record = self.record()
            self.assertEqual(record.holder.ends, self.one.now + LEASE)
            self.assertLessEqual(record.low, self.one.now + LEASE)
            self.one.release(who(0))


class Renewal(ScriptCase):
    def test_extends(self):
        result = self.hold(who(0))
        before = self.record()
        self.edit_ticket(0, ends=self.one.now + 5000)
        self.edit(low=self.one.now + 5000)
        for options in ({}, {"arrival": result.arrival},
                        {"arrival": result.arrival, "fence": result.fence}):
            self.assertEqual(self.one.renew(who(0), **options)[:6], (
                OK, False, 0, result.arrival, result.fence, LEASE))
            record = self.record()
            self.assertEqual(record.holder.ends, self.one.now + LEASE)
            self.assertEqual((record.fence, record.arrival),
                             (before.fence, before.arrival))

    def test_hold_cuts_it(self):
        result = self.hold(who(0), hold=60000)
        self.says(self.one.renew(who(0), arrival=result.arrival,
                                 fence=result.fence, hold=800, sets_end=True),
                  OK, ttl=800)
        record = self.record()
        self.assertEqual(record.holder.ends, self.one.now + 800)
        self.assertLessEqual(record.low, record.holder.ends)

    def test_an_overtaken_renewal_shortens_nothing(self):
        result = self.hold(who(0), hold=1000)
        found = {"arrival": result.arrival, "fence": result.fence}
        self.one.renew(who(0), hold=20000, sets_end=True, **found)
        ends = self.record().holder.ends
        self.says(self.one.renew(who(0), hold=900, **found), OK,
                  ttl=ends - self.one.now)
        self.assertEqual(self.record().holder.ends, ends)

    def test_longer_lease(self):
        result = self.hold(who(0), lease=5000)
        again = self.one.renew(who(0), arrival=result.arrival, lease=40000)
        self.assertEqual(again.ttl, 40000)
        self.assertEqual(self.record().longest, 40000)

    def test_late(self):
        result = self.hold(who(0))
        late = self.one.now - 1
        for options in ({}, {"arrival": result.arrival,
                             "fence": result.fence}):
            self.says(self.assert_untouched(self.one.renew, who(0),
                                            latest=late, **options), LATE)

    def test_never_revives_what_is_over(self):
        for words in ((), (b"o", b"", b"")):
            result = self.hold(who(0), words=words)
            self.age(LEASE + 1)
            for _ in range(2):
                self.says(self.one.renew(who(0), arrival=result.arrival,
                                         fence=result.fence), GONE)
            self.assert_order()

    def test_gone_passes_it_on(self):
        result = self.queue(1)[0]
        self.edit_ticket(0, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        self.assert_grants(self.says(self.one.renew(
            who(0), arrival=result.arrival, fence=result.fence), GONE), who(1))

    def test_never_revives_what_is_released(self):
        for queue in (0, 1, 20):
            self.connection.command("DEL", KEY)
            result = self.queue(queue)[0]
            self.one.release(who(0), arrival=result.arrival,
                             fence=result.fence)
            self.says(self.assert_untouched(self.one.renew, who(0),
                                            arrival=result.arrival,
                                            fence=result.fence), GONE)

    def test_released_and_taken_by_another(self):
        result = self.hold(who(0))
        self.one.release(who(0))
        self.hold(who(1))
        for options in ({}, {"arrival": result.arrival},
                        {"arrival": result.arrival, "fence": result.fence}):
            self.says(self.assert_untouched(self.one.renew, who(0), **options),
                      GONE)

    def test_missing_key(self):
        self.says(self.one.renew(who(0)), GONE)
        self.says(self.one.release(who(0)), GONE)
        self.assertIsNone(self.raw())

    def test_waiter_that_died_does_not_come_back(self):
        queue = self.queue(2)
        self.edit_ticket(1, ends=self.one.now - 1)
        self.one.release(who(0))
        self.says(self.one.renew(who(1), place=1, arrival=queue[1].arrival),
                  GONE)
        self.assert_order(who(2))


class Squeeze(ScriptCase):
    def dead(self):
        record = self.record()
        return record.stored - record.live

    def test_the_dead_never_outnumber_the_living_by_more(self):
        """And who is left is found by place and arrival as it knows them."""
        queue = self.queue(60)
        chance = random.Random(2)
        left = list(range(1, 61))
        chance.shuffle(left)
        squeezed = False
        while left:
            number = left.pop()
            before = self.record().stored
            self.says(self.one.release(who(number), place=queue[number].place,
                                       arrival=queue[number].arrival), OK)
            squeezed |= self.record().stored < before
            self.assertLessEqual(self.dead(), len(left) + 1 + 16)
            for other in left:
                self.says(self.one.renew(who(other), place=queue[other].place,
                                         arrival=queue[other].arrival),
                          WAITING, arrival=queue[other].arrival)
            self.assert_order(who(0), *map(who, sorted(left)))
        self.assertTrue(squeezed)
        self.says(self.one.renew(who(0), place=0, arrival=queue[0].arrival,
                                 fence=queue[0].fence), OK)

    def test_long_running_queue_stays_short(self):
        """Never empty, in front and behind always moving."""
        lengths = set()
        self.hold(who(0))
        key_ttl = self.connection.command("PTTL", KEY)
        for number in range(1, 300):
            self.wait(who(number))
            lengths.add(len(self.raw()))
            result = self.one.release(who(number - 1))
            self.assertEqual(len(result.grants), 1)
        self.assertLess(max(lengths), bytes_of(24))
        self.assert_order(who(299))
        self.assertGreater(self.connection.command("PTTL", KEY),
                           key_ttl - 600000)

    def test_empty_record_is_short_again(self):
        queue = self.queue(40)
        for number in range(41):
            self.one.release(who(number), arrival=queue[number].arrival,
                             place=queue[number].place)
        self.assertLessEqual(len(self.raw()), bytes_of(17))
        self.assertGreater(self.connection.command("PTTL", KEY), 60000)
        self.assertEqual(self.hold(who(99)).fence, queue[0].fence + 41)

    def test_squeezed_by_a_wide_record(self):
        words = (b"owner", b"", b"note")
        queue = self.queue(30, words=words)
        for number in range(1, 29):
            self.one.release(who(number), place=queue[number].place,
                             arrival=queue[number].arrival)
        self.assert_order(who(0), who(29), who(30))
        _, _, tickets = self.one.inspect()
        self.assertEqual([scripts.unpack_words(ticket.words)
                          for ticket in tickets], [words] * 3)

    def test_wrong_places_are_only_hints(self):
        queue = self.queue(20)
        counts = collections.Counter()
        for number in range(1, 21):
            for place in (0, number - 1, number, number + 1, 20, 4294967295):
                result = self.one.renew(who(number), place=place,
                                        arrival=queue[number].arrival)
                counts[result.status] += 1
        self.assertEqual(counts, {WAITING: 120})


class FlagsOfTickets(ScriptCase):
    def test_held(self):
        self.hold(who(0))
        self.assertEqual(self.record().holder.flags, HELD)
        self.wait(who(1))
        self.assertEqual(self.record().tickets[1].flags, WAITS)
