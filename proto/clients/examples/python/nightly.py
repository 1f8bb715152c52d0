#!/usr/bin/env python3
"""Three nodes schedule the same job, and each run is done by one of them.

The clocks of nodes differ: one node may be done before another one begins. So
nobody gets the lock for a minute after a run: release(delay=60). The name of
the lock has the night.
"""

import argparse
import random
import subprocess
import sys
import time

import holdfast

NIGHTS = ("mon", "tue", "wed")


def node(broker):
    with holdfast.connect(broker) as hf:
        for night in NIGHTS:
            time.sleep(random.uniform(0, 0.3))  # its clock
            lock = hf.lock(f"nightly/{night}", wait=0)
            try:
                lock.acquire()
            except holdfast.Busy:
                print(night, "is skipped")
            else:
                print(night, "is done")
                lock.release(delay=60)


def show(broker):
    nodes = [subprocess.Popen(
        [sys.executable, __file__, "--broker", broker, "--node"],
        stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for number, each in enumerate(nodes, 1):
            for line in each.communicate()[0].splitlines():
                print(f"node {number}: {line}", flush=True)
    finally:
        for each in nodes:
            each.kill()
            each.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:4653")
    parser.add_argument("--node", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    (node if options.node else show)(options.broker)
