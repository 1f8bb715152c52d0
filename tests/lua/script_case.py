"""A TestCase with three brokers before one real Redis, and their records."""

from harness import HarnessCase, RedisError, shared_redis

import scripts
from scripts import (GRANTED, HEAD, HEAD_FIELDS, HELD, KEY, OK, WAITING, Record,
                     who)


class ResultCase(HarnessCase):
    def says(self, result, status, **fields):
        """The result, which must have this status and these fields."""
        self.assertEqual(
            (result.status, {name: getattr(result, name) for name in fields}),
            (status, fields), result)
        return result

    def assert_error(self, code, ask, *arguments, **options):
        """The text of the error with this code that Redis answers ask(...)."""
        with self.assertRaises(RedisError) as caught:
            ask(*arguments, **options)
        self.assertEqual(caught.exception.code, code)
        return caught.exception.text


class ScriptCase(ResultCase):
    """`one`, `two` and `three` are brokers; times are those of Redis."""

    def setUp(self):
        self.server = shared_redis()
        self.connection = self.closing(scripts.connect(self.server))
        self.one, self.two, self.three = (
            self.broker_of(b"broker-%d" % number) for number in (1, 2, 3))

    def broker_of(self, name, connection=None, texts=None, **header):
        return scripts.Broker(connection or self.connection, name, texts,
                              **header)

    # the record

    def raw(self, key=KEY):
        return self.connection.command("GET", key)

    def record(self, key=KEY):
        return Record(self.raw(key)).check()

    def edit(self, key=KEY, **fields):
        """Overwrites fields of the head."""
        record = Record(self.raw(key))
        record.limit += 65536 * record.intents[0] + record.intents[1]
        for name, value in fields.items():
            setattr(record, name, value)
        self.connection.command("SETRANGE", key, 0, HEAD.pack(
            *(getattr(record, name) for name in HEAD_FIELDS)))

    def edit_ticket(self, place, key=KEY, **fields):
        record = Record(self.raw(key))
        ticket = record.tickets[place]
        for name, value in fields.items():
            setattr(ticket, name, value)
        self.connection.command("SETRANGE", key, scripts.HEAD_BYTES +
                                place * record.width, ticket.pack())
        if "ends" in fields:
            self.edit(key, sweep=0)

    def age(self, ms, key=KEY):
        """Makes all leases and lives of the record older."""
        record = Record(self.raw(key))
        for ticket in record.living:
            self.edit_ticket(ticket.place, key, ends=ticket.ends - ms)
        self.edit(key, low=record.low - ms)

    def listen(self, *names):
        """A function for what was published since: [(channel, payload)]."""
        listener = self.closing(scripts.connect(self.server))
        listener.subscribe(*(scripts.CHANNEL + name for name in names))

        def told():
            self.connection.command("PUBLISH", scripts.CHANNEL + names[0],
                                    "that is all")
            messages = []
            while (message := listener.message())[1] != b"that is all":
                messages.append((message[0][len(scripts.CHANNEL):],
                                 message[1]))
            return messages
        return told

    # what tests begin with

    def hold(self, ticket, broker=None, key=KEY, **options):
        """A granted ticket."""
        result = (broker or self.one).acquire(ticket, key, **options)
        self.assertEqual(result.status, OK)
        return result

    def hold_once(self, ticket, broker=None, **options):
        """A ticket that was granted, and has given the lock back."""
        self.hold(ticket, broker, **options)
        (broker or self.one).release(ticket)

    def wait(self, ticket, broker=None, key=KEY, **options):
        """A ticket that stands in the queue."""
        result = (broker or self.one).acquire(ticket, key, **options)
        self.assertEqual(result.status, WAITING)
        self.assertEqual(result.fence, 0)
        return result

    def queue(self, count, broker=None, key=KEY, **options):
        """`who(0)` holds and `who(1)` to `who(count)` wait; all results."""
        first = self.hold(who(0), broker, key, **options)
        return [first] + [self.wait(who(number), broker, key, **options)
                          for number in range(1, count + 1)]

    # what tests say

    def assert_untouched(self, ask, *arguments, **options):
        """The result of ask(...), which changes no byte of the record."""
        before = self.raw()
        result = ask(*arguments, **options)
        self.assertEqual(self.raw(), before)
        return result

    def assert_order(self, *tickets, key=KEY):
        """The living in the record, in order; the first may be the holder."""
        self.assertEqual([ticket.who for ticket in self.record(key).living],
                         list(tickets))

    def assert_holders(self, *tickets, key=KEY):
        """The holders, in order of arrival."""
        self.assertEqual([ticket.who for ticket in self.record(key).living
                          if ticket.granted], list(tickets))

    def assert_grants(self, result, *tickets):
        """The grants that the asking broker is told of."""
        self.assertEqual([grant.request for grant in result.grants],
                         [ticket.request for ticket in tickets])

    def assert_holder(self, ticket, flags=HELD, key=KEY):
        holder = self.record(key).holder
        self.assertIsNotNone(holder)
        self.assertEqual((holder.who, holder.flags), (ticket, flags))
        self.assertTrue(flags & GRANTED)
        return holder


class ClockCase(ScriptCase):
    """As above, with a clock that stands still but for pass_time()."""

    def setUp(self):
        self.now_us = 1_800_000_000_000_000
        self.clocked = []
        self.texts = scripts.with_clock(scripts.sources())
        super().setUp()

    @property
    def now(self):
        return self.now_us // 1000

    def broker_of(self, name, connection=None, texts=None, **header):
        broker = super().broker_of(name, connection, texts or self.texts,
                                   expected_us=self.now_us, **header)
        self.clocked.append(broker)
        return broker

    def pass_time(self, ms):
        self.now_us += 1000 * ms
        for broker in self.clocked:
            broker.expected_us = self.now_us
