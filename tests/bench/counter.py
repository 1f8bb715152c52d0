#!/usr/bin/env python3
"""A hundred times `holdfast run`, twenty at once, count to 100."""

import concurrent.futures
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from measure import command_path, have  # noqa: E402

from harness import Broker, RedisServer, broker_path, temp_folder  # noqa: E402

TIMES = 100
AT_ONCE = 20
SCRIPT = "expr 1 + $(cat f) > f"


def count_once(address, folder):
    """One increment under the lock; the exit status and what was printed."""
    done = subprocess.run(
        [os.path.abspath(command_path()), "run", "k", "--", "sh", "-c",
         SCRIPT], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=120, check=False,
        env={**os.environ, "HOLDFAST_ADDR": address})
    return done.returncode, done.stdout + done.stderr


def main():
    for path in (broker_path(), command_path()):
        if not have(path):
            print(f"{path} is not built", file=sys.stderr)
            return 1
    folder = temp_folder()
    counter = os.path.join(folder, "f")
    with open(counter, "w", encoding="ascii") as file:
        file.write("0\n")
    begin = time.monotonic()
    with RedisServer() as redis, Broker(redis) as one, Broker(redis) as two, \
            concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(lambda number: count_once(
            (one, two)[number % 2].address, folder), range(TIMES)))
    with open(counter, encoding="ascii") as file:
        value = file.read().strip()
    failed = [end for end in ends if end[0] != 0]
    for status, text in failed[:5]:
        print(f"status {status}: {text}", file=sys.stderr)
    print(f"{TIMES} increments, {AT_ONCE} at once: {value} counted, "
          f"{len(failed)} failed, {time.monotonic() - begin:.1f} s")
    return 0 if value == str(TIMES) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
