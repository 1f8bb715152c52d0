"""Deadlocks: all found, each ended once, none where there is none."""

import os
import random
import time

import waits
from kinds import counters
from measure import MeasureFailure, Spread, loadgen

from harness import Broker
from harness.crowd import Crowd

SEED = int(os.environ.get("DEADLOCK_SEED", "1"))
CYCLES = int(os.environ.get("DEADLOCK_CYCLES", "1000"))
WAITS = int(os.environ.get("DEADLOCK_WAITS", "100000"))
BROKERS = 3
AT_ONCE = 4      # cycles
SESSIONS = 72    # of the waits without cycles
NAMES = 24       # that they take several of
SEMAPHORES = 6   # of those names, from the last one on
SLOW = 0.05      # of their holds last for
SLOW_S = 0.05
PATIENCE = 10.0  # s for a cycle to be found


def final(line):
    """(tag, word, code) of a reply."""
    words = line.split(" ", 3)
    return words[0], words[1], words[2] if len(words) > 2 else ""


def names_all(line, prefix, size):
    """Whether cycle= has each lock of the cycle once."""
    named = [word.removeprefix("cycle=").split(",")
             for word in line.split(" ") if word.startswith("cycle=")]
    return named and sorted(named[0]) == [f"{prefix}{number}"
                                          for number in range(size)]


class Cycles:
    """Owners at random brokers, in circles of 2 to 8."""

    def __init__(self, brokers):
        self.random = random.Random(SEED)
        self.crowd = Crowd()
        self.idle = [self.crowd.connect(broker.address)
                     for broker in brokers for _ in range(8 * AT_ONCE)]
        self.begun = 0
        self.latencies = []
        self.victims = {}  # so many in a cycle: so many cycles
        self.not_youngest = 0
        self.wrongly_named = 0
        self.spread = {}  # brokers: cycles over so many

    def run(self):
        for _ in range(AT_ONCE):
            self.crowd.start(self.lane())
        self.crowd.run()
        self.crowd.close()

    def lane(self):
        while self.begun < CYCLES:
            self.begun += 1
            size = self.random.randint(2, 8)
            peers = self.random.sample(self.idle, size)
            for peer in peers:
                self.idle.remove(peer)
                peer.task = self.crowd.current
            yield from self.cycle(f"cycle{self.begun}/", peers)
            self.idle += peers

    def replies(self, peers, wanted):
        """Yields until each peer had a line that `wanted` takes."""
        missing = set(peers)
        while missing:
            for peer in list(missing):
                while peer.inbox and peer in missing:
                    if wanted(peer.inbox.popleft()):
                        missing.discard(peer)
            if missing:
                yield

    def cycle(self, prefix, peers):
        size = len(peers)
        for number, peer in enumerate(peers):
            peer.send(f"1 LOCK {prefix}{number}")
        yield from self.replies(peers, lambda line: line.startswith("1 OK"))
        brokers = len({peer.address for peer in peers})
        self.spread[brokers] = self.spread.get(brokers, 0) + 1
        order = self.random.sample(range(size), size)
        staged = self.random.random() < 0.5
        for number in order[:-1]:
            peers[number].send(
                f"2 LOCK {prefix}{(number + 1) % size} progress=1")
        if staged:
            yield from self.replies([peers[n] for n in order[:-1]],
                                    lambda line: line.startswith("2 QUEUED"))
        last = order[-1]
        sent = time.monotonic()
        peers[last].send(f"2 LOCK {prefix}{(last + 1) % size}")
        found = yield from self.resolve(prefix, peers, sent)
        self.victims[len(found)] = self.victims.get(len(found), 0) + 1
        if staged and found and found[0] != last:
            self.not_youngest += 1

    def resolve(self, prefix, peers, sent):
        """Until all have had what they asked for, but the victims; these."""
        size = len(peers)
        found, open_requests = [], 2 * size
        while open_requests:
            for number, peer in enumerate(peers):
                while peer.inbox:
                    line = peer.inbox.popleft()
                    tag, word, code = final(line)
                    if word not in ("OK", "ERR"):
                        continue
                    open_requests -= 1
                    if tag == "2" and word == "ERR":
                        if code != "DEADLOCK":
                            raise MeasureFailure(f"unexpected: {code}")
                        self.latencies.append(time.monotonic() - sent)
                        found.append(number)
                        self.wrongly_named += not names_all(line, prefix, size)
                    elif tag == "2":
                        open_requests += 1
                        peer.send(f"3 UNLOCK {prefix}{(number + 1) % size}")
                    if tag == "2":
                        peer.send(f"4 UNLOCK {prefix}{number}")
            if open_requests and time.monotonic() - sent > PATIENCE:
                raise MeasureFailure(
                    f"a cycle of {size} stands for {PATIENCE:g} s")
            if open_requests:
                yield sent + PATIENCE
        return found


class Ordered:
    """Many that take several locks in one order: no cycle can be."""

    def __init__(self, brokers):
        self.random = random.Random(SEED)
        self.crowd = Crowd()
        self.peers = [self.crowd.connect(brokers[n % BROKERS].address)
                      for n in range(SESSIONS)]
        self.stopping = False
        self.false = 0
        self.locks = 0

    def start(self):
        for peer in self.peers:
            self.crowd.start(self.work(peer), [peer])

    def answer(self, peer, request):
        peer.send(request)
        while True:
            while peer.inbox:
                _, word, code = final(peer.inbox.popleft())
                if word == "OK":
                    return True
                if word == "ERR" and code == "DEADLOCK":
                    self.false += 1
                    return False
                if word == "ERR":
                    raise MeasureFailure(f"{request}: {code}")
            yield

    def work(self, peer):
        while not self.stopping:
            names = sorted(self.random.sample(range(NAMES),
                                              self.random.randint(2, 4)))
            had = []
            for name in names:
                words = ""
                if name >= NAMES - SEMAPHORES:
                    words = " limit=2"
                elif self.random.random() < 0.2:
                    words = " mode=shared"
                if not (yield from self.answer(
                        peer, f"1 LOCK ordered{name}{words}")):
                    break
                had.append(name)
            self.locks += len(had)
            if self.random.random() < SLOW:
                until = time.monotonic() + SLOW_S
                while time.monotonic() < until:
                    yield until
            for name in had:
                yield from self.answer(peer, f"1 UNLOCK ordered{name}")

    def run(self, brokers, waits):
        before = counters(*brokers)
        self.start()
        looked = time.monotonic()
        while self.crowd.tasks:
            self.crowd.turn()
            if not self.stopping and time.monotonic() > looked + 0.5:
                looked = time.monotonic()
                now = counters(*brokers)
                self.stopping = \
                    now["waits_begun"] - before["waits_begun"] >= waits
        after = counters(*brokers)
        self.crowd.close()
        return {name: after[name] - before[name]
                for name in ("waits_begun", "deadlocks", "deadlock_probes")}


def published(redis):
    row = redis.info("commandstats").get("cmdstat_publish", "calls=0,")
    return int(row.split(",")[0].partition("=")[2])


def nothing_waits(bench, brokers):
    """The work of deadlock detection without any wait."""
    before = counters(*brokers)
    bench.redis.command("CONFIG", "RESETSTAT")
    result = loadgen("holdfast", *(broker.address for broker in brokers),
                     connections=30, seconds=2, warm_up=0.1)
    after = counters(*brokers)
    return {"pairs": result["pairs"], "published": published(bench.redis),
            "probes": after["deadlock_probes"] - before["deadlock_probes"]}


def run(bench):
    brokers = [Broker(bench.redis) for _ in range(BROKERS)]
    try:
        for broker in brokers:
            broker.start()
        idle = bench.keep("deadlock", nothing_waits(bench, brokers))
        cycles = Cycles(brokers)
        cycles.run()
        ordered = Ordered(brokers)
        counts = ordered.run(brokers, WAITS)
        waits.run(bench, brokers)
    finally:
        for broker in brokers:
            broker.close()
    bench.keep("deadlock", {"latencies": cycles.latencies, **counts})
    tell(bench, idle, cycles, ordered, counts)


def tell(bench, idle, cycles, ordered, counts):
    times = sorted(cycles.latencies)
    bench.head(f"Deadlocks: {CYCLES:,} cycles of 2 to 8 owners over {BROKERS} "
               f"brokers, {AT_ONCE} at once (DEADLOCK_SEED={SEED})")
    bench.table(["ended by one", "by more", "not the youngest",
                 "wrongly named", "p50 ms", "p99 ms", "most ms"],
                [[cycles.victims.get(1, 0),
                  sum(n for k, n in cycles.victims.items() if k != 1),
                  cycles.not_youngest, cycles.wrongly_named,
                  f"{1000 * Spread(times).median:.0f}",
                  f"{1000 * times[int(0.99 * (len(times) - 1))]:.0f}",
                  f"{1000 * times[-1]:.0f}"]])
    bench.table(["over so many brokers", "cycles"],
                sorted(cycles.spread.items()))
    bench.head(f"No cycle: {SESSIONS} sessions take 2 to 4 of {NAMES} names "
               "in order: exclusive, shared, and semaphores")
    bench.table(["locks", "waits", "false alarms", "messages a wait"],
                [[f"{ordered.locks:,}", f"{counts['waits_begun']:,}",
                  ordered.false + counts["deadlocks"],
                  f"{counts['deadlock_probes'] / counts['waits_begun']:.3f}"]])
    bench.head("Nothing waits")
    bench.table(["lock + unlock", "messages that look for deadlocks",
                 "PUBLISH in Redis"],
                [[f"{idle['pairs']:,}", idle["probes"], idle["published"]]])
