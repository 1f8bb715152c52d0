"""Sessions that move: a later generation takes its tickets over."""

import dataclasses
import struct

import scripts
from script_case import KEY, ClockCase
from scripts import (BUSY, CONFLICT, GONE, HELD, LEASE, LIVING, MOVED_ON, OK,
                     SHARED, SUSPENDED, WAITING, WAITS, Who, unpack_words, who)

LAPSE = 2000


def again(number, generation):
    """As the next broker names it: its requests are words of its own."""
    return dataclasses.replace(who(number, generation),
                               request=b"%d%07d" % (generation, number))


class Moves(ClockCase):
    def both(self):
        """A claim, and a second LOCK, whose grant is its own (`.grants`)."""
        for grants, way in enumerate((self.two.renew, self.two.acquire)):
            self.connection.command("DEL", KEY)

            def take(ticket, way=way, **options):
                return way(ticket, moves=True, **options)
            take.grants = grants
            yield take

    def old_is_refused(self, number, known, fence=0):
        """Its release and renewal change nothing."""
        for ask in (self.one.renew, self.one.release):
            for options in ({}, {"arrival": known.arrival},
                            {"arrival": known.arrival, "place": known.place,
                             "fence": fence}):
                self.says(self.assert_untouched(ask, who(number), **options),
                          GONE)


class Holder(Moves):
    def test_keeps_its_fence(self):
        for take in self.both():
            held = self.hold(who(0))
            fence = held.fence + take.grants
            self.wait(who(1))
            self.pass_time(1000)
            result = take(again(0, 2))
            self.says(result, OK, fence=fence, arrival=held.arrival, ttl=LEASE)
            holder = self.assert_holder(again(0, 2))
            since = self.now if take.grants else self.now - 1000
            self.assertEqual(
                (holder.broker, holder.fence, holder.since // 1000),
                (b"broker-2", fence, since))
            self.assert_order(again(0, 2), who(1))
            self.old_is_refused(0, held, held.fence)
            self.says(self.two.renew(again(0, 2)), OK)
            self.assertTrue(self.two.release(again(0, 2), fence=fence).handed)

    def test_the_last_broker_hears_of_it(self):
        told = self.listen(b"broker-1", b"broker-2")
        for take in self.both():
            self.hold(who(0))
            take(again(0, 2))
            self.assertEqual(told(), [
                (b"broker-1", b"M" + who(0).request + struct.pack("<I", 2))])
            take(again(0, 3))
            self.assertEqual(told(), [])

    def test_answer_was_lost(self):
        for take in self.both():
            self.hold(who(0))
            first = take(again(0, 2))
            second = take(again(0, 2), **({"retry": True} if take.grants
                                          else {}))
            self.assertEqual(first, second)
            self.assert_order(again(0, 2))

    def test_a_lock_finds_older_data(self):
        """Its fence is above all since, by what the broker has seen."""
        held = self.hold(who(0))
        seen = held.fence + 7
        result = self.two.acquire(again(0, 2), moves=True, seen=seen)
        self.assertEqual(result.fence, seen + 1)
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        result = self.two.acquire(again(0, 3), moves=True)
        self.assertGreater(result.fence, seen + 1)
        self.assertEqual(self.record().fence, result.fence)
        far = self.two.last.time_us + scripts.FENCE_FAR + 1_000_000_000
        self.says(self.assert_untouched(self.two.acquire, again(0, 4),
                                        moves=True, seen=far), scripts.CORRUPT)

    def test_again_and_again(self):
        for take in self.both():
            self.hold(who(0))
            for generation in (2, 3, 7):
                fence = self.record().fence + take.grants
                self.assertEqual(take(again(0, generation)).fence, fence)
                self.assert_order(again(0, generation))

    def test_one_that_nobody_claimed(self):
        for take in self.both():
            self.hold(who(0), self.three)
            self.wait(who(1))
            self.three.release(who(0))
            fence = self.assert_holder(who(1), HELD - scripts.CLAIMED).fence
            fence += take.grants
            self.says(take(again(1, 2)), OK, fence=fence, ttl=LEASE)
            self.assert_holder(again(1, 2))

    def test_among_others_that_hold(self):
        for take in (self.two.renew, self.two.acquire):
            self.connection.command("DEL", KEY)
            for number in range(5):
                self.hold(who(number), mode=SHARED)
            mode = {"mode": SHARED} if take == self.two.acquire else {}
            take(again(3, 2), moves=True, **mode)
            self.assert_holders(who(0), who(1), who(2), again(3, 2), who(4))

    def test_a_claim_by_its_fence(self):
        held = self.hold(who(0))
        self.says(self.assert_untouched(self.two.renew, again(0, 2),
                                        moves=True, fence=held.fence + 1),
                  GONE)
        self.says(self.two.renew(again(0, 2), moves=True, fence=held.fence),
                  OK)

    def test_the_one_of_two_that_is_meant(self):
        """One that was called off stands there still."""
        self.hold(who(0), mode=SHARED)
        second = dataclasses.replace(who(0), request=b"another!")
        held = self.hold(second, mode=SHARED)
        self.says(self.two.renew(again(0, 2), moves=True, fence=held.fence),
                  OK, fence=held.fence)
        self.assert_order(who(0), again(0, 2))

    def test_what_is_over_stays_over(self):
        self.hold(who(0))
        self.wait(who(1), lease=2 * LEASE)
        self.pass_time(LEASE)
        self.says(self.two.renew(again(0, 2), moves=True), GONE, handed=True)
        self.assert_order(who(1))
        self.says(self.two.acquire(again(0, 2), moves=True), WAITING)
        self.assert_order(who(1), again(0, 2))

    def test_the_end_that_a_client_asked_for_stays(self):
        for take in self.both():
            held = self.hold(who(0), hold=8000)
            self.pass_time(3000)
            self.assertEqual(take(again(0, 2)).ttl, 5000)
            result = self.two.renew(again(0, 2), arrival=held.arrival,
                                    fence=held.fence + take.grants)
            self.assertEqual((result.ttl, result.again), (5000, 5000))
            self.assertEqual(self.record().holder.hold, self.now + 5000)

    def test_a_claim_says_when_the_hold_ends(self):
        self.hold(who(0), hold=100_000)
        self.pass_time(3000)
        result = self.two.renew(again(0, 2), moves=True)
        self.assertEqual((result.ttl, result.again), (LEASE, 97000))
        self.assertEqual(result.about.hold, 97000)

    def test_an_end_that_is_far_away(self):
        """A year in ms takes more than 32 bits."""
        year = 365 * 86_400_000
        self.hold(who(0), hold=year)
        result = self.two.renew(again(0, 2), moves=True)
        self.assertEqual((result.ttl, result.again, result.about.hold),
                         (LEASE, 2**32 - 1, year))

    def test_a_lock_put_again_with_an_end(self):
        self.hold(who(0))
        self.pass_time(1000)
        self.assertEqual(self.two.acquire(again(0, 2), moves=True,
                                          hold=3000).ttl, 3000)
        self.assertEqual(self.record().holder.hold, self.now + 3000)
        self.pass_time(1000)  # and without one that end stays
        self.assertEqual(self.two.acquire(again(0, 3), moves=True).ttl, 2000)
        self.pass_time(500)  # as it does where only the question is repeated
        self.assertEqual(self.two.acquire(again(0, 3), retry=True,
                                          hold=3000).ttl, 1500)

    def test_a_wait_put_again_with_an_end(self):
        for first, then in ((0, 3000), (3000, 0), (3000, 2000)):
            self.hold(who(0), self.three)
            self.wait(who(1), hold=first)
            self.two.acquire(again(1, 2), moves=True, hold=then)
            self.three.release(who(0))
            self.assertEqual(self.two.renew(again(1, 2)).ttl, then or LEASE)
            self.two.release(again(1, 2))

    def test_the_end_of_an_unclaimed_one(self):
        for take in self.both():
            self.hold(who(0), self.three)
            self.wait(who(1), hold=8000)
            self.three.release(who(0))
            self.pass_time(1000)
            self.assertEqual(take(again(1, 2), hold=8000).ttl, 8000)

    def test_a_claim_says_what_it_holds(self):
        self.hold(who(0), mode=SHARED, delay=700)
        result = self.two.renew(again(0, 2), moves=True)
        self.assertEqual(result.about, (SHARED, 1, 0, 700, 0, ()))
        self.assertIsNone(self.two.renew(again(0, 2)).about)
        self.one.release(again(0, 2))
        words = (b"till-3", b"shop", b"inventory")
        self.hold(who(0), permits=3, limit=5, words=words)
        result = self.two.renew(again(0, 2), moves=True)
        self.assertEqual(result.about, (0, 3, 5, 0, 0, words))

    def test_a_lock_has_its_own_words(self):
        """Of a holder and of one who waits, longer, shorter, and none."""
        before = (b"o", b"first", b"note")
        for words in ((b"o", b"second", b"n" * 128), (b"", b"c", b""), ()):
            self.connection.command("DEL", KEY)
            self.queue(1, words=before)
            for number in (0, 1):
                self.two.acquire(again(number, 2), moves=True, words=words)
            _, _, tickets = self.one.inspect()
            self.assertEqual([unpack_words(ticket.words)
                              for ticket in tickets], [words] * 2)
            self.assert_order(again(0, 2), again(1, 2))

    def test_longer_leases_at_the_other_broker(self):
        for take in self.both():
            self.hold(who(0), lease=5000)
            self.assertEqual(take(again(0, 2), lease=60000).ttl, 60000)
            self.assertEqual(self.record().longest, 60000)
            self.pass_time(30000)  # and nobody cuts it
            self.one.acquire(who(1), no_queue=True)
            self.assertEqual(self.record().holder.ends, self.now + 30000)

    def test_shorter_leases_at_the_other_broker(self):
        """A client that was told of more may believe in it still."""
        for take in self.both():
            self.hold(who(0), lease=60000)
            self.pass_time(1000)
            self.assertEqual(take(again(0, 2), lease=5000).ttl, 59000)
            self.pass_time(56000)
            self.assertEqual(take(again(0, 2), lease=5000).ttl, 5000)

    def test_to_share_from_now_on(self):
        self.hold(who(0))
        self.wait(who(1), self.two, mode=SHARED)
        result = self.two.renew(again(0, 2), moves=True, shares=True)
        self.assertEqual((result.status, result.about),
                         (OK, (SHARED, 1, 0, 0, 0, ())))
        self.assert_grants(result, who(1))
        self.assert_holders(again(0, 2), who(1))


class Waiter(Moves):
    def test_keeps_its_place(self):
        for take in self.both():
            queue = self.queue(3)
            self.says(take(again(2, 2)), WAITING, arrival=queue[2].arrival,
                      place=2, ahead=2)
            self.assert_order(who(0), who(1), again(2, 2), who(3))
            self.old_is_refused(2, queue[2])

    def test_is_told_what_it_waits_for(self):
        """The kind is told from the record; the holder in the way is not."""
        self.hold(who(0), permits=2, limit=5)
        self.wait(who(1), permits=4, limit=5, delay=700, hold=9000)
        result = self.two.renew(again(1, 2), moves=True, tell=True)
        self.assertEqual((result.status, result.about),
                         (WAITING, (0, 4, 5, 700, 9000, ())))
        self.assertIsNone(self.two.renew(again(1, 2)).about)
        self.pass_time(LEASE - 1)
        self.two.renew(again(1, 2))
        self.pass_time(1)
        result = self.two.renew(again(1, 3), moves=True)
        self.assertEqual((result.status, result.about),
                         (OK, (0, 4, 5, 700, 9000, ())))

    def test_that_would_share_is_told_so(self):
        self.hold(who(0))
        self.wait(who(1), mode=SHARED)
        result = self.two.renew(again(1, 2), moves=True)
        self.assertEqual((result.status, result.about),
                         (WAITING, (SHARED, 1, 0, 0, 0, ())))

    def test_the_hint_goes_to_the_new_broker(self):
        told = self.listen(b"broker-1", b"broker-2")
        for take in self.both():
            self.queue(1)
            take(again(1, 2))
            self.one.release(who(0))
            (_, moved), (channel, payload) = told()
            self.assertEqual((moved[:1], channel, payload[1:9]),
                             (b"M", b"broker-2", again(1, 2).request))
            self.says(self.two.renew(again(1, 2)), OK)

    def test_answer_was_lost(self):
        for take in self.both():
            self.queue(2)
            first = take(again(1, 2))
            self.assertEqual(take(again(1, 2)), first)
            self.assert_order(who(0), again(1, 2), who(2))

    def test_is_not_suspended_any_more(self):
        """The old broker is dead and let a grant lapse."""
        for take in self.both():
            self.hold(who(0), self.three)
            for number in (1, 2):
                self.wait(who(number))
            self.wait(who(3), self.three)
            self.three.release(who(0))
            self.pass_time(LAPSE)
            self.three.look()
            self.assertEqual(self.record().living[0].flags, WAITS + SUSPENDED)
            self.says(take(again(2, 2)), WAITING)
            self.assert_order(again(2, 2), who(3))
            self.assertEqual(self.record().living[0].flags, LIVING)
            self.three.release(who(3))
            self.assertEqual(self.record().holder.who, again(2, 2))

    def test_gets_what_is_free(self):
        """The takeover is a refresh as well."""
        for take in self.both():
            self.queue(1)
            self.edit_ticket(1, ends=self.now + 2 * LEASE)
            self.pass_time(LEASE)
            self.says(take(again(1, 2)), OK)
            self.assert_holder(again(1, 2))

    def test_does_not_wait_where_it_waits(self):
        """wait=0 of a later generation finds its ticket, too."""
        self.queue(1)
        self.says(self.two.acquire(again(1, 2), moves=True, no_queue=True),
                  WAITING)


class Nobody(Moves):
    def test_nothing_there(self):
        self.says(self.two.acquire(again(0, 2), moves=True), OK, place=0)
        self.assert_order(again(0, 2))
        self.says(self.two.acquire(again(1, 2), moves=True), WAITING)
        for key in (KEY, "holdfast:{none}"):
            self.says(self.two.renew(again(5, 2), key=key, moves=True), GONE)
        self.assert_order(again(0, 2), again(1, 2))

    def test_an_older_generation_comes_late(self):
        for take in self.both():
            self.hold(again(0, 5))
            self.wait(again(1, 5))
            for number in (0, 1):
                for generation in (1, 4):
                    self.says(self.assert_untouched(
                        take, again(number, generation)), MOVED_ON, fence=0)

    def test_an_older_generation_with_nothing_in_its_way(self):
        """It serves who waits all the same."""
        self.hold(again(0, 5))
        self.wait(who(1))
        self.wait(again(2, 5))
        self.edit_ticket(1, ends=self.now + 3 * LEASE)
        self.edit_ticket(2, ends=self.now + 3 * LEASE)
        self.pass_time(LEASE)
        result = self.says(self.one.acquire(again(2, 1), moves=True), MOVED_ON)
        self.assert_grants(result, who(1))

    def test_the_same_generation_at_another_broker(self):
        for take in self.both():
            self.hold(who(0))
            for ticket in (who(0), again(0, 1)):
                self.says(self.assert_untouched(take, ticket), MOVED_ON)

    def test_another_request_of_the_same_generation(self):
        """One that was called off stands there still."""
        for take in self.both():
            queue = [self.hold(who(0)), self.wait(who(1), self.two)]
            self.says(take(again(1, 1)), WAITING, arrival=queue[1].arrival)
            self.assert_order(who(0), again(1, 1))

    def test_another_try_of_a_quorum(self):
        """It may be the later one, and told: it is in the way, as anybody's."""
        self.two.number = 1
        held = self.hold(who(0), self.two)

        def take(generation):
            return self.two.acquire(again(0, generation), moves=True,
                                    no_queue=True)
        self.says(take(1), BUSY)
        self.assertEqual(self.assert_holder(who(0)).fence, held.fence)
        self.assertGreater(take(2).fence, held.fence)
        self.assert_holders(again(0, 2))

    def test_released_before_it_has_moved(self):
        """The claim has not come; what is given back then is the hold."""
        known = self.hold(who(0))
        self.wait(who(1), self.one)
        self.says(self.assert_untouched(self.two.release, again(0, 2),
                                        fence=known.fence), GONE)
        self.says(self.assert_untouched(self.two.release, again(0, 2),
                                        fence=known.fence + 1, moves=True),
                  GONE)
        self.says(self.two.release(again(0, 2), fence=known.fence, moves=True),
                  OK)
        self.assert_order(who(1))

    def test_an_old_release_of_what_has_moved(self):
        known = self.hold(again(0, 2), self.two)
        for broker in (self.one, self.two):
            self.says(self.assert_untouched(
                broker.release, who(0), fence=known.fence, moves=True), GONE)

    def test_of_another_kind(self):
        """It asks for another kind than stands there."""
        for first, second in (({}, {"mode": SHARED}), ({"mode": SHARED}, {}),
                              ({"limit": 3}, {"limit": 3, "permits": 2}),
                              ({"limit": 3}, {}), ({}, {"limit": 3})):
            self.connection.command("DEL", KEY)
            self.hold(who(0), **first)
            self.says(self.two.acquire(again(0, 2), moves=True, **second), OK)
            self.assert_holder(again(0, 2))
            self.assertEqual(self.record().limit, second.get("limit", 0))

    def test_beside_others_of_another_kind(self):
        """It stands behind them, or may not stand there."""
        self.hold(who(0), mode=SHARED)
        self.hold(who(1), mode=SHARED)
        self.says(self.two.acquire(again(0, 2), moves=True), WAITING)
        self.assert_order(who(1), again(0, 2))
        self.says(self.two.acquire(again(1, 2), moves=True, limit=2), CONFLICT)
        self.assert_order(again(0, 2))

    def test_another_kind_after_a_lock_delay(self):
        """Nobody gave that hold back."""
        self.hold(who(0), delay=5000)
        self.says(self.two.acquire(again(0, 2), moves=True, mode=SHARED),
                  WAITING, again=5000)

    def test_a_wait_as_another_kind(self):
        """It is given up, and the new one stands at the end."""
        self.hold(who(9))
        first = self.wait(who(0), self.one)
        other = self.wait(who(1), self.one)
        result = self.says(self.two.acquire(again(0, 2), moves=True,
                                            mode=SHARED), WAITING)
        self.assertGreater(result.arrival, other.arrival)
        self.assertGreater(other.arrival, first.arrival)
        self.assert_order(who(9), who(1), again(0, 2))

    def test_a_wait_of_a_later_connection_as_another_kind(self):
        self.hold(who(9))
        self.wait(again(0, 2), self.two)
        self.says(self.assert_untouched(self.one.acquire, who(0), moves=True,
                                        mode=SHARED), MOVED_ON)

    def test_the_only_wait_as_another_limit(self):
        """Nobody else is there: the limit is that of who comes."""
        self.hold(who(9), limit=3)
        self.wait(who(0), self.one, limit=3, permits=3)
        self.age(LEASE)
        self.says(self.two.acquire(again(0, 2), moves=True), OK)
        self.assert_order(again(0, 2))

    def test_generations_are_numbers(self):
        """Little-endian bytes do not grow with them."""
        for take in self.both():
            self.hold(who(0, generation=255))
            self.says(take(who(0, generation=256)), OK)
            self.says(take(who(0, generation=255)), MOVED_ON)
            self.says(take(who(0, generation=2 ** 32 - 1)), OK)

    def test_another_session_or_owner(self):
        base = Who(b"session-identity", b"owner-id", b"request!", 1)
        for take in self.both():
            self.hold(base)
            for other in ({"owner": b"owner-iD"},
                          {"session": b"session-identitY"}):
                result = take(dataclasses.replace(base, generation=2, **other))
                self.assertIn(result.status, (GONE, WAITING))
            self.assert_holder(base)

    def test_only_where_it_is_said(self):
        """A later generation that does not ask for it is another ticket."""
        self.hold(who(0))
        self.says(self.two.acquire(again(0, 2), retry=True), WAITING)
        self.says(self.two.renew(again(5, 2)), GONE)
        self.assert_order(who(0), again(0, 2))

    def test_words_that_look_like_a_session(self):
        """Also at the place of a ticket's own."""
        ticket = Who(b"session-identity", b"owner-id", b"request!", 1)
        for shift in range(0, 104):
            self.connection.command("DEL", KEY)
            note = b"x" * shift + ticket.session + ticket.owner
            self.hold(who(1), words=(b"", b"", note))
            self.wait(who(2), words=(b"", b"", note))
            self.says(self.two.renew(ticket, moves=True), GONE)
        self.assert_order(who(1), who(2))

    def test_the_dead_are_not_taken_over(self):
        self.queue(3)
        for number in (0, 2):
            self.one.release(who(number))
        for number in (0, 2):
            self.says(self.two.renew(again(number, 2), moves=True), GONE)
        self.assert_order(who(1), who(3))
