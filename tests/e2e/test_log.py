"""The log: as text, as JSON, for the journal, and what a flood leaves of it."""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import time

from harness import Broker, Client, HarnessCase, shared_redis, wait_until

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FLOOD = 40
RATE = 3


def flood(broker):
    """FLOOD lines of one event."""
    for _ in range(FLOOD):
        with Client(broker.address) as client:
            client.send("GET / HTTP/1.1")
            client.at_end()


class LogTest(HarnessCase):
    def start(self, env=None, folder=None, **log):
        return self.broker(overrides={"log": log}, env=env, folder=folder)

    def journal(self, **log):
        """A broker whose stderr JOURNAL_STREAM names."""
        folder = self.folder()
        path = os.path.join(folder, "holdfastd.log")
        with open(path, "ab") as file:
            status = os.fstat(file.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        return self.start({"JOURNAL_STREAM": stream}, folder, **log)

    def break_lock(self, broker, name):
        """Logs an event with a lock's name, here percent-encoded, in it."""
        client = self.client(broker, f"LOCK {name}")
        self.client(broker).ok(f"BREAK {name}")
        client.event("LOST")
        broker.wait_log("lost")

    def lines(self, broker):
        self.assertEqual(broker.stop(), 0)
        return broker.log().splitlines()

    def held_back(self, broker):
        """How many lines the log says that it lacks, each time."""
        return [int(lines) for lines in re.findall(
            r"level=info event=log_suppressed of=session_expelled lines=(\d+)",
            broker.log())]

    def test_text(self):
        broker = self.start()
        self.break_lock(broker, "a%20b")
        for line in self.lines(broker):
            self.assertRegex(line, rf"^time={TIME} level=\w+ event=\w+")
        self.assertRegex(broker.log(),
                         r'event=lost lock="a b" fence=\d+ reason=broken '
                         r'session=\w{8} client="" owner="" note=""\n')

    def life(self, broker):
        """The events of lock `a`, each with its fence."""
        return [(event, int(fence)) for event, fence in re.findall(
            r'event=(lock_\w+|lost) lock="a" fence=(\d+)(?: reason=\w+)?'
            r" session=\w{8} ", broker.log())]

    def live(self, broker):
        """The debug log of a lock that is handed over and broken."""
        first, second = self.client(broker), self.client(broker)
        first.ok("HELLO name=shop")
        one = int(first.ok("LOCK a owner=w note=n")["fence"])
        self.assertFalse(second.request("LOCK a wait=0").ok)
        tag = second.submit("LOCK a")
        wait_until(lambda: first.ok("SHOW a")["waiters"] == "1", 5,
                   "the second one waits")
        first.ok("UNLOCK a owner=w")
        two = int(second.wait(tag)["fence"])
        second.ok("BREAK a")
        second.event("LOST")
        second.ok("QUIT")
        return [("lock_asked", 0), ("lock_granted", one), ("lock_asked", 0),
                ("lock_left", 0), ("lock_asked", 0), ("lock_queued", 0),
                ("lock_granted", two), ("lock_released", one), ("lost", two),
                ("lock_released", two)]

    def test_life_of_a_lock(self):
        broker = self.start(level="debug")
        expected = self.live(broker)
        wait_until(lambda: len(self.life(broker)) >= len(expected), 5,
                   "the last event")
        self.assertEqual(sorted(self.life(broker)), sorted(expected))
        self.assertRegex(broker.log(), r"level=debug event=lock_granted "
                         r'lock="a" fence=\d+ session=\w{8} client="shop" '
                         r'owner="w" note="n"\n')

    def test_no_life_without_debug(self):
        broker = self.start()
        self.live(broker)
        self.assertEqual([part[0] for part in self.life(broker)], ["lost"])

    def test_the_longest_name(self):
        """All of it is there, though each byte takes four."""
        broker = self.start()
        self.break_lock(broker, "%FF" * 255)
        quoted = '"' + "\\xff" * 255 + '"'
        self.assertIn(f"event=lost lock={quoted} fence=", broker.log())
        self.assertIn(f"event=order_break lock={quoted} by=", broker.log())

    def test_json(self):
        broker = self.start(format="json")
        self.break_lock(broker, "%FFa%20%22%C3%A4%0A")
        lines = [json.loads(line) for line in self.lines(broker)]
        for line in lines:
            self.assertEqual(list(line)[:3], ["time", "level", "event"])
            self.assertRegex(line["time"], f"^{TIME}$")
        lost = [line for line in lines if line["event"] == "lost"]
        self.assertEqual(len(lost), 1)
        self.assertEqual(lost[0]["lock"], '\ufffda "\u00e4\n')
        self.assertIsInstance(lost[0]["fence"], int)
        self.assertEqual(lost[0]["reason"], "broken")

    def test_journal(self):
        broker = self.journal()
        self.break_lock(broker, "a")
        lines = self.lines(broker)
        for line in lines:
            self.assertRegex(line, r"^<[3467]>level=\w+ event=\w+")
        self.assertIn("<4>level=warn event=order_break", "\n".join(lines))

    def test_journal_json(self):
        broker = self.journal(format="json")
        for line in self.lines(broker):
            self.assertRegex(line, "^<[3467]>")
            self.assertEqual(list(json.loads(line[3:]))[:2],
                             ["level", "event"])

    def test_the_journal_of_another(self):
        """As where the service manager's child sends its stderr to a file."""
        broker = self.start({"JOURNAL_STREAM": "1:1"})
        for line in self.lines(broker):
            self.assertRegex(line, f"^time={TIME} ")

    def test_flood(self):
        broker = self.start(rate=RATE)
        flood(broker)
        broker.wait_log("event=log_suppressed")
        lines = self.lines(broker)
        written = sum("event=session_expelled" in line for line in lines)
        self.assertGreaterEqual(written, RATE)
        self.assertGreater(self.held_back(broker)[0], 0)
        self.assertEqual(written + sum(self.held_back(broker)), FLOOD)

    def test_a_flood_of_reloads(self):
        """Held-back lines are still counted, and told each 5 s."""
        broker = self.start(rate=1)
        times = 50
        began = time.monotonic()
        for _ in range(times):
            broker.hang_up()
        seconds = time.monotonic() - began
        lines = broker.log().splitlines()
        self.assertLess(sum("event=reloaded" in line for line in lines),
                        times // 2)
        self.assertLessEqual(
            sum("of=reloaded" in line for line in lines), seconds / 5 + 1)
        broker.stop()
        log = broker.log()
        held_back = re.findall(r"of=reloaded lines=(\d+)", log)
        self.assertEqual(
            sum(map(int, held_back)) + log.count("event=reloaded"), times)

    def test_a_flood_is_counted(self):
        broker = self.start(rate=RATE)

        def counted(name):
            return broker.metrics()[f"holdfast_log_{name}"]

        flood(broker)
        self.wait_until(lambda: sum(self.held_back(broker)) ==
                        counted("suppressed_total") > 0,
                        what="all that was held back is told")
        lines = broker.log().splitlines()
        for level in ("error", "warn", "info", "debug"):
            self.assertEqual(counted(f'lines_total{{level="{level}"}}'), sum(
                f" level={level} " in line for line in lines), level)

    def test_what_is_left_at_the_end(self):
        broker = self.start(rate=RATE)
        flood(broker)
        self.lines(broker)
        self.assertGreater(sum(self.held_back(broker)), 0)

    def test_no_limit(self):
        broker = self.start(rate=0)
        flood(broker)
        lines = self.lines(broker)
        self.assertEqual(
            sum("event=session_expelled" in line for line in lines), FLOOD)
        self.assertEqual(self.held_back(broker), [])


class PipeTest(HarnessCase):
    """The reader of stderr may be slow or gone."""

    def setUp(self):
        self.broker_of = self.closing(Broker(shared_redis(), {"log.rate": 0}))
        self.reader, writer = os.pipe()
        self.addCleanup(self.end_reading)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.daemon = subprocess.Popen(
            [self.broker_of.program, "-c", self.broker_of.write_config()],
            stdin=subprocess.DEVNULL, stderr=writer)
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.kill)
        os.close(writer)
        self.wait_until(self.greets, what="it greets")

    def end_reading(self):
        with contextlib.suppress(OSError):
            os.close(self.reader)

    def greets(self):
        with contextlib.suppress(OSError, AssertionError):
            with Client(self.broker_of.address, timeout=1.0):
                return True
        return False

    def lost(self):
        return self.broker_of.metric("log_lost_total")

    def writes(self):
        lost = self.lost()
        flood(self.broker_of)
        return self.lost() - lost < FLOOD

    def end(self):
        self.daemon.send_signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(20), 0)

    def test_nobody_reads(self):
        """It goes on, counts what is lost, and writes again."""
        client = self.client(self.broker_of.address, "LOCK a wait=10s")
        flood(self.broker_of)
        self.assertGreater(self.lost(), 0)
        client.ok("UNLOCK a")
        os.read(self.reader, 65536)
        self.wait_until(self.writes, what="it writes again")
        self.assertIn(b"event=session_expelled", os.read(self.reader, 65536))
        self.end()

    def test_nobody_is_there(self):
        client = self.client(self.broker_of.address)
        self.end_reading()
        flood(self.broker_of)
        self.assertGreaterEqual(self.lost(), FLOOD)
        client.ok("LOCK a wait=10s")
        self.end()


class ShellTest(HarnessCase):
    """A file that cannot be written."""

    def start(self, before, behind):
        broker = Broker(self.redis(), {"session.stop_grace": "0s"})
        self.addCleanup(broker.close)
        program = shlex.quote(broker.program)
        broker.program = "/bin/sh"
        broker.spawn("-c", f'{before} exec {program} "$@" {behind}', "sh",
                     "-c", broker.config_path)
        return broker.wait_ready()

    def test_standard_descriptors_are_closed(self):
        """Nothing else has their numbers, so the log goes nowhere."""
        broker = self.start("", "<&- >&- 2>&-")
        self.assertEqual([os.readlink(f"/proc/{broker.pid}/fd/{fd}")
                          for fd in range(3)], ["/"] * 3)
        self.client(broker).ok("LOCK a")
        self.assertEqual(broker.stop(), 0)

    def test_a_file_may_not_grow(self):
        broker = self.start("ulimit -f 1;", "")
        flood(broker)
        metrics = broker.metrics()
        self.assertGreater(metrics["holdfast_log_lost_total"], 0)
        self.assertLessEqual(
            sum(value for name, value in metrics.items()
                if name.startswith("holdfast_log_lines_total")),
            broker.log().count("\n"))
        self.client(broker).ok("LOCK a")
        self.assertEqual(broker.stop(), 0)
