"""A million random operations of all kinds, held against a model."""

import os
import sys
import time

from harness import Broker
from harness.broker import TREE

sys.path.insert(0, os.path.join(TREE, "tests", "e2e"))

import random_operations  # noqa: E402

SEED = int(os.environ.get("OPERATIONS_SEED", "1"))
COUNT = int(os.environ.get("OPERATIONS", "1000000"))
CLIENTS = 50
EACH = 100000  # with one seed, on brokers of its own


def once(bench, seed, count):
    """One run; a violation ends all."""
    bench.redis.command("FLUSHALL")
    with Broker(bench.redis, random_operations.SETTINGS) as one, \
            Broker(bench.redis, random_operations.SETTINGS) as two:
        result = random_operations.run([one.address, two.address], seed, count,
                                       clients=CLIENTS)
        random_operations.check_left(bench.redis, (one, two), True)
    bench.keep("operations", {"seed": seed, "done": result.done,
                              "grants": result.grants,
                              "seconds": result.seconds})
    return result


def run(bench):
    done, grants, begin = {}, 0, time.monotonic()
    seeds = range(SEED, SEED + max(1, COUNT // EACH))
    for seed in seeds:
        result = once(bench, seed, min(COUNT, EACH))
        grants += result.grants
        for kind, count in result.done.items():
            done[kind] = done.get(kind, 0) + count
    bench.head(f"Random operations by {CLIENTS} clients over two brokers, "
               f"seeds {seeds[0]} to {seeds[-1]} (OPERATIONS_SEED={SEED})")
    bench.table(["operations", "grants", "not as foretold", "left over",
                 "seconds"],
                [[f"{len(seeds) * min(COUNT, EACH):,}", f"{grants:,}", 0, 0,
                  f"{time.monotonic() - begin:,.0f}"]])
    bench.table(["kind", "times"],
                sorted(([kind, f"{count:,}"] for kind, count in done.items()),
                       key=lambda row: row[0]))
