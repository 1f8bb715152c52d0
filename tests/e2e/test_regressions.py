"""Mended defects: each test failed before."""

import contextlib
import os
import select
import socket
import struct
import threading
import time

from harness import HEAD_AT, HarnessCase, shared_redis
from harness.broker import broker_path
from shared import BrokerCase, record_field, stats

MANY = 16000  # below limits.holds


def each(client, lines):
    """Sends all lines, so many at a time, and waits for their answers."""
    lines = list(lines)
    for first in range(0, len(lines), 2000):
        tags = [client.submit(line) for line in lines[first:first + 2000]]
        for tag in tags:
            client.wait(tag, timeout=30)


def lock_many(client, count):
    each(client, (f"LOCK many/{number}" for number in range(count)))


def raw_socket(broker):
    return contextlib.closing(
        socket.create_connection(("127.0.0.1", broker.port), 10))


class Flood:
    """Sends one line for ever, and reads and forgets the answers."""

    def __init__(self, sock, line):
        self.socket = sock
        self.data = (line + "\n").encode() * 2000
        self.going = True
        self.thread = threading.Thread(target=self.run)

    def run(self):
        out = b""
        self.socket.setblocking(False)
        while self.going:
            readable, writable, _ = select.select(
                [self.socket], [self.socket], [], 0.1)
            with contextlib.suppress(BlockingIOError):
                if readable and not self.socket.recv(1 << 20):
                    return
            with contextlib.suppress(BlockingIOError):
                if writable:
                    out = out or self.data
                    out = out[self.socket.send(out):]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join()


class FloodTest(BrokerCase):
    """One client's lines do not keep the others waiting."""

    def answered_beside(self, attacker, line):
        victim = self.connect()
        with Flood(attacker.socket, line):
            for _ in range(100):
                victim.ok("PING")  # the poll before sleeping never ended

    def test_a_busy_socket_does_not_stop_the_turns(self):
        self.answered_beside(self.connect(), "PING")

    def test_ping_of_a_session_with_many_holds(self):
        attacker = self.connect()
        lock_many(attacker, MANY)
        started = time.monotonic()
        self.answered_beside(attacker, "PING")
        # A walk over all holds for each took 8 s for one answer.
        self.assertLess(time.monotonic() - started, 60)

    def test_lists_of_many_locks(self):
        attacker = self.connect()
        lock_many(attacker, MANY)
        self.answered_beside(attacker, "LOCKS limit=1")


class PartsTest(BrokerCase):
    overrides = {"limits.holds": 20000}

    def test_a_list_looks_at_so_much_and_goes_on(self):
        """Nothing is missing where parts are short of the limit."""
        client = self.connect()
        lock_many(client, 17000)
        names, cursor, parts = set(), "", 0
        kept = (3000, 6000, 9000, 12000, 15000, 16999)
        each(client, (f"UNLOCK many/{number}" for number in range(17000)
                      if number not in kept))
        while True:
            reply = client.ok(f"LOCKS limit=500{cursor}", timeout=30)
            names.update(item["name"] for item in reply.items)
            parts += 1
            if "cursor" not in reply:
                break
            cursor = f" cursor={reply['cursor']}"
        self.assertEqual(names, {f"many/{number}" for number in kept})
        self.assertEqual(parts, 2)


class OutputTest(BrokerCase):
    overrides = {"limits.output": "64KiB"}

    def test_who_does_not_read_is_closed(self):
        """Also where each turn adds but little."""
        with raw_socket(self.served) as sock:
            # Else the requests gather until one turn has enough for a close.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.assertRaises(OSError):
                for _ in range(3000):
                    sock.sendall(b"STATS\n" * 5)
                    self.connect().ok("PING")
        self.wait_counter("closed_output", 1)

    def test_whoever_goes_on_sending_after_bye_is_closed(self):
        with raw_socket(self.served) as sock:
            sock.sendall(b"QUIT\n")
            with self.assertRaises(OSError):
                for _ in range(200):  # 1 s, though it never falls silent
                    sock.sendall(b"PING\n")
                    time.sleep(0.1)


class MemoryTest(BrokerCase):
    overrides = {"limits.memory": "1MiB", "limits.output": "1MiB"}

    def test_only_who_hoards_is_expelled(self):
        """A client with nothing unread was closed for what others had."""
        neighbour = self.connect()
        with contextlib.ExitStack() as stack:
            hoarders = [stack.enter_context(raw_socket(self.served))
                        for _ in range(4)]
            while stats(neighbour)["limit_memory"] == 0:
                for sock in hoarders:
                    with contextlib.suppress(OSError):  # expelled
                        sock.sendall(b"STATS\n" * 10)
            neighbour.ok("PING")


class NoMemoryTest(HarnessCase):
    def setUp(self):
        with open(broker_path(), "rb") as file:
            if b"__asan_" not in file.read():
                self.skipTest("only the sanitizer can refuse memory")

    def broker_short_of_memory(self):
        """Its core has what it needs; no client gets 12 MiB."""
        options = os.environ.get("ASAN_OPTIONS", "")
        return self.broker(shared_redis(), {
            "limits.output": "1GiB", "limits.memory": "1GiB",
            "limits.connections": 100, "limits.tickets": 100,
            "limits.requests": 100,
        }, env={"ASAN_OPTIONS": f"{options}:allocator_may_return_null=1:"
                                "max_allocation_size_mb=12"})

    def test_output_ends_and_has_no_hole(self):
        """Lines without memory were left out, and the rest sent."""
        broker = self.broker_short_of_memory()
        neighbour = self.client(broker)
        with raw_socket(broker) as sock, sock.makefile("rb") as file:
            self.assertTrue(file.readline().startswith(b"* HELLO "))
            number = 0
            while stats(neighbour)["limit_memory"] == 0:
                with contextlib.suppress(OSError):  # it is closing
                    lines = range(number, number + 500)
                    sock.sendall(b"".join(b"%d HELP\n" % n for n in lines))
                number += 500
                self.assertLess(number, 500000)
            *lines, last = file.read().split(b"\n")
        self.assertGreater(len(lines), 1000)
        shape = [line.partition(b" ")[2] for line in lines]
        part = shape[:shape.index(shape[0], 1)]
        for place, line in enumerate(lines):
            self.assertEqual(line, b"%d %s" % (place // len(part),
                                              part[place % len(part)]))
        place = len(lines)
        whole = b"%d %s" % (place // len(part), part[place % len(part)])
        self.assertTrue(whole.startswith(last))


class LoopTest(BrokerCase):
    overrides = {"redis.busy_poll_us": 1000}

    def test_a_timer_is_not_lost_while_polling(self):
        """A deadline that came then was met at the next event, or never."""
        client = self.connect()
        lost = 0
        for number in range(200):
            begun = time.monotonic()
            if not client.request(f"LOCK poll/{number} lease=13ms").ok:
                continue  # the answer was slower than that
            lost += 1
            while time.monotonic() < begun + 0.0095 + number * 1e-5:
                client.ok("PING")
            client.event("LOST")
        self.assertGreater(lost, 20)


class ShowTest(BrokerCase):
    def test_a_long_queue_with_notes(self):
        """The words referred to a reply that had been freed."""
        client = self.connect()
        note = "n" * 120
        client.ok(f"LOCK show/long owner=w000 note={note}000")
        for number in range(1, 450):
            client.submit(f"LOCK show/long owner=w{number:03d} "
                          f"note={note}{number:03d}")
        other = self.connect()
        self.wait_until(lambda: other.ok("SHOW show/long limit=0").number(
            "waiters") == 449)
        items = other.ok("SHOW show/long limit=500").items
        self.assertEqual(
            [(item["owner"], item["note"]) for item in items],
            [(f"w{number:03d}", f"{note}{number:03d}")
             for number in range(450)])


    def test_the_mode_of_a_lock_whose_holders_are_not_listed(self):
        client = self.connect("LOCK show/shared mode=shared")
        client.ok("SHOW show/shared limit=0", state="held", mode="shared")
        client.ok("UNLOCK show/shared")
        client.ok("LOCK show/shared")
        client.ok("SHOW show/shared limit=0", state="held", mode="exclusive")


class BelieveTest(HarnessCase):
    def test_one_broker_never_believes_two(self):
        """Redis' data went: the next grant is told after LOST, not before."""
        redis = self.redis()
        client = self.client(self.broker(redis))
        first = client.ok("LOCK believe owner=a")
        redis.command("FLUSHALL")
        client.send("1 LOCK believe owner=b")
        lines = [client.line() for _ in range(2)]
        self.assertEqual([(line.tag, line.word) for line in lines],
                         [("*", "LOST"), ("1", "OK")])
        self.assertEqual(lines[0].fence, first.fence)
        self.assertGreater(lines[1].fence, first.fence)

    def test_ttl_is_within_the_silence_that_is_left(self):
        """It was three heartbeats from the grant, not from the last word."""
        broker = self.broker(shared_redis())
        holder = self.client(broker, "LOCK silence")
        client = self.client(broker, "HELLO heartbeat=1s")
        tag = client.submit("LOCK silence")
        client.event("PING")
        holder.ok("UNLOCK silence")
        self.assertLessEqual(client.wait(tag).ttl_ms, 2000)

    def test_wait_0_behind_a_release_that_cannot_be_sent(self):
        """It was as patient as the UNLOCK before it."""
        redis = self.redis()
        client = self.client(self.broker(redis, {"redis.patience": "60s"}))
        client.ok("LOCK behind")
        redis.kill()
        unlock = client.submit("UNLOCK behind")
        client.err("LOCK behind wait=0", "UNAVAILABLE", timeout=20)
        client.no_reply(unlock, 0.1)

    def test_renew_waits_no_longer_than_patience(self):
        redis = self.redis()
        client = self.client(self.broker(
            redis, {"redis.patience": "300ms", "lease.default": "60s"}))
        client.ok("LOCK renew lease=50s")
        redis.kill()
        tag = client.submit("RENEW renew lease=55s")
        reply = client.wait(tag)  # came with the deadline, 50 s later
        self.assertIn(reply.code, ("UNAVAILABLE", "INDOUBT"))


class HandOverTest(HarnessCase):
    def test_wait_0_where_only_a_dead_brokers_waiters_are_left(self):
        """They were in the way until their lives ended, a lease later."""
        redis = self.redis()
        one, two = self.broker(redis), self.broker(redis)
        holder, waiter = self.client(one, "LOCK dead"), self.client(two)
        for number in range(3):
            waiter.waits(f"LOCK dead owner=w{number}")
        two.kill()
        holder.ok("UNLOCK dead")

        def taken():
            return holder.request("LOCK dead wait=0").ok
        self.wait_until(taken, 15)  # the lapse takes 2 s, a lease 30 s

    def test_a_record_is_kept_until_its_fence_is_past(self):
        """Else the fence of a new record might be smaller."""
        redis = self.redis()
        broker = self.broker(redis, {"redis.forget_after": "1h"})
        client = self.client(broker, "LOCK forget")
        key = "holdfast:{forget}"
        ahead = (int(time.time()) + 10 * 3600) * 1000000
        # As a broker with a wrong clock leaves it: the last fence is far ahead.
        redis.command("SETRANGE", key, HEAD_AT["FENCE"],
                      struct.pack("<d", ahead))
        client.ok("UNLOCK forget")
        client.ok("LOCK forget")
        self.assertIsNotNone(record_field(redis, "forget", 0, 0))
        self.assertGreater(redis.command("PTTL", key), 9 * 3600 * 1000)
