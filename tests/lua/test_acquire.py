"""acquire: free, new and used records, asking twice, refusals, words."""

from harness import shared_redis

import scripts
from script_case import KEY, ClockCase, ResultCase, ScriptCase
from scripts import (BUSY, FULL, GONE, GRANTED, HEAD_BYTES, HELD, LATE, LEASE,
                     LIVING, OK, SHARED, TICKET_BYTES, WAITING, WAITS, who)


class WritableReplica(ResultCase):
    def test_nothing_is_granted(self):
        """It takes writes, and loses them with the next synchronization."""
        server = self.redis(replica_read_only=False)
        connection = self.closing(scripts.connect(server))
        broker = scripts.Broker(connection, b"broker-1")
        self.says(broker.acquire(who(1)), OK)
        server.command("REPLICAOF", "127.0.0.1", "1")
        self.assert_error("READONLY", broker.acquire, who(2),
                          key="holdfast:{other}")
        self.assertIsNone(connection.command("GET", "holdfast:{other}"))
        server.command("REPLICAOF", "NO", "ONE")


class NewRecord(ScriptCase):
    def test_grant(self):
        result = self.hold(who(1))
        now = self.one.now
        self.assertEqual(result[:6], (OK, False, 0, 1, result.fence, LEASE))
        self.assertEqual(result[6:9], (0, 0, []))
        record = self.record()
        holder = self.assert_holder(who(1))
        self.assertEqual(holder.fence, result.fence)
        self.assertEqual(holder.broker, b"broker-1")
        self.assertEqual((holder.ends, holder.since),
                         (now + LEASE, self.one.last.time_us))
        self.assertEqual((holder.lease, holder.hold, holder.permits),
                         (LEASE, 0, 1))
        self.assertEqual((record.fence, record.arrival, record.low),
                         (result.fence, 2, now + LEASE))
        self.assertEqual(record.id, self.one.id)
        self.assertEqual(record.id.decode(),
                         self.server.info("replication")["master_replid"])

    def test_expiry_of_the_key(self):
        self.hold(who(1))
        ttl = self.connection.command("PTTL", KEY)
        term = self.one.idle_after
        self.assertGreater(ttl, term - 60000)
        self.assertLessEqual(ttl, term)
        self.assertEqual(self.record().forget, self.one.now + term)

    def test_hold_shorter_than_lease(self):
        self.assertEqual(self.hold(who(1), hold=1234).ttl, 1234)
        holder = self.record().holder
        self.assertEqual((holder.ends, holder.hold),
                         (self.one.now + 1234, self.one.now + 1234))

    def test_hold_longer_than_lease(self):
        self.assertEqual(self.hold(who(1), hold=3600000).ttl, LEASE)
        self.assertEqual(self.record().holder.hold, self.one.now + 3600000)

    def test_no_queue_where_nobody_is(self):
        self.hold(who(1), no_queue=True)

    def test_retry_where_nobody_is(self):
        self.hold(who(1), retry=True)

    def test_late(self):
        self.one.look()
        late = self.one.now - 1
        self.says(self.one.acquire(who(1), latest=late), LATE)
        self.assertIsNone(self.raw())


class UsedRecord(ScriptCase):
    def setUp(self):
        super().setUp()
        self.first = self.hold(who(1))
        self.says(self.one.release(who(1), arrival=self.first.arrival), OK)

    def test_next_fence_and_arrival(self):
        result = self.hold(who(2))
        self.assertGreater(result.fence, self.first.fence)
        self.assertEqual(result.arrival, self.first.arrival + 1)
        self.assert_holder(who(2))

    def test_every_shape(self):
        """Fences and arrivals grow, short cut or not."""
        fence, arrival = self.first.fence, self.first.arrival
        shapes = ({}, {"hold": 500}, {"words": (b"owner", b"", b"")},
                  {"lease": 4000}, {"no_queue": True}, {"retry": True}, {})
        for number, options in enumerate(shapes * 2):
            result = self.hold(who(number), **options)
            self.assertGreater(result.fence, fence)
            self.assertEqual(result.arrival, arrival + 1)
            fence, arrival = result.fence, result.arrival
            self.assert_holder(who(number))
            self.says(self.one.release(who(number), arrival=result.arrival,
                                       fence=result.fence), OK)
            self.assert_order()

    def test_late(self):
        late = self.one.now - 1
        self.says(self.assert_untouched(self.one.acquire, who(2), latest=late),
                  LATE)
        self.says(self.one.acquire(who(2), latest=late + 60000), OK)

    def test_duplicate_after_release_and_latest(self):
        """A command that slept in a buffer does not take the lock again."""
        late = self.one.now - 1
        self.says(self.assert_untouched(self.one.acquire, who(1), retry=True,
                                        latest=late), LATE)

    def test_key_expiry_is_put_off_where_it_is_near(self):
        for options in ({}, {"words": (b"o", b"", b"")}):
            self.edit(forget=self.one.now + 1000)
            self.connection.command("PEXPIRE", KEY, 1000)
            result = self.hold(who(2), **options)
            self.assertGreater(self.connection.command("PTTL", KEY),
                               self.one.idle_after - 60000)
            self.assertGreaterEqual(self.record().forget,
                                    self.one.now + self.one.idle_after)
            self.one.release(who(2), arrival=result.arrival)

    def test_key_expiry_is_left_where_it_is_far(self):
        before = self.record().forget
        self.connection.command("PEXPIRE", KEY, 100000)
        self.hold(who(2))
        self.assertLessEqual(self.connection.command("PTTL", KEY), 100000)
        self.assertEqual(self.record().forget, before)

    def test_key_expiry_is_put_off_with_a_queue(self):
        self.queue(1)
        self.edit(forget=self.one.now + 1000)
        self.connection.command("PEXPIRE", KEY, 1000)
        self.one.renew(who(0), arrival=self.record().holder.arrival)
        self.assertGreater(self.connection.command("PTTL", KEY), 80000000)


class AskingTwice(ScriptCase):
    def test_finds_its_grant(self):
        first = self.hold(who(1))
        again = self.hold(who(1), retry=True)
        self.assertEqual((again.fence, again.arrival, again.place),
                         (first.fence, first.arrival, 0))
        self.assertGreater(again.ttl, 0)
        self.assert_order(who(1))

    def test_ends_sooner_than_a_renewal_said(self):
        """A search for expired holds still finds it."""
        self.hold(who(1), hold=9000)
        ends = self.record().holder.ends
        self.edit_ticket(0, ends=ends + 9000)
        self.edit(low=ends + 9000)
        again = self.hold(who(1), retry=True)
        self.assertEqual(again.ttl, ends - self.one.now)
        self.assertLessEqual(self.record().low, ends)

    def test_finds_its_place(self):
        queue = self.queue(3)
        again = self.wait(who(2), retry=True)
        self.assertEqual((again.arrival, again.place, again.ahead),
                         (queue[2].arrival, 2, 2))
        self.assert_order(*map(who, range(4)))

    def test_finds_what_was_granted_by_another_broker(self):
        self.queue(1, self.two)
        self.one.lapse = 2000
        self.assertTrue(self.one.release(who(0)).handed)
        self.assert_holder(who(1), LIVING + GRANTED)
        self.says(self.two.acquire(who(1), retry=True), OK, ttl=LEASE)
        self.assert_holder(who(1), HELD)

    def test_grant_that_is_over_is_not_held(self):
        first = self.hold(who(1))
        self.age(LEASE)
        again = self.hold(who(1), retry=True)
        self.assertEqual(again.fence, first.fence + 1)
        self.assertGreater(again.arrival, first.arrival)
        self.assert_order(who(1))

    def test_grant_that_is_over_and_passed_on(self):
        self.queue(1)
        self.age(LEASE)
        self.edit_ticket(1, ends=self.one.now + LEASE)
        self.assert_grants(self.wait(who(0), retry=True), who(1))
        self.assert_order(who(1), who(0))

    def test_dead_twin_in_front_is_passed_over(self):
        """A ticket that ended, and the same request's new one behind it."""
        self.queue(2)
        self.one.release(who(1))  # struck out in the middle
        again = self.wait(who(1), retry=True)
        self.assert_order(who(0), who(2), who(1))
        self.assertEqual(self.wait(who(1), retry=True).arrival, again.arrival)
        self.assert_order(who(0), who(2), who(1))
        self.says(self.one.release(who(1)), OK)
        self.assert_order(who(0), who(2))

    def test_other_generation_is_another_ticket(self):
        self.hold(who(1))
        self.wait(who(1, generation=2), retry=True)
        self.assert_order(who(1), who(1, generation=2))

    def test_identity_within_words_is_no_ticket(self):
        """Words that look like an identity, also at a ticket's place."""
        for shift in range(0, 92, 1):
            self.connection.command("DEL", KEY)
            note = b"x" * shift + who(9).pack()
            self.hold(who(1), words=(b"", b"", note))
            self.wait(who(2), words=(b"", b"", note))
            self.says(self.one.release(who(9)), GONE)
        self.assert_order(who(1), who(2))


class Refusals(ScriptCase):
    def test_no_queue(self):
        self.hold(who(1))
        result = self.says(self.one.acquire(who(2), no_queue=True), BUSY)
        self.assertGreater(result.again, LEASE - 10000)
        self.assertLessEqual(result.again, LEASE)
        self.assert_order(who(1))

    def test_no_queue_takes_what_is_over(self):
        self.hold(who(1))
        self.age(LEASE)
        self.hold(who(2), no_queue=True)
        self.assert_order(who(2))

    def test_no_queue_serves_who_waits(self):
        self.queue(1)
        self.age(LEASE)
        self.edit_ticket(1, ends=self.one.now + LEASE)
        result = self.says(self.one.acquire(who(2), no_queue=True), BUSY)
        self.assert_grants(result, who(1))
        self.assert_order(who(1))

    def test_no_queue_finds_its_own(self):
        self.hold(who(1))
        self.says(self.one.acquire(who(1), no_queue=True, retry=True), OK)

    def test_waiters_max(self):
        self.one.waiters_max = 2
        self.queue(2)
        self.says(self.assert_untouched(self.one.acquire, who(3)), FULL)
        self.assert_order(who(0), who(1), who(2))
        self.says(self.one.acquire(who(2), retry=True), WAITING)
        self.one.release(who(1))
        self.wait(who(3))

    def test_waiters_max_serves_first(self):
        self.one.waiters_max = 1
        self.queue(1)
        self.age(LEASE)
        self.edit_ticket(1, ends=self.one.now + LEASE)
        self.assert_grants(self.wait(who(2)), who(1))
        self.assert_order(who(1), who(2))
        self.assert_holder(who(1))

    def test_waiters_whose_life_is_over_make_room(self):
        self.one.waiters_max = 3
        self.queue(3)
        self.edit_ticket(1, ends=self.one.now - 1)
        self.edit_ticket(2, ends=self.one.now - 1)
        self.wait(who(4))
        self.assert_order(who(0), who(3), who(4))


class Batches(ScriptCase):
    def test_many_locks(self):
        keys = [f"holdfast:{{{number}}}" for number in range(64)]
        self.hold(who(1), key=keys[7])
        results = self.one.call("acquire", *(
            (key, scripts.acquire(who(2))) for key in keys))
        self.assertEqual([result.status for result in results],
                         [WAITING if key == keys[7] else OK for key in keys])
        for key in keys:
            self.record(key)

    def test_one_lock_twice(self):
        results = self.one.call("acquire", (KEY, scripts.acquire(who(1))),
                                (KEY, scripts.acquire(who(2))))
        self.assertEqual([result.status for result in results], [OK, WAITING])
        self.assert_order(who(1), who(2))

    def test_used_lock_twice(self):
        self.hold_once(who(1))
        results = self.one.call("acquire", (KEY, scripts.acquire(who(2))),
                                (KEY, scripts.acquire(who(2), retry=True)),
                                (KEY, scripts.acquire(who(3), no_queue=True)))
        self.assertEqual([result.status for result in results], [OK, OK, BUSY])
        self.assertEqual(results[0].fence, results[1].fence)

    def test_release_twice(self):
        self.queue(2)
        results = self.one.call("release", (KEY, scripts.release(who(0))), (
            KEY, scripts.release(who(0))), (KEY, scripts.release(who(1))))
        self.assertEqual([result.status for result in results], [OK, GONE, OK])
        self.assertEqual([len(result.grants) for result in results], [1, 0, 1])
        self.assert_holder(who(2))

    def test_grants_among_results(self):
        """Each result's grants are its own."""
        keys = [f"holdfast:{{{number}}}" for number in range(5)]
        for number, key in enumerate(keys):
            self.hold(who(number), key=key)
            if number % 2 == 0:
                self.wait(who(100 + number), key=key)
        results = self.one.call("release", *(
            (key, scripts.release(who(number)))
            for number, key in enumerate(keys)))
        self.assertEqual(
            [[grant.request for grant in result.grants]
             for result in results],
            [[who(100).request], [], [who(102).request], [],
             [who(104).request]])

    def test_different_leases(self):
        """The short cut of one lease is not used for another."""
        keys = [f"holdfast:{{{number}}}" for number in range(6)]
        for key in keys:
            self.hold(who(1), key=key)
            self.one.release(who(1), key=key)
        leases = [5000, 5000, 7000, 5000, 7000, 9000]
        results = self.one.call("acquire", *(
            (key, scripts.acquire(who(2), lease=lease))
            for key, lease in zip(keys, leases)))
        self.assertEqual([result.ttl for result in results], leases)
        for key, lease in zip(keys, leases):
            record = self.record(key)
            self.assertEqual(
                (record.longest, record.holder.lease, record.holder.ends),
                (lease, lease, self.one.now + lease))


class Tell(ClockCase):
    """The holder in the way is told."""

    WORDS = (b"worker-7", b"billing@host", b"nightly run")

    def asked(self, number=9, **options):
        return self.one.acquire(who(number), tell=True, **options)

    def test_busy_and_waiting(self):
        self.hold(who(0), words=self.WORDS)
        self.pass_time(1500)
        busy = self.asked(no_queue=True)
        self.assertEqual((busy.status, busy.about, busy.ahead),
                         (BUSY, (0, 1500, self.WORDS), 1))
        for number in (1, 2):
            result = self.asked(number)
            self.assertEqual((result.status, result.about, result.ahead),
                             (WAITING, (0, 1500, self.WORDS), number))
        self.assertEqual(self.asked(no_queue=True).ahead, 3)
        self.pass_time(500)
        result = self.two.renew(who(1), tell=True)
        self.assertEqual(result.about, (0, 2000, self.WORDS))

    def test_only_where_it_is_asked_for(self):
        self.hold(who(0), words=self.WORDS)
        self.assertIsNone(self.wait(who(1)).about)
        self.assertIsNone(self.one.acquire(who(9), no_queue=True).about)
        self.assertIsNone(self.one.renew(who(1)).about)

    def test_nobody_is_in_the_way(self):
        self.assertIsNone(self.asked(0, delay=1000).about)
        self.assertIsNone(self.one.renew(who(0), tell=True).about)
        self.one.release(who(0), unclean=True)
        busy = self.asked(no_queue=True)
        self.assertEqual((busy.status, busy.about), (BUSY, None))

    def test_no_words(self):
        self.hold(who(0))
        self.assertEqual(self.asked().about, (0, 0, ()))

    def test_the_first_of_many(self):
        self.hold(who(0), mode=SHARED)
        for number in (1, 2, 3):
            self.pass_time(100)
            self.hold(who(number), mode=SHARED,
                      words=(b"%d" % number, b"", b""))
        self.one.release(who(0))
        self.one.release(who(2))
        self.assertEqual(self.asked().about, (0, 200, (b"1", b"", b"")))

    def test_among_results(self):
        """Grants and words of several locks in one reply."""
        keys = [f"holdfast:{{{number}}}" for number in range(4)]
        for key in keys:
            self.hold(who(0), key=key, words=self.WORDS)
            self.wait(who(1), key=key, lease=2 * LEASE)
        self.pass_time(LEASE)
        results = self.one.call("acquire", *(
            (key, scripts.acquire(who(2), tell=True)) for key in keys))
        for result in results:
            self.assert_grants(result, who(1))
            self.assertEqual(result.about[1:], (0, ()))

    def test_how_long_holds_last(self):
        """Those that others waited for; the last ones count an eighth."""
        self.hold(who(0))
        self.pass_time(700)
        self.one.release(who(0))
        self.assertEqual(self.record().typical, 0)  # nobody waited
        self.hold(who(0))
        expected = None
        for number, took in enumerate((800, 1600, 40, 0, 25_000), 1):
            self.wait(who(number))
            self.pass_time(took)
            self.one.release(who(number - 1))
            expected = took if expected is None else (7 * expected
                                                      + took) // 8
            self.assertEqual(self.record().typical, expected)
        self.assertEqual(self.asked().about.typical, expected)

    def test_how_long_an_expired_one_lasted(self):
        self.hold(who(0))
        self.wait(who(1), lease=3 * LEASE)
        self.pass_time(2 * LEASE)
        self.one.look()
        self.assertEqual(self.record().typical, LEASE)

    def test_what_nobody_claimed_was_no_hold(self):
        self.hold(who(0))
        self.wait(who(1), self.two)
        self.wait(who(2))
        self.one.release(who(0))
        self.assertEqual(self.record().typical, 1)  # and never 0
        self.pass_time(2000)
        self.one.look()
        self.assertEqual(self.record().typical, 1)

    def test_it_lasts_beyond_a_release(self):
        """By the short cut as well."""
        self.queue(1)
        self.pass_time(640)
        self.one.release(who(0))
        held = self.record().holder
        for number in range(3):
            self.one.release(held.who, arrival=held.arrival, fence=held.fence)
            self.assertEqual(self.record().typical, 640)
            self.hold(who(number))
            self.assertEqual(self.record().typical, 640)
            held = self.record().holder


class Words(ScriptCase):
    SOME = (b"worker-7", b"billing@host", b"nightly run")
    LONGEST = (b"o" * 64, b"n" * 64, b"N" * 128)

    def shown(self):
        result, _, tickets = self.one.inspect()
        self.says(result, OK)
        return [(ticket.who, scripts.unpack_words(ticket.words))
                for ticket in tickets]

    def test_new_record(self):
        self.hold(who(1), words=self.SOME)
        self.assertEqual(self.shown(), [(who(1), self.SOME)])
        self.assertEqual(self.record().width, TICKET_BYTES + 64)

    def test_used_record(self):
        self.hold_once(who(1))
        self.hold(who(2), words=self.LONGEST)
        self.assertEqual(self.shown(), [(who(2), self.LONGEST)])
        self.assertEqual(self.record().width, TICKET_BYTES + 320)

    def test_widens_with_tickets_standing(self):
        queue = self.queue(3)
        self.wait(who(4), words=self.SOME)
        self.assertEqual(self.record().width, TICKET_BYTES + 64)
        self.wait(who(5), words=self.LONGEST)
        self.assertEqual(self.record().width, TICKET_BYTES + 320)
        self.wait(who(6))
        expected = [(who(number), ()) for number in range(4)]
        expected += [(who(4), self.SOME), (who(5), self.LONGEST), (who(6), ())]
        self.assertEqual(self.shown(), expected)
        for number in range(4):  # places and arrivals are still good
            self.says(self.one.renew(who(number), place=queue[number].place,
                                     arrival=queue[number].arrival),
                      OK if number == 0 else WAITING)
        for number in range(7):
            self.assert_holder(who(number))
            self.one.release(who(number))
        self.assert_order()
        self.assertEqual(self.record().width, TICKET_BYTES)

    def test_widens_with_the_dead_standing(self):
        self.queue(6)
        for number in (1, 3, 5):
            self.one.release(who(number))
        self.wait(who(7), words=self.LONGEST)
        self.assert_order(who(0), who(2), who(4), who(6), who(7))
        self.assertEqual(self.shown()[-1], (who(7), self.LONGEST))

    def test_other_words_for_a_hold(self):
        holder = self.queue(2)[0]
        for words in (self.LONGEST, self.SOME, (b"", b"", b"n"),
                      (b"", b"", b""), self.LONGEST):
            for place in (0, 7):
                self.says(self.one.renew(
                    who(0), fence=holder.fence, arrival=holder.arrival,
                    place=place, words=words), OK)
                self.assertEqual(self.shown(), [
                    (who(0), words if any(words) else ()),
                    (who(1), ()), (who(2), ())])
        for number in range(3):
            self.assert_holder(who(number))
            self.one.release(who(number))

    def test_other_words_in_a_batch(self):
        """They end where the next argument begins, whatever the result."""
        keys = [f"{KEY}{number}" for number in range(5)]
        held = [self.hold(who(number), key=key, words=self.SOME)
                for number, key in enumerate(keys)]
        self.one.release(who(3), keys[3])
        words = [None, self.LONGEST, (b"", b"", b""), self.SOME, None]
        results = self.one.call("renew", *(
            (key, scripts.renew(who(number), fence=held[number].fence,
                                arrival=held[number].arrival,
                                words=words[number]))
            for number, key in enumerate(keys)))
        self.assertEqual([result.status for result in results],
                         [OK, OK, OK, GONE, OK])
        for key, expected in zip(keys, (
                [self.SOME], [self.LONGEST], [()], [], [self.SOME])):
            _, _, tickets = self.one.inspect(key)
            self.assertEqual([scripts.unpack_words(ticket.words)
                              for ticket in tickets], expected)

    def test_every_length(self):
        self.hold(who(0))
        for length in range(0, 129):
            words = (b"", b"", b"n" * length)
            self.wait(who(1), words=words)
            self.assertEqual(self.shown()[1],
                             (who(1), words if length else ()))
            self.one.release(who(1))

    def test_wide_record_gives_no_old_words(self):
        """A ticket without words where one with words stood."""
        self.hold_once(who(0), words=self.LONGEST)
        self.hold(who(1))
        self.wait(who(2))
        self.assertEqual(self.shown(), [(who(1), ()), (who(2), ())])

    def test_inspect_limit_and_order(self):
        self.queue(9)
        _, head, tickets = self.two.inspect(limit=4)
        self.assertEqual([ticket.who for ticket in tickets],
                         list(map(who, range(4))))
        self.assertEqual(head, self.raw()[:HEAD_BYTES])
        self.assertEqual([ticket.flags for ticket in tickets],
                         [HELD] + [WAITS] * 3)

    def test_inspect_goes_on_after_an_arrival(self):
        self.queue(9)
        self.one.release(who(2))
        for after, numbers, passed, more in (
                (0, (0, 1, 3), 0, 1), (4, (4, 5, 6), 2, 1),
                (7, (7, 8, 9), 5, 0), (10, (), 8, 0)):
            result, _, tickets = self.two.inspect(limit=3, after=after)
            self.says(result, OK, place=passed, ahead=more)
            self.assertEqual([ticket.who for ticket in tickets],
                             list(map(who, numbers)))

    def test_inspect_leaves_the_dead_out(self):
        """In front, where they look alive, and in the middle."""
        self.queue(4)
        for number in (0, 3):
            self.one.release(who(number))
        self.assertEqual(self.shown(), [(who(number), ())
                                        for number in (1, 2, 4)])

    def test_inspect_nothing(self):
        result, head, tickets = self.one.inspect("holdfast:{none}")
        self.says(result, GONE)
        self.assertEqual((head, tickets), (b"", []))


class Determinism(ScriptCase):
    def test_replies_have_no_chance_in_them(self):
        """The same calls at the same time: the same bytes."""
        texts = scripts.with_clock(scripts.sources())
        outcomes = []
        for _ in range(2):
            self.server = shared_redis()
            broker = self.broker_of(b"broker-1", texts=texts,
                                    expected_us=1_800_000_000_000_000)
            replies = []
            for number in range(40):
                replies.append(broker.acquire(who(number % 7)))
                if number % 3 == 2:
                    replies.append(broker.release(who(number % 5)))
            outcomes.append((replies, self.raw()))
        self.assertEqual(*outcomes)
