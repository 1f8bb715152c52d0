"""Random operations on the scripts and on a model of a queue: the same.

The clock of the scripts is the header's; the bound on grants in one step and
the pause between walks are low. The result, the grants, the messages and the
record are compared after each operation. $HOLDFAST_SEED repeats a run,
$HOLDFAST_STEPS makes it longer.
"""

import collections
import dataclasses
import os
import random
import struct

import scripts
from queue_model import Lock
from script_case import ScriptCase
from scripts import (BUSY, EXCLUSIVE, FENCE_FAR, INTENT, INTENT_SHARED,
                     INTENTS, OK, PART, SHARED, UPGRADABLE, UPGRADE, WAITING,
                     Record, Who, unpack_words)

STEPS = int(os.environ.get("HOLDFAST_STEPS", "60000"))
LEASES = (2000, 6000, 6000)
DELAYS = (0, 400, 3000)
DAY = 86_400_000
MAX = 9
LAPSE = 1500
GRANTS_MAX = 3
WORDS = ((b"o", b"name", b"note"), (b"", b"", b"n" * 100))
KINDS = ("exclusive", "both", "readers", "semaphore", "upgrades", "tree")
MODES = (INTENT, INTENT, INTENT_SHARED, SHARED, UPGRADABLE, EXCLUSIVE)
SIZES = (2, 6, 20, 60)  # how many ask
WEIGHTS = ((5, 4, 4), (5, 4, 4), (6, 4, 3), (8, 4, 3))
NOBODY = Who(b"\0" * 16, b"\0" * 8, b"\0" * 8, 0)
BROKERS = 3
OWNERS = (b"o0000000", b"n0000000")  # the second one's upgrades the first


@dataclasses.dataclass
class Call:
    """One operation, as the model takes it and as the scripts do."""

    name: str
    broker: bytes
    who: object
    retry: bool = False
    no_queue: bool = False
    moves: bool = False
    tell: bool = False
    look: bool = False
    sets_end: bool = False
    shares: bool = False
    watch: bool = False
    watch_waiters: bool = False
    watch_members: bool = False
    unclean: bool = False
    detaches: bool = False
    by_fence: bool = False
    resizes: bool = False
    part: bool = False
    mode: int = EXCLUSIVE
    permits: int = 1
    keeps: int = 0
    limit: int = 0
    delay: int = 0
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
        "acquire": ("retry", "no_queue", "moves", "tell", "mode", "permits",
                    "limit", "delay", "lease", "hold", "latest", "seen",
                    "words"),
        "release": ("place", "arrival", "fence", "seen", "unclean", "moves",
                    "by_fence", "delay"),
        "renew": ("look", "sets_end", "moves", "tell", "shares", "watch",
                  "watch_waiters", "watch_members", "detaches", "by_fence",
                  "resizes", "place", "arrival", "fence", "lease", "hold",
                  "latest", "seen", "keeps"),
        "break": ("fence",)}

    def argument(self):
        values = {field: getattr(self, field)
                  for field in self.FIELDS[self.name]}
        if self.watch_members:
            values["arrival"] = 0
        if self.part:
            values["mode"] |= PART
        if self.name == "break":
            return scripts.break_(**values)
        return scripts.MAKERS[self.name](self.who, **values)


class Client:
    """Chooses what is asked next of one lock, by what a broker may know."""

    def __init__(self, chance, number):
        self.chance = chance
        self.key = f"holdfast:{{{number}}}"
        self.lock = Lock(GRANTS_MAX)
        self.kind = KINDS[number % len(KINDS)]
        self.limit = chance.choice((1, 3, 8))
        self.size = SIZES[number // len(KINDS)]
        self.weights = WEIGHTS[number // len(KINDS)]
        self.generations = [1] * self.size
        self.places = {}  # arrival -> place, as results told
        self.highest = 0  # fence granted so far
        self.stored = 0  # tickets in the record, living or dead
        self.last = None  # the last call
        self.members = None  # what a watcher of members knows, by fence

    def who(self, number, generation):
        """Two owners a session, the second one as the first one's upgrade; each
        broker has its own word for a request."""
        return Who(b"s%015d" % (number // 2), OWNERS[number % 2],
                   b"r%03d%04d" % (number, generation), generation)

    def some(self):
        """Somebody, and the broker that serves its session."""
        number = self.chance.randrange(self.size)
        generation = self.generations[number]
        return number, self.who(number, generation), self.broker(
            number, generation)

    def broker(self, number, generation):
        return b"broker-%d" % ((number + generation) % BROKERS)

    def next(self, now_us):
        chance = self.chance
        if self.last and chance.random() < 0.03:  # its answer was lost
            return dataclasses.replace(self.last, retry=True)
        name = chance.choices(("acquire", "release", "renew"), self.weights)[0]
        if chance.random() < 0.02:
            name = "break"
        number, ticket, broker = self.some()
        standing = self.lock.find(ticket)
        if name != "acquire" and self.lock.tickets and chance.random() < 0.8:
            standing = chance.choice(self.lock.tickets)
            if chance.random() < 0.3:
                standing = chance.choice(self.lock.granted or [standing])
            ticket, broker = standing.who, standing.broker
        call = Call(name, broker, ticket, lease=chance.choice(LEASES))
        if chance.random() < 0.03:
            call.seen = now_us + chance.randint(-10 ** 8, 10 ** 8)
            if chance.random() < 0.4:
                call.seen = now_us + 2 * FENCE_FAR
        if chance.random() < 0.02:
            call.latest = now_us // 1000 - 1
        getattr(self, "choose_" + name)(call, number, standing)
        self.last = call
        return call

    def choose_acquire(self, call, number, standing):
        chance = self.chance
        call.retry = standing is not None or chance.random() < 0.2
        call.no_queue = chance.random() < 0.2
        call.tell = chance.random() < 0.2
        call.words = chance.choice(WORDS) if chance.random() < 0.1 else ()
        if chance.random() < 0.15:
            call.delay = chance.choice(DELAYS)
            if chance.random() < 0.01:
                call.delay = DAY
        if chance.random() < 0.1:
            call.hold = chance.choice((500, 4000, 60000))
        self.choose_kind(call, number)
        if chance.random() < 0.15:
            self.move(call, number)
            mine = self.lock.of_session(call.who)
            if mine and chance.random() < 0.9:  # what it asked for before
                call.mode, call.permits = mine.mode, mine.permits
                if mine.mode in INTENTS:  # these never have a limit
                    call.limit = 0

    def choose_kind(self, call, number):
        chance = self.chance
        kind = self.kind
        if chance.random() < 0.03:
            kind = chance.choice(KINDS)
        call.part = kind != "tree" and chance.random() < 0.2
        if kind == "both":
            call.mode = chance.choice((EXCLUSIVE, SHARED))
        elif kind == "readers":
            call.mode = EXCLUSIVE if chance.random() < 0.1 else SHARED
        elif kind == "upgrades":
            call.mode = chance.choice((EXCLUSIVE, SHARED, SHARED, UPGRADABLE))
            if number % 2 and chance.random() < 0.9:
                call.mode = UPGRADE
        elif kind == "tree":
            call.mode = chance.choice(MODES)
        elif kind == "semaphore":
            call.limit = self.limit
            if chance.random() < 0.02:
                call.limit += 1
            call.permits = chance.randint(1, self.limit)

    def choose_release(self, call, _, standing):
        chance = self.chance
        call.unclean = chance.random() < 0.3
        call.delay = chance.choice((0, 0, 0, 0, 700))
        if standing is not None:
            self.know(call, standing)
            if chance.random() < 0.1:
                self.move(call, self.number_of(standing))
            self.detached(call, standing)

    def detached(self, call, standing):
        """Now and then about a detached hold, by its fence alone."""
        if standing.granted and self.chance.random() < (
                0.4 if standing.detached else 0.02):
            call.who, call.by_fence, call.moves = NOBODY, True, False
            call.fence, call.arrival = standing.fence, 0
            call.look = call.watch = call.watch_waiters = call.shares = False
            call.watch_members = False

    @staticmethod
    def number_of(standing):
        return 2 * int(standing.who.session[1:]) + OWNERS.index(
            standing.who.owner)

    def choose_renew(self, call, _, standing):
        chance = self.chance
        call.tell = chance.random() < 0.2
        if chance.random() < 0.1:
            call.hold = chance.choice((500, 4000, 60000))
        if chance.random() < 0.1:
            call.look = True
            call.watch = chance.random() < 0.3
            call.watch_waiters = call.watch and chance.random() < 0.5
            call.watch_members = call.watch and chance.random() < 0.5
            call.who = NOBODY
        elif chance.random() < 0.1:
            call.sets_end = True
        if chance.random() < 0.1:
            call.shares = True
        if chance.random() < 0.1:
            call.keeps = chance.randint(1, self.limit)
        if standing is not None:
            self.know(call, standing)
            if standing.mode == UPGRADE or standing.mode in INTENTS and \
                    chance.random() < 0.8:
                call.shares = False
            if chance.random() < 0.1:
                self.move(call, self.number_of(standing))
            call.detaches = chance.random() < 0.05 and not call.look
            self.detached(call, standing)
            if call.detaches or call.by_fence:
                call.hold = chance.choice((500, 4000, 60000))
                call.keeps = 0
        if chance.random() < (0.03 if self.lock.limit else 0.002):
            self.resize(call)

    def resize(self, call):
        """A semaphore has another limit; those who come name it, or not."""
        limit = self.chance.choice((1, 2, 3, 5, 8))
        call.who, call.resizes, call.keeps = NOBODY, True, limit
        call.look = call.moves = call.by_fence = call.detaches = False
        call.watch = call.watch_waiters = call.watch_members = False
        if self.lock.limit and self.chance.random() < 0.8:
            self.limit = limit

    def choose_break(self, call, _, standing):
        if standing is not None and self.chance.random() < 0.5:
            call.fence = standing.fence

    def move(self, call, number):
        """The session comes back at another broker, or an old one speaks."""
        generation = self.generations[number] + self.chance.choice(
            (-1, 0, 0, 1, 1, 1, 2, BROKERS))  # or at the same broker
        generation = max(1, generation)
        self.generations[number] = max(self.generations[number], generation)
        call.who = self.who(number, generation)
        call.broker = self.broker(number, generation)
        if self.chance.random() < 0.05:  # another request, same generation
            call.who = dataclasses.replace(call.who, request=b"another!")
        call.moves = True
        call.arrival = 0

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
        texts = {name: scripts.replaced(
            text, f"given < {scripts.GRANTS_MAX}",
            f"given < {GRANTS_MAX}") for name, text in texts.items()}
        texts = {name: scripts.replaced(
            text, f"second + {scripts.SWEEP_PAUSE})",
            "second)") for name, text in texts.items()}
        self.brokers = {
            b"broker-%d" % number: self.broker_of(
                b"broker-%d" % number, texts=texts, lapse=LAPSE,
                idle_after=3_600_000,  # Redis counts it by a clock of its own
                waiters_max=MAX) for number in range(BROKERS)}
        self.listener = self.closing(scripts.connect(self.server))
        self.listener.subscribe(*(scripts.CHANNEL + name
                                  for name in (*self.brokers, b"watch")))
        self.now_us = 1_800_000_000_000_000
        self.node_id = self.replication_id()

    def replication_id(self):
        return self.server.info("replication")["master_replid"].encode()

    def ask(self, clients):
        """One operation of each lock, in one write; what went each way."""
        commands, calls = [], []
        for client in clients:
            self.now_us += client.chance.randint(0, 25_000)
            call = client.next(self.now_us)
            broker = self.brokers[call.broker]
            broker.expected_us = self.now_us
            commands.append(broker.encode(call.name,
                                          (client.key, call.argument())))
            commands.append(("GET", client.key))
            calls.append((client, call, self.now_us))
        replies = self.connection.pipeline(commands)
        self.hear()
        for (client, call, now_us), reply, data in zip(
                calls, replies[::2], replies[1::2]):
            if isinstance(reply, Exception):
                raise reply
            kinds = range(scripts.takes_over(call.name, call.argument()))
            yield client, call, now_us, \
                scripts.Reply(reply, 1, kinds=kinds).results[0], data

    def hear(self):
        """Takes all that was published."""
        self.connection.command("PUBLISH", scripts.CHANNEL + b"watch", "end")
        while (message := self.listener.message())[1] != b"end":
            if message[1].startswith(b"P"):
                told = scripts.Members(message[1])
                self.members_told.setdefault(told.key, []).append(told)
            else:
                self.messages.append(message)

    def compare_members(self, client, data):
        """Each change was told, in order."""
        for told in self.members_told.pop(client.key, []):
            tickets = {each.fence: scripts.told_of(each)
                       for each in told.tickets}
            (fence, what), *others = [*tickets.items()] or [(0, None)]
            if told.kind == scripts.LAST:
                client.members = tickets
                client.members_from = told.history, told.fence
            elif client.members is None:
                continue
            elif told.kind == scripts.LEFT:
                del client.members[fence]
            else:
                self.assertEqual(fence in client.members,
                                 told.kind == scripts.ALTERED)
                client.members[fence] = what
            self.members[told.kind] += 1
            if client.members_from[0] == told.history:  # none was left out
                self.assertLessEqual(told.fence, client.members_from[1])
                client.members_from = told.history, max(
                    client.members_from[1], fence)
            self.assertEqual(len(client.members), told.count)
            self.assertTrue(not others or told.kind == scripts.LAST)
        record = data and Record(data)
        if not record or not record.flags & scripts.SINGLY:
            client.members = None
        if client.members is not None:
            self.assertEqual(client.members, {
                each.fence: scripts.told_of(each) for each in record.living
                if each.granted})

    def compare(self, client, call, now_us, result, data):
        lock = client.lock
        lock.now_us, lock.node_id = now_us, self.node_id
        before = [ticket.arrival for ticket in lock.tickets]
        held = [ticket.arrival for ticket in lock.granted]
        leases = {lock.longest}
        outcome = lock.run(call)
        lock.given_us = data and scripts.Record(data).given_us
        leases.add(lock.longest)
        self.says(result, outcome.status)
        self.compare_record(client, data, leases)
        self.compare_members(client, data)
        self.compare_ticket(client, call, result, outcome)
        self.assertEqual(
            [grant[:4] for grant in result.grants],
            [(ticket.who.request, ticket.fence, ticket.arrival,
              ticket.ends - lock.now) for ticket in outcome.grants])
        for grant in result.grants:
            client.places[grant.arrival] = grant.place
            self.assertEqual(grant.limit, lock.limit)
        self.compare_published(client, result, outcome)
        self.compare_fence(client, before, held)

    def compare_published(self, client, result, outcome):
        kinds = [kind for kind, _ in outcome.published]
        self.assertEqual((result.handed, result.more),
                         ("G" in kinds, outcome.more))
        self.mores += outcome.more
        for kind, ticket in outcome.published:
            self.published[kind] = self.published.get(kind, 0) + 1
            expected = (scripts.CHANNEL + b"watch",
                        kind.encode() + client.key.encode())
            if kind == "M":
                broker, request, generation = ticket
                expected = (scripts.CHANNEL + broker, b"M" + request
                            + struct.pack("<I", generation))
            elif kind not in "WI":  # D: a hint to look at once, as of a grant
                expected = (scripts.CHANNEL + ticket.broker,
                            kind.replace("D", "G").encode()
                            + ticket.who.request
                            + struct.pack("<d", ticket.fence))
            self.assertEqual(self.messages.popleft(), expected)

    def compare_ticket(self, client, call, result, outcome):
        ticket, lock = outcome.ticket, client.lock
        self.assertEqual(result.about, outcome.about)
        if ticket is None:
            self.assertEqual((result.arrival, result.fence, result.ttl),
                             (0, outcome.until,
                              max(lock.delay - lock.now, 0)
                              if result.status == BUSY else 0))
            self.assertEqual(result.ahead, len(lock.waiting) + 1
                             if result.status == BUSY
                             else outcome.broken or outcome.limit)
            self.assertEqual(result.place, outcome.used)
            self.assertEqual(result.again > 0,
                             outcome.waits or result.status == BUSY)
        else:
            self.assertEqual((result.arrival, result.fence, result.ttl), (
                ticket.arrival, ticket.fence, ticket.ends - lock.now))
            client.places[ticket.arrival] = result.place
            if result.status == OK:  # but for a lock that was free
                self.assertIn(result.ahead, (0, lock.limit))
                self.told_limits += result.ahead > 0
                self.assertLessEqual(result.beyond, lock.used > lock.limit)
                self.assertEqual(
                    result.waited_for,
                    ticket.mode in INTENTS and bool(lock.waiting))
        if result.status == WAITING:
            self.compare_ahead(lock, ticket, result)
        if result.again and result.status != OK or outcome.waits:
            self.compare_again(lock, result.again)
        elif ticket is not None:
            self.assertEqual(result.again, outcome.left)

    def compare_ahead(self, lock, ticket, result):
        if ticket.mode == UPGRADE:  # it stands before all waiters
            self.assertEqual(result.ahead, 1)
            return
        waiting = lock.waiting
        ahead = waiting.index(ticket) + 1
        passed = sum(each.arrival > ticket.arrival for each in lock.granted)
        self.assertGreaterEqual(result.ahead, max(1, ahead - passed))
        self.assertLessEqual(result.ahead, len(lock.tickets))
        if ticket.arrival == lock.arrival - 1 and not passed:
            self.assertEqual(result.ahead, len(waiting))

    def compare_again(self, lock, again):
        """Asks again when a lease or a delay ends, or before."""
        self.assertGreaterEqual(again, 50)
        at = min((holder.ends for holder in lock.granted), default=lock.now)
        if lock.barred:
            at = max(at, lock.delay) if lock.closed() else lock.delay
            self.assertGreaterEqual(again, lock.delay - lock.now)
        self.assertLessEqual(again, max(50, at - lock.now))

    def compare_record(self, client, data, leases):
        lock = client.lock
        if data is None:
            self.assertIsNone(lock.fence)
            return
        record = Record(data).check(resized=lock.resized)
        self.squeezed += 0 < record.live == record.stored < client.stored - 8
        client.stored = record.stored
        self.adopt(lock, record, leases)
        self.assertEqual(
            [(each.who, each.broker, each.flags, each.plain_mode, each.part,
              each.detached, each.permits, each.arrival, each.fence,
              each.ends, each.hold, each.lease, each.since, each.delay,
              unpack_words(each.words))
             for each in record.living],
            [(each.who, each.broker, each.flags, each.mode, each.part,
              each.detached, each.permits, each.arrival, each.fence,
              each.ends, each.hold, each.lease, each.since, each.delay,
              each.words)
             for each in lock.tickets])
        self.assertEqual(
            (record.live, record.granted, record.used, record.arrival,
             record.limit, record.longest, record.delayed, record.delay,
             record.watch, record.typical),
            (len(lock.tickets), len(lock.granted), lock.used, lock.arrival,
             lock.limit, lock.longest, lock.delayed, lock.delay,
             lock.watch, lock.typical))

    def adopt(self, lock, record, leases):
        """The allowed results; `leases`: the longest, before and after."""
        if (record.fence, record.id) != (lock.fence, lock.id):
            # A renewal stamps the head only where it must touch it.
            self.assertEqual(record.id, self.node_id)
            self.assertGreaterEqual(record.fence, lock.fence)
            lock.fence, lock.id = int(record.fence), record.id
        if record.watch == 0 and lock.watch <= lock.now:
            lock.watch, lock.wanted = 0, False
        for here, there in zip(lock.tickets, record.living):
            # A lease from before the clock stepped back is cut to one.
            if here.granted and here.ends > there.ends and \
                    there.ends - lock.now in leases | {here.lease}:
                here.ends = int(there.ends)
                self.cuts += 1

    def compare_fence(self, client, before, held):
        """Each new grant has a higher fence and fits, or it moved."""
        lock = client.lock
        for holder in sorted(lock.granted, key=lambda each: each.fence):
            if holder.fence > client.highest:
                client.highest = holder.fence
                passed = [each for each in lock.waiting
                          if each.arrival < holder.arrival]
                self.assertTrue(holder.arrival in held
                                or holder.mode == UPGRADE
                                or all(each.flags & scripts.SUSPENDED
                                       for each in passed), passed)
                self.assertTrue(holder.arrival in before
                                or holder is lock.tickets[-1])
                self.grants += 1
        self.together = max(self.together, len(lock.granted))

    def new_id(self):
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        self.node_id = self.replication_id()

    def pass_time(self, chance):
        if chance.random() < 0.05:
            self.now_us += chance.randint(0, 7_000_000)
        if chance.random() < 0.003:  # the clock steps back
            self.now_us -= chance.choice((300, 9000, 40_000)) * 1000
        if chance.random() < 0.003:
            self.now_us += chance.choice((-2, 1, 1)) * 1000 * DAY

    def test_random_operations(self):
        seed = int(os.environ.get("HOLDFAST_SEED")
                   or random.SystemRandom().randrange(2 ** 32))
        print(f"seed={seed}")
        chance = random.Random(seed)
        clients = [Client(chance, number)
                   for number in range(len(KINDS) * len(SIZES))]
        statuses = [0] * 11
        self.grants = self.squeezed = self.mores = self.cuts = 0
        self.together = self.told_limits = steps = suspended = barred = 0
        self.published = {}
        self.messages, self.members_told = collections.deque(), {}
        self.members = [0] * 5
        while steps < STEPS:
            self.pass_time(chance)
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
                lock = item[0].lock
                suspended += any(each.flags == scripts.WAITS
                                 + scripts.SUSPENDED for each in lock.tickets)
                barred += lock.barred
                steps += 1
        self.assertFalse(self.messages)  # told no more
        print(f"{steps} operations, {self.grants} grants, up to "
              f"{self.together} together, {self.mores} times more, "
              f"{self.squeezed} times squeezed, {suspended} times somebody "
              f"was suspended, {barred} times kept out, {self.cuts} leases "
              f"cut; published: {self.published}; members told: "
              f"{self.members}; by status: {statuses}")
        self.assertGreater(self.grants, steps // 20)
        moved = sum((client.lock.seen for client in clients),
                    collections.Counter())
        print(f"sessions that moved, and others: {dict(moved)}")
        for what in ("waiter", "shared", "broken", "anew", "again", "part",
                     "room", "detached", "prolonged", "ended", "unfit",
                     "shrunk", "sooner", "upgrade", "alone"):
            self.assertGreater(moved[what], 0, what)
        for count in (self.squeezed, suspended, barred, self.mores,
                      self.cuts, self.together - 5, self.told_limits,
                      *self.members[:3], self.members[scripts.LAST],
                      *(self.published.get(kind, 0) for kind in "GWBMDI")):
            self.assertGreater(count, 0)
        for status, count in enumerate(statuses):
            if status != scripts.NEWER:
                self.assertGreater(count, 0, status)
