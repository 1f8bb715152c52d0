"""Runs the test_*.py files of a folder, two at a time, each in a process.

Outcomes come as JSON lines through a pipe; other output is shown with
failures. A test beyond its bound (`test_timeout`, seconds) fails with a
traceback of all threads. A file whose process ends early is a failed test. The
last line is `N passed, N failed, N skipped`.
"""

import argparse
import faulthandler
import fnmatch
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

from . import broker, processes

TEST_SECONDS = 60.0
HARD_SECONDS = 20.0  # what a test that ignores its time-out gets on top
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class TestTimeout(BaseException):
    """Not an Exception, so that no test swallows it."""


# In the process of one file


def _broker_words():
    """The last words of the brokers that a failed test had running."""
    parts = []
    for each in broker.live_brokers():
        tail = "\n".join(each.log().splitlines()[-40:])
        parts.append(f"\n--- {each.process.name}, last lines:\n{tail}\n"
                     if tail else "")
    return "".join(parts)


class ReportingResult(unittest.TestResult):
    """Writes each outcome as a JSON line; arms the time-out of each test."""

    def __init__(self, stream, seconds):
        super().__init__()
        self._stream = stream
        self._seconds = seconds
        self._begin = time.monotonic()
        self._told = False

    def _tell(self, outcome, test, text=""):
        record = {"outcome": outcome, "test": test_name(test), "text": text,
                  "seconds": time.monotonic() - self._begin}
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()

    def startTest(self, test):
        super().startTest(test)
        self._begin = time.monotonic()
        self._told = False
        seconds = getattr(test, "test_timeout", self._seconds)
        self._tell("start", test)
        self.arm(seconds)

    def stopTest(self, test):
        # For what classes and modules do between.
        self.arm(self._seconds)
        self._begin = time.monotonic()
        super().stopTest(test)

    def arm(self, seconds):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        faulthandler.dump_traceback_later(seconds + HARD_SECONDS, exit=True)

    def _failed(self, test, error, head=""):
        text = head + "".join(traceback.format_exception(*error)) \
            + _broker_words()
        # A test that fails and whose clean-up fails too is one failed test.
        self._tell("more" if self._told else "failed", test, text)
        self._told = True

    def addSuccess(self, test):
        self._tell("passed", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._failed(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        if not isinstance(test, unittest.TestCase):
            self._told = False  # setUpClass, a module: a failure of its own
        self._failed(test, err)

    def addSkip(self, test, reason):
        self._tell("skipped", test, reason)

    def addExpectedFailure(self, test, err):
        self._tell("passed", test)

    def addUnexpectedSuccess(self, test):
        self._tell("failed", test, "an unexpected success")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._failed(test, err, f"{subtest}\n")


def test_name(test):
    """Class.method, without the path of modules."""
    name = test.id() if hasattr(test, "id") else str(test)
    return ".".join(name.split(".")[-2:]) if "(" not in name else name


def load_file(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def select(suite, patterns):
    if not patterns:
        return suite
    return unittest.TestSuite(
        test for test in flatten(suite)
        if any(fnmatch.fnmatch(test.id(), f"*{pattern}*")
               for pattern in patterns))


def run_file(path, options):
    """Runs one file's tests; reports to descriptor options.report."""
    def on_alarm(_number, _frame):
        faulthandler.dump_traceback(all_threads=True)
        raise TestTimeout("the test took longer than it may")

    faulthandler.enable()
    signal.signal(signal.SIGALRM, on_alarm)
    with os.fdopen(options.report, "w", encoding="utf-8") as stream:
        result = ReportingResult(stream, options.timeout)
        try:
            suite = select(load_file(path), options.k)
            if options.list:
                for test in flatten(suite):
                    result._tell("listed", test)
                return 0
            result.arm(options.timeout)
            suite.run(result)
        except unittest.SkipTest as reason:  # of the whole file
            result.addSkip(os.path.basename(path), str(reason))
        except (TestTimeout, Exception):  # an import that fails, most often
            result._told = False
            result._failed(os.path.basename(path), sys.exc_info())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
        stream.write(json.dumps({"outcome": "end"}) + "\n")
    return 0


# In the process that was started


class FileRun:
    """One file's process: its pipe, its other output, what it last began."""

    def __init__(self, path, argv):
        self.path = path
        self.name = os.path.basename(path)
        self.begin = time.monotonic()
        self.current = None
        self.ended = False
        self._partial = b""
        self.output = tempfile.TemporaryFile()
        self.pipe, writer = os.pipe()
        self.popen = subprocess.Popen(
            [sys.executable, *argv, "--report", str(writer), path],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
            pass_fds=[writer], preexec_fn=processes.die_with_parent)
        os.close(writer)

    def records(self):
        """The records that can be read now; None at the end."""
        data = os.read(self.pipe, 65536)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def kept_output(self):
        self.output.seek(0)
        return self.output.read().decode("utf-8", "replace").strip()


class Tally:
    """Counts and prints outcomes."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def take(self, run, record):
        outcome = record["outcome"]
        if outcome == "start":
            run.current = record["test"]
            return
        if outcome == "end":
            run.ended = True
            return
        name = f"{run.name[:-3]}: {record['test']}"
        if outcome == "listed":
            print(name)
            return
        if outcome != "more":
            run.current = None
            setattr(self, outcome, getattr(self, outcome) + 1)
        note = f": {record['text']}" if outcome == "skipped" else ""
        print(f"{outcome:7} {record['seconds']:7.2f} s  {name}{note}",
              flush=True)
        if outcome in ("failed", "more"):
            indented = record["text"].rstrip().replace("\n", "\n    ")
            print(f"    {indented}", flush=True)

    def finish(self, run):
        """After the end of a file's process: did it end as it should?"""
        status = run.popen.wait()
        if not run.ended:
            self.failed += 1
            print(f"failed  {time.monotonic() - run.begin:7.2f} s  {run.name}:"
                  f" its process ended with status {status} in "
                  f"{run.current or 'no test'}")
        if not run.ended or status != 0 or "-v" in sys.argv:
            print(f"--- output of {run.name}:\n{run.kept_output()}",
                  flush=True)
        run.output.close()
        os.close(run.pipe)


def run_all(paths, argv, jobs):
    """Runs the files, `jobs` at a time; a Tally."""
    tally = Tally()
    waiting = list(paths)
    selector = selectors.DefaultSelector()
    try:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < jobs:
                run = FileRun(waiting.pop(0), argv)
                selector.register(run.pipe, selectors.EVENT_READ, run)
            for key, _ in selector.select():
                run = key.data
                records = run.records()
                if records is None:
                    selector.unregister(run.pipe)
                    tally.finish(run)
                    continue
                for record in records:
                    tally.take(run, record)
    finally:
        for key in list(selector.get_map().values()):
            key.data.popen.kill()
    return tally


def parse(argv):
    parser = argparse.ArgumentParser(
        prog=os.path.relpath(argv[0]), allow_abbrev=False,
        description="Runs tests; all files of the folder by default.")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-k", action="append", default=[], metavar="PATTERN",
                        help="only tests whose name has it (repeatable)")
    # Most of what tests do is to wait.
    jobs = len(os.sched_getaffinity(0)) + 1
    parser.add_argument("-j", type=int, default=jobs, metavar="N",
                        help=f"files at a time ({jobs})")
    parser.add_argument("-v", action="store_true",
                        help="show what the tests print")
    parser.add_argument("--list", action="store_true",
                        help="only name the tests")
    parser.add_argument("--timeout", type=float, default=float(
        os.environ.get("HOLDFAST_TEST_SECONDS", TEST_SECONDS)),
        metavar="SECONDS", help=f"for each test ({TEST_SECONDS:g})")
    parser.add_argument("--summary", metavar="FILE",
                        help="append 'passed failed skipped' to FILE")
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv[1:])


def choose_files(folder, names):
    if not names:
        return sorted(
            os.path.join(folder, name) for name in os.listdir(folder)
            if name.startswith("test_") and name.endswith(".py"))
    paths = [name if os.path.exists(name) else os.path.join(folder, name)
             for name in names]
    return [path if path.endswith(".py") else f"{path}.py" for path in paths]


def main(folder, argv):
    """The main program of tests/e2e/run.py and others; the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # What nohup or a shell's background ignores, the programs would ignore too.
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    options = parse(argv)
    if options.report is not None:
        return run_file(options.files[0], options)
    processes.sweep_folders()
    pass_on = [argv[0], "--timeout", str(options.timeout)]
    for pattern in options.k:
        pass_on += ["-k", pattern]
    if options.list:
        pass_on.append("--list")
    paths = choose_files(folder, options.files)
    begin = time.monotonic()
    try:
        tally = run_all(paths, pass_on, max(1, options.j))
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    if options.list:
        return 0
    if options.summary:
        with open(options.summary, "a", encoding="utf-8") as file:
            file.write(f"{tally.passed} {tally.failed} {tally.skipped}\n")
    print(f"{os.path.relpath(folder)}: {len(paths)} files in "
          f"{time.monotonic() - begin:.1f} s")
    print(f"{tally.passed} passed, {tally.failed} failed, "
          f"{tally.skipped} skipped")
    return 1 if tally.failed else 0
