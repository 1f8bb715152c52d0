"""The short cuts and the general path: the same bytes, always.

The same random operations run on two databases, with and without short cuts.
The header's time is the clock of both. $HOLDFAST_SEED repeats a run,
$HOLDFAST_STEPS makes it longer.
"""

import os
import random

import scripts
from script_case import ScriptCase
from scripts import REPLY, who

STEPS = int(os.environ.get("HOLDFAST_STEPS", "30000"))
KEYS = [f"holdfast:{{{number}}}" for number in range(8)]
QUIET = KEYS[3:]  # where few ask, and for nothing special
LEASES = (3000, 3000, 3000, 9000)
# Without words, and with as many bytes as make tickets of each width.
WORDS = ((), (b"~1", b"", b""), (b"o" * 61, b"", b""), (b"o" * 62, b"", b""),
         (b"o", b"name", b"note"), (b"o" * 64, b"c" * 64, b"n" * 128))
FORGET = 60000  # so short that it must be put off now and then


def counting(texts):
    """Scripts that count what took no short cut in keys of their own."""
    return {name: text if name not in scripts.TIMED else scripts.replaced(
        text, "slow = slow or general()",
        f"call('INCR', 'slow:{name}')\nslow = slow or general()")
        for name, text in texts.items()}


class Driver:
    """Random operations; it remembers what the answers said."""

    def __init__(self, chance):
        self.chance = chance
        self.now_us = 1_800_000_000_000_000
        self.known = {}  # (key, who) -> the last result that had a ticket

    def pass_time(self):
        chance = self.chance.random()
        if chance < 0.5:
            return
        step = self.chance.randint(0, 200_000)
        if chance > 0.97:
            step = self.chance.randint(1_000_000, 12_000_000)
        elif chance > 0.967:
            step = -self.chance.randint(0, 20_000_000)  # the clock steps back
        self.now_us += step

    def latest(self):
        if self.chance.random() < 0.02:
            return self.now_us // 1000 - 1
        return self.now_us // 1000 + 1000

    def seen(self):
        chance = self.chance.random()
        if chance < 0.95:
            return 0
        if chance < 0.995:
            return self.now_us + self.chance.randint(-10**8, 10**8)
        return self.now_us + 2 * scripts.FENCE_FAR

    def numbers(self, key, ticket):
        """Place, arrival and fence as a broker might have them."""
        known = self.known.get((key, ticket))
        if known is None or self.chance.random() < 0.1:
            return {}
        numbers = {"place": known.place, "arrival": known.arrival}
        if self.chance.random() < 0.9:
            numbers["fence"] = known.fence
        if self.chance.random() < 0.05:
            name = self.chance.choice(sorted(numbers))
            numbers[name] = max(0, numbers[name] + self.chance.choice((-1, 1)))
        return numbers

    def acquire(self, key, ticket):
        chance = self.chance.random
        if key in QUIET and chance() < 0.9:
            return scripts.acquire(ticket, lease=LEASES[0],
                                   no_queue=chance() < 0.5,
                                   words=self.chance.choice(WORDS),
                                   hold=self.chance.choice((0, 0, 0, 5000)))
        options = {"retry": chance() < 0.3, "no_queue": chance() < 0.4,
                   "lease": self.chance.choice(LEASES),
                   "latest": self.latest(), "seen": self.seen()}
        if chance() < 0.1:
            options["hold"] = self.chance.choice((700, 5000))
        if chance() < 0.3:
            options["words"] = self.chance.choice(WORDS)
        if chance() < 0.1:
            options["mode"] = scripts.SHARED
        if chance() < 0.1:
            options["mode"] = options.get("mode", 0) + scripts.PART
        if chance() < 0.1:
            options["delay"] = 1000
        if chance() < 0.05:
            options.update(limit=3, permits=self.chance.randint(1, 3))
        if chance() < 0.1:
            options["moves"] = True
        if chance() < 0.1:
            options["tell"] = True
        return scripts.acquire(ticket, **options)

    def release(self, key, ticket):
        flag = self.chance.choice(("unclean", "moves", "repeats"))
        return scripts.release(ticket, seen=self.seen(),
                               **{flag: self.chance.random() < 0.3},
                               delay=700 * (self.chance.random() < 0.03),
                               **self.numbers(key, ticket))

    def renew(self, key, ticket):
        if key in QUIET and self.chance.random() < 0.9:
            return scripts.renew(ticket, lease=LEASES[0],
                                 **self.numbers(key, ticket))
        options = {"lease": self.chance.choice(LEASES),
                   "latest": self.latest(), "seen": self.seen(),
                   **self.numbers(key, ticket)}
        if self.chance.random() < 0.1:
            options["look"] = True
            options["watch"] = self.chance.random() < 0.1
        elif self.chance.random() < 0.2:
            options[self.chance.choice(("moves", "shares", "tell"))] = True
        elif self.chance.random() < 0.1:
            options["sets_end"] = True
        if self.chance.random() < 0.1:
            options["hold"] = self.chance.choice((1, 700, 5000))
        return scripts.renew(ticket, **options)

    def ticket(self, key, name):
        """Of those that are known to stand there, most often."""
        standing = [entry[1] for entry in self.known if entry[0] == key]
        if name != "acquire" and standing and self.chance.random() < 0.9:
            return self.chance.choice(standing)
        if key in QUIET:
            return who(self.chance.choice((0, 0, 0, 1)))
        return who(self.chance.randrange(5), self.chance.choice((1, 1, 1, 2)))

    def call(self):
        """(script, keys, tickets, arguments) of the next call."""
        name = self.chance.choices(
            ("acquire", "release", "renew", "break"), (40, 40, 30, 1))[0]
        if name == "break":
            key = self.chance.choice(KEYS)
            return name, [key], [who(0)], [scripts.break_()]
        keys = self.chance.choices(KEYS, k=self.chance.choice((1, 1, 2, 4)))
        tickets = [self.ticket(key, name) for key in keys]
        return name, keys, tickets, [getattr(self, name)(key, ticket)
                                     for key, ticket in zip(keys, tickets)]

    def answered(self, name, keys, tickets, results):
        for key, ticket, result in zip(keys, tickets, results):
            if result.arrival > 0:
                self.known[key, ticket] = result
            elif name == "release" and self.chance.random() < 0.8:
                self.known.pop((key, ticket), None)


class Differential(ScriptCase):
    test_timeout = 300

    def brokers(self, texts, database):
        connection = self.closing(scripts.connect(self.server))
        connection.command("SELECT", database)
        return [self.broker_of(b"broker-%d" % number, connection, texts,
                               forget_after=FORGET, waiters_max=12)
                for number in range(3)]

    def both(self, pair, name, keys, arguments, now_us):
        """The results of both, byte for byte the same."""
        outcomes = []
        for broker in pair:
            broker.expected_us = now_us
            command = broker.encode(name, *zip(keys, arguments))
            replies = broker.connection.pipeline(
                [command] + [("GET", key) for key in set(keys)])
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            outcomes.append(replies)
        (short, *records), (long, *general) = outcomes
        self.assertEqual(short[REPLY.size:], long[REPLY.size:])
        if any(short[:REPLY.size]):  # the time was asked for
            self.assertEqual(short[:REPLY.size], long[:REPLY.size])
        self.assertEqual(records, general)
        for record in records:
            if record is not None:
                self.check(record)
        return scripts.Reply(long, len(keys), kinds=[
            number for number, argument in enumerate(arguments)
            if scripts.takes_over(name, argument)]).results

    def check(self, data):
        """But for the clock's steps back, all is as always."""
        record = scripts.Record(data)
        living = record.living
        self.assertEqual(record.live, len(living), record)
        self.assertTrue(record.compatible(
            [ticket for ticket in living if ticket.granted]), record)
        self.assertEqual(record.granted,
                         sum(ticket.granted for ticket in living), record)

    def test_random_operations(self):
        seed = int(os.environ.get("HOLDFAST_SEED")
                   or random.SystemRandom().randrange(2**32))
        print(f"seed={seed}")
        texts = scripts.with_clock(scripts.sources())
        short = self.brokers(counting(texts), 1)
        long = self.brokers(scripts.without_short_cuts(texts), 2)
        chance = random.Random(seed)
        driver = Driver(chance)
        operations = dict.fromkeys(scripts.TIMED + ("break",), 0)
        while sum(operations.values()) < STEPS:
            driver.pass_time()
            if chance.random() < 0.0005:
                self.server.command("DEBUG", "CHANGE-REPL-ID")
            name, keys, tickets, arguments = driver.call()
            pair = chance.choice(list(zip(short, long)))
            with self.subTest(seed=seed, step=sum(operations.values())):
                results = self.both(pair, name, keys, arguments, driver.now_us)
                driver.answered(name, keys, tickets, results)
                operations[name] += len(keys)
                continue
            self.fail(f"seed={seed}")
        for name in scripts.TIMED:
            count = operations[name]
            slow = int(short[0].connection.command("GET", f"slow:{name}"))
            print(f"{name}: {count} operations, {count - slow} short cuts")
            self.assertGreater(count - slow, count // 20, name)
            self.assertGreater(slow, count // 20, name)
