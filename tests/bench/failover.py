"""Redis fails under load, again and again: what clients see of it.

FAILOVERS says how often, FAILOVER_TOPOLOGIES (cluster, sentinel, quorum,
single) where, FAILOVER_SAFETY at which level. A master is killed, stopped
until a replica takes over, or hands over. Of a quorum of five, one or two
nodes are killed. With FAILOVER_APPENDONLY=yes the nodes of quorum and single
keep their data, without it they lose it.
"""

import collections
import contextlib
import os
import random
import sys
import time

from measure import Beside, while_roaming

from harness import Broker, RedisCluster, RedisServer, Sentinels, wait_until
from harness.resp import RedisError

SESSIONS = int(os.environ.get("FAILOVER_SESSIONS", "200"))
RATE = int(os.environ.get("FAILOVER_RATE", "2000"))
TIMES = int(os.environ.get("FAILOVERS", "6"))
WANTED = os.environ.get("FAILOVER_TOPOLOGIES", "cluster,sentinel,quorum")
SAFETY = os.environ.get("FAILOVER_SAFETY", "fenced")
APPENDONLY = os.environ.get("FAILOVER_APPENDONLY", "no")
NAMES = 100
PAUSED = 1.0  # s, beyond the promotion


def info(node, section="replication"):
    """A new replica ends all its connections."""
    for _ in range(2):
        with contextlib.suppress(OSError):
            return node.info(section)
    return node.info(section)


def scripts_run(node):
    """Calls of scripts by clients; what a master replicates is none."""
    row = info(node, "commandstats").get("cmdstat_evalsha", "")
    return int(row.partition("calls=")[2].partition(",")[0] or 0)


def first_script(node, before):
    """Seconds until brokers ask the new master for something."""
    begin = time.monotonic()
    wait_until(lambda: scripts_run(node) > before, 30.0, "it is asked",
               step=0.002)
    return time.monotonic() - begin


class Failing:
    """A topology, the brokers' configuration, and how it fails."""

    lease = 10.0
    shards = 1

    def __init__(self):
        self.random = random.Random(1)
        self.asked = []  # s from each promotion to the first script

    def overrides(self):
        return {"lease.default": f"{self.lease:g}s",
                "redis.settle": f"{self.lease:g}s", "redis.patience": "60s",
                "redis.safety": SAFETY}

    def replace(self, way, master, replicas, order, promoted):
        """`order` asks for it; `promoted` waits for the new master."""
        before = {replica: scripts_run(replica) for replica in replicas}
        if way == 0:
            master.kill()
        elif way == 1:
            master.pause()
        else:
            order()
        new = promoted()
        self.asked.append(first_script(new, before[new]))
        if way == 0:
            master.start()
        elif way == 1:
            time.sleep(PAUSED)
            master.resume()
        return new


class OfCluster(Failing):
    name = "cluster, 3 masters and 3 replicas"
    shards = 3

    def start(self, stack):
        self.redis = stack.enter_context(RedisCluster(
            3, 1, cluster_node_timeout="1500",
            cluster_replica_validity_factor="0"))
        return self.redis

    def fail(self, turn):
        slot = self.redis.slots_of(turn % 3)[0]
        master = self.redis.node_of_slot(slot)
        replica = next(node for node in self.redis.nodes
                       if info(node).get("master_port") == str(master.port))

        def promoted():
            wait_until(lambda: info(replica)["role"] == "master", 30.0,
                       "it is a master", step=0.002)
            return replica
        self.replace(turn // 3 % 3, master, [replica],
                     lambda: replica.command("CLUSTER", "FAILOVER"), promoted)

        def follows():
            with contextlib.suppress(OSError, RedisError):
                state = info(master)
                return (state["role"] == "slave" and
                        state["master_link_status"] == "up")
            return False
        wait_until(follows, 60.0, "the old master follows")
        self.redis.wait_ok()


class OfSentinels(Failing):
    name = "3 Sentinels, a master and 2 replicas"

    def start(self, stack):
        self.redis = stack.enter_context(Sentinels(3, 2))
        return self.redis

    def fail(self, turn):
        master = self.redis.wait_master()
        replicas = [server for server in self.redis.servers
                    if server is not master]
        self.replace(turn % 3, master, replicas, self.order,
                     lambda: self.redis.wait_master(other_than=master))

        def follow():
            with contextlib.suppress(OSError, RedisError):
                return info(self.redis.master)["connected_slaves"] == "2"
            return False
        wait_until(follow, 60.0, "two replicas follow")

    def order(self):
        def taken():
            with contextlib.suppress(RedisError):
                self.redis.sentinels[0].command("SENTINEL", "FAILOVER",
                                                "mymaster")
                return True
            return False  # it is too early for the next one
        wait_until(taken, 60.0, "a failover is accepted", step=0.1)


class OfNodes(Failing):
    """Nodes that nobody replaces: they come back."""

    lease = 4.0
    count = 1
    killed = 1  # at most

    def start(self, stack):
        self.nodes = [stack.enter_context(RedisServer(appendonly=APPENDONLY))
                      for _ in range(self.count)]
        return [node.address for node in self.nodes]

    def fail(self, turn):
        some = self.random.sample(self.nodes, 1 + turn % self.killed)
        for node in some:
            node.kill()
        time.sleep(PAUSED)
        for node in some:
            node.start()


class OfOne(OfNodes):
    name = f"one node, appendonly {APPENDONLY}"


class OfQuorum(OfNodes):
    name = f"a quorum of 5, appendonly {APPENDONLY}"
    count = 5
    killed = 2

    def overrides(self):
        return {**super().overrides(), "redis.topology": "quorum"}


TOPOLOGIES = {"cluster": OfCluster, "sentinel": OfSentinels,
              "quorum": OfQuorum, "single": OfOne}


class Detached(Beside):
    """Takes detached holds beside a block, and gives each fifth back."""

    def __init__(self, brokers, group):
        super().__init__()
        self.brokers = brokers
        self.group = group
        self.held = {}
        self.ended = {}

    @staticmethod
    def ends(client, name, fence):
        """Whether Redis had the hold until now."""
        return client.request(f"UNLOCK {name} fence={fence} detached=1",
                              timeout=60.0).ok

    def run(self):
        with self.brokers[0].client() as client:
            while not self.over.wait(0.01):
                number = len(self.held) + len(self.ended)
                name = f"detached-{self.group}-{number}"
                reply = client.request(
                    f"LOCK {name} lease=1h detached=1 wait=0", timeout=60.0)
                if not reply.ok:
                    continue
                self.held[name] = reply.fence
                if number % 5 == 0 and self.ends(client, name, reply.fence):
                    self.ended[name] = self.held.pop(name)

    def count(self):
        """How many were held, and stand; were given back, and stand."""
        with self.brokers[1].client() as client:
            return [number for holds in (self.held, self.ended)
                    for number in (len(holds), sum(
                        self.ends(client, *hold) for hold in holds.items()))]


def fail_often(failing, brokers):
    """Counts of detached holds: of each failure's, and of the first one's."""
    counts = [0] * 4
    with Detached(brokers, "first") as first:
        time.sleep(2.0)
    for turn in range(TIMES):
        with Detached(brokers, turn) as detached:
            time.sleep(2.0)
            failing.fail(turn)
        # Else a node that knows nothing yet is followed by the next.
        time.sleep(failing.lease + 1.0)
        counts = [sum(pair) for pair in zip(counts, detached.count())]
    return counts, first.count()


def measure(bench, kind):
    failing = TOPOLOGIES[kind]()
    with contextlib.ExitStack() as stack:
        redis = failing.start(stack)
        brokers = [stack.enter_context(Broker(redis, failing.overrides()))
                   for _ in range(2)]
        for broker in brokers:
            broker.wait_redis()
        time.sleep(failing.lease)  # until they are settled
        result, (each, first) = while_roaming(
            lambda: fail_often(failing, brokers), brokers,
            connections=SESSIONS, rate=RATE, keys=NAMES, shards=failing.shards)
    asked = sorted(failing.asked)
    bench.keep("failover", {**result, "topology": kind, "safety": SAFETY,
                            "failovers": TIMES, "asked_s": asked,
                            "detached": [each, first]})
    bench.head(f"{failing.name}, {SAFETY}: {TIMES} failures under "
               f"{SESSIONS} kept sessions at two brokers, lease "
               f"{failing.lease:g} s; each holds a lock of its own and takes "
               f"one of {NAMES}")
    bench.table(["lock + unlock", "a second", "lost", "two holders",
                 "fence back", "refused", "ended"],
                [[f"{result['pairs']:,}", f"{result['pairs_per_s']:,}",
                  result["lost"], result["doubled"], result["backwards"],
                  result["refused"], result["closed"]]])
    bench.table(["", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"],
                [[name] + [f"{result[key][mark] / 1000:,.1f}"
                           for mark in ("p50", "p99", "p999", "max")]
                 for name, key in (("LOCK, asked to granted", "lock_us"),
                                   ("UNLOCK", "unlock_us"),
                                   ("one lock, grant to grant", "gap_us"))])
    bench.table(["detached holds", "held", "stand", "released", "stand"],
                [[f"of {TIMES} times before a failure", *each],
                 ["of the time before all", *first]])
    gaps = ", ".join(f"{gap / 1000:.1f}" for gap in result["shard_ms"])
    bench.say(f"Longest time without a grant, of each shard: {gaps} s.\n")
    if asked:
        bench.say(f"Promotion to the first script there: median "
                  f"{asked[len(asked) // 2] * 1000:.0f} ms, longest "
                  f"{asked[-1] * 1000:.0f} ms.\n")
    if result["backwards"]:
        print(f"failover: {kind}: fences ran backwards", file=sys.stderr)


def run(bench):
    for kind in WANTED.split(","):
        measure(bench, kind)
