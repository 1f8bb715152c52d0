"""The runner of these tests: what passes, fails, hangs or dies is counted."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from harness import HarnessCase

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)

import check  # noqa: E402

# name: (the last line of output, what else it has, bodies of a test class)
OUTCOMES = {
    "all pass": ("1 passed, 0 failed, 0 skipped", (), """
        def test_good(self): pass
        """),
    "of two files": (
        "2 passed, 1 failed, 1 skipped", ("no such thing here", "1 != 2"), """
        def test_good(self): pass
        def test_bad(self): self.assertEqual(1, 2)
        @unittest.skip("no such thing here")
        def test_not(self): pass
        """, "def test_good(self): pass"),
    "a row of a table": ("0 passed, 1 failed, 0 skipped", ("(row='b')",), """
        def test_rows(self):
            for row in "abc":
                with self.subTest(row=row): self.assertNotEqual(row, "b")
        """),
    "hangs": (
        "1 passed, 1 failed, 0 skipped",
        ("test_1_hangs", "longer than it may"), """
        test_timeout = 0.2
        def test_1_hangs(self): time.sleep(50)
        def test_2_good(self): pass
        """),
    "fails, and its clean-up too": (
        "0 passed, 1 failed, 0 skipped", ("ZeroDivisionError",), """
        def test_bad(self):
            self.addCleanup(lambda: 1 / 0)
            self.fail("first")
        """),
    "the process dies": (
        "0 passed, 1 failed, 0 skipped", ("last words", "A.test_dies"), """
        def test_dies(self):
            print("last words", flush=True)
            os._exit(0)
        """),
    "import and class fail": (
        "0 passed, 2 failed, 0 skipped", ("nonsense_of_ours", "no class"),
        "import nonsense_of_ours", """
        @classmethod
        def setUpClass(cls): raise OSError("no class")
        def test_never(self): pass
        """),
}


class RunnerTest(HarnessCase):
    def run_files(self, *bodies, arguments=()):
        """Runs files with a class each; (status, output)."""
        folder = Path(self.folder())
        for number, body in enumerate(bodies):
            (folder / f"test_{number}.py").write_text(
                "import os, time, unittest\nclass A(unittest.TestCase):\n"
                + textwrap.indent(textwrap.dedent(body), "    "))
        script = folder / "run.py"
        script.write_text(
            f"import sys; sys.path.insert(0, {TESTS!r})\n"
            "from harness import runner\n"
            f"sys.exit(runner.main({str(folder)!r}, sys.argv))\n")
        done = subprocess.run([sys.executable, script, *arguments],
                              capture_output=True, text=True, timeout=50)
        return done.returncode, done.stdout + done.stderr

    def test_outcomes(self):
        for name, (last, texts, *bodies) in OUTCOMES.items():
            with self.subTest(outcome=name):
                summary = os.path.join(self.folder(), "summary")
                status, output = self.run_files(
                    *bodies, arguments=("--summary", summary))
                self.assertEqual(output.splitlines()[-1], last, output)
                self.assertEqual(status, int(" 0 failed" not in last))
                self.assertEqual(Path(summary).read_text().split(),
                                 re.findall(r"\d+", last))
                for text in texts:
                    self.assertIn(text, output)
                times = re.findall(r"(?m)^failed +([0-9.]+) s ", output)
                self.assertEqual(len(times), int(last.split()[2]))
                for seconds in times:
                    self.assertLess(float(seconds), 60)  # not the uptime

    def test_pattern(self):
        _, output = self.run_files("""
            def test_first(self): self.fail()
            def test_second(self): pass
            """, arguments=("-k", "second"))
        self.assertEqual(output.splitlines()[-1],
                         "1 passed, 0 failed, 0 skipped")

    def test_failures_are_named_again(self):
        _, output = self.run_files("""
            def test_good(self): pass
            def test_bad(self): self.assertEqual(1, 2)
            def test_dies(self): os._exit(3)
            """)
        failures = check.Failures()
        for line in output.splitlines() + [
                "a/test_x.c:12:F:core:test_name:0: Assertion 'a' failed",
                "    not of a traceback"]:
            failures.take(line)
        self.assertEqual(failures.named, [
            "test_0: A.test_bad: AssertionError: 1 != 2",
            "test_0.py: its process ended with status 3 in A.test_dies",
            "a/test_x.c:12:F:core:test_name:0: Assertion 'a' failed"])
