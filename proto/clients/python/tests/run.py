#!/usr/bin/env python3
"""Runs the tests with real brokers; -h says how. Without the tree around it,
`python3 -m unittest discover -s tests` runs those that need none."""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "../../../../tests"))

from harness import runner  # noqa: E402

if __name__ == "__main__":
    sys.exit(runner.main(FOLDER, sys.argv))
