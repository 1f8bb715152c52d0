"""An upgradable hold, and the upgrade above a hold of the same owner."""

import scripts
from script_case import ScriptCase
from scripts import (BROKEN_NOW, BUSY, CONFLICT, FULL, GONE, KEY, LEASE, NEWER,
                     OK, SHARED, UPGRADABLE, UPGRADE, UPGRADES, WAITING, who)


class UpgradeCase(ScriptCase):
    def take(self, number, mode, broker=None, **options):
        return (broker or self.one).acquire(who(number), mode=mode, **options)

    def upgrade(self, number, broker=None, **options):
        return (broker or self.one).acquire(
            who(number).above(), mode=UPGRADE, **options)

    def holders(self):
        return [ticket.who for ticket in self.record().living
                if ticket.granted]

    def modes(self):
        return [ticket.mode for ticket in self.record().living]


class Upgradable(UpgradeCase):
    def test_one_beside_readers(self):
        self.says(self.take(0, SHARED), OK)
        self.says(self.take(1, UPGRADABLE), OK)
        self.says(self.take(2, SHARED), OK)
        self.says(self.take(3, UPGRADABLE, no_queue=True), BUSY)
        self.says(self.take(4, scripts.EXCLUSIVE, no_queue=True), BUSY)
        self.says(self.take(3, UPGRADABLE), WAITING)
        self.one.release(who(1))
        self.assertEqual(self.holders(), [who(0), who(2), who(3)])

    def test_it_comes_first(self):
        self.says(self.take(0, UPGRADABLE), OK)
        self.says(self.take(1, SHARED), OK)
        self.says(self.take(2, UPGRADABLE), WAITING)
        self.age(LEASE)  # all are over
        self.one.look()
        self.says(self.take(3, UPGRADABLE), OK)

    def test_semaphores_have_none(self):
        """A damaged ticket keeps no permit back."""
        self.says(self.take(0, UPGRADE, limit=3), OK)
        self.says(self.take(1, scripts.EXCLUSIVE, limit=3), OK)

    def test_it_becomes_a_reader(self):
        self.take(0, UPGRADABLE)
        self.take(1, SHARED)
        self.take(2, UPGRADABLE)
        self.says(self.one.renew(who(0), shares=True), OK)
        self.assertEqual(self.holders(), [who(0), who(1), who(2)])

    def test_earlier_brokers_refuse_the_record(self):
        self.take(0, UPGRADABLE)
        self.assertEqual(self.record().version, 2)
        self.one.release(who(0))
        self.assertEqual(self.record().version, 1)
        self.edit(version=4)
        self.says(self.take(1, SHARED), NEWER)


class Upgrades(UpgradeCase):
    def setUp(self):
        super().setUp()
        self.base = self.take(0, UPGRADABLE)

    def test_it_waits_for_readers_alone(self):
        self.take(1, SHARED)
        self.take(2, scripts.EXCLUSIVE, self.two)
        self.says(self.upgrade(0), WAITING, ahead=1)
        self.says(self.take(3, SHARED, no_queue=True), BUSY)
        self.says(self.take(3, SHARED), WAITING)
        result = self.one.release(who(1))
        self.assertEqual([grant.request for grant in result.grants],
                         [who(0).above().request])
        self.assertGreater(result.grants[0].fence, self.base.fence)
        self.assertEqual(self.holders(), [who(0), who(0).above()])
        self.says(self.take(4, SHARED, no_queue=True), BUSY)
        self.says(self.one.release(who(0).above()), OK)
        self.assertEqual(self.holders(), [who(0)])
        self.assertFalse(self.record().flags & UPGRADES)
        self.assertEqual(self.record().living[0].fence, self.base.fence)

    def test_alone_at_once(self):
        self.says(self.upgrade(0, no_queue=True), OK)
        self.says(self.upgrade(0, retry=True), OK)
        self.says(self.one.release(who(0)), OK)  # the upgrade stands alone
        self.says(self.take(1, SHARED), WAITING)
        self.one.release(who(0).above())
        self.assertEqual(self.holders(), [who(1)])

    def test_it_is_given_up(self):
        """Readers that waited behind it join the hold below it."""
        self.take(1, SHARED)
        self.upgrade(0)
        self.take(2, SHARED)
        result = self.one.release(who(0).above())
        self.assertEqual([grant.request for grant in result.grants],
                         [who(2).request])

    def test_a_silent_one_keeps_nobody_out(self):
        self.take(1, SHARED)
        self.upgrade(0, self.two, lease=1000)
        self.take(2, SHARED)
        place = self.record().living[2].place
        self.edit_ticket(place, ends=self.now() - 1)
        self.one.look()
        self.assertEqual(self.holders(), [who(0), who(1), who(2)])

    def test_without_the_hold_below(self):
        """It is a wait like others."""
        self.take(1, SHARED)
        self.take(2, scripts.EXCLUSIVE)
        self.upgrade(0)
        self.one.release(who(0))
        self.one.release(who(1))
        self.assertEqual(self.holders(), [who(2)])
        self.one.release(who(2))
        self.assertEqual(self.holders(), [who(0).above()])

    def test_at_another_broker(self):
        self.take(1, SHARED)
        self.upgrade(0, self.two)
        told = self.listen(b"broker-2")
        self.assertTrue(self.one.release(who(1)).handed)
        self.assertEqual(len(told()), 1)
        self.says(self.two.renew(who(0).above()), OK, ttl=LEASE)

    def test_who_is_in_its_way(self):
        """The hold below is not."""
        self.take(1, SHARED, words=(b"reader", b"", b""))
        for no_queue, status in (True, BUSY), (False, WAITING):
            result = self.upgrade(0, no_queue=no_queue, tell=True)
            self.says(result, status)
            self.assertEqual(result.about[2], (b"reader", b"", b""))
        self.one.release(who(1))
        busy = self.take(2, SHARED, no_queue=True, tell=True)
        self.assertEqual(busy.about[2], ())

    def test_the_queue_is_full(self):
        self.one.waiters_max = 1
        self.take(1, scripts.EXCLUSIVE)
        self.says(self.take(2, SHARED), FULL)
        self.says(self.upgrade(0), OK)

    def test_its_session_moves(self):
        """Each of the two is found by its own identity."""
        self.upgrade(0)
        fences = [ticket.fence for ticket in self.record().living]
        for later, fence in zip((who(0, 2), who(0, 2).above()), fences):
            self.says(self.two.renew(later, moves=True, fence=fence), OK)
        self.says(self.one.renew(who(0)), GONE)
        self.assertEqual(self.holders(), [who(0, 2), who(0, 2).above()])

    def test_it_is_shown_before_other_waits(self):
        self.take(1, SHARED)
        for number in (2, 3):
            self.take(number, scripts.EXCLUSIVE)
        self.upgrade(0)
        _, _, shown = self.one.inspect()
        self.assertEqual([ticket.who for ticket in shown],
                         [who(0), who(1), who(0).above(), who(2), who(3)])

    def test_it_is_shown_first_once_granted(self):
        """And each ticket on one page, however long the pages are."""
        for number in (2, 3):
            self.take(number, scripts.EXCLUSIVE)
        self.upgrade(0)
        order = [who(0).above(), who(0), who(2), who(3)]
        for limit in (1, 2, 3, 4):
            shown, after = [], 0
            while len(shown) < 4:
                result, _, page = self.one.inspect(limit=limit, after=after)
                self.assertEqual(result.place, max(len(shown) - 2, 0))
                self.assertLessEqual(len(page), limit)
                after = page[-1].arrival
                shown += [ticket.who for ticket in page]
                self.assertEqual(result.ahead, int(len(shown) < 4))
            self.assertEqual(shown, order)

    def now(self):
        return int(self.one.look() and self.one.last.now)


class Readers(UpgradeCase):
    def test_a_sole_one(self):
        self.take(0, SHARED)
        self.take(1, scripts.EXCLUSIVE)
        self.says(self.upgrade(0, no_queue=True), OK)

    def test_not_beside_another(self):
        self.take(0, SHARED)
        self.take(1, SHARED)
        for number in (0, 1):
            for no_queue in (False, True):
                self.says(self.upgrade(number, no_queue=no_queue), CONFLICT)
        self.one.release(who(1))
        self.says(self.upgrade(0, no_queue=True), OK)

    def test_it_waits_for_a_lock_delay(self):
        self.take(0, SHARED)
        self.take(1, SHARED, delay=1000)
        self.one.release(who(1), unclean=True)
        self.says(self.upgrade(0, no_queue=True), BUSY)
        self.says(self.upgrade(0), WAITING, ahead=1)
        self.says(self.take(2, SHARED), WAITING)
        self.edit(delay=0)  # it is over
        self.says(self.one.renew(who(0).above()), OK)


class Detached(UpgradeCase):
    def test_neither_of_two(self):
        """Another client would hold the lock beside the upgrade."""
        for place in (0, 1):
            self.connection.command("DEL", KEY)
            self.take(0, UPGRADABLE)
            self.upgrade(0)
            ticket = self.record().living[place]
            self.says(self.one.renew(
                ticket.who, shares=place == 0, detaches=True, hold=LEASE),
                BROKEN_NOW)
            self.assertFalse(any(
                each.detached for each in self.record().living))
            self.one.release(self.record().living[1 - place].who)
            self.says(self.one.renew(
                ticket.who, shares=place == 0, detaches=True, hold=LEASE), OK)


class Reclaims(UpgradeCase):
    """A failover has lost both."""

    def test_in_any_order(self):
        for order in (0, 1), (1, 0):
            self.connection.command("DEL", KEY)
            self.take(0, UPGRADABLE)
            self.upgrade(0)
            tickets = self.record().living
            self.connection.command("DEL", KEY)
            self.one.settles_in = 5000
            for place in order:
                ticket = tickets[place]
                self.says(self.one.acquire(
                    ticket.who, mode=ticket.mode,
                    stood=(ticket.arrival, ticket.fence)), OK,
                    fence=ticket.fence)
            self.says(self.take(1, SHARED), WAITING)
            self.one.settles_in = 0
            self.one.look()
            self.assertEqual(self.holders(), [who(0), who(0).above()])
            self.one.release(who(0).above())
            self.assertEqual(self.holders(), [who(0), who(1)])
