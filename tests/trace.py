#!/usr/bin/env python3
"""How a `LOCK` winds through the files: changes of file, and depth of calls.

    trace.py [--list]

A build with instrumented functions goes to build/trace, and a daemon of it
serves one LOCK before a private Redis. Functions of daemon/base and of headers
are left out. --list prints each call, by depth.
"""

import argparse
import array
import os
import subprocess
import sys
import tempfile
import time

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TREE, "tests"))

from harness import Broker, RedisServer  # noqa: E402

BUILD = os.path.join(TREE, "build", "trace")
TRACER = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define QUIET __attribute__((no_instrument_function))
static int out = -1;
QUIET static void note(void *function, long way) {
    long words[2] = {(long)function, way};
    if (out == -1)
        out = open(getenv("TRACE"), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (write(out, words, sizeof(words)) != sizeof(words))
        abort();
}
QUIET void __cyg_profile_func_enter(void *function, void *from) {
    (void)from;
    note(function, 1);
}
QUIET void __cyg_profile_func_exit(void *function, void *from) {
    (void)from;
    note(function, -1);
}
"""


def build():
    """The instrumented program."""
    os.makedirs(BUILD, exist_ok=True)
    tracer = os.path.join(BUILD, "tracer")
    with open(tracer + ".c", "w", encoding="ascii") as file:
        file.write(TRACER)
    subprocess.run(["cc", "-c", tracer + ".c", "-o", tracer + ".o"],
                   check=True)
    program = os.path.join(BUILD, "holdfastd")
    subprocess.run(
        ["make", "-s", "-j2", "-C", TREE, f"BUILD={BUILD}",
         "CFLAGS=-O0 -gdwarf-4 -finstrument-functions", "LDFLAGS=-no-pie",
         f"LDLIBS={tracer}.o", program], check=True)
    return program


def places(program, addresses):
    """{address: (function, file)} by the debugger's tables."""
    words = subprocess.run(
        ["addr2line", "-f", "-e", program], check=True, text=True,
        input="".join(f"{address:x}\n" for address in addresses),
        stdout=subprocess.PIPE).stdout.splitlines()
    return {address: (words[2 * at], os.path.relpath(
        words[2 * at + 1].rpartition(":")[0].removeprefix("./"),
        TREE if words[2 * at + 1].startswith("/") else "."))
            for at, address in enumerate(addresses)}


def trace(program):
    """[(address, 1 or -1)] of a LOCK from first to last byte: the shortest of
    several, as timers may come between."""
    runs = []
    with tempfile.NamedTemporaryFile() as file:
        os.environ.update(TRACE=file.name, HOLDFASTD=program)
        with RedisServer() as redis, Broker(redis) as broker:
            client = broker.client()
            client.request("PING")
            for name in range(40):
                time.sleep(0.05)  # whatever came before leaves no work
                file.seek(0, os.SEEK_END)
                client.request(f"LOCK {name}")
                time.sleep(0.02)  # the turn ends after its reply
                words = array.array("l", file.read())
                runs.append(list(zip(words[::2], words[1::2])))
    return min(runs, key=len)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    listed = parser.parse_args().list
    program = build()
    events = trace(program)
    known = places(program, sorted({address for address, _ in events}))
    calls = changes = deepest = 0
    last, stack, files = None, [], set()
    for address, way in events:
        function, path = known[address]
        if not path.endswith(".c") or path.startswith("daemon/base/"):
            continue
        if way < 0:
            stack = stack[:-1]
        else:
            stack.append(path)
            files.add(path)
            calls += 1
            deepest = max(deepest, len(stack))
            if listed:
                print(f"{'  ' * len(stack)}{function}  {path}")
        changes += bool(stack) and stack[-1] != last
        last = stack[-1] if stack else last
    print(f"LOCK: {calls} calls in {len(files)} files, {changes} changes of "
          f"file, depth {deepest}")


if __name__ == "__main__":
    main()
