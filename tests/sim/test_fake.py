"""The simulator's Redis against a real one: the same bytes for the same.

sim-fake-check (fake_check.c) sends random commands to both, on a server and on
a cluster with moving slots. $HOLDFAST_SEED and $HOLDFAST_STEPS choose a run,
$SIM_FAKE_CHECK a program.
"""

import os
import random

from harness import HarnessCase, RedisServer, ports
from harness.broker import TREE

PROGRAM = os.environ.get("SIM_FAKE_CHECK") or os.path.join(
    TREE, "build", "sim-fake-check")
SLOTS = 16384
STEPS = int(os.environ.get("HOLDFAST_STEPS", "1000000"))
SECONDS = 300.0


class Fake(HarnessCase):
    test_timeout = SECONDS + 30

    def check(self, count, *addresses):
        """One run of the program; what it says is the test's output."""
        seed = os.environ.get("HOLDFAST_SEED") or str(
            random.SystemRandom().randrange(2 ** 32))
        log = os.path.join(self.folder(), "log")
        run = self.process([PROGRAM, "--seed", seed, "--count", str(count),
                            *addresses], log_path=log)
        status = run.wait(SECONDS)
        with open(log, encoding="utf-8", errors="replace") as file:
            said = file.read()
        self.assertEqual(status, 0, f"seed={seed}\n{said}")
        print(said, end="")

    def test_single(self):
        server = self.redis(enable_protected_configs=True)
        self.check(STEPS, server.address)

    def deaf_cluster(self, count):
        """Masters that know each other from their files alone."""
        nowhere = ports.reserve()
        self.addCleanup(nowhere.release)
        nodes = [RedisServer(cluster_enabled=True,
                             cluster_config_file="nodes.conf",
                             cluster_node_timeout=3600000,
                             cluster_require_full_coverage=False)
                 for _ in range(count)]
        for number, node in enumerate(nodes):
            self.addCleanup(node.close)
            with open(os.path.join(node.dir, "nodes.conf"), "w",
                      encoding="ascii") as file:
                file.write(self.nodes_conf(nodes, number, nowhere.number))
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready()
            self.wait_until(lambda node=node: "cluster_state:ok"
                            in node.text("CLUSTER", "INFO"))
        return nodes

    @staticmethod
    def nodes_conf(nodes, me, bus):
        lines = []
        for number, node in enumerate(nodes):
            flags = "myself,master" if number == me else "master"
            first = number * SLOTS // len(nodes)
            last = (number + 1) * SLOTS // len(nodes) - 1
            lines.append(f"{number + 1:040x} {node.address}@{bus} {flags} - "
                         f"0 0 {number + 1} connected {first}-{last}\n")
        lines.append(f"vars currentEpoch {len(nodes)} lastVoteEpoch 0\n")
        return "".join(lines)

    def test_cluster(self):
        nodes = self.deaf_cluster(3)
        self.check(STEPS // 10, "--cluster", *[node.address
                                               for node in nodes])
