"""The cost of an audit of a million records for other clients.

The records are copies of one that a broker has written, put straight into
Redis. Rounds with and without an audit alternate. AUDIT_RECORDS says how many
there are, AUDIT_CONNECTIONS how many lock.
"""

import contextlib
import os
import socket
import sys
import time

from measure import (ROUNDS, SECONDS, Beside, MeasureFailure, latency_rows,
                     loadgen)

from harness import Broker, ClientError

RECORDS = int(os.environ.get("AUDIT_RECORDS", "1000000"))
CONNECTIONS = int(os.environ.get("AUDIT_CONNECTIONS", "16"))
PART = 10000
COPIES = """
for number = ARGV[1], ARGV[2] do
    local key = 'holdfast:{copy/' .. number .. '}'
    redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
end
"""


def fill(redis, client, records):
    """So many locks, each with a holder whose lease is over by and by."""
    client.ok("LOCK copied wait=30s note=copied", timeout=40)
    with redis.connect(timeout=60) as connection:
        raw = bytes(connection.command("GET", "holdfast:{copied}"))
        for first in range(1, records + 1, PART):
            connection.command("EVAL", COPIES, 0, first,
                               min(first + PART - 1, records), raw, 86400000)


class Audits(Beside):
    """One after the other, and no longer: an audit ends with its session."""

    def __init__(self, broker):
        super().__init__()
        self.client = broker.client(timeout=3600)
        self.failure = None

    def run(self):
        try:
            while not self.over.is_set():
                reply = self.client.request("AUDIT", timeout=3600)
                if not reply.ok:  # the one before is not quite over
                    time.sleep(0.01)
        except (ClientError, OSError) as failure:
            if not self.over.is_set():
                self.failure = failure

    def __exit__(self, *_):
        self.over.set()
        with contextlib.suppress(OSError):
            self.client.socket.shutdown(socket.SHUT_RDWR)
        super().__exit__()
        self.client.close()
        if self.failure:
            raise MeasureFailure(f"an audit failed: {self.failure}")


def whole_audit(client):
    """One to its end, when there is no other."""
    while True:
        reply = client.request("AUDIT", timeout=3600)
        if reply.ok:
            return reply
        time.sleep(0.01)


def run(bench):
    found = {"without": [], "with an audit": []}
    with Broker(bench.redis, {"audit.interval": "0s"}) as broker, \
            broker.wait_redis().client(timeout=60) as client:
        fill(bench.redis, client, RECORDS)

        def load():
            return loadgen("holdfast", broker.address, lanes=1,
                           connections=CONNECTIONS, seconds=SECONDS)
        for _ in range(ROUNDS):
            found["without"].append(bench.keep("audit", load()))
            with Audits(broker):
                found["with an audit"].append(bench.keep("audit", load()))
        whole = whole_audit(client)
    if whole.number("records") < RECORDS:
        print(f"audit: {whole['records']} of {RECORDS} records were seen",
              file=sys.stderr)
    bench.head(f"Lock + unlock by {CONNECTIONS} connections beside "
               f"{RECORDS:,} records; an audit takes "
               f"{whole.number('ms') / 1000:.1f} s")
    bench.table(["", "pairs/s", "p50 µs", "p99 µs"], latency_rows(found))
