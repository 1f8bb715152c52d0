"""The base of the tests of TLS for clients: a broker with such a port, and
a client's side of TLS byte by byte."""

import contextlib
import os
import socket
import ssl
import struct
import time

from harness import Authority, Client, HarnessCase

RESET = struct.pack("ii", 1, 0)
_made = {}


def authority():
    """One for all tests, who signs brokers and clients."""
    if "ca" not in _made:
        _made["ca"] = Authority()
    return _made["ca"]


def certificate(name, *names, **options):
    """By that authority, made once."""
    if name not in _made:
        _made[name] = authority().issue(name, *names, **options)
    return _made[name]


def context(cert=None, ca=None, newest=None):
    """A client's, who shows this certificate, if any."""
    made = ssl.create_default_context(cafile=ca or authority().cert)
    if cert is not None:
        made.load_cert_chain(cert.cert, cert.key)
    if newest is not None:
        made.maximum_version = newest
    return made


class Wire:
    """A client's side, whose bytes go by when the test says so."""

    def __init__(self, address, tls=None):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = (tls or context()).wrap_bio(
            self._in, self._out, server_hostname="127.0.0.1")

    def sealed(self, data):
        """Those bytes as they are to be sent."""
        self._tls.write(data)
        return self._out.read()

    def pull(self):
        """Takes in what has come; False: the end of it."""
        data = self.socket.recv(65536)
        self._in.write(data)
        if not data:
            self._in.write_eof()
        return bool(data)

    def flight(self):
        """The handshake's next bytes; empty: it is done."""
        while True:
            try:
                self._tls.do_handshake()
                return self._out.read()
            except ssl.SSLWantReadError:
                if self._out.pending:
                    return self._out.read()
                if not self.pull():
                    raise ConnectionError("ended in the handshake") from None

    def shake(self):
        while data := self.flight():
            self.socket.sendall(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                if not self._out.pending:
                    break
        return self

    def close_notify(self):
        """The word for the end of what is sent, as it is to be sent."""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLError):
            self._tls.unwrap()
        return self._out.read()

    def read(self):
        """The bytes so far; None: the end, by TLS."""
        while True:
            try:
                return self._tls.read(65536) or None
            except ssl.SSLWantReadError:
                if not self.pull():
                    raise ConnectionError("ended without a word") from None
            except ssl.SSLZeroReturnError:
                return None

    def read_lines(self, count):
        """So many at least."""
        while self._rest.count(b"\n") < count:
            self._rest += self.read() or b"end\n" * count
        whole, _, self._rest = self._rest.rpartition(b"\n")
        return whole.decode().splitlines()

    def read_all(self):
        while (more := self.read()) is not None:
            self._rest += more
        return self._rest.decode().splitlines()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()


class TlsPortCase(HarnessCase):
    def tls_broker(self, overrides=None, cert=None, **options):
        """A broker; its .tls is the address for TLS."""
        own = cert or certificate("broker", "127.0.0.1", "localhost", "::1")
        port = self.port()
        broker = self.broker(overrides={
            "listen.tls": [f"127.0.0.1:{port}"], "listen.tls_cert": own.cert,
            "listen.tls_key": own.key, **(overrides or {})}, **options)
        broker.tls = f"127.0.0.1:{port}"
        return broker

    def secure(self, broker, tls=None, **options):
        """A client by TLS."""
        return self.client(broker.tls, tls=tls or context(), **options)

    def wire(self, broker, tls=None):
        wire = Wire(broker.tls, tls)
        self.addCleanup(wire.socket.close)
        return wire

    def raw(self, broker):
        return self.closing(socket.create_connection(
            ("127.0.0.1", int(broker.tls.rpartition(":")[2])), 10))

    def counted(self, broker, result):
        return int(broker.metrics()[
            f'holdfast_tls_handshakes_total{{result="{result}"}}'])

    def wait_counted(self, broker, result, count, timeout=10.0):
        self.wait_until(lambda: self.counted(broker, result) >= count,
                        timeout, f"{count} handshakes are counted as {result}")

    def ended(self, end, within=10.0):
        """Whether the broker ends that connection; what it said before."""
        said = b""
        end.settimeout(within)
        try:
            while data := end.recv(4096):
                said += data
        except ConnectionError:
            pass
        return said

    def users_file(self, *lines):
        path = os.path.join(self.folder(), "users")
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def passes(self, broker, name, end, within):
        """A lock passes on when end() has been done; in that time."""
        waiter = self.client(broker)
        tag = waiter.waits(f"LOCK {name}")
        before = time.monotonic()
        end()
        waiter.granted(tag)
        self.assertLess(time.monotonic() - before, within)
        waiter.close()


__all__ = ["Client", "TlsPortCase", "Wire", "authority", "certificate",
           "context"]
