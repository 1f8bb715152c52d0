"""holdfast bench: that it measures, ends, and leaves nothing behind."""

import json
import re
import signal
import subprocess
import time

from fake_broker import HOLDFAST, CommandCase
from shared import BrokerCase, stats
from test_auth import AuthCase


def fields():
    """Their names, in order, as the help says."""
    page = subprocess.run([HOLDFAST, "help", "bench"], check=True,
                          capture_output=True, text=True, timeout=10).stdout
    names = re.search(r"With tabs: ([^.]*)\.", page).group(1)
    return re.sub(r" \(.*?\)|\s", "", names, flags=re.S).split(",")


def rows(output):
    """By operation."""
    found = [json.loads(line) for line in output.splitlines()]
    return {row["op"]: row for row in found}


class BenchTest(BrokerCase):
    def bench(self, *words, check=0, **options):
        done = subprocess.run(
            [HOLDFAST, "-a", self.served.address, "bench", "-o", "json",
             *words], stdin=subprocess.DEVNULL, capture_output=True,
            check=False, timeout=60, **options)
        self.assertEqual(done.returncode, check, done.stderr)
        return rows(done.stdout)

    def nothing_is_left(self):
        client = self.connect()
        self.wait_until(lambda: len(client.ok("SESSIONS").items) == 1,
                        what="no sessions of others")
        self.assertEqual(client.ok("LOCKS").items, [])
        client.close()

    def test_what_it_prints(self):
        before = self.counters()
        result = self.bench("-t", "1s")
        self.assertEqual(set(result), {"pair", "lock", "unlock"})
        for op, row in result.items():
            self.assertEqual(list(row), fields())
            for key in fields()[1:]:
                self.assertIsInstance(row[key], int, key)
            self.assertGreater(row["count"], 0, op)
            self.assertEqual(row["errors"], 0)
            self.assertEqual((row["connections"], row["keys"]), (10, 10))
            self.assertGreaterEqual(row["time_ms"], 1000)
            self.assertLessEqual(row["p50_us"], row["p99_us"])
            self.assertLessEqual(row["p99_us"], row["max_us"])
            # By its time in microseconds, cut.
            self.assertAlmostEqual(row["per_second"],
                                   row["count"] * 1000 / row["time_ms"],
                                   delta=1 + row["count"] / 500)
        self.assertGreaterEqual(result["pair"]["p50_us"],
                                result["lock"]["p50_us"])
        grants = self.counters()["grants"] - before["grants"]
        self.assertLessEqual(result["lock"]["count"], grants)
        self.assertLessEqual(grants, result["lock"]["count"] + 10)
        # Each has locks of its own.
        self.assertEqual(self.counters()["waits_begun"], before["waits_begun"])
        self.nothing_is_left()

    def test_fewer_keys_are_waited_for(self):
        before = self.counters()
        result = self.bench("-t", "500ms", "-c", "5", "--keys", "2", "few/")
        self.assertGreater(result["pair"]["count"], 0)
        self.assertEqual(result["pair"]["keys"], 2)
        self.assertGreater(self.counters()["waits_begun"],
                           before["waits_begun"])
        client = self.connect()
        hot = {item["name"] for item in client.ok("TOP").items
               if item["kind"] == "contended"}
        self.assertLessEqual({"few/0", "few/1"}, hot)
        client.close()
        self.nothing_is_left()

    def test_more_keys(self):
        before = self.counters()
        result = self.bench("-t", "500ms", "-c3", "--keys", "1000", "many/")
        self.assertGreater(result["pair"]["count"], 0)
        self.assertEqual(self.counters()["waits_begun"], before["waits_begun"])

    def test_waits_that_are_over(self):
        holder = self.connect("LOCK held/0")
        result = self.bench("-t", "1s", "-c", "2", "--keys", "1", "--wait",
                            "50ms", "held/", check=1)
        self.assertEqual(result["pair"]["count"], 0)
        self.assertGreater(result["lock"]["errors"], 1)
        self.assertEqual(result["unlock"]["errors"], 0)
        self.assertEqual(result["pair"]["errors"], result["lock"]["errors"])
        holder.close()

    def test_it_ends_while_it_waits(self):
        """For locks that others hold for ever; and nobody waits then."""
        holder = self.connect("LOCK ever/0")
        start = time.monotonic()
        self.bench("-t", "300ms", "-c", "4", "--keys", "1", "ever/")
        self.assertLess(time.monotonic() - start, 15)
        self.wait_until(lambda: stats(holder)["waiting_now"] == 0,
                        what="no waits")
        holder.close()
        self.nothing_is_left()

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(
                [HOLDFAST, "-a", self.served.address, "-o", "json", "bench",
                 "-t", "1h", "-c", "3"], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.stdout.close)
            before = self.counters()["grants"]
            self.wait_counter("grants", before + 20)
            process.send_signal(number)
            output = process.stdout.read()
            self.assertEqual(process.wait(20), 0, process.stderr.read())
            self.assertGreater(rows(output)["pair"]["count"], 0)
            self.assertLess(rows(output)["pair"]["time_ms"], 60000)
            self.nothing_is_left()

    def test_columns_and_tabs(self):
        def lines(form):
            return subprocess.run(
                [HOLDFAST, "-a", self.served.address, "-o", form, "bench",
                 "-t100ms", "-c", "1"], stdin=subprocess.DEVNULL, check=True,
                stdout=subprocess.PIPE, timeout=30).stdout.decode().split("\n")

        columns = lines("columns")
        self.assertRegex(columns[0], r"^OP +COUNT +PER_SECOND +P50 +P99 +MAX")
        tabs = lines("tabs")
        self.assertEqual([line.split("\t")[0] for line in tabs],
                         ["pair", "lock", "unlock", ""])
        self.assertEqual(len(tabs[0].split("\t")), len(fields()))

    def test_many_connections(self):
        """More than the usual limit of descriptors has room for."""
        result = self.bench("-t", "1s", "-c", "300", preexec_fn=limit_files)
        self.assertEqual(result["pair"]["connections"], 300)
        self.assertEqual(result["pair"]["errors"], 0)
        self.nothing_is_left()


def limit_files():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))


class UsersTest(AuthCase):
    def test_rights(self):
        broker = self.users_broker()
        done = self.ends(0, broker, "shop", "-o", "json", "bench", "-t",
                         "200ms", "-c", "2", "stock/")
        self.assertGreater(rows(done.stdout)["pair"]["count"], 0)
        done = self.ends(1, broker, "shop", "-o", "json", "bench", "-t", "1h",
                         "-c", "2", "desk/")
        self.assertEqual(rows(done.stdout)["lock"]["errors"], 2)
        self.assertIn(b"DENIED", done.stderr)
        done = self.ends(125, broker, "shop", "bench", "-t", "1s",
                         secret="another one, of someone else")
        self.assertTrue(done.stderr)
        self.assertEqual(done.stdout, b"")


del AuthCase, BrokerCase  # their tests are none of this file


class BenchCommandTest(CommandCase):
    def test_usage(self):
        broker = self.broker()
        for words in (["a", "b"], ["-c", "0"], ["-c", "1001"], ["-t", "0"],
                      ["-t", "61m"], ["-t", "x"], ["--keys", "0"],
                      ["--keys", "1000001"], ["k" * 250], ["--", "x"],
                      ["-n", "1"], ["--wait", "x"]):
            done = self.ends(64, broker, "bench", *words)
            self.assertTrue(done.stderr, words)
        self.assertEqual(broker.lines, [])
        done = self.ends(0, broker, "bench", "-h")
        self.assertIn(b"KEY-PREFIX", done.stdout)

    def test_no_broker(self):
        self.ends(125, self.free_address(), "bench", "-t", "1s", out=b"")

    def test_a_broker_that_goes(self):
        broker = self.broker()
        process = self.start(broker, "bench", "-o", "json", "-t", "1h", "-c",
                             "3", stdout=subprocess.PIPE)
        self.wait_until(lambda: len(broker.received("UNLOCK")) > 10)
        broker.cut()
        output = process.stdout.read()
        self.assertEqual(process.wait(20), 1)
        self.assertGreater(rows(output)["pair"]["count"], 0)
        self.assertEqual(rows(output)["pair"]["errors"], 3)
        self.assertIn(b"3 errors", process.stderr.read())

    def test_what_it_asks_for(self):
        broker = self.broker()
        self.ends(0, broker, "bench", "-t", "300ms", "-c", "1", "--keys", "3",
                  "--wait", "2s", "a b/")
        self.assertEqual(broker.received("LOCK")[:4],
                         [f"LOCK a%20b/{i} wait=2000" for i in (1, 2, 0, 1)])
        self.assertEqual(broker.received("UNLOCK")[:2],
                         ["UNLOCK a%20b/1 fence=42", "UNLOCK a%20b/2 fence=42"])
        # All that was held has been given back.
        self.assertEqual(len(broker.received("LOCK")),
                         len(broker.received("UNLOCK")))

    def test_interrupt_while_it_connects(self):
        broker = self.broker(PING=None)
        process = self.start(broker, "bench")
        self.wait_until(lambda: len(broker.received("PING")) == 10)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 0)
