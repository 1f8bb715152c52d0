"""holdfast run on a terminal: Ctrl-C, Ctrl-Z, the foreground; a small shell
with job control runs in a pseudo-terminal."""

import os
import pty
import select
import signal
import sys
import termios
import time

from fake_broker import HOLDFAST, CommandCase
from harness.processes import process_state

# Runs argv as a job; says how it ended or stopped; takes "fg" and "bg".
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    mine = os.tcgetpgrp(0) == job
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        print("ended", os.waitstatus_to_exitcode(status), mine, flush=True)
        break
    print("stopped", mine, flush=True)
    if input().strip() == "fg":
        os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
    print("going", flush=True)
"""

REPORT = ("import os; print('foreground', os.tcgetpgrp(0) == os.getpgrp(),"
          " flush=True)")

# Programs that get a signal at once are no shell scripts. A shell between
# fork() and exec() loses SIGINT, and does not report a stop.
PAUSE = ("import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
         "print('ready', flush=True); signal.pause()")
READ = ("import sys; print('ready', flush=True);"
        "print('got', sys.stdin.readline(), flush=True)")
# Stops at TERM, as one that was told to end does not.
STOP = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGTSTP))
print("ready", flush=True)
while True:
    signal.pause()
"""
# Ends when there is a file of that name.
PAGED = ("import os, sys, time; print('ready', flush=True)\n"
         "while not os.path.exists(sys.argv[1]): time.sleep(0.01)")
# `holdfast run | reader`, holdfast being the one that the shell waits for.
PIPED = """
mkfifo "$1"
{ read line; echo "saw $line"; read line </dev/tty; echo "typed $line"
  : >"$1.read"; } <"$1" &
pipe=$1
shift
exec "$@" "$pipe.read" >"$pipe"
"""
# Says when it was made to go on, and then reads.
GO_ON = ("import signal, sys; again = [signal.SIGCONT];"
         "signal.pthread_sigmask(signal.SIG_BLOCK, again);"
         "print('ready', flush=True); signal.sigwait(again);"
         "print('done', flush=True); sys.stdin.readline()")


class TerminalTest(CommandCase):
    def start_shell(self, broker, *program):
        self.start_job(broker, HOLDFAST, "run", "job", "--", *program)

    def start_job(self, broker, *words):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.environ.update(self.environment(broker))
            os.execv(sys.executable, [sys.executable, "-c", SHELL, *words])
        self.output = ""

        def end():
            os.close(self.terminal)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

        self.addCleanup(end)

    def expect(self, text, seconds=10):
        """Reads until `text` has come; forgets what came before its end."""
        end = time.monotonic() + seconds
        while text not in self.output:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [],
                                              left)[0]:
                self.fail(f"no '{text}' in {self.output!r}")
            try:
                self.output += os.read(self.terminal, 4096).decode()
            except OSError:
                self.fail(f"no '{text}' in {self.output!r}")
        self.output = self.output.partition(text)[2]

    def type(self, text):
        os.write(self.terminal, text.encode())

    def test_program_has_the_foreground(self):
        self.start_shell(self.broker(), sys.executable, "-c", REPORT)
        self.expect("foreground True")
        self.expect("ended 0 True")

    def test_program_reads_the_terminal(self):
        self.start_shell(self.broker(), "sh", "-c",
                         "echo ready; read line; echo \"got $line\"")
        self.expect("ready")
        self.type("hello\n")
        self.expect("got hello")
        self.expect("ended 0 True")

    def test_interrupt(self):
        self.start_shell(self.broker(), sys.executable, "-c", PAUSE)
        self.expect("ready")
        self.type("\x03")
        self.expect("ended 130 True")

    def test_interrupt_while_waiting(self):
        broker = self.broker(LOCK=None)
        self.start_shell(broker, "true")
        self.wait_until(lambda: broker.received("LOCK"))
        self.type("\x03")
        self.expect("ended 130 True")

    def test_stop_and_foreground(self):
        self.start_shell(self.broker(), sys.executable, "-c", READ)
        self.expect("ready")
        self.type("\x1a")
        self.expect("stopped True")
        self.type("fg\n")
        self.expect("going")  # or the two write across one another
        self.type("hello\n")
        self.expect("got hello")
        self.expect("ended 0 True")

    def test_stop_and_background(self):
        self.start_shell(self.broker(), sys.executable, "-c", GO_ON)
        self.expect("ready")
        self.type("\x1a")
        self.expect("stopped True")
        self.type("bg\n")
        self.expect("done")
        # It reads from the background: stopped again, by SIGTTIN.
        self.expect("stopped False")
        self.type("fg\n")
        self.type("x\n")
        self.expect("ended 0 True")

    def test_stopped_beyond_the_deadline(self):
        broker = self.broker(ttl_ms=800)
        self.start_shell(broker, sys.executable, "-c", PAUSE)
        self.expect("ready")
        self.type("\x1a")
        self.expect("stopped True")
        time.sleep(1.5)
        self.type("fg\n")
        self.expect("the lock is lost")
        self.expect("ended 123 True")

    def test_modes_come_back_after_a_kill(self):
        broker = self.broker()
        self.start_shell(broker, "sh", "-c",
                         "stty -echo -icanon; echo ready; sleep 60")
        self.expect("ready")
        self.assertFalse(termios.tcgetattr(self.terminal)[3] & termios.ICANON)
        broker.cut()
        self.expect("ended 123 True")
        self.assertTrue(termios.tcgetattr(self.terminal)[3] & termios.ICANON)

    def test_modes_stay_where_the_shell_has_the_terminal(self):
        broker = self.broker()
        self.start_shell(broker, sys.executable, "-c", PAUSE)
        self.expect("ready")
        self.type("\x1a")
        self.expect("stopped True")
        modes = termios.tcgetattr(self.terminal)
        self.type("bg\n")
        self.expect("going")
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self.terminal, termios.TCSANOW, modes)
        broker.cut()
        self.expect("ended 123 False")
        self.assertFalse(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def test_input_that_is_no_terminal(self):
        """So it needs no foreground, which stays where it is."""
        self.start_job(self.broker(), "/bin/sh", "-c",
                       'exec "$@" </dev/null', "-", HOLDFAST, "run", "job",
                       "--", sys.executable, "-c", REPORT.replace("(0)", "(1)"))
        self.expect("foreground False")
        self.expect("ended 0 True")

    def test_pager_behind_a_pipe_has_the_terminal(self):
        self.start_job(
            self.broker(), "/bin/sh", "-c", PIPED, "-", self.path("pipe"),
            HOLDFAST, "run", "job", "--", sys.executable, "-c", PAGED)
        self.expect("saw ready")
        self.type("page\n")
        self.expect("typed page")
        self.expect("ended 0 True")

    def test_stop_instead_of_an_end(self):
        broker = self.broker()
        self.start_shell(broker, sys.executable, "-c", STOP)
        self.expect("ready")
        broker.say("* LOST job fence=42 reason=expired")
        self.expect("ended 123 True")

    def test_stop_while_waiting(self):
        broker = self.broker(LOCK=None)
        self.start_shell(broker, "echo", "done")
        self.wait_until(lambda: broker.received("LOCK"))
        self.type("\x1a")
        self.expect("stopped True")
        self.type("fg\n")
        self.expect("going")
        broker.answer("LOCK", "OK fence=7 ttl_ms=9000 count=1")
        self.expect("done")
        self.expect("ended 0 True")

    def test_stop_of_lock(self):
        broker = self.broker()
        self.start_job(broker, HOLDFAST, "lock", "job")
        self.expect("fence=42")
        self.type("\x1a")
        self.expect("stopped True")
        self.assertEqual(broker.received("UNLOCK"), [])
        self.type("fg\n")
        self.expect("going")
        self.type("\x03")
        self.expect("ended 0 True")
        self.assertEqual(broker.received("UNLOCK"), ["UNLOCK job fence=42"])

    def test_hangup_reaches_the_program(self):
        pid_file = self.path("pid")
        self.start_shell(self.broker(), "sh", "-c",
                         f"echo $$ >{pid_file}; echo ready; exec sleep 60")
        self.expect("ready")
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
        self.kill_at_end(pid)
        self.terminal, terminal = os.open(os.devnull, os.O_RDONLY), \
            self.terminal
        os.close(terminal)
        self.wait_until(lambda: process_state(pid) in "ZX", 5)
