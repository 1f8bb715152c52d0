"""The simulator's own promises, and the runs of each commit.

$HOLDFAST_SIM_SEEDS (1,000) says how many seeds, $HOLDFAST_SIM_FIRST the first.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest

import mutants
import planted_delay
import planted_tree
import summary

TREE = mutants.TREE
PROGRAM = os.environ.get("HOLDFAST_SIM") or os.path.join(
    TREE, "build", "holdfast-sim")
SEEDS = os.environ.get("HOLDFAST_SIM_SEEDS", "1000")
FIRST = os.environ.get("HOLDFAST_SIM_FIRST", "1")
GOLDEN = os.path.join(TREE, "tests", "sim", "golden.txt")
LAST_LINE = re.compile(r"seed=\d+ hash=([0-9a-f]{16}) grants=(\d+) "
                       r"faults=(\d+) violations=(\d+)")


def run(*words):
    """(exit status, what it printed)."""
    done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


class SeedTest(unittest.TestCase):
    test_timeout = 1200.0

    def last_line(self, *words):
        status, text = run(*words)
        found = LAST_LINE.fullmatch(text.rstrip("\n").split("\n")[-1])
        self.assertIsNotNone(found, text[-2000:])
        return status, found

    def test_a_seed_is_a_run(self):
        one = self.last_line("--seed", "7", "--seconds", "20")
        two = self.last_line("--seed", "7", "--seconds", "20", "--trace")
        other = self.last_line("--seed", "8", "--seconds", "20")
        self.assertEqual(one[1].group(0), two[1].group(0))
        self.assertNotEqual(one[1].group(1), other[1].group(1))

    def test_twice_the_same(self):
        status, text = run("--seed", "101", "--count", "40", "--seconds", "20",
                           "--twice", "--no-shrink")
        self.assertEqual(status, 0, text[-2000:])
        self.assertIn(" differed=0 ", text)

    def test_trees(self):
        status, text = run("--seed", "1", "--count", "8", "--seconds", "30",
                           "--no-shrink", *planted_tree.SETTINGS)
        self.assertEqual(status, 0, text[-2000:])

    def test_unlocks_with_delay(self):
        status, text = run("--seed", "1", "--count", "8", "--seconds", "30",
                           "--no-shrink", *planted_delay.SETTINGS)
        self.assertEqual(status, 0, text[-2000:])

    def test_bad_options(self):
        for words in ((), ("--seed", "x"), ("--what",),
                      ("--seed", "1", "--set", "clients=0"),
                      ("--seed", "1", "--set", "cats=1"),
                      ("--count", "1", "--settings", "cats"),
                      ("--count", "1", "--settings", "quorum,"),
                      ("--count", "1", "--settings", "sentinel", "--set",
                       "sentinels=0")):
            self.assertEqual(run(*words)[0], 64, words)

    def test_seeds(self):
        status, text = run("--seed", FIRST, "--count", SEEDS)
        self.assertEqual(status, 0, text[-4000:])
        print("    " + text.rstrip("\n").split("\n")[-1])

    def test_summaries_add_up(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "sim.jsonl")
            for first in ("1", "4"):
                status, text = run("--seed", first, "--count", "3", "--record",
                                   record, "--seconds", "10", "--no-shrink")
                self.assertEqual(status, 0, text[-2000:])
            with open(record, encoding="utf-8") as file:
                runs = [json.loads(line) for line in file]
            said, *more = summary.describe(("0", "x"), runs)
        self.assertEqual(len({(each["version"], each["program"])
                              for each in runs}), 1)
        self.assertIn(" 2 runs, 6 seeds, ", said)
        grants = sum(each["grants"] for each in runs)
        faults = sum(sum(each["faults"].values()) for each in runs)
        self.assertIn(f" {grants} grants, {faults} faults, 0 crashes, ", said)
        shares = [share for each in runs
                  for share in each["settings"].values()]
        self.assertEqual(sum(share["seeds"] for share in shares), 6)
        self.assertEqual(sum(share["grants"] for share in shares), grants)
        self.assertTrue(any(line.startswith("  quorum: ") for line in more))
        for key in runs[0]["config"]:
            counts = [each["config"][key] for each in runs]
            self.assertEqual(sum(sum(each.values()) for each in counts), 6)
            self.assertTrue(any(line.startswith(f"  {key}: ")
                                for line in more))
        self.assertIn("lease.default ms", runs[0]["config"])
        self.assertEqual("1 to 9, 3 values, quartiles 1 5 9, 9 in 50 %",
                         summary.values({"9": 2, "1": 1, "5": 1}))

    def test_some_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "sim.jsonl")
            status, text = run("--seed", "1", "--count", "8", "--settings",
                               "quorum,cluster_strict", "--record", record,
                               "--seconds", "5", "--no-shrink")
            self.assertEqual(status, 0, text[-2000:])
            with open(record, encoding="utf-8") as file:
                shares = json.loads(file.read())["settings"]
        ran = {name: each["seeds"] for name, each in shares.items()
               if each["seeds"] > 0}
        self.assertEqual(set(ran), {"quorum", "cluster_strict"})
        self.assertEqual(sum(ran.values()), 8)

    def test_golden(self):
        """Runs that showed a bug once, by their seeds and settings."""
        with open(GOLDEN, encoding="utf-8") as file:
            lines = [line.split("#")[0].split() for line in file]
        for words in filter(None, lines):
            with self.subTest(run=" ".join(words)):
                status, text = run(*words)
                self.assertEqual(status, 0, text[-3000:])


class MutantTest(unittest.TestCase):
    def test_each_can_be_planted(self):
        """The place of each mutant exists, once."""
        self.assertTrue(mutants.MUTANTS)
        for name, mutant in mutants.MUTANTS.items():
            for place, old, new in mutants.changes(mutant):
                with self.subTest(mutant=name):
                    mutants.find(TREE, place, old)
                    self.assertNotEqual(old, new)
