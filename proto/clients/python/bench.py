#!/usr/bin/env python3
"""Pairs of lock and unlock a second, beside redis-py's Lock, in one run.

    bench.py [--seconds 3] [--users 1,32,64] [--redis PORT] [--broker ADDRESS]

Each user is a thread (aio: a task) with a lock of its own, and then all with
one lock. It needs the tests' harness, and redis-py for the comparison.
"""

import argparse
import asyncio
import os
import resource
import sys
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "src"))
sys.path.insert(0, os.path.join(FOLDER, "../../../tests"))

import holdfast  # noqa: E402


def cpu():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def threads(users, seconds, pair):
    """(pairs a second, CPU microseconds a pair)."""
    counts = [0] * users
    end = [0.0]
    start = threading.Barrier(users + 1)

    def work(user):
        start.wait()
        while time.monotonic() < end[0]:
            pair(user)
            counts[user] += 1

    pool = [threading.Thread(target=work, args=(user,))
            for user in range(users)]
    for thread in pool:
        thread.start()
    begin, used = time.monotonic(), cpu()
    end[0] = begin + seconds
    start.wait()
    for thread in pool:
        thread.join()
    total = sum(counts)
    return total / (time.monotonic() - begin), \
        (cpu() - used) / max(1, total) * 1e6


def tell(what, users, result):
    print(f"{what:24} {users:3} users {result[0]:8.0f} pairs/s "
          f"{result[1]:6.0f} us CPU/pair", flush=True)


def run_threads(options, address):
    with holdfast.connect(address) as hf:
        for users in options.users:
            for what, name, confirm in (("", "", True), (" one lock", "one",
                                                         True),
                                        (" confirm=False", "", False)):
                def pair(user):
                    with hf.lock(name or f"lock/{user}", confirm=confirm):
                        pass
                tell("holdfast" + what, users,
                     threads(users, options.seconds, pair))


def run_redis(options, port):
    try:
        import redis
    except ImportError:
        print("redis-py is not installed")
        return
    client = redis.Redis(port=port)
    for users in options.users:
        for one in (False, True):
            def pair(user):
                with client.lock("one" if one else f"lock/{user}",
                                 timeout=30):
                    pass
            tell("redis-py" + (" one lock" if one else ""), users,
                 threads(users, options.seconds, pair))


def run_aio(options, address):
    try:
        from holdfast import aio
    except ImportError:
        return

    async def run():
        async with aio.connect(address) as hf:
            for users in options.users:
                for one in (False, True):
                    count = 0
                    end = time.monotonic() + options.seconds

                    async def work(user):
                        nonlocal count
                        while time.monotonic() < end:
                            async with hf.lock("one" if one
                                               else f"lock/{user}"):
                                count += 1
                    used = cpu()
                    await asyncio.gather(*map(work, range(users)))
                    tell("holdfast.aio" + (" one lock" if one else ""), users,
                         (count / options.seconds,
                          (cpu() - used) / max(1, count) * 1e6))
    asyncio.run(run())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--users", default="1,32,64",
                        type=lambda text: list(map(int, text.split(","))))
    parser.add_argument("--only", default="threads,redis,aio")
    options = parser.parse_args()
    import harness
    with harness.RedisServer() as redis, harness.Broker(redis) as broker:
        broker.wait_redis()
        address = broker.address
        for name in options.only.split(","):
            if name == "redis":
                run_redis(options, redis.port)
            else:
                globals()[f"run_{name}"](options, address)


if __name__ == "__main__":
    main()
