"""The examples for Python, as their page says to run them."""

import os
import re
import subprocess
import sys
import unittest

import fixture
import rig

FOLDER = os.path.join(rig.FOLDER, "../examples/python")


class ExampleTest(fixture.Case):
    def run_example(self, name):
        """The lines that it prints."""
        return subprocess.run(
            [sys.executable, os.path.join(FOLDER, name), "--broker",
             self.broker().address], check=True, stdout=subprocess.PIPE,
            text=True, timeout=50, env={
                **os.environ, "PYTHONPATH": os.path.join(rig.FOLDER, "src")},
        ).stdout.splitlines()

    def test_stock(self):
        lines = self.run_example("stock.py")
        lost = lines.pop(-2)
        self.assertIn("shop 1: has lost the lock: ", lost)
        self.assertEqual(lines, [
            "shop 1 holds the lock", "shop 1 is paused",
            "shop 2 holds the lock", "shop 2: SQL takes one",
            "shop 2: Redis takes one", "shop 1: SQL refuses the fence",
            "shop 1: Redis refuses the fence", "left in Redis: 9"])

    def test_nightly(self):
        runs = [line.partition(": ")[2] for line in
                self.run_example("nightly.py")]
        self.assertEqual(sorted(runs), sorted(
            f"{night} is {done}" for night in ("mon", "tue", "wed")
            for done in ("done", "skipped", "skipped")))

    def test_leader(self):
        lines = self.run_example("leader.py")
        leads = [re.fullmatch(r"(node-\d) leads in epoch (\d+)", line)
                 for line in lines if " leads in " in line]
        nodes, epochs = zip(*(match.groups() for match in leads))
        self.assertEqual(len(set(nodes)), 3)
        self.assertEqual(list(epochs), sorted(epochs, key=int))
        self.assertIn(f"{nodes[0]} gets SIGKILL", lines)
        self.assertIn(f"{nodes[1]} gets SIGTERM", lines)


if __name__ == "__main__":
    unittest.main()
