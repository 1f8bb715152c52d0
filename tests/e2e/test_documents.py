"""Tests that guarantees.md and failures.md name exist; README has all
promises."""

import ast
import os
import re
import unittest

from shared import TREE, read

PARTS = ("Condition", "Promise", "Exception", "Test")
NAMED = re.compile(r"`((?:test_\w+\.|sim:|judge:|chaos:)[\w.:-]+)`")


def document(name):
    return read("packaging", "doc", name)


def promises(text):
    """The number, title and text of each promise."""
    for part in re.split(r"^## ", text, flags=re.M):
        match = re.match(r"G(\d+) (.*)\n", part)
        if match:
            yield int(match.group(1)), match.group(2), part


def in_the_simulator(pattern, *beginnings):
    folder = os.path.join(TREE, "tests", "sim")
    return {name for file in os.listdir(folder)
            if file.startswith(beginnings)
            for name in re.findall(pattern, read("tests", "sim", file))}


def tests_of(name):
    """Class.test of a file, with those that a class inherits there."""
    folder = "e2e" if os.path.exists(
        os.path.join(TREE, "tests", "e2e", name + ".py")) else "lua"
    classes = {node.name: node for node in ast.parse(
        read("tests", folder, name + ".py")).body
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


class NamedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = document("guarantees.md") + document("failures.md")

    def named(self, kind):
        found = {name for name in NAMED.findall(self.text)
                 if name.startswith(kind)}
        self.assertEqual(found, {*re.findall(rf"`({kind}[^`]+)`", self.text)})
        return {name.removeprefix(kind) for name in found}

    def test_tests(self):
        for name in sorted(self.named("test_")):
            file, test = name.split(".", 1)
            self.assertIn(test, tests_of("test_" + file))

    def test_what_is_not_a_test(self):
        for kind, known in (
                ("sim:", in_the_simulator(r'X\((\w+), "', "plan") |
                 in_the_simulator(r'\[DRILL_\w+\] = \{"(\w+)"', "drill")),
                ("judge:", in_the_simulator(
                    r'\[PROMISE_\w+\] = "(\w+)"', "check")),
                ("chaos:", set(re.findall(r'@fault\("([\w.-]+)"',
                                          read("tests/chaos/faults.py"))))):
            with self.subTest(kind=kind):
                self.assertEqual(self.named(kind) - known, set())


class FailureTableTest(unittest.TestCase):
    def test_each_row_is_shown(self):
        for table in re.findall(r"^\| event .*\n\|[-|]*\n((?:\|.*\n)+)",
                                document("failures.md"), re.M):
            for line in table.splitlines():
                cells = line.strip("|").split("|")
                self.assertRegex(cells[-1], NAMED, line)
                self.assertNotIn("", [cell.strip() for cell in cells], line)


class PromiseTest(unittest.TestCase):
    def test_each_has_its_parts(self):
        numbers = []
        for number, title, text in promises(document("guarantees.md")):
            numbers.append(number)
            at = [text.find(f"\n- **{part}") for part in PARTS]
            self.assertEqual(sorted(at), at, title)
            self.assertNotIn(-1, at, title)
            self.assertRegex(text[at[-1]:].split("\n\n")[0], NAMED, title)
        self.assertTrue(numbers)
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_readme_has_them(self):
        text = read("README.md")
        listed = re.findall(r"^(\d+)\. \[(.*?)\]\(packaging/doc/guarantees\.md#"
                            r"g\1-", text, re.M)
        self.assertEqual([(int(number), title) for number, title in listed],
                         [(number, title) for number, title, _ in
                          promises(document("guarantees.md"))])
        self.assertLessEqual(len(text.splitlines()), 150)
        self.assertLess(text.index("make run"), text.index("\n## "))
