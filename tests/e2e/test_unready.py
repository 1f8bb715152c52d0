"""Why a broker grants nothing: /readyz, the page, STATUS, `holdfast status`,
the errors of clients, the log and the service manager say the same."""

import os
import socket
import subprocess

from harness import HarnessCase
from harness.certificates import Authority
from test_tls import TlsCase, tls_keys

HOLDFAST = os.environ.get("HOLDFAST") or os.path.join(
    os.path.dirname(__file__), "..", "..", "build", "holdfast")
QUICK = {"redis.patience": "100ms", "redis.command_timeout": "200ms",
         "redis.connect_timeout": "200ms"}


class SetUpTest(TlsCase):
    """Set-ups that cannot work: each has a reason of its own."""

    def unready(self, reason, redis, overrides=None, part=""):
        broker = self.broker(redis, {**QUICK, **(overrides or {})},
                             can_ask=False)
        self.wait_until(
            lambda: f"not ready: {reason}: " in broker.http("/readyz")[1], 10,
            f"the reason is {reason}")
        status, text = broker.http("/readyz")
        self.assertEqual(status, 503)
        self.assertIn(part, text)
        if reason != "slots":
            self.assertIn(f"reason={reason} since_s=", text)
        client = self.client(broker)
        reply = client.err("LOCK a wait=0", "UNAVAILABLE")
        self.assertEqual(reply["reason"], reason)
        self.assertIn(part, reply.text)
        status = client.ok("STATUS")
        self.assertEqual((status["ready"], status["reason"]), ("0", reason))
        broker.wait_log(f"event=unready reason={reason} ")
        self.assertEqual(broker.metrics().get(
            f'holdfast_unready{{reason="{reason}"}}'), 1)
        return broker

    def listen(self, backlog=8):
        server = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.addCleanup(server.close)
        return f"127.0.0.1:{server.getsockname()[1]}"

    def password(self, text):
        path = os.path.join(self.folder(), "password")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return {"redis.password_file": path}

    def test_rights(self):
        redis = self.redis(requirepass="secret")
        self.unready("password_missing", redis, part="NOAUTH")
        self.unready("password", redis, self.password("wrong"),
                     part="WRONGPASS")
        self.unready("password_unused", self.redis(), self.password("x"))
        redis = self.redis()
        redis.command("ACL", "SETUSER", "default", "-info")
        self.unready("rights", redis, part="'info'")
        redis.command("ACL", "SETUSER", "u", "on", ">p", "~x:*", "&*", "+@all")
        self.unready("rights", redis, {"redis.username": "u",
                                       **self.password("p")}, part="key")

    def test_commands(self):
        """Commands that Redis does not know, or does not allow."""
        self.unready("command", self.redis(rename_command='TIME ""'),
                     part="'TIME'")
        redis = self.redis(cluster_enabled=True)
        redis.command("ACL", "SETUSER", "default", "-cluster")
        self.unready("rights", redis, {"redis.topology": "cluster"},
                     part="cluster|slots")
        redis = self.redis(rename_command='EVALSHA ""')
        client = self.client(self.broker(redis, QUICK))
        reply = client.err("LOCK a wait=0", "UNAVAILABLE")
        self.assertEqual(reply["reason"], "command")
        redis = self.redis()
        redis.command("ACL", "SETUSER", "default", "-setrange")
        client = self.client(self.broker(redis, QUICK), "LOCK a wait=0")
        reply = client.err("LOCK a owner=b", "INTERNAL")
        self.assertIn("right in Redis", reply.line)

    def test_commands_that_locks_do_without(self):
        redis = self.redis()
        redis.command("ACL", "SETUSER", "default", "-client|id", "-publish",
                      "-client|setname")
        broker = self.broker(redis, QUICK)
        client = self.client(broker, "LOCK a wait=0")
        for command in ("CLIENT_ID", "PUBLISH", "CLIENT_SETNAME"):
            broker.wait_log("event=redis_command_missing "
                            f"node={redis.address} command={command} effect=")
        self.assertEqual(client.ok("STATUS")["ready"], "1")
        self.assertEqual(broker.log().count("command=CLIENT_ID "), 1)
        waiter = self.client(self.broker(redis, QUICK))
        waiter.submit("LOCK a")
        self.wait_until(lambda: client.ok("SHOW a")["waiters"] == "1", 10,
                        "it waits")
        client.ok("WATCH a")
        client.ok("UNLOCK a", count=0)
        self.assertEqual(client.ok("SHOW a")["holders"], "1")
        client.ok("BREAK a", holders=1)
        self.assertNotIn("redis_error", broker.log())

    def test_topologies(self):
        redis = self.redis()
        self.unready("no_cluster", redis, {"redis.topology": "cluster"})
        self.unready("no_sentinel", redis,
                     {"redis.topology": "sentinel",
                      "redis.sentinel_master": "shop"})
        other = self.redis(cluster_enabled=True)
        self.unready("in_cluster", other)
        self.unready("slots", other, {"redis.topology": "cluster"})
        replica = self.redis()
        replica.command("REPLICAOF", redis.host, redis.port)
        self.unready("replica", replica)

    def test_connections(self):
        self.unready("silent", [self.listen()], part="no answer in time")
        self.unready("name", ["nowhere.invalid:6379"])
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        broker = self.unready("refused", [f"127.0.0.1:{port}"],
                              part="start Redis, or correct redis.nodes")
        page = broker.http("/")[1]
        self.assertIn("<td>away<td>", page)
        self.assertIn("nothing listens at this address", page)
        result = subprocess.run(
            [HOLDFAST, "-a", broker.address, "-o", "tabs", "status"],
            capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout.split("\t")[:4],
                         [f"127.0.0.1:{port}", "redis", "away", "refused"])
        self.assertIn("nothing listens at this address", result.stderr)
        self.unready("no_redis", [broker.address], part="a Holdfast broker")

    def test_tls(self):
        redis = self.redis(tls=self.tls())
        self.unready("closed", redis, part="redis.tls")
        self.unready("tls_failed", self.redis(), tls_keys())
        self.unready("certificate", redis, tls_keys(ca=Authority("x").cert))


class ChangeTest(HarnessCase):
    def test_refused_and_taken_again(self):
        """It hears of the end with no client's help."""
        redis = self.redis()
        path = os.path.join(self.folder(), "notify")
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(path)
        broker = self.broker(redis, QUICK, env={"NOTIFY_SOCKET": path})
        client = self.client(broker, "LOCK a wait=0")
        redis.command("CONFIG", "SET", "min-replicas-to-write", 1)
        reply = client.err("LOCK b wait=0", "UNAVAILABLE")
        self.assertEqual(reply["reason"], "replicas_too_few")
        self.assertIn("NOREPLICAS", broker.http("/readyz")[1])
        self.assertEqual(broker.metric("ready"), 0)
        redis.command("CONFIG", "SET", "min-replicas-to-write", 0)
        self.wait_until(lambda: broker.http("/readyz")[0] == 200, 10,
                        "it is ready again")
        client.ok("LOCK b wait=0")
        self.assertEqual(client.ok("STATUS")["ready"], "1")
        manager.settimeout(10)
        told = []
        while told.count("STATUS=Ready") < 2:
            told.append(manager.recv(4096).decode())
        self.assertIn("min-replicas-to-write", told[len(told) - 2])

    def test_settles(self):
        broker = self.broker(self.redis(), {"lease.default": "2s",
                                            "redis.settle": "2s"})
        status, text = broker.http("/readyz")
        self.assertEqual(status, 503)
        self.assertRegex(text, "state=settling .* left_s=[12] ")
        client = self.client(broker)
        tag = client.submit("LOCK a progress=1")
        queued = client.queued(tag)
        self.assertEqual(queued["reason"], "settling")
        self.assertLessEqual(queued.number("after_ms"), 2001)
        client.granted(tag)
        self.assertEqual(broker.http("/readyz")[0], 200)
