"""A TestCase that ends what its tests started, and servers shared by a file."""

import atexit
import os
import unittest
from concurrent.futures import ThreadPoolExecutor

from . import ports
from .broker import Broker
from .client import Client
from .processes import Process, temp_folder, wait_until
from .redis_server import RedisCluster, RedisServer
from .sentinels import Sentinels

_shared = {}


def _share(key, make):
    """One per process and key; emptied each time it is asked for."""
    if (os.getpid(), key) not in _shared:
        server = make().start()
        _shared[os.getpid(), key] = server
        atexit.register(server.close)
    return _shared[os.getpid(), key]


def shared_redis():
    """A single Redis, started once a process, empty."""
    server = _share("single", RedisServer)
    if not server.running:
        server.start()
    server.command("FLUSHALL")
    server.command("SCRIPT", "FLUSH")
    return server


def shared_cluster():
    """Three masters for tests that break nothing; empty."""
    cluster = _share("cluster", RedisCluster)
    cluster.flush()
    return cluster


class Closing:
    """Beside a TestCase: things that end with the test, in reverse order."""

    def closing(self, thing):
        self.addCleanup(thing.close)
        return thing

    def wait_until(self, condition, timeout=10.0, what="a condition"):
        return wait_until(condition, timeout, what)

    def port(self):
        """A reserved port."""
        port = ports.reserve()
        self.addCleanup(port.release)
        return port


class HarnessCase(Closing, unittest.TestCase):
    """Starters whose things end with the test, in reverse order."""

    maxDiff = None

    def _started(self, thing):
        return self.closing(thing).start()

    def redis(self, **config):
        """A Redis of the test's own."""
        return self._started(RedisServer(**config))

    def cluster(self, masters=3, replicas=0, **config):
        """A cluster of the test's own (takes 2 s)."""
        return self._started(RedisCluster(masters, replicas, **config))

    def sentinels(self, **options):
        """Sentinels of the test's own, with a master and replicas."""
        return self._started(Sentinels(**options))

    def broker(self, redis=None, overrides=None, can_ask=True, **options):
        """A started Broker; `redis` default: shared_redis(). It waits for
        Redis unless `can_ask` is False or `redis` is a list."""
        if redis is None and "config" not in options:
            redis = shared_redis()
        broker = self._started(Broker(redis or (), overrides, **options))
        if can_ask and isinstance(redis, (RedisServer, RedisCluster,
                                          Sentinels)):
            broker.wait_redis()
        return broker

    def client(self, broker, *lines, **options):
        """A greeted Client of a Broker or an address; its requests `lines` were
        answered OK."""
        client = self.closing(
            Client(broker, **options) if isinstance(broker, str)
            else broker.client(**options))
        for line in lines:
            client.ok(line)
        return client

    def process(self, argv, **options):
        """A started Process, killed at the end; output to a file."""
        options.setdefault("log_path", os.path.join(self.folder(), "log"))
        process = Process(argv, **options)
        self.addCleanup(process.kill)
        return process

    def folder(self):
        return temp_folder()

    def side_by_side(self, work, *arguments):
        """work() in a thread for each tuple of arguments."""
        with ThreadPoolExecutor(len(arguments)) as pool:
            for each in [pool.submit(work, *some) for some in arguments]:
                each.result()
