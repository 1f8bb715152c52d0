"""The cost of /metrics while many locks are held, and of scrapes and audits
under load.

METRICS_LOCKS are held while METRICS_GETS are timed. COST_RECORDS are in Redis
for the audits, COST_CONNECTIONS lock. Rounds alternate.
"""

import os
import time

import audit
from measure import (ROUNDS, SECONDS, Beside, MeasureFailure, Spread,
                     loadgen)

from harness import Broker

LOCKS = int(os.environ.get("METRICS_LOCKS", "100000"))
GETS = int(os.environ.get("METRICS_GETS", "100"))
RECORDS = int(os.environ.get("COST_RECORDS", "100000"))
CONNECTIONS = int(os.environ.get("COST_CONNECTIONS", "64"))
WINDOW = 1000  # requests under way
SCRAPES_S = 1.0


def hold(client):
    for first in range(0, LOCKS, WINDOW):
        tags = range(first, min(first + WINDOW, LOCKS))
        client.send("\n".join(f"{tag} LOCK metrics/{tag}" for tag in tags))
        for tag in tags:
            if not client.wait(f"{tag}", timeout=60).ok:
                raise MeasureFailure("a lock was not granted")


def page(broker):
    """(seconds, bytes) of one GET, with its connection."""
    begin = time.monotonic()
    status, body = broker.http("/metrics")
    if status != 200:
        raise MeasureFailure(f"/metrics answered {status}")
    return time.monotonic() - begin, len(body)


def run(bench):
    with Broker(bench.redis, {"lease.default": "10m", "limits.holds": LOCKS,
                              "limits.tickets": max(262144, 2 * LOCKS)}
                ) as broker, \
            broker.wait_redis().client(timeout=60) as client:
        hold(client)
        cpu = broker.cpu_us()
        pages = [page(broker) for _ in range(GETS)]
        cpu = broker.cpu_us() - cpu
        held = sum(value for name, value in broker.metrics().items()
                   if name.startswith("holdfast_held{"))
    if held != LOCKS:
        raise MeasureFailure(f"{held:.0f} of {LOCKS} locks are held")
    took = sorted(seconds * 1000 for seconds, _ in pages)
    bench.keep("metrics", {"took_ms": took, "cpu_us": cpu})
    bench.head(f"{GETS} times GET /metrics while {LOCKS:,} locks are held")
    bench.table(["KiB", "median ms", "longest ms", "daemon CPU ms each"],
                [[f"{pages[-1][1] / 1024:.0f}", f"{Spread(took).median:.2f}",
                  f"{took[-1]:.2f}", f"{cpu / GETS / 1000:.2f}"]])


class Scrapes(Beside):
    """One each second."""

    def __init__(self, broker):
        super().__init__()
        self.broker = broker

    def run(self):
        while not self.over.wait(SCRAPES_S):
            self.broker.http("/metrics")

    def __enter__(self):
        self.broker.http("/metrics")
        return super().__enter__()


def cost(bench):
    ways = ("plain", "scraped each second", "with audits")
    found = {way: [] for way in ways}
    with Broker(bench.redis, {"audit.interval": "0s"}) as broker, \
            broker.wait_redis().client(timeout=60) as client:
        audit.fill(bench.redis, client, RECORDS)

        def load(way):
            found[way].append(bench.keep("cost", loadgen(
                "holdfast", broker.address, pids=[bench.redis.pid, broker.pid],
                connections=CONNECTIONS, lanes=1, seconds=SECONDS)))
        for _ in range(ROUNDS):
            load(ways[0])
            with Scrapes(broker):
                load(ways[1])
            with audit.Audits(broker):
                load(ways[2])

    def row(way):
        results = found[way]
        cpu = [result["cpu"][1]["us_per_request"] for result in results]
        plain = [result["pairs_per_s"] for result in found["plain"]]
        return [way, Spread(r["pairs_per_s"] for r in results).text(),
                Spread(cpu).text(2),
                Spread(r["pairs_per_s"] / other for r, other in
                       zip(results, plain)).text(3)]
    bench.head(f"Lock + unlock by {CONNECTIONS} connections beside "
               f"{RECORDS:,} records")
    bench.table(["", "pairs/s", "daemon µs/request", "of plain"],
                [row(way) for way in ways])
