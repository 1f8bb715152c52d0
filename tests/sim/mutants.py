#!/usr/bin/env python3
"""`make sim-mutants`: planted bugs, each of which the simulator must find.

Each mutant changes one place into a mistake that somebody has made. The tree
is copied, changed, built, and run seed after seed until a promise is broken or
an assertion fails. A mutant that is not found is a hole in the simulator.

    python3 tests/sim/mutants.py [--only NAME,...] [--seeds N] [--markdown]
                                 [--folder F] [--jobs N]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import planted
import planted_audit
import planted_change
import planted_delay
import planted_detached
import planted_fence
import planted_kinds
import planted_named
import planted_quorum
import planted_settled
import planted_strict
import planted_tree
import planted_turns
import planted_upgrades

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
FOLDERS = ("daemon", "proto", "lua", "conf", "tests/sim")

GROUPS = (planted, planted_kinds, planted_settled, planted_strict,
          planted_quorum, planted_audit, planted_fence, planted_turns,
          planted_named, planted_change, planted_detached,
          planted_upgrades, planted_tree, planted_delay)

# name: (place, what is there, the mistake, what it is, more changes). A place
# is the name of a function, or a file for what is in none.
MUTANTS = {name: mutant for group in GROUPS
           for name, mutant in group.PLANTED.items()}

# name: options of the runs that it is looked for in
SETTINGS = {name: getattr(group, "SETTINGS", ()) for group in GROUPS
            for name in group.PLANTED}


class Failure(Exception):
    """The mutant cannot be made."""


def changes(mutant):
    """(place, old, new) of all the places that it changes."""
    yield mutant[:3]
    yield from mutant[4:]


def sources(folder):
    """The files that a place may be in."""
    for top in ("daemon", "lua"):
        for path, _, names in os.walk(os.path.join(folder, top)):
            for name in names:
                if name.endswith((".c", ".lua")):
                    yield os.path.join(path, name)


def bodies(path, text, name):
    """(start, end) of the functions of that name."""
    begin = (rf"^{name}\(" if path.endswith(".c") else
             rf"^( *)(?:local )?function {name}\(")
    for match in re.finditer(begin, text, re.M):
        indent = match.group(1) if match.lastindex else None
        end = re.compile(r"^}$" if indent is None else rf"^{indent}end$",
                         re.M).search(text, match.end())
        if end and (indent is not None or
                    re.match(r"[^;]*?^\{$", text[match.end():], re.M | re.S)):
            yield match.start(), end.end() + 1


def find(folder, place, old):
    """(file, where in it) of the one place that has the text."""
    found = []
    if "/" in place:
        path = os.path.join(folder, place)
        text = Path(path).read_text(encoding="utf-8")
        found = [(path, match.start())
                 for match in re.finditer(re.escape(old), text)]
    else:
        for path in sources(folder):
            text = Path(path).read_text(encoding="utf-8")
            for start, end in bodies(path, text, place):
                found += [(path, start + match.start()) for match in
                          re.finditer(re.escape(old), text[start:end])]
    if len(found) != 1:
        raise Failure(f"{place}: {len(found)} places for {old!r}")
    return found[0]


def plant(folder, mutant, saved):
    """Makes all changes; `saved` gets the files as they were, by path."""
    for place, old, new in changes(mutant):
        path, at = find(folder, place, old)
        text = Path(path).read_text(encoding="utf-8")
        saved.setdefault(path, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text[:at] + new + text[at + len(old):])


def copy_tree(to):
    for name in FOLDERS:
        shutil.copytree(os.path.join(TREE, name), os.path.join(to, name))
    shutil.copy(os.path.join(TREE, "Makefile"), to)


def build(folder, jobs):
    make = subprocess.run(
        ["make", "-s", "-C", folder, f"-j{jobs}", "simulator"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if make.returncode != 0:
        raise Failure(make.stderr.decode(errors="replace")[-2000:])


def simulate(folder, *arguments):
    """Its output; None if no promise was broken."""
    run = subprocess.run([os.path.join(folder, "build", "holdfast-sim"),
                          "--no-shrink", *arguments], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=False, timeout=3600)
    return run.stdout.decode(errors="replace") if run.returncode != 0 else None


def kinds_broken(text):
    return "+".join(re.findall(r"^broken: (\w+)", text, re.M)) or "assertion"


def seek(folder, options, name):
    """(seeds until it was found, or None; what was broken)."""
    step = options.batch
    for first in range(1, options.seeds + 1, step):
        text = simulate(folder, "--seed", str(first), "--count", str(step),
                        "--jobs", str(options.jobs), "--seconds",
                        str(options.seconds), *SETTINGS[name])
        if text is None:
            continue
        failed = [int(seed) for seed in
                  re.findall(r"^failed: --seed (\d+)", text, re.M)]
        return min(failed) if failed else first, kinds_broken(text)
    return None, "not found"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", help="where the copy of the tree is made",
                        default=os.path.join(TREE, "build", "mutants"))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or MUTANTS
    missed = 0
    folder = os.path.join(options.folder, "tree")
    shutil.rmtree(folder, ignore_errors=True)
    copy_tree(folder)
    build(folder, options.jobs)
    for name in names:
        began = time.monotonic()
        mutant = MUTANTS[name]
        saved = {}
        try:
            plant(folder, mutant, saved)
            build(folder, options.jobs)
            seeds, what = seek(folder, options, name)
        except Failure as failure:
            print(failure, file=sys.stderr)
            seeds, what = None, "cannot be made"
        finally:
            for path, text in saved.items():
                Path(path).write_text(text, encoding="utf-8")
        missed += seeds is None
        row = (name, "-" if seeds is None else str(seeds), what,
               f"{time.monotonic() - began:.0f} s", mutant[3])
        print("| " + " | ".join(row) + " |" if options.markdown else
              f"{row[0]:28} {row[1]:>6}  {row[2]:24} {row[3]:>6}  {row[4]}",
              flush=True)
    print(f"{len(names) - missed} of {len(names)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
