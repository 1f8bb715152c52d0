"""SIGHUP while locks are held and waited for; a bad file changes nothing."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import time
import unittest
from pathlib import Path

from harness import Authority, Broker, HarnessCase, Tls
from shared import stats

PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def socket_to(broker, wanted):
    """The daemon's end of a connection, by the address of the other end."""
    pidfd = os.pidfd_open(broker.pid)
    try:
        for name in os.listdir(f"/proc/{broker.pid}/fd"):
            number = _libc.syscall(PIDFD_GETFD, pidfd, int(name), 0)
            if number < 0:
                raise unittest.SkipTest(
                    f"no pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            with contextlib.suppress(OSError):
                with socket.socket(fileno=number) as end:
                    number = None
                    if end.getpeername() == wanted:
                        yield end
                        return
            if number is not None:
                os.close(number)
        raise AssertionError("the daemon has no such connection")
    finally:
        os.close(pidfd)


def tuned(broker, client):
    """(idle s, interval s, count, user time-out ms)."""
    with socket_to(broker, client.socket.getsockname()) as end:
        return tuple(end.getsockopt(socket.IPPROTO_TCP, option) for option in (
            socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT,
            socket.TCP_USER_TIMEOUT))


class RedisTest(HarnessCase):
    def test_unacknowledged(self):
        """A Redis whose host is gone is noticed within the command time-out."""
        redis = self.redis()
        broker = self.broker(redis, {"redis.command_timeout": "1500ms"})
        with socket_to(broker, (redis.host, redis.port)) as end:
            self.assertEqual(1500, end.getsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))


class ReloadCase(HarnessCase):
    def changed(self, broker, **overrides):
        """The changed keys of the log."""
        log = broker.reload({key.replace("__", "."): value
                             for key, value in overrides.items()})
        self.assertIn("event=reloaded ", log)
        return log.partition("changed=")[2].split()[0]


class ValuesTest(ReloadCase):
    def test_limits_of_a_session(self):
        broker = self.broker()
        client = self.client(broker, "LOCK a", "LOCK b")
        self.assertEqual(self.changed(broker, limits__holds=2), "limits.holds")
        client.err("LOCK c", "LIMIT")
        client.ok("HELD", n=2)
        self.changed(broker, limits__holds=3)
        client.ok("LOCK c")
        waiter = self.client(broker)
        self.changed(broker, limits__outstanding=1)
        waiter.waits("LOCK a")
        waiter.err("SHOW a", "LIMIT")
        self.changed(broker, limits__outstanding=2)
        waiter.ok("SHOW a")

    def test_waiters_of_a_lock(self):
        broker = self.broker()
        holder, waiter, other = (self.client(broker) for _ in range(3))
        self.changed(broker, limits__waiters=1)
        holder.ok("LOCK a")
        waiter.queued(waiter.submit("LOCK a progress=1"))
        self.assertEqual(other.err("LOCK a", "LIMIT")["limit"], "waiters")
        self.changed(broker, limits__waiters=2)
        other.queued(other.submit("LOCK a progress=1"))

    def test_output(self):
        broker = self.broker(overrides={"limits.output": "1GiB",
                                        "limits.memory": "1GiB"})
        client = self.client(broker)
        self.changed(broker, limits__output="16KiB")
        with contextlib.suppress(OSError):
            for _ in range(200):
                client.send("HELP\n" * 100)
        broker.wait_metric(
            'holdfast_connections_closed_total{reason="output"}', 1)

    def test_patience(self):
        redis = self.redis()
        broker = self.broker(redis, {"redis.patience": "1h"})
        client = self.client(broker)
        redis.kill()
        self.changed(broker, redis__patience="100ms")
        client.err("LOCK a", "UNAVAILABLE")

    def test_command_timeout(self):
        redis = self.redis()
        broker = self.broker(redis, {"redis.command_timeout": "9s"})
        client = self.client(broker, "LOCK a")
        redis.pause()
        tag = client.submit("UNLOCK a")
        self.changed(broker, redis__command_timeout="100ms")
        broker.wait_metric("holdfast_redis_timeouts_total", 1, timeout=5)
        redis.resume()
        client.wait(tag)

    def test_calls(self):
        """One operation in each call, and one call at a time."""
        broker = self.broker()
        client = self.client(broker)
        self.assertEqual(
            self.changed(broker, redis__batch=1, redis__in_flight=1),
            "redis.batch,redis.in_flight")
        before = stats(client)
        for tag in [client.submit(f"LOCK a{n}") for n in range(100)]:
            client.granted(tag)
        after = stats(client)
        self.assertEqual(after["redis_calls"] - before["redis_calls"], 100)
        self.changed(broker, redis__batch=64, redis__in_flight=64)
        before = after
        for tag in [client.submit(f"UNLOCK a{n}") for n in range(100)]:
            client.granted(tag)
        self.assertLess(
            stats(client)["redis_calls"] - before["redis_calls"], 100)

    def test_stop_grace(self):
        broker = self.broker(overrides={"session.stop_grace": "1h"})
        client = self.client(broker, "LOCK a")
        self.changed(broker, session__stop_grace="100ms")
        broker.terminate()
        self.assertEqual(client.event("DRAIN").number("grace_ms"), 100)
        self.assertEqual(broker.wait_exit(), 0)

    def test_log_level(self):
        broker = self.broker(overrides={"log.level": "error"})
        broker.reload({"log.level": "debug"})
        self.assertIn("changed=log.level", broker.log())
        broker.reload({"log.level": "error", "limits.holds": 5})
        self.assertNotIn("limits.holds", broker.log())

    def test_log_form(self):
        broker = self.broker(overrides={"log.rate": 1})
        log = broker.reload({"log.format": "json"})
        (line,) = [json.loads(each) for each in log.splitlines()
                   if '"reloaded"' in each]
        self.assertEqual(line["changed"], "log.format")
        self.assertTrue(any('"reloaded"' not in broker.reload({})
                            for _ in range(200)), "it is never held back")
        log = broker.reload({"log.rate": 0})
        self.assertIn('"event":"log_suppressed","of":"reloaded"', log)
        for _ in range(2):
            self.assertIn('"event":"reloaded"', broker.reload({}))

    def test_namespaces(self):
        broker = self.broker(overrides={"namespaces": [
            {"prefix": "a/"}, {"prefix": "b/"}]})
        client = self.client(broker)

        def granted(space):
            return broker.metrics().get(
                f'holdfast_acquisitions_total{{namespace="{space}",'
                'result="granted"}')

        def held(space):
            return broker.metrics().get(
                f'holdfast_held{{namespace="{space}"}}')
        for name in ("a/1", "b/1", "c/1"):
            client.ok(f"LOCK {name}")
        self.assertEqual(self.changed(broker, namespaces=[
            {"prefix": "c/"}, {"prefix": "b/"}]), "namespaces")
        self.assertIsNone(held("a/"))
        self.assertEqual([held(space) for space in ("b/", "c/", "other")],
                         [1, 1, 1])
        self.assertEqual([granted(space) for space in ("b/", "c/", "other")],
                         [1, 0, 1])
        client.ok("UNLOCK c/1")
        client.ok("LOCK c/2")
        self.assertEqual([held("c/"), granted("c/")], [1, 1])


class SilenceTest(ReloadCase):
    def test_of_new_connections(self):
        """Each keeps its socket options and the time it may count on."""
        broker = self.broker(overrides={
            "session.keepalive.idle": "1s", "session.keepalive.interval": "1s",
            "session.keepalive.count": 2, "session.tcp_user_timeout": "5s",
            "lease.default": "1h"})
        first = self.client(broker)
        broker.reload({"session.keepalive.idle": "60s",
                       "session.keepalive.interval": "5s",
                       "session.keepalive.count": 9,
                       "session.tcp_user_timeout": "40s"})
        second = self.client(broker)
        broker.reload({"session.tcp_user_timeout": "1s"})
        third = self.client(broker)
        for client, options, ttl_ms in (
                (first, (1, 1, 2, 5000), 3000),
                (second, (60, 5, 9, 40000), 40000),
                (third, (60, 5, 9, 1000), 1000)):
            self.assertEqual(tuned(broker, client), options)
            self.assertEqual(client.ok(f"LOCK {ttl_ms}").ttl_ms, ttl_ms)
            self.assertEqual(client.hello.number("silence_ms"), ttl_ms)


class FileTest(ReloadCase):
    def test_bad_files(self):
        broker = self.broker(overrides={"limits.holds": 2})
        client = self.client(broker)
        good = broker.config
        for text, place in (("limits: {holds: 1, holds: 3}", ":1:20: "),
                            ("limits:\n  holds: 0\n", ":2:10: "),
                            ("limits: {hol: 1}\nlog: 1\n", ":2:6: "),
                            ("limits: {hold: 1}", ":1:10: "),
                            ("\tx", ":1:1: ")):
            broker.config = text
            log = broker.reload()
            self.assertIn("event=reload_failed", log)
            self.assertNotIn("event=reloaded", log)
            self.assertIn(broker.config_path + place, log)
        os.unlink(broker.config_path)
        self.assertIn("No such file", broker.hang_up())
        metrics = broker.metrics()
        self.assertEqual(metrics['holdfast_reloads_total{result="failed"}'], 6)
        self.assertEqual(metrics["holdfast_last_reload_successful"], 0)
        client.ok("LOCK a")
        client.ok("LOCK b")
        client.err("LOCK c", "LIMIT")
        broker.config = good
        self.assertIn("changed=none", broker.reload())
        metrics = broker.metrics()
        self.assertEqual(metrics["holdfast_last_reload_successful"], 1)
        self.assertGreaterEqual(
            metrics["holdfast_last_reload_success_timestamp_seconds"],
            metrics["holdfast_start_time_seconds"])

    def test_what_needs_a_restart(self):
        broker = self.broker(overrides={"limits.name": 10})
        client = self.client(broker)
        log = broker.reload({"limits.name": 20, "lease.default": "20s",
                             "listen.backlog": 7, "limits.holds": 1})
        self.assertIn("level=warn event=reload_needs_restart "
                      "keys=listen.backlog,lease.default,limits.name", log)
        self.assertIn("changed=limits.holds", log)
        client.err("LOCK " + "x" * 11, "TOOLONG")
        client.ok("LOCK a")
        client.err("LOCK b", "LIMIT")
        self.assertIn("keys=listen.backlog,lease.default,limits.name",
                      broker.hang_up())

    def test_holds_and_waits_survive(self):
        """And two hundred reloads leave nothing behind."""
        broker = self.broker(overrides={"redis.batch": 3}, env={
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                            ":quarantine_size_mb=1"})
        holder, waiter = self.client(broker), self.client(broker)
        fences = [holder.ok(f"LOCK a{n}").fence for n in range(20)]
        tag = waiter.waits("LOCK a0")
        watcher = self.client(broker, "WATCH a0")
        busy = self.client(broker)
        self.reloads(broker, busy, 200)
        descriptors = broker.descriptors()
        resident, data = broker.rss_bytes(), self.data_kib(broker)
        self.reloads(broker, busy, 200)
        # One to the HTTP port may have been counted, or be there still.
        self.wait_until(lambda: broker.descriptors() <= descriptors)
        self.assertLess(broker.rss_bytes() - resident, 4 << 20)
        self.assertLess(self.data_kib(broker) - data, 4 << 10)
        holder.ok("HELD", n=20)
        self.assertEqual([holder.ok(f"UNLOCK a{n} fence={fence}")["count"]
                          for n, fence in enumerate(fences)], ["0"] * 20)
        fence = waiter.wait(tag).fence
        self.assertGreater(fence, fences[0])
        watcher.event("HELD", fence=fence)

    def data_kib(self, broker):
        """Address space that was asked for, touched or not."""
        with open(f"/proc/{broker.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file
                        if line.startswith("VmData:"))

    def reloads(self, broker, client, times):
        for number in range(times):
            tags = [client.submit(f"LOCK busy{n}") for n in range(10)] + \
                   [client.submit(f"UNLOCK busy{n}") for n in range(10)]
            broker.reload({
                "limits.holds": 100 + number % 2,
                "redis.in_flight": 1 + number % 3,
                "session.keepalive.idle": f"{5 + number % 2}s",
                "namespaces": [{"prefix": "busy"}] if number % 2 else []})
            for tag in tags:
                client.granted(tag)

    def test_while_it_stops(self):
        broker = self.broker(overrides={"session.stop_grace": "1h"})
        client = self.client(broker, "LOCK a")
        broker.terminate()
        client.event("DRAIN")
        broker.process.signal(signal.SIGHUP)
        broker.wait_log("event=reload_ignored why=stopping")
        client.ok("UNLOCK a")
        self.assertEqual(broker.wait_exit(), 0)

    def test_to_the_very_end(self):
        """It stops as asked, however many of them still come."""
        for _ in range(5):
            broker = self.broker(overrides={"session.stop_grace": "20ms"})
            self.client(broker).ok("LOCK a")
            broker.terminate()
            while broker.process.running:
                broker.process.signal(signal.SIGHUP)
            self.assertEqual(broker.wait_exit(), 0)

    def test_before_it_listens(self):
        """It waits until the file can be read again, which a pipe cannot."""
        broker = self.closing(Broker(self.redis()))
        pipe = os.path.join(broker.dir, "pipe")
        os.mkfifo(pipe)
        broker.spawn("-c", pipe)
        with open(pipe, "w", encoding="utf-8") as file:  # it has opened it
            broker.process.signal(signal.SIGHUP)
            time.sleep(0.05)
            file.write(Path(broker.config_path).read_text(encoding="utf-8"))
        broker.wait_ready()
        broker.wait_log("event=reload_failed")
        self.assertEqual(broker.stop(), 0)


class SecretsTest(ReloadCase):
    def test_password(self):
        redis = self.redis(requirepass="one")
        path = os.path.join(self.folder(), "password")

        def password(text):
            Path(path).write_text(text, encoding="ascii")
        password("one")
        broker = self.broker(redis, {"redis.password_file": path})
        client = self.client(broker, "LOCK a")
        redis.command("CONFIG", "SET", "requirepass", "two")
        password("two")
        self.assertEqual(self.changed(broker), "redis.password_file")
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        client.ok("LOCK b wait=10s")
        client.ok("UNLOCK a")
        password("")
        self.assertIn("is empty", broker.reload())

    def test_certificates(self):
        old, new = Authority("old"), Authority("new")
        files = os.path.join(self.folder(), "ca")
        shutil.copy(old.cert, files)
        redis = self.redis(tls=Tls(old, old.issue("node", "127.0.0.1"),
                                   clients="no"))
        broker = self.broker(redis, {"redis.tls.ca": files})
        client = self.client(broker, "LOCK a")
        node = new.issue("node", "127.0.0.1")
        redis.command("CONFIG", "SET", "tls-cert-file", node.cert,
                      "tls-key-file", node.key)
        shutil.copy(new.cert, files)
        self.assertEqual(self.changed(broker), "redis.tls.ca")
        client.ok("LOCK b")  # on the connection that there was
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        client.ok("LOCK c wait=10s")
        self.assertEqual(self.changed(broker), "none")
        Path(files).write_text("nonsense", encoding="ascii")
        self.assertIn("redis.tls.ca: ", broker.reload())
        self.assertIn("reload_needs_restart keys=redis.tls.ca",
                      broker.reload({"redis.tls": None}))
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        client.ok("LOCK d wait=10s")
