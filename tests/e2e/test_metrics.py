"""/metrics: each series of the tables, its format and its count."""

import os
import re
import subprocess
import sys

from harness import HarnessCase
from shared import TREE, promtool, read

GAUGES = os.path.join(TREE, "daemon", "io", "gauges.def")
TABLES = {"counters.def": "daemon/op", "namespaces.def": "daemon/core/model"}
OTHER = 'namespace="other"'
QUICK = {"lease.default": "1s"}


def table(name):
    """{family: (label or None, [values])} of counters.def or namespaces.def."""
    text = read(TABLES[name], name)
    families = {}
    for kind, words in re.findall(r"^(\w+)\((.*?)\)$", text,
                                  re.MULTILINE | re.DOTALL):
        parts = [part.strip().strip('"') for part in words.split(",")]
        if kind == "SINGLE":
            families[parts[0]] = (None, [None])
        elif kind == "FAMILY":
            families[parts[0]] = (parts[1], [])
        elif kind == "PART":
            families[parts[1]][1].append(parts[2])
    return families


def series(labels=None):
    """All counters, by name and labels."""
    names = set()
    for family, (label, values) in table("counters.def").items():
        for value in values:
            names.add(f"holdfast_{family}_total" +
                      (f'{{{label}="{value}"}}' if label else ""))
    for family, (label, values) in table("namespaces.def").items():
        for value in values:
            names.add(f"holdfast_{family}_total"
                      f'{{{labels or OTHER},{label}="{value}"}}')
    return names


class MetricsTest(HarnessCase):
    def setUp(self):
        self.redis_server = self.redis()

    def start(self, **overrides):
        return self.broker(self.redis_server, {**QUICK, **overrides})

    def result(self, broker, result):
        return broker.metrics()[
            f'holdfast_acquisitions_total{{{OTHER},result="{result}"}}']

    def losses(self, broker, reason):
        return broker.metrics()[
            f'holdfast_losses_total{{{OTHER},reason="{reason}"}}']

    def count(self, broker, name):
        return broker.metrics()[f"holdfast_{name}_count{{{OTHER}}}"]

    def test_all_are_told(self):
        metrics = self.start().metrics()
        rows = re.findall(r"^(?:SINGLE|PART)\(", "".join(
            read(folder, file) for file, folder in TABLES.items()), re.M)
        self.assertEqual(len(series()), len(rows))
        self.assertEqual(series() - set(metrics), set())
        told = {name for name in metrics if "_total" in name}
        self.assertEqual(told - series(), set())
        version = [name for name in metrics if name.startswith(
            "holdfast_build_info{version=")]
        self.assertEqual([metrics[name] for name in version], [1])

    def test_families(self):
        """The page and holdfast-metrics(7) have the tables' families."""
        told = {name: kind for name, kind in re.findall(
            r"^# TYPE (\w+) (\w+)$", self.start().http("/metrics")[1],
            re.MULTILINE)}
        tables = {f"holdfast_{family}_total": "counter"
                  for name in ("counters.def", "namespaces.def")
                  for family in table(name)}
        with open(GAUGES, encoding="ascii") as file:
            tables.update({f"holdfast_{name}": kind for name, kind in
                           re.findall(r"^SHOWN\((\w+), (\w+), ", file.read(),
                                      re.MULTILINE)})
        self.assertEqual(told, tables)
        paths = [GAUGES] + [os.path.join(TREE, TABLES[name], name)
                            for name in ("namespaces.def", "counters.def")]
        page = subprocess.run(
            [sys.executable, os.path.join(
                TREE, "packaging", "man", "metrics_page.py"), *paths],
            stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
        self.assertEqual(sorted(re.findall(r"^\.It Cm (holdfast_\w+)", page,
                                           re.MULTILINE)), sorted(tables))

    def test_labels(self):
        """Those of the gauges and histograms are what the table says."""
        with open(GAUGES, encoding="ascii") as file:
            labels = dict(re.findall(r'^SHOWN\((\w+), \w+, "(\w*)"',
                                     file.read(), re.MULTILINE))
        for name in self.start().metrics():
            family, _, rest = name.partition("{")
            family = re.sub(r"_(bucket|sum|count)$", "",
                            family.removeprefix("holdfast_"))
            if family in labels:
                self.assertEqual(set(re.findall(r"(\w+)=", rest)) - {"le"},
                                 {labels[family]} - {""}, name)

    def test_text_format(self):
        """HELP and TYPE first, no series twice, whole histograms."""
        status, body = self.start().http("/metrics")
        self.assertEqual(status, 200)
        kinds, seen, current = {}, set(), None
        for line in body.splitlines():
            about = re.fullmatch(r"# HELP (holdfast_[a-z_]+) \S.*", line)
            kind = re.fullmatch(r"# TYPE (holdfast_[a-z_]+) (\w+)", line)
            if about:
                current = about.group(1)
                self.assertNotIn(current, kinds)
                kinds[current] = None
            elif kind:
                self.assertEqual(kind.group(1), current)
                kinds[current] = kind.group(2)
            else:
                name, value = line.rsplit(" ", 1)
                base = re.match(r"[a-z_]+", name).group()
                if kinds[current] == "histogram":
                    self.assertIn(base.removeprefix(current),
                                  ("_bucket", "_sum", "_count"))
                else:
                    self.assertEqual(base, current)
                self.assertEqual(current.endswith("_total"),
                                 kinds[current] == "counter")
                self.assertNotIn(name, seen)
                seen.add(name)
                float(value)
        self.assertNotIn(None, kinds.values())

    def test_promtool(self):
        _, body = self.start().http("/metrics")
        self.assertEqual(promtool("check", "metrics", stdin=body), (0, ""))

    def test_what_became_of_lock(self):
        broker = self.start()
        client, other = self.client(broker, "LOCK a"), self.client(broker)
        client.ok("LOCK a", count=2)
        other.err("LOCK a wait=0", "BUSY")
        other.err("LOCK a wait=50ms", "TIMEOUT")
        other.err("LOCK a limit=2", "CONFLICT")
        tag = other.waits("LOCK a")
        self.assertEqual(broker.metrics()[f"holdfast_waiting{{{OTHER}}}"], 1)
        for what in ("wait", "hold"):
            name = f"holdfast_oldest_{what}_seconds{{{OTHER}}}"
            age = broker.metrics()[name]
            self.assertGreater(age, 0)  # nor does it stand still while idle
            self.assertGreater(broker.metrics()[name], age)
        other.ok(f"CANCEL {tag}")
        other.wait(tag)
        gone = self.client(broker)
        gone.queued(gone.submit("LOCK a progress=1"))
        gone.kill()
        wanted = {"granted": 1, "reentered": 1, "busy": 1, "timeout": 1,
                  "conflict": 1, "cancelled": 1, "unheard": 1}
        self.wait_until(lambda: self.result(broker, "unheard") == 1, 10,
                        "who has gone is counted")
        for _, (_, values) in table("namespaces.def").items():
            for value in values:
                if value in wanted:
                    self.assertEqual(self.result(broker, value),
                                     wanted[value], value)
        gone = self.client(broker)
        gone.queued(gone.submit("LOCK 0 a progress=1"))
        gone.kill()
        self.wait_until(lambda: self.result(broker, "unheard") == 2, 10,
                        "of several names the one that was waited for")
        self.assertEqual(self.result(broker, "granted"), 2)
        client.ok("LOCK b c")
        self.assertEqual(self.result(broker, "granted"), 4)
        self.assertEqual(broker.metrics()[f"holdfast_held{{{OTHER}}}"], 3)
        self.assertEqual(self.count(broker, "wait_seconds"), 4)
        self.assertEqual(self.count(broker, "hold_seconds"), 1)
        client.ok("UNLOCK b")
        self.assertEqual(self.count(broker, "hold_seconds"), 2)

    def test_namespaces(self):
        """A lock is in the one with the longest prefix; the sum is all."""
        broker = self.start(namespaces=[{"prefix": "stock/"},
                                        {"prefix": "stock/cups/"},
                                        {"prefix": "job{}#"}])
        client = self.client(broker)
        for name in ("stock/1", "stock/cups/1", "stock/cups/2", "job{}#", "x"):
            client.ok(f"LOCK {name}")
        client.err("LOCK stock/cups/1 limit=3", "CONFLICT")
        metrics = broker.metrics()
        for space, held in (("stock/", 1), ("stock/cups/", 2), ("job{}#", 1),
                            ("other", 1)):
            label = f'namespace="{space}"'
            self.assertEqual(series(label) - set(metrics), set())
            self.assertEqual(metrics[f"holdfast_held{{{label}}}"], held)
            self.assertEqual(metrics[f"holdfast_wait_seconds_count{{{label}}}"],
                             held)
        self.assertEqual(metrics['holdfast_acquisitions_total{namespace='
                                 '"stock/cups/",result="conflict"}'], 1)
        self.assertEqual(len([name for name in metrics if name.startswith(
            "holdfast_held{")]), 4)

    def test_largest_page(self):
        prefixes = [f"{number:02}" + "~" * 62 for number in range(32)]
        broker = self.start(
            namespaces=[{"prefix": prefix} for prefix in prefixes])
        for _ in range(3):
            metrics = broker.metrics()
            self.assertEqual(len([name for name in metrics if name.startswith(
                "holdfast_held{")]), 33)

    def test_deadlock_and_refusals(self):
        broker = self.start(**{"redis.patience": "200ms"})
        one, two = self.client(broker, "LOCK a"), self.client(broker, "LOCK b")
        one.queued(one.submit("LOCK b progress=1"))
        two.err("LOCK a", "DEADLOCK")
        self.assertEqual(self.result(broker, "deadlock"), 1)
        self.redis_server.pause()
        self.addCleanup(self.redis_server.resume)
        two.err("LOCK c wait=100ms", "INDOUBT")
        two.err("LOCK d wait=100ms", "UNAVAILABLE")
        self.assertEqual(self.result(broker, "indoubt"), 1)
        self.assertEqual(self.result(broker, "unavailable"), 1)
        self.wait_until(lambda: self.losses(broker, "backend") >= 2, 10,
                        "what could not be renewed is lost")

    def test_no_margin_of_what_clients_ask_for(self):
        """It warns of nothing."""
        broker = self.start(**{"lease.default": "60s"})
        client = self.client(broker, "LOCK a lease=50s", "RENEW a lease=40s",
                             "RENEW a lease=55s")
        broker.wait_metric("holdfast_renewals_total", 1)
        self.assertEqual(self.count(broker, "renewal_margin_ratio"), 0)

    def test_losses_and_margin(self):
        broker = self.start()
        client = self.client(broker, "LOCK a", "LOCK b lease=200ms")
        client.event("LOST", reason="expired")
        self.assertEqual(self.losses(broker, "expired"), 1)
        self.wait_until(lambda: self.count(broker, "renewal_margin_ratio") >=
                        1, 10, "a renewal")
        metrics = broker.metrics()
        total = metrics[f"holdfast_renewal_margin_ratio_sum{{{OTHER}}}"]
        share = total / self.count(broker, "renewal_margin_ratio")
        self.assertGreater(share, 0.3)
        self.assertLess(share, 0.75)
        client.ok("BREAK a")
        client.event("LOST", reason="broken")
        self.assertEqual(self.losses(broker, "broken"), 1)
        client.ok("LOCK c wait=5s")
        self.redis_server.command("FLUSHALL")
        client.event("LOST", reason="gone")
        self.assertEqual(self.losses(broker, "gone"), 1)
        self.assertGreater(broker.metric("redis_call_seconds_count"), 3)
        self.assertGreater(broker.metric("loop_turn_seconds_count"), 3)

    def test_why_connections_end(self):
        broker = self.start()
        name = 'holdfast_connections_closed_total{reason="%s"}'
        self.client(broker).ok("QUIT")
        self.client(broker).kill()
        self.client(broker).close()
        old, new = self.client(broker), self.client(broker)
        session = old.ok("HELLO keep=5s")["session"]
        new.ok(f"HELLO resume={session} gen=2")
        for reason in ("quit", "dropped", "eof", "resumed"):
            broker.wait_metric(name % reason, 1)

    def test_limits(self):
        """Limits, beside their use."""
        broker = self.start(**{"limits.connections": 7, "limits.tickets": 20,
                               "limits.requests": 30, "limits.memory": "2MiB"})
        metrics = broker.metrics()
        for limit, most in (("connections", 7), ("tickets", 20),
                            ("requests", 30), ("memory", 2 << 20)):
            name = f'holdfast_limit{{limit="{limit}"}}'
            self.assertEqual(metrics[name], most)
        client = self.client(broker, "HELLO keep=30s", "LOCK a")
        broker.wait_metric("holdfast_connections", 1)
        client.kill()
        self.wait_until(lambda: broker.metric("connections") == 0, 10,
                        "the connection's end is seen")
        self.assertEqual(broker.metric("sessions"), 1)

    def test_redis_nodes(self):
        broker = self.start()
        metrics = broker.metrics()
        self.assertEqual(metrics["holdfast_redis_nodes"], 1)
        self.assertEqual(metrics["holdfast_redis_nodes_away"], 0)
        self.redis_server.kill()
        broker.wait_metric("holdfast_redis_nodes_away", 1)
        # It says so after one more try to connect.
        self.wait_until(lambda: broker.metric("ready") == 0)
