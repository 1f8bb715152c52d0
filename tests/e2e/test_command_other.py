"""The other commands: lock, show, locks, sessions, slow, ping, raw, help."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from fake_broker import GREETING, HOLDFAST, CommandCase
from harness.processes import process_state
from shared import read

LOST = "* LOST job fence=42 reason=expired"


class OutputCase(CommandCase):
    def to_file(self, path, broker, *words, **options):
        """Runs it with the output there."""
        with open(path, "wb") as file:
            return subprocess.run(
                [HOLDFAST, *words], stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.PIPE, check=False, timeout=30,
                env=self.environment(broker), **options)

    def on_terminal(self, broker, *words):
        """Its output on a terminal, and its exit status."""
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

    def deaf_address(self):
        """An address that neither takes nor refuses connections."""
        server = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(server.close)
        for _ in range(2):  # one is all that there is room for
            client = self.closing(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(server.getsockname())
        return "%s:%d" % server.getsockname()


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
        self.assertEqual(broker.received("LOCK"),
                         ["LOCK job lease=60000 progress=1"])
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

    def test_lost_without_a_reason(self):
        broker = self.broker()
        process = self.start_lock(broker, "job")
        broker.say("* LOST job fence=42")
        self.assertEqual(process.wait(5), 123)
        self.assertEqual(process.stderr.read(), b"holdfast: the lock is lost:"
                         b" the broker says so\n")

    def test_grant_that_is_over_at_once(self):
        broker = self.broker(ttl_ms=0)
        self.ends(123, broker, "lock", "job", out=b"fence=42 ttl_ms=0\n")
        self.assertEqual(broker.received("UNLOCK"), [])

    def test_warnings(self):
        broker = self.broker()
        process = self.start_lock(broker, "job")
        process.send_signal(signal.SIGWINCH)  # ends nothing
        for event, text in (("* JEOPARDY job ttl_ms=500", b"is late"),
                            ("* SAFE job ttl_ms=9000", b"renewed again"),
                            # These are not about the lock that is held.
                            ("* LOST other fence=42\n* DRAIN grace_ms=5000\n"
                             "* SAFE job ttl_ms=9000", b"renewed again")):
            broker.say(event)
            self.assertIn(text, process.stderr.readline())
        process.stdin.close()
        self.assertEqual(process.wait(5), 0)
        self.assertEqual(len(broker.received("UNLOCK")), 1)

    def test_input_that_cannot_be_read(self):
        broker = self.broker()
        with open(self.path("in"), "wb") as closed:  # not for reading
            result = self.command(broker, "lock", "job", stdin=closed)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(broker.received("UNLOCK")), 1)

    def test_not_acquired(self):
        broker = self.broker(LOCK="ERR BUSY retry=1")
        self.ends(124, broker, "lock", "--wait", "0", "job", out=b"")

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
        for words in ([], [""], ["a", "--", "true"], ["--wait", "a"],
                      ["--lease", "0", "a"], ["--delay", "25h", "a"],
                      ["--permits", "2", "a"]):
            result = self.ends(125, "127.0.0.1:1", "lock", *words)
            self.assertTrue(result.stderr.startswith(b"holdfast: "))


def input_is_full(process):
    """Whether nothing more can be written to a process before it reads."""
    waiting, = struct.unpack("i", fcntl.ioctl(process.stdin, termios.FIONREAD,
                                              bytes(4)))
    return waiting == fcntl.fcntl(process.stdin, fcntl.F_GETPIPE_SZ)


SHOW = (
    "ITEM kind=holder session=5e0c broker=b1 fence=9007199254740991"
    " ttl_ms=8000 lease_ms=9000 age_ms=65000 name=shop%207 owner=till"
    " note=%1B[31m%09%0A\n"
    "ITEM kind=waiter position=1 session=77aa broker=b2 age_ms=850"
    " note=%FF%C3%A4%E2%80%AE%22\n"
    "OK state=held mode=exclusive holders=1 waiters=1")


class ListTest(OutputCase):
    def test_show_with_tabs(self):
        broker = self.broker(SHOW=SHOW)
        result = self.ends(0, broker, "show", "a b")
        self.assertEqual(broker.received("SHOW"), ["SHOW a%20b limit=500"])
        self.assertEqual(
            result.stdout.decode(),
            "holder\t\t5e0c\tb1\tshop 7\ttill\t9007199254740991\t8000\t65000"
            "\t\\x1b[31m\\x09\\x0a\t\t\t\t9000\n"
            "waiter\t1\t77aa\tb2\t\t\t\t\t850"
            "\t\\xff\u00e4\\xe2\\x80\\xae\"\t\t\t\t\n")

    def test_show_of_other_kinds(self):
        for answer, columns, state in (
                ("ITEM kind=holder mode=shared fence=5\n"
                 "OK state=held mode=shared holders=1 waiters=0",
                 ["shared", "-", "-", "-"],
                 "job is held, shared (holders 1, waiters 0)"),
                ("ITEM kind=holder mode=upgradable fence=5\n"
                 "OK state=held mode=upgradable holders=1 waiters=0",
                 ["upgradable", "-", "-", "-"],
                 "job is held, upgradable (holders 1, waiters 0)"),
                ("ITEM kind=holder permits=2 fence=5\n"
                 "OK state=held mode=semaphore limit=3 permits=2 holders=1"
                 " waiters=0", ["-", "2", "-", "-"],
                 "job is held, 2 of 3 permits (holders 1, waiters 0)")):
            result = self.command(self.broker(SHOW=answer), "show", "job",
                                  "-o", "columns")
            _, holder, last = result.stdout.decode().splitlines()
            self.assertEqual(holder.split()[-4:], columns)
            self.assertEqual(last, state)

    def test_show_on_a_terminal(self):
        output, status = self.on_terminal(self.broker(SHOW=SHOW), "show", "job")
        self.assertEqual(status, 0)
        self.assertNotIn(b"\x1b", output)
        header, holder, waiter, state = output.decode().splitlines()
        self.assertEqual(header.split(), [
            "KIND", "POSITION", "SESSION", "BROKER", "NAME", "OWNER", "FENCE",
            "TTL", "AGE", "NOTE", "MODE", "PERMITS", "DETACHED",
            "LEASE"])
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
            "fence": 9007199254740991, "ttl_ms": 8000, "lease_ms": 9000,
            "age_ms": 65000,
            "name": "shop 7", "owner": "till", "note": "\x1b[31m\t\n"})
        self.assertEqual(waiter["note"], "\ufffd\u00e4\u202e\"")
        self.assertEqual(waiter["position"], 1)
        self.assertEqual(state, {
            "kind": "summary", "name": "job", "state": "held",
            "mode": "exclusive", "holders": 1, "waiters": 1})
        self.assertNotIn(b"\x1b", result.stdout)
        self.assertNotIn("\u202e".encode(), result.stdout)

    def test_show_in_other_formats_than_usual(self):
        broker = self.broker(SHOW=SHOW)
        plain = self.command(broker, "show", "job").stdout
        output, _ = self.on_terminal(broker, "show", "-o", "tabs", "job")
        self.assertEqual(output, plain)
        result = self.command(broker, "show", "-ocolumns", "job")
        self.assertTrue(result.stdout.startswith(b"KIND "), result.stdout)
        self.assertIn(b"\njob is held (holders 1, waiters 1)\n", result.stdout)

    def test_numbers_and_what_only_looks_so(self):
        """No reader of JSON gets another number than was sent."""
        numbers = {"0": 0, "7": 7, "999999999999999": 999999999999999,
                   "9007199254740991": 9007199254740991}
        texts = ("", "007", "00", "1x", "-1", "1.5", "9007199254740992",
                 "12345678901234567", "1e3")
        sent = [*numbers, *texts]
        broker = self.broker(SHOW="\n".join(
            [f"ITEM fence={value} note={value} odd_ms={value} ms={value}"
             f" _ms={value}" for value in sent] + ["OK state=held"]))
        result = self.command(broker, "show", "-o", "json", "job")
        *items, _ = map(json.loads, result.stdout.splitlines())
        self.assertEqual(items, [
            {"fence": numbers.get(value, value), "note": value,
             "odd_ms": numbers.get(value, value), "ms": value, "_ms": value}
            for value in sent])

    def test_durations(self):
        texts = {"0": "0ms", "999": "999ms", "1000": "1.0s", "59999": "59.9s",
                 "60000": "1m00s", "3599999": "59m59s", "3600000": "1h00m",
                 "86399999": "23h59m", "86400000": "1d00h",
                 "950400000": "11d00h", "soon": "soon"}
        broker = self.broker(SESSIONS="\n".join(
            [f"ITEM session=s age_ms={ms}" for ms in texts] + ["OK n=11"]))
        result = self.command(broker, "-o", "columns", "sessions")
        _, *rows = result.stdout.decode().splitlines()
        self.assertEqual([row.split()[3] for row in rows],
                         list(texts.values()))

    def test_show_of_an_unknown_state(self):
        broker = self.broker(SHOW="OK mode=new")
        result = self.command(broker, "-o", "columns", "show", "-")
        self.assertEqual(result.stdout,
                         b"- is unknown (holders 0, waiters 0)\n")
        self.assertEqual(broker.received("SHOW"), ["SHOW - limit=500"])

    def test_events_among_the_items(self):
        broker = self.broker()
        broker.answers["SHOW"] = lambda _: broker.say(
            "* DRAIN grace_ms=5000") or f"QUEUED position=1\n{SHOW}"
        result = self.ends(0, broker, "show", "job")
        self.assertEqual(len(result.stdout.splitlines()), 2)

    def test_show_of_a_free_lock(self):
        broker = self.broker(SHOW="OK state=free holders=0 waiters=0")
        self.assertEqual(self.command(broker, "show", "job").stdout, b"")
        output, status = self.on_terminal(broker, "show", "job")
        self.assertEqual(
            (output, status), (b"job is free (holders 0, waiters 0)\n", 0))

    def test_show_refused(self):
        broker = self.broker(SHOW="ERR UNAVAILABLE retry=1 :no Redis")
        self.ends(1, broker, "show", "job",
                  complaint=b"holdfast: SHOW: UNAVAILABLE: no Redis\n")

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
        result = self.ends(0, broker, "locks")
        lines = result.stdout.decode().splitlines()
        self.assertEqual(len(lines), 3000)
        self.assertEqual(lines[-1].split("\t")[:4],
                         ["lock5.499", "held", "1", "0"])
        output, _ = self.on_terminal(broker, "locks")
        self.assertEqual(len(output.splitlines()), 3001)
        self.ends(0, broker, "locks", "--prefix", "a b/")
        self.assertEqual(broker.received("LOCKS")[-1],
                         "LOCKS limit=500 prefix=a%20b/ cursor=5")

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

    def test_slow(self):
        items = (
            "ITEM kind=slow age_ms=1500 name=job session=5e0c op=acquire"
            " result=ok total_us=1234567 queued_us=850 redis_us=12345"
            " confirm_us=0 tries=2",
            "ITEM kind=deadlock age_ms=2 name=job session=5e0c cycle=a,b"
            " sessions=5e0c,77")
        broker = self.broker(SLOW="\n".join((*items, "OK n=2")))
        result = self.command(broker, "slow", "-o", "json")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(rows[0], {
            "kind": "slow", "age_ms": 1500, "name": "job", "session": "5e0c",
            "op": "acquire", "result": "ok", "total_us": 1234567,
            "queued_us": 850, "redis_us": 12345, "confirm_us": 0, "tries": 2})
        self.assertEqual(rows[1]["cycle"], "a,b")
        result = self.command(broker, "slow", "-o", "columns")
        self.assertEqual(
            [line.split() for line in result.stdout.decode().splitlines()],
            [["KIND", "AGE", "NAME", "SESSION", "CLIENT", "OWNER", "OP",
              "RESULT", "TOTAL", "QUEUED", "REDIS", "CONFIRM", "REASON",
              "FENCE", "LATE", "CYCLE"],
             ["slow", "1.5s", "job", "5e0c", "-", "-", "acquire", "ok", "1.2s",
              "850us", "12.3ms", "0us", "-", "-", "-", "-"],
             ["deadlock", "2ms", "job", "5e0c", *10 * "-", "-", "a,b"]])
        result = self.command(broker, "slow", "--kind", "lost", "--limit=7")
        self.assertEqual(result.stdout.split(b"\n")[1].split(b"\t"),
                         [b"deadlock", b"2", b"job", b"5e0c", *10 * [b""],
                          b"", b"a,b"])
        self.assertEqual([line.split(" ", 1)[1] for _, line in broker.lines], [
            "SLOW limit=500", "SLOW limit=500", "SLOW limit=7 kind=lost"])

    def test_broker_that_goes_meanwhile(self):
        broker = self.broker()
        broker.answers["LOCKS"] = lambda _: broker.cut()
        self.ends(125, broker, "locks")

    def test_no_broker(self):
        for words in (["show", "a"], ["locks"], ["sessions"], ["ping"],
                      ["raw"]):
            self.ends(125, self.free_address(), *words,
                      err=b"Connection refused")

    def test_full_disk(self):
        much = "\n".join(1000 * ["ITEM name=lock state=held"])
        few = "ITEM name=lock state=held\nOK n=1"
        free = "OK state=free"
        for words, answer in ((["show", "job"], SHOW),
                              (["show", "job"], f"{much}\n{free}"),
                              (["show", "job", "-o", "json"], SHOW),
                              (["show", "job", "-o", "json"], free),
                              (["show", "job", "-o", "columns"], SHOW),
                              (["show", "job", "-o", "columns"], free),
                              (["locks"], few),
                              (["locks"], f"{much}\nOK n=1000"),
                              (["locks", "-o", "json"], few),
                              (["locks", "-o", "columns"], few),
                              (["ping"], None)):
            with self.subTest(words=words, answer=answer and answer[-40:]):
                broker = self.broker(SHOW=answer, LOCKS=answer)
                result = self.to_file("/dev/full", broker, *words)
                self.assertEqual(result.returncode, 125)
                self.assertEqual(result.stderr, b"holdfast: cannot write\n")

    def test_help_that_cannot_be_printed(self):
        for words in (["help"], ["help", "run"], ["-h"], ["-V"],
                      ["run", "--help"], ["show", "-h"]):
            result = self.to_file("/dev/full", self.broker(), *words)
            self.assertEqual((result.returncode, result.stderr),
                             (125, b"holdfast: cannot write\n"), words)

    def test_closed_output(self):
        """Its number must not become that of the connection."""
        broker = self.broker(SHOW=SHOW)
        for number in (1, 2):
            result = self.to_file(self.path("out"), broker, "show", "job",
                                  preexec_fn=lambda: os.close(number))
            self.assertEqual(result.returncode, 125 if number == 1 else 0)
        self.assertEqual([line.split(" ")[1] for _, line in broker.lines],
                         2 * ["SHOW"])

    def test_bad_address(self):
        for words in (["show", "a"], ["locks"], ["sessions"], ["ping"],
                      ["raw"]):
            self.ends(125, "127.0.0.1:99999", *words,
                      err=b"127.0.0.1:99999: the address is not")


class ManualTest(OutputCase):
    def help(self, *words):
        return subprocess.run([HOLDFAST, "help", *words], check=True,
                              capture_output=True, text=True,
                              timeout=10).stdout

    def test_has_all_options(self):
        told = set(re.findall(r"\bFl (-?[A-Za-z][a-z-]*)",
                              read("packaging/man/holdfast.1")))
        pages = [self.help()]
        pages += [self.help(command) for command in
                  re.findall(r"^  ([a-z]+) ", pages[0], re.MULTILINE)
                  if command != "help"]
        rows = re.findall(r'^    \{"[a-z]+", ', read("proto/holdfast/help.c"),
                          re.MULTILINE)
        self.assertEqual(len(pages[1:]), len(rows))
        for page in pages:
            there = set(re.findall(r"(?<![\w-])-(-?[A-Za-z][a-z-]*)", page))
            self.assertEqual(there - told, set(), page)

    def test_has_the_columns_of_each_list(self):
        tables = re.findall(r"out_column (\w+)_columns\[\] = \{\n(.*?)^\};",
                            "".join(read(f"proto/holdfast/{file}.c") for file
                                    in ("bench", "list", "top", "watch")),
                            re.DOTALL | re.MULTILINE)
        self.assertEqual(len(tables),
                         read("proto/holdfast/help.c").count("tabs: "))
        for command, rows in tables:
            command = {"member": "watch"}.get(command, command)
            told = re.findall(r"With\stabs: ([^.]*)\.", self.help(command))
            self.assertIn(re.findall(r'^    \{"?(\w+)', rows.replace(
                "OUT_TEXT", "text"), re.MULTILINE), [
                    re.sub(r"\s\([^)]*\)|\s", "", names).split(",")
                    for names in told], command)


class StatusTest(OutputCase):
    def test_manual_has_those_of_refusals_and_of_wrong_usage(self):
        section = read("packaging/man/holdfast.1").partition(
            ".Sh EXIT STATUS")[2]
        broker = self.broker(BREAK="ERR DENIED retry=0 right=break :no")
        for words in ("break", "job"), ("break",), ("run", "job"):
            status = self.command(broker, *words).returncode
            self.assertIn(f"\n.It {status}\n", section, words)


class PingTest(OutputCase):
    def test_round_trip(self):
        self.assertRegex(self.ends(0, self.broker(), "ping").stdout.decode(),
                         r"\A127\.0\.0\.1:\d+ holdfastd/0\.0\.0"
                         r" time_ms=\d+\.\d{3}\n\Z")

    def test_broker_that_goes_meanwhile(self):
        broker = self.broker()
        broker.answers["PING"] = lambda _: broker.say("* BYE drain") or \
            broker.cut()
        self.ends(125, broker, "ping", out=b"", err=b" BYE drain\n")

    def test_silence(self):
        """All kinds at once, since each takes seconds."""
        silent = self.broker()
        silent.silent = True
        deaf = self.deaf_address()
        cases = [(silent, "ping", "no answer in time"),
                 (self.broker(greeting=None), "ping",
                  "no broker at .*: no answer in time"),
                 (deaf, "locks", "no broker at .*: Connection timed out"),
                 (deaf, "raw", "no broker at .*: Connection timed out")]
        for process, text in [(self.start(address, word), text)
                              for address, word, text in cases]:
            self.assertEqual(process.wait(20), 125)
            self.assertRegex(process.stderr.read().decode(), text)


class RawTest(OutputCase):
    def test_lines_in_and_out(self):
        broker = self.broker()
        self.assertEqual(self.ends(0, broker, "raw",
                                   input=b"1 PING\nNONE\n").stdout.decode(),
                         GREETING + "\n" "1 OK ttl_ms=9000\n"
                         "- ERR UNKNOWN retry=0\n" "* BYE eof\n")

    def test_much(self):
        broker = self.broker()
        count = 20000
        result = self.ends(0, broker, "raw", input=b"".join(
            b"%d PING\n" % i for i in range(count)))
        self.assertEqual(result.stdout.count(b" OK ttl_ms=9000\n"), count)

    def test_end_without_bye(self):
        broker = self.broker()
        broker.answers["PING"] = lambda _: broker.cut()
        self.ends(125, broker, "raw", input=b"PING\n")
        for last in (b"* BY\n", b"* BYE", b"- OK * BYE\n", b"* BYE\n- OK\n"):
            peer = self.peer(lambda connection: connection.sendall(last))
            self.ends(125, peer.address, "raw", out=last,
                      complaint=b"holdfast: the broker closed without BYE\n",
                      input=b"")

    def test_host_of_which_an_address_is_deaf(self):
        """The other one is tried, while there is time."""
        port = int(self.deaf_address().split(":")[1])
        self.peer(lambda connection: connection.sendall(b"* BYE\n"),
                  host="127.0.0.2", port=port)
        with open(self.path("hosts"), "w", encoding="ascii") as file:
            file.write("127.0.0.1 twofold\n127.0.0.2 twofold\n")
        own_hosts = ["unshare", "--user", "--map-root-user", "--mount", "sh",
                     "-c", 'mount --bind "$0" /etc/hosts && exec "$@"',
                     self.path("hosts")]
        if subprocess.run([*own_hosts, "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest("no hosts of one's own here")
        result = subprocess.run(
            [*own_hosts, HOLDFAST, "-a", f"twofold:{port}", "raw"], input=b"",
            capture_output=True, check=False, timeout=30)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, b"* BYE\n")

    def test_reset(self):
        def reset(connection):
            connection.recv(100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  struct.pack("ii", 1, 0))

        self.ends(125, self.peer(reset).address, "raw",
                  complaint=b"holdfast: the connection broke:"
                  b" Connection reset by peer\n", input=b"PING\n")

    def test_on_a_terminal(self):
        peer = self.peer(lambda connection: connection.sendall(
            b"- OK \x1b[31m\x07\x7f \xc3\xa4\n* BYE\n"))
        self.assertEqual(self.on_terminal(peer.address, "raw"),
                         ("- OK ?[31m?? \u00e4\n* BYE\n".encode(), 0))

    def test_full_disk(self):
        result = self.to_file("/dev/full", self.broker(), "raw")
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr, b"holdfast: cannot write: No space"
                         b" left on device\n")

    def test_input_that_cannot_be_read(self):
        with open(self.path("in"), "wb") as closed:  # not for reading
            result = self.command(self.broker(), "raw", stdin=closed)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.decode(), f"{GREETING}\n* BYE eof\n")

    def test_closed_output(self):
        """The broker's lines are not sent back to it."""
        broker = self.broker()
        result = self.to_file(self.path("out"), broker, "raw",
                              preexec_fn=lambda: os.closerange(0, 2))
        self.assertEqual(result.returncode, 125)
        self.assertEqual(broker.lines, [])

    def test_broker_that_reads_late(self):
        """Nothing is lost where the socket is full."""
        data = os.urandom(1 << 20)
        got = []
        go_on = threading.Event()

        def late(connection):
            go_on.wait()
            with connection.makefile("rb") as file:
                got.append(file.read())
            connection.sendall(b"* BYE\n")

        peer = self.peer(late, path=self.path("socket"))
        process = self.start(peer, "raw", stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        writer = threading.Thread(target=process.communicate, args=(data,))
        writer.start()
        # It sleeps while there is input: it waits for the socket.
        self.wait_until(lambda: input_is_full(process) and
                        process_state(process.pid) == "S")
        go_on.set()
        writer.join()
        self.assertEqual(process.returncode, 0)
        self.assertEqual(got, [data])

    def test_broker_that_goes_before_it_has_read(self):
        """Its last words are printed all the same."""
        words = b"* BYE limit :too many connections\n"
        accepted = threading.Event()
        go_on = threading.Event()

        def leave(connection):
            accepted.set()
            go_on.wait()
            connection.sendall(words)

        peer = self.peer(leave, path=self.path("socket"))
        process = self.start(peer, "raw", stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        self.assertTrue(accepted.wait(10))
        process.send_signal(signal.SIGSTOP)
        self.wait_until(lambda: process_state(process.pid) == "T")
        process.stdin.write(b"PING\n")
        process.stdin.flush()
        go_on.set()
        peer.thread.join(10)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(5), 0, process.stderr.read())
        self.assertEqual(process.stdout.read(), words)


class UsageTest(CommandCase):
    def test_secrets_in_the_wrong_place(self):
        """No error shows them."""
        key = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"
        cases = [("-a", address) for address in (
            "user:hunter2@host", "user:hunter2@host:4653", "a:1,u:hunter2@b:1",
            "holdfast://u:hunter2@host", key)]
        cases += [(option, key) for option in (
            "-u", "-s", "--tls-ca", "--tls-cert", "--tls-key", "--tls-name")]
        for words in cases:
            for command in (["ping"], ["raw"], ["run", "job", "--", "true"]):
                result = self.command("127.0.0.1:1", *words, *command)
                self.assertIn(result.returncode, (64, 69, 125), words)
                self.assertNotIn(b"hunter2", result.stderr)
                self.assertIn(words[0].encode() + b", HOLDFAST_",
                              result.stderr)

    def test_version(self):
        for word in ("-V", "--version"):
            self.assertRegex(self.ends(0, "127.0.0.1:1", word).stdout.decode(),
                             r"\Aholdfast \d+\.\d+\.\d+\n\Z")

    def test_usual_address(self):
        environment = self.environment("")
        for _ in range(2):
            result = self.command("", "ping", env=environment)
            # Whether or not a broker happens to be there.
            self.assertIn(b"127.0.0.1:4653", result.stdout + result.stderr)
            environment.pop("HOLDFAST_ADDR", None)

    def test_help(self):
        self.ends(0, "127.0.0.1:1", "-h")
        for name in ("run", "lock", "unlock", "renew", "show", "watch",
                     "await", "locks", "sessions", "slow", "status", "top",
                     "audit", "break", "resize", "kill", "drain", "bench",
                     "ping", "raw", "secret"):
            for words in ([name, "-h"], [name, "--help"], ["help", name]):
                result = self.ends(0, "127.0.0.1:1", *words)
                self.assertTrue(
                    result.stdout.startswith(b"holdfast " + name.encode()))
                self.assertRegex(result.stdout, b"bad usage")
                for line in result.stdout.splitlines():
                    self.assertLess(len(line), 80)

    def test_bad(self):
        for words in ([], ["nothing"], ["watch"], ["break"], ["kill"],
                      ["break", "a", "b"], ["break", "--fence", "0", "a"],
                      ["resize", "a"], ["resize", "--limit", "0", "a"],
                      ["watch", ""], ["watch", "a", "--", "b"],
                      ["kill", "a", "b"], ["kill", ""], ["kill", "0123456"],
                      ["kill", "0123456x"], ["drain", "a"],
                      ["-s", "file", "ping"], ["-u", "user", "show", "a"],
                      ["--tls-verify", "none", "raw"],
                      ["-a", "h:1,h:2", "drain"],
                      ["help", "nothing"], ["-x"],
                      ["-o", "xml", "locks"], ["-a"], ["show"],
                      ["show", "a", "b"], ["show", "a", "b", "c"],
                      ["show", ""], ["show", 256 * "x"], ["locks", "a"],
                      ["status", "a"],
                      ["slow", "a"], ["slow", "--kind", "fast"],
                      ["slow", "--limit", "0"], ["slow", "--limit", "501"],
                      ["sessions", "--", "x"], ["ping", "x"], ["raw", "x"],
                      ["ping", "--", "x"], ["raw", "--", "x"], ["--"],
                      ["show", "-x"], ["sessions", "--wait", "1s"],
                      ["ping", "--all"], ["raw", "-o"]):
            with self.subTest(words=words):
                result = self.ends(64, "127.0.0.1:1", *words)
                self.assertTrue(result.stderr.startswith(b"holdfast: "))
                self.assertEqual(result.stdout, b"")
