"""Users: AUTH, rights, Unix peers, failures, reloads; beside
unit/test_core_auth.c."""

import contextlib
import hashlib
import os
import pty
import re
import signal
import subprocess
import time
import unittest

from fake_broker import HOLDFAST, Ends
from harness import Broker, HarnessCase, shared_redis
from test_activation import has_v6

SECRETS = {"shop": "a secret of the shop", "desk": "d%sk=: secret, caf\u00e9",
           "ops": "0123456789abcdef0123456789abcdef"}
RIGHTS = {"shop": "lock=stock/* lock=nightly", "desk": "see=stock/*",
          "ops": "lock=* break=* admin"}


def line_of(user, secret, rights):
    """As anybody may compute it."""
    salt = os.urandom(16)
    digest = hashlib.sha256(salt + secret.encode()).hexdigest()
    return f"{user} secret=sha256${salt.hex()}${digest} {rights}\n"


def quoted(secret):
    return "".join(f"%{byte:02X}" for byte in secret.encode())


class AuthCase(Ends, HarnessCase):
    def setUp(self):
        self.folder_path = self.folder()
        self.users_path = os.path.join(self.folder_path, "users")
        self.write_users()

    def write_users(self, rights=None, extra=""):
        rights = RIGHTS if rights is None else rights
        with open(self.users_path, "w", encoding="ascii") as file:
            file.write("# the users of this test\n\n")
            for user, what in rights.items():
                file.write(line_of(user, SECRETS[user], what))
            file.write(extra)

    def users_broker(self, overrides=None, **options):
        return self.broker(overrides={
            "auth.users_file": self.users_path, **(overrides or {})},
            **options)

    def user(self, broker, name, **options):
        client = self.client(broker, **options)
        client.ok(f"AUTH {name} {quoted(SECRETS[name])}")
        return client

    def secret_file(self, user, secret=None):
        path = os.path.join(self.folder_path, f"secret-{user}")
        with open(path, "w", encoding="utf-8") as file:
            file.write((secret or SECRETS[user]) + "\n")
        return path

    def command(self, broker, user, *words, secret=None, address=None,
                **options):
        """`holdfast` as that user; None: as nobody."""
        env = {**os.environ, "HOLDFAST_ADDR": address or broker.address}
        env.pop("HOLDFAST_USER", None)
        if user is not None:
            env["HOLDFAST_USER"] = user
            env["HOLDFAST_SECRET_FILE"] = self.secret_file(user, secret)
        options.setdefault("input", b"")
        return subprocess.run([HOLDFAST, *words], env=env, check=False,
                              timeout=30, capture_output=True, **options)


class WireTest(AuthCase):
    def test_before_and_after(self):
        broker = self.users_broker()
        client = self.client(broker)
        self.assertEqual(client.hello["auth"], "required")
        client.err("LOCK stock/1", "AUTH")
        client.err("LOCKS", "AUTH")
        client.ok("PING")
        client.ok(f"AUTH shop {quoted(SECRETS['shop'])}")
        client.ok("LOCK stock/1 wait=1s")
        reply = client.err("LOCK desk/1", "DENIED")
        self.assertEqual((reply["right"], reply["retry"]), ("lock", "0"))
        desk = self.user(broker, "desk")
        self.assertEqual(len(desk.ok("SHOW stock/1").items), 1)
        desk.err("LOCK stock/1", "DENIED")
        desk.err("DRAIN", "DENIED")
        ops = self.user(broker, "ops")
        ops.ok("BREAK stock/1")
        client.event("LOST", reason="broken")
        self.assertEqual({item["user"] for item in ops.ok("SESSIONS").items
                          if "user" in item}, {"shop", "desk", "ops"})
        metrics = broker.metrics()
        self.assertEqual(
            metrics['holdfast_authentications_total{result="ok"}'], 3)
        self.assertEqual(
            metrics['holdfast_requests_refused_total{reason="denied"}'], 3)
        self.assertEqual(metrics[
            'holdfast_requests_refused_total{reason="unknown_user"}'], 2)

    def test_a_circle_is_told_to_administrators(self):
        """It has names of locks, and sessions, of others."""
        broker = self.users_broker()
        shop, ops = self.user(broker, "shop"), self.user(broker, "ops")
        shop.ok("LOCK stock/1")
        ops.ok("LOCK stock/2")
        shop.queued(shop.submit("LOCK stock/2 progress=1"))
        ops.submit("LOCK stock/1")
        self.wait_until(lambda: ops.ok("SLOW kind=deadlock").items, 10,
                        "it is found")
        shop.ok("SLOW kind=deadlock", n=0)
        shop.ok("SLOW", n=0)

    def test_in_one_go(self):
        """Behind AUTH, without waiting for its answer."""
        broker = self.users_broker()
        client = self.client(broker)
        client.send(f"1 AUTH shop {quoted(SECRETS['shop'])}\n"
                    "2 LOCK nightly\n3 UNLOCK nightly\n")
        for tag in "123":
            client.granted(tag)

    def test_bad_input(self):
        broker = self.users_broker()
        client = self.client(broker)
        for line in ("AUTH", "AUTH shop", "AUTH a b c", "AUTH shop x=y",
                     "AUTH shop %zz", "AUTH :a b", "AUTH shop \x01"):
            client.err(line, "BADREQ")
        client.err("AUTH " + "u" * 65 + " s", "TOOLONG")
        client.err("AUTH shop " + "s" * 256, "TOOLONG")
        client.err("LOCKS", "AUTH")
        client.ok(f"aUtH shop {quoted(SECRETS['shop'])}")

    def test_without_users(self):
        client = self.client(self.broker())
        self.assertNotIn("auth", client.hello)
        client.err("AUTH shop x", "AUTH")
        client.ok("LOCKS")

    def test_a_session_is_its_users(self):
        """Not who has only heard its ID, at this broker or at another."""
        broker = self.users_broker()
        other = self.users_broker()
        client = self.user(broker, "shop")
        session = client.ok("HELLO keep=30s")["session"]
        fence = client.ok("LOCK nightly").fence
        for thief in (self.user(broker, "ops"), self.user(other, "ops")):
            thief.ok(f"HELLO resume={session} gen=2")
            thief.err(f"CLAIM nightly fence={fence}", "LOST")
            thief.err("LOCK nightly wait=0", "BUSY")
        self.client(other).err(f"HELLO resume={session} gen=2", "AUTH")
        client.ok("HELD", n=1)
        client.kill()
        mover = self.user(other, "shop")
        mover.ok(f"HELLO keep=30s resume={session} gen=2")
        self.assertEqual(mover.ok(f"CLAIM nightly fence={fence}").fence, fence)


class FailureTest(AuthCase):
    def test_it_is_slow_for_who_fails_alone(self):
        broker = self.users_broker()
        client, other = self.client(broker), self.client(broker)
        began = time.monotonic()
        for _ in range(3):
            tag = client.submit("AUTH shop wrong")
            client.refused(tag, "AUTH")
        self.assertGreater(time.monotonic() - began, 0.25 + 0.5 + 1.0 - 0.05)
        tag = client.submit("AUTH shop wrong")
        began = time.monotonic()
        other.ok(f"AUTH shop {quoted(SECRETS['shop'])}")
        other.ok("LOCK stock/1")
        self.assertLess(time.monotonic() - began, 1.0)
        client.no_reply(tag, 0.5)
        broker.wait_metric(
            'holdfast_authentications_total{result="failed"}', 4)

    def test_a_flood(self):
        """Only so many wait; nothing else is kept of the others."""
        broker = self.users_broker()
        client = self.client(broker)
        client.send("AUTH shop wrong\n" * 1000)
        broker.wait_metric('holdfast_limits_hit_total{limit="auth"}', 900)
        client.send("AUTH shop wrong\n" * 100)
        client.kill()
        self.wait_until(lambda: broker.metric("sessions") == 0, 10,
                        "its session is gone")
        self.user(broker, "shop").ok("LOCK stock/1")

    def test_nothing_is_told(self):
        """No secret, nor an unknown user, is in the log or in a list."""
        broker = self.users_broker({"log.level": "debug"})
        client = self.client(broker)
        client.err("AUTH my-own-secret shop", "AUTH")
        client.err("AUTH shop my-own-secret", "AUTH")
        client.send("AUTH shop my-own-secret extra")
        client.send("AUTH " + "my-own-secret " * 400)
        client.ok(f"AUTH ops {quoted(SECRETS['ops'])}")
        client.ok("HELLO name=n")
        for verb in ("SESSIONS", "LOCKS", "STATS", "SLOW", "TOP", "AUDIT"):
            client.ok(verb)
        lines = "".join(line.line for line in client.lines)
        for text in (broker.log(), lines, broker.http("/")[1],
                     broker.http("/metrics")[1]):
            for secret in ("my-own-secret", SECRETS["ops"], "sha256$"):
                self.assertNotIn(secret, str(text))
        failed = re.findall("event=auth_failed (.*)", broker.log())
        self.assertEqual([words.split()[0] for words in failed],
                         ["user=unknown", 'user="shop"'])

    def test_the_log_is_not_flooded(self):
        broker = self.users_broker({"log.rate": 5})
        for _ in range(60):
            self.client(broker).submit("AUTH shop wrong")
        broker.wait_metric(
            'holdfast_authentications_total{result="failed"}', 60)
        self.assertLess(broker.log().count("event=auth_failed"), 20)


class LimitTest(AuthCase):
    def test_of_a_user(self):
        broker = self.users_broker({"limits.connections_per_user": 2,
                                    "limits.holds_per_user": 3})
        one, two = (self.user(broker, "shop") for _ in range(2))
        third = self.client(broker)
        self.assertEqual(third.err(f"AUTH shop {quoted(SECRETS['shop'])}",
                                   "LIMIT")["limit"], "user_connections")
        one.ok("LOCK stock/1")
        two.ok("LOCK stock/2")
        one.ok("LOCK stock/3")
        self.assertEqual(two.err("LOCK stock/4", "LIMIT")["limit"],
                         "user_holds")
        broker.reload({"limits.connections_per_user": 3,
                       "limits.holds_per_user": 4})
        two.ok("LOCK stock/4")
        third.ok(f"AUTH shop {quoted(SECRETS['shop'])}")

    def test_of_an_address(self):
        """Without users, too."""
        broker = self.broker(overrides={"limits.connections_per_address": 2})
        one = self.client(broker)
        self.client(broker)
        refused = self.client(broker, greet=False)
        refused.event("BYE")
        self.assertEqual(refused.lines[0].words, ["limit"])
        metrics = broker.metrics()
        self.assertEqual(metrics["holdfast_sessions_refused_total"], 1)
        self.assertEqual(metrics[
            'holdfast_limits_hit_total{limit="address"}'], 1)
        one.kill()
        self.wait_until(lambda: broker.metric("sessions") == 1, 10,
                        "its end is seen")
        self.client(broker)
        broker.reload({"limits.connections_per_address": 3})
        self.client(broker)

    @unittest.skipUnless(has_v6(), "no IPv6 here")
    def test_of_a_socket(self):
        """A Unix socket has no address, not even root's."""
        path = os.path.join(self.folder_path, "s")
        broker = Broker(shared_redis(), {
            "limits.connections_per_address": 1, "listen.unix": [path]})
        v6 = f"[::1]:{broker.port}"
        broker.config["listen"]["tcp"].append(v6)
        self._started(broker)
        self.client(v6)
        self.client(path)
        self.client(v6, greet=False).event("BYE")

    def test_of_the_time_until_auth(self):
        broker = self.users_broker({"auth.timeout": "300ms"})
        silent = self.client(broker)
        user = self.user(broker, "shop")
        silent.event("BYE")
        self.assertEqual(silent.lines[-1].words, ["auth"])
        user.ok("LOCK stock/1")
        self.assertEqual(
            broker.metric('connections_closed_total{reason="auth"}'), 1)
        broker.reload({"auth.timeout": "0s"})
        self.client(broker).ok("PING")

    def test_a_command_waits_for_room(self):
        broker = self.users_broker({"limits.connections_per_user": 1})
        first = self.user(broker, "shop")
        process = subprocess.Popen(
            [HOLDFAST, "run", "--wait", "20s", "nightly", "--", "true"],
            env={**os.environ, "HOLDFAST_ADDR": broker.address,
                 "HOLDFAST_USER": "shop",
                 "HOLDFAST_SECRET_FILE": self.secret_file("shop")},
            stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        broker.wait_metric(
            'holdfast_limits_hit_total{limit="user_connections"}', 2)
        first.ok("QUIT")
        with process.stderr:
            self.assertEqual(process.wait(20), 0, process.stderr.read())


class ReloadTest(AuthCase):
    def test_who_goes_and_who_stays(self):
        broker = self.users_broker()
        shop, desk, ops = (self.user(broker, name) for name in SECRETS)
        shop.ok("HELLO keep=30s")
        shop.ok("LOCK nightly")
        ops.ok("LOCK x")
        waiter = self.user(broker, "ops")
        tag = waiter.waits("LOCK nightly")
        with open(self.users_path, encoding="ascii") as file:
            lines = file.readlines()
        kept = [line for line in lines if line.startswith("ops")]
        with open(self.users_path, "w", encoding="ascii") as file:
            file.writelines(kept)
            file.write(line_of("desk", "another secret of desk", "see=*"))
        log = broker.hang_up()
        self.assertIn("event=reloaded changed=auth.users_file", log)
        self.assertEqual(shop.event("BYE").words, ["auth"])
        self.assertEqual(desk.event("BYE").words, ["auth"])
        waiter.granted(tag)
        ops.ok("HELD", n=1)
        self.client(broker).err(f"AUTH shop {quoted(SECRETS['shop'])}", "AUTH")
        self.client(broker).err(f"AUTH desk {quoted(SECRETS['desk'])}", "AUTH")
        self.client(broker).ok(f"AUTH desk {quoted('another secret of desk')}")

    def test_rights(self):
        broker = self.users_broker()
        with open(self.users_path, encoding="ascii") as file:
            text = file.read()
        shop, ops = self.user(broker, "shop"), self.user(broker, "ops")
        ops.ok("LOCK nightly")
        tag = shop.waits("LOCK nightly")
        with open(self.users_path, "w", encoding="ascii") as file:
            file.write(text.replace(" lock=nightly", ""))
        broker.hang_up()
        shop.refused(tag, "DENIED")
        shop.err("SHOW nightly", "DENIED")
        shop.ok("LOCK stock/1")

    def test_a_mistake_changes_nothing(self):
        broker = self.users_broker()
        shop = self.user(broker, "shop")
        self.write_users(extra="shop uid=5\n")
        log = broker.hang_up()
        self.assertIn("event=reload_failed", log)
        self.assertIn(f"auth.users_file: {self.users_path}:6:1: the user is"
                      " already in the file", log)
        shop.ok("LOCK stock/1")
        os.unlink(self.users_path)
        self.assertIn("No such file", broker.hang_up())
        self.user(broker, "shop")
        os.mkfifo(self.users_path)
        self.assertIn("not a regular file", broker.hang_up())
        self.user(broker, "shop")

    def test_users_as_such_need_a_restart(self):
        broker = self.broker()
        client = self.client(broker)
        log = broker.reload({"auth.users_file": self.users_path})
        self.assertIn("reload_needs_restart keys=auth.users_file", log)
        client.ok("LOCK a")
        broker = self.users_broker()
        log = broker.reload({"auth.users_file": ""})
        self.assertIn("reload_needs_restart keys=auth.users_file", log)
        self.client(broker).err("LOCK a", "AUTH")

    def test_the_same_file(self):
        broker = self.users_broker()
        shop = self.user(broker, "shop")
        self.assertIn("changed=none", broker.hang_up())
        shop.ok("LOCK stock/1")

    def test_many_sessions(self):
        """All of one user, who goes."""
        broker = self.users_broker()
        clients = [self.user(broker, "shop") for _ in range(200)]
        for number, client in enumerate(clients):
            client.ok(f"LOCK stock/{number}")
        ops = self.user(broker, "ops")
        with open(self.users_path, encoding="ascii") as file:
            lines = [line for line in file if not line.startswith("shop")]
        with open(self.users_path, "w", encoding="ascii") as file:
            file.writelines(lines)
        broker.hang_up()
        for client in clients:
            self.assertEqual(client.event("BYE").words, ["auth"])
        self.wait_until(lambda: not ops.ok("LOCKS").items, 10,
                        "all is given back")


class StartTest(AuthCase):
    def refused(self, overrides, status, text):
        broker = self.closing(Broker(["127.0.0.1:1"], overrides))
        got, log = broker.run_to_exit()
        self.assertEqual(got, status, log)
        self.assertIn(text, log)

    def test_mistakes(self):
        self.write_users(extra="x secret=hunter2 lock=*\n")
        self.refused({"auth.users_file": self.users_path}, 78,
                     f"auth.users_file: {self.users_path}:6:10: secret: "
                     "sha256$SALT$DIGEST expected")
        self.refused({"auth.users_file": "/none/users"}, 78,
                     "auth.users_file: /none/users: No such file")

    def test_check_and_print(self):
        broker = self.closing(Broker(["127.0.0.1:1"], {
            "auth.users_file": self.users_path, "listen.tcp": ["0.0.0.0:0"]}))
        path = broker.write_config()
        self.assertEqual(broker.run_to_exit("-t", "-c", path)[0], 0)
        status, log = broker.run_to_exit("--print-config", "-c", path)
        self.assertEqual(status, 0)
        self.assertIn(self.users_path, log)
        self.assertNotIn("sha256$", log)


class UnixTest(AuthCase):
    def unix_broker(self, extra):
        self.write_users(extra=extra)
        path = os.path.join(self.folder_path, "s")
        os.chmod(self.folder_path, 0o755)
        broker = self.users_broker({"listen.unix": [path]})
        os.chmod(path, 0o777)
        return broker, path

    def test_a_uid(self):
        broker, path = self.unix_broker(f"me uid={os.getuid()} lock=mine/*\n")
        client = self.client(path)
        self.assertNotIn("auth", client.hello)
        client.ok("LOCK mine/1")
        client.err("LOCK stock/1", "DENIED")
        self.assertEqual(client.ok("SESSIONS").items[0]["user"], "me")
        # It may be another one all the same, while it has nothing.
        client.err(f"AUTH shop {quoted(SECRETS['shop'])}", "CONFLICT")
        client.ok("UNLOCK mine/1")
        client.ok(f"AUTH shop {quoted(SECRETS['shop'])}")
        client.ok("LOCK stock/1")
        self.client(broker).err("LOCK mine/1", "AUTH")

    def test_another_uid(self):
        _, path = self.unix_broker("me uid=54321 lock=*\n")
        client = self.client(path)
        self.assertEqual(client.hello["auth"], "required")
        client.err("LOCK mine/1", "AUTH")
        self.user(path, "shop").ok("LOCK stock/1")

    @unittest.skipUnless(os.getuid() == 0, "cannot become another user")
    def test_processes_of_two(self):
        broker, path = self.unix_broker("one uid=54321 lock=a\n"
                                        "two uid=54322 lock=b\n")
        program = "import socket, sys; s = socket.socket(socket.AF_UNIX); " \
            "s.connect(sys.argv[1]); s.sendall(b'LOCK a\\nLOCK b\\n'); " \
            "s.shutdown(1); print(s.makefile().read())"
        for uid, wanted in ((54321, ("OK", "ERR DENIED")),
                            (54322, ("ERR DENIED", "OK")),
                            (54323, ("ERR AUTH", "ERR AUTH"))):
            output = subprocess.run(
                ["/usr/bin/python3", "-c", program, path], user=uid, group=uid,
                extra_groups=[], capture_output=True, text=True, check=True,
                timeout=20).stdout
            got = re.findall("^- (OK|ERR [A-Z]+)", output, re.M)
            self.assertEqual(sorted(got), sorted(wanted), output)

    def test_a_uid_that_is_taken_away(self):
        broker, path = self.unix_broker(f"me uid={os.getuid()} lock=*\n")
        client = self.client(path, "LOCK a")
        self.write_users(rights={"ops": RIGHTS["ops"]},
                         extra="me uid=54321 lock=*\n")
        broker.hang_up()
        self.assertEqual(client.event("BYE").words, ["auth"])


class CommandTest(AuthCase):
    def test_commands(self):
        broker = self.users_broker()
        self.ends(0, broker, "ops", "run", "job", "--", "sh", "-c",
                  "echo $HOLDFAST_LOCK", out=b"job\n")
        for words in (["locks"], ["sessions"], ["slow"], ["audit"], ["ping"],
                      ["show", "job"], ["break", "job"]):
            self.ends(0, broker, "ops", *words)
        result = self.ends(0, broker, "shop", "lock", "nightly")
        self.assertIn(b"fence=", result.stdout)
        self.ends(125, broker, "shop", "run", "job", "--", "true",
                  err=b"DENIED")
        self.ends(1, broker, None, "show", "job", err=b"AUTH")

    def test_options(self):
        broker = self.users_broker()
        path = self.secret_file("ops")
        for words in (["-u", "ops", "-s", path, "locks"],
                      ["locks", "-uops", "-s", path]):
            self.ends(0, broker, None, *words)
        for words, why in ((["-u", "ops", "locks"], b"HOLDFAST_SECRET_FILE"),
                           (["-s", path, "locks"], b"HOLDFAST_USER")):
            self.ends(64, broker, None, *words, err=why)
        for words, why in ((["-u", "ops", "-s", "/none", "locks"],
                            b"cannot be read: No such file"),
                           (["-u", "ops", "-s", "/dev/null", "run", "k", "--",
                             "true"], b"is empty"),
                           (["-u", "ops", "-s", "/dev/zero", "locks"],
                            b"has a control character")):
            self.ends(125, broker, None, *words, err=why)

    def test_refused(self):
        """At once, and not again and again."""
        broker = self.users_broker()
        for words in (["locks"], ["run", "job", "--", "true"], ["lock", "job"]):
            result = self.ends(125, broker, "ops", *words,
                               err=b"the broker refuses the user ops: AUTH",
                               secret="another secret altogether")
            self.assertNotIn(b"altogether", result.stderr)
        self.assertEqual(
            broker.metric('authentications_total{result="failed"}'), 3)

    def test_a_secret_is_in_no_argument(self):
        """Of the command, of its guard, or of the program that it runs."""
        broker = self.users_broker()
        result = self.ends(0, broker, "ops", "run", "job", "--", "sh", "-c",
                           "cat /proc/[0-9]*/cmdline; cat /proc/self/environ")
        self.assertIn(b"HOLDFAST_FENCE", result.stdout)
        self.assertNotIn(SECRETS["ops"].encode(), result.stdout)

    def test_a_session_moves(self):
        """The library says who it is at each broker."""
        one, two = self.users_broker(), self.users_broker()
        ready, moved = (os.path.join(self.folder_path, name)
                        for name in ("ready", "moved"))
        env = {**os.environ, "HOLDFAST_USER": "shop",
               "HOLDFAST_SECRET_FILE": self.secret_file("shop"),
               "HOLDFAST_ADDR": f"{one.address},{two.address}"}
        process = subprocess.Popen(
            [HOLDFAST, "run", "nightly", "--", "sh", "-c",
             f"touch {ready}; while [ ! -e {moved} ]; do sleep 0.1; done"],
            env=env, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.wait_until(lambda: os.path.exists(ready), 10, "it runs")
        left, gone = (two, one) if self.user(one, "ops").ok("LOCKS").items \
            else (one, two)
        gone.kill()
        self.wait_until(lambda: any(
            item.get("user") == "shop" for item in self.user(
                left, "ops").ok("SESSIONS").items), 10, "it has moved")
        with open(moved, "wb"):
            pass
        with process.stderr:
            self.assertEqual(process.wait(20), 0, process.stderr.read())

    def test_the_guard_is_the_user_too(self):
        """Killed, `run` leaves nobody waiting for the lock."""
        broker = self.users_broker()
        holder = self.user(broker, "shop")
        holder.ok("LOCK nightly")
        env = {**os.environ, "HOLDFAST_ADDR": broker.address}
        process = subprocess.Popen(
            [HOLDFAST, "-u", "shop", "-s", self.secret_file("shop"), "run",
             "nightly", "--", "true"], env=env, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        self.wait_until(lambda: holder.ok("SHOW nightly")["waiters"] == "1",
                        10, "it waits")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.wait_until(lambda: holder.ok("SHOW nightly")["waiters"] == "0",
                        10, "nobody waits")


class SecretTest(AuthCase):
    def secret(self, *words, **options):
        options.setdefault("input", b"")
        return subprocess.run([HOLDFAST, "secret", *words], check=False,
                              timeout=20, capture_output=True, **options)

    def test_of_the_input(self):
        result = self.secret("a b", input=b"a long enough secret\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        line = result.stdout.decode("ascii")
        match = re.fullmatch(
            r"a%20b secret=sha256\$([0-9a-f]{32})\$([0-9a-f]{64})\n", line)
        self.assertEqual(match.group(2), hashlib.sha256(
            bytes.fromhex(match.group(1)) + b"a long enough secret")
            .hexdigest())
        again = self.secret("a b", input=b"a long enough secret")
        self.assertNotEqual(line, again.stdout.decode("ascii"))
        with open(self.users_path, "w", encoding="ascii") as file:
            file.write(line.rstrip("\n") + " lock=*\n")
        client = self.client(self.users_broker())
        client.ok("AUTH a%20b a%20long%20enough%20secret")

    def test_a_new_one(self):
        path = os.path.join(self.folder_path, "new")
        result = self.secret("--new", path, "#op")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="ascii") as file:
            secret = file.read()
        self.assertRegex(secret, r"^[0-9a-f]{64}\n$")
        self.assertNotIn(secret.strip(), result.stdout.decode("ascii"))
        with open(self.users_path, "w", encoding="ascii") as file:
            file.write(result.stdout.decode("ascii").strip() + " admin\n")
        env = {**os.environ, "HOLDFAST_ADDR": self.users_broker().address}
        done = subprocess.run([HOLDFAST, "-u", "#op", "-s", path, "sessions"],
                              env=env, capture_output=True, check=False,
                              timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.secret("--new", path, "op")
        self.assertEqual((result.returncode, result.stdout), (125, b""))
        self.assertIn(b"File exists", result.stderr)

    def test_on_a_terminal(self):
        """It is asked for, and not shown."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(HOLDFAST, [HOLDFAST, "secret", "op"])
        output = b""
        while b"Secret: " not in output:
            output += os.read(terminal, 1000)
        os.write(terminal, b"a secret that is typed\n")
        with contextlib.suppress(OSError):
            while data := os.read(terminal, 1000):
                output += data
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertIn(b"op secret=sha256$", output)
        self.assertNotIn(b"typed", output)

    def test_refused(self):
        for text, why in ((b"", b"is empty"), (b"\n", b"is empty"),
                          (b"fifteen bytes..", b"shorter than 16"),
                          (b"x" * 256, b"longer than 255"),
                          (b"x" * 5000, b"longer than 255"),
                          (b"one line of it\ntwo\n", b"more than one line"),
                          (b"a blank at its end \n", b"ends in a blank")):
            result = self.secret("op", input=text)
            self.assertEqual((result.returncode, result.stdout), (125, b""))
            self.assertIn(why, result.stderr)
        for words in ([], ["a", "b"], [""], ["x" * 65], ["--new"],
                      ["--secret", "x", "a"]):
            self.assertEqual(self.secret(*words).returncode, 64, words)
