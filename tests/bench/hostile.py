"""An ordinary client beside wrong AUTHs, cut lines and silence.

The ordinary client is known by its uid, on a Unix socket. The others come by
TCP, HOSTILE_RATE a second of each kind. Rounds with and without them
alternate.
"""

import collections
import os
import socket
import struct
import threading
import time

from measure import ROUNDS, SECONDS, MeasureFailure, latency_rows, loadgen

from harness import Broker
from harness.processes import temp_folder

RATE = int(os.environ.get("HOSTILE_RATE", "300"))
CONNECTIONS = int(os.environ.get("HOSTILE_CONNECTIONS", "4"))
KEPT = 200  # connections of each kind at a time, at most
WRONG = b"AUTH shop no-secret-of-anybody\n" * 10
RESET = struct.pack("ii", 1, 0)


class Flood:
    """Connections that send and stay, in a thread for each kind."""

    def __init__(self, broker):
        self.to = ("127.0.0.1", broker.port)
        self.over = threading.Event()
        self.came = collections.Counter()
        self.threads = [
            threading.Thread(target=self.run, args=each)
            for each in (("wrong", WRONG, KEPT), ("cut", b"LOCK a", 0),
                         ("idle", b"", KEPT))]

    def run(self, kind, sent, kept):
        open_ones = collections.deque()
        while not self.over.wait(1 / RATE):
            try:
                one = socket.create_connection(self.to, timeout=5)
                if sent:
                    one.send(sent)
            except OSError:
                self.came["refused"] += 1
                continue
            self.came[kind] += 1
            open_ones.append(one)
            while len(open_ones) > kept:
                gone = open_ones.popleft()
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                gone.close()
        for one in open_ones:
            one.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def settings(folder):
    users = os.path.join(folder, "users")
    with open(users, "w", encoding="ascii") as file:
        file.write(f"me uid={os.getuid()} lock=*\n"
                   f"shop secret=sha256${'0' * 32}${'0' * 64} lock=*\n")
    return {"auth.users_file": users, "auth.timeout": "1s", "log.level":
            "error", "listen.unix": [os.path.join(folder, "socket")]}


def run(bench):
    found = {"alone": [], "beside them": []}
    came = collections.Counter()
    own = settings(temp_folder())
    with Broker(bench.redis, own) as broker:
        broker.wait_redis()

        def load(way):
            found[way].append(bench.keep("hostile", loadgen(
                "holdfast", own["listen.unix"][0], connections=CONNECTIONS,
                lanes=1, seconds=SECONDS)))
        resident = 0
        for _ in range(ROUNDS):
            load("alone")
            with Flood(broker) as flood:
                load("beside them")
                resident = max(resident, broker.rss_bytes())
            came += flood.came
        failed = broker.metrics()[
            'holdfast_authentications_total{result="failed"}']
    if not failed:
        raise MeasureFailure("no AUTH was refused")
    bench.head(f"Lock + unlock by {CONNECTIONS} connections; " + ", ".join(
        f"{kind}: {count:,}" for kind, count in sorted(came.items())) +
        f"; AUTHs that failed: {failed:,.0f}; resident "
        f"{resident / 2**20:.0f} MiB")
    bench.table(["", "pairs/s", "p50 µs", "p99 µs"], latency_rows(found))
