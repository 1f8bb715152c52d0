"""Audits: all that is in Redis is looked over, whoever holds it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from fake_broker import HOLDFAST
from harness import FIRST_WORDS_AT, HarnessCase
from harness.broker import broker_path
from harness.processes import children_of, is_running

QUICK = {"lease.default": "30s", "audit.interval": "0s", "audit.pause": "1ms",
         "audit.warn_after": "0s", "audit.wait_after": "0s"}
STRICTLY = {**QUICK, "audit.warn_after": "1ms", "audit.wait_after": "1ms"}


class AuditCase(HarnessCase):
    def brokers(self, redis, config, count=2):
        return [self.broker(redis, config) for _ in range(count)]

    def audit(self, broker):
        """(findings by lock's name, "" where a key has none; final reply)."""
        client = self.client(broker)
        final = client.ok("AUDIT")
        items = {item.get("name", ""): item for item in final.items}
        self.assertEqual(len(items), len(final.items))
        return items, final

    def aged(self, client, line):
        """A LOCK that is granted, and older than a millisecond."""
        reply = client.ok(line)
        self.wait_until(lambda: self.age(client, line.split()[1]) > 1, 10,
                        "it is older than a millisecond")
        return reply

    def age(self, client, name):
        return max(item.number("age_ms")
                   for item in client.ok(f"SHOW {name}").items)


class AuditTest(AuditCase):
    def test_holds_of_all_brokers(self):
        for redis in (self.redis(), self.cluster()):
            with self.subTest(redis=type(redis).__name__):
                one, two = self.brokers(redis, STRICTLY)
                holder = self.client(one, "HELLO name=shop")
                fences = {}
                for number in range(12):
                    name = f"audit/{number}"
                    fences[name] = self.aged(
                        holder, f"LOCK {name} owner=w note=a%20b").fence
                for broker in (one, two):
                    items, final = self.audit(broker)
                    self.assertEqual(set(items), set(fences))
                    for name, item in items.items():
                        self.assertEqual(item["kind"], "held")
                        self.assertEqual(item.fence, fences[name])
                        self.assertEqual((item["client"], item["owner"],
                                          item["note"]), ("shop", "w", "a b"))
                    self.assertEqual(
                        (final["records"], final["held"], final["waiting"],
                         final["findings"]), ("12", "12", "0", "12"))
                    self.assertNotIn("skipped", final)

    def test_ages_of_a_reload(self):
        """Each namespace's are its own, whatever place it has."""
        broker = self.broker(overrides={**QUICK, "namespaces": [
            {"prefix": "a/", "warn_after": "1ms"}, {"prefix": "b/"}]})
        holder = self.client(broker)
        for name in ("a/x", "b/x", "c/x"):
            self.aged(holder, f"LOCK {name}")
        self.assertEqual(set(self.audit(broker)[0]), {"a/x"})
        broker.reload({"namespaces": [
            {"prefix": "c/", "warn_after": "1ms"}, {"prefix": "a/"},
            {"prefix": "b/", "warn_after": "1ms"}]})
        self.assertEqual(set(self.audit(broker)[0]), {"b/x", "c/x"})

    def test_nothing_is_odd(self):
        redis = self.redis()
        one, two = self.brokers(redis, QUICK)
        holder, waiter = self.client(one, "LOCK a"), self.client(two)
        waiter.queued(waiter.submit("LOCK a progress=1"))
        holder.ok("LOCK b mode=shared")
        waiter.ok("LOCK b mode=shared")
        holder.ok("LOCK free")
        holder.ok("UNLOCK free")
        items, final = self.audit(two)
        self.assertEqual(items, {})
        self.assertEqual((final["records"], final["held"], final["waiting"]),
                         ("3", "3", "1"))

    def test_an_old_wait(self):
        redis = self.redis()
        one, two = self.brokers(redis, {**QUICK, "audit.wait_after": "1ms"})
        holder, waiters = self.client(one), [self.client(two) for _ in "ab"]
        self.aged(holder, "LOCK a")
        for waiter in waiters:
            waiter.queued(waiter.submit("LOCK a progress=1 note=please"))
        self.wait_until(lambda: all(item.number("age_ms") > 1 for item in
                                    holder.ok("SHOW a").items), 10, "they wait")
        items, _ = self.audit(one)
        self.assertEqual((items["a"]["kind"], items["a"]["waiters"],
                          items["a"]["note"]), ("waiting", "2", "please"))

    def test_a_broker_is_killed(self):
        """Its processes become orphans; those of others do not."""
        redis = self.redis()
        one, two = self.brokers(redis, STRICTLY)
        doomed, living = self.client(one), self.client(two)
        fence = self.aged(doomed, "LOCK lost lease=1h note=n").fence
        self.aged(living, "LOCK kept")
        one.kill()
        items, _ = self.audit(two)
        self.assertEqual((items["lost"]["kind"], items["kept"]["kind"]),
                         ("orphan", "held"))
        self.assertEqual((items["lost"].fence, items["lost"]["note"]),
                         (fence, "n"))

    def test_what_makes_no_sense(self):
        redis = self.redis()
        broker, = self.brokers(redis, QUICK, 1)
        client = self.client(broker, "LOCK sound note=n",
                             "LOCK words owner=w note=n")
        redis.command("SETRANGE", "holdfast:{words}", FIRST_WORDS_AT, b"\xff")
        client.err("SHOW words", "INTERNAL")
        redis.command("HSET", "holdfast:{hash}", "a", "b")
        redis.command("SET", "holdfast:{text}", "what", "EX", "1000")
        redis.command("SET", "holdfast:{open", "what")
        redis.command("SET", "holdfast:{", "what")
        redis.command("SET", "holdfast:{" + 300 * "x" + "}", "what")
        redis.command("SET", "holdfast:other", "what")
        items, final = self.audit(broker)
        self.assertEqual({name: (item["kind"], item["why"])
                          for name, item in items.items()},
                         {"words": ("senseless", "record"),
                          "hash": ("senseless", "type"),
                          "text": ("senseless", "version"),
                          "open": ("senseless", "name"),
                          "": ("senseless", "name"),
                          255 * "x": ("senseless", "name")})
        self.assertEqual(final["records"], "7")

    def test_one_at_a_time(self):
        redis = self.redis()
        broker, = self.brokers(redis, {**QUICK, "audit.pause": "1m"}, 1)
        first, second = self.client(broker), self.client(broker)
        first.submit("AUDIT")
        second.err("AUDIT", "BUSY")
        first.kill()  # in the pause
        third = self.client(broker)

        def begins():
            tag = third.submit("AUDIT")
            third.ok("HELD")  # its answer comes after a refusal
            return not any(line.tag == tag for line in third.lines)

        self.wait_until(begins, 10, "the next one begins within the pause")
        second.err("AUDIT", "BUSY")

    def test_while_holders_come_and_go(self):
        redis = self.cluster()
        one, two = self.brokers(redis, {**STRICTLY, "audit.keys": 5})
        clients = [self.client(broker) for broker in (one, two)]
        watcher, audits = self.client(one), []
        for number in range(600):
            if number % 30 == 0:
                tag = watcher.submit("AUDIT")
            client = clients[number % 2]
            client.ok(f"LOCK c/{number % 40} wait=5s")
            if number >= 20:  # so that there are some that are old enough
                client.ok(f"UNLOCK c/{(number - 20) % 40}")
            if number % 30 == 29:
                audits.append(watcher.wait(tag))
                self.assertTrue(audits[-1].ok, audits[-1])
        self.assertEqual({item["kind"] for audit in audits
                          for item in audit.items}, {"held"})

    def test_a_node_is_away(self):
        redis = self.cluster()
        broker, = self.brokers(redis, {**QUICK, "redis.patience": "200ms"}, 1)
        client = self.client(broker)
        redis.masters[1].kill()
        self.assertEqual(client.ok("AUDIT", timeout=30)["skipped"], "1")


class QuorumTest(AuditCase):
    def test_holds_and_waits(self):
        nodes = [self.redis().address for _ in range(3)]
        one, two = self.brokers(
            nodes, {**STRICTLY, "redis.topology": "quorum"})
        holder, waiter = self.client(one), self.client(two)
        fence = self.aged(holder, "LOCK a note=n").fence
        waiter.queued(waiter.submit("LOCK a progress=1"))
        self.wait_until(lambda: self.audit(one)[1]["records"] == "3", 10,
                        "the node has it that was not waited for")
        items, final = self.audit(one)
        self.assertEqual((items["a"]["kind"], items["a"]["note"],
                          items["a"].fence), ("held", "n", fence))
        self.assertEqual(final["findings"], "1")
        self.wait_until(lambda: [
            item["kind"] for item in self.client(two).ok("AUDIT").items
        ].count("waiting") == 1, 10, "the wait is found where it is")


class TimeTest(AuditCase):
    """By time."""

    def test_breaks_what_is_too_old(self):
        redis = self.redis()
        config = {**QUICK, "audit.interval": "300ms",
                  "audit.break_after": "500ms",
                  "namespaces": [{"prefix": "kept/", "break_after": "0s"}]}
        one, two = self.brokers(redis, config)
        holder, other = self.client(one), self.client(two)
        fence = holder.ok("LOCK a note=n").fence
        holder.ok("LOCK kept/a")
        tag = other.submit("LOCK a")
        holder.event("LOST", reason="broken")
        self.assertGreater(other.wait(tag).fence, fence)
        other.event("LOST", reason="broken")
        self.assertEqual(holder.ok("HELD")["n"], "1")
        logs = one.log() + two.log()
        self.assertRegex(logs, rf"event=audit_finding kind=held lock=\"a\" .*"
                               rf"fence={fence} .*note=\"n\" .*broken=1")

    def test_brokers_share_the_nodes(self):
        """The broker whose mark a node has audits it, and no other."""
        redis = self.cluster()
        one, = self.brokers(redis, {**QUICK, "audit.interval": "1s"}, 1)

        def marks():
            """One of each node, all at once; they last for 0.9 s."""
            keys = [node.command("KEYS", "holdfast:audit:*")
                    for node in redis.masters]
            return all(len(each) == 1 for each in keys) and \
                [bytes(each[0]).decode() for each in keys]

        keys = self.wait_until(marks, 30, "it marks each node")
        one.stop()
        for node, key in zip(redis.masters[:2], keys):
            node.command("SET", key, "another1", "PX", 3600000)
        two, = self.brokers(redis, {**QUICK, "audit.interval": "300ms"}, 1)
        self.wait_until(lambda: len(self.nodes(two)) >= 3, 30,
                        "it audits what is left")
        self.assertEqual(set(self.nodes(two)), {"1"})
        self.assertEqual(two.metric("audit_nodes_away_total"), 0)

    @staticmethod
    def nodes(broker):
        return [line.split("nodes=")[1].split()[0] for line in
                broker.log().splitlines() if "event=audit " in line]


HOOK = """
import json, os, sys
told = {"words": sys.argv[1:], "environment": dict(os.environ),
        "open": sorted(os.readlink(f"/proc/self/fd/{fd}")
                       for fd in os.listdir("/proc/self/fd") if int(fd) < 100
                       and os.path.exists(f"/proc/self/fd/{fd}"))}
path = os.path.join(sys.argv[1], str(os.getpid()))
with open(path + ".new", "w") as file:
    json.dump(told, file)
os.rename(path + ".new", path + ".json")
"""


class HookTest(AuditCase):
    def setUp(self):
        self.dir = self.folder()
        self.redis_server = self.redis()

    def start(self, *words, **config):
        config = {f"audit.{key}": value for key, value in config.items()}
        return self.brokers(self.redis_server, {
            **QUICK, "audit.interval": "200ms", "audit.warn_after": "1ms",
            "audit.hook": list(words), **config}, 1)[0]

    def told(self):
        found = []
        for name in os.listdir(self.dir):
            if name.endswith(".json"):
                found.append(json.loads(Path(
                    os.path.join(self.dir, name)).read_text(encoding="utf-8")))
        return found

    def test_environment_and_no_shell(self):
        strange = "$(touch broken); * > x"
        script = os.path.join(self.folder(), "hook.py")
        Path(script).write_text(HOOK, encoding="utf-8")
        broker = self.start(sys.executable, script, self.dir, strange, "")
        client = self.client(broker, "HELLO name=shop")
        fence = client.ok("LOCK a%20b owner=w note=%24x%0Ay").fence
        self.wait_until(self.told, 20, "the hook is told")
        told = self.told()[0]
        self.assertEqual(told["words"], [self.dir, strange, ""])
        found = {key: value for key, value in told["environment"].items()
                 if key.startswith("HOLDFAST_")}
        for key in ("AGE_MS", "SESSION", "BROKER"):
            self.assertTrue(found.pop(f"HOLDFAST_{key}"))
        self.assertEqual(found, {
            "HOLDFAST_LOCK": "a%20b", "HOLDFAST_FINDING": "held",
            "HOLDFAST_CLIENT": "shop", "HOLDFAST_OWNER": "w",
            "HOLDFAST_NOTE": "$x%0Ay", "HOLDFAST_FENCE": str(fence),
            "HOLDFAST_NAMESPACE": "other", "HOLDFAST_BROKEN": "0",
            "HOLDFAST_DETACHED": "0",
            "HOLDFAST_WHY": ""})
        self.assertNotIn("NOTIFY_SOCKET", told["environment"])
        self.assertLessEqual(set(told["open"]), {"/dev/null"})
        broker.wait_metric('holdfast_hooks_total{result="done"}', 1)

    def test_no_zombies(self):
        broker = self.start("/bin/false")
        self.client(broker).ok("LOCK a")
        broker.wait_metric('holdfast_hooks_total{result="failed"}', 3)
        self.assertRegex(broker.log(), "event=hook_failed pid=.* status=1")
        self.wait_until(lambda: children_of(broker.pid) == [], 10,
                        "all have been waited for")

    def test_orphans(self):
        """As a container's first process it waits for orphans."""
        program = os.path.join(self.folder(), "program")
        Path(program).write_text(
            f"#!{sys.executable}\n" "import ctypes, os, sys, time\n"
            "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n" "if os.fork() == 0:\n"
            "    time.sleep(0.3)\n" "    os._exit(0)\n"
            f"os.execv('{broker_path()}', sys.argv)\n", encoding="utf-8")
        os.chmod(program, 0o700)
        hook = ["/bin/sh", "-c", "(sleep 0.01 &)"]
        for words in ([], hook):
            broker = self.broker(self.redis_server, {
                **QUICK, "audit.interval": "200ms", "audit.warn_after": "1ms",
                "audit.hook": words}, program=program)
            if words:
                self.client(broker).ok("LOCK a")
                broker.wait_metric('holdfast_hooks_total{result="done"}', 3)
            self.wait_until(lambda b=broker: children_of(b.pid) == [], 10,
                            "all have been waited for")
            broker.stop()  # the next one has all audits

    def test_too_slow(self):
        broker = self.start("/bin/sleep", "1000", hook_timeout="100ms")
        client = self.client(broker, "LOCK a")
        broker.wait_metric('holdfast_hooks_total{result="late"}', 1)
        client.ok("LOCK b")

    def test_fails_in_json(self):
        for what, word in (("exit 3", '"status":3}'),
                           ("kill -9 $$", '"signal":9}')):
            broker = self.start("/bin/sh", "-c", what)
            broker.reload({"log.format": "json"})
            self.client(broker).ok(f"LOCK {len(what)}")
            broker.wait_log('"event":"hook_failed"', 20)
            self.assertIn(word, broker.log())
            broker.stop()

    def test_too_slow_with_a_child(self):
        path = os.path.join(self.dir, "child")
        broker = self.start(
            "/bin/sh", "-c", f"sleep 1000 & echo $! > {path}.new; "
            f"mv {path}.new {path}; wait", hook_timeout="300ms")
        self.client(broker).ok("LOCK a")
        self.wait_until(lambda: os.path.exists(path), 20, "one runs")
        child = int(Path(path).read_text(encoding="ascii"))
        self.wait_until(lambda: not is_running(child), 20,
                        "what it has started is killed, too")

    def test_too_slow_in_another_group(self):
        """It is killed all the same, and when the broker stops."""
        leaves = ("import os, time; os.setpgid(0, os.getpgid(os.getppid())); "
                  "time.sleep(1000)")
        broker = self.start(sys.executable, "-c", leaves, hook_timeout="2s")
        client = self.client(broker, "LOCK a")
        broker.wait_metric('holdfast_hooks_total{result="late"}', 1, 20)
        self.wait_until(lambda: self.in_group_of(broker), 20, "another runs")
        child = self.in_group_of(broker)[0]
        client.close()
        self.assertEqual(broker.stop(), 0)
        self.assertFalse(is_running(child))

    def in_group_of(self, broker):
        with contextlib.suppress(ProcessLookupError):
            return [child for child in children_of(broker.pid)
                    if os.getpgid(child) == os.getpgid(broker.pid)]
        return []

    def test_signals_are_as_usual(self):
        path = os.path.join(self.dir, "signals")
        broker = self.start(
            "/bin/sh", "-c", f"grep ^Sig /proc/self/status > {path}.$$; "
            f"mv {path}.$$ {path}")
        self.client(broker).ok("LOCK a")
        self.wait_until(lambda: os.path.exists(path), 20, "it was run")
        with open(path, encoding="ascii") as file:
            sets = dict(line.split() for line in file if "Q" not in line)
        self.assertEqual(int(sets["SigBlk:"], 16), 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            self.assertFalse(int(sets["SigIgn:"], 16) >> number - 1 & 1)

    def test_too_many(self):
        """Some run at once, some wait, the others are counted."""
        broker = self.start("/bin/sleep", "1000", hook_timeout="1h")
        client = self.client(broker)
        for number in range(100):
            client.ok(f"LOCK {number}")
        broker.wait_metric('holdfast_hooks_total{result="dropped"}', 1, 20)
        self.assertEqual(len(children_of(broker.pid)), 4)

    def test_stop(self):
        broker = self.start("/bin/sleep", "1000", hook_timeout="1h")
        self.client(broker).ok("LOCK a")
        self.wait_until(lambda: children_of(broker.pid), 20, "one runs")
        child = children_of(broker.pid)[0]
        broker.stop()
        self.assertFalse(os.path.exists(f"/proc/{child}"))

    def test_no_such_program(self):
        broker = self.start("/no/such/program")
        client = self.client(broker, "LOCK a")
        broker.wait_metric('holdfast_hooks_total{result="failed"}', 1)
        client.ok("LOCK b")


class CommandTest(AuditCase):
    def run_audit(self, broker, *options):
        return subprocess.run(
            [HOLDFAST, "-a", broker.address, *options, "audit"],
            capture_output=True, text=True, timeout=60, check=False)

    def test_exit_status(self):
        redis = self.redis()
        broker, = self.brokers(redis, STRICTLY, 1)
        done = self.run_audit(broker)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))
        self.aged(self.client(broker), "LOCK a%20b note=n")
        done = self.run_audit(broker, "-o", "json")
        self.assertEqual(done.returncode, 1, done.stderr)
        item = json.loads(done.stdout)
        self.assertEqual((item["kind"], item["name"], item["note"]),
                         ("held", "a b", "n"))
        self.assertEqual(subprocess.run(
            [HOLDFAST, "-a", "127.0.0.1:1", "audit"], capture_output=True,
            check=False, timeout=60).returncode, 125)
