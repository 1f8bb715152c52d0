"""Many clients that lock and unlock at random, and a referee.

All in one thread: the referee reads what all others have been told before it
judges. Its rules:
- one holder at most, from the OK of a LOCK to UNLOCK, LOST or the end of the
  connection;
- the fences of a lock grow with each grant;
- each request gets one final reply, of a kind that it may get.

Faults (killed brokers, cut connections, a Redis that stops) are the test's.
"""

import contextlib
import os
import random
import selectors
import socket
import struct
import time

from harness import Reply
from harness.client import open_socket

SEED = int(os.environ.get("HOLDFAST_SEED", "0"))  # on top of the tests' own
REFUSALS = {"BUSY", "TIMEOUT", "CANCELLED", "UNAVAILABLE", "INDOUBT"}


class Foul(AssertionError):
    """A rule was broken."""


class Player:
    """One connection; IDLE, ASKS, HOLDS or LEAVES one lock at a time."""

    def __init__(self, contest, number):
        self.contest = contest
        self.number = number
        self.socket = None
        self.state = "IDLE"
        self.name = None
        self.fence = 0
        self.tag = 0
        self.due = 0.0  # when it acts next
        self.cancelled = 0
        self.input = b""
        self.said = []
        self.hold = None
        self.asked_tag = None

    def __repr__(self):
        return f"player {self.number}: {self.state} {self.name} " \
            f"{self.fence}; " + " | ".join(self.said[-6:])

    def connect(self, address):
        self.socket = open_socket(address)
        self.socket.setblocking(False)
        self.input, self.cancelled, self.asked_tag = b"", 0, None
        self.contest.selector.register(self.socket, selectors.EVENT_READ, self)

    def disconnect(self, reset=False):
        self.end_hold()
        self.state = "IDLE"
        if self.socket is None:
            return
        self.contest.selector.unregister(self.socket)
        if reset:
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
        self.socket.close()
        self.socket = None

    def send(self, verb, words=""):
        self.tag += 1
        line = f"{self.tag} {verb} {words}".rstrip()
        self.said.append(f"> {line}")
        try:
            self.socket.sendall(line.encode() + b"\n")
        except OSError:
            self.disconnect()

    def end_hold(self):
        if self.state == "HOLDS":
            self.contest.left(self)

    def read(self):
        """Takes what has come."""
        while self.socket is not None:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.disconnect()
                return
            *lines, self.input = (self.input + data).split(b"\n")
            for line in lines:
                self.take(Reply(line.decode()))

    def take(self, reply):
        self.said.append(f"< {reply.line}")
        del self.said[:-50]
        if reply.tag == "*":
            self.take_event(reply)
        elif reply.final:
            self.take_final(reply)

    def take_event(self, reply):
        if reply.word == "LOST" and self.state in ("HOLDS", "LEAVES") and \
                reply.fence == self.fence:
            self.contest.lost += 1
            self.end_hold()
            if self.state == "HOLDS":
                self.state = "IDLE"

    def take_final(self, reply):
        tag = int(reply.tag)
        if tag == self.cancelled and self.cancelled:
            self.cancelled = 0
            if not reply.ok and reply.code != "BADREQ":
                raise Foul(f"CANCEL got {reply.line}; {self!r}")
            return
        if tag != self.asked_tag:
            raise Foul(f"nobody asked for {reply.line}; {self!r}")
        self.asked_tag = None
        if self.state == "ASKS":
            self.take_answer(reply)
        elif self.state == "LEAVES":
            if not reply.ok and reply.code not in ("LOST", "NOTHELD",
                                                   "INDOUBT"):
                raise Foul(f"UNLOCK got {reply.line}; {self!r}")
            self.state = "IDLE"
        else:
            raise Foul(f"unexpected {reply.line}; {self!r}")

    def take_answer(self, reply):
        if reply.ok:
            self.fence = reply.fence
            self.contest.granted(self, reply)
            return
        if reply.code not in REFUSALS | self.contest.more_refusals:
            raise Foul(f"LOCK got {reply.line}; {self!r}")
        self.contest.refused[reply.code] = \
            self.contest.refused.get(reply.code, 0) + 1
        self.state = "IDLE"

    # what it does of itself

    def act(self, now):
        rng = self.contest.random
        if self.socket is None:
            with contextlib.suppress(OSError):
                self.connect(self.contest.address_for(self))
            self.due = now + 0.05
        elif self.state == "IDLE":
            self.ask(now)
        elif self.state == "ASKS":
            if not self.cancelled and rng.random() < self.contest.cancels:
                self.send("CANCEL", str(self.asked_tag))
                self.cancelled = self.tag
            self.due = now + rng.uniform(0.001, 0.1)
        elif self.state == "HOLDS":
            self.contest.left(self)
            self.state = "LEAVES"
            self.send("UNLOCK", f"{self.name} fence={self.fence}")
            self.asked_tag = self.tag
            self.due = now + rng.uniform(0, 0.01)
        else:
            self.due = now + 0.01

    def ask(self, now):
        rng = self.contest.random
        if not self.contest.asking:
            self.due = now + 0.01
            return
        if rng.random() < self.contest.cuts:
            self.disconnect(reset=rng.random() < 0.5)
            return
        self.name = rng.choice(self.contest.names)
        self.state = "ASKS"
        wait = rng.choice(["", "", " wait=0", " wait=30ms", " wait=5s"])
        self.send("LOCK", self.name + wait)
        self.asked_tag = self.tag
        self.due = now + rng.uniform(0, 0.05)


class Hold:
    """One grant, live until its player has given it up or knows its end."""

    def __init__(self, player):
        self.player = player
        self.name = player.name
        self.fence = player.fence
        self.live = True


class Contest:
    """Players over the brokers, in turn.

    cancels, cuts: how often a player calls a wait off when it looks at it, or
    ends its connection before it asks. more_refusals: codes that are no foul.
    """

    def __init__(self, brokers, players=12, names=("contest/a", "contest/b"),
                 seed=1, cancels=0.2, cuts=0.02, hold=0.003,
                 more_refusals=()):
        self.selector = selectors.DefaultSelector()
        self.addresses = [broker.address for broker in brokers]
        self.names = list(names)
        self.random = random.Random(seed + SEED)
        self.cancels = cancels
        self.cuts = cuts
        self.hold = hold
        self.more_refusals = set(more_refusals)
        self.asking = True
        self.grants = 0
        self.lost = 0
        self.refused = {}
        self.holder = {}
        self.last_fence = {}
        self.grants_of = {name: 0 for name in self.names}
        self.unjudged = []
        self.players = [Player(self, number) for number in range(players)]

    def address_for(self, player):
        return self.addresses[player.number % len(self.addresses)]

    # the referee

    def granted(self, player, reply):
        """An OK of LOCK, to be judged."""
        if reply.get("count") != "1":
            raise Foul(f"a first LOCK counts more: {player!r}")
        player.state = "HOLDS"
        player.due = time.monotonic() + self.random.uniform(0, self.hold)
        player.hold = Hold(player)
        self.unjudged.append(player.hold)

    def read_all(self):
        """Reads until nobody was granted anything meanwhile, and judges."""
        granted = -1
        while granted < len(self.unjudged):
            granted = len(self.unjudged)
            for player in self.players:
                player.read()
        self.judge()

    def judge(self):
        for hold in sorted(self.unjudged, key=lambda hold: hold.fence):
            before = self.holder.get(hold.name)
            if before is not None:
                raise Foul(f"two holders of {hold.name}:\n{hold.player!r}\n"
                           f"{before.player!r}")
            if hold.fence <= self.last_fence.get(hold.name, 0):
                raise Foul(f"the fence of {hold.name} fell from "
                           f"{self.last_fence[hold.name]}: {hold.player!r}")
            self.last_fence[hold.name] = hold.fence
            self.grants += 1
            self.grants_of[hold.name] += 1
            if hold.live:
                self.holder[hold.name] = hold
        self.unjudged.clear()

    def left(self, player):
        player.hold.live = False
        if self.holder.get(player.name) is player.hold:
            del self.holder[player.name]

    # the game

    def turn(self):
        now = time.monotonic()
        for player in self.players:
            if player.due <= now:
                player.act(now)
        due = min(player.due for player in self.players)
        wait = max(0.0, min(0.02, due - time.monotonic()))
        if self.selector.select(wait):
            self.read_all()

    def play(self, seconds=None, grants=None, faults=(), at_most=30.0):
        """For so many seconds or grants; faults: [(second, function)]."""
        begin = time.monotonic()
        target = self.grants + (grants or 0)
        faults = list(faults)
        while True:
            now = time.monotonic() - begin
            while faults and faults[0][0] <= now:
                faults.pop(0)[1]()
            if seconds is not None and now >= seconds and not faults:
                break
            if grants is not None and self.grants >= target and not faults:
                break
            if now > at_most:
                raise Foul(f"only {self.grants} grants in {now:.1f} s: "
                           f"{self.players}")
            self.turn()
        return self

    def finish(self, timeout=20.0):
        """Nobody asks any more: all are served, and nothing stays held."""
        self.asking = False
        deadline = time.monotonic() + timeout
        while any(player.state != "IDLE" or player.socket is None
                  for player in self.players):
            if time.monotonic() > deadline:
                raise Foul("these never came to rest:\n" + "\n".join(
                    repr(player) for player in self.players
                    if player.state != "IDLE"))
            self.turn()
        if self.holder:
            raise Foul(f"still held: {sorted(self.holder)}")
        return self

    def close(self):
        for player in self.players:
            player.disconnect()
        self.selector.close()
