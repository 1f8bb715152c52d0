"""Very many locks of one session, and another client beside them.

One session takes CROWD_LOCKS locks, a thousand requests at a time. They are
renewed for CROWD_SECONDS, and the session dies. Another client locks and
unlocks a name of its own all the time: its times tell whether the crowd
starves it. CPU is utime and stime, which other work on the machine changes
little.
"""

import os
import subprocess
import time

from measure import Beside, MeasureFailure, loadgen_argv

from harness import Broker
from harness.processes import die_with_parent

LOCKS = [int(word) for word in
         os.environ.get("CROWD_LOCKS", "100000").split(",")]
SECONDS = float(os.environ.get("CROWD_SECONDS", "20"))
LEASE = 30.0
PAUSE = 0.002  # of the other client between two rounds
ALONE = 3.0  # before the crowd


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Other(Beside):
    """Locks and unlocks; how long each round took, by phase."""

    def __init__(self, broker):
        super().__init__()
        self.client = broker.client(timeout=60)
        self.took = {}
        self.refused = 0
        self.phase = "before"

    def run(self):
        while not self.over.wait(PAUSE):
            phase, begin = self.phase, time.monotonic()
            for verb in ("LOCK", "UNLOCK"):
                self.refused += not self.client.request(
                    f"{verb} other/name").ok
            self.took.setdefault(phase, []).append(time.monotonic() - begin)

    def __exit__(self, *_):
        super().__exit__()
        self.client.close()

    def row(self, phase):
        took = sorted(1000 * each for each in self.took[phase])
        return [f"{len(took):,}", *(f"{took[int(len(took) * part)]:.2f}"
                                    for part in (0.5, 0.99)),
                f"{took[-1]:.2f}"]


def now(client, what):
    """A number of the moment. /metrics would walk along all locks for it."""
    return next(int(item["value"]) for item in client.request("STATS").items
                if item["name"] == what)


def until(what, done, timeout):
    end = time.monotonic() + timeout
    while not done():
        if time.monotonic() > end:
            raise MeasureFailure(f"not {what} within {timeout:g} s")
        time.sleep(0.25)


def crowd(bench, locks):
    shares = {}
    with Broker(bench.redis, {
            "lease.default": f"{LEASE:g}s", "log.level": "warn",
            "limits.holds": locks, "limits.tickets": locks + 1000}) as broker:
        broker.wait_redis()
        with Other(broker) as other, broker.client(timeout=60) as client:
            other.phase = "alone"
            time.sleep(ALONE)
            other.phase = "taken"
            with subprocess.Popen(
                    loadgen_argv("hold", [broker.address], locks=locks,
                                 seconds=3600),
                    preexec_fn=die_with_parent) as holder:
                until("taken", lambda: now(client, "held_now") >= locks, 300)
                other.phase = "held"
                time.sleep(LEASE / 3)  # until renewals are under way
                other.phase = "renewed"
                pids = {"redis": bench.redis.pid, "daemon": broker.pid}
                before = {name: cpu_s(pid) for name, pid in pids.items()}
                begin = time.monotonic()
                time.sleep(SECONDS)
                for name, pid in pids.items():
                    shares[name] = (cpu_s(pid) - before[name]) / \
                        (time.monotonic() - begin)
                other.phase = "dropped"
                holder.kill()
                until("given back",
                      lambda: now(client, "tickets_now") <= 1, 300)
        counters = broker.metrics()
        lost = sum(value for name, value in counters.items()
                   if name.startswith("holdfast_losses_total"))
    return bench.keep("crowd", {
        "locks": locks, "shares": shares, "lost": lost,
        "refused": other.refused, "rows": {
            phase: other.row(phase)
            for phase in ("alone", "taken", "renewed", "dropped")}})


def run(bench):
    for locks in LOCKS:
        bench.redis.command("FLUSHALL")
        result = crowd(bench, locks)
        bench.head(f"{locks:,} locks of one session, lease {LEASE:g} s; LOCK "
                   "and UNLOCK of another client meanwhile; load average "
                   f"{os.getloadavg()[0]:.0f}")
        bench.table(["while they are", "rounds", "p50 ms", "p99 ms",
                     "longest ms"],
                    [[phase, *row] for phase, row in result["rows"].items()])
        bench.table(["lost", "refused", "Redis CPU", "daemon CPU"],
                    [[f"{result['lost']:.0f}", f"{result['refused']}",
                      f"{result['shares']['redis']:.1%}",
                      f"{result['shares']['daemon']:.1%}"]])
