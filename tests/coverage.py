#!/usr/bin/env python3
"""Which branches the tests have taken: a table by folder and by file.

    coverage.py BUILD [--missing FILE...]

BUILD is a tree that `make coverage` made and ran (SANITIZE=coverage). --missing
tells the untaken branches of these files, as FILE:LINE: the line.

Left out are the branches of require(): its other way is the end of the
process, which no test takes. Its conditions count as lines, not as branches.
So are those of code that is generated. A line that several functions have (an
inline function of a header) has all their branches, taken where one takes it.
"""

import collections
import json
import os
import re
import subprocess
import sys

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("daemon", "proto", "conf")
ASSERTION = re.compile(r"\brequire\(")
NOT_CODE = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
                      re.S)


class Branches:
    """Of one file: {line: [count of each branch]}, and its lines."""

    def __init__(self):
        self.taken = {}
        self.lines = {}

    def add(self, number, count, branches):
        self.lines[number] = self.lines.get(number, 0) + count
        old = self.taken.get(number, [])
        size = max(len(old), len(branches))
        self.taken[number] = [
            sum(counts[i] for counts in (old, branches) if i < len(counts))
            for i in range(size)]

    def numbers(self):
        """Branches, those taken, lines, those run."""
        counts = [count for line in self.taken.values() for count in line]
        return (len(counts), sum(count > 0 for count in counts),
                len(self.lines), sum(n > 0 for n in self.lines.values()))


def assertion_lines(path):
    """The lines that are within a require()."""
    with open(os.path.join(TREE, path), encoding="utf-8") as source:
        text = NOT_CODE.sub(
            lambda match: re.sub(r"[^\n]", " ", match.group()), source.read())
    lines = set()
    for match in ASSERTION.finditer(text):
        depth = 1
        at = match.end()
        while depth > 0 and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        first = text.count("\n", 0, match.start()) + 1
        lines.update(range(first, text.count("\n", 0, at) + 2))
    return lines


def read_object(path, files):
    """Adds what one .gcda has to `files`."""
    done = subprocess.run(
        ["gcov", "--json-format", "--stdout", "--branch-probabilities",
         os.path.abspath(path)],
        cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        check=False)
    if done.returncode != 0:
        print(f"coverage.py: {path} is of an earlier build, and left out",
              file=sys.stderr)
        return
    for document in done.stdout.splitlines():
        for file in json.loads(document)["files"]:
            name = os.path.relpath(os.path.join(TREE, file["file"]), TREE)
            if not name.startswith(tuple(f"{top}/" for top in FOLDERS)):
                continue
            # By function, so that an inline one is itself in every object.
            for line in file["lines"]:
                files[name, line.get("function_name")].append(
                    (line["line_number"], line["count"],
                     [branch["count"] for branch in line["branches"]]))


def read_build(build):
    """{file: Branches} of all objects."""
    found = collections.defaultdict(list)
    for folder, _, names in sorted(os.walk(build)):
        for name in names:
            if name.endswith(".gcda"):
                read_object(os.path.join(folder, name), found)
    files = collections.defaultdict(Branches)
    left_out = {}
    for (name, _), lines in found.items():
        if name not in left_out:
            left_out[name] = assertion_lines(name)
        for number, count, branches in lines:
            files[name].add(number, count, [] if number in left_out[name]
                            else branches)
    return files


def row(name, numbers):
    """A line of the table."""
    branches, taken, lines, run = numbers
    share = f"{100 * taken / branches:5.1f} %" if branches else "      -"
    return (f"{name:30} {taken:5} of {branches:5} {share:>8}"
            f"   {run:5} of {lines:5}")


def table(files):
    folders = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, branches in files.items():
        total = folders[os.path.dirname(name) + "/"]
        total[:] = [a + b for a, b in zip(total, branches.numbers())]
    print(f"{'':30} {'branches taken':>23}   lines run")
    for folder in sorted(folders):
        print(row(folder, folders[folder]))
        for name in sorted(files):
            if os.path.dirname(name) + "/" == folder:
                print(row("  " + os.path.basename(name),
                          files[name].numbers()))
    print()
    for folder in sorted(folders):
        print(row(folder, folders[folder]))


def missing(files, names):
    for name in names:
        with open(os.path.join(TREE, name), encoding="utf-8") as source:
            text = source.read().splitlines()
        for number, counts in sorted(files[name].taken.items()):
            if 0 in counts:
                print(f"{name}:{number}: {counts.count(0)} of {len(counts)}: "
                      f"{text[number - 1].strip()}")


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    files = read_build(arguments[0])
    if not files:
        sys.exit(f"coverage.py: nothing was run in {arguments[0]}")
    if len(arguments) > 1:
        missing(files, [name for name in arguments[1:] if name != "--missing"])
    else:
        table(files)


if __name__ == "__main__":
    main(sys.argv[1:])
