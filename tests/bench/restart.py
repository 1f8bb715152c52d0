"""A rolling restart under load: what do the clients see of it?"""

import json
import os
import subprocess
import sys
import time

from measure import MeasureFailure, loadgen_argv

from harness import Broker
from harness.processes import die_with_parent

SESSIONS = int(os.environ.get("RESTART_SESSIONS", "500"))
RATE = int(os.environ.get("RESTART_RATE", "2000"))
TIMES = int(os.environ.get("RESTART_TIMES", "5"))
NAMES = 100
BETWEEN = 3.0  # s


def roll(brokers):
    """Each in turn is asked to stop, and started anew at the same port; how
    long each stop took, in s."""
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


def load_and_roll(brokers):
    """(what the load found, how long each stop took)."""
    argv = loadgen_argv("roam", [broker.address for broker in brokers],
                        connections=SESSIONS, rate=RATE, keys=NAMES)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, preexec_fn=die_with_parent) as load:
        if not load.stdout.readline():
            raise MeasureFailure("the sessions did not begin")
        took = roll(brokers)
        load.stdin.close()
        answer = load.stdout.readline()
        load.wait(120)
    if not answer:
        raise MeasureFailure(f"the load ended with {load.returncode}")
    return json.loads(answer), took


def run(bench):
    with Broker(bench.redis) as one, Broker(bench.redis) as two:
        result, took = load_and_roll((one, two))
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
