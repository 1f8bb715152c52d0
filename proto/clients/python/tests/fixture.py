"""Brokers and clients for the tests: the harness of the tree."""

import asyncio
import hashlib
import os
import socket
import sys

import rig

sys.path.insert(0, os.path.join(rig.FOLDER, "../../../tests"))

import holdfast  # noqa: E402
from harness import Broker, HarnessCase, ports, shared_redis  # noqa: E402
from holdfast import aio  # noqa: E402

__all__ = ["QUICK", "Broker", "Case", "TlsBroker", "aio", "deaf", "holdfast",
           "shared_redis", "users_line"]

_full = []
QUICK = 0.3  # s: a heartbeat whose deadline is 0.9 s


def users_line(user, secret, rights):
    """A line of auth.users_file."""
    digest = hashlib.sha256(b"salt" * 4 + secret.encode()).hexdigest()
    return f"{user} secret=sha256${(b'salt' * 4).hex()}${digest} {rights}\n"


def deaf():
    """A socket that listens, and never accepts: its queue is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    for _ in range(4):
        full = socket.socket()
        full.setblocking(False)
        full.connect_ex(listener.getsockname())
        _full.append(full)
    return listener


class TlsBroker(Broker):
    """`tls` is its address for TLS."""

    def __init__(self, certificate, overrides=None):
        self._tls_port = ports.reserve()
        super().__init__(shared_redis(), {
            "listen.tls": [self.tls], "listen.tls_cert": certificate.cert,
            "listen.tls_key": certificate.key, **(overrides or {})})

    @property
    def tls(self):
        return f"127.0.0.1:{self._tls_port.number}"


class Case(HarnessCase):
    """Clients that end with the test."""

    def connect(self, *brokers, **options):
        """A client of these brokers, or of an address."""
        return self.closing(holdfast.connect(
            [each if isinstance(each, str) else each.address
             for each in brokers], **options))

    def run_async(self, work, broker, **options):
        """work(client) in a loop of its own."""
        async def run():
            async with aio.connect(broker.address, **options) as client:
                return await work(client)
        return asyncio.run(run())

    def taken(self, broker, name):
        """Whether somebody holds it, as another client sees it."""
        return self.client(broker).request(
            f"LOCK {name} wait=0").word == "ERR"
