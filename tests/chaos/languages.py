"""The clients of all languages as workers: see run.py --languages.

Each worker is the conformance driver of a client (proto/clients/conformance).
Lanes tell it what to do, and write the events that checker.py judges. Their
belief is a part of the client's own one. It begins when the line `held` is
read. Its deadline is the sending of `left` plus the answer. It ends before
`unlock` is sent. So each overlap that is found is a real one.
"""

import itertools
import os
import random
import selectors
import shlex
import subprocess
import sys
import threading
import time
import traceback

from harness import Process
from harness.broker import TREE

import world as chaos_world

sys.path.insert(0, os.path.join(TREE, "proto", "clients"))
import clients as rows  # noqa: E402

FAULTS = "broker.kill,broker.stop,broker.term,client.,failover.graceful," \
    "failover.force,redis.kill,redis.stop,cut.client,relay."
KEEP_SECONDS = 3  # of half of the sessions
LANES = 4  # locks at a time of a driver
LOCKS = 16
ASK_SECONDS = 0.2  # between two questions for the deadline
HOLD_SECONDS = 0.15
LONG_HOLD = (1, 6)  # s: some holds meet a fault, and the deadline
LONG_SHARE = 0.05
TOLD_SECONDS = 2.0  # within which a deadline that has passed is told
CALL_SECONDS = 60.0  # a call takes less, whatever has failed
CODES = {"BUSY", "TIMEOUT", "CANCELLED", "UNAVAILABLE", "INDOUBT", "DRAINING",
         "LIMIT", "GONE", "LOST", "NOTHELD", "STALE", "DEADLOCK"}


def build():
    """Builds the clients whose tools are there."""
    for row in rows.CLIENTS:
        if row.missing():
            print(f"no {row.name}: {row.missing()[0]} is missing", flush=True)
            continue
        for command in row.build:
            subprocess.run(command, cwd=TREE, check=True,
                           stdin=subprocess.DEVNULL)


def commands():
    """[(language, words of its driver's command)]."""
    return [(row.name, shlex.split(row.driver)) for row in rows.CLIENTS
            if not row.missing()]


class Lane:
    """Takes one lock after another. It waits for a line in all states but
    `idle` and `held`."""

    def __init__(self, worker, number):
        self.worker, self.number = worker, number
        self.random = random.Random(f"{worker.seed} {number}")
        self.serial = itertools.count(1)
        self.rest(0.1)

    def rest(self, seconds):
        self.state, self.due = "idle", time.monotonic() + \
            self.random.uniform(0, seconds)

    def say(self, verb, more=""):
        self.worker.say(f"{verb} {self.id}{more}")

    def act(self, now):
        """Does the work that is due."""
        if self.state == "held":
            self.act_held(now)
        elif self.state == "asked" and self.cancel and now >= self.cancel:
            self.cancel = None
            self.say("cancel")
        elif self.state == "idle" and now >= self.due:
            self.ask(now)
        elif self.state != "idle" and now - self.since > CALL_SECONDS:
            self.foul(f"no answer to {self.id} of {self.state}")
            self.rest(1)

    def ask(self, now):
        self.id = f"l{self.number}.{self.worker.starts}.{next(self.serial)}"
        self.lock = self.random.choice(self.worker.world.locks)
        self.state, self.since = "asked", now
        self.cancel = now + self.random.uniform(0, 0.5) \
            if self.random.random() < 0.1 else None
        self.worker.note("ask", now, tag=self.id, verb="LOCK", lock=self.lock)
        wait = self.random.choice(["0", "1s", "3s", "5s"])
        self.say("lock", f" {self.lock} wait={wait}")

    def act_held(self, now):
        if self.silent and now - self.silent > TOLD_SECONDS:
            self.foul(f"{self.id} was lost without a word")
            self.release(now)
        elif now >= self.due and not self.left:
            self.release(now)
        elif self.asked is None and now >= self.again:
            self.asked = now
            self.say("left")

    def release(self, now):
        self.over(now, "unlock")
        self.state, self.since = "unlocking", now
        self.say("unlock")

    def over(self, now, why):
        """The belief, written down as a whole."""
        if self.until:
            self.worker.note("begin", self.begin, hold=self.id, lock=self.lock,
                             fence=self.fence, until=self.until)
            if why:
                self.worker.note("end", now, hold=self.id, why=why)
        self.until = None

    def foul(self, what):
        self.worker.note("foul", time.monotonic(), what=what)

    def hear(self, words, now):
        """A line of the driver with our ID."""
        if self.state == "asked":
            self.hear_asked(words, now)
        elif self.state == "held" and words[1] == "left":
            self.hear_left(int(words[2]))
        elif self.state == "held" and words[1] == "lost":
            self.over(now, "lost")
            self.rest(0.1)
        elif self.state == "unlocking" and words[1] in ("released", "err"):
            if words[1] == "err" and words[2] not in CODES:
                self.foul(" ".join(words))
            self.rest(0.02)

    def hear_asked(self, words, now):
        held = words[1] == "held"
        if not held and words[2] not in CODES:
            self.foul(" ".join(words))
        self.worker.note("final", now, tag=self.id, ok=held,
                         **({"fence": int(words[2]), "count": 1} if held
                            else {"code": words[2]}))
        if not held:
            self.rest(0.3 if words[2] == "GONE" else 0.05)
            return
        self.state, self.begin, self.fence = "held", now, int(words[2])
        self.until = self.asked = self.silent = None
        self.left = True  # an answer to `left` is wanted first
        self.again = now
        self.due = now + (
            self.random.uniform(*LONG_HOLD)
            if self.random.random() < LONG_SHARE else
            self.random.expovariate(1 / HOLD_SECONDS))

    def hear_left(self, milliseconds):
        if milliseconds:
            self.until = self.asked + milliseconds / 1e3
            self.silent = None
        else:
            self.silent = self.silent or time.monotonic()
        self.left, self.again = False, self.asked + ASK_SECONDS
        self.asked = None


class LanguageWorker(chaos_world.Worker):
    """A driver, with its lanes."""

    def __init__(self, world, number, brokers):
        super().__init__(world, number, brokers)
        self.hub = world.hub
        names = commands()
        language, self.command = names[number % len(names)]
        self.name = f"{language}{number}"
        self.history = os.path.join(world.folder, f"{self.name}.history")
        self.seed = world.random.random()
        self.random = random.Random(self.seed)
        self.brokers = brokers
        self.lanes, self.input = [], b""
        self.file = open(self.history, "a", 1, encoding="utf-8")
        self.lines = open(os.path.join(world.folder, f"{self.name}.lines"),
                          "a", 1, encoding="utf-8")

    def note(self, kind, at, **more):
        event = {"t": at, "e": kind, "conn": self.starts, **more}
        self.file.write(chaos_world.json.dumps(event) + "\n")

    def say(self, line):
        self.spoken(">", line)
        try:
            os.write(self.process.popen.stdin.fileno(), line.encode() + b"\n")
        except BrokenPipeError:
            pass  # it has ended, and is started again

    def spoken(self, way, line):
        print(f"{time.monotonic():.3f} {way} {line}", file=self.lines)

    def start(self):
        with self.hub.lock:
            self.forget()
            self.starts += 1
            self.stopped = False
            self.note("start", time.monotonic())
            self.process = Process(
                [*self.world.network.prefix(
                    self.host if self.world.network.on else None),
                 *self.command], cwd=TREE, name=self.name,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                log_path=os.path.join(self.world.folder, f"{self.name}.log"))
            self.hub.selector.register(self.process.popen.stdout,
                                       selectors.EVENT_READ, self)
            self.input, self.lanes = b"", []
            self.connect()

    def connect(self):
        order = self.random.sample(self.brokers, len(self.brokers))
        keep = self.random.choice(["", f" keep={KEEP_SECONDS}s"])
        self.say(f"connect {','.join(order)}{keep}")

    def forget(self):
        """Writes down the last process's beliefs. Its death ends them."""
        for lane in self.lanes:
            if lane.state == "held":
                lane.over(None, None)
        self.lanes = []
        if self.process is not None:
            out = self.process.popen.stdout
            if not out.closed:
                self.hub.selector.unregister(out)
                out.close()

    def finish(self):
        """Asks it to give back all and to end."""
        with self.hub.lock:
            for lane in self.lanes:
                if lane.state == "held":
                    lane.over(time.monotonic(), "unlock")
            self.lanes = []
            self.process.asked_to_end = True
            self.process.popen.stdin.close()

    def read(self):
        data = os.read(self.process.popen.stdout.fileno(), 1 << 16)
        now = time.monotonic()
        if not data:
            self.hub.selector.unregister(self.process.popen.stdout)
            self.process.popen.stdout.close()
            return
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self.spoken("<", line.decode())
            words = line.decode().split()
            if words[0] == "connected":
                self.lanes = [Lane(self, n) for n in range(LANES)]
            elif words[0] == "err":
                self.process.popen.kill()  # World.tick starts it again
            for lane in self.lanes:
                if lane.state != "idle" and lane.id == words[0]:
                    lane.hear(words, now)


class Hub(threading.Thread):
    """Reads what the drivers say, and moves their lanes on."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.lock = threading.RLock()
        self.selector = selectors.DefaultSelector()
        self.selector.register(os.pipe()[0], selectors.EVENT_READ)
        self.workers = []

    def run(self):
        try:
            self.turns()
        except Exception:
            self.world.broken(f"no turns more: {traceback.format_exc()}")

    def turns(self):
        while True:
            ready = self.selector.select(0.01)
            with self.lock:
                for key, _ in ready:
                    if key.data and not key.fileobj.closed:
                        key.data.read()
                now = time.monotonic()
                for worker in self.workers:
                    for lane in worker.lanes:
                        if not worker.stopped:
                            lane.act(now)


class World(chaos_world.World):
    """Its workers are the clients of all languages, at two brokers."""

    broker_count = 2
    worker = LanguageWorker
    linger = 3.0 + KEEP_SECONDS

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.locks = [f"mutex/{n}" for n in range(LOCKS)]

    def start_clients(self):
        self.hub = Hub(self)
        super().start_clients()
        self.hub.workers = self.workers
        self.hub.start()
