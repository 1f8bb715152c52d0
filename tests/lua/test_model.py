"""Random operations on the scripts and on a model of a queue: the same.

The scripts are those that the program loads, but for the clock, which is the
header's, so that leases end without waiting. Held against the model after each
operation: the result, who was granted what, what was published, and every
living ticket in the record. $HOLDFAST_SEED repeats a run, $HOLDFAST_STEPS makes
it longer.
"""

import dataclasses
import os
import random
import struct
import unittest

import scripts
from queue_model import Lock
from script_case import ScriptCase
from scripts import (FENCE_FAR, FENCE_JUMP, LIVING, OK, WAITING, Record,
                     unpack_words, who)

STEPS = int(os.environ.get("HOLDFAST_STEPS", "50000"))
LOCKS = 8
LEASES = (2000, 6000, 6000)
MAX = 14
LAPSE = 1500
WORDS = ((b"o", b"name", b"note"), (b"", b"", b"n" * 100))


@dataclasses.dataclass
class Call:
    """One operation, as the model takes it and as the scripts do."""

    name: str
    broker: bytes
    who: object
    retry: bool = False
    no_queue: bool = False
    look: bool = False
    sets_end: bool = False
    place: int = 0
    arrival: int = 0
    fence: int = 0
    lease: int = 6000
    hold: int = 0
    latest: int = 2 ** 52
    seen: int = 0
    words: tuple = ()
    lapse: int = LAPSE
    waiters_max: int = MAX

    FIELDS = {
        "acquire": ("retry", "no_queue", "lease", "hold", "latest", "seen",
                    "words"),
        "release": ("place", "arrival", "fence", "seen"),
        "renew": ("look", "sets_end", "place", "arrival", "fence", "lease",
                  "hold", "latest", "seen")}

    def argument(self):
        return scripts.MAKERS[self.name](self.who, **{
            field: getattr(self, field) for field in self.FIELDS[self.name]})


class Client:
    """Chooses what is asked next of one lock, by what a broker may know."""

    def __init__(self, chance, number):
        self.chance = chance
        self.key = f"holdfast:{{{number}}}"
        self.lock = Lock()
        self.size = (2, 6, 20, 60)[number % 4]
        self.weights = ((5, 4, 4), (5, 4, 4), (6, 4, 3), (8, 4, 3))[number % 4]
        self.places = {}  # arrival -> place, as results told
        self.highest = 0  # fence granted so far
        self.stored = 0  # tickets in the record, living or dead

    def some(self):
        ticket = who(self.chance.randrange(self.size))
        return ticket, b"broker-%d" % (int(ticket.request[1:]) % 3)

    def next(self, now_us):
        chance = self.chance
        name = chance.choices(("acquire", "release", "renew"),
                              self.weights)[0]
        ticket, broker = self.some()
        standing = self.lock.find(ticket)
        if name != "acquire" and self.lock.tickets and chance.random() < 0.8:
            standing = chance.choice(self.lock.tickets)
            if chance.random() < 0.3:
                standing = (self.lock.granted or [standing])[0]
            ticket, broker = standing.who, standing.broker
        call = Call(name, broker, ticket, lease=chance.choice(LEASES))
        if chance.random() < 0.03:
            call.seen = now_us + chance.randint(-10 ** 8, 10 ** 8)
            if chance.random() < 0.2:
                call.seen = now_us + 2 * FENCE_FAR
        if chance.random() < 0.02:
            call.latest = now_us // 1000 - 1
        if name == "acquire":
            call.retry = standing is not None or chance.random() < 0.2
            call.no_queue = chance.random() < 0.2
            call.words = chance.choice(WORDS) if chance.random() < 0.1 else ()
        if name != "release" and chance.random() < 0.1:
            call.hold = chance.choice((500, 4000, 60000))
        if name == "renew" and chance.random() < 0.1:
            call.look = True
        elif name == "renew" and chance.random() < 0.1:
            call.sets_end = True
        if name != "acquire" and standing is not None:
            self.know(call, standing)
        return call

    def know(self, call, standing):
        """Numbers of a ticket; now and then those of another."""
        chance = self.chance
        if chance.random() < 0.7:
            call.arrival = standing.arrival
            call.place = self.places.get(standing.arrival, 0)
            if chance.random() < 0.1:
                call.place = chance.randrange(40)
        if chance.random() < 0.7:
            call.fence = standing.fence
        if chance.random() < 0.03:
            call.fence = max(1, self.highest + chance.randint(-2, 2))
        if chance.random() < 0.03 and call.arrival:
            call.arrival += chance.choice((-1, 1))


class Model(ScriptCase):
    test_timeout = 300

    def setUp(self):
        super().setUp()
        texts = scripts.with_clock(scripts.sources())
        self.brokers = {
            b"broker-%d" % number: self.broker_of(
                b"broker-%d" % number, texts=texts, lapse=LAPSE,
                waiters_max=MAX) for number in range(3)}
        self.listener = scripts.connect(self.server)
        self.addCleanup(self.listener.close)
        self.listener.subscribe(*(scripts.CHANNEL + name
                                  for name in self.brokers))
        self.now_us = 1_800_000_000_000_000
        self.node_id = self.replication_id()

    def replication_id(self):
        return self.server.info("replication")["master_replid"].encode()

    def ask(self, clients):
        """One operation of each lock, in one write; what went each way."""
        commands, calls = [], []
        for client in clients:
            self.now_us += client.chance.randint(0, 40_000)
            call = client.next(self.now_us)
            broker = self.brokers[call.broker]
            broker.expected_us = self.now_us
            commands.append(broker.encode(call.name,
                                          (client.key, call.argument())))
            commands.append(("GET", client.key))
            calls.append((client, call, self.now_us))
        replies = self.connection.pipeline(commands)
        for (client, call, now_us), reply, data in zip(
                calls, replies[::2], replies[1::2]):
            if isinstance(reply, Exception):
                raise reply
            yield client, call, now_us, scripts.Reply(reply, 1).results[0], \
                data

    def compare(self, client, call, now_us, result, data):
        lock = client.lock
        lock.now_us, lock.node_id = now_us, self.node_id
        before = [ticket.arrival for ticket in lock.tickets]
        outcome = getattr(lock, call.name)(call)
        self.assertEqual(result.status, outcome.status)
        self.compare_ticket(client, result, outcome)
        self.assertEqual(
            [grant[:4] for grant in result.grants],
            [(ticket.who.request, ticket.fence, ticket.arrival,
              ticket.ends - lock.now) for ticket in outcome.grants])
        self.assertEqual(result.handed, bool(outcome.published))
        for ticket in outcome.published:
            self.assertEqual(self.listener.message(), (
                scripts.CHANNEL + ticket.broker, b"G" + ticket.who.request
                + struct.pack("<d", ticket.fence)))
        for grant in result.grants:
            client.places[grant.arrival] = grant.place
        self.compare_record(client, data)
        self.compare_fence(client, before)

    def compare_ticket(self, client, result, outcome):
        ticket, lock = outcome.ticket, client.lock
        if ticket is None:
            self.assertEqual((result.arrival, result.fence, result.ttl),
                             (0, 0, 0))
            return
        self.assertEqual((result.arrival, result.fence, result.ttl),
                         (ticket.arrival, ticket.fence,
                          ticket.ends - lock.now))
        client.places[ticket.arrival] = result.place
        if result.status == WAITING:
            ahead = lock.tickets.index(ticket) + 1 - len(lock.granted)
            self.assertGreaterEqual(result.ahead, ahead)
            self.assertLessEqual(result.ahead, len(lock.tickets))
            self.assertGreaterEqual(result.again, 50)
            self.assertLessEqual(result.again, max(LEASES))
            for holder in lock.granted:  # asks again when it ends, or before
                self.assertLessEqual(result.again,
                                     max(50, holder.ends - lock.now))

    def compare_record(self, client, data):
        lock = client.lock
        if data is None:
            self.assertIsNone(lock.fence)
            return
        record = Record(data).check()
        self.squeezed += 0 < record.live == record.stored < client.stored - 8
        client.stored = record.stored
        self.assertEqual(
            [(each.who, each.broker, each.flags, each.arrival, each.fence,
              each.ends, each.hold, each.lease, each.since,
              unpack_words(each.words)) for each in record.living],
            [(each.who, each.broker, each.flags, each.arrival, each.fence,
              each.ends, each.hold, each.lease, each.since, each.words)
             for each in lock.tickets])
        self.assertEqual((record.live, record.granted, record.arrival),
                         (len(lock.tickets), len(lock.granted), lock.arrival))
        if (record.fence, record.id) != (lock.fence, lock.id):
            # A renewal stamps the head only where it must touch it.
            self.assertEqual(record.id, self.node_id)
            self.assertGreaterEqual(record.fence, lock.fence)
            lock.fence, lock.id = int(record.fence), record.id

    def compare_fence(self, client, before):
        """Each new grant has a fence above all the earlier ones, and goes to
        the first that could take it."""
        lock = client.lock
        self.assertLessEqual(len(lock.granted), 1)
        for holder in lock.granted:
            self.assertGreaterEqual(holder.fence, client.highest)
            if holder.fence > client.highest:
                client.highest = holder.fence
                passed = [each for each in lock.tickets
                          if each.arrival < holder.arrival]
                self.assertTrue(all(each.flags & scripts.SUSPENDED
                                    for each in passed), passed)
                self.assertTrue(holder.arrival in before
                                or holder is lock.tickets[-1])
                self.grants += 1

    def new_id(self):
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        self.node_id = self.replication_id()

    def test_random_operations(self):
        seed = int(os.environ.get("HOLDFAST_SEED")
                   or random.SystemRandom().randrange(2 ** 32))
        print(f"seed={seed}")
        chance = random.Random(seed)
        clients = [Client(chance, number) for number in range(LOCKS)]
        statuses = [0] * 8
        self.grants = self.squeezed = steps = suspended = 0
        while steps < STEPS:
            if chance.random() < 0.05:
                self.now_us += chance.randint(0, 7_000_000)
            if chance.random() < 0.001:
                self.new_id()
            for item in self.ask(clients):
                try:
                    self.compare(*item)
                except AssertionError as error:
                    raise AssertionError(
                        f"seed={seed} step={steps}: {error}\n{item[1:4]}\n"
                        f"{item[0].lock.tickets}") from error
                statuses[item[3].status] += 1
                suspended += any(each.flags > scripts.HELD
                                 for each in item[0].lock.tickets)
                steps += 1
        print(f"{steps} operations, {self.grants} grants, {self.squeezed} "
              f"times squeezed, {suspended} times somebody was suspended; "
              f"by status: {statuses}")
        self.assertGreater(self.grants, steps // 20)
        self.assertGreater(self.squeezed, 0)
        self.assertGreater(suspended, 0)
        for status in (OK, WAITING, scripts.BUSY, scripts.FULL, scripts.LATE,
                       scripts.GONE, scripts.CORRUPT):
            self.assertGreater(statuses[status], 0, status)


if __name__ == "__main__":
    unittest.main()
