"""A client's end frees what it holds, whatever the end; and the broker's."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from harness import HarnessCase, shared_redis
from shared import BrokerCase, stats

# A client in a process of its own: takes locks, says so, and stays.
HOLDER = """
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
server = socket.create_connection((host, int(port)))
lines = server.makefile()
for line in sys.argv[2:]:
    server.sendall(line.encode() + b"\\n")
server.sendall(b"999 PING\\n")
for line in lines:
    print(line, end="", flush=True)
"""


class SessionEndTest(BrokerCase):
    """The lock is held by one and waited for by another."""

    def held_by_process(self, name, *before):
        process = self.process([sys.executable, "-c", HOLDER,
                                self.served.address, *before,
                                f"1 LOCK {name}"])
        process.wait_log("1 OK")
        return process

    def waits(self, name):
        client = self.connect()
        tag = client.waits(f"LOCK {name}")
        return client, tag

    def passes_on(self, waiting, since, within=3.0):
        """It came at once: not by the end of a lease, which is 30 s."""
        client, tag = waiting
        client.granted(tag)
        self.assertLess(time.monotonic() - since, within)

    def test_process_killed(self):
        process = self.held_by_process("end/killed")
        waiting = self.waits("end/killed")
        since = time.monotonic()
        process.kill()
        self.passes_on(waiting, since)

    def test_fin(self):
        holder = self.connect("LOCK end/fin")
        waiting = self.waits("end/fin")
        holder.close()
        self.passes_on(waiting, time.monotonic())

    def test_rst(self):
        holder = self.connect("LOCK end/rst")
        waiting = self.waits("end/rst")
        holder.kill()
        self.passes_on(waiting, time.monotonic())

    def test_a_waiter_and_its_requests_die(self):
        """RST: nothing that it had sent is carried out any more."""
        holder, dying = self.connect("LOCK end/pending"), self.connect()
        dying.send("1 LOCK end/pending progress=1\n2 UNLOCK end/pending\n"
                   "3 LOCK end/pending")
        dying.queued("1")
        waiting = self.waits("end/pending")
        dying.kill()
        self.wait_until(lambda: holder.ok("SHOW end/pending")["waiters"] ==
                        "1", 5, "the dead waiter left")
        holder.ok("UNLOCK end/pending")
        self.passes_on(waiting, time.monotonic())

    def test_death_with_the_grant_on_its_way(self):
        """LOCK and the end in one go: never held by the dead."""
        for number in range(60):
            dying = self.connect()
            dying.send(f"LOCK end/race-{number % 3}")
            dying.kill() if number % 2 else dying.close()
        client = self.connect()
        for number in range(3):
            client.ok(f"LOCK end/race-{number} wait=9s", count=1)

    def test_half_close(self):
        holder, client = self.connect("LOCK end/half-held"), self.connect()
        client.send("1 LOCK end/half\n2 LOCK end/half-held\n3 HELD\n"
                    "4 UNLOCK end/half\n5 LOCK end/half-2\n6 PING\n7 PING")
        client.send_raw(b"8 LOCK end/unfinished")
        client.finish()
        lines = client.at_end()
        final = {reply.tag: reply for reply in lines if reply.final}
        self.assertEqual(sorted(final), list("1234567"))
        self.assertEqual(final["2"].code, "CANCELLED")
        for tag in "134567":
            self.assertTrue(final[tag].ok, final[tag].line)
        self.assertEqual(lines[-1].line, "* BYE eof keep=0")
        other = self.connect()
        for name in ("end/half", "end/half-2", "end/unfinished"):
            other.ok(f"LOCK {name} wait=5s", count=1)

    @staticmethod
    def netcat():
        return shutil.which("nc") or shutil.which("nc.openbsd")

    def test_netcat(self):
        netcat = self.netcat()
        if netcat is None:
            self.skipTest("nc is not there")
        host, port = self.served.address.split(":")
        self.connect().ok("LOCK end/nc")
        # -N is OpenBSD's; the traditional one ends its side with -q.
        text = subprocess.run([netcat, "-h"], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=10)
        flag = ["-N"] if "-N" in text.stdout + text.stderr else ["-q", "5"]
        done = subprocess.run(
            [netcat, *flag, host, port], timeout=20, capture_output=True,
            input=b"LOCKS\nLOCK end/nc\n")
        lines = done.stdout.decode().splitlines()
        self.assertRegex(lines[0], r"^\* HELLO proto=1 ")
        self.assertIn("name=end/nc state=held", done.stdout.decode())
        self.assertRegex(lines[-2], r"^- (OK n=|ERR CANCELLED )")
        self.assertEqual(lines[-1], "* BYE eof keep=0")


class HeartbeatTest(BrokerCase):
    def test_three_missed(self):
        client = self.connect("HELLO heartbeat=200ms", "LOCK heart/missed")
        other = self.connect()
        begin = time.monotonic()
        tag = other.submit("LOCK heart/missed")
        other.granted(tag)
        self.assertGreater(time.monotonic() - begin, 0.55)
        *pings, bye = client.at_end()
        self.assertEqual(bye.line, "* BYE heartbeat keep=0")
        # A machine that stands still for a moment may swallow one.
        self.assertIn([ping.line for ping in pings],
                      (["* PING 1", "* PING 2"], ["* PING 1"]))

    def test_any_bytes_count(self):
        client = self.connect("LOCK heart/bytes", "HELLO heartbeat=300ms")
        # A line in pieces; an empty one; a PONG; what is not understood.
        for data in (b"P", b"I", b"N", b"G", b" ", b" ", b" ", b"\n", b"\n",
                     b"PONG 1\n", b"x\n"):
            time.sleep(0.2)
            client.send_raw(data)
        self.assertEqual(client.ok("HELD").number("n"), 1)

    def test_pongs_keep_it(self):
        client = self.connect("HELLO heartbeat=100ms", "LOCK heart/pong",
                              auto_pong=True)
        client.no_event("BYE", 1.0)
        client.ok("UNLOCK heart/pong", count=0)
        self.assertGreater(sum(line.word == "PING" for line in client.lines),
                           3)

    def test_without_heartbeats_silence_is_nothing(self):
        client = self.connect("LOCK heart/none")
        client.no_event("PING", 0.7)
        client.ok("UNLOCK heart/none", count=0)

    def test_stopped_process(self):
        process = self.process([sys.executable, "-c", HOLDER,
                                self.served.address, "1 HELLO heartbeat=200ms",
                                "2 LOCK heart/stopped"])
        process.wait_log("2 OK")
        process.pause()
        self.addCleanup(process.resume)
        other = self.connect()
        begin = time.monotonic()
        other.ok("LOCK heart/stopped wait=9s", count=1)
        self.assertLess(time.monotonic() - begin, 5)


class ManyLocksTest(BrokerCase):
    COUNT = 5000

    def test_a_dead_session_with_many_locks(self):
        holder, bystander = self.connect(), self.connect()
        holder.socket.settimeout(30)
        for begin in range(0, self.COUNT, 1000):
            holder.send("\n".join(f"{n} LOCK many/{n}"
                                  for n in range(begin, begin + 1000)))
            for number in range(begin, begin + 1000):
                holder.granted(f"{number}", 30)
        # One beyond all that waits for the last of them.
        waiter = self.connect()
        tag = waiter.submit(f"LOCK many/{self.COUNT - 1}")
        begin = time.monotonic()
        holder.kill()
        slowest = 0.0
        left = self.COUNT
        while left > 1:
            sent = time.monotonic()
            bystander.ok("LOCK many/bystander")
            bystander.ok("UNLOCK many/bystander", count=0)
            slowest = max(slowest, time.monotonic() - sent)
            left = stats(bystander)["tickets_now"]
            self.assertLess(time.monotonic() - begin, 20)
        waiter.granted(tag)
        self.assertLess(slowest, 2.0)
        self.free(bystander)

    def free(self, client):
        """All can be had again, without waiting."""
        for begin in range(0, self.COUNT - 1, 1000):
            names = range(begin, min(begin + 1000, self.COUNT - 1))
            client.send("\n".join(f"{n} LOCK many/{n} wait=0"
                                  for n in names))
            for number in names:
                reply = client.wait(f"{number}", 30)
                self.assertTrue(reply.ok, reply.line)


class DrainTest(HarnessCase):
    def test_term(self):
        """Holders have their time, waiters go, then all is over."""
        broker = self.broker(overrides={"session.stop_grace": "20s"})
        holder, waiter, idle = (self.client(broker) for _ in range(3))
        holder.ok("LOCK drain/one")
        tag = waiter.waits("LOCK drain/one")
        broker.terminate()
        self.assertEqual(holder.event("DRAIN")["grace_ms"], "20000")
        waiter.refused(tag, "DRAINING")
        for client in (waiter, idle):
            self.assertEqual(client.event("BYE").words, ["drain"])
            client.at_end()
        holder.err("LOCK drain/two", "DRAINING")
        holder.ok("PING")
        with self.assertRaises((OSError, AssertionError)):
            broker.client(timeout=2)
        holder.ok("UNLOCK drain/one", count=0)
        self.assertEqual(holder.event("BYE").words, ["drain"])
        self.assertEqual(broker.wait_exit(), 0)

    def test_what_is_held_after_the_grace_ends_with_its_lease(self):
        """The client that holds may be cut off, and not hear of the stop."""
        redis = shared_redis()
        short = {"session.stop_grace": "300ms", "lease.default": "1s"}
        broker = self.broker(redis, short)
        holder = self.client(broker)
        other = self.client(self.broker(redis, short))
        fence = holder.ok("LOCK drain/late").fence
        tag = other.waits("LOCK drain/late")
        broker.terminate()
        self.assertEqual(holder.event("BYE").words, ["drain"])
        self.assertEqual(broker.wait_exit(), 0)
        self.assertGreater(other.wait(tag).fence, fence)
        self.assertFalse([line for line in holder.at_end()
                          if line.word == "LOST"])

    def test_a_second_term_ends_it(self):
        broker = self.broker(overrides={"session.stop_grace": "60s"})
        holder = self.client(broker, "LOCK drain/twice")
        broker.terminate()
        holder.event("DRAIN")
        begin = time.monotonic()
        broker.process.signal(signal.SIGINT)
        self.assertEqual(broker.wait_exit(), 0)
        self.assertLess(time.monotonic() - begin, 5)
        holder.at_end()

    def test_locks_stay_in_redis(self):
        """For the session's next connection; released locks are free."""
        redis = shared_redis()
        broker, other = (self.broker(redis, {"session.stop_grace": "0s"})
                         for _ in range(2))
        holder, client = self.client(broker), self.client(other)
        fences = [holder.ok(f"LOCK drain/{number}").fence
                  for number in range(200)]
        holder.ok("UNLOCK drain/0", count=0)
        session = holder.ok("HELLO")["session"]
        self.assertEqual(broker.stop(), 0)
        client.ok("LOCK drain/0 wait=0", count=1)
        client.err("LOCK drain/1 wait=0", "BUSY")
        heir = self.client(other, f"HELLO resume={session} gen=2")
        for number in range(1, 200):
            heir.ok(f"CLAIM drain/{number} fence={fences[number]}",
                    fence=fences[number])

    def test_the_end_is_not_slept_over(self):
        """The last client and TERM at the same moment: no event follows."""
        for _ in range(8):
            broker = self.broker()
            clients = [self.client(broker) for _ in range(7)]
            broker.process.pause()
            for client in clients:
                client.close()
            broker.terminate()
            begin = time.monotonic()
            broker.process.resume()
            self.assertEqual(broker.wait_exit(), 0)
            self.assertLess(time.monotonic() - begin, 2.5)

    def test_redis_away_at_the_end(self):
        redis = self.redis()
        broker = self.broker(redis, {
            "session.stop_grace": "200ms", "redis.command_timeout": "200ms"})
        holder = self.client(broker, "LOCK drain/away")
        redis.pause()
        begin = time.monotonic()
        self.assertEqual(broker.stop(), 0)
        self.assertLess(time.monotonic() - begin, 6)
        holder.at_end()


class ServiceManagerTest(HarnessCase):
    @contextlib.contextmanager
    def managed(self, **env):
        """A broker, and the socket on which its service manager hears it."""
        path = os.path.join(self.folder(), "notify")
        with contextlib.closing(socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
            manager.bind(path)
            manager.settimeout(10)
            broker = self.broker(env={"NOTIFY_SOCKET": path, **env})
            if b"libsystemd" not in self.libraries(broker):
                self.skipTest("built without libsystemd")
            yield broker, manager

    def test_start_and_end_are_told(self):
        """READY is said to the service manager, and the end as well."""
        with self.managed() as (broker, manager):
            self.assertIn(b"READY=1", manager.recv(4096))
            broker.hang_up()
            said = self.told(manager).split(b"\n")
            self.assertEqual(said[0], b"RELOADING=1")
            self.assertRegex(said[1], rb"^MONOTONIC_USEC=\d+$")
            self.assertLessEqual(int(said[1].partition(b"=")[2]) / 1e6,
                                 time.monotonic())
            self.assertEqual(self.told(manager), b"READY=1")
            broker.stop()
            self.assertIn(b"STOPPING=1", self.told(manager))

    def test_watchdog(self):
        """The service manager hears of life twice in its time-out."""
        with self.managed(WATCHDOG_USEC="1000000") as (broker, manager):
            self.assertIn(b"READY=1", manager.recv(4096))
            began = time.monotonic()
            for _ in range(2):
                self.assertEqual(self.told(manager), b"WATCHDOG=1")
            self.assertLess(time.monotonic() - began, 1.5)
            broker.process.signal(signal.SIGSTOP)
            manager.settimeout(0.2)
            with contextlib.suppress(TimeoutError):  # said before that
                while True:
                    manager.recv(4096)
            manager.settimeout(1.5)
            with self.assertRaises(TimeoutError):
                manager.recv(4096)
            broker.process.signal(signal.SIGCONT)
            manager.settimeout(10)
            self.assertEqual(self.told(manager), b"WATCHDOG=1")

    def test_nobody_hears_it(self):
        """A service manager that stands still is not waited for."""
        with open("/proc/sys/net/unix/max_dgram_qlen",
                  encoding="ascii") as file:
            room = int(file.read())
        with self.managed(WATCHDOG_USEC="2000") as (broker, _):
            time.sleep(room / 1000 + 0.5)  # one a millisecond
            self.client(broker).ok("LOCK a")
            self.assertEqual(broker.stop(), 0)

    def test_no_watchdog(self):
        """WATCHDOG_USEC of another process (WATCHDOG_PID) is not ours."""
        with self.managed(WATCHDOG_USEC="200000", WATCHDOG_PID="1") as (
                _, manager):
            self.assertIn(b"READY=1", manager.recv(4096))
            manager.settimeout(1)
            with self.assertRaises(TimeoutError):
                self.told(manager)

    @staticmethod
    def told(manager):
        """The next message that is more than a STATUS=."""
        while True:
            message = manager.recv(4096)
            if not message.startswith(b"STATUS="):
                return message

    @staticmethod
    def libraries(broker):
        with open(f"/proc/{broker.pid}/maps", "rb") as file:
            return file.read()
