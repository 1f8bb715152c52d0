"""The cost of the scripts in Redis: counted in commands, and printed in us.

Only the counts decide. `run.py -v test_cost` shows times, Redis' own of
EVALSHA.
"""

from harness import SHORT_CUTS, Monitor

import scripts
from script_case import KEY, ScriptCase
from scripts import (FULL, GONE, GRANTED, LIVING, OK, PART, SHARED, WAITING,
                     bytes_of, who)

ROUNDS = 40
DEEP = 10000
MANY, FEW = 1000, 10
COMMANDS = ("getrange", "setrange", "get", "set", "strlen", "pexpire",
            "publish")


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

    def fill(self, waiters, broker=None, **options):
        """`who(0)` holds, `who(1)` to `who(waiters)` wait."""
        broker = broker or self.one
        broker.acquire(who(0))
        self.stand(range(1, waiters + 1), WAITING, broker, **options)

    def stand(self, numbers, status, broker=None, **options):
        for first in range(0, len(numbers), 64):
            results = (broker or self.one).call("acquire", *(
                (KEY, scripts.acquire(who(number), **options))
                for number in numbers[first:first + 64]))
            self.assertEqual({result.status for result in results}, {status})

    def known(self, number):
        """A ticket's place and arrival, as its broker knows them."""
        ticket, = (each for each in self.record().living
                   if each.who == who(number))
        return {"place": ticket.place, "arrival": ticket.arrival}


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
        self.one.release(who(1), arrival=held.arrival, fence=held.fence)
        _, calls = self.measure(lambda: self.one.acquire(who(1)))
        self.assertEqual(calls, 2)
        held = self.record().holder
        known = {"arrival": held.arrival, "fence": held.fence}
        _, calls = self.measure(lambda: self.one.renew(who(1), **known))
        self.assertEqual(calls, 2)
        _, calls = self.measure(lambda: self.one.release(who(1), **known))
        self.assertEqual(calls, 2)


    def test_commands_of_many_in_a_call(self):
        """The time and the id are asked for once, whatever the kind."""
        keys = [f"holdfast:{{{number}}}" for number in range(16)]
        for options, each in (({}, (2, 2, 2)), ({"delay": 500}, (2, 2, 2)),
                              ({"words": (b"o", b"n", b"note")}, (2, 2, 2)),
                              ({"mode": SHARED}, (2, 2, 2)),
                              ({"limit": 3}, (2, 2, 2))):
            for _ in range(2):  # the first time they are new
                counts = []
                for name, make in (
                        ("acquire", lambda _: scripts.acquire(
                            who(1), **options)),
                        ("renew", lambda held: scripts.renew(
                            who(1), arrival=held.arrival, fence=held.fence)),
                        ("release", lambda held: scripts.release(
                            who(1), arrival=held.arrival,
                            fence=held.fence))):
                    held = [self.record(key).holder if name != "acquire"
                            else None for key in keys]
                    batch = [(key, make(ticket))
                             for key, ticket in zip(keys, held)]
                    before = self.server.info("commandstats")
                    _, calls = self.measure(
                        lambda n=name, b=batch: self.one.call(n, *b))
                    after = self.server.info("commandstats")
                    self.assertLessEqual(self.looks(after)
                                         - self.looks(before), 1)
                    counts.append(calls / len(keys))
            self.assertEqual(tuple(counts), each, options)

    def looks(self, stats):
        """How often the time was asked for."""
        row = stats.get("cmdstat_time", "calls=0")
        return int(dict(pair.split("=") for pair in row.split(","))["calls"])


class ShortCuts(Cost):
    """Which way a script takes, since both may need as many commands."""

    def setUp(self):
        super().setUp()
        self.monitor = Monitor(self.server.host, self.server.port)
        self.addCleanup(self.monitor.close)

    def way(self, name, ticket, key=KEY, **options):
        """Whether the operation takes the short cut of its script."""
        self.monitor.of_scripts(self.server, key)
        self.says(getattr(self.one, name)(ticket, key=key, **options), OK)
        return self.monitor.of_scripts(self.server, key) == \
            SHORT_CUTS[name + " with words" * ("words" in options)]

    def used(self, number=1, **options):
        """A lock that was held before, and its last holder's ticket."""
        held = self.hold(who(number), **options)
        return {"arrival": held.arrival, "fence": held.fence}

    def test_acquire(self):
        for asks in ({}, {"retry": True}, {"no_queue": True}, {"moves": True},
                     {"tell": True}, {"words": (b"owner", b"", b"note")},
                     {"hold": 5000}, {"delay": 500}, {"mode": PART}):
            self.one.release(who(1), **self.used())
            self.assertTrue(self.way("acquire", who(1), **asks), asks)
            self.one.release(who(1))

    def test_release(self):
        for asks in ({}, {"unclean": True}, {"moves": True},
                     {"repeats": True}):
            for kind in ({}, {"words": (b"owner", b"", b"note")}):
                self.assertTrue(self.way("release", who(1),
                                         **self.used(**kind), **asks), asks)

    def test_renew(self):
        """Also with words, of the first of several, and with waiters."""
        for kind in ({}, {"words": (b"o", b"n", b"note")}, {"mode": SHARED},
                     {"limit": 3}, {"delay": 500}):
            self.assertTrue(self.way("renew", who(1), **self.used(**kind)),
                            kind)
            self.one.release(who(1))
        known = self.used()
        self.wait(who(2))
        self.assertTrue(self.way("renew", who(1), **known))

    def test_renew_of_what_is_not_so(self):
        """Nothing else takes it, above all not what is over."""
        known = self.used()
        for asks in ({"sets_end": True}, {"moves": True}, {"shares": True},
                     {"raises": True}, {"hold": 5000},
                     {"lease": scripts.LEASE + 1}, {"lease": 1000}):
            self.assertFalse(self.way("renew", who(1), **known, **asks), asks)
            self.one.release(who(1))
            known = self.used()
        for field, value in (("forget", 0), ("id", b"0" * 40)):
            self.edit(**{field: value})
            self.assertFalse(self.way("renew", who(1), **known), field)
        for wrong in ({**known, "fence": known["fence"] + 1},
                      {**known, "arrival": known["arrival"] + 1}):
            self.says(self.one.renew(who(1), **wrong), GONE)
        self.says(self.one.renew(who(2), **known), GONE)
        self.one.release(who(1), **known)  # its ticket stands as it was
        self.says(self.one.renew(who(1), **known), GONE)
        self.hold(who(1))
        self.wait(who(3))
        first = self.record().holder
        self.one.release(who(1))
        self.says(self.one.renew(who(1), arrival=first.arrival,
                                 fence=first.fence), GONE)


class Kinds(Cost):
    def hand_overs(self, waiters):
        """(us, commands) of each, of all but the last."""
        self.connection.command("DEL", KEY)
        self.fill(waiters)
        arrivals = [each.arrival for each in self.record().tickets]
        place, us, calls = 0, 0.0, 0.0
        for number in range(waiters):
            spent, count = self.measure(lambda n=number, p=place: setattr(
                self, "result",
                self.one.release(who(n), place=p, arrival=arrivals[n])))
            us, calls = us + spent, calls + count
            grant, = self.result.grants
            self.assertEqual(grant.request, who(number + 1).request)
            place = grant.place
        return us / waiters, calls / waiters

    def test_hand_over_with_many_waiting(self):
        self.hand_overs(FEW)
        few, many = self.hand_overs(FEW), self.hand_overs(MANY)
        print(f"hand-over: {few[0]:.1f} us and {few[1]:.2f} commands among "
              f"{FEW}, {many[0]:.1f} us and {many[1]:.2f} among {MANY}")
        self.assertLessEqual(many[1], 1.5 * few[1])

    def test_readers_granted_in_one_step(self):
        self.fill(MANY, mode=SHARED)
        us, calls = self.measure(lambda: self.one.release(who(0)), MANY)
        self.assertEqual(self.record().granted, MANY)
        print(f"{MANY} readers after a writer: {us:.2f} us and {calls:.3f} "
              f"commands each")
        self.assertLess(calls, 1.1)

    def readers(self, count):
        """(us, commands) of what happens among readers before a writer."""
        self.connection.command("DEL", KEY)
        self.stand(range(count), OK, mode=SHARED)
        costs = {"one more": self.measure(
            lambda: self.one.acquire(who(count), mode=SHARED))}
        self.says(self.one.acquire(who(count + 1)), WAITING)
        # So many that no squeeze is due.
        for name, number in (("first", 0), ("middle", count // 2),
                             ("last", count)):
            known = self.known(number)
            costs["renewal of the " + name] = self.measure(
                lambda n=number, k=known: self.one.renew(who(n), **k))
            costs["release of the " + name] = self.measure(
                lambda n=number, k=known: self.one.release(who(n), **k))
        costs["wait=0"] = self.measure(lambda: self.one.acquire(
            who(count + 5), mode=SHARED, no_queue=True))
        record = self.record()
        self.assertEqual((record.granted, record.live), (count - 2, count - 1))
        return costs

    def test_nothing_grows_with_the_readers(self):
        self.readers(FEW)
        few, many = self.readers(FEW), self.readers(MANY)
        for name, (us, calls) in few.items():
            print(f"{name}: {us:.0f} us and {calls:g} commands with {FEW} "
                  f"readers, {many[name][0]:.0f} us and {many[name][1]:g} "
                  f"with {MANY}")
            self.assertLessEqual(many[name][1], calls, name)

    def permits(self, count):
        self.connection.command("DEL", KEY)
        self.stand(range(count), OK, limit=count)
        self.stand(range(count, 2 * count), WAITING, limit=count)
        known = self.known(count // 2)
        return self.measure(lambda: self.one.release(who(count // 2), **known))

    def test_a_permit_is_handed_over(self):
        self.permits(FEW)
        few, many = self.permits(FEW), self.permits(MANY)
        print(f"a permit of {FEW}: {few[0]:.0f} us, {few[1]:g} commands; of "
              f"{MANY}: {many[0]:.0f} us, {many[1]:g} commands")
        self.assertLessEqual(many[1], few[1])


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
            return call(who(index), place=index,
                        arrival=tickets[index].arrival)
        middle = waiters // 2 + 10
        costs = {
            "enqueue": self.measure(lambda: [
                self.one.acquire(who(waiters + 1 + index))
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

    def at_full(self, waiters):
        """(us, commands) of what is asked of a queue without room."""
        self.connection.command("DEL", KEY)
        self.one.waiters_max = waiters
        self.fill(waiters)
        middle = self.known(waiters // 2)
        self.one.acquire(who(-1))  # knows after it that none is dead
        costs = {
            "a refused one": self.measure(lambda: [
                self.one.acquire(who(-1)) for _ in range(20)], 20),
            "wait=0": self.measure(lambda: [
                self.one.acquire(who(-1), no_queue=True)
                for _ in range(20)], 20),
            "refresh": self.measure(lambda: [
                self.one.renew(who(waiters // 2), **middle)
                for _ in range(20)], 20),
            "look": self.measure(lambda: [
                self.one.look() for _ in range(20)], 20)}
        self.says(self.one.acquire(who(-1)), FULL)
        self.edit(sweep=0)
        costs["a walk in vain"] = self.measure(
            lambda: self.one.acquire(who(-1)))
        costs["a refused one after it"] = self.measure(
            lambda: self.one.acquire(who(-1)))
        self.assertEqual(self.record().live, waiters + 1)
        return costs

    def test_nothing_grows_with_a_full_queue(self):
        self.at_full(100)
        few, many = self.at_full(100), self.at_full(DEEP)
        for name, (us, calls) in few.items():
            print(f"full, {name}: {us:.0f} us and {calls:g} commands with 100 "
                  f"waiters, {many[name][0]:.0f} us and {many[name][1]:g} "
                  f"with {DEEP}")
            if name != "a walk in vain":
                self.assertLessEqual(many[name][1], calls, name)

    def test_finding_a_ticket_of_unknown_place(self):
        """Bisection by its arrival; without it all are looked through."""
        self.fill(DEEP)
        tickets = self.record().tickets
        some = range(50, DEEP, DEEP // 20)
        us, calls = self.measure(lambda: [
            self.one.renew(who(index), place=DEEP,
                           arrival=tickets[index].arrival)
            for index in some], len(some))
        print(f"by bisection among {DEEP}: {us:.0f} us, {calls:g} commands")
        self.assertLess(calls, 25)
        us, calls = self.measure(lambda: [
            self.one.renew(who(index)) for index in some], len(some))
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
        us, calls = self.measure(lambda: self.one.release(who(0)))
        print(f"hand-over across {len(gone)} dead: {us:.0f} us, "
              f"{calls:g} commands")
        self.assertEqual(self.record().holder.who, who(DEEP // 2))
        heir = self.record().holder
        us, calls = self.measure(lambda: self.one.release(
            heir.who, place=heir.place, arrival=heir.arrival))
        print(f"the next one: {us:.0f} us, {calls:g} commands")
        self.assertLess(calls, 10)

    def test_crossing_the_expired(self):
        """A broker died with half of the queue; it lapsed and is suspended."""
        self.one.acquire(who(0))
        for broker, first in ((self.two, 1), (self.one, DEEP // 2)):
            for number in range(first, first + DEEP // 2 - 1, 64):
                broker.call("acquire", *(
                    (KEY, scripts.acquire(who(index)))
                    for index in range(number, min(number + 64, first
                                                   + DEEP // 2 - 1))))
        self.one.release(who(0))
        self.edit_ticket(1, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        us, calls = self.measure(lambda: self.one.look())
        print(f"lapse and suspension among {DEEP}: {us:.0f} us, "
              f"{calls:g} commands")
        heir = self.record().holder
        self.assertEqual(heir.who, who(DEEP // 2))
        us, calls = self.measure(lambda: self.one.release(
            heir.who, place=heir.place, arrival=heir.arrival))
        print(f"hand-over across {DEEP // 2 - 2} suspended: {us:.0f} us, "
              f"{calls:g} commands")
        self.assertEqual(self.record().holder.who, who(DEEP // 2 + 1))

    def test_squeeze(self):
        self.fill(DEEP)
        tickets = self.record().tickets
        worst = 0
        for index in range(1, DEEP // 2 + 40):
            us, _ = self.measure(lambda i=index: self.one.release(
                who(i), place=i, arrival=tickets[i].arrival))
            worst = max(worst, us)
        self.assertLess(len(self.raw()), bytes_of(DEEP // 2 + 10))
        print(f"squeezing {DEEP} to {DEEP // 2}: {worst:.0f} us")
