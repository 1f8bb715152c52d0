"""A master with replicas, and the Sentinels that watch them: real processes.

    with Sentinels(replicas=2) as sentinels:
        broker = self.broker(sentinels)
        old = sentinels.master
        old.kill()
        sentinels.wait_master(other_than=old)
"""

import contextlib
import os

from .processes import Process, wait_until
from .redis_server import RedisServer, Server, Started
from .resp import RedisConnection, RedisError

MASTER = "mymaster"


class Sentinel(Server):
    """One Sentinel; over restarts it keeps its id as well."""

    def __init__(self, host="127.0.0.1", password=None, tls=None):
        super().__init__(host)
        self.password = password
        self.tls = tls
        self.path = os.path.join(self.dir, "sentinel.conf")

    def configure(self, lines):
        """Once: a Sentinel writes what it learns into the same file."""
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(f'bind {self.host}\n{self.port_options()}'
                       f'dir "{self.dir}"\nprotected-mode no\n')
            for name, value in (self.tls.options() if self.tls else {}).items():
                file.write(f"{name} {value}\n")
            if self.password:
                file.write(f"requirepass {self.password}\n"
                           f"sentinel sentinel-pass {self.password}\n")
            file.writelines(line + "\n" for line in lines)

    def start(self):
        self.process = Process(
            ["redis-server", self.path, "--sentinel"], cwd=self.dir,
            log_path=os.path.join(self.dir, "sentinel.log"),
            name=f"sentinel {self.port}")
        wait_until(self._answers, 10.0, f"{self.process.name} answers")
        return self

    def _answers(self):
        with contextlib.suppress(OSError):
            return self.command("PING") == "PONG"
        return False

    def command(self, *args):
        with RedisConnection(self.host, self.port, 5.0, self.tls and
                             self.tls.context()) as connection:
            if self.password:
                connection.command("AUTH", self.password)
            return connection.command(*args)

    def names(self):
        """Host and port of the master, as this one sees it."""
        address = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return address and f"{address[0].decode()}:{address[1].decode()}"


class Sentinels(Started):
    """`count` Sentinels, a master and `replicas`, all in `servers`."""

    def __init__(self, count=3, replicas=2, down_ms=1000, password=None,
                 sentinel_password=None, tls=None, **config):
        self.password = password
        self.down_ms = down_ms
        if password:
            config.update(requirepass=password, masterauth=password)
        self.servers = [RedisServer(tls=tls, **config)
                        for _ in range(1 + replicas)]
        self.sentinels = [Sentinel(password=sentinel_password, tls=tls)
                          for _ in range(count)]

    @property
    def addresses(self):
        return [sentinel.address for sentinel in self.sentinels]

    @property
    def pids(self):
        return [server.pid for server in self.servers if server.running]

    @property
    def running(self):
        return any(sentinel.running for sentinel in self.sentinels)

    @property
    def master(self):
        """The server that says so itself and that most Sentinels name."""
        names = []
        for sentinel in self.sentinels:
            with contextlib.suppress(OSError):
                names.append(sentinel.names())
        for server in self.servers:
            if names.count(server.address) * 2 > len(self.sentinels):
                return server
        return None

    def start(self):
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.wait_ready()
        master, *replicas = self.servers
        for replica in replicas:
            replica.command("REPLICAOF", master.host, master.port)
        self._wait_followed(master, len(replicas))
        for sentinel in self.sentinels:
            sentinel.configure(self._watch(master))
            sentinel.start()
        wait_until(self._all_known, 20.0, "the Sentinels know one another",
                   step=0.05)
        return self

    def _watch(self, master):
        quorum = len(self.sentinels) // 2 + 1
        lines = [f"sentinel monitor {MASTER} {master.host} {master.port} "
                 f"{quorum}",
                 f"sentinel down-after-milliseconds {MASTER} {self.down_ms}",
                 f"sentinel failover-timeout {MASTER} 5000",
                 f"sentinel parallel-syncs {MASTER} 2"]
        if self.password:
            lines.append(f"sentinel auth-pass {MASTER} {self.password}")
        return lines

    @staticmethod
    def _wait_followed(master, replicas):
        wait_until(lambda: int(master.info("replication")["connected_slaves"])
                   == replicas, 20.0, "the replicas follow", step=0.02)

    def _all_known(self):
        for sentinel in self.sentinels:
            row = sentinel.command("SENTINEL", "MASTER", MASTER)
            row = dict(zip(row[::2], row[1::2]))
            if (int(row[b"num-other-sentinels"]) != len(self.sentinels) - 1 or
                    int(row[b"num-slaves"]) != len(self.servers) - 1):
                return False
        return True

    def wait_master(self, other_than=None, timeout=30.0):
        """The master, once most Sentinels name one and it says so itself."""
        found = []

        def elected():
            master = self.master
            if master is None or master is other_than or not master.running:
                return False
            with contextlib.suppress(OSError, RedisError):
                if master.info("replication")["role"] == "master":
                    found[:] = [master]
                    return True
            return False
        wait_until(elected, timeout, "there is a master", step=0.02)
        return found[0]

    def close(self):
        for sentinel in self.sentinels:
            sentinel.close()
        for server in self.servers:
            server.close()
