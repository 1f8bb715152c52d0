"""Foreign, newer and broken records; a full Redis; a replica."""

import random
import struct

from harness import wait_until

import scripts
from script_case import KEY, ScriptCase
from scripts import (BUSY, CORRUPT, GONE, HEAD, HEAD_BYTES, LEASE, NEWER, OK,
                     TICKET_BYTES, WAITING, Record, who)

OTHERS = ["holdfast:{before}", "holdfast:{after}"]
CALLS = ("acquire", "release", "renew")


def plain_head(**fields):
    values = {"version": 1, "flags": 0, "width": TICKET_BYTES, "limit": 0,
              "fence": 1e15, "arrival": 7, "stored": 0, "first": 0, "live": 0,
              "granted": 0, "longest": 0, "used": 0, "front": 0, "typical": 0,
              "low": 0, "sweep": 0, "spare": 0, "delay": 0, "forget": 4e12,
              "watch": 0, "id": b"0" * 40}
    values.update(fields)
    return HEAD.pack(*values.values())


class Damage(ScriptCase):
    test_timeout = 180.0  # a call for each bit of a record

    def in_a_batch(self, status):
        """Each script, alone and between two healthy locks."""
        for name in CALLS:
            for options in ({}, {"arrival": 3, "fence": 9}):
                if name == "acquire":
                    options = {"retry": bool(options)}
                make = scripts.MAKERS[name]
                for key in OTHERS:
                    self.connection.command("DEL", key)
                    if name != "acquire":
                        self.hold(who(1), key=key)
                batch = [(key, make(who(1))) for key in OTHERS]
                batch.insert(1, (KEY, make(who(1), **options)))
                results = self.one.call(name, *batch)
                self.assertEqual([result.status for result in results],
                                 [OK, status, OK], name)
        result, head, tickets = self.one.inspect()
        self.assertEqual((result.status, head, tickets), (status, b"", []))

    def refused(self, data, status=CORRUPT):
        self.connection.command("SET", KEY, data)
        self.in_a_batch(status)
        self.assertEqual(self.raw(), data)

    def test_wrong_type(self):
        for fill in (("HSET", KEY, "a", "b"), ("LPUSH", KEY, "a"),
                     ("SADD", KEY, "a"), ("ZADD", KEY, 1, "a")):
            self.connection.command("DEL", KEY)
            self.connection.command(*fill)
            before = self.connection.command("DUMP", KEY)
            self.in_a_batch(CORRUPT)
            self.assertEqual(self.connection.command("DUMP", KEY), before)

    def test_short_strings(self):
        whole = plain_head() + b"\0" * TICKET_BYTES
        for length in (1, 2, 7, 8, 24, 40, 56, 72, 96, 100, HEAD_BYTES - 1,
                       HEAD_BYTES, HEAD_BYTES + 1, 200, len(whole) - 1):
            self.refused(whole[:length])

    def test_text(self):
        self.refused(b"\1" * 10)
        self.refused(b"\1 somebody else's value " * 20)

    def test_newer_version(self):
        for version in (4, 5, 255):
            self.refused(plain_head(version=version)
                         + b"\0" * TICKET_BYTES, NEWER)
        self.refused(b"value of another program" * 20, NEWER)
        self.refused(b"z", NEWER)

    def test_no_version(self):
        self.refused(b"\0" * (HEAD_BYTES + TICKET_BYTES))
        self.refused(b"\0")

    def test_counts_that_do_not_fit(self):
        ticket = b"\7" + b"\0" * (TICKET_BYTES - 1)
        for fields in ({"width": TICKET_BYTES - 1}, {"width": 0},
                       {"stored": 1, "first": 2},
                       {"stored": 1, "live": 2},
                       {"stored": 1, "first": 1, "live": 1},
                       {"stored": 1, "live": 1, "granted": 2},
                       {"stored": 1, "live": 1, "granted": 1, "used": 0},
                       {"stored": 1, "front": 2},
                       {"stored": 1, "front": 4294967295}):
            self.refused(plain_head(**fields) + ticket)

    def test_nonsense_in_numbers(self):
        """Numbers that no script writes: an answer of each script."""
        for fields in (
                {"flags": 255}, {"limit": 4294967295}, {"limit": 1, "used": 9},
                {"used": 4294967295}, {"typical": 4294967295},
                {"front": 1}, {"front": 3}, {"longest": 0},
                {"sweep": 4294967295}, {"spare": 4294967295},
                *({name: value} for name in ("low", "delay", "forget",
                                             "watch", "arrival")
                  for value in (-1.0, 0.5, 1e300, float("inf"),
                                float("-inf"), float("nan")))):
            for words in ((), (b"o", b"", b"")):
                self.connection.command("DEL", KEY)
                self.queue(2, words=words)
                self.edit(**fields)
                whole = self.raw()
                for name in (*CALLS, "break"):
                    self.connection.command("SET", KEY, whole)
                    for options in ({}, {"tell": True}, {"moves": True},
                                    {"no_queue": True}, {"shares": True},
                                    {"look": True, "watch": True},
                                    {"unclean": True}):
                        self.ask_anything(name, options)
        self.connection.command("DEL", KEY)

    def ask_anything(self, name, options):
        if name == "break":
            self.one.break_()
            return
        make = scripts.MAKERS[name]
        known = make.__code__.co_varnames[:make.__code__.co_argcount]
        if set(options) <= set(known):
            for number in (0, 1, 9):
                result = self.one.call(name, (KEY, make(who(number),
                                                        **options)))[0]
                self.assertLessEqual(len(result.grants), 3)

    def test_times_beyond_belief_keep_nobody_out(self):
        for value in (1e300, float("inf"), float("nan"),
                      self.one.clock_us + 4e12):
            self.connection.command("DEL", KEY)
            self.hold_once(who(0))
            self.edit(delay=value)
            self.hold(who(1), no_queue=True)
            self.wait(who(2))
            self.edit(delay=value)
            self.assert_grants(self.one.release(who(1)), who(2))

    def test_nonsense_in_tickets(self):
        for fields in (
                {"flags": 255}, {"flags": 2}, {"flags": 31}, {"mode": 255},
                {"permits": 4294967295}, {"permits": 0},
                {"words_bytes": 65535}, {"lease": 4294967295}, {"lease": 0},
                {"delay": 4294967295}, {"shown": 4294967295},
                *({name: value} for name in ("ends", "hold", "since", "fence")
                  for value in (-1.0, 0.5, 1e300, float("inf"),
                                float("-inf"), float("nan")))):
            for place in (0, 1):
                self.connection.command("DEL", KEY)
                self.queue(2)
                self.edit_ticket(place, **fields)
                whole = self.raw()
                for name in (*CALLS, "break"):
                    for options in ({}, {"tell": True}, {"moves": True},
                                    {"no_queue": True, "tell": True},
                                    {"shares": True}, {"unclean": True},
                                    {"look": True, "watch": True}):
                        self.connection.command("SET", KEY, whole)
                        self.ask_anything(name, options)

    def test_more_words_than_there_is_room_for(self):
        """They end with their ticket, and within what a result can hold."""
        self.queue(450, words=(b"owner", b"client", b"note"))
        self.assertGreater(len(self.raw()), 65536 + 8)
        for count in (65, 65520, 65535):
            self.edit_ticket(0, words_bytes=count)
            batch = [(key, scripts.acquire(who(500), no_queue=True, tell=True))
                     for key in (OTHERS[0], KEY, OTHERS[1])]
            results = self.one.call("acquire", *batch)
            self.assertEqual([result.status for result in results],
                             [OK, BUSY, OK])
            self.connection.command("DEL", *OTHERS)
            batch = [(KEY, scripts.renew(who(0, generation=2), moves=True)),
                     (OTHERS[0], scripts.renew(who(1)))]
            results = self.one.call("renew", *batch)
            self.assertEqual([result.status for result in results], [OK, GONE])

    def test_break(self):
        for data, status in ((b"text", NEWER), (b"\1", CORRUPT),
                             (plain_head(width=1) + b"\0" * 500, CORRUPT),
                             (plain_head(version=4) + b"\0" * 500, NEWER)):
            self.connection.command("SET", KEY, data)
            self.says(self.one.break_(), status)
            self.assertEqual(self.raw(), data)
        self.connection.command("DEL", KEY)
        self.connection.command("LPUSH", KEY, "a")
        self.says(self.one.break_(), CORRUPT)

    def test_fewer_tickets_than_counted(self):
        for stored in (2, 3, 1000, 4294967295):
            for live in (1, stored):
                self.refused(plain_head(stored=stored, live=live, granted=1,
                                        used=1, longest=LEASE, low=1) +
                             scripts.TICKET.pack(7, 0, 0, 1, 3, 9, 1, 0, LEASE,
                                                 1, b"x" * 16, b"y" * 8,
                                                 b"z" * 8, b"b" * 8, 1, 0, 0))

    def test_cut_off_queue(self):
        self.queue(10)
        whole = self.raw()
        for length in (len(whole) - 1, len(whole) - TICKET_BYTES,
                       HEAD_BYTES + TICKET_BYTES,
                       HEAD_BYTES + TICKET_BYTES + 1):
            self.refused(whole[:length])

    def test_garbage(self):
        """Random bytes: a refusal, never a failed or an endless call."""
        chance = random.Random(3)
        for _ in range(300):
            data = bytearray(chance.randbytes(chance.randint(1, 600)))
            if chance.random() < 0.7:
                data[0] = 1
            self.connection.command("SET", KEY, bytes(data))
            for name in CALLS:
                result = getattr(self.one, name)(who(1))
                self.assertIn(result.status, (CORRUPT, NEWER, GONE))

    def test_flipped_bits(self):
        """One bit of a good record: some answer for each lock, no error."""
        self.queue(3)
        whole = self.raw()
        for bit in range(8 * len(whole)):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            for name in CALLS:
                self.connection.command("SET", KEY, bytes(data))
                make = scripts.MAKERS[name]
                results = self.one.call(name, (KEY, make(who(bit % 5))),
                                        ("holdfast:{none}", make(who(1))))
                self.assertEqual(len(results), 2)
            self.connection.command("SET", KEY, bytes(data))
            self.one.break_()
            self.one.look(watch=True)
            self.connection.command("DEL", "holdfast:{none}")


class OutOfMemory(ScriptCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.server.command, "CONFIG", "SET", "maxmemory", 0)

    def fill(self):
        self.server.command("CONFIG", "SET", "maxmemory", 1)

    def test_acquire_is_refused_and_the_rest_works(self):
        queue = self.queue(2)
        other = self.hold(who(9), key="holdfast:{b}")
        self.fill()
        before = self.raw()
        for options in ({}, {"retry": True}, {"no_queue": True}):
            self.assert_error("OOM", self.one.acquire, who(3), **options)
        self.assertEqual(self.raw(), before)
        self.assert_error("OOM", self.one.acquire, who(1),
                          key="holdfast:{new}")
        self.assertIsNone(self.raw("holdfast:{new}"))
        for lease in (LEASE, LEASE + 1):  # by the short cut, and without
            self.says(self.one.renew(who(0), arrival=queue[0].arrival,
                                     fence=queue[0].fence, lease=lease), OK)
        self.says(self.one.renew(who(1)), WAITING)
        result = self.one.release(who(0), fence=queue[0].fence)
        self.assertEqual(result.grants[0].request, who(1).request)
        self.says(self.one.release(who(9), key="holdfast:{b}",
                                   arrival=other.arrival, fence=other.fence),
                  OK)
        self.says(self.one.inspect()[0], OK)
        self.assert_order(who(1), who(2))

    def test_flags_are_in_the_scripts(self):
        first = {name: scripts.source(name).splitlines()[0]
                 for name in scripts.NAMES}
        self.assertEqual(first, {
            "acquire": "#!lua", "release": "#!lua flags=allow-oom",
            "renew": "#!lua flags=allow-oom",
            "inspect": "#!lua flags=no-writes",
            "audit": "#!lua flags=no-writes,allow-cross-slot-keys",
            "break": "#!lua flags=allow-oom"})


class Replica(ScriptCase):
    def test_it_refuses_all_that_writes(self):
        replica = self.redis(replicaof=f"127.0.0.1 {self.server.port}")
        wait_until(lambda: replica.info("replication").get(
            "master_link_status") == "up", 20, "the replica follows")
        held = self.hold(who(1))
        wait_until(lambda: replica.command("GET", KEY) == self.raw(), 20,
                   "the replica has the record")
        connection = self.closing(scripts.connect(replica))
        there = self.broker_of(b"broker-1", connection)
        for ask in (lambda: there.acquire(who(1), retry=True),
                    lambda: there.acquire(who(2)),
                    lambda: there.release(who(1)),
                    lambda: there.renew(who(1), arrival=held.arrival,
                                        fence=held.fence),
                    there.look):
            self.assert_error("READONLY", ask)
        result, _, tickets = there.inspect()
        self.says(result, OK)
        self.assertEqual([ticket.who for ticket in tickets], [who(1)])
        self.assertEqual(Record(replica.command("GET", KEY)).raw, self.raw())

    def test_too_few_replicas(self):
        """min-replicas-to-write: nothing is granted, and nothing half."""
        self.addCleanup(self.server.command, "CONFIG", "SET",
                        "min-replicas-to-write", 0)
        held = self.hold(who(1))
        self.server.command("CONFIG", "SET", "min-replicas-to-write", 1)
        before = self.raw()
        for ask in (lambda: self.one.acquire(who(2)),
                    lambda: self.one.release(who(1)),
                    lambda: self.one.renew(who(1), arrival=held.arrival)):
            self.assert_error("NOREPLICAS", ask)
        self.assertEqual(self.raw(), before)


class Head(ScriptCase):
    def test_the_layout_is_the_documented_one(self):
        """Another layout needs another version: records are stored."""
        self.hold(who(1))
        self.wait(who(2))
        raw, record = self.raw(), self.record()
        for offset, form, value in (
                (0, "<B", 1), (2, "<H", 104), (8, "<d", record.fence),
                (16, "<d", 3), (24, "<I", 2), (28, "<I", 0), (32, "<I", 2),
                (36, "<I", 1), (40, "<I", LEASE), (44, "<I", 1),
                (56, "<d", record.holder.ends), (80, "<d", record.forget)):
            self.assertEqual(struct.unpack_from(form, raw, offset), (value,))
        self.assertEqual(raw[96:136], self.one.id)
        self.assertEqual(raw[136 + 48:136 + 64], who(1).session)
        self.assertEqual(raw[136 + 80:136 + 88], b"broker-1")
