"""Brokers and clients for the tests: the harness of the tree."""

import asyncio
import fcntl
import glob
import hashlib
import os
import pathlib
import site
import socket
import subprocess
import sys
import unittest
import venv

import rig

sys.path.insert(0, os.path.join(rig.FOLDER, "../../../tests"))

import holdfast  # noqa: E402
from harness import Broker, HarnessCase, ports, shared_redis  # noqa: E402
from holdfast import aio  # noqa: E402

__all__ = ["QUICK", "Broker", "BrokerCase", "Case", "TlsBroker", "aio", "deaf",
           "example", "frameworks", "holdfast", "shared_redis", "users_line"]

_full = []
FRAMEWORKS = ("redis>=5.1", "django>=4.2", "django-redis>=5.4",
              "celery[redis]>=5.3", "packaging")
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


def no_index(stderr):
    """Without the package index a test is skipped, or fails where all tests
    must run."""
    required = os.environ.get("HOLDFAST_CLIENTS") == "required"
    return (AssertionError if required else unittest.SkipTest)(
        "pip install: " + stderr.splitlines()[-1])


def frameworks():
    """Makes the frameworks importable; the Python that has them. They are
    installed into the build folder once, or the tests are skipped."""
    folder = os.path.join(rig.FOLDER, "../../../build/python-frameworks")
    os.makedirs(folder, exist_ok=True)
    wanted = "\n".join((sys.version, *FRAMEWORKS))
    done = os.path.join(folder, "installed")
    with open(os.path.join(folder, "mutex"), "w", encoding="ascii") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not os.path.exists(done) or \
                pathlib.Path(done).read_text("utf-8") != wanted:
            venv.create(folder, with_pip=True)
            pip = subprocess.run(
                [os.path.join(folder, "bin/python"), "-m", "pip", "-q",
                 "install", *FRAMEWORKS], capture_output=True, text=True,
                check=False)
            if pip.returncode != 0:
                raise no_index(pip.stderr)
            pathlib.Path(done).write_text(wanted, "utf-8")
    site.addsitedir(*glob.glob(os.path.join(
        folder, "lib/python*/site-packages")))
    return os.path.join(folder, "bin/python")


def example(heading, broker, number=0):
    """An example under a heading of frameworks.md."""
    text = pathlib.Path(rig.FOLDER, "frameworks.md").read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2]
    code = section.split("```python\n")[number + 1]
    return code.partition("```")[0].replace(
        "broker-1:4653,broker-2:4653", broker.address)


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


class BrokerCase(Case):
    """Its tests share a broker."""

    @classmethod
    def setUpClass(cls):
        cls.broker_ = Broker(shared_redis()).start()
        cls.addClassCleanup(cls.broker_.close)
        cls.broker_.wait_redis()
