"""holdfast run: signals, and ends of a lock.

The program is mostly a family: a process and a grandchild that write a line
every few milliseconds, deaf to TERM if the test says so. "Dead" means that
nothing writes any more.
"""

import os
import signal
import sys
import time

from fake_broker import HOLDFAST, CommandCase
from harness.processes import (children_of, group_running, is_running,
                               process_state)

FAMILY = """
import os, signal, sys, time
folder, deaf = sys.argv[1], sys.argv[2] == "deaf"
if os.fork() == 0:
    name = "grandchild"
    os.fork() # and a great-grandchild that writes to the same file
else:
    name = "child"

def note(number, _):
    with open(os.path.join(folder, name + ".signals"), "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if not deaf and number == signal.SIGTERM:
        os._exit(9)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
               signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
    signal.signal(number, note)
beat = os.open(os.path.join(folder, name),
               os.O_CREAT | os.O_APPEND | os.O_WRONLY)
os.write(beat, b"%d\\n" % os.getpid())
while True:
    os.write(beat, b"%.6f\\n" % time.monotonic())
    time.sleep(0.003)
"""

class LossCase(CommandCase):
    def start_family(self, broker, deaf=False, *options, **popen):
        """Starts the family under the lock `job` and waits until it works."""
        process = self.start(broker, "run", *options, "job", "--",
                             sys.executable, "-c", FAMILY, self.folder,
                             "deaf" if deaf else "mild", **popen)
        self.group = int(self.wait_lines("child", 2)[0])
        self.wait_lines("grandchild", 4)
        self.kill_at_end(-self.group)
        return process

    def last_beat(self):
        """When anything of the family wrote last."""
        return max(float(line) for name in ("child", "grandchild")
                   for line in self.read(name).splitlines() if "." in line)

    def assert_family_dead(self):
        self.assertEqual(group_running(self.group), [])

    def assert_family_lives(self):
        before = self.last_beat()
        self.wait_until(lambda: self.last_beat() > before)

    def assert_goes_on(self, process):
        """The family lives, under its lock, and can end in its own way."""
        self.assert_family_lives()
        self.assertIsNone(process.poll())
        os.kill(self.group, signal.SIGTERM)
        self.assertEqual(process.wait(5), 9)

    def signals(self, name="child"):
        return self.read(f"{name}.signals").split()


class SignalTest(LossCase):
    def test_signals_reach_the_group(self):
        process = self.start_family(self.broker(), True)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                       signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
                       signal.SIGWINCH):
            process.send_signal(number)
            for name in ("child", "grandchild"):
                self.wait_until(lambda: number.name in self.signals(name),
                                what=f"{number.name} at the {name}")
        self.assertIsNone(process.poll())

    def test_end_by_a_forwarded_signal(self):
        process = self.start(self.broker(), "run", "job", "--", "sh", "-c",
                             f"touch {self.path('up')}; exec sleep 60")
        self.wait_until(lambda: os.path.exists(self.path("up")))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(5), 128 + signal.SIGTERM)

    def test_stop_and_continue(self):
        process = self.start_family(self.broker())
        process.send_signal(signal.SIGTSTP)
        self.wait_until(lambda: process_state(self.group) == "T")
        process.send_signal(signal.SIGCONT)
        self.wait_until(lambda: process_state(self.group) != "T")
        self.assert_goes_on(process)

    def test_stopped_program_keeps_its_lock(self):
        broker = self.broker(ttl_ms=900)
        process = self.start_family(broker)
        os.killpg(self.group, signal.SIGSTOP)
        time.sleep(1.5)
        os.killpg(self.group, signal.SIGCONT)
        self.assert_goes_on(process)


LOST = "* LOST job fence=42 reason=expired"

# name: (deaf, stopped, what the broker says, whether it dies, the complaint)
LOSSES = {
    "LOST": (False, False, "* LOST job fence=42 reason=backend", False,
             b"backend"),
    "LOST without a reason": (False, False, "* LOST job fence=42", False,
                              b"lost: the broker says so\n"),
    "LOST of a deaf family": (True, False, LOST, False, b"is lost"),
    "LOST of a stopped family": (False, True, LOST, False, b"is lost"),
    # The end of the connection ends the moment that LOST gives.
    "LOST, and a cut": (True, False, LOST, True, b"is lost"),
    "a cut": (True, False, None, True, b""),
    "BYE": (False, False, "* BYE drain", True, b"BYE drain"),
    "nonsense": (False, False, "* LOST %zz", False, b""),
}


class LostTest(LossCase):
    def test_losses(self):
        for name, (deaf, stopped, says, dies, complaint) in LOSSES.items():
            with self.subTest(loss=name):
                self.new_folder()
                broker = self.broker()
                process = self.start_family(broker, deaf)
                if stopped:
                    os.killpg(self.group, signal.SIGSTOP)
                began = time.monotonic()
                if says:
                    broker.say(says)
                if dies:
                    broker.cut()
                self.assertEqual(process.wait(5), 123)
                self.assert_family_dead()
                self.assertLess(self.last_beat() - began, 0.5 if says else 0.3)
                errors = process.stderr.read()
                self.assertIn(complaint, errors)
                self.assertLessEqual(errors.count(b"is lost"), 1)
                self.assertEqual(broker.received("UNLOCK"), [])
                if name == "LOST":
                    self.assertEqual(self.signals(), ["SIGTERM"])

    def test_deaf_descendants(self):
        """In the group, or out of it, as by job control and timeout(1)."""
        for leaves in ("", "setsid "):
            with self.subTest(leaves=leaves):
                self.new_folder()
                broker = self.broker()
                process = self.start(
                    broker, "run", "job", "--", "sh", "-c",
                    leaves + "sh -c 'trap \"\" TERM; echo $$ >$0/pid; while :;"
                    " do sleep 1; done' $0 & wait", self.folder)
                pid = int(self.wait_lines("pid")[0])
                self.kill_at_end(pid)
                broker.say(LOST)
                self.assertEqual(process.wait(5), 123)
                self.assertFalse(is_running(pid))

    def test_run_within_run(self):
        broker = self.broker(HELLO="OK session=x keep_ms=30000 gen=2")
        broker.answers["LOCK"] = lambda words: \
            "OK ttl_ms=9000 count=1 fence=%d" % (7 if words[1] == "in" else 42)
        process = self.start(
            broker, "run", "job", "--", HOLDFAST, "run", "in", "--",
            sys.executable, "-c", FAMILY, self.folder, "deaf")
        self.group = int(self.wait_lines("child", 2)[0])
        self.wait_lines("grandchild", 4)
        self.kill_at_end(-self.group)
        for connection in list(broker.connections):
            # Whichever is the outer one, it alone believes this.
            connection.sendall(b"* LOST job fence=42 reason=expired\n")
            connection.sendall(b"* SAFE in ttl_ms=9000\n")
        self.assertEqual(process.wait(5), 123)
        self.assertEqual(group_running(self.group), [])
        # The guard of the inner one is left, to end what would be kept.
        self.wait_until(lambda: any("resume=" in line for line in
                                    broker.received("HELLO")))

    def test_other_lost_locks_do_not_matter(self):
        broker = self.broker()
        process = self.start_family(broker)
        broker.say("* NEWS job fence=42\n* SAFE job ttl_ms=9000\n"
                   "* LOST other fence=42\n* LOST job fence=41")
        broker.say("* JEOPARDY job ttl_ms=500")
        while b" late; 500 ms" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        self.assert_goes_on(process)
        self.assertEqual(broker.received("UNLOCK"), ["UNLOCK job fence=42"])

    def test_warnings(self):
        broker = self.broker()
        process = self.start_family(broker)
        for event, text in (("* JEOPARDY job ttl_ms=500", b" 500 ms "),
                            ("* SAFE job ttl_ms=9000", b"renewed again"),
                            ("* DRAIN grace_ms=5000", b"broker stops")):
            broker.say(event)
            self.assertIn(text, process.stderr.readline())
        self.assert_goes_on(process)

    def test_nobody_reads_the_warnings(self):
        broker = self.broker()
        reader, writer = os.pipe()
        process = self.start_family(broker, True, stderr=writer)
        for _ in range(2000):
            broker.say("* JEOPARDY job ttl_ms=500")
        broker.say(LOST)
        self.assertEqual(process.wait(5), 123)
        self.assert_family_dead()
        os.close(reader)
        os.close(writer)

    def test_warnings_to_a_closed_pipe(self):
        broker = self.broker()
        process = self.start_family(broker)
        process.stderr.close()
        broker.say("* JEOPARDY job ttl_ms=500\n* PING 3")
        self.wait_until(lambda: broker.received("PONG"))
        self.assert_goes_on(process)


class SilenceTest(LossCase):
    def silence(self, broker, process):
        """When the last PING came that was answered; the rest is silence."""
        self.wait_until(lambda: len(broker.received("PING")) >= 2)
        broker.silent = True
        answered = [at for at, text in broker.lines if "PING" in text][-1]
        self.assertEqual(process.wait(20), 123)
        self.assert_family_dead()
        return answered

    def test_dead_before_the_deadline(self):
        for ttl_ms in (600, 2000):
            with self.subTest(ttl_ms=ttl_ms):
                broker = self.broker(ttl_ms=ttl_ms)
                process = self.start_family(broker, True)
                answered = self.silence(broker, process)
                # It was sent no later than it came.
                self.assertLess(self.last_beat(), answered + ttl_ms / 1000)
                # Nor is the lock given up long before its time.
                self.assertGreater(self.last_beat(),
                                   answered + 0.5 * ttl_ms / 1000)

    def test_term_comes_first(self):
        broker = self.broker(ttl_ms=2000)
        process = self.start_family(broker)
        self.silence(broker, process)
        self.assertEqual(self.signals(), ["SIGTERM"])
        self.assertEqual(self.signals("grandchild"), 2 * ["SIGTERM"])

    def test_pings_at_a_third_keep_it(self):
        broker = self.broker(ttl_ms=600)
        process = self.start_family(broker)
        time.sleep(2)
        self.assertIsNone(process.poll())
        self.assertGreaterEqual(len(broker.received("PING")), 8)

    def test_lease_that_ends(self):
        end = time.monotonic() + 2
        broker = self.broker()

        def left(_):
            return "OK fence=42 count=1 ttl_ms=%d" % max(
                0, 1000 * (end - time.monotonic()))

        broker.answers.update(LOCK=left, PING=left)
        process = self.start_family(broker, True, "--lease", "2s")
        self.assertEqual(process.wait(10), 123)
        self.assert_family_dead()
        self.assertLess(self.last_beat(), end)
        self.assertGreater(self.last_beat(), end - 1)

    def test_grant_that_took_long_to_come(self):
        """A grant that was under way for longer than it lasts is no grant."""
        broker = self.broker(ttl_ms=1000)
        broker.answers["LOCK"] = lambda _: time.sleep(2) or \
            "OK fence=42 ttl_ms=1000 count=1"
        process = self.start_family(broker)
        ping, = [at for at, text in broker.lines if "PING" in text][:1]
        self.assertGreater(float(self.read("child").splitlines()[1]), ping)
        time.sleep(0.5)
        self.assert_goes_on(process)

    def test_grant_that_is_over_at_once(self):
        broker = self.broker(ttl_ms=40)
        self.ends(123, broker, "run", "job", "--", "touch", self.path("ran"),
                  err=b"before the start")
        self.assertFalse(os.path.exists(self.path("ran")))


class PauseTest(LossCase):
    def test_paused_beyond_the_deadline(self):
        broker = self.broker(ttl_ms=900)
        process = self.start_family(broker, True)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        before = self.last_beat()
        process.send_signal(signal.SIGCONT)
        woken = time.monotonic()
        self.assertEqual(process.wait(5), 123)
        self.assert_family_dead()
        self.assertGreater(before, woken - 0.5)
        self.assertLess(self.last_beat() - woken, 0.2)
        self.assertEqual(self.signals(), [])

    def test_paused_for_a_moment(self):
        process = self.start_family(self.broker(ttl_ms=3000))
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        self.assert_goes_on(process)


class KilledTest(LossCase):
    def killed(self, kill):
        broker = self.broker()
        process = self.start_family(broker, True)
        guard, = (pid for pid in children_of(process.pid)
                  if pid != self.group)
        at = time.monotonic()
        kill(process.pid)
        process.wait(5)
        self.wait_until(lambda: broker.ended == 1, 2,
                        "the broker sees the end")
        self.wait_until(lambda: not is_running(guard), 2, "the guard's end")
        self.assertLess(self.last_beat() - at, 0.3)
        self.wait_until(lambda: not group_running(self.group), 1)

    def test_kill(self):
        self.killed(lambda pid: os.kill(pid, signal.SIGKILL))

    def test_kill_of_the_whole_group(self):
        self.killed(lambda pid: os.killpg(pid, signal.SIGKILL))

    def test_guard_has_a_name_of_its_own(self):
        process = self.start_family(self.broker())
        guard, = (pid for pid in children_of(process.pid)
                  if pid != self.group)
        with open(f"/proc/{guard}/comm", encoding="ascii") as file:
            self.assertEqual(file.read(), "holdfast-guard\n")
        with open(f"/proc/{guard}/cmdline", "rb") as file:
            self.assertEqual(file.read().rstrip(b"\0"), b"holdfast-guard")
        self.assertEqual(os.listdir(f"/proc/{guard}/fd"), ["0"])

    def test_guard_calls_on_every_broker(self):
        """One of them may still have in its socket what was asked of it."""
        brokers = [self.broker(HELLO="OK session=x keep_ms=30000 gen=2")
                   for _ in range(2)]
        for broker in brokers:
            def bye(_, broker=broker):
                broker.answer("QUIT", "OK")
                broker.cut()
            broker.answers.update(LOCK=None, QUIT=bye)
        process = self.start(",".join(broker.address for broker in brokers),
                             "run", "job", "--", "true")
        self.wait_until(lambda: any(broker.received("LOCK")
                                    for broker in brokers))
        for broker in brokers:
            broker.answers["LOCK"] = "ERR CANCELLED retry=1"
        process.kill()
        for broker in brokers:
            self.wait_until(lambda: broker.received("QUIT"),
                            what="the end of the session")
            self.assertIn("resume=0123456789abcdef",
                          " ".join(broker.received("HELLO")))

    def test_guard_ends_with_the_program(self):
        process = self.start(self.broker(), "run", "job", "--", "sh", "-c",
                             f"echo >{self.path('up')}; sleep 0.3")
        self.wait_lines("up")
        pids = children_of(process.pid)
        self.assertEqual(len(pids), 2)
        self.assertEqual(process.wait(5), 0)
        self.wait_until(lambda: not any(map(is_running, pids)), 2)

    def test_killed_guard_is_survived(self):
        process = self.start_family(self.broker())
        guard, = (pid for pid in children_of(process.pid)
                  if pid != self.group)
        os.kill(guard, signal.SIGKILL)
        self.assertIn(b"guard of the process group was killed",
                      process.stderr.readline())
        self.assert_family_lives()
        process.kill()
        process.wait(5)
        self.wait_until(lambda: not is_running(self.group), 2)

    def test_killed_guard_does_not_change_the_end(self):
        broker = self.broker()
        process = self.start_family(broker)
        guard, = (pid for pid in children_of(process.pid)
                  if pid != self.group)
        os.kill(guard, signal.SIGKILL)
        self.assertIn(b"guard", process.stderr.readline())
        self.assert_goes_on(process)
        self.assertEqual(broker.received("UNLOCK"), ["UNLOCK job fence=42"])
