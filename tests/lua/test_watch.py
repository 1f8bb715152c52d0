"""A watcher is told of each change of the lock, and of no other."""

import dataclasses

import scripts
from script_case import KEY, ClockCase
from scripts import (ALTERED, BUSY, GONE, JOINED, LAST, LEASE, LEFT, OK, PAGE,
                     SHARED, WATCHED, who)

OTHER = "holdfast:{other}"
LATER = 4 * LEASE
PAGE_MAX = 500


class Watch(ClockCase):
    def setUp(self):
        super().setUp()
        self.listened = self.listen(b"watch")

    def watch(self, broker=None, key=KEY, lease=LATER, **options):
        self.says((broker or self.three).look(key, watch=True, lease=lease,
                                              **options), OK)

    def told(self):
        """The locks of which something was told."""
        messages = self.listened()
        self.assertTrue(all(payload.startswith(b"W")
                            for _, payload in messages))
        return [payload[1:].decode() for _, payload in messages]

    def assert_told(self, *keys):
        self.assertEqual(self.told(), list(keys))

    def test_of_grants_and_when_it_is_free(self):
        self.hold_once(who(0))
        self.watch()
        self.assert_told()
        self.hold(who(1))
        self.assert_told(KEY)
        self.one.release(who(1))
        self.assert_told(KEY)

    def test_of_other_words(self):
        holder = self.hold(who(0))
        self.watch()
        self.one.renew(who(0), fence=holder.fence, words=(b"", b"", b"n"))
        self.assert_told(KEY)
        self.one.renew(who(0), fence=holder.fence)
        self.assert_told()

    def test_of_who_waits_outside_of_the_record(self):
        for broker, tells in ((self.one, True), (self.two, False)):
            self.says(broker.acquire(who(1 if tells else 2), no_queue=True,
                                     tells_wait=tells), OK if tells else BUSY)
        self.assertEqual(self.listened(), [])
        self.says(self.two.acquire(who(2), no_queue=True, tells_wait=True),
                  BUSY)
        self.assertEqual([payload for _, payload in self.listened()],
                         [b"T" + self.two.broker + KEY.encode()])

    def test_of_waiters_to_a_holder_that_wants_it(self):
        self.hold(who(0))
        self.watch()
        self.wait(who(1))
        self.assert_told()
        self.watch(watch_waiters=True)
        self.wait(who(2))
        self.assert_told()
        self.one.release(who(2))
        self.assert_told()
        self.one.release(who(1))
        self.assert_told(KEY)
        self.wait(who(3))
        self.assert_told(KEY)
        self.one.release(who(0))
        self.assert_told(KEY)
        self.wait(who(4))
        self.assert_told(KEY)

    def test_of_a_lock_that_never_was(self):
        self.watch()
        self.assert_told()
        record = self.record()
        self.assertEqual((record.live, record.watch), (0, self.now + LATER))
        self.assertEqual(self.hold(who(0)).arrival, 1)
        self.assert_told(KEY)

    def test_hand_over_is_told_once(self):
        self.queue(2)
        self.watch()
        self.one.release(who(0))
        self.assert_told(KEY)
        self.one.release(who(1))
        self.assert_told(KEY)

    def test_many_grants_are_told_once(self):
        self.hold(who(0))
        for number in range(1, 50):
            self.wait(who(number), mode=SHARED)
        self.watch()
        self.one.release(who(0))
        self.assert_told(KEY)

    def test_readers(self):
        self.watch()
        for number in range(2):
            self.hold(who(number), mode=SHARED)
            self.assert_told(KEY)
        for number in range(2):  # the others are there still
            self.one.release(who(number))
            self.assert_told(KEY)

    def test_an_exclusive_one_is_shared(self):
        """Only brokers of a quorum hear of it: no record has the waiters."""
        for number, told in ((0, []), (2, [KEY])):
            with self.subTest(number=number):
                self.one.number = number
                self.watch()
                fence = self.hold(who(1)).fence
                self.told()
                self.says(self.one.renew(who(1), shares=True, fence=fence), OK)
                self.assert_told(*told)
                self.one.release(who(1))
                self.told()

    def test_another_fence(self):
        """A majority of nodes has given a larger one."""
        self.one.number = 2
        self.watch()
        fence = self.hold(who(1)).fence
        self.assert_told(KEY)
        for seen, told in ((fence, []), (fence + 16, [KEY]),
                           (fence + 16, [])):
            self.says(self.one.renew(who(1), raises=True, seen=seen), OK,
                      fence=seen)
            self.assert_told(*told)

    def test_expiry_of_one_of_many(self):
        self.hold(who(0), mode=SHARED)
        self.hold(who(1), mode=SHARED, lease=2 * LEASE)
        self.watch()
        self.pass_time(LEASE)
        self.one.look()
        self.assert_told(KEY)
        self.one.look()
        self.assert_told()

    def test_one_of_many_is_broken(self):
        """It holds the lock until it is given back or its lease ends."""
        held = [self.hold(who(number), limit=3) for number in range(3)]
        self.watch()
        self.two.break_(fence=held[0].fence)
        self.assert_told()
        self.one.release(who(0))
        self.assert_told(KEY)
        self.two.break_(fence=held[1].fence)
        self.assert_told()
        self.one.acquire(who(1), limit=3, retry=True)
        self.assert_told(KEY)

    def test_one_goes_and_another_comes(self):
        """One word, not two; also where as many hold it as before."""
        for number in range(2):
            self.hold(who(number), limit=2)
        self.wait(who(2), limit=2)
        self.watch()
        self.one.release(who(0))
        self.assert_told(KEY)
        self.assertEqual(self.record().granted, 2)

    def test_who_gives_up_is_nothing_new(self):
        """A waiter among readers, dead or gone."""
        self.hold(who(0), mode=SHARED, lease=2 * LEASE)
        self.wait(who(1))
        self.wait(who(2))
        self.watch()
        self.one.release(who(1))
        self.pass_time(LEASE)
        self.one.look()
        self.assert_order(who(0))
        self.assert_told()

    def test_expiry(self):
        self.hold(who(0))
        self.watch()
        self.pass_time(LEASE)
        self.assert_told()
        self.one.look()
        self.assert_told(KEY)
        self.one.look()
        self.assert_told()

    def test_expiry_that_an_acquire_finds(self):
        self.hold(who(0))
        self.watch()
        self.pass_time(LEASE)
        self.hold(who(1), no_queue=True)
        self.assert_told(KEY)

    def test_free_but_for_the_suspended(self):
        self.hold(who(0))
        for number in (1, 2):
            self.wait(who(number), self.two)
        self.watch()
        self.one.release(who(0))
        self.assert_told(KEY)
        self.pass_time(2000)
        self.one.look()
        self.assert_told(KEY)

    def test_nothing_new(self):
        held = self.hold(who(0))
        self.watch()
        self.wait(who(1))
        self.wait(who(2), self.two)
        self.says(self.one.acquire(who(3), no_queue=True), BUSY)
        self.one.acquire(who(0), retry=True)
        self.one.acquire(who(1), retry=True)
        for lease in (LEASE, LEASE + 1):
            self.one.renew(who(0), arrival=held.arrival, lease=lease,
                           fence=held.fence)
        self.two.renew(who(2))
        self.one.look()
        self.watch(self.two)
        self.one.release(who(1))
        self.two.break_()
        self.says(self.one.renew(who(9)), GONE)
        self.assert_told()

    def test_a_claim_is_nothing_new(self):
        self.queue(1, self.two)
        self.watch()
        self.one.release(who(0))
        self.assert_told(KEY)
        self.two.renew(who(1))
        self.assert_told()

    def test_a_downgrade_is_nothing_new_where_nobody_joins(self):
        self.hold(who(0))
        self.watch()
        self.one.renew(who(0), shares=True)
        self.assert_told()
        self.hold(who(1), mode=SHARED)
        self.assert_told(KEY)

    def test_another_id_is_nothing_new(self):
        """A renewal that stamps it raises the fence, and grants nothing."""
        self.hold(who(0))
        self.watch()
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        self.one.renew(who(0))
        self.assert_told()

    def test_until_its_time(self):
        self.hold(who(0))
        self.watch(lease=1000)
        self.pass_time(999)
        self.one.release(who(0))
        self.assert_told(KEY)
        self.pass_time(1)
        self.hold(who(1))
        self.assert_told()
        record = self.record()
        self.assertEqual((record.watch, record.flags), (0, 0))

    def test_the_longest_counts(self):
        self.watch(lease=5000)
        self.watch(self.two, lease=1000)
        self.assertEqual(self.record().watch, self.now + 5000)
        self.pass_time(3000)
        self.watch(lease=5000)
        self.pass_time(4999)
        self.hold(who(0))
        self.assert_told(KEY)

    def test_nobody_watches_any_more(self):
        """Such a record is as plain as one that nobody ever watched."""
        self.hold(who(0))
        self.watch(lease=1000)
        self.pass_time(1000)
        self.one.release(who(0))
        self.assertEqual(self.record().flags, 0)
        self.hold(who(1), words=(b"o", b"", b""))
        self.assert_told()

    def test_each_lock_is_its_own(self):
        for key in (KEY, OTHER):
            self.hold(who(0), key=key)
        self.watch(key=OTHER)
        self.one.call("release", *((key, scripts.release(who(0)))
                                   for key in (KEY, OTHER)))
        self.assert_told(OTHER)

    def test_it_lasts_while_the_record_changes(self):
        """Emptied, widened, squeezed."""
        self.watch(lease=10 * LEASE)
        self.hold_once(who(0))
        self.queue(40)
        for number in range(1, 40):
            self.one.release(who(number))
        self.wait(who(50), words=(b"o", b"", b"n" * 100))
        self.told()
        record = self.record()
        self.assertEqual((record.flags, record.watch),
                         (WATCHED, self.now + 10 * LEASE))
        self.one.release(who(0))
        self.assert_told(KEY)

    def test_who_looks_serves(self):
        self.queue(1)
        self.edit_ticket(1, ends=self.now + LATER)
        self.pass_time(LEASE)
        self.assert_grants(self.one.look(watch=True), who(1))
        self.assert_told(KEY)

    def test_the_record_stays_as_long(self):
        self.one.idle_after = 60000
        self.one.look(watch=True)
        self.connection.command("PEXPIRE", KEY, 2000)
        self.pass_time(45000)
        self.one.look(watch=True)
        self.assertGreater(self.connection.command("PTTL", KEY), 50000)


class Members(ClockCase):
    """A watcher of members is told who joins and leaves, in order."""

    def setUp(self):
        super().setUp()
        self.listened = self.listen(b"watch", self.three.broker)

    def watch(self, after=0):
        self.says(self.three.look(watch=True, watch_members=True, lease=LATER,
                                  arrival=after), OK)

    def told(self):
        """(kind, tickets, holders) of each message."""
        messages = [scripts.Members(payload) for _, payload in self.listened()
                    if payload.startswith(b"P")]
        return [(told.kind, [each.who for each in told.tickets], told.count)
                for told in messages]

    def test_who_is_there_and_who_comes_and_goes(self):
        self.hold(who(0), mode=SHARED)
        self.watch()
        self.assertEqual(self.told(), [(LAST, [who(0)], 1)])
        self.hold(who(1), mode=SHARED)
        self.one.release(who(0))
        self.one.release(who(1))
        self.assertEqual(self.told(), [(JOINED, [who(1)], 2),
                                       (LEFT, [who(0)], 1),
                                       (LEFT, [who(1)], 0)])

    def test_pages(self):
        for number in range(PAGE_MAX + 2):
            self.hold(who(number), mode=SHARED)
        self.watch()
        ((kind, first, count),) = self.told()
        self.assertEqual((kind, len(first), count),
                         (PAGE, PAGE_MAX, PAGE_MAX + 2))
        self.watch(after=PAGE_MAX)
        self.assertEqual(self.told(), [
            (LAST, [who(PAGE_MAX), who(PAGE_MAX + 1)], PAGE_MAX + 2)])
        self.watch(after=2 ** 53 - 1)
        self.assertEqual(self.told(), [(LAST, [], PAGE_MAX + 2)])

    def test_words_bound_a_page(self):
        words = (b"o" * 64, b"c" * 64, b"n" * 128)
        for number in range(PAGE_MAX):
            self.hold(who(number), mode=SHARED, words=words)
        self.watch()
        ((kind, first, _),) = self.told()
        self.assertEqual(kind, PAGE)
        self.assertLess(len(first), 200)

    def test_changes_of_a_hold(self):
        fence = self.hold(who(0), limit=3, permits=3).fence
        self.watch()
        self.one.renew(who(0), fence=fence, words=(b"", b"", b"n"))
        self.one.renew(who(0), fence=fence, keeps=1)
        self.one.renew(who(0), fence=fence, detaches=True, hold=9000)
        self.one.renew(who(0), fence=fence, detaches=True, hold=9000)
        self.assertEqual(self.told()[1:], 3 * [(ALTERED, [who(0)], 1)])

    def test_a_hold_that_a_lock_takes_over_has_another_fence(self):
        held = self.hold(who(0))
        self.watch()
        later = dataclasses.replace(who(0), generation=2)
        self.says(self.two.acquire(later, moves=True), OK)
        self.assertEqual(self.told()[1:], [(LEFT, [later], 0),
                                           (JOINED, [later], 1)])
        self.assertGreater(self.record().holder.fence, held.fence)

    def test_no_list_before_the_broker_is_settled(self):
        self.hold(who(0))
        self.three.settles_in = 1000
        self.watch()
        self.assertEqual(self.told(), [])
