"""Shared by the daemon's tests: a broker for a class, its counters."""

import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import unittest
from pathlib import Path

from harness import Broker, HarnessCase, shared_redis
from harness.broker import TREE, broker_path


def read(*path):
    """The text of a file of the tree."""
    return Path(os.path.join(TREE, *path)).read_text(encoding="utf-8")


def definitions(macro):
    """The first argument of each MACRO(...) in proto/commands.def."""
    return re.findall(rf"^{macro}\((\w+), ", read("proto/commands.def"),
                      flags=re.M)


def promtool(*arguments, stdin=""):
    """(status, output); skips the test if promtool is not installed."""
    program = shutil.which("promtool") or os.path.join(
        TREE, "build", "tools", "usr", "bin", "promtool")
    if not os.path.exists(program):
        raise unittest.SkipTest("promtool is not installed: make deps-promtool")
    done = subprocess.run([program, *arguments], input=stdin, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, timeout=300)
    return done.returncode, done.stdout


def with_hosts(case, *lines, files=None):
    """The daemon with these lines in /etc/hosts; `files`, {path: text}, are
    bound over others, from the copies in case.bound."""
    folder = case.folder()
    case.bound = {}
    mounts = ""
    files = {"/etc/hosts": "".join(f"{line}\n" for line in lines),
             **(files or {})}
    for path, text in files.items():
        own = os.path.join(folder, os.path.basename(path))
        case.bound[path] = own
        mounts += f"mount --bind {own} {path} && "
        with open(own, "w", encoding="ascii") as file:
            file.write(text)
    program = os.path.join(folder, "program")
    with open(program, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\nexec unshare -rm sh -c '{mounts}"
                   f"exec {broker_path()} \"$@\"' - \"$@\"\n")
    os.chmod(program, 0o700)
    if subprocess.run([program, "-V"], capture_output=True,
                      check=False).returncode:
        case.skipTest("no file system of one's own here")
    return program


class Balancer:
    """An address that leads new connections to `target`; old ones stay."""

    def __init__(self, case, target):
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        case.addCleanup(self._listener.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
                far = socket.create_connection(
                    (self.target.host, self.target.port))
            except OSError:
                return
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair,
                                 daemon=True).start()

    @staticmethod
    def _carry(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()


class NameServer:
    """A name server on a port of its own, as resolv.conf of libevent takes it.
    `hosts` are addresses by name; None: it never answers. Questions for IPv6
    are not answered, and the letters of a question come back in lower case."""

    def __init__(self, case, hosts=None):
        self.hosts = hosts
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.line = f"nameserver 127.0.0.1:{self._socket.getsockname()[1]}\n"
        case.addCleanup(self._socket.close)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                data, address = self._socket.recvfrom(512)
            except OSError:
                return
            name, kind = data[12:-5], data[-3]
            if self.hosts is None or kind != 1:
                continue
            host = self.hosts.get(".".join(_labels(name.lower())))
            head = struct.pack(">HHHHH", 0x8180 if host else 0x8183, 1,
                               1 if host else 0, 0, 0)
            found = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + \
                socket.inet_aton(host) if host else b""
            self._socket.sendto(data[:2] + head + name.lower() + data[-5:] +
                                found, address)


def _labels(name):
    while name:
        yield name[1:1 + name[0]].decode()
        name = name[1 + name[0]:]


def stats(client):
    """The counters of a broker, by name."""
    return {item["name"]: int(item["value"])
            for item in client.ok("STATS", timeout=20).items}


def unread(client):
    """Bytes that a client has not read yet."""
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def record_field(redis, name, first, last):
    """Bytes of a lock's record in Redis; None where there is no record."""
    value = redis.command("GETRANGE", f"holdfast:{{{name}}}", first, last)
    return value or None


class BrokerCase(HarnessCase):
    """One broker on the shared Redis for a class, in `self.served`."""

    overrides = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls is BrokerCase:
            return
        cls.served = Broker(shared_redis(), cls.overrides)
        cls.addClassCleanup(cls.served.close)
        cls.served.start()

    def connect(self, *lines, **options):
        """A greeted client of the class's broker: see client()."""
        return self.client(self.served, *lines, **options)

    def counters(self, broker=None):
        with contextlib.closing((broker or self.served).client()) as client:
            return stats(client)

    def wait_counter(self, name, at_least, broker=None, timeout=10.0):
        with contextlib.closing((broker or self.served).client()) as client:
            self.wait_until(lambda: stats(client)[name] >= at_least, timeout,
                            f"{name} >= {at_least}")
