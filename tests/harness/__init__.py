"""The base of black-box tests: servers, brokers and clients that end.

Everything started here dies with its process, listens on loopback only, and
lives in a folder that is removed at the end.

    class LockTest(HarnessCase):
        def test_lock(self):
            self.client(self.broker(), "LOCK a wait=0")
"""

from .broker import Broker, BrokerFailure, broker_path
from .case import Closing, HarnessCase, shared_cluster, shared_redis
from .certificates import Authority, Tls
from .client import Client, ClientError, Reply, encode
from .processes import Process, temp_folder, wait_until
from .record import FIRST_AT, FIRST_WORDS_AT, HEAD_AT, RECORDS
from .redis_server import RedisCluster, RedisServer, slot_of
from .resp import SHORT_CUTS, Monitor, RedisConnection, RedisError
from .sentinels import Sentinels

__all__ = [
    "FIRST_AT", "FIRST_WORDS_AT", "HEAD_AT", "RECORDS", "SHORT_CUTS",
    "Authority", "Broker", "BrokerFailure", "Client", "ClientError", "Closing",
    "HarnessCase", "Monitor", "Process", "RedisCluster", "RedisConnection",
    "RedisError", "RedisServer", "Reply", "Sentinels", "Tls",
    "broker_path", "encode", "shared_cluster", "shared_redis",
    "slot_of", "temp_folder", "wait_until",
]
