"""The harness itself: what it starts works, and ends whatever happens."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading

from fake_broker import Ends
from harness import (Broker, BrokerFailure, Client, ClientError, HarnessCase,
                     Process, RedisCluster, RedisError, RedisServer, Reply,
                     encode, shared_cluster, shared_redis, slot_of, wait_until)
from harness import broker as broker_module
from harness import ports
from harness.client import decode
from harness.processes import children_of, is_running, sweep_folders

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUN = os.path.join(TESTS, "harness", "run.py")

FAKE_DAEMON = '''#!{python}
import os, re, signal, socket, sys, threading
text = open(sys.argv[2]).read()
port = int(re.search(r'tcp: \\["127.0.0.1:(\\d+)"', text).group(1))
{before}
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", port))
server.listen()
# A handler would not run where the signal comes just before accept() blocks.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
threading.Thread(target=lambda: os._exit(
    signal.sigwait([signal.SIGTERM]) - signal.SIGTERM), daemon=True).start()
while True:
    client, _ = server.accept()
    client.sendall(b"* HELLO proto=1 server=fake session=0 max_line=4096\\n")
    {after}
'''


def start_python(text, **options):
    """Python code in a process of its own that sees the harness."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)],
                            env={**os.environ, "PYTHONPATH": TESTS},
                            stdout=subprocess.PIPE, **options)


class PortTest(HarnessCase):
    def test_a_server_listens_beside_the_reservation(self):
        port = self.port()
        with socket.socket() as server, socket.socket() as other:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port.number))
            server.listen()
            self.assertFalse(ports.can_listen("127.0.0.1", port.number))
            with self.assertRaises(OSError):
                other.bind(("127.0.0.1", port.number))

    def test_reserved_twice_is_refused(self):
        port = ports.reserve()
        with socket.socket() as other:
            with self.assertRaises(OSError):
                other.bind(("127.0.0.1", port.number))
            port.release()
            other.bind(("127.0.0.1", port.number))


class EndTest(HarnessCase):
    """Nothing outlives the process that started it."""

    def started_pids(self, tail, **options):
        """Starts a process that starts things and then does `tail`."""
        child = start_python("""
            import json, os, signal, sys, threading, time
            from harness import RedisServer, Process
            server = RedisServer().start()
            started = []
            thread = threading.Thread(target=lambda: started.append(
                Process(["sleep", "600"])))
            thread.start()
            thread.join()
            print(json.dumps([server.pid, started[0].pid, server.dir]),
                  flush=True)
            time.sleep(0.2)
            assert started[0].running  # though its thread has ended
        """ + tail, **options)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        *pids, folder = json.loads(child.stdout.readline())
        for pid in pids:
            self.assertTrue(is_running(pid))
        return child, pids, folder

    def assert_dead(self, pids):
        for pid in pids:
            wait_until(lambda pid=pid: not is_running(pid), 5,
                       f"pid {pid} is dead")

    def test_exit(self):
        for tail, status in (
                ("", 0), ("\n            raise RuntimeError()", 1)):
            with self.subTest(status=status):
                child, pids, folder = self.started_pids(
                    tail, stderr=subprocess.DEVNULL)
                self.assertEqual(child.wait(10), status)
                self.assert_dead(pids)
                self.assertFalse(os.path.exists(folder))

    def test_killed(self):
        child, pids, folder = self.started_pids("""
            time.sleep(600)
        """)
        child.kill()
        child.wait(10)
        self.assert_dead(pids)
        sweep_folders()  # as the next run of the tests does
        self.assertFalse(os.path.exists(folder))

    def test_stop_kills_what_ignores_term(self):
        process = self.process(
            [sys.executable, "-c", "import signal, time\n"
             "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
             "print('ready', flush=True)\ntime.sleep(600)"])
        process.wait_log("ready")
        self.assertEqual(process.stop(timeout=0.2), -signal.SIGKILL)

    def test_wait_log_of_one_that_ended(self):
        process = self.process(["sh", "-c", "echo first"])
        with self.assertRaisesRegex(AssertionError, "first"):
            process.wait_log("second")


class RedisTest(HarnessCase):
    def test_keeps_port_over_restart(self):
        redis = self.redis()
        redis.command("SET", "a", "1")
        port = redis.port
        redis.restart(kill=True)
        self.assertEqual(redis.port, port)
        self.assertIsNone(redis.command("GET", "a"))
        self.assertEqual(redis.command("CONFIG", "GET", "maxmemory-policy"),
                         [b"maxmemory-policy", b"noeviction"])
        self.assertEqual(redis.command("DEBUG", "SLEEP", "0"), "OK")

    def test_keeps_data_where_told(self):
        redis = self.redis(appendonly=True)
        redis.command("SET", "a", "1")
        redis.restart()
        self.assertEqual(redis.command("GET", "a"), b"1")

    def test_pause(self):
        redis = self.redis()
        redis.pause()
        with self.assertRaises(TimeoutError):
            redis.command("PING", timeout=0.1)
        redis.resume()
        self.assertEqual(redis.command("PING"), "PONG")

    def test_shared_is_empty_each_time(self):
        shared_redis().command("SET", "a", "1")
        self.assertEqual(shared_redis().command("DBSIZE"), 0)

    def test_pipeline_and_errors(self):
        redis = shared_redis()
        with redis.connect() as connection:
            got = connection.pipeline(
                [("SET", "a", "x"), ("INCR", "a"), ("GET", "a"),
                 ("LRANGE", "none", 0, -1), ("GET", "none"), ("INCR", "n")])
            self.assertEqual(got[0], "OK")
            self.assertIsInstance(got[1], RedisError)
            self.assertEqual(got[1].code, "ERR")
            self.assertEqual(got[2:], [b"x", [], None, 1])
            with self.assertRaises(RedisError):
                connection.command("NONSENSE")
            self.assertEqual(connection.command("EVAL", "return {1,'a'}", 0),
                             [1, b"a"])

    def test_pubsub(self):
        redis = shared_redis()
        with redis.connect() as listener:
            listener.subscribe("news")
            redis.command("PUBLISH", "news", "hello")
            self.assertEqual(listener.message(), (b"news", b"hello"))


class ClusterTest(HarnessCase):
    def test_slot_of(self):
        cluster = shared_cluster()
        for key in ("foo", "holdfast:{a}", "{}x", "a{b}{c}", "{", "é"):
            self.assertEqual(slot_of(key), cluster.nodes[0].command(
                "CLUSTER", "KEYSLOT", key), key)

    def test_keys_are_where_node_of_says(self):
        cluster = shared_cluster()
        seen = set()
        for number in range(50):
            key = f"holdfast:{{{number}}}"
            cluster.command(key, "SET", key, number)
            seen.add(cluster.node_of(key).port)
        self.assertEqual(len(seen), 3)

    def test_slot_migrates_step_by_step(self):
        cluster = shared_cluster()
        key = "holdfast:{moving}"
        source = cluster.node_of(key)
        target = next(n for n in cluster.masters if n is not source)
        source.command("SET", key, "1")
        moving = cluster.begin_migration(slot_of(key), target)
        with self.assertRaisesRegex(RedisError, "ASK"):
            source.command("GET", "{moving}not-there")
        self.assertEqual(cluster.migrate_keys(moving), 1)
        with self.assertRaisesRegex(RedisError, "ASK"):
            source.command("GET", key)
        cluster.end_migration(moving)
        with self.assertRaisesRegex(RedisError, "MOVED"):
            source.command("GET", key)
        self.assertEqual(target.command("GET", key), b"1")
        self.assertIs(cluster.node_of(key), target)
        cluster.migrate_slot(slot_of(key), source)
        self.assertEqual(source.command("GET", key), b"1")
        cluster.wait_ok()

    def test_replica_takes_over(self):
        cluster = self.cluster(masters=3, replicas=1)
        master = cluster.masters[0]
        (replica,) = cluster.replicas_of(master)
        first, _last = cluster.slots_of(0)
        master.kill()
        cluster.failover(replica)
        cluster.wait_ok()
        self.assertIs(cluster.node_of_slot(first), replica)


class LineServer:
    """Accepts one connection and plays a script of (expected, answer)."""

    def __init__(self, script):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        self.script = script
        self.seen = []
        self.error = None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            connection, _ = self.server.accept()
            with connection, connection.makefile("rwb") as file:
                for wanted, answer in self.script:
                    if wanted is not None:
                        self.seen.append(file.readline().decode().strip())
                    file.write(answer.encode())
                    file.flush()
                file.read()
        except OSError as error:
            self.error = error

    def close(self):
        self.server.close()
        self.thread.join(5)


class ClientTest(HarnessCase):
    def start(self, *script, **options):
        server = LineServer([(None, "* HELLO proto=1 session=ab\n"), *script])
        client = Client(server.address, **options)
        self.addCleanup(server.close)
        self.addCleanup(client.close)
        return server, client

    def test_requests_events_and_items(self):
        server, client = self.start(
            ("LOCK", "* LOST a%20b fence=7 reason=expired\n"
             "1 OK fence=8,9 ttl_ms=30000 count=1 :well done\n"),
            ("LOCKS", "2 ITEM name=a\n* SAFE a\n2 ITEM name=%3Ab\n2 OK n=2\n"),
            ("X", "- ERR UNKNOWN retry=0 :no such verb\n"),
            ("U", "3 ERR NOTHELD retry=0\n"))
        self.assertEqual(client.hello["session"], "ab")
        reply = client.ok("LOCK a b wait=0", ttl_ms=30000)
        self.assertEqual(reply.fences, [8, 9])
        self.assertEqual(reply.text, "well done")
        self.assertEqual(client.event("LOST", fence=7).words, ["a b"])
        listed = client.request("LOCKS")
        self.assertEqual([item["name"] for item in listed.items], ["a", ":b"])
        self.assertEqual(client.request("X", tag=False).code, "UNKNOWN")
        client.err("U", "NOTHELD")
        self.assertEqual(client.event("SAFE").words, ["a"])
        self.assertEqual(server.seen[:2], ["1 LOCK a b wait=0", "2 LOCKS"])
        self.assertFalse(client.events)

    def test_replies_in_any_order(self):
        _server, client = self.start(
            ("a", ""), ("b", "2 OK n=2\n"), ("c", "7x OK n=7\n1 OK n=1\n"))
        first, second = client.submit("LOCK a"), client.submit("LOCK b")
        self.assertEqual(client.submit("7x LOCK c"), "7x")
        self.assertEqual(client.wait(first)["n"], "1")
        self.assertEqual(client.wait("7x")["n"], "7")
        self.assertEqual(client.wait(second)["n"], "2")

    def test_failures_are_told(self):
        _server, client = self.start(
            ("a", "1 ERR BUSY retry=1\n"), ("b", "2 ERR BUSY retry=1\n"),
            ("c", "3 OK\n"), ("d", "4 OK n=1\n5 OK\n* NEW n=1\n"))
        for told, ask, *arguments in (
                ("LOCK a: wanted OK.*BUSY", client.ok, "LOCK a"),
                ("^wanted OK.*BUSY",
                 lambda: client.granted(client.submit("LOCK b"))),
                ("c: wanted ERR BUSY.*OK", client.err, "c", "BUSY"),
                ("d: wanted n=2.*n=1", lambda: client.ok("d", n=2)),
                ("QUEUED for 5: not in time", client.waits, "LOCK e", 0.05),
                ("unwanted reply: 5 OK", client.no_reply, "5", 0.05),
                ("unwanted event: . NEW", client.no_event, "NEW", 0.05),
                ("event NEW.*not in time",
                 lambda: client.event("NEW", timeout=0.05, n=2)),
                ("wanted ERR, got: 5 OK", client.expect, "ERR"),
                ("did not close", client.at_end, 0.05)):
            with self.subTest(told), self.assertRaisesRegex(ClientError, told):
                ask(*arguments)
        client.no_reply("-", within=0.05)

    def test_end_and_expect(self):
        server, client = self.start(("a", "* BYE quit\n"))
        client.send("QUIT")
        client.expect("BYE", "quit")
        server.server.close()
        client.finish()
        self.assertEqual(client.at_end(), [])

    def test_kill_resets(self):
        server, client = self.start(("a", "x\n"))
        client.kill()
        server.thread.join(5)
        self.assertIsInstance(server.error, ConnectionResetError)

    def test_auto_pong(self):
        server, client = self.start((None, "* PING 5\n"), ("p", ""),
                                    ("a", "1 OK\n"), auto_pong=True)
        client.ok("PING")  # on its way before or after the PONG
        self.assertIn("PONG 5", server.seen)

    def test_encoding(self):
        for text in ("a b", "100%", ":x", "x:y", "k=v", "é", "~!", "\n"):
            self.assertEqual(decode(encode(text)), text)
            self.assertRegex(encode(text), r"^[!-~]+$")
        self.assertEqual(encode(":a b=%"), "%3Aa%20b%3D%25")
        self.assertEqual(Reply("3 OK note=a%3Ab").pairs, {"note": "a:b"})


class CaseTest(Ends, HarnessCase):
    def command(self, *words):
        return subprocess.CompletedProcess(words, 1, b"out", b"it is")

    def test_another_end_is_told(self):
        so = {"status": 1, "out": b"out", "err": b"is", "complaint": b"it is"}
        self.assertEqual(self.ends(broker="x", **so).args, ("x",))
        for what, other in {"status": 0, "out": b"", "err": b"was",
                            "complaint": b"is"}.items():
            with self.subTest(what), self.assertRaises(AssertionError):
                self.ends(broker="x", **{**so, what: other})

    def test_failure_of_one_side_is_told(self):
        with self.assertRaisesRegex(AssertionError, "one side"):
            self.side_by_side(self.assertTrue, (1,), (0, "one side"), (1,))


class FakeCase(HarnessCase):
    def fake(self, before="", after="pass"):
        """A program that listens where its configuration says, and greets."""
        path = os.path.join(self.folder(), "fake")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FAKE_DAEMON.format(python=sys.executable, before=before,
                                          after=after))
        os.chmod(path, 0o755)
        return path


class BrokerTest(FakeCase):
    def test_starts_and_stops(self):
        broker = self.broker(["127.0.0.1:1"], program=self.fake())
        self.assertEqual(self.client(broker).hello["server"], "fake")
        port = broker.port
        broker.restart()
        self.assertEqual(broker.port, port)
        self.assertEqual(broker.stop(), 0)
        self.assertFalse(is_running(broker.pid))

    def test_end_at_start_is_told(self):
        with self.assertRaisesRegex(BrokerFailure, "status 78.*\n.*bad line"):
            with Broker(["127.0.0.1:1"], program=self.fake(
                    "print('bad line', flush=True); sys.exit(78)")):
                pass

    def test_run_to_exit(self):
        broker = Broker(program=self.fake("print('why'); sys.exit(78)"))
        self.addCleanup(broker.close)
        self.assertEqual(broker.run_to_exit(), (78, "why\n"))

    def test_end_between_is_told(self):
        broker = Broker(program=self.fake(after="os._exit(3)")).start()
        broker.process.wait(10)
        with self.assertRaisesRegex(BrokerFailure, "by itself.*3"):
            broker.close()

    def test_sanitizer_text_is_told(self):
        broker = Broker(program=self.fake(
            "print('x.c:1: runtime error: overflow', flush=True)"))
        broker.start()
        with self.assertRaisesRegex(BrokerFailure, "runtime error"):
            broker.close()

    def test_config(self):
        merged = broker_module.merge(
            {"redis": {"nodes": ["a:1"], "x": 1}, "lease": {}},
            {"lease.default": "3s", "redis": {"x": 2}, "limits.a": 5})
        self.assertEqual(broker_module.to_yaml(merged),
                         'redis:\n  nodes: ["a:1"]\n  x: 2\n'
                         'lease:\n  default: 3s\nlimits:\n  a: 5\n')


class RunTest(FakeCase):
    """`make run`: harness/run.py with a daemon that only greets."""

    def start_run(self, program, *around, **env):
        """Starts run.py, by the command `around` if given."""
        self.ports = [ports.reserve(), ports.reserve()]
        for port in self.ports:
            self.addCleanup(port.release)
        self.run_folder = os.path.join(self.folder(), "run")
        os.makedirs(os.path.join(self.run_folder, "stale"))
        return self.process(
            [*around, sys.executable, RUN, "--port", str(self.ports[0]),
             "--admin-port", str(self.ports[1]), "--folder", self.run_folder],
            env={**os.environ, "HOLDFASTD": program, **env})

    def assert_all_end(self, signum, status):
        run = self.start_run(self.fake())
        run.wait_log("Ctrl-C ends all of it", 20)
        pids = children_of(run.pid)
        self.assertEqual(len(pids), 4)
        self.assertFalse(os.path.exists(f"{self.run_folder}/stale"))
        run.popen.send_signal(signum)
        self.assertEqual(run.wait(30), status)
        self.assert_ended(pids)

    def assert_ended(self, pids):
        for pid in pids:
            wait_until(lambda pid=pid: not is_running(pid), 5, f"{pid} ended")

    def test_interrupt(self):
        self.assert_all_end(signal.SIGINT, 0)
        self.assertFalse(os.path.exists(self.run_folder))

    def test_hangup(self):
        self.assert_all_end(signal.SIGHUP, 0)

    def test_killed(self):
        self.assert_all_end(signal.SIGKILL, -signal.SIGKILL)

    def test_killed_make(self):
        make = self.start_run(self.fake(), "sh", "-c", '"$@"; exit', "sh",
                              MAKELEVEL="1")
        make.wait_log("Ctrl-C ends all of it", 20)
        (run,) = children_of(make.pid)
        pids = children_of(run)
        self.assertEqual(len(pids), 4)
        make.popen.kill()
        self.assert_ended([run, *pids])

    def test_failure_is_passed_on(self):
        run = self.start_run(self.fake("sys.exit(78)"))
        self.assertEqual(run.wait(30), 78)

    def test_taken_port(self):
        program = self.fake()
        with socket.create_server(("127.0.0.1", 0)) as server:
            run = self.process(
                [sys.executable, RUN, "--port",
                 str(server.getsockname()[1]), "--admin-port", "1"],
                env={**os.environ, "HOLDFASTD": program})
            self.assertEqual(run.wait(30), 71)
        self.assertIn("listens there already", run.log())
        self.assertNotIn("Starting", run.log())


class SeveralTest(HarnessCase):
    def test_two_clusters_at_once(self):
        with RedisCluster() as one, RedisCluster() as two:
            self.assertEqual(len({*one.addresses, *two.addresses}), 6)

    def test_many_servers(self):
        servers = [RedisServer().spawn() for _ in range(8)]
        for server in servers:
            self.addCleanup(server.close)
        for server in servers:
            server.wait_ready()
        self.assertEqual(len({server.port for server in servers}), 8)

    def test_process_exit_status(self):
        with Process(["sh", "-c", "exit 3"], log_path=os.devnull) as process:
            self.assertEqual(process.wait(), 3)
