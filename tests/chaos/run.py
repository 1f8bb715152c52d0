#!/usr/bin/env python3
"""Chaos with real processes, and a verdict on it.

    run.py [--minutes M] [--seed S] [--topology single|cluster|quorum]
           [--faults NAME,...] [--clients N] [--record FILE] [--keep FOLDER]
           [--languages]

Starts Redis (one, a cluster of three masters with a replica each, or a quorum
of three) and three holdfastd ($HOLDFASTD or build/holdfastd). Thirty client
processes, relays, and a resource that the locks protect follow. Each round has
faults drawn from the seed (faults.py), a heal, and a probe of every lock.
Clients behave as PROTOCOL.md, section 6.5, asks for (worker.py) and write down
what they believe; checker.py judges it as three workloads:

  mutex    the belief intervals of a lock do not overlap, and fences grow
  set      read, think, write under the lock: no acknowledged update is lost
  fenced   the same at a resource that refuses smaller fences: none is lost,
           whatever happens

Violations without a promise (after a failover, wiped data, a clock set
forward) are excused by their cause, for its locks and its time, and counted.
Anything else is a violation; the histories are then kept. As root each server
has a host of its own, a network namespace. Without root, cuts and the full
disk are left out, and relays disturb the network. Nothing of the machine is
changed.

--languages: the clients are those of proto/clients, at two brokers before a
cluster, by their conformance drivers (languages.py). Their workload is `mutex`.

--faults takes beginnings of names, such as `redis.,client.kill`. --record adds
one line of JSON to a file; `--sum FILE` adds such lines up. The exit status is
0 where there is no violation.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)

import checker  # noqa: E402
import faults  # noqa: E402
import languages  # noqa: E402
from harness import Client  # noqa: E402
from harness.broker import SANITIZER_TEXTS, broker_path  # noqa: E402
from harness.processes import sweep_folders, temp_folder  # noqa: E402
from worker import Worker  # noqa: E402
from world import World  # noqa: E402

GRACE = 1.5         # s on top of the lease in which a loss may show
LATE_READ = 0.5     # s that a LOST may lie unread in a running client
UNOBTAINABLE = 3.0  # s on top of the lease that a lock may be away from all

# Both kinds of links can be made.
LINKS_TRIAL = "ip link add type bridge; ip link add type veth"


def parse(argv):
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(),
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--topology", choices=("single", "cluster", "quorum"),
                        help="single, or cluster with --languages")
    parser.add_argument("--faults")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--languages", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--keep")
    parser.add_argument("--sum", metavar="FILE")
    parser.add_argument("--inside", action="store_true",
                        help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true",
                        help="no namespaces, as without root")
    options = parser.parse_args(argv)
    options.topology = options.topology or (
        "cluster" if options.languages else "single")
    options.clients = options.clients or (12 if options.languages else 30)
    if options.languages:
        options.faults = options.faults or languages.FAULTS
    return options


def go_inside(argv):
    """Namespaces for the whole run, where they can be had; else returns."""
    wrap = ["unshare", "--net", "--mount"]
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip") \
            and subprocess.run([*wrap, "sh", "-ec", LINKS_TRIAL],
                               stderr=subprocess.DEVNULL).returncode == 0:
        os.execvp("unshare", [*wrap, sys.executable,
                              os.path.abspath(__file__), *argv, "--inside"])
    print("no namespaces to be had: no cuts, no full disk; relays alone "
          "trouble the network")


def build_clock(folder):
    """The preloaded clock; None where no compiler is there."""
    path = os.path.join(folder, "clock.so")
    try:
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC",
                        "-std=gnu11", "-D_GNU_SOURCE", "-o", path,
                        os.path.join(HERE, "clock.c")], check=True)
    except (OSError, subprocess.CalledProcessError):
        print("no compiler: clocks are not moved")
        return None
    return path


def read_lines(path):
    """Events of a file; a line that SIGKILL cut off is left out."""
    events = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    events.append(json.loads(line))
                except ValueError:
                    continue
    return events


def final_values(world):
    """The last writes, as the resource tells them."""
    host, _, port = world.register_address.rpartition(":")
    values = {}
    with socket.create_connection((host, int(port)), 5.0) as peer:
        lines = peer.makefile("r")
        for lock in world.locks:
            answer = Worker.register(peer, lines, op="read", lock=lock,
                                     fence=1 << 53)
            values[lock] = answer["id"]
    return values


def gather(world, chaos):
    """The run, as checker.py wants it."""
    histories = {worker.name: read_lines(worker.history)
                 for worker in world.workers}
    histories["probe"] = chaos.probe_events
    return {
        "lease": world.lease, "grace": GRACE, "late_read": LATE_READ,
        "unobtainable": world.lease + UNOBTAINABLE + world.linger,
        "histories": histories, "writes": read_lines(world.register_log),
        "final": final_values(world), "world": world.events}


def stop_clients(world):
    """They finish what they do; who does not is killed."""
    for worker in world.workers:
        worker.finish()
    deadline = time.monotonic() + 20
    for worker in world.workers:
        try:
            worker.process.wait(max(0.1, deadline - time.monotonic()))
        except AssertionError:
            worker.kill()


def leaks(world):
    """Nobody is left: no broker has a hold or a wait."""
    bound = time.monotonic() + world.lease + UNOBTAINABLE + world.linger
    for broker in world.brokers:
        with Client(broker.address) as client:
            items = True
            while items and time.monotonic() < bound:
                items = client.ok("LOCKS").items
                time.sleep(0.05)
            for item in items:
                world.broken(f"{broker.name}: a leaked hold: {item.line}")


def sanitizer_reports(world):
    """Of all that each broker has printed, over its restarts."""
    for broker in world.brokers:
        log = broker.process.log()
        for text in SANITIZER_TEXTS:
            if text in log:
                world.broken(f"{broker.name}: "
                             f"{log[max(0, log.find(text) - 200):][:3000]}")


def run(options):
    """(world, verdict, seconds, rounds)."""
    clock = build_clock(temp_folder())
    kind = languages.World if options.languages else World
    world = kind(options.topology, options.seed, options.inside,
                 options.clients, clock)
    wanted = options.faults.split(",") if options.faults else None
    try:
        begin = time.monotonic()
        world.start()
        chaos = faults.Chaos(world, options.seed, wanted)
        world.sleep(1.0)
        rounds = 0
        while time.monotonic() - begin < options.minutes * 60:
            try:
                chaos.round()
            except (RuntimeError, OSError) as error:
                world.broken(f"no more rounds: {error!r}")
                break
            rounds += 1
            if rounds % 5 == 0:
                print(f"{time.monotonic() - begin:6.0f} s, {rounds} "
                      f"rounds, {sum(world.counts.values())} faults",
                      flush=True)
        seconds = time.monotonic() - begin
        stop_clients(world)
        leaks(world)
        sanitizer_reports(world)
        run_data = gather(world, chaos)
        verdict = checker.check(run_data)
        if options.keep or not verdict.ok:
            keep(options, world, run_data)
        return world, verdict, seconds, rounds
    finally:
        world.close()


def keep(options, world, run_data):
    """The files for an analysis."""
    folder = options.keep or os.path.join(
        tempfile.gettempdir(), f"chaos-{options.topology}-{options.seed}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "run.json"), "w",
              encoding="utf-8") as file:
        json.dump(run_data, file)
    for name in os.listdir(world.folder):
        path = os.path.join(world.folder, name)
        if os.path.isfile(path):
            shutil.copy(path, folder)
        elif os.path.exists(os.path.join(path, "holdfastd.log")):
            shutil.copy(os.path.join(path, "holdfastd.log"),
                        os.path.join(folder, f"{name}.log"))
    print(f"kept in {folder}")


def record_of(options, world, verdict, seconds, rounds):
    return {
        "topology": options.topology, "seed": options.seed, "runs": 1,
        "seconds": round(seconds, 1), "rounds": rounds,
        "acquisitions": verdict.acquisitions, "holds": verdict.holds,
        "requests": verdict.requests, "writes": verdict.writes,
        "fenced_writes": verdict.fenced_writes,
        "refused_writes": verdict.refused_writes,
        "late_reads": verdict.late_reads,
        "client_starts": sum(w.starts for w in world.workers),
        "faults": dict(sorted(world.counts.items())),
        "answers": dict(verdict.answers),
        "holders": dict(verdict.holders), "ends": dict(verdict.ends),
        "excused": dict(verdict.excused),
        "violations": len(verdict.violations),
        "longest_unobtainable_s": round(verdict.longest_unobtainable, 2),
        "lease_s": world.lease}


def add_up(path):
    """One record of many."""
    total = {}
    for line in read_lines(path):
        for key, value in line.items():
            if isinstance(value, dict):
                total[key] = dict(collections.Counter(total.get(key, {})) +
                                  collections.Counter(value))
            elif key.startswith("longest"):
                total[key] = max(total.get(key, 0), value)
            elif key in ("topology", "lease_s", "seed"):
                total.setdefault(key, [])
                if value not in total[key]:
                    total[key].append(value)
            else:
                total[key] = total.get(key, 0) + value
    return total


def tell(record):
    def table(counts):
        return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())
                         ) or "none"
    faults_made = sum(n for name, n in record["faults"].items()
                      if not name.startswith("("))
    print(f"{record['seconds'] / 60:.1f} minutes of {record['topology']}, "
          f"{record['rounds']} rounds, {faults_made} faults, "
          f"{record['acquisitions']} acquisitions, "
          f"{record['requests']} requests, "
          f"{record['client_starts']} client processes")
    print(f"faults: {table(record['faults'])}")
    print(f"answers to LOCK: {table(record['answers'])}")
    print(f"holds: {table(record['holders'])}")
    print(f"ends of holds: {table(record['ends'])}")
    print(f"writes acknowledged: {record['writes']}, of them fenced "
          f"{record['fenced_writes']}; refused {record['refused_writes']}")
    print(f"LOST read late: {record['late_reads']}")
    print(f"excused: {table(record['excused'])}")
    print("longest time that a healed lock was away from everybody: "
          f"{record['longest_unobtainable_s']} s")
    print(f"violations: {record['violations']}", flush=True)


def main(argv):
    options = parse(argv)
    if options.sum:
        tell(add_up(options.sum))
        return 0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
        argv = [*argv, "--seed", str(options.seed)]
    if options.languages and not options.inside:
        languages.build()
    if not options.inside and not options.plain:
        go_inside(argv)
    if not os.access(broker_path(), os.X_OK):
        print(f"{broker_path()} is not built", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sweep_folders()
    print(f"chaos: {options.topology}, seed {options.seed}", flush=True)
    world, verdict, seconds, rounds = run(options)
    for text in verdict.violations[:20]:
        print(f"VIOLATION {text}")
    record = record_of(options, world, verdict, seconds, rounds)
    tell(record)
    if options.record:
        with open(options.record, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
