"""holdfastd --dev: a broker and a Redis of its own, for a user's tests."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from harness import HarnessCase
from harness.broker import broker_path
from harness.processes import children_of, is_running

# Starts the program, and waits for a signal.
PARENT = ("import signal, subprocess, sys; subprocess.Popen(sys.argv[1:]); "
          "signal.pause()")


class DevCase(HarnessCase):
    def start(self, *arguments, before=(), **options):
        """Starts it; sets .process and .address."""
        self.process = subprocess.Popen(
            [*before, broker_path(), *(arguments or ["--dev=0"])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(self.end, self.process)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (127\.0\.0\.1:\d+)\n", line)
        self.assertIsNotNone(found, line or "no line")
        self.address = found.group(1)
        return self.process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def refused(self, *arguments, **options):
        """(status, stderr) where it does not start."""
        done = subprocess.run([broker_path(), *arguments], timeout=20,
                              capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, **options)
        self.assertEqual(done.stdout, "")
        return done.returncode, done.stderr

    def redis_of(self, broker):
        """The process ID of its Redis."""
        redis, = children_of(broker)
        return redis

    def gone(self, *pids):
        self.wait_until(lambda: not any(map(is_running, pids)), 5,
                        "the processes have ended")


class DevTest(DevCase):
    def test_locks_at_once(self):
        process = self.start()
        begin = time.monotonic()
        client = self.client(self.address)
        client.ok("LOCK a wait=0")
        client.ok("UNLOCK a")
        self.assertLess(time.monotonic() - begin, 2)
        redis = self.redis_of(process.pid)
        process.terminate()
        out, err = process.communicate(timeout=5)
        self.assertEqual((process.returncode, out, err), (0, "", ""))
        self.assertFalse(is_running(redis))

    def test_two_do_not_meet(self):
        for _ in range(2):
            self.start()
            self.client(self.address).ok("LOCK a wait=0")

    def test_a_port(self):
        port = self.port()
        self.start(f"--dev={port.number}")
        self.assertEqual(self.address, f"127.0.0.1:{port.number}")
        status, err = self.refused(f"--dev={port.number}")
        self.assertEqual((status, err), (
            71, f"holdfastd: cannot listen on {self.address}: "
            "Address already in use\n"))

    def test_no_redis(self):
        status, err = self.refused("--dev=0", env={"PATH": self.folder()})
        self.assertEqual(status, 71)
        self.assertRegex(err, r"^holdfastd: --dev needs a redis-server .*\n$")

    def test_a_redis_that_ends_at_once(self):
        folder = self.folder()
        shutil.copy("/bin/false", os.path.join(folder, "redis-server"))
        self.assertEqual(
            self.refused("--dev=0", env={"PATH": folder}),
            (71, "holdfastd: redis-server ends at its start: see above\n"))

    def test_usage(self):
        for arguments in (["--dev=x"], ["--dev=65536"], ["--dev", "-t"],
                          ["--dev", "-c", "f"], ["--dev", "0"]):
            status, err = self.refused(*arguments)
            self.assertEqual(status, 64, arguments)
            self.assertRegex(err, r"^holdfastd: .*\n$")

    def test_a_reload_changes_nothing(self):
        self.start().send_signal(signal.SIGHUP)
        self.client(self.address).ok("LOCK a wait=0")


class EndTest(DevCase):
    def test_with_its_parent(self):
        parent = self.start(before=[sys.executable, "-c", PARENT])
        broker, = children_of(parent.pid)
        redis = self.redis_of(broker)
        client = self.client(self.address)
        client.ok("LOCK a")
        parent.kill()
        self.gone(broker, redis)
        self.assertEqual(client.at_end()[-1].line, "* BYE drain keep=1")

    def test_redis_with_a_killed_broker(self):
        process = self.start()
        redis = self.redis_of(process.pid)
        process.kill()
        self.gone(redis)

    def test_with_its_redis(self):
        process = self.start()
        os.kill(self.redis_of(process.pid), signal.SIGKILL)
        self.assertEqual(process.wait(5), 0)
        self.assertIn("Redis has ended", process.stderr.read())

    def test_an_interrupt_is_not_for_redis(self):
        """A terminal sends it to the whole process group."""
        process = self.start(start_new_session=True)
        redis = self.redis_of(process.pid)
        self.assertNotEqual(os.getpgid(redis), process.pid)

    def test_nobody_else_uses_its_redis(self):
        redis = self.redis_of(self.start().pid)
        with open(f"/proc/{redis}/cmdline", encoding="ascii") as file:
            title = file.read()
        host, port = re.search(r"(127\.0\.0\.1):(\d+)", title).groups()
        with socket.create_connection((host, int(port)), 5) as other:
            other.sendall(b"GET a\r\n")
            self.assertTrue(other.recv(100).startswith(b"-NOAUTH"))
