"""Thousands of reloads under load: what clients see, and what memory they
cost.

The daemon's memory grows at first, by the releases that it remembers.
"""

import os
import signal
import sys
import time

from measure import MeasureFailure, while_roaming

from harness import Broker, wait_until

RELOADS = int(os.environ.get("RELOADS", "10000"))
SESSIONS = int(os.environ.get("RELOAD_SESSIONS", "200"))
RATE = int(os.environ.get("RELOAD_RATE", "1000"))
NAMES = 100
WARM_UP = 100  # reloads before anything is counted
STALL = 0.02  # s; a bound of the histogram
TURNS = "holdfast_loop_turn_seconds"


def settings(number):
    """Of the configuration: all that may change under these clients."""
    odd = number % 2
    return {"limits.holds": 16384 + odd,
            "limits.output": f"{1 + odd}MiB",
            "redis.batch": 64 - odd,
            "redis.in_flight": 1 + number % 4,
            "redis.command_timeout": f"{900 + odd}ms",
            "session.keepalive.idle": f"{5 + number % 3}s",
            "session.tcp_user_timeout": f"{9 + odd}s",
            "namespaces": [{"prefix": "k"}] if odd else []}


class Reloads:
    """One after the other, each when the log tells of the one before."""

    def __init__(self, broker):
        self.broker = broker
        self.log = open(broker.process.log_path, encoding="utf-8")

    def met(self):
        told = self.log.read()
        if "event=reload_failed" in told:
            raise MeasureFailure(told)
        return "event=reloaded" in told

    def run(self, numbers):
        took = []
        for number in numbers:
            begin = time.monotonic()
            self.broker.change(settings(number))
            self.broker.process.signal(signal.SIGHUP)
            wait_until(self.met, 10.0, "a reload is told", step=0.0005)
            took.append(time.monotonic() - begin)
        return took


def descriptors(broker):
    """The least of a second: those who asked for /metrics go by themselves."""
    counts = []
    for _ in range(20):
        counts.append(broker.descriptors())
        time.sleep(0.05)
    return min(counts)


def slow_turns(metrics):
    """Turns of the loop that took longer than STALL."""
    return int(metrics[f"{TURNS}_count"] -
               metrics[f'{TURNS}_bucket{{le="{STALL:g}"}}'])


def measure(broker):
    reloads = Reloads(broker)
    reloads.run(range(WARM_UP))
    before = descriptors(broker), broker.metrics()
    begin = time.monotonic()
    half = WARM_UP + RELOADS // 2
    took = reloads.run(range(WARM_UP, half))
    resident = broker.rss_bytes()
    took += reloads.run(range(half, WARM_UP + RELOADS))
    resident = broker.rss_bytes() - resident
    seconds = time.monotonic() - begin
    after = broker.metrics()
    counted = 'holdfast_reloads_total{result="ok"}'
    if after[counted] - before[1][counted] != RELOADS:
        raise MeasureFailure("not every reload was counted")
    return {"seconds": seconds, "took_s": sorted(took),
            "descriptors": descriptors(broker) - before[0],
            "bytes": resident,
            "slow_turns": slow_turns(after) - slow_turns(before[1])}


def run(bench):
    # Each reload is awaited by its line in the log.
    with Broker(bench.redis, {**settings(0), "log.rate": 0}) as broker:
        result, found = while_roaming(
            lambda: measure(broker), [broker], connections=SESSIONS,
            rate=RATE, keys=NAMES)
    bench.keep("reload", {**result, **found})
    bench.head(f"{RELOADS:,} reloads under {SESSIONS:,} sessions, each of "
               f"which holds a lock and takes one of {NAMES}")
    bench.table(["lock + unlock", "a second", "lost", "two holders",
                 "fence back", "refused", "ended"],
                [[f"{result['pairs']:,}", f"{result['pairs_per_s']:,}",
                  result["lost"], result["doubled"], result["backwards"],
                  result["refused"], result["closed"]]])
    took = found["took_s"]
    bench.table(["reloads a second", "p50 ms", "longest ms",
                 "descriptors more", "KiB more in the second half",
                 f"turns over {STALL * 1000:g} ms"],
                [[f"{RELOADS / found['seconds']:,.0f}",
                  f"{took[len(took) // 2] * 1000:.1f}",
                  f"{took[-1] * 1000:.1f}", found["descriptors"],
                  f"{found['bytes'] / 1024:,.0f}", found["slow_turns"]]])
    if result["lost"] or result["doubled"] or result["backwards"] or \
            result["refused"] or result["closed"]:
        print("reload: clients noticed it", file=sys.stderr)
