"""Addresses, TLS and the clock, for both drivers."""

from __future__ import annotations

import functools
import random
import select
import socket
import ssl
import time
from typing import (Any, Callable, List, NamedTuple, Optional, Sequence,
                    Tuple, Union)

from . import errors

PORT = 4653
TLS_PORT = 4655
CONNECT_S = 3.0  # for one address: the connection, and its TLS handshake
READ_BYTES = 65536
UNSENT_MAX = 4 << 20  # bytes that a broker leaves unread
STREAM = socket.SOCK_STREAM

#: Seconds of a clock that nobody sets, and that goes on while the machine
#: sleeps, where there is such a one.
clock: Callable[[], float] = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)


#: The result of getaddrinfo().
Infos = Sequence[Tuple[socket.AddressFamily, socket.SocketKind, int, str,
                       Tuple[Any, ...]]]


class Address(NamedTuple):
    """A host and a port, or the path of a Unix socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Endpoint(NamedTuple):
    """The target of a socket; `host` is the name that TLS verifies."""

    family: int
    sockaddr: Union[str, Tuple[Any, ...]]
    host: str

    def __str__(self) -> str:
        return self.sockaddr if isinstance(self.sockaddr, str) else \
            str(Address(*self.sockaddr[:2]))


def addresses_of(given: Union[str, Sequence[str]],
                 tls: bool = False) -> List[Address]:
    """`HOST[:PORT]`, `[V6]:PORT` or `/PATH`, several with commas or in a
    list."""
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, (list, tuple)) or \
            not all(isinstance(item, str) for item in items):
        raise TypeError(f"addresses are a str, or a list of str: {given!r}")
    found = []
    for item in ",".join(items).split(","):
        item = item.strip()
        if item.startswith("/"):
            found.append(Address(item, 0))
            continue
        host, colon, port = item.rpartition(":")
        if not colon or item.endswith("]"):
            host, port = item, str(TLS_PORT if tls else PORT)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host or "/" in host:
            host = ""  # a number of IPv6 without brackets, or a URL
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise errors.UsageError(f"no address: {item!r}; use HOST:PORT, "
                                    "[V6]:PORT, or the /PATH of a socket")
        found.append(Address(host, int(port)))
    return found


class Places:
    """The order of tries. A round tries each address, and each number of its
    name. The first one is random; the next round begins behind the last."""

    def __init__(self, addresses: List[Address]) -> None:
        start = random.randrange(len(addresses))
        self._addresses = addresses[start:] + addresses[:start]
        self._round: List[Union[Address, Endpoint]] = []

    @property
    def more(self) -> bool:
        """Whether this round goes on."""
        return bool(self._round)

    def begin(self) -> None:
        """A new round."""
        self._round = list(self._addresses)

    def next(self) -> Union[Address, Endpoint]:
        """An Address must be resolved: resolved() takes what it means."""
        if not self._round:
            self.begin()
        place = self._round.pop(0)
        if isinstance(place, Address):
            self._addresses.remove(place)
            self._addresses.append(place)
        return place

    def resolved(self, address: Address, infos: Infos) -> None:
        """`infos` as of getaddrinfo()."""
        self.put(*(Endpoint(info[0], info[4], address.host)
                   for info in infos))

    def put(self, *endpoints: Endpoint) -> None:
        """These come next, each once."""
        self._round[:0] = list(dict.fromkeys(endpoints))


def unix(address: Address) -> Endpoint:
    """The endpoint of a path."""
    return Endpoint(socket.AF_UNIX, address.host, "")


def context_of(ca: Optional[str], cert: Optional[str],
               key: Optional[str]) -> ssl.SSLContext:
    """TLS that verifies the broker and its name."""
    if key is not None and cert is None:
        raise errors.UsageError(f"key={key} needs cert")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise errors.UsageError(f"TLS: {ca or ''} {cert or ''}: {error}") \
            from error
    return context


def tune(sock: socket.socket) -> None:
    """Lines are short, so Nagle is off."""
    if sock.family != getattr(socket, "AF_UNIX", None):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def wait_readable(sock: socket.socket, timeout: float) -> bool:
    """Whether the socket is readable within `timeout` seconds. False too, if
    another thread has closed it."""
    try:
        if not hasattr(select, "poll"):
            return bool(select.select([sock], [], [], timeout)[0])
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    except (OSError, ValueError):
        return False


class Tls:
    """TLS without a socket, so that one mutex guards reading and writing."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out,
                                     server_hostname=name)

    def shake(self, sock: socket.socket) -> None:
        """The handshake, on a socket that blocks."""
        while True:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                sock.sendall(self._out.read())
                data = sock.recv(READ_BYTES)
                if not data:
                    raise ssl.SSLEOFError("closed in the handshake") from None
                self._in.write(data)
            except ssl.SSLError:
                sock.sendall(self._out.read())  # the alert
                raise
            else:
                sock.sendall(self._out.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        """Bytes for the socket."""
        self._ssl.write(data)
        return self._out.read()

    def decrypt(self, data: bytes) -> bytes:
        """Bytes of the socket. ssl.SSLError: no more of them."""
        self._in.write(data)
        plain = []
        try:
            while True:
                part = self._ssl.read(READ_BYTES)
                if not part:
                    break
                plain.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            if not plain:
                raise
        return b"".join(plain)
