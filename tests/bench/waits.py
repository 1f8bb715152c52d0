"""The cost of deadlock detection for many waits without a cycle."""

import time

from kinds import Crowd, counters, scripts_run
from measure import MeasureFailure, loadgen

CROWDS = (100, 300)
SECONDS = 3.0


def sessions(brokers, count, holding):
    """Each a connection of its own."""
    crowd = Crowd([broker.address for broker in brokers], count)
    if holding:
        for number, peer in enumerate(crowd.sockets):
            peer.sendall(b"1 LOCK own%d\n" % number)
        crowd.wait(b"1 OK ")
    crowd.say(b"2 LOCK hot progress=1\n", b"2 QUEUED")
    return crowd


def owners(brokers, count):
    """All of one connection, which holds something in addition."""
    client = brokers[0].client()
    for number in range(count):
        client.ok(f"LOCK own{number} owner=o{number}")
    client.ok("LOCK unrelated")
    tags = [client.submit(f"LOCK hot owner=o{number} progress=1")
            for number in range(count)]
    for tag in tags:
        client.queued(tag)
    return client


CASES = (
    ("connections that hold nothing", 1,
     lambda brokers, count: sessions(brokers, count, False)),
    ("connections that hold a lock each", 1,
     lambda brokers, count: sessions(brokers, count, True)),
    ("the same at three brokers", 3,
     lambda brokers, count: sessions(brokers, count, True)),
    ("owners of one connection", 1, owners),
)


def measure(bench, brokers, crowd, count):
    """A row of what Redis does while they wait, from their begin on."""
    with brokers[0].client() as holder:
        holder.ok("LOCK hot")
        bench.redis.command("CONFIG", "RESETSTAT")
        before, began = counters(*brokers), time.monotonic()
        waiting = crowd(brokers, count)
        beside = loadgen("holdfast", brokers[0].address, connections=1,
                         seconds=SECONDS, warm_up=0.1)
        _, usec = scripts_run(bench.redis)
        seconds = time.monotonic() - began
        after = counters(*brokers)
        waiting.close()
    if after["deadlocks"] != before["deadlocks"]:
        raise MeasureFailure("a deadlock was found where there is none")
    looks, late, messages = (
        after[name] - before[name] for name in
        ("deadlock_looks", "deadlock_looks_late", "deadlock_probes"))
    return {"waiters": count, "usec": usec, "seconds": seconds,
            "looks": looks, "late": late, "messages": messages,
            "p50": beside["acquire_us"]["p50"],
            "p99": beside["acquire_us"]["p99"]}


def run(bench, brokers):
    rows = []
    for name, at, crowd in CASES:
        for count in CROWDS:
            found = bench.keep("waits", measure(
                bench, brokers[:at], crowd, count))
            rows.append([f"{count} {name}",
                         f"{found['looks'] / found['seconds']:,.0f}",
                         f"{found['late'] / found['seconds']:,.0f}",
                         f"{found['messages'] / found['seconds']:,.0f}",
                         f"{100 * found['usec'] / 1e6 / found['seconds']:.0f}",
                         f"{found['p50']:,.0f}", f"{found['p99']:,.0f}"])
    bench.head(f"Waits for one lock, in no circle: the first {SECONDS:g} s, "
               "beside one connection that locks and unlocks")
    bench.table(["waiters", "readings/s", "put off/s", "messages/s",
                 "% of Redis, all scripts", "acquire p50 µs", "p99 µs"], rows)
