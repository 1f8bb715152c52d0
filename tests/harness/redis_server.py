"""Real Redis servers and clusters on free loopback ports.

Options of redis.conf are keyword arguments with _ for -; True and False are
yes and no. By default nothing is kept over a restart or evicted, and DEBUG is
allowed. A fresh cluster answers after 2 s (CLUSTER_WRITABLE_DELAY of Redis
7.0): share one among the tests of a file.
"""

import contextlib
import os
import shutil

from . import ports
from .processes import Process, remove_folder, temp_folder, wait_until
from .resp import RedisConnection, RedisError

SLOTS = 16384
DEFAULTS = {
    "protected-mode": "no",
    "save": "",
    "appendonly": "no",
    "maxmemory-policy": "noeviction",
    "enable-debug-command": "yes",
    "daemonize": "no",
    "maxclients": "20000",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-diskless-load": "swapdb",
    "shutdown-timeout": "0",
}
CLUSTER_DEFAULTS = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": "5000",
}


def _crc16_table():
    table = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
        table.append(crc)
    return table


_CRC16 = _crc16_table()


def slot_of(key):
    """The hash slot of a key (str or bytes), {tags} honoured."""
    data = key.encode("utf-8", "surrogateescape") \
        if isinstance(key, str) else key
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1:end]
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ _CRC16[crc >> 8 ^ byte]
    return crc % SLOTS


def _option(value):
    if value is True:
        return "yes"
    if value is False:
        return "no"
    return str(value)


class Started:
    """For `with`: start() where it is not `running`, and close() at its end."""

    def __enter__(self):
        if self.running:
            return self
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


class Server:
    """One process with a port and a `folder`, which it keeps over restarts."""

    def __init__(self, host, folder=None):
        self.host = host
        self._port = ports.reserve(host)
        self._own_folder = folder is None
        self.dir = folder or temp_folder()
        os.makedirs(self.dir, exist_ok=True)
        self.process = None

    @property
    def port(self):
        return self._port.number

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    tls = None

    def port_options(self):
        """Lines of its configuration."""
        if self.tls:
            return f"port 0\ntls-port {self.port}\n"
        return f"port {self.port}\n"

    @property
    def running(self):
        return self.process is not None and self.process.running

    def kill(self):
        """SIGKILL: as when the machine goes."""
        return self.process.kill()

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()

    def close(self):
        """Ends it and gives back port and folder."""
        if self.process is not None:
            self.process.kill()
        self._port.release()
        if self._own_folder:
            remove_folder(self.dir)


class RedisServer(Server, Started):
    """One redis-server; with `tls`, its port speaks nothing else."""

    program = "redis-server"

    def __init__(self, redis_folder=None, host="127.0.0.1", tls=None,
                 **config):
        super().__init__(host, redis_folder)
        self.tls = tls
        self._bus = None
        self._admin = None
        self.config = {**DEFAULTS, **(tls.options() if tls else {})}
        self.config.update({name.replace("_", "-"): _option(value)
                            for name, value in config.items()})
        if self.config.get("cluster-enabled") == "yes":
            self._bus = ports.reserve(host)
            self.config["cluster-port"] = str(self._bus.number)
        self.id = None  # of a cluster's node, set by RedisCluster

    @property
    def bus_port(self):
        return self._bus.number

    def __repr__(self):
        return f"<redis {self.address}>"

    def _write_config(self):
        path = os.path.join(self.dir, "redis.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"bind {self.host}\n{self.port_options()}"
                       f'dir "{self.dir}"\n')
            for name, value in self.config.items():
                value = value if value else '""'
                file.write(f"{name} {value}\n")
        return path

    def spawn(self):
        """Starts the process without waiting for it."""
        self.process = Process(
            [self.program, self._write_config()], cwd=self.dir,
            log_path=os.path.join(self.dir, "redis.log"),
            name=f"redis-server {self.port}")
        return self

    def wait_ready(self, timeout=10.0):
        """Waits until PING is answered (LOADING counts as not yet)."""
        def ready():
            if not self.process.running:
                raise RuntimeError(f"{self.process.name} ended at start:\n"
                                   f"{self.process.log_tail()}")
            try:
                with self.connect(timeout=1.0) as connection:
                    return connection.command("PING") == "PONG"
            except RedisError as error:
                return error.code in ("NOAUTH", "MASTERDOWN")
            except OSError:
                return False
        wait_until(ready, timeout, f"{self.process.name} answers")
        return self

    def start(self):
        return self.spawn().wait_ready()

    def connect(self, timeout=10.0):
        """A new connection, the caller's to close."""
        connection = RedisConnection(self.host, self.port, timeout,
                                     self.tls and self.tls.context())
        if self.config.get("requirepass"):
            connection.command("AUTH", self.config["requirepass"])
        return connection

    def command(self, *args, timeout=None):
        """One command on a connection that is kept for this."""
        if self._admin is None:
            self._admin = self.connect()
        try:
            return self._admin.command(*args, timeout=timeout)
        except OSError:
            self._drop_admin()
            raise

    def text(self, *args):
        value = self.command(*args)
        return value.decode("utf-8", "surrogateescape") \
            if isinstance(value, bytes) else value

    def info(self, section="default"):
        lines = self.text("INFO", section).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def _drop_admin(self):
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def stop(self):
        """TERM (SHUTDOWN NOSAVE as configured); folder and port are kept."""
        self._drop_admin()
        return self.process.stop() if self.process else None

    def kill(self):
        self._drop_admin()
        return super().kill()

    def restart(self, kill=False):
        """Ends it (TERM or KILL) and starts it on the same port and folder."""
        self.kill() if kill else self.stop()
        return self.start()

    def close(self):
        self._drop_admin()
        super().close()
        if self._bus is not None:
            self._bus.release()


def _node_rows(text):
    """CLUSTER NODES as dicts."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 8:
            yield {"id": words[0],
                   "port": int(words[1].split("@")[0].rpartition(":")[2]),
                   "flags": words[2].split(","), "master": words[3],
                   "epoch": int(words[6]), "link": words[7],
                   "slots": words[8:]}


class RedisCluster(Started):
    """A cluster of its own; slots are dealt out evenly.

    `nodes` is all servers: the masters in order, then the replicas (replica r
    of master m is nodes[masters + r * masters + m]).
    """

    def __init__(self, masters=3, replicas=0, folder=None, **config):
        options = {name.replace("-", "_"): value
                   for name, value in CLUSTER_DEFAULTS.items()}
        if config.get("tls"):
            options["tls_cluster"] = True
        options.update(config)
        self.master_count = masters
        self.replica_count = replicas
        self.nodes = []
        for number in range(masters * (1 + replicas)):
            where = folder and os.path.join(folder, f"node-{number}")
            self.nodes.append(RedisServer(redis_folder=where, **options))

    # the shape

    @property
    def masters(self):
        """The nodes that were made masters (failovers may change roles)."""
        return self.nodes[:self.master_count]

    @property
    def replicas(self):
        return self.nodes[self.master_count:]

    @property
    def addresses(self):
        return [node.address for node in self.nodes]

    @property
    def pids(self):
        return [node.pid for node in self.nodes if node.running]

    @property
    def running(self):
        return self.nodes[0].running

    def replicas_of(self, master):
        number = self.masters.index(master)
        return self.replicas[number::self.master_count]

    def slots_of(self, number):
        """First and last slot dealt to master `number` at the start."""
        first = number * SLOTS // self.master_count
        return first, (number + 1) * SLOTS // self.master_count - 1

    # start and end

    def start(self, timeout=30.0):
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_ready()
            node.id = node.text("CLUSTER", "MYID")
        for number, node in enumerate(self.masters):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.command("CLUSTER", "ADDSLOTSRANGE", *self.slots_of(number))
        self._meet(timeout)
        self._attach_replicas(timeout)
        self.wait_ok(timeout)
        return self

    def _meet(self, timeout):
        for node in self.nodes[1:]:
            self.nodes[0].command("CLUSTER", "MEET", node.host, node.port,
                                  node.bus_port)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes),
                   timeout, "the nodes know each other", step=0.02)

    def _knows_all(self, node):
        rows = list(_node_rows(node.text("CLUSTER", "NODES")))
        return len(rows) == len(self.nodes) and all(
            "handshake" not in row["flags"] and row["link"] == "connected"
            for row in rows)

    def _attach_replicas(self, timeout):
        for number, node in enumerate(self.replicas):
            master = self.masters[number % self.master_count]
            node.command("CLUSTER", "REPLICATE", master.id)
        for node in self.replicas:
            wait_until(
                lambda node=node: node.info("replication").get(
                    "master_link_status") == "up",
                timeout, f"{node!r} follows its master", step=0.02)

    def wait_ok(self, timeout=30.0):
        """Waits until all running nodes see, and agree on, all slots."""
        def fine():
            views = set()
            for node in self.nodes:
                if not node.running:
                    continue
                try:
                    if b"cluster_state:ok" not in node.command(
                            "CLUSTER", "INFO"):
                        return False
                    views.add(str(sorted(
                        (row[0], row[1], row[2][1])
                        for row in node.command("CLUSTER", "SLOTS"))))
                except (OSError, RedisError):
                    return False
            return len(views) == 1
        wait_until(fine, timeout, "the cluster is well", step=0.02)
        return self

    def close(self):
        for node in self.nodes:
            with contextlib.suppress(Exception):
                node.close()

    # questions and orders

    def flush(self):
        """FLUSHALL on every node that serves slots."""
        for node in self.nodes:
            if node.running:
                with contextlib.suppress(RedisError):
                    node.command("FLUSHALL")

    def node_with_port(self, port):
        for node in self.nodes:
            if node.port == port:
                return node
        raise KeyError(port)

    def node_of_slot(self, slot, ask=None):
        """The server of a slot as `ask` (default: any running node) sees it."""
        asked = ask or next(node for node in self.nodes if node.running)
        for first, last, master, *_ in asked.command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self.node_with_port(master[1])
        return None

    def node_of(self, key):
        """The server of a key, as in `node_of("holdfast:{name}")`."""
        return self.node_of_slot(slot_of(key))

    def command(self, key, *args):
        """A command for the node that serves `key`."""
        return self.node_of(key).command(*args)

    def failover(self, replica, how="TAKEOVER", timeout=30.0):
        """Makes a replica the master of its slots ("" , FORCE, TAKEOVER)."""
        replica.command("CLUSTER", "FAILOVER", *([how] if how else []))
        wait_until(lambda: replica.info("replication")["role"] == "master",
                   timeout, f"{replica!r} is a master")

    # migration, step by step or at once

    def begin_migration(self, slot, target):
        """Marks the slot migrating; a (slot, source, target) for the rest."""
        source = self.node_of_slot(slot)
        if source is target:
            raise ValueError(f"slot {slot} is at {target!r} already")
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return slot, source, target

    def migrate_keys(self, migration, count=None):
        """Moves up to `count` keys of the slot (default all); their number."""
        slot, source, target = migration
        moved = 0
        while count is None or moved < count:
            want = 100 if count is None else min(100, count - moved)
            keys = source.command("CLUSTER", "GETKEYSINSLOT", slot, want)
            if not keys:
                break
            source.command("MIGRATE", target.host, target.port, "", 0, 5000,
                           "KEYS", *keys)
            moved += len(keys)
        return moved

    def end_migration(self, migration):
        """Gives the slot to its target, told to all masters."""
        slot, source, target = migration
        others = [node for node in self.nodes
                  if node not in (source, target) and node.running]
        for node in [target, source, *others]:
            with contextlib.suppress(RedisError):  # a replica refuses
                node.command("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def abort_migration(self, migration):
        slot, source, target = migration
        source.command("CLUSTER", "SETSLOT", slot, "STABLE")
        target.command("CLUSTER", "SETSLOT", slot, "STABLE")

    def migrate_slot(self, slot, target):
        """All steps; the number of keys moved."""
        migration = self.begin_migration(slot, target)
        moved = self.migrate_keys(migration)
        self.end_migration(migration)
        return moved


def have_redis():
    return shutil.which(RedisServer.program) is not None
