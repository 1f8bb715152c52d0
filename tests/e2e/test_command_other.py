"""The other commands: lock, show, locks, sessions, ping, raw, help."""

import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from fake_broker import GREETING, HOLDFAST, CommandCase

LOST = "* LOST job fence=42 reason=expired"


class LockTest(CommandCase):
    def start_lock(self, broker, *words):
        process = self.start(broker, "lock", *words, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        self.line = process.stdout.readline()
        return process

    def test_until_the_input_ends(self):
        broker = self.broker()
        process = self.start_lock(broker, "--lease", "1m", "job")
        self.assertRegex(self.line, rb"\Afence=42 ttl_ms=(9000|8\d\d\d)\n\Z")
        process.stdin.write(b"ignored\n")
        process.stdin.flush()
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        process.stdin.close()
        self.assertEqual(process.wait(5), 0)
        self.assertEqual(broker.received("LOCK"), ["LOCK job lease=60000"])
        self.assertEqual(broker.received("UNLOCK"), ["UNLOCK job fence=42"])

    def test_until_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                       signal.SIGQUIT):
            broker = self.broker()
            process = self.start_lock(broker, "job")
            process.send_signal(number)
            self.assertEqual(process.wait(5), 0)
            self.assertEqual(len(broker.received("UNLOCK")), 1)

    def test_lost(self):
        for end in (lambda broker: broker.say(LOST),
                    lambda broker: broker.cut(),
                    lambda broker: setattr(broker, "silent", True)):
            broker = self.broker(ttl_ms=900)
            process = self.start_lock(broker, "job")
            end(broker)
            self.assertEqual(process.wait(5), 123)
            self.assertIn(b"lost", process.stderr.read())

    def test_not_acquired(self):
        broker = self.broker(LOCK="ERR BUSY retry=1")
        result = self.command(broker, "lock", "--wait", "0", "job")
        self.assertEqual(result.returncode, 124)
        self.assertEqual(result.stdout, b"")

    def test_nobody_reads_the_output(self):
        broker = self.broker()
        reader, writer = os.pipe()
        os.close(reader)
        process = self.start(broker, "lock", "job", stdin=subprocess.PIPE,
                             stdout=writer)
        os.close(writer)
        self.assertEqual(process.wait(5), 125)
        self.assertEqual(len(broker.received("UNLOCK")), 1)

    def test_usage(self):
        for words in ([], ["a", "b"], ["a", "--", "true"], ["--wait", "a"]):
            result = self.command("127.0.0.1:1", "lock", *words)
            self.assertEqual(result.returncode, 125)


SHOW = (
    "ITEM kind=holder session=5e0c broker=b1 fence=9007199254740991"
    " ttl_ms=8000 age_ms=65000 name=shop%207 owner=till note=%1B[31m%09%0A\n"
    "ITEM kind=waiter position=1 session=77aa broker=b2 age_ms=850"
    " note=%FF%C3%A4%E2%80%AE%22\n"
    "OK state=held mode=exclusive holders=1 waiters=1")


class ListTest(CommandCase):
    def columns(self, broker, *words):
        """What it prints on a terminal, and its exit status."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(self.environment(broker))
            os.execv(HOLDFAST, [HOLDFAST, *words])
        output = b""
        while select.select([terminal], [], [], 10)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            output += data
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        return output.replace(b"\r\n", b"\n"), os.waitstatus_to_exitcode(status)

    def test_show_with_tabs(self):
        broker = self.broker(SHOW=SHOW)
        result = self.command(broker, "show", "a b")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(broker.received("SHOW"), ["SHOW a%20b limit=500"])
        self.assertEqual(
            result.stdout.decode(),
            "holder\t\t5e0c\tb1\tshop 7\ttill\t9007199254740991\t8000\t65000"
            "\t\\x1b[31m\\x09\\x0a\n"
            "waiter\t1\t77aa\tb2\t\t\t\t\t850"
            "\t\\xff\u00e4\\xe2\\x80\\xae\"\n")

    def test_show_on_a_terminal(self):
        output, status = self.columns(self.broker(SHOW=SHOW), "show", "job")
        self.assertEqual(status, 0)
        self.assertNotIn(b"\x1b", output)
        header, holder, waiter, state = output.decode().splitlines()
        self.assertEqual(header.split(), [
            "KIND", "POSITION", "SESSION", "BROKER", "NAME", "OWNER", "FENCE",
            "TTL", "AGE", "NOTE"])
        self.assertEqual(header.index("NOTE"), waiter.index("\\xff"))
        self.assertEqual(holder.index("5e0c"), waiter.index("77aa"))
        self.assertIn(" 8.0s  1m05s  ", holder)
        self.assertIn(" 850ms  ", waiter)
        self.assertEqual(state, "job is held (holders 1, waiters 1)")

    def test_show_as_json(self):
        result = self.command(self.broker(SHOW=SHOW), "show", "job", "-o",
                              "json")
        holder, waiter, state = map(json.loads, result.stdout.splitlines())
        self.assertEqual(holder, {
            "kind": "holder", "session": "5e0c", "broker": "b1",
            "fence": 9007199254740991, "ttl_ms": 8000, "age_ms": 65000,
            "name": "shop 7", "owner": "till", "note": "\x1b[31m\t\n"})
        self.assertEqual(waiter["note"], "\ufffd\u00e4\u202e\"")
        self.assertEqual(waiter["position"], 1)
        self.assertEqual(state, {
            "kind": "summary", "name": "job", "state": "held",
            "mode": "exclusive", "holders": 1, "waiters": 1})
        self.assertNotIn(b"\x1b", result.stdout)
        self.assertNotIn("\u202e".encode(), result.stdout)

    def test_show_of_a_free_lock(self):
        broker = self.broker(SHOW="OK state=free holders=0 waiters=0")
        self.assertEqual(self.command(broker, "show", "job").stdout, b"")
        output, status = self.columns(broker, "show", "job")
        self.assertEqual(
            (output, status), (b"job is free (holders 0, waiters 0)\n", 0))

    def test_show_refused(self):
        broker = self.broker(SHOW="ERR UNAVAILABLE retry=1 :no Redis")
        result = self.command(broker, "show", "job")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr,
                         b"holdfast: SHOW: UNAVAILABLE: no Redis\n")

    def test_lists_follow_the_cursor(self):
        def answer(words):
            cursor = dict(word.split("=") for word in words[1:]).get("cursor")
            part = int(cursor or 0)
            items = "".join(
                f"ITEM name=lock{part}.{i} state=held holders=1 waiters=0\n"
                for i in range(500))
            return items + ("OK n=500" + (
                f" cursor={part + 1}" if part < 5 else ""))

        broker = self.broker(LOCKS=answer)
        result = self.command(broker, "locks")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(len(lines), 3000)
        self.assertEqual(lines[-1].split("\t")[:4],
                         ["lock5.499", "held", "1", "0"])
        output, _ = self.columns(broker, "locks")
        self.assertEqual(len(output.splitlines()), 3001)

    def test_sessions(self):
        broker = self.broker(SESSIONS=(
            "ITEM session=5e0c name=shop peer=127.0.0.1:99 age_ms=1 idle_ms=2"
            " holds=3 waits=4 later=%22x\nOK n=1"))
        result = self.command(broker, "-o", "json", "sessions")
        self.assertEqual(json.loads(result.stdout), {
            "session": "5e0c", "name": "shop", "peer": "127.0.0.1:99",
            "age_ms": 1, "idle_ms": 2, "holds": 3, "waits": 4, "later": '"x'})
        self.assertEqual(self.command(broker, "sessions").stdout,
                         b"5e0c\tshop\t127.0.0.1:99\t1\t2\t3\t4\n")

    def test_broker_that_goes_meanwhile(self):
        broker = self.broker()
        broker.answers["LOCKS"] = lambda _: broker.cut()
        result = self.command(broker, "locks")
        self.assertEqual(result.returncode, 125)

    def test_no_broker(self):
        for words in (["show", "a"], ["locks"], ["sessions"], ["ping"],
                      ["raw"]):
            result = self.command(self.free_address(), *words)
            self.assertEqual(result.returncode, 125)
            self.assertIn(b"Connection refused", result.stderr)

    def test_full_disk(self):
        broker = self.broker(SHOW=SHOW)
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                [HOLDFAST, "show", "job"], stdout=full, check=False,
                stderr=subprocess.PIPE, env=self.environment(broker))
        self.assertEqual(result.returncode, 125)


class PingTest(CommandCase):
    def test_round_trip(self):
        result = self.command(self.broker(), "ping")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout.decode(),
                         r"\A127\.0\.0\.1:\d+ holdfastd/0\.0\.0"
                         r" time_ms=\d+\.\d{3}\n\Z")

    def test_silence(self):
        broker = self.broker()
        broker.silent = True
        result = self.command(broker, "ping")
        self.assertEqual(result.returncode, 125)


class RawTest(CommandCase):
    def test_lines_in_and_out(self):
        broker = self.broker()
        result = self.command(broker, "raw", input=b"1 PING\nNONE\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.decode(), GREETING + "\n"
                         "1 OK ttl_ms=9000\n"
                         "- ERR UNKNOWN retry=0\n"
                         "* BYE eof\n")

    def test_much(self):
        broker = self.broker()
        count = 20000
        result = self.command(
            broker, "raw", input=b"".join(
                b"%d PING\n" % i for i in range(count)))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(b" OK ttl_ms=9000\n"), count)

    def test_end_without_bye(self):
        broker = self.broker()
        broker.answers["PING"] = lambda _: broker.cut()
        result = self.command(broker, "raw", input=b"PING\n")
        self.assertEqual(result.returncode, 125)


class UsageTest(CommandCase):
    def test_version(self):
        result = self.command("127.0.0.1:1", "-V")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout.decode(), r"\Aholdfast \d+\.\d+\.\d+")

    def test_help(self):
        self.assertEqual(self.command("127.0.0.1:1", "-h").returncode, 0)
        for name in ("run", "lock", "show", "locks", "sessions", "ping",
                     "raw"):
            for words in ([name, "-h"], [name, "--help"], ["help", name]):
                result = self.command("127.0.0.1:1", *words)
                self.assertEqual(result.returncode, 0)
                self.assertTrue(
                    result.stdout.startswith(b"holdfast " + name.encode()))
                for line in result.stdout.splitlines():
                    self.assertLess(len(line), 80)

    def test_bad(self):
        for words in ([], ["nothing"], ["watch", "a"], ["break", "a"],
                      ["top"], ["bench"], ["help", "nothing"], ["-x"],
                      ["-o", "xml", "locks"], ["-a"], ["show"],
                      ["show", "a", "b"], ["show", ""], ["locks", "a"],
                      ["sessions", "--", "x"], ["ping", "x"], ["raw", "x"]):
            with self.subTest(words=words):
                result = self.command("127.0.0.1:1", *words)
                self.assertEqual(result.returncode, 64)
                self.assertTrue(result.stderr.startswith(b"holdfast: "))
                self.assertEqual(result.stdout, b"")


if __name__ == "__main__":
    unittest.main()
