"""The runner of these tests: what passes, fails, hangs or dies is counted."""

import os
import re
import subprocess
import sys
import textwrap

from harness import HarnessCase

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)

import check  # noqa: E402


class RunnerTest(HarnessCase):
    def run_files(self, *arguments, **files):
        """Runs files (text of class bodies by name); (status, output)."""
        folder = self.folder()
        for name, text in files.items():
            with open(os.path.join(folder, f"test_{name}.py"), "w",
                      encoding="utf-8") as file:
                file.write("import os, time, unittest\n")
                file.write(textwrap.dedent(text))
        code = (f"import sys; sys.path.insert(0, {TESTS!r})\n"
                "from harness import runner\n"
                f"sys.exit(runner.main({folder!r}, sys.argv))\n")
        script = os.path.join(folder, "run.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(code)
        done = subprocess.run([sys.executable, script, *arguments],
                              capture_output=True, text=True, timeout=50)
        return done.returncode, done.stdout + done.stderr

    def assert_last_line(self, output, line):
        self.assertEqual(output.splitlines()[-1], line, output)

    def test_counts(self):
        status, output = self.run_files(one="""
            class A(unittest.TestCase):
                def test_good(self): pass
                def test_bad(self): self.assertEqual(1, 2)
                @unittest.skip("no such thing here")
                def test_not(self): pass
            """, two="""
            class B(unittest.TestCase):
                def test_good(self): pass
            """)
        self.assertEqual(status, 1)
        self.assert_last_line(output, "2 passed, 1 failed, 1 skipped")
        self.assertIn("no such thing here", output)
        self.assertIn("1 != 2", output)

    def test_all_good(self):
        folder = self.folder()
        summary = os.path.join(folder, "summary")
        status, output = self.run_files("--summary", summary, one="""
            class A(unittest.TestCase):
                def test_good(self): pass
            """)
        self.assertEqual(status, 0)
        self.assert_last_line(output, "1 passed, 0 failed, 0 skipped")
        with open(summary, encoding="ascii") as file:
            self.assertEqual(file.read(), "1 0 0\n")

    def test_hanging_test_fails_and_the_next_one_runs(self):
        status, output = self.run_files(one="""
            class A(unittest.TestCase):
                test_timeout = 0.2
                def test_1_hangs(self): time.sleep(50)
                def test_2_good(self): pass
            """)
        self.assertEqual(status, 1)
        self.assert_last_line(output, "1 passed, 1 failed, 0 skipped")
        self.assertIn("test_1_hangs", output)
        self.assertIn("longer than it may", output)

    def test_failure_and_failing_clean_up_is_one_failure(self):
        _status, output = self.run_files(one="""
            class A(unittest.TestCase):
                def test_bad(self):
                    self.addCleanup(lambda: 1 / 0)
                    self.fail("first")
            """)
        self.assert_last_line(output, "0 passed, 1 failed, 0 skipped")
        self.assertIn("ZeroDivisionError", output)

    def test_dying_process_is_a_failure(self):
        status, output = self.run_files(one="""
            class A(unittest.TestCase):
                def test_dies(self):
                    print("last words", flush=True)
                    os._exit(0)
            """)
        self.assertEqual(status, 1)
        self.assert_last_line(output, "0 passed, 1 failed, 0 skipped")
        self.assertIn("last words", output)
        self.assertIn("A.test_dies", output)

    def test_import_and_class_errors_are_failures(self):
        status, output = self.run_files(one="import nonsense_of_ours", two="""
            class B(unittest.TestCase):
                @classmethod
                def setUpClass(cls): raise OSError("no class")
                def test_never(self): pass
            """)
        self.assertEqual(status, 1)
        self.assert_last_line(output, "0 passed, 2 failed, 0 skipped")
        self.assertIn("nonsense_of_ours", output)
        self.assertIn("no class", output)
        took = re.findall(r"(?m)^failed +([0-9.]+) s ", output)
        self.assertEqual(len(took), 2)
        for seconds in took:
            self.assertLess(float(seconds), 60)  # it was the host's uptime

    def test_pattern(self):
        _status, output = self.run_files("-k", "second", one="""
            class A(unittest.TestCase):
                def test_first(self): self.fail()
                def test_second(self): pass
            """)
        self.assert_last_line(output, "1 passed, 0 failed, 0 skipped")

    def test_failures_are_named_again(self):
        _status, output = self.run_files(one="""
            class A(unittest.TestCase):
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
            "test_one: A.test_bad: AssertionError: 1 != 2",
            "test_one.py: its process ended with status 3 in A.test_dies",
            "a/test_x.c:12:F:core:test_name:0: Assertion 'a' failed"])
