"""Tests of the Python client: `python3 -m unittest` in the folder above."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))), "src"))
