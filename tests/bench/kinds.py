"""The work of Redis for many readers of a lock, and for a long queue."""

import selectors
import socket
import time

from measure import MeasureFailure, Spread, loadgen

from harness import Broker

READERS = 1000
SCRIPT_TARGET = 0.01  # scripts for each reader's grant
QUEUES = (10, 1000)
GROWTH_TARGET = 1.5
SCRIPTS = ("evalsha", "eval", "evalsha_ro", "eval_ro", "fcall")


def scripts_run(redis):
    """(calls, microseconds) of scripts since the last CONFIG RESETSTAT."""
    calls = usec = 0
    for name, value in redis.info("commandstats").items():
        if name.removeprefix("cmdstat_") not in SCRIPTS:
            continue
        pairs = dict(pair.split("=") for pair in value.split(","))
        calls += int(pairs["calls"])
        usec += int(pairs["usec"])
    return calls, usec


def counters(*brokers):
    """The sums of their STATS."""
    total = {}
    for broker in brokers:
        with broker.client() as client:
            for item in client.ok("STATS").items:
                total[item["name"]] = total.get(item["name"], 0) + \
                    int(item["value"])
    return total


class Crowd:
    """Many connections, read together."""

    def __init__(self, addresses, count):
        self.selector = selectors.DefaultSelector()
        self.sockets = []
        for number in range(count):
            host, _, port = addresses[number % len(addresses)].rpartition(":")
            peer = socket.create_connection((host, int(port)), 10.0)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.selector.register(peer, selectors.EVENT_READ)
            self.sockets.append(peer)
        self.wait(b"* HELLO ")

    def wait(self, wanted, timeout=60.0):
        """One whole line from each, with `wanted` in it."""
        missing = {peer: b"" for peer in self.sockets}
        deadline = time.monotonic() + timeout
        while missing:
            ready = self.selector.select(deadline - time.monotonic())
            if not ready:
                raise MeasureFailure(f"{len(missing)} wait for {wanted}")
            for key, _ in ready:
                peer = key.fileobj
                missing[peer] = missing.get(peer, b"") + peer.recv(4096)
                if not missing[peer].endswith(b"\n"):
                    continue
                if wanted not in missing[peer]:
                    raise MeasureFailure(f"unexpected: {missing[peer]!r}")
                del missing[peer]

    def say(self, line, wanted):
        for peer in self.sockets:
            peer.sendall(line)
        self.wait(wanted)

    def close(self):
        for peer in self.sockets:
            peer.close()
        self.selector.close()


def readers_once(redis, brokers):
    """(scripts a reader, ms from UNLOCK to the last reader's OK)."""
    addresses = [broker.address for broker in brokers]
    crowd = Crowd(addresses, READERS)
    with brokers[0].client() as writer:
        writer.ok("LOCK shared")
        crowd.say(b"1 LOCK shared mode=shared progress=1\n", b"1 QUEUED ")
        redis.command("CONFIG", "RESETSTAT")
        begin = time.monotonic()
        writer.ok("UNLOCK shared")
        crowd.wait(b"1 OK ")
        took = time.monotonic() - begin
        calls, usec = scripts_run(redis)
        crowd.say(b"2 UNLOCK shared\n", b"2 OK ")
        writer.ok("LOCK shared")  # nobody is left
        writer.ok("UNLOCK shared")
    crowd.close()
    return {"scripts_a_reader": calls / READERS, "ms": took * 1000,
            "redis_us_a_reader": usec / READERS}


def shared(bench, rounds):
    """A thousand readers behind a writer, which gives the lock back."""
    rows = []
    with Broker(bench.redis) as one, Broker(bench.redis) as two:
        for name, brokers in (("one broker", (one,)),
                              ("two brokers", (one, two))):
            found = [bench.keep("shared", readers_once(bench.redis, brokers))
                     for _ in range(rounds)]

            def text(what, places, found=found):
                return Spread(result[what] for result in found).text(places)
            most = max(result["scripts_a_reader"] for result in found)
            rows.append([name, text("scripts_a_reader", 4),
                         text("redis_us_a_reader", 2), text("ms", 1),
                         "yes" if most <= SCRIPT_TARGET else "NO"])
    bench.head(f"{READERS:,} readers granted together when a writer unlocks, "
               f"{rounds} times: median (least..most)")
    bench.table(["", "scripts a reader", "Redis µs a reader",
                 "UNLOCK to last OK, ms", f"<= {SCRIPT_TARGET}"], rows)


def queue_once(bench, brokers, waiters, seconds):
    """Microseconds of Redis' scripts for each hand-over."""
    bench.redis.command("CONFIG", "RESETSTAT")
    before = counters(*brokers)
    result = loadgen("holdfast", *(broker.address for broker in brokers),
                     connections=waiters + 1, keys=1, seconds=seconds,
                     warm_up=0.2)
    after = counters(*brokers)
    calls, usec = scripts_run(bench.redis)
    grants = after["grants"] - before["grants"]
    return {"waiters": waiters, "brokers": len(brokers), "grants": grants,
            "us": usec / grants, "scripts": calls / grants,
            "per_s": result["pairs_per_s"]}


def queue(bench, rounds, seconds):
    """A lock handed from one to the next: does a long queue cost more?"""
    rows = []
    with Broker(bench.redis) as one, Broker(bench.redis) as two:
        for name, brokers in (("one broker", (one,)),
                              ("two brokers", (one, two))):
            found = {waiters: [] for waiters in QUEUES}
            for _ in range(rounds):
                for waiters in QUEUES:
                    found[waiters].append(bench.keep("queue", queue_once(
                        bench, brokers, waiters, seconds)))
            for waiters, results in found.items():
                rows.append([f"{waiters:,} waiters, {name}"] + [
                    Spread(result[what] for result in results).text(places)
                    for what, places in (("us", 2), ("scripts", 2),
                                         ("per_s", 0))] + [""])
            ratio = [many["us"] / few["us"] for few, many in
                     zip(found[QUEUES[0]], found[QUEUES[1]])]
            rows[-1][-1] = Spread(ratio).text(2)
    bench.head("Hand-over along a queue, each one waiting anew: of which "
               f"{rounds} rounds of {seconds:g} s: median (least..most)")
    bench.table(["", "Redis µs a hand-over", "scripts", "hand-overs/s",
                 f"ratio (<= {GROWTH_TARGET})"], rows)
