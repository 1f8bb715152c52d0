"""Parts of one root beside plain names, and a LOCK of the root among them."""

import time

from measure import ROUNDS, SECONDS, Beside, Spread, latency_rows, loadgen

from harness import Broker

CONNECTIONS = 64
LANES = 156  # a client's names: 9,984 in all
PAUSE_S = 0.05  # between two LOCKs of the root


class Wholes(Beside):
    """A LOCK of the root each 50 ms."""

    def __init__(self, broker):
        super().__init__()
        self.broker = broker
        self.waits_ms = []

    def run(self):
        with self.broker.client(timeout=60) as client:
            while not self.over.wait(PAUSE_S):
                begin = time.monotonic()
                client.ok("LOCK root tree=1")  # as the load generator names it
                self.waits_ms.append((time.monotonic() - begin) * 1000)
                client.ok("UNLOCK root")


def run(bench):
    rows, roots = [], []
    with Broker(bench.redis) as one, Broker(bench.redis) as two:
        for name, brokers in (("one broker", (one,)),
                              ("two brokers", (one, two))):
            def load(mode, lanes, brokers=brokers):
                return bench.keep("tree", loadgen(
                    mode, *(broker.address for broker in brokers),
                    connections=CONNECTIONS, lanes=lanes, seconds=SECONDS))
            found = {"plain": [], "parts": []}
            for _ in range(ROUNDS):
                found["plain"].append(load("holdfast", LANES))
                found["parts"].append(load("tree", LANES))
            ratio = Spread(parts["pairs_per_s"] / plain["pairs_per_s"]
                           for plain, parts in zip(*found.values())).text(2)
            rows += [[f"{name}, {row[0]}", *row[1:], of] for row, of in
                     zip(latency_rows(found), ("", ratio))]
            with Wholes(brokers[-1]) as wholes:
                pairs = load("tree", 1)["pairs_per_s"]
            roots.append([name, f"{pairs:,.0f}", len(wholes.waits_ms),
                          Spread(wholes.waits_ms).text(1, False),
                          f"{max(wholes.waits_ms):.1f}"])
    bench.head(f"{CONNECTIONS} clients on {CONNECTIONS * LANES:,} parts of one "
               "root, and on as many plain names")
    bench.table(["", "pairs/s", "p50 µs", "p99 µs", "of plain"], rows)
    bench.head(f"LOCK of the root each {PAUSE_S * 1000:.0f} ms, among "
               f"{CONNECTIONS} clients with a part each")
    bench.table(["", "pairs/s", "LOCKs", "p50 ms", "most ms"], roots)
