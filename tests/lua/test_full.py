"""A full queue: the dead make room, and when the scripts look for them."""

from script_case import KEY, ClockCase
from scripts import (BUSY, FULL, LEASE, OK, SHARED, SUSPENDED, SWEEP_PAUSE,
                     WAITING, WAITS, who)

MAX = 3
SECOND = 1000
DAY = 86_400_000


class Full(ClockCase):
    def setUp(self):
        super().setUp()
        for broker in self.clocked:
            broker.waiters_max = MAX

    def fill(self, **leases):
        """`who(0)` holds for long, `who(1)` to `who(3)` wait."""
        self.hold(who(0), lease=100 * LEASE)
        for number in range(1, MAX + 1):
            self.wait(who(number), self.two,
                      lease=leases.get(f"lease{number}", LEASE))
        self.assert_full()

    def assert_full(self, ticket=who(9), **options):
        self.says(self.one.acquire(ticket, **options), FULL)

    def test_who_is_dead_makes_room(self):
        self.fill(lease2=LEASE // 2)
        self.pass_time(LEASE // 2 - 1)
        self.assert_full()
        self.pass_time(1)
        self.wait(who(4))
        self.assert_order(who(0), who(1), who(3), who(4))
        self.assert_full()

    def test_all_are_dead(self):
        self.fill()
        self.pass_time(LEASE)
        for number in range(4, 4 + MAX):
            self.wait(who(number))
        self.assert_full()
        self.assert_order(who(0), *(who(number)
                                    for number in range(4, 4 + MAX)))

    def test_only_who_would_stand_there_makes_room(self):
        """Other requests leave the dead where they are."""
        self.fill(lease2=LEASE // 2)
        self.pass_time(LEASE // 2)
        self.two.renew(who(1))
        self.one.renew(who(0), lease=100 * LEASE)
        self.one.look()
        self.two.acquire(who(1), retry=True)
        self.says(self.one.acquire(who(4), no_queue=True), BUSY)
        self.assertEqual(self.record().live, 1 + MAX)

    def test_those_behind_a_writer(self):
        """Readers hold it; who comes first can not be granted it."""
        self.hold(who(0), mode=SHARED, lease=100 * LEASE)
        self.wait(who(1), lease=2 * LEASE)
        for number in (2, 3):
            self.wait(who(number), mode=SHARED)
        self.pass_time(LEASE)
        self.wait(who(4), mode=SHARED)
        self.assert_order(who(0), who(1), who(4))

    def test_under_a_lock_delay(self):
        self.hold(who(0), delay=3 * LEASE)
        for number in range(1, MAX + 1):
            self.wait(who(number), lease=2 * LEASE if number == 1 else LEASE)
        self.one.release(who(0), unclean=True)
        self.pass_time(LEASE)
        self.wait(who(4), lease=2 * LEASE)
        self.assert_order(who(1), who(4))
        self.pass_time(LEASE)
        for number in (5, 6):
            self.wait(who(number))
        self.assert_order(who(4), who(5), who(6))

    def test_the_suspended_are_dead_too(self):
        self.hold(who(0), lease=100 * LEASE)
        for number in range(1, MAX + 1):
            self.wait(who(number), self.two)
        self.one.release(who(0))
        self.pass_time(2000)
        self.hold(who(4), lease=100 * LEASE)
        self.assertEqual([ticket.flags for ticket in self.record().living
                          if not ticket.granted], 2 * [WAITS + SUSPENDED])
        self.wait(who(5))
        self.assert_full()
        self.pass_time(LEASE - 2000)
        self.wait(who(6))
        self.assert_order(who(4), who(5), who(6))

    def test_a_shorter_wait_is_seen(self):
        """Of one who comes, and of one who asks again in either way."""
        short = LEASE // 3
        for ask in (None, self.two.renew, self.two.acquire):
            self.connection.command("DEL", KEY)
            self.fill(lease3=LEASE if ask else short)
            if ask == self.two.renew:
                ask(who(3), lease=short)
            elif ask:
                ask(who(3), lease=short, retry=True)
            self.pass_time(short - 1)
            self.assert_full()
            self.pass_time(1)
            self.wait(who(4))
            self.assert_order(who(0), who(1), who(2), who(4))

    def test_who_asks_again_stays(self):
        self.fill()
        for _ in range(10):
            self.pass_time(LEASE // 3)
            for number in range(1, MAX + 1):
                self.says(self.two.renew(who(number)), WAITING)
            self.assert_full()
        self.pass_time(LEASE)
        self.wait(who(4))
        self.assert_order(who(0), who(4))

    def test_when_the_next_walk_is(self):
        """After one in vain, at the earliest end that it saw."""
        self.fill(lease2=LEASE // 2)
        self.assertEqual(self.record().sweep, (self.now + LEASE // 2) // SECOND)
        self.two.renew(who(2), lease=3 * LEASE)
        ends = self.now + LEASE
        self.pass_time(LEASE // 2)
        self.assert_full()
        self.assertEqual(self.record().sweep, ends // SECOND)
        self.pass_time(LEASE // 2 - 1)
        self.assert_untouched(self.assert_full)

    def test_no_walk_soon_after_another(self):
        """Many deaths, one after the other, are no reason for a walk each."""
        self.pass_time(SECOND - self.now % SECOND)
        self.fill(lease1=LEASE + 10, lease2=LEASE + 20, lease3=LEASE + 30)
        self.pass_time(LEASE + 10)
        self.wait(who(4))
        self.pass_time(10)
        self.assert_full()
        self.pass_time(SWEEP_PAUSE * SECOND - 21)
        self.assert_full()
        self.pass_time(1)
        self.wait(who(5))
        self.assert_order(who(0), who(4), who(5))

    def test_the_clock_steps_back(self):
        """A wait from before it ends late, one from after it in time."""
        self.fill()
        self.assert_full()
        for step in (10 * LEASE, 3 * DAY):
            self.pass_time(-step)
            self.assert_full()
            for number in range(1, MAX + 1):
                self.two.renew(who(number))
            self.assert_full()
            self.pass_time(LEASE - SECOND)
            self.assert_full()
        self.pass_time(SECOND)
        self.wait(who(4))
        self.assert_order(who(0), who(4))

    def test_a_time_beyond_belief(self):
        self.fill()
        self.pass_time(LEASE)
        self.edit(sweep=4294967295)
        self.wait(who(4))
        self.assert_order(who(0), who(4))

    def test_who_came_after_an_empty_queue(self):
        """Knowledge of those before it does not count."""
        self.fill(lease1=LEASE // 2)
        for number in range(MAX + 1):
            self.one.release(who(number))
        self.hold(who(0), lease=100 * LEASE)
        self.pass_time(LEASE)
        for number in range(1, MAX + 1):
            self.wait(who(number))
        self.assertEqual(self.record().sweep, (self.now + LEASE) // SECOND)
        self.assert_full()

    def test_retry_of_one_who_stands_there(self):
        self.fill()
        self.says(self.two.acquire(who(2), retry=True), WAITING)
        self.says(self.one.acquire(who(0), retry=True, lease=100 * LEASE), OK)
