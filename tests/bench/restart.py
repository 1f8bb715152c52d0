"""A rolling restart under load: what do the clients see of it?"""

import os
import sys
import time

from measure import MeasureFailure, while_roaming

from harness import Broker

SESSIONS = int(os.environ.get("RESTART_SESSIONS", "500"))
RATE = int(os.environ.get("RESTART_RATE", "2000"))
TIMES = int(os.environ.get("RESTART_TIMES", "5"))
NAMES = 100
BETWEEN = 3.0  # s


def roll(brokers):
    """Restarts each at its port; how long each stop took, in s."""
    took = []
    for turn in range(TIMES * len(brokers)):
        time.sleep(BETWEEN)
        broker = brokers[turn % len(brokers)]
        begin = time.monotonic()
        status = broker.stop()
        took.append(time.monotonic() - begin)
        if status != 0:
            raise MeasureFailure(f"a broker ended with {status}")
        broker.start()
    time.sleep(BETWEEN)
    return took


def run(bench):
    with Broker(bench.redis) as one, Broker(bench.redis) as two:
        brokers = (one, two)
        result, took = while_roaming(
            lambda: roll(brokers), brokers, connections=SESSIONS, rate=RATE,
            keys=NAMES)
    bench.keep("restart", {**result, "stops_s": took})
    bench.head(f"{SESSIONS:,} kept sessions, two brokers, each restarted "
               f"{TIMES} times in turn; each session holds a lock of its own "
               f"and takes one of {NAMES}")
    bench.table(["lock + unlock", "a second", "moves", "lost", "two holders",
                 "fence back", "refused", "ended"],
                [[f"{result['pairs']:,}", f"{result['pairs_per_s']:,}",
                  f"{result['moves']:,}", result["lost"], result["doubled"],
                  result["backwards"], result["refused"], result["closed"]]])
    bench.table(["", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"],
                [[name] + [f"{result[key][mark] / 1000:,.1f}"
                           for mark in ("p50", "p99", "p999", "max")]
                 for name, key in (("LOCK, asked to granted", "lock_us"),
                                   ("UNLOCK", "unlock_us"),
                                   ("without a broker", "away_us"))])
    bench.say(f"The longest stop of a broker took {max(took):.2f} s.\n")
    if result["lost"] or result["doubled"] or result["backwards"]:
        print("restart: locks were lost, or had two holders", file=sys.stderr)
