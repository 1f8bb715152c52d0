#!/usr/bin/env python3
"""`make bench`: the cost of a lock, beside scripts of one's own.

Starts a Redis and a holdfastd on free ports, and ends them. Rounds of the
compared ways alternate. By environment: BENCH_SECONDS (2) for each
measurement, BENCH_ROUNDS (3), BENCH_CONNECTIONS ("1,64,1000,1x64": 1x64 is one
connection with 64 requests under way), BENCH_FULL=1 for longer runs.

The parts in LONG_PARTS take minutes: they run if --only names them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import audit  # noqa: E402
import crowd  # noqa: E402
import deadlock  # noqa: E402
import failover  # noqa: E402
import hostile  # noqa: E402
import kinds  # noqa: E402
import metrics  # noqa: E402
import operations  # noqa: E402
import outage  # noqa: E402
import reload  # noqa: E402
import restart  # noqa: E402
import secure  # noqa: E402
import tree  # noqa: E402
from measure import (ROUNDS, SECONDS, MeasureFailure, Spread,  # noqa: E402
                     have, loadgen, loadgen_argv, loadgen_path, machine,
                     print_table)

from harness import (Broker, RedisServer, broker_path,  # noqa: E402
                     wait_until)
from harness.processes import die_with_parent  # noqa: E402

FULL = os.environ.get("BENCH_FULL") == "1"
CONNECTIONS = os.environ.get("BENCH_CONNECTIONS", "1,64,1000,1x64")
DIRECT = ("setnx", "hash")
RENEWED_LOCKS = 10000
IDLE_SESSIONS = 19000


def shapes():
    """(connections, lanes) from BENCH_CONNECTIONS."""
    for word in CONNECTIONS.split(","):
        connections, _, lanes = word.strip().partition("x")
        yield int(connections), int(lanes or 1)


class Bench:
    """The servers, and where the tables go."""

    def __init__(self, options):
        self.options = options
        self.redis = None
        self.results = {}

    def say(self, text):
        if self.options.markdown:
            print(f"{text}\n", flush=True)
        else:
            print(text, flush=True)

    def head(self, text):
        print(f"### {text}\n" if self.options.markdown else
              f"{text}\n{'=' * len(text)}", flush=True)

    def table(self, head, rows):
        print_table(head, rows, self.options.markdown)

    def keep(self, part, result):
        self.results.setdefault(part, []).append(result)
        return result

    # lock + unlock pairs

    def measure_shape(self, connections, lanes, modes, broker):
        """{mode: [result of each round]}, rounds alternating."""
        found = {mode: [] for mode in modes}
        for _ in range(ROUNDS):
            for mode in modes:
                direct = mode in DIRECT
                address = self.redis.address if direct else broker.address
                pids = [self.redis.pid] if direct \
                    else [self.redis.pid, broker.pid]
                found[mode].append(self.keep("throughput", loadgen(
                    mode, address, pids=pids, connections=connections,
                    lanes=lanes, seconds=SECONDS, warm_up=min(1, SECONDS))))
        return found

    def shape_rows(self, shape, found):
        for mode, results in found.items():
            def median(read, places=0, results=results):
                return Spread(map(read, results)).text(places, False)
            cpu = [median(lambda r, i=i: r["cpu"][i]["us_per_request"], 2)
                   for i in range(len(results[0]["cpu"]))] + [""]
            yield [f"{shape} {mode}",
                   Spread(r["pairs_per_s"] for r in results).text(),
                   median(lambda r: r["acquire_us"]["p50"]),
                   median(lambda r: r["acquire_us"]["p99"]),
                   cpu[0], cpu[1],
                   median(lambda r: r["generator_cpu_share"], 2)]

    def ratio_row(self, shape, found):
        """holdfast against the others, round by round."""
        rates = {mode: [r["pairs_per_s"] for r in results]
                 for mode, results in found.items()}
        return [shape] + [
            Spread(ours / theirs for ours, theirs in
                   zip(rates["holdfast"], rates[mode])).text(2)
            for mode in DIRECT]

    def throughput(self):
        modes = list(DIRECT) + (["holdfast"] if have(broker_path()) else [])
        rows, ratios = [], []
        broker = Broker(self.redis)
        try:
            if "holdfast" in modes:
                broker.start()
            for connections, lanes in shapes():
                shape = str(connections) if lanes == 1 \
                    else f"{connections}x{lanes}"
                found = self.measure_shape(connections, lanes, modes, broker)
                rows += self.shape_rows(shape, found)
                if "holdfast" in modes:
                    ratios.append(self.ratio_row(shape, found))
        finally:
            broker.close()
        self.head(f"Lock + unlock, closed loop, {ROUNDS} rounds of "
                  f"{SECONDS:g} s: median (least..most)")
        self.table(["connections, way", "pairs/s", "p50 µs", "p99 µs",
                    "Redis µs/request", "daemon µs/request", "load CPU"], rows)
        if ratios:
            self.table(["connections", "holdfast / setnx", "holdfast / hash"],
                       ratios)

    # the other figures

    def handover(self):
        rounds = 10000 if FULL else 2000
        rows = []
        with Broker(self.redis) as one, Broker(self.redis) as two:
            for name, addresses in (("one broker", [one.address]),
                                    ("two brokers",
                                     [one.address, two.address])):
                result = self.keep("handover", loadgen(
                    "handover", *addresses, rounds=rounds))
                rows.append([name, f"{rounds:,}"] + [
                    f"{result['handover_us'][mark]:,.0f}"
                    for mark in ("p50", "p99", "max")])
        self.head("Hand-over: UNLOCK sent to the waiter's grant read")
        self.table(["", "times", "p50 µs", "p99 µs", "most µs"], rows)

    def death(self):
        rows = []
        with Broker(self.redis) as one, Broker(self.redis) as two:
            for locks, rounds in ((1, 200), (1000, 20)):
                for name, addresses in (("one broker", [one.address]),
                                        ("two brokers",
                                         [one.address, two.address])):
                    result = self.keep("death", loadgen(
                        "death", *addresses, locks=locks,
                        rounds=rounds * (5 if FULL else 1)))
                    rows.append([f"{locks:,} locks, {name}",
                                 str(result["rounds"])] + [
                        f"{result[what][mark] / 1000:,.2f}"
                        for what in ("first_us", "all_us")
                        for mark in ("p50", "p99")])
        self.head("Death of a holder (SIGKILL) to the next one's grant")
        self.table(["", "times", "first p50 ms", "first p99 ms",
                    "all p50 ms", "all p99 ms"], rows)

    def renewal(self):
        seconds = 60 if FULL else 9
        with Broker(self.redis, {"lease.default": "3s"}) as broker:
            result = self.keep("renewal", loadgen(
                "hold", broker.address, locks=RENEWED_LOCKS, seconds=seconds,
                pids=[self.redis.pid, broker.pid]))
        self.head(f"{RENEWED_LOCKS:,} locks kept for {seconds} s at a lease "
                  "of 3 s")
        redis, daemon = result["cpu"]
        self.table(["lost", "in jeopardy", "Redis CPU", "daemon CPU"],
                   [[result["lost"], result["jeopardy"],
                     f"{redis['share']:.1%}", f"{daemon['share']:.1%}"]])

    def idle(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = min(IDLE_SESSIONS, hard - 1000)
        with Broker(self.redis) as broker:
            before = broker.rss_bytes()
            with subprocess.Popen(
                    loadgen_argv("idle", [broker.address], connections=wanted),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    preexec_fn=die_with_parent) as opener:
                result = json.loads(opener.stdout.readline())
                cpu = broker.cpu_us()
                after = broker.rss_bytes()
                opener.stdin.close()
                opener.wait(60)
            sessions = result["sessions"]
            result["bytes_per_session"] = (after - before) / max(1, sessions)
            self.keep("idle", result)
            if sessions != wanted:
                raise MeasureFailure(f"{sessions} of {wanted} sessions")
        self.head("Idle sessions")
        self.table(["sessions", "resident MiB", "bytes a session",
                    "connect µs of CPU each"],
                   [[f"{sessions:,}", f"{after / 2**20:.1f}",
                     f"{result['bytes_per_session']:,.0f}",
                     f"{cpu / sessions:.1f}"]])

    def strict(self):
        """The same load where each grant waits for a replica, and where not."""
        rows = []
        with RedisServer() as replica:
            replica.command("REPLICAOF", "127.0.0.1", self.redis.port)
            wait_until(lambda: self.redis.info("replication")[
                "connected_slaves"] == "1", 20.0, "a replica follows")
            for connections, lanes in shapes():
                found = {safety: [] for safety in ("fenced", "strict")}
                for _ in range(ROUNDS):
                    for safety, results in found.items():
                        results.append(self.keep(safety, self.under(
                            safety, connections, lanes)))
                rows += [[f"{connections}" + f"x{lanes}" * (lanes > 1), safety,
                          Spread(r["pairs_per_s"] for r in results).text()] +
                         [Spread(r["acquire_us"][mark] for r in results).text(
                             spread=False) for mark in ("p50", "p99")]
                         for safety, results in found.items()]
        self.head("Lock + unlock where each grant waits for the replica "
                  "(strict), and where none does (fenced)")
        self.table(["connections", "safety", "pairs/s", "p50 µs", "p99 µs"],
                   rows)

    def under(self, safety, connections, lanes):
        with Broker(self.redis, {"redis.safety": safety}) as broker:
            broker.wait_redis()
            with broker.client() as client:  # it knows its replica
                client.ok("LOCK warm wait=30s", timeout=40)
            return loadgen("holdfast", broker.address, lanes=lanes,
                           connections=connections, seconds=SECONDS)

    def run(self):
        with RedisServer() as self.redis:
            self.say(machine(self.redis))
            self.say("setnx: SET NX PX and a compare-and-delete script, no "
                     "fence; hash: owner, fence and count in a hash, by two "
                     "scripts; both straight against Redis.\n")
            for part in self.options.only or PARTS:
                if part != "throughput" and not have(broker_path()):
                    continue
                self.redis.command("FLUSHALL")
                {**PARTS, **LONG_PARTS}[part](self)
        if self.options.json:
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump(self.results, file, indent=1)


PARTS = {
    "throughput": Bench.throughput, "handover": Bench.handover,
    "death": Bench.death, "renewal": Bench.renewal, "idle": Bench.idle,
    "shared": lambda bench: kinds.shared(bench, 20 if FULL else 5),
    "queue": lambda bench: kinds.queue(bench, ROUNDS, 3 * SECONDS)}
LONG_PARTS = {
    "restart": restart.run, "failover": failover.run, "outage": outage.run,
    "strict": Bench.strict, "deadlock": deadlock.run,
    "operations": operations.run, "reload": reload.run, "audit": audit.run,
    "metrics": metrics.run, "cost": metrics.cost, "hostile": hostile.run,
    "tls": lambda bench: secure.run(bench, shapes(), ROUNDS, SECONDS),
    "crowd": crowd.run, "tree": tree.run}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", metavar="FILE",
                        help="every single result as well")
    parser.add_argument("--only", action="append",
                        choices=[*PARTS, *LONG_PARTS])
    options = parser.parse_args()
    if not have(loadgen_path()):
        print(f"{loadgen_path()} is not built", file=sys.stderr)
        return 1
    try:
        Bench(options).run()
    except MeasureFailure as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    if not have(broker_path()):
        print(f"{broker_path()} is not built: only Redis itself was measured",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
