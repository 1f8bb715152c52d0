#!/usr/bin/env python3
"""Runs the checker's tests and a short chaos: see harness/runner.py, or -h."""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(FOLDER))

from harness import runner  # noqa: E402

if __name__ == "__main__":
    sys.exit(runner.main(FOLDER, sys.argv))
