"""The cost of TLS: the same locks by both ports of a broker, and of a
connection.

BENCH_CONNECTIONS says how many connections lock; rounds alternate.
"""

from measure import Spread, loadgen

from harness import Authority, Broker, ports


def run(bench, shapes, rounds, seconds):
    authority = Authority()
    own = authority.issue("broker", "localhost")
    port = ports.reserve()
    rows = []
    with Broker(bench.redis, {
            "listen.tls": [f"127.0.0.1:{port}"], "listen.tls_cert": own.cert,
            "listen.tls_key": own.key}
            ) as broker:
        broker.wait_redis()
        ways = {"plain": (broker.address, {}),
                "TLS": (f"127.0.0.1:{port}", {"tls_ca": authority.cert})}
        for connections, lanes in shapes:
            found = {way: [] for way in ways}
            for _ in range(rounds):
                for way, (address, options) in ways.items():
                    found[way].append(bench.keep("tls", loadgen(
                        "holdfast", address, lanes=lanes, seconds=seconds,
                        pids=[bench.redis.pid, broker.pid],
                        connections=connections, **options)))
            shape = f"{connections}" + f"x{lanes}" * (lanes > 1)
            rows += [row(shape, way, results, found["plain"])
                     for way, results in found.items()]
    port.release()
    bench.head("Lock + unlock by TLS, and without it")
    bench.table(["connections", "pairs/s", "of plain", "p50 µs", "p99 µs",
                 "daemon µs/request", "connect µs each"], rows)


def row(shape, way, results, plain):
    def median(values, places=0):
        return Spread(values).text(places, False)
    return [f"{shape} {way}",
            Spread(r["pairs_per_s"] for r in results).text(),
            Spread(r["pairs_per_s"] / other["pairs_per_s"]
                   for r, other in zip(results, plain)).text(2),
            median(r["acquire_us"]["p50"] for r in results),
            median(r["acquire_us"]["p99"] for r in results),
            median((r["cpu"][1]["us_per_request"] for r in results), 2),
            median(r["connect_us"] for r in results)]
