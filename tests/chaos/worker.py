#!/usr/bin/env python3
"""One client process: takes locks at random and writes down what it believes.

    worker.py CONFIG.json

It is the careful client of PROTOCOL.md, section 6.5. Each event is one write()
to its history, so that SIGKILL takes none away. run.py starts it again after a
kill. checker.py has the events. CONFIG: name, seed, brokers
(["host:port"...]), register ("host:port"), locks, history, lease (s), patience
(s), heartbeat (ms or 0).
"""

import json
import os
import random
import selectors
import signal
import socket
import sys
import time

REFUSALS = {"BUSY", "TIMEOUT", "CANCELLED", "UNAVAILABLE", "INDOUBT",
            "DRAINING", "LIMIT"}
UNLOCK_REFUSALS = {"LOST", "NOTHELD", "INDOUBT"}
SILENCE = 4.0  # s without any answer that end a connection


class Gone(Exception):
    """The connection has ended, or is given up."""


class History:
    """The file of events."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                            0o644)

    def note(self, kind, at=None, **more):
        event = {"t": time.monotonic() if at is None else at, "e": kind,
                 **more}
        os.write(self.file, json.dumps(event).encode() + b"\n")


def pairs_of(words):
    return dict(word.split("=", 1) for word in words if "=" in word)


def told_left(ask, fence):
    """Seconds that the reply leaves to the hold; None: it knows of none."""
    left = ask["left"].get(fence) if ask["verb"] == "HELD" else \
        ask["reply"].get("ttl_ms")
    return None if left is None else left / 1000


class Worker:
    """One connection at a time, one lock at a time."""

    def __init__(self, config):
        self.config = config
        self.random = random.Random(f"{config['seed']} {os.getpid()}")
        self.history = History(config["history"])
        self.stopping = False
        self.socket = None
        self.selector = selectors.DefaultSelector()
        self.input = b""
        self.conn = os.getpid() * 100000
        self.hold_number = os.getpid() * 100000
        self.tag = 0
        self.pending = {}  # tag: its request
        self.hold = None
        self.lost = set()  # (lock, "fence=F") of this connection
        self.leased = False
        self.ping_due = 0.0
        self.heard = 0.0
        self.draining = False
        self.pause = 0.02
        self.avoid = None

    # the connection

    def connect(self):
        brokers = [b for b in self.config["brokers"] if b != self.avoid]
        address = self.random.choice(brokers or self.config["brokers"])
        self.avoid = address
        host, _, port = address.rpartition(":")
        try:
            self.socket = socket.create_connection((host, int(port)), 1.0)
        except OSError:
            return False
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.selector.register(self.socket, selectors.EVENT_READ)
        self.input, self.pending, self.draining = b"", {}, False
        self.lost = set()
        self.conn += 1
        self.heard = time.monotonic()
        self.history.note("open", conn=self.conn, broker=address)
        if self.config["heartbeat"]:
            self.ask("HELLO", f"heartbeat={self.config['heartbeat']}")
        return True

    def disconnect(self, why):
        """Belief ends before the socket does."""
        self.end_hold("closed")
        if self.socket is not None:
            self.history.note("close", conn=self.conn, why=why)
            self.selector.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def ask(self, verb, words="", lock=None, **more):
        """Sends a request, and returns it. The event precedes the sending."""
        self.tag += 1
        line = f"{self.tag} {verb}"
        for part in (lock, words):
            line += f" {part}" if part else ""
        now = time.monotonic()
        request = self.pending[self.tag] = {
            "tag": self.tag, "verb": verb, "sent": now, "lock": lock,
            "reply": None, "left": {}, **more}
        self.history.note("ask", now, conn=self.conn, tag=self.tag, verb=verb,
                          lock=lock, words=words)
        try:
            self.socket.sendall(line.encode() + b"\n")
        except OSError as error:
            self.disconnect(f"send: {error}")
            raise Gone from error
        return request

    # what comes

    def look(self, timeout=0.0):
        """The clock first, then what has come; PINGs that are due."""
        now = time.monotonic()
        self.look_at_clock(now)
        if self.socket is None:
            raise Gone
        if self.hold is not None and now >= self.ping_due:
            self.ping_due = now + 0.3
            if not any(p["verb"] == self.left_verb()
                       for p in self.pending.values()):
                self.ask(self.left_verb())
        if self.hold is not None:
            timeout = min(timeout, max(0.0, self.ping_due - now),
                          max(0.0, self.hold["until"] - now))
        if self.selector.select(timeout):
            self.read()
        elif self.pending and time.monotonic() - self.heard > SILENCE and \
                self.overdue():
            self.disconnect("silence")
            raise Gone

    def overdue(self):
        """Whether some request should have been answered long ago."""
        now = time.monotonic()
        return any(now - p["sent"] > SILENCE + p.get("wait", 0)
                   for p in self.pending.values())

    def look_at_clock(self, now):
        if self.hold is not None and now >= self.hold["until"]:
            self.end_hold("deadline", self.hold["until"])

    def read(self):
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        # The clock again: it may have taken any time to get here.
        self.look_at_clock(time.monotonic())
        if not data:
            self.disconnect("peer")
            raise Gone
        self.heard = time.monotonic()
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self.take(line.decode())
            if self.socket is None:
                raise Gone

    def take(self, line):
        head, _, _ = line.partition(" :")
        tag, word, *rest = head.split(" ")
        if tag == "*":
            self.take_event(word, rest)
        elif word == "ITEM":
            item = pairs_of(rest)
            self.pending[int(tag)]["left"][int(item["fence"])] = \
                int(item["ttl_ms"])
        elif word in ("OK", "ERR"):
            self.take_final(tag, word == "OK", rest, line)

    def take_event(self, word, rest):
        if word == "LOST":
            fence = [w for w in rest if w.startswith("fence=")]
            self.history.note("lost", lock=rest[0], words=rest[1:])
            self.lost.update((rest[0], w) for w in fence)
            if self.hold is not None and self.hold["lock"] == rest[0] and \
                    fence == [f"fence={self.hold['fence']}"]:
                self.end_hold("lost")
        elif word == "PING":
            try:
                self.socket.sendall(f"PONG {rest[0]}\n".encode())
            except OSError:
                self.disconnect("pong")
        elif word == "DRAIN":
            self.draining = True
        elif word == "BYE":
            self.history.note("bye", conn=self.conn, why=rest)

    def take_final(self, tag, good, rest, line):
        now = time.monotonic()
        number = {k: int(v) for k, v in pairs_of(rest).items()
                  if k in ("fence", "count", "ttl_ms")}
        code = None if good else rest[0]
        self.history.note("final", now, conn=self.conn, ok=good, code=code,
                          tag=int(tag) if tag.isdigit() else tag, **number)
        ask = self.pending.pop(int(tag), None) if tag.isdigit() else None
        if ask is None:
            return  # the checker sees it
        ask["reply"] = {"ok": good, "code": code, "read": now, **number}
        verb = ask["verb"]
        known = {"LOCK": REFUSALS, "UNLOCK": UNLOCK_REFUSALS,
                 "RENEW": UNLOCK_REFUSALS | {"UNAVAILABLE"},
                 "CANCEL": {"BADREQ"}}.get(verb, {"LIMIT"})
        if not good and code not in known:
            self.foul(f"{verb} {ask['lock']} got {line}")
        if verb in (self.left_verb(), "RENEW") and good and \
                self.hold is not None and \
                (verb != "RENEW" or ask["hold"] == self.hold["id"]):
            left = told_left(ask, self.hold["fence"])
            if left is None:
                self.foul(f"{verb} knows of no hold; {self.hold}")
                return
            self.extend(ask["sent"] + left)

    def foul(self, what):
        self.history.note("foul", what=what)

    # belief

    def left_verb(self):
        """The request that tells what is left of the hold. PROTOCOL.md 6.5: the
        end of a lease= is in HELD alone."""
        return "HELD" if self.leased else "PING"

    def extend(self, until):
        now = time.monotonic()
        self.look_at_clock(now)
        if self.hold is None:
            return
        self.hold["until"] = until
        self.history.note("until", now, hold=self.hold["id"], until=until)
        self.ping_due = now + max(0.05, (until - now) / 3)

    def end_hold(self, why, at=None):
        if self.hold is not None:
            self.history.note("end", at, hold=self.hold["id"], why=why)
            self.hold = None

    def begin_hold(self, lock, reply, until):
        now = time.monotonic()
        if now >= until or (lock, f"fence={reply['fence']}") in self.lost:
            return False
        self.hold_number += 1
        self.hold = {"id": self.hold_number, "lock": lock, "until": until,
                     "fence": reply["fence"]}
        self.history.note("begin", now, hold=self.hold_number, lock=lock,
                          fence=reply["fence"], until=until)
        self.ping_due = now + (until - now) / 3
        return True

    def wait_reply(self, ask, limit):
        """The reply to a request; None where it has not come in time."""
        deadline = time.monotonic() + limit
        while ask["reply"] is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.look(left)
        return ask["reply"]

    def idle(self, seconds):
        """Does nothing but read, as long as it holds."""
        deadline = time.monotonic() + seconds
        while self.hold is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.look(left)

    # one lock

    def acquire(self, lock):
        """LOCK in one of its ways; whether it believes to hold."""
        draw = self.random.random()
        words, wait = "", None
        if draw < 0.15:
            words, wait = "wait=0", 0.0
        elif draw < 0.85:
            wait = self.random.uniform(0.1, 5.0)
            words = f"wait={int(wait * 1000)}"
        self.leased = self.random.random() < 0.25
        if self.leased:
            words += f" lease={self.random.randint(300, 4000)}"
        if self.random.random() < 0.2:
            words += " note=chaos"
        ask = self.ask("LOCK", words.strip(), lock,
                       wait=6.0 if wait is None else wait)
        bound = self.config["patience"] + SILENCE
        reply = self.wait_reply(ask, 6.0 if wait is None else wait + bound)
        if reply is None:
            reply = self.give_up(ask, wait)
        if not reply["ok"]:
            return False
        if self.begin_hold(lock, reply, ask["sent"] + reply["ttl_ms"] / 1000):
            return True
        # A long wait: what was told then is over; ask what remains.
        question = self.ask(self.left_verb())
        if self.wait_reply(question, SILENCE) is None:
            self.disconnect(f"no answer to {question['verb']}")
            raise Gone
        left = told_left(question, reply["fence"])
        if left and self.begin_hold(lock, reply, question["sent"] + left):
            return True
        self.release(lock, None)
        return False

    def give_up(self, ask, wait):
        """CANCEL; a request must have its final reply then."""
        if wait is not None:
            ping = self.ask("PING")
            if self.wait_reply(ping, SILENCE) is not None and \
                    ask["reply"] is None:
                self.foul(f"stuck: {ask}")
        if ask["reply"] is None:
            self.ask("CANCEL", f"{ask['tag']}")
            self.wait_reply(ask, self.config["patience"] + SILENCE)
        if ask["reply"] is None:
            self.disconnect("no answer to CANCEL")
            raise Gone
        return ask["reply"]

    def release(self, lock, fence):
        words = f"fence={fence}" if fence and self.random.random() < 0.5 \
            else ""
        self.end_hold("unlock")
        ask = self.ask("UNLOCK", words, lock)
        if self.wait_reply(ask, self.config["patience"] + SILENCE) is None:
            self.disconnect("no answer to UNLOCK")
            raise Gone

    def reenter(self, lock):
        """LOCK again and UNLOCK once, under one belief."""
        held = self.hold
        reply = self.wait_reply(self.ask("LOCK", "wait=1s", lock),
                                self.config["patience"] + SILENCE)
        if reply is None:
            self.disconnect("no answer to a re-entry")
            raise Gone
        if not reply["ok"]:
            return
        held_now = self.hold is held
        if held_now and (reply["count"] != 2 or
                         reply["fence"] != held["fence"]):
            self.foul(f"re-entry of {held}: {reply}")
        inner = self.wait_reply(self.ask("UNLOCK", "", lock),
                                self.config["patience"] + SILENCE)
        if inner is None:
            self.disconnect("no answer to an inner UNLOCK")
            raise Gone
        if self.hold is held and inner["ok"] and inner["count"] != 1:
            self.foul(f"inner UNLOCK of {held}: {inner}")

    def work(self, lock):
        """Reads or writes under the lock."""
        draw = self.random.random()
        if lock.startswith(("set/", "fenced/")):
            self.update(lock)
        elif draw < 0.1:
            self.reenter(lock)
        elif draw < 0.2:
            self.idle(self.random.uniform(0.5, 1.5) * self.config["lease"])
        else:
            self.idle(self.random.uniform(0.0, 0.2))
        if self.leased and self.hold is not None and \
                self.random.random() < 0.3:
            self.ask("RENEW", f"lease={self.random.randint(300, 4000)}", lock,
                     hold=self.hold["id"])
            self.idle(self.random.uniform(0.0, 0.5))

    def update(self, lock):
        """Reads the register, thinks, and writes it anew."""
        host, _, port = self.config["register"].rpartition(":")
        try:
            peer = socket.create_connection((host, int(port)), 2.0)
        except OSError:
            return
        held = self.hold
        with peer:
            lines = peer.makefile("r")
            before = self.register(peer, lines, op="read", lock=lock,
                                   fence=held["fence"])
            if before is None or not before["ok"]:
                self.history.note("stale", lock=lock, fence=held["fence"])
                return
            gone = False
            try:
                self.idle(self.thinking())
                if not lock.startswith("fenced/"):
                    self.look()
                    if self.hold is not held:
                        return
            except Gone:
                # Who gives the fence along may write without looking.
                gone = True
                if not lock.startswith("fenced/"):
                    raise
            self.write(peer, lines, lock, held, before["id"])
            if gone:
                raise Gone

    def thinking(self):
        """Seconds between reading and writing: now and then a long time."""
        if self.random.random() < 0.93:
            return self.random.uniform(0.0, 0.05)
        return self.random.uniform(0.2, 1.2) * self.config["lease"]

    def write(self, peer, lines, lock, held, base):
        name = f"{self.config['name']}-{held['id']}"
        answer = self.register(
            peer, lines, op="write", lock=lock, fence=held["fence"],
            id=name, base=base, until=held["until"])
        done = "unknown" if answer is None else \
            "ok" if answer["ok"] else "refused"
        self.history.note("write", lock=lock, id=name, done=done,
                          fence=held["fence"],
                          why=answer and answer.get("why"))

    @staticmethod
    def register(peer, lines, **ask):
        try:
            peer.sendall(json.dumps(ask).encode() + b"\n")
            answer = lines.readline()
            return json.loads(answer) if answer else None
        except (OSError, ValueError):
            return None

    # the life of it

    def turn(self):
        if self.socket is None and not self.connect():
            time.sleep(self.pause)
            self.pause = min(1.0, self.pause * 2)
            return
        self.pause = 0.02 + self.random.random() * 0.05
        lock = self.random.choice(self.config["locks"])
        if self.acquire(lock):
            held = self.hold
            self.work(lock)
            if self.hold is not held or self.hold is None:
                # Over by its deadline or LOST: it may stand at the broker.
                self.release(lock, None)
            elif self.random.random() < 0.01:
                self.end_hold("crash")
                os._exit(3)
            elif self.random.random() < 0.03:
                self.end_hold("unlock")
                self.disconnect("at will")
            else:
                self.release(lock, held["fence"])
        if self.socket is not None and (
                self.draining or self.random.random() < 0.01):
            self.disconnect("move")
        self.rest(self.random.uniform(0.0, 0.15))

    def rest(self, seconds):
        deadline = time.monotonic() + seconds
        while self.socket is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.look(left)

    def run(self):
        self.history.note("start", pid=os.getpid())
        signal.signal(signal.SIGTERM, self.stop)
        while not self.stopping:
            try:
                self.turn()
            except Gone:
                self.rest_unconnected()
        self.disconnect("stop")
        self.history.note("stop")

    def rest_unconnected(self):
        time.sleep(self.random.uniform(0.0, self.pause))
        self.pause = min(1.0, self.pause * 2)

    def stop(self, *_):
        self.stopping = True


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as opened:
        Worker(json.load(opened)).run()
