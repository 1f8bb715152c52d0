"""Calls of the load generator and tables of what it found."""

import json
import os
import platform
import statistics
import subprocess
import sys
import threading

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)

from harness import broker, processes  # noqa: E402

SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))  # of one measurement
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))


class MeasureFailure(Exception):
    """The load generator met something unexpected."""


def loadgen_path():
    return os.environ.get("LOADGEN") or os.path.join(
        broker.TREE, "build", "loadgen")


def command_path():
    """The holdfast command."""
    return os.environ.get("HOLDFAST") or os.path.join(
        broker.TREE, "build", "holdfast")


def have(path):
    return os.access(path, os.X_OK)


def loadgen_argv(mode, addresses, pids=(), **options):
    argv = [loadgen_path(), "--mode", mode]
    for address in addresses:
        argv += ["--address", address]
    for pid in pids:
        argv += ["--cpu-pid", str(pid)]
    for name, value in options.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    return argv


def loadgen(mode, *addresses, pids=(), timeout=600, **options):
    """Runs one measurement; its JSON as a dict."""
    argv = loadgen_argv(mode, addresses, pids, **options)
    done = subprocess.run(argv, capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL,
                          preexec_fn=processes.die_with_parent, check=False)
    if done.returncode != 0:
        raise MeasureFailure(f"{' '.join(argv[1:])}: status "
                             f"{done.returncode}\n{done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def while_roaming(act, brokers, **options):
    """Results of roaming sessions while `act` ran, and its own result."""
    argv = loadgen_argv("roam", [broker.address for broker in brokers],
                        **options)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True,
                          preexec_fn=processes.die_with_parent) as load:
        if not load.stdout.readline():
            raise MeasureFailure("the sessions did not begin")
        done = act()
        load.stdin.close()
        answer = load.stdout.readline()
        load.wait(120)
    if not answer:
        raise MeasureFailure(f"the load ended with {load.returncode}")
    return json.loads(answer), done


class Spread:
    """The median of some values, the least and the greatest."""

    def __init__(self, values):
        self.values = list(values)

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self, places=0, spread=True):
        def number(value):
            return f"{value:,.{places}f}"
        if not spread or len(self.values) < 2:
            return number(self.median)
        return (f"{number(self.median)} ({number(min(self.values))}.."
                f"{number(max(self.values))})")


def latency_rows(found):
    """Rates and times of each way: [name, pairs/s, p50, p99]."""
    return [[name, Spread(r["pairs_per_s"] for r in results).text()] +
            [Spread(r["acquire_us"][mark] for r in results).text()
             for mark in ("p50", "p99")] for name, results in found.items()]


class Beside:
    """run() in a thread, beside what the block does; it ends by `over`."""

    def __init__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def print_table(head, rows, markdown=False):
    """The first column to the left, the others to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows])
              for i in range(len(head))]

    def line(row):
        cells = [cell.ljust(width) if i == 0 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        return f"| {' | '.join(cells)} |" if markdown else "  ".join(cells)

    print(line(head))
    if markdown:
        print("|" + "|".join(
            ":" + "-" * (width + 1) if i == 0 else "-" * (width + 1) + ":"
            for i, width in enumerate(widths)) + "|")
    else:
        print("  ".join("-" * width for width in widths))
    for row in rows:
        print(line(row))
    print(flush=True)


def machine(redis):
    """One line about where this was measured."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for text in file:
            if text.startswith("model name"):
                model = text.partition(":")[2].strip()
                break
    return (f"{os.cpu_count()} x {model}, Linux {platform.release()}, "
            f"Redis {redis.info('server')['redis_version']}; load, daemon and "
            "Redis on the same host, loopback")
