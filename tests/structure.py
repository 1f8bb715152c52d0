#!/usr/bin/env python3
"""Figures of the tree's structure, for a comparison before and after a change.

    structure.py [--build FOLDER]

--build is where the objects are (`make objects`). Each folder of C has a row:

files     C files
circle    files that reach one another in a circle, by the symbols they link
head      functions that a header declares
bare      those without a comment there
asserts   assertions for each function
longest   lines of the longest function and of the longest file and header
"""

import argparse
import os
import re
import sys

import lint

ASSERTION = re.compile(r"\b(?:require|assert)\s*\(")


def objects(tree, folder):
    """{file name: object file} of a folder, and those that are not built."""
    items, missing = {}, []
    for path in tree.sources:
        if lint.layer_of(path) == folder and path.endswith(".c"):
            item = os.path.join(tree.build, "obj", path[:-len(".c")] + ".o")
            if os.path.exists(item):
                items[path] = item
            else:
                missing.append(item)
    return items, missing


def row(tree, folder):
    """The figures of one folder, in the order of the table."""
    paths = [path for path in tree.sources if lint.layer_of(path) == folder]
    items, missing = objects(tree, folder)
    if missing:
        sys.exit(f"structure: {missing[0]} is not built: make objects")
    lines = {path: tree.read(path).count("\n") for path in paths}
    heads = [lint.declared(tree.read(path)) for path in paths
             if path.endswith(".h")]
    lengths, asserts = [], 0
    for path in paths:
        text = tree.read(path)
        lengths += [length for _, _, length
                    in lint.functions(text.splitlines())]
        if path.endswith(".c"):
            asserts += len(ASSERTION.findall(lint.code_of(text)))
    return (folder, len(items), sum(map(len, lint.circles(items))),
            sum(head[0] for head in heads), sum(len(head[1]) for head in heads),
            f"{asserts / max(len(lengths), 1):.2f}", max(lengths, default=0),
            *(max((lines[path] for path in paths if path.endswith(ending)),
                  default=0) for ending in (".c", ".h")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(lint.TREE, "build"))
    tree = lint.Lint(lint.TREE, parser.parse_args().build)
    print(f"{'folder':20} files circle   head bare asserts longest:    "
          "function  file header")
    for folder in sorted(set(map(lint.layer_of, tree.sources)), key=str):
        if folder in lint.LAYERS:
            print("{:20} {:5} {:6} {:6} {:4} {:>7} {:20} {:5} {:6}".format(
                *row(tree, folder)))
    for what, ours in (("product", False), ("tests", True)):
        paths = [path for path in tree.files
                 if path.endswith(lint.NARROW)
                 and path.startswith("tests/") == ours]
        total = sum(tree.read(path).count("\n") for path in paths)
        print(f"{what}: {len(paths)} files, {total} lines")


if __name__ == "__main__":
    main()
