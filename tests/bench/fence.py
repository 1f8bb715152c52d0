#!/usr/bin/env python3
"""A fence never runs backwards, whatever happens to Redis.

A million grants over two brokers, while Redis is wiped, stopped, made to
forget its scripts, or killed and restarted empty. By environment: FENCE_GRANTS
(1000000), FENCE_FAULTS (20), FENCE_NAMES (4), FENCE_CONNECTIONS (16). The exit
status is 0 if no fence ran backwards and none was told twice.
"""

import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from measure import have, loadgen_argv, loadgen_path  # noqa: E402

from harness import Broker, RedisServer, broker_path  # noqa: E402
from harness.processes import die_with_parent  # noqa: E402

GRANTS = int(os.environ.get("FENCE_GRANTS", "1000000"))
FAULTS = int(os.environ.get("FENCE_FAULTS", "20"))
NAMES = int(os.environ.get("FENCE_NAMES", "4"))
CONNECTIONS = int(os.environ.get("FENCE_CONNECTIONS", "16"))

TROUBLES = (
    ("FLUSHALL", lambda redis: redis.command("FLUSHALL")),
    ("DEBUG SLEEP 1", lambda redis: redis.command("DEBUG", "SLEEP", "1")),
    ("SCRIPT FLUSH", lambda redis: redis.command("SCRIPT", "FLUSH")),
    ("restart, empty", lambda redis: redis.restart(kill=True)),
)


def trouble(redis, number, granted):
    name, act = TROUBLES[number % len(TROUBLES)]
    print(f"{granted:>10,} grants: {name}", flush=True)
    act(redis)


def watch(load, redis):
    """Reads the progress of the load and troubles Redis between."""
    done = 0
    for line in load.stderr:
        word, _, rest = line.partition(" ")
        if word != "progress":
            print(line, end="", flush=True)
            continue
        granted = int(rest)
        while done < FAULTS and granted >= GRANTS * (done + 1) // (FAULTS + 1):
            trouble(redis, done, granted)
            done += 1
    return done


def main():
    for path in (broker_path(), loadgen_path()):
        if not have(path):
            print(f"{path} is not built", file=sys.stderr)
            return 1
    lease = {"lease.default": "2s"}
    begin = time.monotonic()
    with RedisServer() as redis, Broker(redis, lease) as one, \
            Broker(redis, lease) as two, subprocess.Popen(
                loadgen_argv("fence", [one.address, two.address],
                             connections=CONNECTIONS, keys=NAMES,
                             grants=GRANTS),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                preexec_fn=die_with_parent) as load:
        done = watch(load, redis)
        answer = load.stdout.read()
        status = load.wait()
    if not answer:
        print(f"the load ended with status {status}", file=sys.stderr)
        return 1
    result = json.loads(answer)
    print(f"{result['grants']:,} grants on {NAMES} names over two brokers, "
          f"{done} troubles, {time.monotonic() - begin:.0f} s: "
          f"{result['backwards']} backwards, {result['doubled']} told twice; "
          f"{result['refused']} refused, {result['lost']} told lost, "
          f"{result['not_held']} not held any more")
    return 0 if status == 0 and done == FAULTS else 1


if __name__ == "__main__":
    sys.exit(main())
