"""holdfast run: what the program gets, and what its end becomes."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

from fake_broker import HOLDFAST, CommandCase

PRINT_ARGUMENTS = ("import json, os, sys;"
                   "print(json.dumps([os.fsencode(word).hex()"
                   " for word in sys.argv[1:]]))")


class StatusTest(CommandCase):
    def run_status(self, *program, **options):
        return self.command(self.broker(), "run", "job", "--", *program,
                            **options).returncode

    def test_status_of_the_program(self):
        for status in (0, 1, 3, 124, 255):
            self.assertEqual(
                self.run_status("sh", "-c", f"exit {status}"), status)

    def test_signal_of_the_program(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
            self.assertEqual(self.run_status(
                "sh", "-c", f"kill -{int(number)} $$"), 128 + number)

    def test_not_found(self):
        self.ends(127, self.broker(), "run", "job", "--",
                  "no-such-program-here", err=b"no-such-program-here")

    def test_not_executable(self):
        path = self.path("plain")
        with open(path, "w", encoding="ascii") as file:
            file.write("text")
        self.assertEqual(self.run_status(path), 126)
        self.assertEqual(self.run_status(self.folder), 126)

    def test_script_without_interpreter_line(self):
        path = self.path("script")
        with open(path, "w", encoding="ascii") as file:
            file.write("exit 9\n")
        os.chmod(path, 0o700)
        self.assertEqual(self.run_status(path), 9)

    def test_lock_is_given_back(self):
        for program in (["true"], ["no-such-program-here"]):
            broker = self.broker()
            self.command(broker, "run", "job", "--", *program)
            self.assertEqual(broker.received("UNLOCK"),
                             ["UNLOCK job fence=42"])

    def test_refused_unlock_is_only_a_warning(self):
        broker = self.broker(UNLOCK="ERR NOTHELD retry=0 :no such hold")
        self.ends(5, broker, "run", "job", "--", "sh", "-c", "exit 5",
                  err=b"NOTHELD")

    def test_unanswered_unlock_is_waited_for_briefly(self):
        broker = self.broker(UNLOCK=None)
        begin = time.monotonic()
        self.ends(5, broker, "run", "job", "--", "sh", "-c", "exit 5")
        self.assertLess(time.monotonic() - begin, 4)

    def test_usage(self):
        for words in (["job"], ["job", "--"], ["--", "true"],
                      [*17 * "a", "--", "true"], ["", "--", "true"],
                      ["a", "", "--", "true"], ["x" * 256, "--", "true"],
                      ["--wait", "job", "--", "true"],
                      ["--wait", "1d", "job", "--", "true"],
                      ["--wait", "99999999999", "job", "--", "true"],
                      ["--wait", str(2 ** 64 + 1), "job", "--", "true"],
                      ["--wait", "9000h", "job", "--", "true"],
                      ["--limit", "0", "job", "--", "true"],
                      ["--limit", "2x", "job", "--", "true"],
                      ["--limit", "4294967296", "job", "--", "true"],
                      ["--permits", "2", "job", "--", "true"],
                      ["--limit=2", "--permits=3", "job", "--", "true"],
                      ["--limit=2", "--shared", "job", "--", "true"],
                      ["--shared=1", "job", "--", "true"],
                      ["--keep", "61m", "job", "--", "true"],
                      ["--a=1", "job", "--", "true"],
                      ["--wait=-1", "job", "--", "true"],
                      ["--lease", "0", "job", "--", "true"],
                      ["--owner", "x" * 65, "job", "--", "true"],
                      ["--note", "", "job", "--", "true"],
                      ["--wai", "1", "job", "--", "true"],
                      ["-w", "1", "job", "--", "true"]):
            with self.subTest(words=words):
                result = self.ends(125, "127.0.0.1:1", "run", *words)
                self.assertTrue(result.stderr.startswith(b"holdfast: "))
                self.assertNotIn(b"no broker", result.stderr)

    def test_durations_have_a_unit(self):
        """Some would take a number alone for seconds."""
        for words in (["run", "--wait=5", "k", "--", "true"],
                      ["run", "--lease", "5", "k", "--", "true"],
                      ["run", "k", "--keep", "5", "--", "true"],
                      ["lock", "--delay", "5", "k"],
                      ["bench", "-t", "5"], ["top", "--interval", "5"]):
            with self.subTest(words=words):
                result = self.command("127.0.0.1:1", *words)
                self.assertIn(result.returncode, (64, 125))
                self.assertIn(b": '5' needs a unit: write 5s or 5ms\n",
                              result.stderr)

    def test_help(self):
        result = self.ends(0, "127.0.0.1:1", "run", "-h")
        self.assertIn(b"--lease", result.stdout)


class ProgramTest(CommandCase):
    """The program sees the same as without us."""

    def test_arguments(self):
        words = [b"", b" ", b"a b", b"--wait", b"-a", b"--", b"*", b"\n",
                 b"\xff\xfe", "\u00e9".encode(), b"'\"\\$x`", b"-", b"%s%n",
                 b"=", b"--help"]
        result = self.ends(0, self.broker(), "run", "job", "--",
                           sys.executable, "-c", PRINT_ARGUMENTS, *words)
        self.assertEqual(json.loads(result.stdout),
                         [word.hex() for word in words])

    def test_input(self):
        data = os.urandom(1 << 20)
        self.assertEqual(self.command(self.broker(), "run", "job", "--", "cat",
                                      input=data).stdout, data)

    def test_input_is_not_read_ahead(self):
        reader, writer = os.pipe()
        os.write(writer, b"one\ntwo\n")
        os.close(writer)
        self.ends(0, self.broker(), "run", "job", "--", "true", stdin=reader)
        self.assertEqual(os.read(reader, 100), b"one\ntwo\n")
        os.close(reader)

    def test_environment(self):
        broker = self.broker()
        self.assertEqual(self.command(
            broker, "run", "a b=\u00e9", "--", "sh", "-c",
            'echo "$HOLDFAST_LOCK $HOLDFAST_FENCE $HOLDFAST_SESSION $OTHER"',
            env=self.environment(broker, OTHER="stays")).stdout.decode(),
                         "a b=\u00e9 42 0123456789abcdef stays\n")

    def test_descriptors(self):
        reader, writer = os.pipe()
        result = self.command(self.broker(), "run", "job", "--",
                              sys.executable, "-c",
                              "import os; print(*os.listdir('/proc/self/fd'))",
                              pass_fds=[writer])
        plain = subprocess.run(
            [sys.executable, "-c",
             "import os; print(*os.listdir('/proc/self/fd'))"],
            stdin=subprocess.DEVNULL, capture_output=True, check=True,
            pass_fds=[writer])
        self.assertEqual(sorted(result.stdout.split()),
                         sorted(plain.stdout.split()))
        self.assertIn(str(writer).encode(), result.stdout.split())
        os.close(reader)
        os.close(writer)

    def test_closed_descriptors_stay_closed(self):
        listing = ("import os; fd = os.open(%r, os.O_WRONLY | os.O_CREAT, 384);"
                   "os.write(fd, b'%%d' %% fd)" % self.path("number"))
        broker = self.broker()
        self.assertEqual(subprocess.run(
            [HOLDFAST, "run", "job", "--", sys.executable, "-c", listing],
            env=self.environment(broker), check=False, timeout=30,
            preexec_fn=lambda: os.closerange(0, 3)).returncode, 0)
        self.assertEqual(self.read("number"), "0")

    def test_signals_blocked_and_ignored(self):
        show = ["grep", "-E", "SigBlk|SigIgn", "/proc/self/status"]

        def prepare():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

        broker = self.broker()
        ours = subprocess.Popen(
            [HOLDFAST, "run", "job", "--", *show], env=self.environment(broker),
            stdout=subprocess.PIPE, preexec_fn=prepare)
        plain = subprocess.Popen(show, stdout=subprocess.PIPE,
                                 preexec_fn=prepare)
        self.assertEqual(ours.communicate()[0], plain.communicate()[0])

    def test_group_of_its_own(self):
        result = self.command(self.broker(), "run", "job", "--",
                              sys.executable, "-c",
                              "import os; print(os.getpid(), os.getpgrp())")
        pid, group = result.stdout.split()
        self.assertEqual(pid, group)

    def test_what_it_leaves_behind_goes_on(self):
        result = self.ends(0, self.broker(), "run", "job", "--", "sh", "-c",
                           "sleep 60 >/dev/null 2>&1 & echo $!")
        pid = int(result.stdout)
        self.kill_at_end(pid)
        os.kill(pid, 0)


class AskTest(CommandCase):
    """The requests to the broker."""

    def asked(self, *words, **options):
        broker = self.broker(**options)
        self.ends(0, broker, "run", *words, "--", "true")
        return broker.received("LOCK")

    def test_key_alone(self):
        self.assertEqual(self.asked("job"), ["LOCK job progress=1"])
        self.assertEqual(self.asked("a b%=\u00e9"),
                         ["LOCK a%20b%25%3D%C3%A9 progress=1"])
        self.assertEqual(self.asked(":x" + 253 * "y"),
                         ["LOCK %3Ax" + 253 * "y" + " progress=1"])

    def test_options_before_and_behind(self):
        whole = ["LOCK job wait=2000 lease=60000 owner=me note=why%20not"]
        self.assertEqual(self.asked("--wait", "2s", "--lease", "1m", "--owner",
                                    "me", "--note", "why not", "job"), whole)
        self.assertEqual(self.asked("job", "--wait=2000ms", "--lease=60000ms",
                                    "--owner=me", "--note=why not"), whole)
        self.assertEqual(self.asked(
            "--note", "why not", "job", "--lease", "60s", "--owner", "me",
            "--wait", "2000ms"), whole)

    def test_no_waiting(self):
        self.assertEqual(self.asked("--wait", "0", "job"), ["LOCK job wait=0"])

    def test_session_has_a_name(self):
        broker = self.broker()
        self.command(broker, "run", "job", "--", "true")
        name, = broker.received("HELLO")
        self.assertIn(socket.gethostname()[:20], name)

    def test_session_of_a_host_with_a_long_name(self):
        """It is cut, for the sake of the number of the process."""
        broker = self.broker()
        rename = ("import os, socket, sys; socket.sethostname(64 * 'h');"
                  "os.execv(sys.argv[1], sys.argv[1:])")
        host = ["unshare", "--user", "--map-root-user", "--uts",
                sys.executable, "-c", rename]
        if subprocess.run([*host, "/bin/true"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest("no host name of one's own here")
        subprocess.run([*host, HOLDFAST, "run", "job", "--", "true"],
                       env=self.environment(broker), check=True, timeout=30)
        name, = broker.received("HELLO")
        self.assertRegex(name, r"\AHELLO name=h{47}:\d+ keep=30000\Z")

    def test_without_proc(self):
        """It says what it cannot end then."""
        broker = self.broker()
        words = ["run", "job", "--", "echo", "done"]
        hides = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                 'mount -t tmpfs none /proc && exec "$@"', "-"]
        if subprocess.run([*hides, "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest("no file system of one's own here")
        result = subprocess.run(
            [*hides, HOLDFAST, *words], env=self.environment(broker),
            capture_output=True, check=False, timeout=30)
        # No status: the sanitizer's own search for leaks needs /proc.
        self.assertEqual(result.stdout, b"done\n")
        self.assertIn(b"processes that leave the program's process group",
                      result.stderr)
        self.assertEqual(self.command(broker, *words).stderr, b"")

    def test_address_by_option(self):
        broker = self.broker()
        for words in (["-a", broker.address, "run", "job"],
                      ["run", "-a", broker.address, "job"],
                      ["run", "job", "-a" + broker.address]):
            self.ends(0, "127.0.0.1:1", *words, "--", "true")

    def test_unix_socket(self):
        broker = self.broker(path=self.path("socket"))
        self.ends(0, broker, "run", "job", "--", "true")

    def test_host_name(self):
        broker = self.broker()
        self.ends(0, broker.address.replace("127.0.0.1", "localhost"), "run",
                  "job", "--", "true")

    def test_pings_of_the_broker_are_answered(self):
        broker = self.broker()
        self.start(broker, "run", "job", "--", "sleep", "60")
        self.wait_until(lambda: broker.received("LOCK"))
        broker.say("* PING 5")
        self.wait_until(lambda: broker.received("PONG"))
        self.assertEqual(broker.received("PONG"), ["PONG 5"])


class RefusedTest(CommandCase):
    def refused(self, answer, *words):
        broker = self.broker(LOCK=answer)
        result = self.command(broker, "run", *words, "job", "--", "touch",
                              self.path("ran"))
        self.assertFalse(os.path.exists(self.path("ran")))
        return result

    def test_not_in_time(self):
        result = self.refused("ERR BUSY retry=1 :held", "--wait", "0")
        self.assertEqual(result.returncode, 124)
        self.assertIn(b"BUSY", result.stderr)
        result = self.refused("ERR TIMEOUT retry=1 :held", "--wait", "1s")
        self.assertEqual(result.returncode, 124)

    def test_trouble(self):
        for code in ("UNAVAILABLE", "INDOUBT", "LIMIT", "CONFLICT", "NEWCODE"):
            result = self.refused(f"ERR {code} retry=1 :\x1b[31mwhy")
            self.assertEqual(result.returncode, 125)
            self.assertIn(code.encode(), result.stderr)
            self.assertNotIn(b"\x1b", result.stderr)

    def test_answer_that_never_comes(self):
        broker = self.broker(LOCK=None)
        begin = time.monotonic()
        self.ends(124, broker, "run", "--wait", "0", "job", "--", "true")
        self.assertLess(time.monotonic() - begin, 10)

    def test_broker_that_goes_is_left_for_another(self):
        broker = self.broker()
        broker.answers["LOCK"] = lambda _: \
            "ERR DRAINING retry=1" if len(broker.received("LOCK")) < 2 \
            else "OK fence=7 ttl_ms=9000 count=1"
        self.assertEqual(self.command(broker, "run", "job", "--", "printenv",
                                      "HOLDFAST_FENCE").stdout, b"7\n")

    def test_word_of_the_queue_that_nobody_asked_for(self):
        broker = self.broker(LOCK="QUEUED position=3\n"
                             "OK fence=7 ttl_ms=9000 count=1")
        self.assertEqual(self.command(broker, "run", "job", "--", "printenv",
                                      "HOLDFAST_FENCE").stdout, b"7\n")

    def test_connection_lost_when_the_wait_is_over(self):
        broker = self.broker()
        # So long after the greeting that there is no lack of a broker.
        broker.answers["LOCK"] = lambda _: time.sleep(1.1) or broker.cut()
        self.ends(124, broker, "run", "--wait", "1s", "job", "--", "true",
                  err=b"the connection to the broker ended")
        self.assertEqual(len(broker.received("LOCK")), 1)

    def test_broker_that_only_goes(self):
        broker = self.broker(LOCK="ERR DRAINING retry=1")
        begin = time.monotonic()
        self.ends(125, broker, "run", "--wait", "2s", "job", "--", "true")
        self.assertLess(time.monotonic() - begin, 3)
        self.assertLess(len(broker.received("LOCK")), 12)

    def test_connection_lost_while_waiting(self):
        broker = self.broker(LOCK=None)
        process = self.start(broker, "run", "--wait", "20s", "job", "--",
                             "true")
        self.wait_until(lambda: broker.received("LOCK"))
        time.sleep(0.1)
        broker.answers["LOCK"] = "OK fence=7 ttl_ms=9000 count=1"
        broker.cut()
        self.assertEqual(process.wait(10), 0)
        first, second = broker.received("LOCK")
        self.assertEqual(first, "LOCK job wait=20000 progress=1")
        self.assertLess(int(second.split("wait=")[1].split()[0]), 20000)

    def test_what_is_waited_for_is_told(self):
        cases = (("QUEUED position=2 holder=shop-7 age_ms=1500",
                  "job: waiting at position 2 (shop-7, for 1.5 s)"),
                 ("QUEUED position=1 reason=settling after_ms=29000",
                  "job: waiting for the broker to settle with Redis, at "
                  "most 29.0s"),
                 (None, "`holdfast status` shows"))
        started = [(self.start(self.broker(LOCK=answer), "run", "job", "--",
                               "true"), told) for answer, told in cases]
        for process, told in started:
            self.assertIn(told, process.stderr.readline().decode())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 143)

    def test_signal_while_waiting(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            broker = self.broker(LOCK=None)
            process = self.start(broker, "run", "job", "--", "true")
            self.wait_until(lambda: broker.received("LOCK"))
            process.send_signal(number)
            self.assertEqual(process.wait(5), 128 + number)
            self.wait_until(lambda: broker.ended == 1)

    def test_ignored_signal_while_waiting(self):
        broker = self.broker(LOCK=None)
        process = self.start(
            broker, "run", "job", "--", "sh", "-c", "exit 9",
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.wait_until(lambda: broker.received("LOCK"))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGWINCH)
        broker.answer("LOCK", "OK fence=42 ttl_ms=9000 count=1")
        self.assertEqual(process.wait(5), 9)


class NestedTest(CommandCase):
    def nested(self, *words, outer=("job",), options=()):
        broker = self.broker(
            LOCK=lambda words: "OK ttl_ms=9000 count=1 fence=" + ",".join(
                "42" for word in words[1:] if "=" not in word))
        result = self.command(broker, "run", *options, *outer, "--", HOLDFAST,
                              "run", *words, "--", "echo", "ran")
        return broker, result

    def assert_refused(self, *words, **options):
        broker, result = self.nested(*words, **options)
        self.assertEqual(result.returncode, 125)
        self.assertRegex(result.stderr.decode(),
                         r"is held by holdfast run \(process \d+\)")
        self.assertEqual(result.stdout, b"")
        self.assertEqual(len(broker.received("LOCK")), 1)

    def assert_runs(self, *words, **options):
        broker, result = self.nested(*words, **options)
        self.assertEqual((result.returncode, result.stdout), (0, b"ran\n"),
                         result.stderr)
        self.assertEqual(len(broker.received("LOCK")), 2)

    def test_the_same_key(self):
        self.assert_refused("job")
        self.assert_refused("other", "job")
        self.assert_refused("a b=%", outer=("x", "a b=%"))
        self.assert_refused("--shared", "job")
        self.assert_refused("job", options=("--shared",))
        self.assert_refused("--limit", "1", "job", options=("--limit", "1"))

    def test_a_part_and_its_whole(self):
        self.assert_refused("shop", outer=("shop/1",), options=("--tree",))
        self.assert_refused("--tree", "shop/1/2", outer=("shop",))
        self.assert_refused("--tree", "--shared", "shop/1", outer=("shop",),
                            options=("--tree",))
        self.assert_refused("--shared", "shop", outer=("shop/1",),
                            options=("--tree",))

    def test_a_part_beside_it(self):
        tree = ("--tree",)
        self.assert_runs("--tree", "shop/2", outer=("shop/1",), options=tree)
        self.assert_runs("--tree", "shop/1", outer=("shop/11",), options=tree)
        self.assert_runs("shop", outer=("shop/1",))
        self.assert_runs("shop/1", outer=("shop",), options=tree)
        self.assert_runs("--shared", "shop", outer=("shop/1",),
                         options=("--tree", "--shared"))

    def test_it_may_be_had(self):
        self.assert_runs("other")
        self.assert_runs("jo", outer=("job",))
        self.assert_runs("job", "--wait", "1s")
        self.assert_runs("--shared", "job", options=("--shared",))
        self.assert_runs("--limit", "2", "job", options=("--limit", "2"))

    def test_lock_is_refused_too(self):
        broker = self.broker()
        self.ends(125, broker, "run", "job", "--", HOLDFAST, "lock", "job")

    def test_several_levels(self):
        broker = self.broker()
        self.ends(125, broker, "run", "a", "--", HOLDFAST, "run", "b", "--",
                  "sh", "-c", f"exec {HOLDFAST} run a -- true",
                  err=b"a is held by")
        self.assertEqual(len(broker.received("LOCK")), 2)

    def test_another_broker(self):
        broker, other = self.broker(), self.broker()
        self.ends(0, broker, "run", "job", "--", HOLDFAST, "-a", other.address,
                  "run", "job", "--", "true")

    def test_run_that_has_ended(self):
        """Its leftover processes may have the lock, with its environment."""
        broker = self.broker()
        result = self.command(
            broker, "run", "job", "--", "printenv", "HOLDFAST_HELD")
        held = result.stdout.decode().strip()
        self.assertRegex(held, r"^\d+=x=\S+=job$")
        for value in (held, f"{os.getpid()}=x", "=", "x=y=z", ""):
            self.ends(0, broker, "run", "job", "--", "true",
                      env=self.environment(broker, HOLDFAST_HELD=value))


class NoBrokerTest(CommandCase):
    def timed(self, address, *words):
        begin = time.monotonic()
        result = self.command(address, "run", *words, "job", "--", "touch",
                              self.path("ran"))
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertEqual(result.returncode, 125)
        self.assertIn(b"no broker at", result.stderr)
        return time.monotonic() - begin

    def test_within_ten_seconds(self):
        seconds = self.timed(self.free_address())
        self.assertLess(seconds, 10)
        self.assertGreater(seconds, 5)

    def test_says_so_while_it_tries_on(self):
        address = self.free_address()
        process = self.start(address, "run", "job", "--", "true")
        self.assertEqual(process.stderr.readline().decode(),
                         f"holdfast: warning: no broker at {address} yet: "
                         "Connection refused\n")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(5), (128 + signal.SIGTERM, -signal.SIGTERM))
        self.assertEqual(process.stderr.read(), b"")

    def test_within_the_wait(self):
        silent = self.broker(greeting=None, HELLO=None)
        other = self.broker(greeting="220 mail.example.org ESMTP")
        for address, wait, seconds in (
                (self.free_address(), "1s", 2), (self.free_address(), "0", 2),
                (self.path("none"), "500ms", 2), (silent, "1s", 2),
                (other, "1s", 2), ("127.0.0.1:99999", "10s", 1),
                # Longer than names can be, so nobody is asked for it.
                (f"{64 * 'x'}:1", "0", 2)):
            with self.subTest(address=address, wait=wait):
                self.assertLess(self.timed(address, "--wait", wait), seconds)

    def test_signal_while_there_is_no_greeting(self):
        broker = self.broker(greeting=None, HELLO=None)
        process = self.start(broker, "run", "job", "--", "true")
        self.wait_until(lambda: broker.connections)
        process.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(5), (128 + signal.SIGTERM, -signal.SIGTERM))

    def test_broker_that_is_full(self):
        broker = self.broker(greeting="* BYE limit :too many connections")
        self.ends(125, broker, "run", "--wait", "0", "job", "--", "true",
                  err=b"BYE limit")
        self.assertEqual(broker.lines, [])

    def test_broker_that_comes_late(self):
        address = self.free_address()
        process = self.start(address, "run", "job", "--", "true")
        time.sleep(1)
        broker = self.broker(port=int(address.split(":")[1]))
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(broker.received("LOCK"), ["LOCK job progress=1"])

    def test_signal_meanwhile(self):
        process = self.start(self.free_address(), "run", "job", "--", "true")
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(5), (128 + signal.SIGTERM, -signal.SIGTERM))


class DescriptorTest(CommandCase):
    """So many descriptors and no more."""

    def limited(self, broker, count, *words):
        return self.command(
            broker, *words, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (count, count)))

    def test_run(self):
        """The program runs under its guard or not at all."""
        statuses = []
        for count in range(4, 16):
            broker = self.broker()
            result = self.limited(broker, count, "run", "--wait", "0", "job",
                                  "--", "touch", self.path("ran"))
            statuses.append(result.returncode)
            self.assertEqual(os.path.exists(self.path("ran")),
                             result.returncode == 0)
            self.assertEqual(len(broker.received("LOCK")),
                             len(broker.received("UNLOCK")))
            if result.returncode == 0:
                self.assertEqual(result.stderr, b"")
                break
            self.assertEqual(result.returncode, 125)
            self.assertIn(b"Too many open files", result.stderr)
        # For lack of a timer, a connection, a gate and a guard.
        self.assertGreaterEqual(len(statuses), 5)
        self.assertEqual(statuses[-1], 0)

    def test_lock(self):
        result = self.limited(self.broker(), 4, "lock", "job")
        self.assertEqual(result.returncode, 125)
        self.assertIn(b"Too many open files", result.stderr)
