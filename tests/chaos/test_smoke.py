"""Twenty seconds of chaos: killed and stopped processes on a single Redis."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from harness.broker import broker_path
from harness.processes import children_of, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
FAULTS = "redis.kill,redis.stop,redis.script-flush,broker.kill," \
    "broker.stop,broker.term,client,relay"


@unittest.skipUnless(os.access(broker_path(), os.X_OK),
                     f"{broker_path()} is not built")
class SmokeTest(unittest.TestCase):
    test_timeout = 180

    def run_chaos(self, *arguments):
        """(exit status, output, record)."""
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "record")
            process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "run.py"),
                 "--seed", str(SEED), "--record", record,
                 "--keep", os.path.join(folder, "kept"), *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)
            try:
                output, _ = process.communicate(timeout=150)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            lines = []
            if os.path.exists(record):
                with open(record, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
        return process.returncode, output, lines

    def test_processes_killed_and_stopped(self):
        status, output, lines = self.run_chaos(
            "--minutes", "0.33", "--clients", "12", "--faults", FAULTS)
        self.assertEqual(status, 0, output)
        self.assertEqual(len(lines), 1)
        self.assertEqual(lines[0]["violations"], 0)
        self.assertGreater(lines[0]["acquisitions"], 100)
        self.assertGreater(lines[0]["fenced_writes"], 10)
        self.assertGreater(sum(lines[0]["faults"].values()), 3)

    def test_nothing_outlives_it(self):
        """SIGTERM in the middle: no process and no folder is left."""
        process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "run.py"), "--plain",
             "--seed", str(SEED), "--clients", "4"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        folder = os.path.join(tempfile.gettempdir(),
                              f"holdfast-test-{process.pid}-")
        try:
            children = wait_until(
                lambda: len(found := children_of(process.pid)) >= 11 and found,
                60, "its processes run")
            process.terminate()
            self.assertEqual(process.wait(60), 130)
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}")
                                   for pid in children), 20, "all have ended")
        left = [name for name in os.listdir(tempfile.gettempdir())
                if name.startswith(os.path.basename(folder))]
        self.assertEqual(left, [])
