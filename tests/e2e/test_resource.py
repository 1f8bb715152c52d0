"""lua/resource and SQL refuse the late write of a paused holder."""

import os
import signal
import sqlite3
import subprocess
import sys

from harness import RedisError
from harness.case import HarnessCase, shared_redis
from shared import read

SQL = """
    UPDATE stock SET amount = amount - :wanted, fence = :fence
    WHERE item = :item AND fence <= :fence AND amount >= :wanted
"""

def script(name):
    return read("lua", "resource", name + ".lua")


# Reads a line, is stopped, and then writes as it had decided before.
HOLDER = """
import os, signal, socket, sys
port, command = int(sys.argv[1]), sys.argv[2:]
print(sys.stdin.readline().strip(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
words = b"*%d\\r\\n" % len(command) + b"".join(
    b"$%d\\r\\n%s\\r\\n" % (len(word.encode()), word.encode())
    for word in command)
connection = socket.create_connection(("127.0.0.1", port))
connection.sendall(words)
print(connection.makefile("rb").readline().decode().strip(), flush=True)
"""


class ResourceTest(HarnessCase):
    def setUp(self):
        self.server = shared_redis()

    def two_holders(self, lock):
        """(fence of the one whose lease ended, fence of the next)."""
        broker = self.broker(self.server, {"lease.default": "1s"})
        first, second = self.client(broker), self.client(broker)
        old = first.ok(f"LOCK {lock} lease=500ms").fence
        new = second.ok(f"LOCK {lock}").fence
        first.event("LOST", fence=old)
        self.assertGreater(new, old)
        return old, new

    def paused(self, *command):
        """A process that has decided to send that command, and was stopped."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(self.server.port),
             *map(str, command)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        process.stdin.write("decided\n")
        process.stdin.close()
        self.assertEqual(process.stdout.readline(), "decided\n")
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        return process

    def late(self, process):
        """Redis' answer when it goes on."""
        process.send_signal(signal.SIGCONT)
        return process.stdout.readline().strip()

    def eval(self, name, keys, *arguments):
        return self.server.command("EVAL", script(name), len(keys), *keys,
                                   *arguments)

    def test_set(self):
        old, new = self.two_holders("resource/set")
        keys = ["{rs}:value", "{rs}:fence"]
        self.assertEqual(self.eval("set", keys, old, "early"), 1)
        process = self.paused("EVAL", script("set"), 2, *keys, old, "late")
        self.assertEqual(self.eval("set", keys, new, "newer"), 1)
        self.assertEqual(self.late(process), ":0")
        self.assertEqual(self.server.command("GET", keys[0]), b"newer")
        self.assertEqual(self.eval("set", keys, new, "again"), 1)

    def test_take(self):
        old, new = self.two_holders("resource/take")
        keys = ["{rt}:stock", "{rt}:fence"]
        self.server.command("SET", keys[0], 10)
        self.assertEqual(self.eval("take", keys, old, 3), 7)
        process = self.paused("EVAL", script("take"), 2, *keys, old, 3)
        self.assertEqual(self.eval("take", keys, new, 6), 1)
        self.assertEqual(self.late(process), ":-2")
        self.assertEqual(self.eval("take", keys, new, 2), -1)
        self.assertEqual(self.eval("take", keys, new, 1), 0)

    def test_check(self):
        old, new = self.two_holders("resource/check")
        self.assertEqual(self.eval("check", ["rc"], old), 1)
        process = self.paused("EVAL", script("check"), 1, "rc", old)
        self.assertEqual(self.eval("check", ["rc"], new), 1)
        self.assertEqual(self.late(process), ":0")
        self.assertEqual(self.eval("check", ["rc"], new), 1)

    def test_sql(self):
        old, new = self.two_holders("resource/sql")
        base = self.closing(sqlite3.connect(":memory:"))
        base.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, "
                     "amount INTEGER, fence INTEGER DEFAULT 0)")
        base.execute("INSERT INTO stock VALUES ('cup', 10, 0)")

        def take(fence, wanted):
            values = {"item": "cup", "fence": fence, "wanted": wanted}
            return base.execute(SQL, values).rowcount
        self.assertEqual(take(old, 3), 1)
        self.assertEqual(take(new, 6), 1)
        self.assertEqual(take(old, 1), 0)
        self.assertEqual(take(new, 2), 0)
        self.assertEqual(take(new, 1), 1)
        told = " ".join(read("README.md").split())
        self.assertIn(" ".join(SQL.split()), told)

    def test_nonsense(self):
        self.server.command("SET", "rn:bad", "x")
        for name, keys, rest in (("check", ["rn"], ()),
                                 ("set", ["{rn}v", "{rn}f"], ("v",)),
                                 ("take", ["{rn}c", "{rn}f"], (1,))):
            for fence in ("x", "0", "-1", "1.5", "0x10", "1e1", " 1",
                          str(2 ** 53), ""):
                with self.assertRaises(RedisError, msg=(name, fence)):
                    self.eval(name, keys, fence, *rest)
            self.assertEqual(self.server.command("EXISTS", *keys), 0)
        with self.assertRaises(RedisError):
            self.eval("check", ["rn:bad"], 1)
        for wanted in "many", "-1", "1e1", "0x1", "", str(2 ** 53):
            with self.assertRaises(RedisError, msg=wanted):
                self.eval("take", ["{rn}c", "{rn}f"], 1, wanted)
        self.server.command("SET", "{rn}c", "x")
        with self.assertRaises(RedisError):
            self.eval("take", ["{rn}c", "{rn}f"], 1, 1)
        self.assertEqual(self.server.command("EXISTS", "{rn}f"), 0)
