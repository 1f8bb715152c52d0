"""README's tables of failures name what shows them: all of it exists."""

import ast
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
TABLES = "When something fails"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def section(text, title):
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def tests_of(name):
    """Class.test of a file, with those that a class inherits there."""
    classes = {node.name: node for node in ast.parse(
        read("tests", "e2e", name + ".py")).body
        if isinstance(node, ast.ClassDef)}

    def of(node):
        found = {child.name for child in node.body
                 if isinstance(child, ast.FunctionDef)}
        for base in node.bases:
            found |= of(classes[base.id]) if getattr(
                base, "id", None) in classes else set()
        return found
    return {f"{name}.{test}" for name, node in classes.items()
            for test in of(node) if test.startswith("test_")}


class FailureTableTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = section(read("README.md"), TABLES)
        cls.shown = re.findall(r"`((?:test_\w+\.|sim:|chaos:)[\w.:-]+)`",
                               cls.text)

    def named(self, kind):
        return {name.removeprefix(kind) for name in self.shown
                if name.startswith(kind)}

    def test_tests(self):
        named = self.named("test_")
        self.assertGreater(len(named), 20)
        for name in sorted(named):
            file, test = name.split(".", 1)
            self.assertIn(test, tests_of("test_" + file))

    def test_faults_and_drills_of_the_simulator(self):
        known = set(re.findall(r'X\((\w+), "', read("tests/sim/plan.h")))
        for file in os.listdir(os.path.join(ROOT, "tests", "sim")):
            if file.startswith("drill"):
                known |= set(re.findall(r'\[DRILL_\w+\] = \{"(\w+)"',
                                        read("tests", "sim", file)))
        named = self.named("sim:")
        self.assertGreater(len(named), 15)
        self.assertEqual(named - known, set())

    def test_faults_of_real_processes(self):
        known = set(re.findall(r'@fault\("([\w.-]+)"',
                               read("tests/chaos/faults.py")))
        named = self.named("chaos:")
        self.assertGreater(len(named), 10)
        self.assertEqual(named - known, set())

    def test_each_row_is_shown(self):
        for line in self.text.splitlines():
            if line.startswith("| ") and not line.startswith("| event "):
                cells = line.strip("|").split("|")
                self.assertRegex(cells[-1], r"`(test_|sim:|chaos:)", line)
                self.assertNotIn("", [cell.strip() for cell in cells], line)


if __name__ == "__main__":
    unittest.main()
