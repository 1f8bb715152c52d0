"""The world of chaos: Redis, three brokers, relays, a resource, clients.

World starts and ends it all, notices an unexpected death, and keeps the list
of events for checker.py. Faults are in faults.py.
"""

import contextlib
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time

from harness import (HEAD_AT, Broker, Process, RedisCluster, RedisError,
                     RedisServer, slot_of, temp_folder, wait_until)
from harness import ports

from network import Network

HERE = os.path.dirname(os.path.abspath(__file__))
BROKERS = 3
GROUPS = 3
QUORUM = 3
NODE = {
    "appendonly": "yes", "appendfsync": "no",
    "auto-aof-rewrite-min-size": "16mb", "enable-debug-command": "yes",
}
CLUSTER = {
    "cluster-enabled": "yes", "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": "1500", "cluster-replica-validity-factor": "0",
    "cluster-migration-barrier": "1", "cluster-allow-replica-migration": "no",
    "repl-backlog-ttl": "0",
}
DISK_MIB = 192
HEAL_SECONDS = 40.0


class Clock:
    """The wall clock of one process, as clock.c moves it."""

    def __init__(self, folder, library):
        path = os.path.join(folder, "clock")
        with open(path, "wb") as file:
            file.write(bytes(8))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.env = {"LD_PRELOAD": library, "CHAOS_CLOCK": path} \
            if library else {}

    @property
    def offset(self):
        return struct.unpack("q", self._map)[0] / 1e6

    def set(self, seconds):
        self._map[:] = struct.pack("q", int(seconds * 1e6))


class Node(RedisServer):
    """A redis-server on a host of its own, with its own clock and disk."""

    def __init__(self, world, name, **config):
        self.world = world
        self.name = name
        address = world.network.add(name)
        folder = os.path.join(world.folder, name)
        os.makedirs(folder)
        world.mount(folder)
        self.clock = Clock(world.temp(f"{name}-clock"), world.clock_library)
        super().__init__(redis_folder=folder, host=address,
                         **{k.replace("-", "_"): v
                            for k, v in {**NODE, **config}.items()})

    def spawn(self):
        self.process = Process(
            [*self.world.network.prefix(self.name), self.program,
             self._write_config()],
            cwd=self.dir, env={**os.environ, **self.clock.env},
            log_path=os.path.join(self.world.folder, f"{self.name}.log"),
            name=f"{self.name} {self.port}")
        return self

    def fence_of(self, lock):
        """The last fence in a lock's record; 0 where there is none."""
        raw = self.command("GETRANGE", key_of(lock), HEAD_AT["FENCE"],
                           HEAD_AT["FENCE"] + 7)
        return struct.unpack("<d", raw)[0] if len(raw) == 8 else 0


class Cluster(RedisCluster):
    """Three masters, a replica each."""

    def __init__(self, world, masters=3, replicas=1):
        self.master_count = masters
        self.replica_count = replicas
        self.nodes = [Node(world, f"redis{n}", **CLUSTER)
                      for n in range(masters * (1 + replicas))]


class ChaosBroker(Broker):
    """A holdfastd on a host of its own."""

    def __init__(self, world, name, redis, overrides):
        self.world = world
        self.name = name
        folder = os.path.join(world.folder, name)
        os.makedirs(folder)
        super().__init__(redis=redis, overrides=overrides, folder=folder)
        self.host = world.network.add(name)
        self.clock = Clock(folder, world.broker_clock_library)
        self.config["listen"]["tcp"] = [self.address]
        self.config["listen"]["beyond_loopback_without_users"] = "allowed"

    def spawn(self, *arguments):
        path = self.write_config()
        self.process = Process(
            [*self.world.network.prefix(self.name), self.program, "-c", path],
            log_path=os.path.join(self.dir, "holdfastd.log"),
            env={**os.environ, **self.clock.env}, name=self.name)
        return self


class Relay:
    """Ports on one host; see relay.py."""

    def __init__(self, world, name, host, targets):
        self.world, self.host = world, host
        self.address = world.network.address(host)
        self.held = [ports.reserve(self.address) for _ in targets]
        self.ports = [port.number for port in self.held]
        self.process = Process(
            [*world.network.prefix(host), sys.executable,
             os.path.join(HERE, "relay.py"), self.address,
             *(f"{p}={t}" for p, t in zip(self.ports, targets))],
            log_path=os.path.join(world.folder, f"{name}.log"), name=name,
            stdin=subprocess.PIPE)
        self.process.wait_log("ready")

    @property
    def addresses(self):
        return [f"{self.address}:{port}" for port in self.ports]

    def order(self, number, **order):
        line = json.dumps({"port": self.ports[number], **order}) + "\n"
        self.process.popen.stdin.write(line.encode())
        self.process.popen.stdin.flush()

    def heal(self):
        for number in range(len(self.ports)):
            self.order(number)


class Worker:
    """A client process that is started again whenever it has ended."""

    def __init__(self, world, number, brokers):
        self.world = world
        self.name = f"client{number:02}"
        self.host = f"clients{number % GROUPS}"
        self.history = os.path.join(world.folder, f"{self.name}.history")
        self.config_path = os.path.join(world.folder, f"{self.name}.json")
        self.stopped = False
        self.starts = 0
        with open(self.config_path, "w", encoding="utf-8") as file:
            json.dump({"name": self.name, "seed": world.random.random(),
                       "brokers": brokers, "locks": world.locks,
                       "register": world.register_address,
                       "history": self.history, "lease": world.lease,
                       "patience": world.patience,
                       "heartbeat": 500 if number % 4 == 0 else 0}, file)
        self.process = None

    def start(self):
        self.starts += 1
        self.stopped = False
        self.process = Process(
            [*self.world.network.prefix(
                self.host if self.world.network.on else None),
             sys.executable, "-S", os.path.join(HERE, "worker.py"),
             self.config_path],
            log_path=os.path.join(self.world.folder, f"{self.name}.log"),
            name=self.name)

    def kill(self):
        self.world.note("kill", client=self.name)
        self.process.kill()

    def finish(self):
        """Asks it to end."""
        self.process.asked_to_end = True
        self.process.popen.terminate()


def key_of(lock):
    return f"holdfast:{{{lock}}}"


class World:
    """All of it; `inside`: there are namespaces and mounts of our own."""

    broker_count = BROKERS
    worker = Worker
    linger = 0.0  # s that the lock of a client may outlast it, beyond a lease

    def __init__(self, topology, seed, inside, clients=30,
                 clock_library=None):
        self.random = random.Random(seed)
        self.topology = topology
        self.inside = inside
        self.folder = temp_folder()
        self.clock_library = clock_library
        # A sanitizer wants to be the first library.
        self.broker_clock_library = clock_library \
            if "asan" not in os.environ.get("HOLDFASTD", "") else None
        self.lease = self.random.choice([2.0, 3.0, 4.0])
        self.patience = 2.0
        self.events = []
        self.counts = {}
        self.client_count = clients
        self.mounted = False
        self.redis = None  # the RedisCluster, where it is one
        self.nodes = []
        self.brokers, self.workers, self.relays = [], [], []
        self.expected_dead = set()
        self.torn = []  # nodes whose append-only file is to be written anew
        self.network = Network(inside)
        count = max(1, clients // 6)
        self.locks = [f"{kind}/{n}" for kind in ("mutex", "set", "fenced")
                      for n in range(count)]

    def temp(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def mount(self, folder):
        """A small disk, which may get full."""
        if not self.inside:
            return
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos",
             folder], stderr=subprocess.DEVNULL)
        self.mounted = done.returncode == 0

    # what happened

    def note(self, kind, /, **more):
        event = {"t": time.monotonic(), "e": kind, **more}
        self.events.append(event)
        with open(os.path.join(self.folder, "world.jsonl"), "a",
                  encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
        return event

    def count(self, fault, /, **more):
        self.counts[fault] = self.counts.get(fault, 0) + 1
        return self.note("fault", kind=fault, **more)

    def broken(self, what):
        """A finding that no history shows."""
        self.note("broken", what=what)
        print(f"BROKEN: {what}", flush=True)

    # start and end

    def start(self):
        self.start_register()
        nodes = self.start_redis()
        overrides = {
            "lease.default": f"{int(self.lease * 1000)}ms",
            "redis.patience": f"{int(self.patience * 1000)}ms",
            "session.keepalive": {"idle": "1s", "interval": "1s",
                                  "count": self.random.choice([1, 2])},
            "session.tcp_user_timeout":
                self.random.choice(["2s", "4s"]),
            "session.stop_grace": "1s",
            "redis.topology": self.topology,
            "redis.settle": None,  # as it is by default
            "log.level": "info",
        }
        for number in range(self.broker_count):
            redis = [nodes[number]] if self.topology == "single" else nodes
            broker = ChaosBroker(self, f"broker{number}", redis, overrides)
            self.brokers.append(broker)
            broker.start()
        self.start_clients()
        return self

    def start_register(self):
        held = ports.reserve(self.network.own_address)
        self.register_address = f"{self.network.own_address}:{held.number}"
        self.register_log = os.path.join(self.folder, "register.log")
        self.register = Process(
            [sys.executable, os.path.join(HERE, "register.py"),
             self.network.own_address, str(held.number), self.register_log],
            log_path=os.path.join(self.folder, "register.out"))

    def start_redis(self):
        """The addresses that brokers use, one each for a single Redis."""
        if self.topology == "cluster":
            self.redis = Cluster(self)
            self.nodes = self.redis.nodes
            self.redis.start(60)
            return self.redis.addresses
        if self.topology == "quorum":
            self.nodes = [Node(self, f"redis{n}") for n in range(QUORUM)]
            for node in self.nodes:
                node.start()
            return [node.address for node in self.nodes]
        node = Node(self, "redis0")
        self.nodes.append(node)
        node.start()
        self.redis_relay = Relay(self, "redis-relay", "redis0",
                                 [node.address] * self.broker_count)
        self.relays.append(self.redis_relay)
        return self.redis_relay.addresses

    def start_clients(self):
        for number in range(GROUPS):
            self.network.add(f"clients{number}")
        self.network.add("relay")
        direct = [broker.address for broker in self.brokers]
        self.client_relay = Relay(self, "client-relay", "relay", direct)
        self.relays.append(self.client_relay)
        for number in range(self.client_count):
            self.workers.append(self.worker(
                self, number, self.client_relay.addresses
                if number % 3 == 2 else direct))
        for worker in self.workers:
            worker.start()

    def close(self):
        for worker in self.workers:
            if worker.process is not None:
                worker.process.kill()
        for server in [*self.brokers, *self.nodes]:
            with contextlib.suppress(Exception):
                server.process.kill()
                server.close()
        for relay in self.relays:
            relay.process.kill()

    # life

    def tick(self):
        """Starts clients again; finds who died unasked."""
        for worker in self.workers:
            if not worker.process.running:
                status = worker.process.returncode
                if status not in (3, -signal.SIGKILL):
                    self.broken(f"{worker.name} ended with {status}: "
                                f"{worker.process.log_tail(8)}")
                worker.start()
        for server in [*self.brokers, *self.nodes]:
            if server.running or server in self.expected_dead:
                continue
            log = server.process.log_tail(30)
            self.broken(f"{server.process.name} ended by itself with "
                        f"{server.process.returncode}:\n{log}")
            server.process.asked_to_end = True
            server.deaths = getattr(server, "deaths", 0) + 1
            if server.deaths > 3:
                raise RuntimeError(f"{server.process.name} does not live")
            server.spawn()

    def sleep(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tick()
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))

    # who serves what

    def owners(self):
        """{lock: (node's port, config epoch)}; of a healed world."""
        if self.topology != "cluster":
            return {lock: (self.nodes[0].port, 0) for lock in self.locks}
        rows = []
        for line in self.nodes[0].text("CLUSTER", "NODES").splitlines():
            words = line.split()
            port = int(words[1].split("@")[0].rpartition(":")[2])
            for part in words[8:]:
                if part.startswith("["):
                    continue
                first, _, last = part.partition("-")
                rows.append((int(first), int(last or first), port,
                             int(words[6])))
        return {lock: next((port, epoch) for first, last, port, epoch in rows
                           if first <= slot_of(key_of(lock)) <= last)
                for lock in self.locks}

    def masters(self):
        """The nodes that serve locks now; of a healed world."""
        if self.topology != "cluster":
            return list(self.nodes)
        rows = self.nodes[0].command("CLUSTER", "SLOTS")
        found = {row[2][1] for row in rows}
        return [node for node in self.nodes if node.port in found]

    def replica_of(self, master):
        for node in self.nodes:
            info = node.info("replication")
            if info["role"] == "slave" and \
                    int(info["master_port"]) == master.port:
                return node
        return None

    # healing

    def heal(self):
        """All runs, nothing is cut; waits until Redis is well."""
        self.network.heal()
        for relay in self.relays:
            relay.heal()
        for worker in self.workers:
            if worker.stopped:
                worker.process.resume()
                worker.stopped = False
        for server in [*self.brokers, *self.nodes]:
            server.process.resume()
            if not server.process.running:
                server.spawn()
            self.expected_dead.discard(server)
        for node in self.nodes:
            node.wait_ready(HEAL_SECONDS)
        if self.topology == "cluster":
            self.redis.wait_ok(HEAL_SECONDS)
            wait_until(self.replicas_follow, HEAL_SECONDS,
                       "the replicas follow", step=0.05)
        while self.torn:
            self.write_anew(self.torn.pop())
        for broker in self.brokers:
            broker.wait_ready(HEAL_SECONDS)
        self.tick()

    @staticmethod
    def write_anew(node):
        """Its append-only file, by itself."""
        def idle():
            info = node.info("persistence")
            return info["aof_rewrite_in_progress"] == "0" and \
                info["aof_rewrite_scheduled"] == "0" and info
        wait_until(idle, HEAL_SECONDS, "no rewrite is on its way")
        node.command("BGREWRITEAOF")
        wait_until(lambda: idle() and idle()["aof_last_bgrewrite_status"] ==
                   "ok", HEAL_SECONDS, "the file is written anew")

    def replicas_follow(self):
        for node in self.nodes:
            try:
                info = node.info("replication")
            except (OSError, RedisError):
                return False
            if info["role"] == "slave" and \
                    info["master_link_status"] != "up":
                return False
            if info["role"] == "master" and self.redis.replica_count and \
                    "state=online" not in info.get("slave0", ""):
                return False
        return True
