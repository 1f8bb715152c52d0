"""holdfast run, lock and watch over two brokers, of which one ends."""

import json
import os
import signal
import subprocess
import sys

from fake_broker import HOLDFAST, CommandCase
from harness import Broker, shared_redis

# Starts a command, kills it, and reaps nothing of what it leaves behind.
UNREAPING = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) # PR_SET_CHILD_SUBREAPER
process = subprocess.Popen(sys.argv[1:])
sys.stdin.readline()
os.kill(process.pid, signal.SIGKILL)
process.wait()
sys.stdin.readline()
"""

# Says its fences, then waits for its input to end.
HOLD = 'echo "up $HOLDFAST_FENCE" >>%s; read line; echo down >>%s'


class MoveCase(CommandCase):
    """Brokers on one Redis, and commands that know both."""

    lease = "3s"

    def setUp(self):
        super().setUp()
        self.redis = shared_redis()
        self.one = self.holdfastd()
        self.two = self.holdfastd()

    def holdfastd(self):
        broker = Broker(self.redis, {"lease.default": self.lease})
        self.addCleanup(broker.close)
        return broker.start()

    @property
    def both(self):
        return f"{self.one.address},{self.two.address}"

    def client(self, broker=None, *lines):
        client = self.closing((broker or self.two).client(timeout=30))
        for line in lines:
            client.ok(line)
        return client

    def run_holding(self, address, *words, name="log", **popen):
        """A run that says `up FENCE` in a file, and goes on until told."""
        path = self.path(name)
        popen.setdefault("stdin", subprocess.PIPE)
        return self.start(address, "run", *words, "--", "sh", "-c",
                          HOLD % (path, path), **popen)

    def fences(self, name="log", count=1):
        return self.wait_lines(name, count)[count - 1].split()[1:]

    def let_go(self, process):
        process.stdin.close()
        return process.wait(20)

    def served_by(self, pid):
        """The broker that has the session of a process."""
        def find():
            for broker in (self.one, self.two):
                if not broker.running:
                    continue
                with broker.client() as client:
                    for item in client.ok("SESSIONS").items:
                        if item.get("name", "").endswith(f":{pid}"):
                            return broker
            return None
        return self.wait_until(find, what=f"a broker of process {pid}")

    def other(self, broker):
        return self.two if broker is self.one else self.one

    def wait_back(self, process):
        while b"serves the session" not in (
                line := process.stderr.readline()):
            self.assertNotEqual(line, b"", "it has ended")

    def wait_position(self, client, key, waiters):
        self.wait_until(lambda: int(client.ok(f"SHOW {key}")["waiters"]) ==
                        waiters, what=f"{waiters} waiters for {key}")


class RunMovesTest(MoveCase):
    def assert_kept(self, process, end, fences=1):
        """The program keeps its lock after its broker's `end`."""
        first = self.served_by(process.pid)
        second = self.other(first)
        names = self.fences()
        self.assertEqual(len(names), fences)
        rival = self.client(second)
        waiting = rival.submit("LOCK job")
        self.wait_position(rival, "job", 1)
        end(first)
        self.wait_back(process)
        holder, = [item for item in rival.ok("SHOW job").items
                   if item["kind"] == "holder"]
        self.assertIn(holder["fence"], names)
        # Longer than what is left of the lease that the first broker had.
        rival.no_reply(waiting, 4)
        self.assertIsNone(process.poll())
        self.assertEqual(self.let_go(process), 0)
        self.assertGreater(rival.wait(waiting).fence, int(holder["fence"]))
        self.assertEqual(self.wait_lines("log", 2)[1:], ["down"])

    def test_broker_is_killed(self):
        self.assert_kept(self.run_holding(self.both, "job"), Broker.kill)

    def test_broker_drains(self):
        self.assert_kept(self.run_holding(self.both, "job"), Broker.terminate)

    def test_drain_is_ordered(self):
        process = self.run_holding(self.both, "job")

        def drain(broker):
            broker.process.asked_to_end = True
            self.ends(0, broker.address, "drain")

        self.assert_kept(process, drain)

    def test_several_keys(self):
        process = self.run_holding(self.both, "job", "b", "a")
        self.assert_kept(process, Broker.kill, fences=3)

    def test_stopped_broker_is_left(self):
        process = self.run_holding(self.both, "job")
        first = self.served_by(process.pid)
        fence, = self.fences()
        first.pause()
        self.addCleanup(first.resume)
        self.wait_back(process)
        holder, = self.client(self.other(first)).ok("SHOW job").items
        self.assertEqual(holder["fence"], fence)
        first.resume()
        # It finds that the lock is not its own to release or renew.
        old = self.client(first)
        self.wait_until(lambda: not old.ok("LOCKS").items,
                        what="a broker without locks")
        holder, = self.client(self.other(first)).ok("SHOW job").items
        self.assertEqual(holder["fence"], fence)
        self.assertEqual(self.let_go(process), 0)

    def test_one_broker_that_comes_back(self):
        process = self.run_holding(self.one.address, "job")
        fence, = self.fences()
        self.one.restart(kill=True)
        self.wait_back(process)
        holder, = self.client().ok("SHOW job").items
        self.assertEqual(holder["fence"], fence)
        self.assertEqual(self.let_go(process), 0)

    def test_nobody_comes_back(self):
        process = self.run_holding(self.both, "job")
        self.fences()
        self.one.kill()
        self.two.kill()
        self.assertEqual(process.wait(20), 123)
        self.assertIn(b"before the deadline", process.stderr.read())

    def test_not_kept(self):
        process = self.run_holding(self.both, "--keep", "0", "job")
        self.fences()
        self.served_by(process.pid).kill()
        self.assertEqual(process.wait(20), 123)
        self.assertNotIn(b"warning: the broker is away", process.stderr.read())

    def test_rolling_restart(self):
        processes = [self.run_holding(self.both, f"job{i}", name=f"log{i}")
                     for i in range(6)]
        fences = [self.fences(f"log{i}") for i in range(6)]
        for broker in (self.one, self.two, self.one):
            moved = [process for process in processes
                     if self.served_by(process.pid) is broker]
            broker.restart()
            for process in moved:
                self.wait_back(process)
        client = self.client()
        for i, process in enumerate(processes):
            holder, = client.ok(f"SHOW job{i}").items
            self.assertEqual([holder["fence"]], fences[i])
            self.assertIsNone(process.poll())
        for process in processes:
            self.assertEqual(self.let_go(process), 0)


class KilledTest(MoveCase):
    """Killed by -9, though the session is kept for longer than a test."""

    lease = "40s"

    def lock_holding(self, *words):
        process = self.start(self.both, "lock", *words, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
        self.assertRegex(process.stdout.readline(), rb"^fence=[\d,]+ ttl_ms=")
        return process

    def kill(self, process):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def assert_next(self, process, kill=None, keys=("job",)):
        """A waiter at the other broker has what the killed process held."""
        rival = self.client(self.other(self.served_by(process.pid)))
        tags = [rival.submit(f"LOCK {key}") for key in keys]
        for key in keys:
            self.wait_position(rival, key, 1)
        (kill or self.kill)(process)
        for tag in tags:
            rival.granted(tag, timeout=20)

    def test_run(self):
        process = self.run_holding(self.both, "job", "more")
        self.fences()
        self.assert_next(process, keys=("job", "more"))

    def test_lock(self):
        self.assert_next(self.lock_holding("job"))

    def test_owner(self):
        self.assert_next(self.lock_holding("--owner", "till 3", "job"))

    def test_broker_is_away(self):
        """The guard waits for it."""
        process = self.run_holding(self.one.address, "job")
        self.fences()
        rival = self.client(self.two)
        waiting = rival.submit("LOCK job")
        self.wait_position(rival, "job", 1)
        self.one.kill()
        self.kill(process)
        self.one.start()
        rival.granted(waiting, timeout=20)

    def assert_unreaped_is_dead(self, *before):
        path = self.path("log")
        parent = subprocess.Popen(
            [*before, sys.executable, "-c", UNREAPING, HOLDFAST, "run", "job",
             "--", "sh", "-c", HOLD % (path, path)],
            stdin=subprocess.PIPE, env=self.environment(self.both),
            start_new_session=True)
        self.addCleanup(parent.wait)
        self.addCleanup(parent.stdin.close)
        self.fences()
        rival = self.client()
        waiting = rival.submit("LOCK job")
        self.wait_position(rival, "job", 1)
        parent.stdin.write(b"kill\n")
        parent.stdin.flush()
        rival.granted(waiting, timeout=20)
        self.assertIsNone(parent.poll())

    def test_nobody_reaps(self):
        self.assert_unreaped_is_dead()

    def test_nobody_reaps_and_proc_has_other_numbers(self):
        outside = ["unshare", "--pid", "--fork", "--kill-child"]
        try:
            subprocess.run([*outside, "true"], check=True, timeout=10,
                           capture_output=True)
        except (OSError, subprocess.SubprocessError):
            self.skipTest("no PID namespace is to be had")
        self.assert_unreaped_is_dead(*outside)

    def assert_delayed(self, process, kill=None):
        client = self.client()
        (kill or self.kill)(process)
        self.wait_until(lambda: client.ok("SHOW job")["state"] == "free",
                        20, "the end of the session")
        self.assertFalse(client.request("LOCK job wait=0").ok)

    def test_delay_after_run(self):
        process = self.run_holding(self.both, "--delay", "1h", "job")
        self.fences()
        self.assert_delayed(process)

    def test_delay_after_lock(self):
        self.assert_delayed(self.lock_holding("--delay", "1h", "job"))

    def test_no_delay_after_a_good_end(self):
        process = self.run_holding(self.both, "--delay", "1h", "job")
        self.fences()
        self.assertEqual(self.let_go(process), 0)
        process = self.lock_holding("--delay", "1h", "job")
        self.assertEqual(self.let_go(process), 0)
        self.client().ok("LOCK job wait=0")

    def test_end_at_a_broker_that_is_stopped(self):
        """The guard tells another broker if this one does not hear."""
        process = self.run_holding(self.both, "--delay", "1h", "job")
        self.fences()
        first = self.served_by(process.pid)
        first.pause()
        self.addCleanup(first.resume)
        self.assertEqual(self.let_go(process), 0)
        self.assertIn(b"unlock was not answered", process.stderr.read())
        rival = self.client(self.other(first), "LOCK job wait=20s")


class KilledWaiterTest(MoveCase):
    """A waiter that dies leaves the queue."""

    lease = "40s"

    def wait_behind(self, *words):
        """A command that waits for `job`, between two clients of ours."""
        self.holder = self.client(self.two)
        self.holder.ok("LOCK job")
        process = self.start(self.both, *words, stdin=subprocess.PIPE)
        self.wait_position(self.holder, "job", 1)
        self.rival = self.client(self.one)
        self.waiting = self.rival.submit("LOCK job")
        self.wait_position(self.holder, "job", 2)
        return process

    def assert_left(self):
        self.wait_position(self.holder, "job", 1)
        self.holder.ok("UNLOCK job")
        self.rival.granted(self.waiting)

    def killed(self, *words):
        process = self.wait_behind(*words)
        os.kill(process.pid, signal.SIGKILL)
        self.assert_left()

    def test_commands(self):
        for words in (("run", "job", "--", "true"),
                      ("run", "--shared", "job", "--", "true"),
                      # It has never held the lock: there is no delay.
                      ("run", "--delay", "1h", "job", "--", "true"),
                      ("lock", "--owner", "till 3", "job")):
            with self.subTest(words=words):
                self.killed(*words)
                self.rival.ok("UNLOCK job")

    def test_several_keys(self):
        """One of them is held already."""
        self.killed("run", "a", "job", "z", "--", "true")
        self.rival.ok("LOCK a z wait=10s")

    def test_semaphore(self):
        self.holder = self.client(self.two)
        self.holder.ok("LOCK job limit=3 permits=2")
        process = self.start(self.both, "run", "--limit", "3", "--permits",
                             "2", "job", "--", "true")
        self.wait_position(self.holder, "job", 1)
        os.kill(process.pid, signal.SIGKILL)
        self.client().ok("LOCK job limit=3 wait=10s")

    def wait_at_one(self):
        self.holder = self.client(self.two)
        self.holder.ok("LOCK job")
        process = self.start(self.one.address, "run", "job", "--", "true")
        self.wait_position(self.holder, "job", 1)
        return process

    def test_its_broker_is_killed_as_well(self):
        process = self.wait_at_one()
        self.one.kill()
        os.kill(process.pid, signal.SIGKILL)
        self.one.start()
        self.wait_position(self.holder, "job", 0)

    def test_signal_while_no_broker_is_there(self):
        process = self.wait_at_one()
        self.one.kill()
        self.assertIn(b"away", process.stderr.readline())
        process.terminate()
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.one.start()
        self.wait_position(self.holder, "job", 0)


class WaitMovesTest(MoveCase):
    def waiters(self, key, brokers):
        """Runs that wait for a lock, in this order, first at these brokers."""
        runs = []
        for i, broker in enumerate(brokers):
            while len(runs) == i:
                run = self.run_holding(self.both, key, name=f"log{i}")
                self.wait_position(self.holder, key, i + 1)
                if self.served_by(run.pid) is broker:
                    runs.append(run)
                    continue
                run.terminate()
                self.assertEqual(run.wait(20), 128 + signal.SIGTERM)
                self.wait_position(self.holder, key, i)
        return runs

    def held_by(self, key):
        self.holder = self.client(self.two)
        self.holder.ok("HELLO keep=30s")
        return self.holder.ok(f"LOCK {key}").fence

    def test_places_in_the_queue_stay(self):
        """Of four that wait, at both brokers, when one broker dies."""
        self.held_by("job")
        runs = self.waiters("job", (self.one, self.two, self.one, self.two))
        self.one.kill()
        for run in runs[::2]:
            self.wait_back(run)
        self.holder.ok("UNLOCK job")
        fences = []
        for i, run in enumerate(runs):
            fence, = self.fences(f"log{i}")
            fences.append(int(fence))
            self.assertEqual([run.poll() for run in runs[i:]],
                             [None] * (4 - i))
            self.assertEqual(self.let_go(run), 0)
        self.assertEqual(fences, sorted(fences))

    def test_places_stay_in_a_drain(self):
        self.held_by("job")
        runs = self.waiters("job", (self.one, self.two, self.one))
        self.one.stop()
        for run in runs[::2]:
            self.wait_back(run)
        self.holder.ok("UNLOCK job")
        fences = []
        for i, run in enumerate(runs):
            fences.append(int(self.fences(f"log{i}")[0]))
            self.assertEqual(self.let_go(run), 0)
        self.assertEqual(fences, sorted(fences))

    def test_wait_goes_on(self):
        self.held_by("job")
        self.ends(124, self.both, "run", "--wait", "300ms", "job", "--",
                  "true")
        run = self.run_holding(self.one.address, "--wait", "4s", "job")
        self.wait_position(self.holder, "job", 1)
        self.one.restart(kill=True)
        self.wait_back(run)
        self.assertEqual(run.wait(20), 124)
        self.assertIn(b"TIMEOUT", run.stderr.read())


class KindsTest(MoveCase):
    def test_shared(self):
        runs = [self.run_holding(self.both, "--shared", "job", name=f"log{i}")
                for i in range(3)]
        for i in range(3):
            self.fences(f"log{i}")
        client = self.client()
        shown = client.ok("SHOW job")
        self.assertEqual([item["mode"] for item in shown.items],
                         3 * ["shared"])
        writer = client.submit("LOCK job")
        self.wait_position(client, "job", 1)
        for run in runs:
            self.assertEqual(self.let_go(run), 0)
        client.granted(writer)

    def test_limit(self):
        runs = [self.run_holding(self.both, "--limit", "3", "--permits",
                                 str(permits), "pool", name=f"log{permits}")
                for permits in (1, 2)]
        for permits in (1, 2):
            self.fences(f"log{permits}")
        self.ends(124, self.both, "run", "--limit=3", "--wait=0", "pool", "--",
                  "true", err=b"BUSY")
        self.assertEqual(self.let_go(runs[1]), 0)
        self.ends(0, self.both, "run", "--limit=3", "--permits=2", "--wait=5s",
                  "pool", "--", "true")
        self.ends(125, self.both, "run", "--limit=4", "pool", "--", "true",
                  err=b"CONFLICT")
        self.assertEqual(self.let_go(runs[0]), 0)

    def test_several_keys(self):
        result = self.ends(0, self.both, "run", "b", "a b", "c", "--", "sh",
                           "-c",
                           'echo "$HOLDFAST_LOCK"; echo "$HOLDFAST_FENCE"')
        keys, fences = result.stdout.decode().splitlines()
        self.assertEqual(keys, "b a b c")
        client = self.client()
        for key, fence in zip(("b", "a%20b", "c"), fences.split()):
            again = client.ok(f"LOCK {key} wait=0").fence
            self.assertGreater(again, int(fence))

    def test_all_or_none(self):
        client = self.client()
        client.ok("LOCK b")
        result = self.ends(124, self.both, "run", "--wait", "0", "a", "b",
                           "--", "true")
        self.assertTrue(result.stderr.startswith(b"holdfast: b: BUSY"))
        client.ok("LOCK a wait=0")

    def test_lock_of_several_keys(self):
        process = self.start(self.both, "lock", "a", "b",
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = process.stdout.readline().decode()
        self.assertRegex(line, r"^fence=\d+,\d+ ttl_ms=\d+$")
        client = self.client()
        client.err("LOCK a wait=0", "BUSY")
        client.err("LOCK b wait=0", "BUSY")
        self.assertEqual(self.let_go(process), 0)
        client.ok("LOCK a wait=0")
        client.ok("LOCK b wait=0")

    def test_delay(self):
        process = self.run_holding(self.both, "--delay", "1h", "--keep", "0",
                                   "job")
        self.fences()
        client = self.client()
        self.ends(0, self.both, "break", "job")
        self.assertEqual(process.wait(20), 123)
        self.wait_until(lambda: client.ok("SHOW job")["state"] == "free")
        self.assertFalse(client.request("LOCK job wait=0").ok)

    def test_one_of_several_is_lost(self):
        process = self.run_holding(self.both, "a", "b")
        self.fences()
        self.ends(0, self.both, "break", "b", out=b"holders=1\n")
        self.assertEqual(process.wait(20), 123)
        client = self.client()
        # The other one is given back with the session.
        client.ok("LOCK a wait=10s")


class OrderTest(MoveCase):
    def test_await(self):
        client = self.client()
        fence = client.ok("LOCK job note=v%207").fence
        self.ends(124, self.both, "await", "job", "--wait", "0", err=b"BUSY")
        self.ends(64, self.both, "await", "")
        process = self.start(self.both, "await", "job", stdout=subprocess.PIPE)
        clients = [self.client(self.one), client]
        self.wait_until(lambda: any(
            item["name"] == "requests_now" and item["value"] != "0"
            for each in clients for item in each.ok("STATS").items))
        client.ok("UNLOCK job")
        self.assertEqual(process.communicate(timeout=20)[0].decode(),
                         f"fence={fence} note=v 7\n")
        self.assertEqual(process.returncode, 0)

    def test_break(self):
        process = self.run_holding(self.both, "job")
        fence, = self.fences()
        wrong = self.command(self.both, "break", "--fence",
                             str(int(fence) + 1), "job")
        self.assertEqual(wrong.stdout, b"holders=0\n")
        self.ends(0, self.both, "break", "--fence", fence, "job",
                  out=b"holders=1\n", complaint=b"")
        self.assertEqual(process.wait(20), 123)
        self.assertIn(b"lost: broken", process.stderr.read())
        self.client().ok("LOCK job wait=10s")

    def test_resize(self):
        client = self.client(self.one)
        client.ok("LOCK job limit=2 permits=2")
        self.ends(0, self.both, "resize", "--limit", "3", "job",
                  out=b"limit=3 permits=2\n")
        self.client().ok("LOCK job limit=3 wait=0")
        self.ends(1, self.both, "resize", "--limit", "3", "other",
                  err=b"NOTHELD")

    def test_kill(self):
        process = self.run_holding(self.both, "job")
        self.fences()
        broker = self.served_by(process.pid)
        session, = [item["session"] for item
                    in self.client(broker).ok("SESSIONS").items
                    if item.get("name", "").endswith(f":{process.pid}")]
        self.ends(0, broker.address, "kill", session)
        self.assertEqual(process.wait(20), 123)
        self.assertIn(b"BYE killed", process.stderr.read())
        self.client().ok("LOCK job wait=10s")
        self.ends(1, broker.address, "kill", session, err=b"no such session")

    def test_kill_of_one_that_waits(self):
        client = self.client(self.one, "LOCK job")
        process = self.run_holding(self.one.address, "job")
        self.wait_position(client, "job", 1)
        session, = [item["session"] for item in client.ok("SESSIONS").items
                    if item.get("name", "").endswith(f":{process.pid}")]
        self.ends(0, self.one.address, "kill", session)
        self.assertEqual(process.wait(20), 125)
        self.wait_position(client, "job", 0)


class WatchTest(MoveCase):
    def watch(self, *words):
        return self.start(self.both, "watch", *words, stdout=subprocess.PIPE)

    def row(self, process):
        line = process.stdout.readline().decode()
        self.assertNotEqual(line, "", "the watch has ended")
        return line.rstrip("\n").split("\t")

    def test_held_and_free_over_two_brokers(self):
        watch = self.watch("a", "b c")
        first = {tuple(self.row(watch)[:2]) for _ in range(2)}
        self.assertEqual(first, {("free", "a"), ("free", "b c")})
        for broker in (self.one, self.two):
            client = self.client(broker, "HELLO name=shop")
            fence = client.ok("LOCK a note=x owner=me").fence
            self.assertEqual(self.row(watch), [
                "held", "a", str(fence), "", "shop", "me", "x"])
            client.ok("UNLOCK a owner=me")
            self.assertEqual(self.row(watch)[:2], ["free", "a"])
        fence = client.ok("LOCK b%20c").fence
        self.assertEqual(self.row(watch)[:3], ["held", "b c", str(fence)])

    def test_members_of_a_group(self):
        watch = self.watch("--members", "pool")
        self.assertEqual(self.row(watch)[:3], ["members", "pool", "1"])
        self.assertEqual(self.row(watch)[:4], ["members", "pool", "", "0"])
        client = self.client(self.one, "HELLO name=shop")
        fence = client.ok("LOCK pool limit=2 permits=2 owner=me note=x").fence
        joined = self.row(watch)
        self.assertEqual(joined[:5], ["joined", "pool", "", "", str(fence)])
        self.assertEqual(joined[6:], ["2", "", "shop", "me", "x"])
        client.ok("UNLOCK pool owner=me")
        self.assertEqual(self.row(watch), ["left", *joined[1:]])

    def test_show_of_more_than_a_part(self):
        client = self.client(self.one)
        tags = [client.submit(f"LOCK group mode=shared owner={owner}")
                for owner in range(501)]
        for tag in tags:
            client.granted(tag)
        shown = self.ends(0, self.both, "show", "group").stdout.splitlines()
        self.assertEqual(len(shown), 501)

    def test_goes_on_at_the_other_broker(self):
        watch = self.watch("job", "-o", "json")
        self.assertEqual(json.loads(watch.stdout.readline()),
                         {"event": "free", "lock": "job"})
        with self.one.client() as client:
            watches = [item for item in client.ok("SESSIONS").items
                       if item["peer"] != self.peer_of(client)]
        first = self.one if watches else self.two
        second = self.other(first)
        client = self.client(second)
        first.kill()
        self.wait_back(watch)
        # What it has said it does not say again.
        fence = client.ok("LOCK job").fence
        self.assertEqual(json.loads(watch.stdout.readline()),
                         {"event": "held", "lock": "job", "fence": fence})
        second.kill()
        first.start()
        self.wait_back(watch)
        self.assertEqual(json.loads(watch.stdout.readline()),
                         {"event": "free", "lock": "job"})

    def peer_of(self, client):
        return "%s:%d" % client.socket.getsockname()

    def test_refused(self):
        self.ends(1, self.both, "watch", "job", "job", err=b"CONFLICT")

    def test_no_broker(self):
        self.ends(125, self.free_address(), "watch", "job", err=b"no broker")

    def test_output_is_gone(self):
        reader, writer = os.pipe()
        os.close(reader)
        watch = self.start(self.both, "watch", "job", stdout=writer)
        os.close(writer)
        self.assertIn(watch.wait(20), (125, -signal.SIGPIPE))


class AddressTest(MoveCase):
    def test_first_that_answers(self):
        nowhere = self.free_address()
        for _ in range(4):
            self.ends(0, f"{nowhere},{self.one.address}", "ping")
            self.ends(0, f"{nowhere},{self.one.address}", "run", "job", "--",
                      "true")

    def test_bad_lists(self):
        for address in ("127.0.0.1:1,", ",127.0.0.1:1", "127.0.0.1:1,,h:2"):
            self.ends(125, address, "ping", err=b"is not HOST:PORT")
