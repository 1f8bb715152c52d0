"""What an audit of a million records costs who locks and unlocks meanwhile.

The records are copies of one that a broker has written, put straight into
Redis. Rounds with and without an audit alternate. AUDIT_RECORDS says how many
there are, AUDIT_CONNECTIONS how many lock.
"""

import os
import sys
import threading

from measure import MeasureFailure, Spread, loadgen

from harness import Broker, ClientError

RECORDS = int(os.environ.get("AUDIT_RECORDS", "1000000"))
CONNECTIONS = int(os.environ.get("AUDIT_CONNECTIONS", "16"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PART = 10000
COPIES = """
for number = ARGV[1], ARGV[2] do
    local key = 'holdfast:{copy/' .. number .. '}'
    redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
end
"""


def fill(redis, client):
    """RECORDS locks, each with a holder whose lease is over by and by."""
    client.ok("LOCK copied wait=30s note=copied", timeout=40)
    with redis.connect(timeout=60) as connection:
        raw = bytes(connection.command("GET", "holdfast:{copied}"))
        for first in range(1, RECORDS + 1, PART):
            connection.command("EVAL", COPIES, 0, first,
                               min(first + PART - 1, RECORDS), raw, 86400000)


class Audits:
    """One after the other, beside what the block does."""

    def __init__(self, broker):
        self.broker = broker
        self.results = []
        self.failure = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            with self.broker.client(timeout=3600) as client:
                while not self.over.is_set():
                    self.results.append(client.ok("AUDIT", timeout=3600))
        except (ClientError, OSError) as failure:
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.failure:
            raise MeasureFailure(f"an audit failed: {self.failure}")


def run(bench):
    found = {"without": [], "with an audit": []}
    audits = []
    with Broker(bench.redis, {"audit.interval": "0s"}) as broker, \
            broker.wait_redis().client(timeout=60) as client:
        fill(bench.redis, client)

        def load():
            return loadgen("holdfast", broker.address, lanes=1,
                           connections=CONNECTIONS, seconds=SECONDS)
        for _ in range(ROUNDS):
            found["without"].append(bench.keep("audit", load()))
            with Audits(broker) as beside:
                found["with an audit"].append(bench.keep("audit", load()))
            audits += beside.results
    least = min(audit.number("records") for audit in audits)
    if least < RECORDS:
        print(f"audit: {least} of {RECORDS} records were seen",
              file=sys.stderr)
    bench.head(f"Lock + unlock by {CONNECTIONS} connections beside "
               f"{RECORDS:,} records; an audit takes "
               f"{Spread(a.number('ms') / 1000 for a in audits).text(1)} s")
    bench.table(["", "pairs/s", "p50 µs", "p99 µs"], [
        [name, Spread(r["pairs_per_s"] for r in results).text()] +
        [Spread(r["acquire_us"][mark] for r in results).text()
         for mark in ("p50", "p99")] for name, results in found.items()])
