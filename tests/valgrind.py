#!/usr/bin/env python3
"""The unit tests, and a life of the daemon and of the command, under memcheck.

    valgrind.py BUILD

BUILD has the programs, without a sanitizer (`make valgrind` makes them). A use
of memory that was never written or is not ours fails, and so does memory that
nobody can give back any more. The life has a hand-over, an odd line, unread
answers, a lost connection to Redis and HTTP. It ends with `holdfast run`, and
with a stop while a lock is held.
"""

import contextlib
import os
import re
import stat
import subprocess
import sys

TESTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, TESTS)

from harness import Broker, RedisServer  # noqa: E402

ERROR = 99
VALGRIND = ["valgrind", "--quiet", "--leak-check=full",
            "--errors-for-leak-kinds=definite", f"--error-exitcode={ERROR}"]
SECONDS = 120.0  # memcheck is slow, and so may the machine be


def wrapper(build, folder):
    """A program that runs the daemon under memcheck."""
    path = os.path.join(folder, "holdfastd")
    with open(path, "w", encoding="utf-8") as file:
        words = " ".join(VALGRIND)
        file.write(f"#!/bin/sh\nexec {words} {build}/holdfastd \"$@\"\n")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def unit_tests(build):
    """Each test is a process of its own, with an end of its own."""
    done = subprocess.run([*VALGRIND, f"{build}/unit-tests"],
                          env={**os.environ, "CK_TIMEOUT_MULTIPLIER": "30",
                               "CK_EXCLUDE_TAGS": "huge"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    text = done.stdout.decode(errors="replace")
    last = text.strip().splitlines()[-1]
    # Tests of assertions end by SIGABRT; what they held then is no leak.
    errors = re.findall(r"^==\d+== (?:Invalid|Conditional|Use of|Syscall).*",
                        text, flags=re.M)
    print(f"valgrind: unit tests: {last}; {len(errors)} errors", flush=True)
    if done.returncode != 0 or errors:
        print(text)
        return False
    return True


def talk(broker, redis):
    with contextlib.ExitStack() as stack:
        def client():
            return stack.enter_context(contextlib.closing(
                broker.client(timeout=SECONDS)))

        first, second, reader = client(), client(), client()
        first.ok("LOCK a note=a%20note")
        tag = second.submit("LOCK a progress=1")
        first.ok("SHOW a")
        first.ok("UNLOCK a")
        second.wait(tag)
        reader.socket.sendall(b"PING\nPIN")
        reader.socket.sendall(b"G\n" + b"STATS\n" * 200)
        redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        second.ok("UNLOCK a")
        first.request("NONSENSE")
        for path in ("/metrics", "/readyz", "/"):
            broker.http(path, timeout=SECONDS)
        reader.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while reader.socket.recv(1 << 16):
                pass


def run_command(build, broker):
    done = subprocess.run(
        [*VALGRIND, f"{build}/holdfast", "run", "job", "--", "sh", "-c",
         "exit 7"], env={**os.environ, "HOLDFAST_ADDR": broker.address},
        timeout=SECONDS, stderr=subprocess.PIPE, check=False)
    print(f"valgrind: holdfast run: status {done.returncode} (7 is right)")
    if done.returncode != 7:
        print(done.stderr.decode(errors="replace"))
    return done.returncode == 7


def life(build):
    redis = RedisServer().start()
    broker = Broker(redis, {"session.stop_grace": "500ms"})
    broker.program = wrapper(build, broker.dir)
    try:
        broker.start(SECONDS)
        talk(broker, redis)
        good = run_command(build, broker)
        with contextlib.closing(broker.client(timeout=SECONDS)) as holder:
            holder.ok("LOCK held")
            broker.terminate()
            status = broker.wait_exit(SECONDS)
        print(f"valgrind: holdfastd: status {status} ({ERROR}: errors)")
        if status != 0:
            print(broker.log())
        return good and status == 0
    finally:
        with contextlib.suppress(AssertionError):
            broker.close()
        redis.close()


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    build = os.path.abspath(arguments[0])
    good = life(build)
    return 0 if unit_tests(build) and good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
