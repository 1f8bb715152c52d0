"""The scripts of lua/ as a broker sees them: arguments, results, the record.

daemon/store/wire/record.def has the layout. The scripts are those of build/lua,
or of $HOLDFAST_LUA.
"""

import collections
import dataclasses
import hashlib
import os
import struct

from harness import RECORDS, RedisConnection, RedisError
from harness.broker import TREE

LUA = os.environ.get("HOLDFAST_LUA") or os.path.join(TREE, "build", "lua")
NAMES = ("acquire", "release", "renew", "inspect", "break", "audit")
TIMED = ("acquire", "release", "renew")  # those with short cuts

(OK, WAITING, BUSY, FULL, LATE, GONE, NEWER, CORRUPT, CONFLICT, BROKEN_NOW,
 MOVED_ON, CHANGED, MISSING, GRACE) = range(14)
LIVING, GRANTED, CLAIMED, SUSPENDED, BROKEN = 1, 2, 4, 8, 16
WAITS, HELD = LIVING, LIVING + GRANTED + CLAIMED
SHARED_NOW, WATCHED, BEREFT, KEPT, WANTED, SINGLY = (  # of the head
    1, 2, 4, 8, 16, 32)
UPGRADABLE_NOW, UPGRADES = 64, 128
STANDING = SHARED_NOW | UPGRADABLE_NOW | UPGRADES
JOINED, ALTERED, LEFT, PAGE, LAST = range(5)  # a message about holders
EXCLUSIVE, SHARED, DETACHED, UPGRADABLE, UPGRADE = 0, 1, 2, 4, 8
INTENT, INTENT_SHARED = INTENTS = 16, 17
PART = 32
BESIDE = {SHARED: (SHARED, UPGRADABLE, INTENT_SHARED),
          UPGRADABLE: (SHARED, INTENT_SHARED),
          INTENT: (INTENT, INTENT_SHARED),
          INTENT_SHARED: (SHARED, UPGRADABLE, INTENT, INTENT_SHARED)}
OLD_HOLD, OLD_WAIT, LATE_HOLD = 1, 2, 4  # what an audit sees
(RIGHT, WRONG_TYPE, WRONG_NAME, WRONG_VERSION, WRONG_RECORD, WRONG_COUNTS,
 WRONG_EXPIRY, WRONG_FENCE) = range(8)

HEADER, IDENTITY, ACQUIRE, STOOD, RELEASE, RENEW, INSPECT, BREAK, AUDIT, \
    AUDITED, MEMBERS, SUSPECT, REPLY, RESULT, ABOUT, KIND, GRANT, HEAD, \
    TICKET = (
        RECORDS[name].struct for name in (
            "HEADER", "IDENTITY", "ACQUIRE", "STOOD_AT", "RELEASE", "RENEW",
            "INSPECT", "BREAK", "AUDIT", "AUDITED", "MEMBERS", "SUSPECT",
            "REPLY", "RESULT", "ABOUT", "KIND", "GRANT", "HEAD", "TICKET"))
HEAD_BYTES, TICKET_BYTES = HEAD.size, TICKET.size
HEAD_FIELDS = [field.lower() for field in RECORDS["HEAD"].at]

KEY = "holdfast:{key}"
LEASE = 30000
FOREVER = 2.0 ** 52
FENCE_JUMP = 10_000_000
FENCE_STEP = 1_000_000
FENCE_FAR = 86_400_000_000
CHANNEL = b"holdfast:broker:"
GRANTS_MAX = 1024
SWEEP_PAUSE = 1  # s
DELAY_MAX = 86_400_000

Grant = collections.namedtuple(
    "Grant", "request fence arrival ttl place limit")
Result = collections.namedtuple(
    "Result", "status handed place arrival fence ttl again ahead grants more "
    "about beyond waited_for", defaults=(False, None, False, False))
Audit = collections.namedtuple(
    "Audit", "records held waiting detached left cursor suspects")
Sight = collections.namedtuple("Sight", "flags wrong held wait name")
About = collections.namedtuple("About", "typical age words")
Kind = collections.namedtuple("Kind", "mode permits limit delay hold words")


def source(name, folder=LUA):
    """A script as the program loads it."""
    with open(os.path.join(folder, name + ".lua"), encoding="ascii") as file:
        return file.read()


def sources(folder=LUA):
    return {name: source(name, folder) for name in NAMES}


def replaced(text, old, new):
    """`text` with what must be in it replaced."""
    if old not in text:
        raise AssertionError(f"the script has no '{old}' any more")
    return text.replace(old, new)


def with_clock(scripts):
    """The scripts with the header's expected time for a clock."""
    at = RECORDS["HEADER"].at["EXPECTED"] + 1
    clock = (f"(function() local us = struct.unpack('<d', ARGV[1], {at}) "
             "return {math.floor(us / 1000000), us % 1000000} end)()")
    return {name: replaced(text, "call('TIME')", clock)
            for name, text in scripts.items()}


def without_short_cuts(scripts):
    """The scripts with the general path for every operation."""
    return {name: text if name not in TIMED
            else replaced(text, f"not {name}_plain(", f"true or {name}_plain(")
            for name, text in scripts.items()}


def bytes_of(tickets):
    """Length of a record of so many tickets without words."""
    return HEAD_BYTES + TICKET_BYTES * tickets


@dataclasses.dataclass(frozen=True)
class Who:
    """The identity of a ticket."""

    session: bytes = b"s" * 16
    owner: bytes = b"\0" * 8
    request: bytes = b"r" * 8
    generation: int = 1

    def pack(self):
        return IDENTITY.pack(self.generation, self.session, self.owner,
                             self.request)

    @property
    def counterpart(self):
        """Session and owner of the upgrade above this one, or below."""
        return self.session, bytes([self.owner[0] ^ 1]) + self.owner[1:]

    def above(self):
        """The identity of its upgrade."""
        session, owner = self.counterpart
        return Who(session, owner, b"u" + self.request[1:], self.generation)


def may_join(mode, who_asks, granted):
    """Whether that mode goes with these holders, each with mode and who."""
    if mode == UPGRADE and len(granted) == 1 and not granted[0].detached:
        own = granted[0].who
        return (own.session, own.owner) == who_asks.counterpart
    return all(each.plain_mode in BESIDE.get(mode, ()) for each in granted)


def who(number, generation=1):
    """One of many; session and request differ."""
    return Who(b"s%015d" % number, b"\0" * 8, b"r%07d" % number, generation)


def pack_words(words):
    """Owner, name and note; nothing where all are empty."""
    if not any(words):
        return b""
    return b"".join(bytes([len(word)]) + word for word in words)


def unpack_words(data):
    words = []
    while data:
        words.append(data[1:1 + data[0]])
        data = data[1 + data[0]:]
    return tuple(words)


def bits(*flags):
    """The first is bit 0."""
    return sum(bool(flag) << place for place, flag in enumerate(flags))


def acquire(ticket, retry=False, no_queue=False, moves=False, tell=False,
            mode=EXCLUSIVE, permits=1, limit=0, lease=LEASE, delay=0, hold=0,
            latest=FOREVER, seen=0, words=(), stood=None, overdue=False,
            tells_wait=False):
    """`stood`: the arrival and the fence of a ticket that stood there."""
    data = pack_words(words)
    return ticket.pack() + ACQUIRE.pack(
        bits(retry, no_queue, moves, tell, stood, overdue, tells_wait), mode,
        len(data), permits, limit, lease, delay, hold, latest, seen) + \
        (STOOD.pack(*stood) if stood else b"") + data


def release(ticket, place=0, arrival=0, fence=0, seen=0, unclean=False,
            moves=False, repeats=False, by_fence=False, earlier=False,
            spares=False, delay=0):
    return ticket.pack() + RELEASE.pack(
        place, arrival, fence, seen,
        bits(unclean, moves, repeats, by_fence, earlier, spares), delay)


def renew(ticket, look=False, sets_end=False, moves=False, tell=False,
          shares=False, watch=False, raises=False, agreed=False, holds=False,
          overdue=False, watch_waiters=False, detaches=False, by_fence=False,
          watch_members=False, resizes=False, place=0, arrival=0, fence=0,
          lease=LEASE, hold=0, latest=FOREVER, seen=0, words=None, keeps=0):
    behind = b"" if words is None else b"".join(
        bytes([len(word)]) + word for word in words)
    return ticket.pack() + RENEW.pack(place, arrival, fence, bits(
        look, sets_end, moves, tell, shares, watch, raises, agreed, holds,
        overdue, watch_waiters, detaches, by_fence, words is not None,
        watch_members, resizes), lease, hold, keeps, latest, seen) + behind


def break_(fence=0):
    return BREAK.pack(fence)


MAKERS = {"acquire": acquire, "release": release, "renew": renew}


def takes_over(name, argument):
    """Whether this takes a ticket over: then the result says what it is."""
    return name == "renew" and argument[
        IDENTITY.size + RECORDS["RENEW"].at["FLAGS"]] & 4 != 0


class Reply:
    """The time (0 if the script did not read it), the id and the results of a
    call. `kinds`: places of results that say what a waiter is."""

    def __init__(self, data, count, inspect=False, kinds=()):
        time_us, self.id = REPLY.unpack_from(data)
        self.time_us = int(time_us)
        self.now = self.time_us // 1000
        self.results = []
        at = REPLY.size
        for number in range(count):
            status, handed, grants, about, *numbers = RESULT.unpack_from(
                data, at)
            at += RESULT.size
            some = [Grant(*GRANT.unpack_from(data, at + GRANT.size * index))
                    for index in range(grants)]
            at += GRANT.size * grants
            told = None
            if about and (status == OK or number in kinds):
                words = data[at + KIND.size:at + about]
                told = Kind(*KIND.unpack_from(data, at), unpack_words(words))
            elif about:
                words = data[at + ABOUT.size:at + about]
                told = About(*ABOUT.unpack_from(data, at), unpack_words(words))
            at += about
            self.results.append(Result(status, bool(handed & 1), *numbers,
                                       some, bool(handed & 2), told,
                                       bool(handed & 8), bool(handed & 16)))
        self.rest = data[at:]
        if self.rest and not inspect:
            raise AssertionError(f"{len(self.rest)} bytes too many")


@dataclasses.dataclass
class Ticket:
    """A ticket as it stands in the record."""

    place: int
    flags: int
    mode: int
    words_bytes: int
    permits: int
    arrival: float
    fence: float
    ends: float
    hold: float
    lease: int
    generation: int
    session: bytes
    owner: bytes
    request: bytes
    broker: bytes
    since: float
    delay: int
    shown: int
    words: bytes = b""

    @property
    def who(self):
        return Who(self.session, self.owner, self.request, self.generation)

    @property
    def living(self):
        return self.flags != 0

    @property
    def granted(self):
        return bool(self.flags & GRANTED)

    @property
    def plain_mode(self):
        return self.mode & ~(DETACHED | PART)

    @property
    def part(self):
        return bool(self.mode & PART)

    @property
    def detached(self):
        return bool(self.mode & DETACHED)

    def pack(self):
        return TICKET.pack(
            self.flags, self.mode, self.words_bytes, self.permits,
            self.arrival, self.fence, self.ends, self.hold, self.lease,
            self.generation, self.session, self.owner, self.request,
            self.broker, self.since, self.delay, self.shown)


class Members:
    """A message about holders."""

    def __init__(self, data):
        (_, self.kind, key, count, self.count, self.sum, self.history,
         self.fence, self.after) = MEMBERS.unpack_from(data)
        at = MEMBERS.size + key
        self.key = data[MEMBERS.size:at].decode()
        self.tickets = []
        for _ in range(count):
            ticket = Ticket(0, *TICKET.unpack_from(data, at))
            at += TICKET.size + ticket.words_bytes
            ticket.words = data[at - ticket.words_bytes:at]
            self.tickets.append(ticket)
        if at != len(data):
            raise AssertionError(f"{len(data) - at} bytes too many")


def told_of(ticket):
    """The part of a ticket that such a message tells."""
    return (ticket.session, ticket.owner, ticket.permits, ticket.detached,
            ticket.words)


def ticket_at(data, place, width):
    at = HEAD_BYTES + place * width
    ticket = Ticket(place, *TICKET.unpack_from(data, at))
    ticket.words = data[at + TICKET_BYTES:at + width][:ticket.words_bytes]
    return ticket


class Record:
    """A lock's record, taken apart."""

    def __init__(self, data):
        self.raw = data
        for name, value in zip(HEAD_FIELDS, HEAD.unpack_from(data)):
            setattr(self, name, value)
        self.intents = [0, 0]
        if self.version == 3:
            self.intents, self.limit = [*divmod(self.limit, 65536)], 0
        self.tickets = [ticket_at(data, place, self.width)
                        for place in range(self.stored)]

    @property
    def living(self):
        """The living tickets, in order: none before `first`."""
        return [ticket for ticket in self.tickets[self.first:]
                if ticket.living]

    @property
    def given_us(self):
        """When the last fence was given, as far as the scripts look."""
        first = ticket_at(self.raw, 0, self.width)
        return first.since if first.fence == self.fence else None

    @property
    def holder(self):
        granted = [ticket for ticket in self.living if ticket.granted]
        return granted[0] if granted else None

    def check(self, resized=False):
        """The invariants of every record. `resized`: more permits than the
        limit may be out."""
        living = self.living
        granted = [ticket for ticket in living if ticket.granted]
        arrivals = [ticket.arrival for ticket in self.tickets]
        wrong = [text for text, right in (
            ("version", self.version >= max(
                (1 + (each.plain_mode > SHARED)
                 + (each.plain_mode in INTENTS) for each in living),
                default=1)),
            ("intents", self.intents == [
                sum(each.plain_mode == mode for each in granted)
                for mode in INTENTS]),
            ("width", self.width >= TICKET_BYTES),
            ("length", len(self.raw) >= HEAD_BYTES
             + self.width * max(1, self.stored)),
            ("first", self.first <= self.stored),
            ("live", self.live == len(living)),
            ("granted", self.granted == len(granted)),
            ("compatible", resized or self.compatible(granted)),
            ("used", self.used == sum(each.permits for each in granted)),
            ("front", self.front <= self.stored
             and all(each.granted for each in living
                     if each.place < self.front)),
            ("flags", self.flags & ~(STANDING | BEREFT | KEPT | WANTED |
                                     SINGLY)
             == (WATCHED if self.watch else 0)),
            ("wanted", self.watch or not self.flags & (WANTED | SINGLY)),
            ("modes", not granted or self.limit or self.modes(granted)),
            ("upgrades", self.flags & UPGRADES or not any(
                each.plain_mode == UPGRADE for each in living)),
            ("order", arrivals == sorted(set(arrivals))),
            ("arrival", not arrivals or arrivals[-1] < self.arrival),
            # What several have put there again is above what the data know.
            ("fence", self.limit or self.flags & SHARED_NOW or any(self.intents)
             or all(ticket.fence <= self.fence for ticket in living)),
            ("waiting fence", all((ticket.fence > 0) == ticket.granted
                                  for ticket in living)),
            ("low", all(self.low <= ticket.ends for ticket in granted)),
            ("sweep", all(self.sweep <= ticket.ends // 1000 + SWEEP_PAUSE
                          for ticket in living if not ticket.granted)),
            ("longest", all(ticket.lease <= self.longest
                            for ticket in granted if not ticket.detached)),
            ("detached", not any(ticket.detached for ticket in living
                                 if not ticket.flags & CLAIMED)),
            ("hold", all(ticket.ends <= ticket.hold for ticket in granted
                         if ticket.hold and ticket.flags & CLAIMED)),
            ("broken", all(ticket.granted for ticket in living
                           if ticket.flags & BROKEN)),
            ("words", all(ticket.words_bytes <= self.width - TICKET_BYTES
                          for ticket in living)),
            ("dead", len(self.tickets) <= 2 * self.live + 16),
            ("empty", living or self.stored == self.first == self.front
             == self.limit == self.flags & STANDING == self.version - 1
             == 0),
        ) if not right]
        if wrong:
            raise AssertionError(f"{', '.join(wrong)} wrong in {self}")
        return self

    def compatible(self, granted):
        """Writers alone, readers together, no more permits than there are."""
        if self.limit:
            return sum(each.permits for each in granted) <= self.limit
        return all(may_join(
            each.plain_mode, each.who,
            [other for other in granted if other is not each]) or any(
                other.plain_mode == UPGRADE for other in granted)
            and len(granted) == 2 for each in granted)

    def modes(self, granted):
        """A flag for each; that of readers may stay beside another mode, but
        no intention."""
        modes = {each.plain_mode for each in granted}
        flags = self.flags & (SHARED_NOW | UPGRADABLE_NOW)
        exact = (SHARED in modes) | (UPGRADABLE in modes) * UPGRADABLE_NOW
        return flags == exact or (
            not modes.intersection((EXCLUSIVE, *INTENTS))
            and flags == exact | SHARED_NOW)

    def __repr__(self):
        head = {name: getattr(self, name) for name in HEAD_FIELDS}
        return f"<record {head} {self.tickets}>"


class Broker:
    """The calls of one broker to one Redis."""

    def __init__(self, connection, broker=b"broker-1", scripts=None, **header):
        self.connection = connection
        self.broker = broker
        self.lapse = 2000
        self.clock_us = 0  # the fence clock
        self.forget_after = 86_400_000
        self.idle_after = 120_000
        self.expected_us = 0
        self.waiters_max = 10000
        self.known_id = b"0" * 40
        self.settles_in = 0  # ms
        self.steady_in = 0
        self.within = 2 ** 32 - 1  # us
        self.number = 0  # of a node of a quorum
        self.last = None  # the last Reply
        self.now = 0  # the last time in one, ms
        self.id = None
        for name, value in header.items():
            setattr(self, name, value)
        self.load(scripts or sources())

    def load(self, scripts):
        self.scripts = scripts
        self.sha1 = {}
        for name, text in scripts.items():
            self.sha1[name] = hashlib.sha1(text.encode()).hexdigest()
            try:
                self.connection.command("SCRIPT", "LOAD", text)
            except RedisError as error:
                raise AssertionError(f"{name}: {error}") from None

    def header(self):
        return HEADER.pack(1, self.number, self.lapse, self.broker,
                           self.clock_us, self.forget_after, self.expected_us,
                           self.waiters_max, self.known_id, self.settles_in,
                           self.steady_in, self.within,
                           self.idle_after) + CHANNEL

    def encode(self, name, *operations):
        """The command for operations, each a key and its argument."""
        arguments = [argument for _, argument in operations]
        if name == "renew":
            arguments = [b"".join(arguments)]
        return ("EVALSHA", self.sha1[name], len(operations),
                *(key for key, _ in operations), self.header(), *arguments)

    def call(self, name, *operations):
        """The results of one call."""
        data = self.connection.command(*self.encode(name, *operations))
        return self.take(Reply(data, len(operations), kinds=[
            number for number, (_, argument) in enumerate(operations)
            if takes_over(name, argument)])).results

    def take(self, reply):
        self.last = reply
        if reply.time_us > 0:
            self.now, self.id = reply.now, reply.id
        return reply

    def acquire(self, ticket, key=KEY, **options):
        return self.call("acquire", (key, acquire(ticket, **options)))[0]

    def release(self, ticket, key=KEY, **options):
        return self.call("release", (key, release(ticket, **options)))[0]

    def renew(self, ticket, key=KEY, **options):
        return self.call("renew", (key, renew(ticket, **options)))[0]

    def look(self, key=KEY, **options):
        return self.renew(Who(), key, look=True, **options)

    def resize(self, limit, key=KEY, **options):
        return self.renew(Who(), key, resizes=True, keeps=limit, **options)

    def break_(self, key=KEY, fence=0):
        return self.call("break", (key, break_(fence)))[0]

    def inspect(self, key=KEY, limit=512, after=0):
        """(result, head bytes, tickets) as the inspect script shows them."""
        data = self.connection.command(*self.encode(
            "inspect", (key, INSPECT.pack(limit, after))))
        reply = self.take(Reply(data, 1, inspect=True))
        result, rest = reply.results[0], reply.rest
        if not rest:
            return result, b"", []
        count, = struct.unpack_from("<I", rest)
        head = rest[4:4 + HEAD_BYTES]
        width, = struct.unpack_from("<H", head, RECORDS["HEAD"].at["WIDTH"])
        tickets = rest[4 + HEAD_BYTES:]
        if len(tickets) != count * width:
            raise AssertionError("inspect: tickets of another length")
        return result, head, [ticket_at(rest[4:], place, width)
                              for place in range(count)]

    def audit(self, cursor=0, count=100, held=FOREVER, wait=FOREVER):
        """One step of an audit; `held` and `wait` in ms."""
        data = self.connection.command(
            "EVALSHA", self.sha1["audit"], 0, self.header(),
            AUDIT.pack(count, held, wait) + b"%d" % cursor)
        rest = self.take(Reply(data, 1, inspect=True)).rest
        *sums, suspects, left, digits = AUDITED.unpack_from(rest)
        at = AUDITED.size
        following = int(rest[at:at + digits])
        at += digits
        seen = []
        for _ in range(suspects):
            flags, wrong, length, *ages = SUSPECT.unpack_from(rest, at)
            at += SUSPECT.size
            seen.append(Sight(flags, wrong, *ages, rest[at:at + length]))
            at += length
        if at != len(rest):
            raise AssertionError("audit: bytes left over")
        return Audit(*sums, left, following, seen)

    def audit_all(self, **options):
        """All that there is at the node, as one."""
        sums, suspects, cursor = [0] * 5, [], None
        while cursor != 0:
            part = self.audit(cursor or 0, **options)
            sums = [total + more for total, more in zip(sums, part)]
            suspects += part.suspects
            cursor = part.cursor
        return Audit(*sums, 0, suspects)


def connect(server):
    return RedisConnection(server.host, server.port, 30.0)
