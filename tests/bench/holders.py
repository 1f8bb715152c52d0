#!/usr/bin/env python3
"""From the end of a holder in each language to the next one's grant.

Default settings. The waiter is a client of the next language. HOLDERS_ROUNDS
(100) holders of each are killed, HOLDERS_SILENT (5) stopped, and as many cut
off in a network namespace (as root). Then the broker's CPU for 10,000 sessions
(HOLDERS_SESSIONS) with and without heartbeats. `make conformance` builds the
drivers.
"""

import os
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from measure import TESTS, machine, print_table  # noqa: E402

from harness import Broker, Process, RedisServer, wait_until  # noqa: E402
from harness import crowd  # noqa: E402
from harness.broker import TREE  # noqa: E402

sys.path.insert(0, os.path.join(TESTS, "chaos"))
sys.path.insert(0, os.path.join(TREE, "proto", "clients"))

import clients  # noqa: E402
from network import Network  # noqa: E402

ROUNDS = int(os.environ.get("HOLDERS_ROUNDS", "100"))
SILENT = int(os.environ.get("HOLDERS_SILENT", "5"))
SESSIONS = int(os.environ.get("HOLDERS_SESSIONS", "10000"))
HEARTBEAT_SECONDS = 30
NO_CUT = "--plain"


class Driver:
    """A conformance driver, connected."""

    def __init__(self, row, address, prefix=()):
        self.process = Process([*prefix, *shlex.split(row.driver)], cwd=TREE,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.say(f"connect {address}")
        self.hear("connected")

    def say(self, line):
        self.process.popen.stdin.write(line.encode() + b"\n")
        self.process.popen.stdin.flush()

    def hear(self, begin):
        """Waits for a line that begins so; when it came."""
        for line in self.process.popen.stdout:
            if line.decode().startswith(begin):
                return time.monotonic()
        raise AssertionError(f"{self.process.name} ended without {begin}")


def measure(broker, rounds, harm, prefix=None):
    """[language, next, times, p50 ms, p99 ms] of each."""
    table = []
    rows = [row for row in clients.CLIENTS if not row.missing()]
    with broker.client() as control:
        for row, after in zip(rows, rows[1:] + rows[:1]):
            found, waiter = [], Driver(after, broker.address)
            for number in range(rounds):
                name = f"{row.name}/{number}"
                holder = Driver(row, broker.address,
                                prefix() if prefix else ())
                holder.say(f"lock h {name}")
                holder.hear("h held")
                waiter.say(f"lock {number} {name}")
                wait_until(lambda: control.ok(f"LOCKS prefix={name}").items[0]
                           .number("waiters") == 1, 10, "the waiter waits")
                begin = time.monotonic()
                harm(holder.process)
                found.append((waiter.hear(f"{number} held") - begin) * 1e3)
                waiter.say(f"unlock {number}")
                holder.process.kill()
            waiter.process.kill()
            found.sort()
            table.append([row.name, after.name, rounds] + [
                f"{found[min(rounds - 1, int(rounds * share))]:,.1f}"
                for share in (0.5, 0.99)])
            print(*table[-1], flush=True)
    return table


class Hosts:
    """A host for each holder, which is then unplugged."""

    def __init__(self):
        self.network = Network(True)

    def prefix(self):
        self.network.add(f"holder{len(self.network.hosts)}")
        return self.network.prefix(list(self.network.hosts)[-1])

    def unplug(self, _process):
        """The number of the link is that of network.py."""
        self.network.shell(f"ip link set v{len(self.network.hosts) + 1} down")


def heartbeats(redis):
    """[heartbeat, CPU of the broker, PONGs a second]."""
    table = []
    for words in ("", "heartbeat=2s"):
        with Broker(redis) as broker:
            people = crowd.Crowd()
            for _ in range(SESSIONS):
                peer = people.connect(broker.address)
                peer.send(f"1 HELLO {words}".rstrip())
            pongs, end = 0, time.monotonic() + HEARTBEAT_SECONDS
            begin, before = time.monotonic(), broker.cpu_us()
            while time.monotonic() < end:
                for key, _ in people.selector.select(0.1):
                    key.data.read()
                    while key.data.inbox:
                        line = key.data.inbox.popleft().split(" ")
                        if line[1] == "PING":
                            key.data.send(f"PONG {line[2]}")
                            pongs += 1
            seconds = time.monotonic() - begin
            table.append([words or "none",
                          f"{(broker.cpu_us() - before) / seconds / 1e4:.1f}",
                          f"{pongs / seconds:,.0f}"])
            for key in list(people.selector.get_map().values()):
                key.data.close()
    return table


def main():
    plain = os.geteuid() != 0 or NO_CUT in sys.argv
    if not plain and "--inside" not in sys.argv:
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable,
                              os.path.abspath(__file__), "--inside"])
    hosts = None if plain else Hosts()
    head = ["holder", "next", "times", "p50 ms", "p99 ms"]
    with RedisServer() as redis:
        print(machine(redis), flush=True)
        with Broker(redis) as broker:
            print("\nkilled (SIGKILL)")
            print_table(head, measure(broker, ROUNDS, lambda p: p.kill()))
            print("stopped (SIGSTOP)")
            print_table(head, measure(
                broker, SILENT, lambda p: p.signal(signal.SIGSTOP)))
        if hosts:
            broker = Broker(redis, {
                "listen.beyond_loopback_without_users": "allowed"})
            broker.host = hosts.network.own_address
            broker.config["listen"]["tcp"] = [broker.address]
            with broker:
                print("cut off (its link is down)")
                print_table(head, measure(broker, SILENT, hosts.unplug,
                                          hosts.prefix))
        print_table(["heartbeat", "CPU of the broker %", "PONGs a second"],
                    heartbeats(redis))


if __name__ == "__main__":
    main()
