#!/usr/bin/env python3
"""Runs all the test suites and adds up what they count.

Each suite is a program that prints `N passed, N failed, N skipped` as its last
such line. All of them run, whatever one of them does. A suite without that
line, with a bad exit status or out of time counts as one more failed test.
Failed tests are named again at the end, for a log that was cut. The last line
is the total; the exit status is 0 only where nothing failed.

The sanitized unit tests keep one processor busy for minutes. They run beside
the suites that know no real time, and are shown after these.

    check.py [NAME...]     only the suites of these names
"""

import io
import os
import re
import signal
import subprocess
import sys
import threading

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ASAN = os.path.join(TREE, "build", "asan")
COUNT = re.compile(rb"^(\d+) passed, (\d+) failed, (\d+) skipped\s*$")
# What harness/runner.py and Check print of a test that failed.
FAILED = re.compile(r"^failed +[\d.]+ s  (.*)$")
CHECK_FAILED = re.compile(r"^[^ ]+:\d+:[FE]:.*$")
RAISED = re.compile(r"^    (?!Traceback)[^\s-].*$")  # ends its traceback
NAMED_FAILURES = 20  # of one suite
SUITE_SECONDS = 3600
KILL_SECONDS = 10

SANITIZED = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "HOLDFASTD": os.path.join(ASAN, "holdfastd"),
    "HOLDFAST": os.path.join(ASAN, "holdfast"),
}

# Check's parent process hears of each assertion of each child that it forks,
# and what it frees would be kept, hundreds of megabytes, for each fork to copy.
UNIT_SANITIZED = {
    **SANITIZED,
    "ASAN_OPTIONS": SANITIZED["ASAN_OPTIONS"] + ":quarantine_size_mb=16"
                    ":allocator_release_to_os_interval_ms=500",
}

# name, command from the top folder, what the environment has on top
SUITES = (
    ("unit-sanitized", ["build/asan/unit-tests"], UNIT_SANITIZED),
    ("unit", ["build/unit-tests"], {}),
    ("lua", [sys.executable, "tests/lua/run.py"], {}),
    ("sim", [sys.executable, "tests/sim/run.py"], {}),
    ("e2e", [sys.executable, "tests/e2e/run.py"], SANITIZED),
    ("chaos", [sys.executable, "tests/chaos/suite.py"], SANITIZED),
    ("clients", [sys.executable, "proto/clients/clients.py", "check"],
     {**UNIT_SANITIZED, "CLIENT_DRIVER": os.path.join(ASAN, "client-driver")}),
)
BESIDE = ("unit-sanitized",)
ALONE = ("e2e", "chaos", "clients")  # real servers, real time


running = set()


def say(text):
    print(text, flush=True)


def end_group(process, number):
    """The suite and what it started; nothing where it is gone already."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


class Failures:
    """Picks from a suite's output which tests failed, and with what words."""

    def __init__(self):
        self.named = []
        self._open = False  # the last one's error is still to come

    def take(self, line):
        failed = FAILED.match(line)
        if failed or CHECK_FAILED.match(line):
            self.named.append(failed.group(1) if failed else line)
            self._open = bool(failed)
        elif self._open and RAISED.match(line):
            self.named[-1] += f": {line.strip()}"
            self._open = False
        elif not line.startswith(" "):
            self._open = False


def copy_output(process, out):
    """Copies the output to `out`; the last count in it, or None, and
    failures."""
    count = None
    failures = Failures()
    for line in process.stdout:
        out.write(line)
        out.flush()
        failures.take(line.decode("utf-8", "replace").rstrip())
        match = COUNT.match(line)
        if match:
            count = [int(number) for number in match.groups()]
    return count, failures.named


def end_late(process, late):
    """Runs when a suite's time is over: TERM, and later KILL."""
    late.set()
    end_group(process, signal.SIGTERM)
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    end_group(process, signal.SIGKILL)


def run_suite(command, extra, out):
    """[passed, failed, skipped], the failures, what else was wrong or None."""
    try:
        process = subprocess.Popen(
            command, cwd=TREE, env={**os.environ, **extra},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        return [0, 1, 0], [], str(error)
    running.add(process)
    late = threading.Event()
    timer = threading.Timer(SUITE_SECONDS, end_late, (process, late))
    timer.start()
    try:
        count, failures = copy_output(process, out)
        status = process.wait()
        running.discard(process)
    finally:
        timer.cancel()
    wrong = None
    if late.is_set():
        wrong = f"ran for more than {SUITE_SECONDS} s"
    elif count is None:
        wrong = f"exit status {status}, printed no count"
    elif status != 0 and count[1] == 0:
        wrong = f"exit status {status} though no test failed"
    count = count or [0, 0, 0]
    if wrong:
        count[1] += 1
    return count, failures, wrong


class Beside(threading.Thread):
    """A suite that runs beside others; its output is kept until it is over."""

    def __init__(self, command, extra):
        super().__init__(daemon=True)
        self._suite = command, extra
        self._out = io.BytesIO()
        self._result = [0, 1, 0], [], "was not run"
        self.start()

    def run(self):
        self._result = run_suite(*self._suite, self._out)

    def result(self):
        """Waits, shows the output; as run_suite()."""
        self.join()
        sys.stdout.buffer.write(self._out.getvalue())
        return self._result


def run_all(names):
    """(name, *run_suite()) of each suite."""
    rows, beside = [], {}

    def collect():
        for name, suite in list(beside.items()):
            say(f"=== {name}, beside those before")
            rows.append((name, *suite.result()))
            del beside[name]

    for name, command, extra in SUITES:
        if name not in names:
            continue
        if name in ALONE:
            collect()
        say(f"=== {name}: {' '.join(command)}")
        if name in BESIDE:
            beside[name] = Beside(command, extra)
        else:
            rows.append((name, *run_suite(command, extra, sys.stdout.buffer)))
    collect()
    return rows


def main(arguments):
    known = [suite[0] for suite in SUITES]
    for name in arguments:
        if name not in known:
            sys.exit(f"check.py: no suite {name}; there are {' '.join(known)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    total = [0, 0, 0]
    try:
        rows = run_all(arguments or known)
    finally:
        for process in list(running):
            end_group(process, signal.SIGTERM)
            process.wait()
    for _, count, _, _ in rows:
        total = [a + b for a, b in zip(total, count)]
    say("===")
    for name, count, failures, wrong in rows:
        say(f"{name:16} {count[0]:5} passed {count[1]:4} failed "
            f"{count[2]:4} skipped" + (f"   {wrong}" if wrong else ""))
        for failure in failures[:NAMED_FAILURES]:
            say(f"    {failure[:200]}")
    say(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] > 0 or total[0] == 0 else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
