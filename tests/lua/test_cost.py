"""What the scripts cost Redis: counted in commands, and printed in us.

Only the counts decide anything, since machines differ and are busy. `run.py -v
test_cost` shows the times; they are Redis' own, of EVALSHA in INFO.
"""

import unittest

import scripts
from script_case import KEY, ScriptCase
from scripts import GRANTED, LIVING, OK, WAITING, who

ROUNDS = 40
DEEP = 10000
COMMANDS = ("getrange", "setrange", "get", "set", "strlen", "pexpire")


class Cost(ScriptCase):
    test_timeout = 300

    def stats(self):
        """us of EVALSHA and how often the scripts called anything."""
        info = self.server.info("commandstats")

        def field(name, key):
            row = info.get("cmdstat_" + name, "")
            pairs = dict(pair.split("=") for pair in row.split(",") if pair)
            return float(pairs.get(key, 0))
        return field("evalsha", "usec"), sum(field(name, "calls")
                                             for name in COMMANDS)

    def measure(self, action, count=1):
        """(us, commands) for each of `count` operations."""
        us, calls = self.stats()
        action()
        us_after, calls_after = self.stats()
        return (us_after - us) / count, (calls_after - calls) / count

    def fill(self, waiters, broker=None):
        """who(0) holds, who(1) to who(waiters) wait; their arrivals."""
        broker = broker or self.one
        broker.acquire(KEY, who(0))
        for first in range(1, waiters + 1, 64):
            results = broker.call("acquire", *(
                (KEY, scripts.acquire(who(number)))
                for number in range(first, min(first + 64, waiters + 1))))
            self.assertEqual({result.status for result in results},
                             {WAITING})


class PlainLocks(Cost):
    def cycle(self, keys, renewals, **options):
        """us of Redis for an acquire, a renew and a release each."""
        totals = dict.fromkeys(("acquire", "renew", "release"), 0.0)
        for _ in range(ROUNDS):
            results = []

            def run(name, make):
                nonlocal results
                us, _ = self.measure(lambda: results.extend(self.one.call(
                    name, *((key, make(index))
                            for index, key in enumerate(keys)))), len(keys))
                totals[name] += us / ROUNDS
            run("acquire", lambda _: scripts.acquire(who(1), **options))
            held, results = results, []
            run("renew", lambda index: scripts.renew(
                who(1), arrival=held[index].arrival,
                fence=held[index].fence, **renewals))
            run("release", lambda index: scripts.release(
                who(1), arrival=held[index].arrival,
                fence=held[index].fence))
            self.assertEqual({result.status for result in results}, {OK})
        return totals

    def test_us_an_operation(self):
        for title, options, renewals in (
                ("plain", {}, {}),
                ("with words", {"words": (b"o", b"n", b"note")},
                 {"lease": scripts.LEASE + 1})):
            for batch in (1, 16, 64):
                keys = [f"holdfast:{{{number}}}" for number in range(batch)]
                self.cycle(keys, renewals, **options)
                totals = self.cycle(keys, renewals, **options)
                print(f"{title}, {batch} a call: " + ", ".join(
                    f"{name} {us:.1f} us" for name, us in totals.items()))

    def test_commands_of_a_plain_lock(self):
        """One read and one write each, nothing else."""
        held = self.hold(who(1))
        self.one.release(KEY, who(1), arrival=held.arrival, fence=held.fence)
        _, calls = self.measure(lambda: self.one.acquire(KEY, who(1)))
        self.assertEqual(calls, 2)
        held = self.record().holder
        known = {"arrival": held.arrival, "fence": held.fence}
        _, calls = self.measure(lambda: self.one.renew(KEY, who(1), **known))
        self.assertEqual(calls, 2)
        _, calls = self.measure(lambda: self.one.release(KEY, who(1),
                                                         **known))
        self.assertEqual(calls, 2)


class Queues(Cost):
    def setUp(self):
        super().setUp()
        for broker in (self.one, self.two):
            broker.waiters_max = 2 * DEEP

    def walk(self, waiters):
        """(us, commands) of each thing that happens to a queue."""
        self.connection.command("DEL", KEY)
        self.fill(waiters)
        tickets = self.record().tickets

        def ask(call, index):
            return call(KEY, who(index), place=index,
                        arrival=tickets[index].arrival)
        middle = waiters // 2 + 10
        costs = {
            "enqueue": self.measure(lambda: [
                self.one.acquire(KEY, who(waiters + 1 + index))
                for index in range(20)], 20),
            "refresh": self.measure(lambda: [
                ask(self.one.renew, middle) for _ in range(20)], 20),
            "cancel in the middle": self.measure(lambda: [
                ask(self.one.release, middle + index)
                for index in range(20)], 20),
            "hand-over": self.measure(lambda: [
                ask(self.one.release, index) for index in range(30)], 30),
            "hand-over to another broker": self.measure(lambda: [
                ask(self.two.release, 30 + index) for index in range(10)],
                10)}
        self.assert_holder(who(40), LIVING + GRANTED)
        self.assertEqual(self.record().live, waiters - 39)
        return costs

    def test_no_operation_grows_with_the_queue(self):
        self.walk(100)  # loads the scripts
        few, many = self.walk(100), self.walk(DEEP)
        for name, (us, calls) in few.items():
            print(f"{name}: {us:.0f} us and {calls:g} commands with 100 "
                  f"waiters, {many[name][0]:.0f} us and {many[name][1]:g} "
                  f"with {DEEP}")
            self.assertLessEqual(many[name][1], calls, name)

    def test_finding_a_ticket_of_unknown_place(self):
        """Bisection by its arrival; without it all are looked through."""
        self.fill(DEEP)
        tickets = self.record().tickets
        some = range(50, DEEP, DEEP // 20)
        us, calls = self.measure(lambda: [
            self.one.renew(KEY, who(index), place=DEEP,
                           arrival=tickets[index].arrival)
            for index in some], len(some))
        print(f"by bisection among {DEEP}: {us:.0f} us, {calls:g} commands")
        self.assertLess(calls, 25)
        us, calls = self.measure(lambda: [
            self.one.renew(KEY, who(index)) for index in some], len(some))
        print(f"by search among {DEEP}: {us:.0f} us, {calls:g} commands")
        self.assertLess(calls, 10)

    def test_crossing_the_dead(self):
        """The holder stays while half of a deep queue gives up."""
        self.fill(DEEP)
        tickets = self.record().tickets
        gone = range(1, DEEP // 2)
        us, calls = self.measure(lambda: [self.one.call("release", *(
            (KEY, scripts.release(who(index), place=index,
                                  arrival=tickets[index].arrival))
            for index in gone[first:first + 64]))
            for first in range(0, len(gone), 64)], len(gone))
        print(f"{len(gone)} cancels: {us:.1f} us, {calls:.2f} commands each")
        self.assertLess(calls, 8)
        us, calls = self.measure(lambda: self.one.release(KEY, who(0)))
        print(f"hand-over across {len(gone)} dead: {us:.0f} us, "
              f"{calls:g} commands")
        self.assertEqual(self.record().holder.who, who(DEEP // 2))
        heir = self.record().holder
        us, calls = self.measure(lambda: self.one.release(
            KEY, heir.who, place=heir.place, arrival=heir.arrival))
        print(f"the next one: {us:.0f} us, {calls:g} commands")
        self.assertLess(calls, 10)

    def test_crossing_the_expired(self):
        """A broker died with half of the queue; it lapsed and is suspended."""
        self.one.acquire(KEY, who(0))
        for broker, first in ((self.two, 1), (self.one, DEEP // 2)):
            for number in range(first, first + DEEP // 2 - 1, 64):
                broker.call("acquire", *(
                    (KEY, scripts.acquire(who(index)))
                    for index in range(number, min(number + 64, first
                                                   + DEEP // 2 - 1))))
        self.one.release(KEY, who(0))
        self.edit_ticket(1, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        us, calls = self.measure(lambda: self.one.look(KEY))
        print(f"lapse and suspension among {DEEP}: {us:.0f} us, "
              f"{calls:g} commands")
        heir = self.record().holder
        self.assertEqual(heir.who, who(DEEP // 2))
        us, calls = self.measure(lambda: self.one.release(
            KEY, heir.who, place=heir.place, arrival=heir.arrival))
        print(f"hand-over across {DEEP // 2 - 2} suspended: {us:.0f} us, "
              f"{calls:g} commands")
        self.assertEqual(self.record().holder.who, who(DEEP // 2 + 1))

    def test_squeeze(self):
        self.fill(DEEP)
        tickets = self.record().tickets
        worst = 0
        for index in range(1, DEEP // 2 + 40):
            us, _ = self.measure(lambda i=index: self.one.release(
                KEY, who(i), place=i, arrival=tickets[i].arrival))
            worst = max(worst, us)
        self.assertLess(len(self.raw()), 120 + 96 * (DEEP // 2 + 10))
        print(f"squeezing {DEEP} to {DEEP // 2}: {worst:.0f} us")


if __name__ == "__main__":
    unittest.main()
