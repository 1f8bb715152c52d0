"""holdfast top on a terminal: what it draws, and what it leaves behind."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from fake_broker import HOLDFAST, CommandCase
from test_command_terminal import SHELL

ENTER = "\x1b[?1049h"
LEAVE = "\x1b[?1049l"
OWN = re.compile(r"\x1b\[(\?\d+[hl]|\d*[HJKm])")

ITEMS = (
    "ITEM kind=contended name=hot waits=17 waited_ms=4200 waiters=3",
    "ITEM kind=holder name=stock/1 age_ms=61000 session=0a0b0c0d fence=7"
    " client=shop owner=w note=inventory",
    "ITEM kind=waiter name=stock/2 age_ms=1500 session=01020304",
)


COLUMNS = " " * 21 + "CLIENT       OWNER   NOTE"


def stats(releases):
    values = {"releases": releases, "grants": releases, "waits_begun": 3,
              "sessions_now": 4, "held_now": 5, "waiting_now": 6}
    return "\n".join([f"ITEM name={name} value={value}"
                      for name, value in values.items()] + ["OK n=6"])


def top(*items):
    return "\n".join((*items, f"OK n={len(items)}"))


class Picture:
    """One as a terminal would show it."""

    def __init__(self, text):
        self.lines = [OWN.sub("", line).rstrip()
                      for line in text.split("\r\n")]
        self.text = "\n".join(self.lines)


class ScreenCase(CommandCase):
    """The command on a terminal of its own, which is kept open here."""

    def start_top(self, broker, *words, rows=24, columns=80, **options):
        self.terminal, self.slave = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(os.close, self.slave)
        self.resize(rows, columns)
        self.modes = termios.tcgetattr(self.slave)
        self.output = self.all = ""
        slave = self.slave

        def take():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        options.setdefault("stdin", slave)
        process = subprocess.Popen(
            [HOLDFAST, "top", *words], stdout=slave, stderr=slave,
            preexec_fn=take, env=self.environment(broker), **options)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()

        self.addCleanup(end)
        self.process = process

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))

    def read_some(self, seconds):
        if select.select([self.terminal], [], [], seconds)[0]:
            text = os.read(self.terminal, 65536).decode(errors="replace")
            self.output += text
            self.all += text

    def expect(self, condition, what, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"no {what} in {self.output[-3000:]!r}")
            self.read_some(0.05)

    def picture(self):
        """The last one that is whole; None: there is none."""
        parts = self.output.split("\x1b[H")
        whole = [part for part in parts[1:] if part.endswith("\x1b[J") or
                 "\x1b[J" in part]
        return Picture(whole[-1].partition("\x1b[J")[0]) if whole else None

    def shows(self, *texts, seconds=20):
        """Waits for a picture with all of these; returns it."""
        self.expect(lambda: self.picture() is not None and
                    all(text in self.picture().text for text in texts),
                    f"picture with {texts}", seconds)
        return self.picture()

    def type(self, text):
        os.write(self.terminal, text.encode())

    def ends(self, status, seconds=20):
        """It ends so, and the terminal is as before."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.fail(f"it runs on: {self.output[-1000:]!r}")
            self.read_some(0.02)
        while select.select([self.terminal], [], [], 0)[0]:
            self.read_some(0)
        self.assertEqual(self.process.returncode, status, self.output[-500:])
        self.assertEqual(self.all.count(ENTER), 1)
        self.assertEqual(self.all.count(LEAVE), 1)
        after = self.all.rpartition(LEAVE)[2]
        self.assertNotIn("\x1b", after)
        self.assertIn("\x1b[?25h", self.all)  # the cursor
        self.assertIn("\x1b[?7h", self.all)
        self.assertEqual(termios.tcgetattr(self.slave), self.modes)
        return after


class TopScreenTest(ScreenCase):
    def test_what_is_drawn(self):
        broker = self.broker(TOP=top(*ITEMS))
        self.start_top(broker)
        picture = self.shows("inventory")
        self.assertIn(broker.address, picture.lines[0])
        self.assertEqual(picture.lines[2:], [
            "  WAITS  WAITED WAITERS MOST WAITED FOR",
            "     17    4.2s       3 hot",
            "   HELD SESSION  NAME" + COLUMNS,
            "  1m01s 0a0b0c0d stock/1                  shop         w      "
            " inventory",
            " WAITED SESSION  NAME" + COLUMNS,
            "   1.5s 01020304 stock/2                  -            -       -",
        ])
        self.type("x")
        self.type("q")
        self.assertEqual(self.ends(0), "")
        self.assertEqual(broker.received("TOP")[0], "TOP limit=100")

    def test_again_and_again(self):
        broker = self.broker(TOP=top(*ITEMS))
        self.start_top(broker, "--interval", "100ms", "-n", "7")
        self.shows("inventory")
        broker.answers["TOP"] = top(ITEMS[0].replace("hot", "other"))
        self.assertNotIn("inventory", self.shows("other").text)
        self.assertEqual(set(broker.received("TOP")), {"TOP limit=7"})
        self.type("Q")
        self.ends(0)

    def test_rates(self):
        count = iter(range(0, 10**9, 1000))
        broker = self.broker(TOP=top(*ITEMS),
                             STATS=lambda _: stats(next(count)))
        self.start_top(broker, "--interval", "200ms")
        picture = self.shows("pairs/s", "sessions 4  held 5  waiting 6")
        rate = float(re.search(r"pairs/s ([\d.]+)", picture.text).group(1))
        self.assertGreater(rate, 0)
        self.assertLess(rate, 100000)
        self.assertIn("waits/s 0.0", picture.text)
        self.type("q")
        self.ends(0)

    def test_no_right_to_rates(self):
        broker = self.broker(TOP=top(*ITEMS), STATS="ERR DENIED retry=0 :no")
        self.start_top(broker, "--interval", "100ms")
        self.shows("inventory")
        self.wait_until(lambda: len(broker.received("TOP")) > 3)
        self.shows("inventory")
        self.assertNotIn("pairs/s", self.output)
        self.assertEqual(len(broker.received("STATS")), 1)
        self.type("q")
        self.ends(0)

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with self.subTest(number):
                self.start_top(self.broker(TOP=top(*ITEMS)))
                self.shows("inventory")
                os.kill(self.process.pid, number)
                self.ends(0)

    def test_interrupt_is_typed(self):
        self.start_top(self.broker(TOP=top(*ITEMS)))
        self.shows("inventory")
        self.assertFalse(termios.tcgetattr(self.slave)[3] & termios.ICANON)
        self.assertFalse(termios.tcgetattr(self.slave)[3] & termios.ECHO)
        self.type("\x03")
        self.ends(0)

    def test_the_broker_dies(self):
        broker = self.broker(TOP=top(*ITEMS))
        self.start_top(broker)
        self.shows("inventory")
        broker.cut()
        self.assertRegex(self.ends(125), "holdfast: .*closed")

    def test_a_broker_that_knows_no_top(self):
        self.start_top(self.broker())
        self.assertIn("TOP: UNKNOWN", self.ends(1))

    def test_resize(self):
        self.start_top(self.broker(TOP=top(
            *(f"ITEM kind=holder name=lock/{i} age_ms=1 session=0a0b0c0d"
              f" fence=7 note={'n' * 100}" for i in range(100)))),
            "--interval", "100s")
        picture = self.shows("lock/18")
        self.assertEqual(len(picture.lines), 24)
        self.assertLessEqual(max(map(len, picture.lines)), 80)
        self.output = ""
        self.resize(10, 40)
        self.expect(lambda: self.picture() is not None, "picture")
        picture = self.picture()
        self.assertEqual(len(picture.lines), 10)
        self.assertLessEqual(max(map(len, picture.lines)), 40)
        self.assertIn("lock/4", picture.text)
        self.assertNotIn("lock/5", picture.text)
        for rows, columns in ((1, 1), (2, 5), (50, 200)):
            self.output = ""
            self.resize(rows, columns)
            self.expect(lambda: self.picture() is not None, "picture")
            picture = self.picture()
            self.assertLessEqual(len(picture.lines), max(rows, 2))
            self.assertLessEqual(max(map(len, picture.lines)), columns)
        self.type("q")
        self.ends(0)

    def test_room_is_shared(self):
        """Lists that are short leave their rows to those that are not."""
        self.start_top(self.broker(TOP=top(
            *(f"ITEM kind={kind} name={kind}/{i} age_ms=1 session=0a0b0c0d"
              for kind, count in (("contended", 2), ("holder", 100),
                                  ("waiter", 100)) for i in range(count)))))
        picture = self.shows("waiter/7")
        self.assertEqual(len(picture.lines), 24)
        for text, there in (("contended/1", True), ("holder/8", True),
                            ("holder/9", False), ("waiter/8", False)):
            self.assertEqual(text in picture.text, there, picture.text)
        self.type("q")
        self.ends(0)

    def test_strangers_bytes(self):
        """Nothing that a client has made up steers the terminal."""
        self.start_top(self.broker(TOP=top(
            "ITEM kind=holder name=%1b[2Ja%0ab%00c age_ms=1 session=0a0b0c0d"
            " fence=7 client=%c2%9b31m owner=%07 note=caf%C3%A9%20%7f",
            "ITEM kind=contended name=" + "%C3%A9" * 120 +
            " waits=1 waited_ms=1 waiters=1"), greeting=(
                "* HELLO proto=1 server=%1b[31m session=0123456789abcdef"
                " max_line=4096 lease_ms=30000")), columns=120)
        picture = self.shows("caf\u00e9")
        self.assertIn(r"\x1b[2Ja\x0ab\x00c", picture.text)
        self.assertIn(r"\xc2\x9b31m", picture.text)
        self.assertIn(r"\x07", picture.text)
        self.assertNotRegex(OWN.sub("", self.output), r"[\x00-\x09\x1b\x7f]")
        self.assertEqual(max(map(len, picture.lines)), 120)
        self.assertIn("\u00e9~", picture.text)
        self.type("q")
        self.ends(0)

    def test_a_terminal_that_takes_nothing(self):
        """Neither a signal nor the broker waits for it."""
        self.start_top(self.broker(TOP=top(*ITEMS)), "--interval", "100ms")
        self.shows("inventory")
        self.type("\x13")
        time.sleep(1)
        os.kill(self.process.pid, signal.SIGTERM)
        self.assertEqual(self.process.wait(20), 0)
        self.assertEqual(termios.tcgetattr(self.slave), self.modes)

    def test_input_that_is_no_terminal(self):
        self.start_top(self.broker(TOP=top(*ITEMS)), "--interval", "100ms",
                       stdin=subprocess.DEVNULL)
        self.shows("inventory")
        self.output = ""
        self.shows("inventory")
        os.kill(self.process.pid, signal.SIGINT)
        self.ends(0)

    def test_a_broker_that_falls_silent(self):
        broker = self.broker(TOP=top(*ITEMS))
        self.start_top(broker, "--interval", "100ms")
        self.shows("inventory")
        broker.silent = True
        self.type("q")  # it is heeded all the same
        self.ends(0)

    def test_a_format_prints_once(self):
        self.start_top(self.broker(TOP=top(*ITEMS)), "-o", "tabs")
        self.assertEqual(self.process.wait(20), 0)
        self.read_some(1)
        self.assertNotIn("\x1b", self.output)
        self.assertEqual(self.output.count("\r\n"), 3)


class StopTest(CommandCase):
    """With a shell that has job control: Ctrl-Z, and fg."""

    def test_stop_and_go_on(self):
        broker = self.broker(TOP=top(*ITEMS))
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(self.environment(broker))
            os.execv(sys.executable, [sys.executable, "-c", SHELL, HOLDFAST,
                                      "top", "--interval", "100ms"])
        output = ""

        def end():
            os.close(terminal)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

        self.addCleanup(end)

        def expect(text):
            nonlocal output
            end = time.monotonic() + 20
            while text not in output:
                if not select.select([terminal], [], [],
                                     end - time.monotonic())[0]:
                    self.fail(f"no '{text}' in {output!r}")
                output += os.read(terminal, 65536).decode()
            before, _, output = output.partition(text)
            return before

        expect("inventory")
        os.write(terminal, b"\x1a")
        expect(LEAVE)
        expect("stopped True")
        self.assertTrue(termios.tcgetattr(terminal)[3] & termios.ICANON)
        os.write(terminal, b"fg\n")
        expect(ENTER)
        expect("inventory")
        self.assertFalse(termios.tcgetattr(terminal)[3] & termios.ICANON)
        os.write(terminal, b"q")
        expect(LEAVE)
        expect("ended 0 True")
        self.assertTrue(termios.tcgetattr(terminal)[3] & termios.ICANON)


class TopPrintTest(CommandCase):
    def test_usage(self):
        broker = self.broker(TOP=top(*ITEMS))
        for words in (["x"], ["-n", "0"], ["-n", "101"], ["-n"], ["-n", "x"],
                      ["--n", "1"], ["--interval", "99ms"], ["--interval", "x"],
                      ["--interval", "1s"],
                      ["-c", "1"], ["--", "x"]):
            self.assertTrue(self.ends(64, broker, "top", *words).stderr, words)
        self.assertEqual(broker.received("TOP"), [])
        done = self.ends(0, broker, "top", "-n5", "-h")
        self.assertIn(b"--interval", done.stdout)

    def test_printed_once(self):
        broker = self.broker(TOP=top(*ITEMS))
        done = self.ends(0, broker, "top")
        self.assertEqual(done.stdout.decode().splitlines(), [
            "contended\thot\t17\t4200\t3" + "\t" * 8,
            "holder\tstock/1\t\t\t\t61000\t0a0b0c0d\tshop\tw\t7\tinventory\t\t",
            "waiter\tstock/2\t\t\t\t1500\t01020304" + "\t" * 6])
        self.command(broker, "top", "-n", "3")
        self.assertEqual(broker.received("TOP"),
                         ["TOP limit=10", "TOP limit=3"])

    def test_trouble(self):
        self.ends(125, self.free_address(), "top")
        self.ends(1, self.broker(), "top")
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [HOLDFAST, "top"], stdin=subprocess.DEVNULL, stdout=full,
                stderr=subprocess.PIPE, check=False, timeout=30,
                env=self.environment(self.broker(TOP=top(*ITEMS))))
        self.assertEqual(done.returncode, 125)
