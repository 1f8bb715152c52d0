"""A blocking client of the line protocol, for tests.

It reads only while it is asked something. Other lines are sorted into events
and replies by tag. Requests get a tag unless the line has one or `tag=False`
is given.
"""

import collections
import re
import socket
import ssl
import struct
import time
import urllib.parse

TIMEOUT = 10.0
_TAG = re.compile(r"[0-9][0-9A-Za-z._-]{0,15}$")
_FINAL = ("OK", "ERR")


class ClientError(AssertionError):
    """The broker did not answer what was expected, or not in time."""


def encode(text):
    """Percent-encodes a name or value (str or bytes) for the wire."""
    data = text.encode("utf-8", "surrogateescape") \
        if isinstance(text, str) else text
    out = []
    for place, byte in enumerate(data):
        plain = 0x21 <= byte <= 0x7E and byte not in b"%=" and \
            not (place == 0 and byte == 0x3A)
        out.append(chr(byte) if plain else f"%{byte:02X}")
    return "".join(out)


def decode(text):
    return urllib.parse.unquote(text, errors="surrogateescape")


class Reply:
    """One line from the broker: `TAG WORD words... key=value... :text`.

    tag    "-" untagged, "*" an event, else the request's
    word   OK, ERR, ITEM, QUEUED or the event's name
    words  the other words, decoded      pairs  key=value, decoded
    text   the free text, or None        items  ITEM lines of a final reply
    early  QUEUED lines of a final reply
    """

    def __init__(self, line):
        self.line = line
        head, colon, text = line.partition(" :")
        self.text = text if colon else None
        tokens = head.split(" ")
        self.tag = tokens[0]
        self.word = tokens[1] if len(tokens) > 1 else ""
        self.words = []
        self.pairs = {}
        for token in tokens[2:]:
            key, equals, value = token.partition("=")
            if not equals:
                self.words.append(decode(token))
            elif key in self.pairs:
                raise ClientError(f"a key twice in: {line}")
            else:
                self.pairs[key] = decode(value)
        self.items = []
        self.early = []
        self.at = time.monotonic()

    @property
    def ok(self):
        return self.word == "OK"

    @property
    def final(self):
        return self.word in _FINAL

    @property
    def code(self):
        """The code of an ERR, else None."""
        return self.words[0] if self.word == "ERR" and self.words else None

    @property
    def fence(self):
        return int(self.pairs["fence"])

    @property
    def fences(self):
        return [int(part) for part in self.pairs["fence"].split(",")]

    @property
    def ttl_ms(self):
        return int(self.pairs["ttl_ms"])

    def number(self, key):
        return int(self.pairs[key])

    def __getitem__(self, key):
        return self.pairs[key]

    def get(self, key, default=None):
        return self.pairs.get(key, default)

    def __contains__(self, key):
        return key in self.pairs

    def __repr__(self):
        return f"<{self.line}>"


def open_socket(address, timeout=TIMEOUT, tls=None, tls_name=None):
    """Connects to "host:port", "[v6]:port" or a socket's path."""
    if "/" in address:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        sock.connect(address)
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
        sock = tls.wrap_socket(sock, server_hostname=tls_name or
                               host.strip("[]"))
    return sock


class Client:
    """One connection. `greet`: read the HELLO line first (in .hello).

    `auto_pong`: answer PING events while reading. `tls`: an ssl.SSLContext.
    """

    def __init__(self, address, timeout=TIMEOUT, greet=True, auto_pong=False,
                 tls=None, tls_name=None):
        self.address = address
        self.timeout = timeout
        self.auto_pong = auto_pong
        self.socket = open_socket(address, timeout, tls, tls_name)
        self.events = collections.deque()
        self.lines = []  # all that was read, as Reply, for diagnosis
        self.closed_by_peer = False
        self._arrived = collections.deque()  # not yet handed out
        self._input = b""
        self._next_tag = 0
        self.hello = self.event("HELLO") if greet else None

    # sending

    def send(self, line):
        """Sends a line as it is; `line` may be bytes or several lines."""
        data = line.encode("utf-8", "surrogateescape") \
            if isinstance(line, str) else line
        if not data.endswith(b"\n"):
            data += b"\n"
        self.socket.sendall(data)

    def send_raw(self, data):
        """Sends bytes, no line end added."""
        self.socket.sendall(data)

    def submit(self, line):
        """Sends a request; its tag, for wait(). A tag is added if missing."""
        first = line.split(" ", 1)[0]
        if _TAG.match(first):
            self.send(line)
            return first
        self._next_tag += 1
        tag = f"{self._next_tag}"
        self.send(f"{tag} {line}")
        return tag

    # receiving

    def _fill(self, deadline):
        """Reads some bytes; False at a time-out or the end."""
        left = deadline - time.monotonic()
        if left <= 0 or self.closed_by_peer:
            return False
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(65536)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except (ConnectionResetError, ssl.SSLError):
            data = b""
        if not data:
            self.closed_by_peer = True
            return False
        self._input += data
        return True

    def _take_lines(self):
        *complete, self._input = self._input.split(b"\n")
        for raw in complete:
            reply = Reply(raw.decode("utf-8", "surrogateescape"))
            self.lines.append(reply)
            if reply.tag == "*":
                self.events.append(reply)
                if reply.word == "PING" and self.auto_pong:
                    self.send(f"PONG {reply.words[0]}")
            self._arrived.append(reply)

    def _pump(self, deadline):
        """Reads at least one line; False at a time-out or the end."""
        before = len(self.lines)
        while len(self.lines) == before:
            if not self._fill(deadline):
                return False
            self._take_lines()
        return True

    def _forget(self, reply):
        """One line is handed out only once."""
        if reply in self._arrived:
            self._arrived.remove(reply)
        if reply in self.events:
            self.events.remove(reply)
        return reply

    def _find(self, wanted, timeout, what):
        """The first line not handed out for which `wanted`, waiting for it."""
        deadline = time.monotonic() + (
            self.timeout if timeout is None else timeout)
        seen = 0
        while True:
            pending = list(self._arrived)
            for reply in pending[seen:]:
                if wanted(reply):
                    return self._forget(reply)
            seen = len(pending)
            if not self._pump(deadline):
                raise ClientError(self._complaint(what))

    def _complaint(self, what):
        end = "the connection ended" if self.closed_by_peer else "not in time"
        last = "\n  ".join(reply.line for reply in self.lines[-10:])
        return f"{what}: {end}; the last lines were:\n  {last}"

    def line(self, timeout=None):
        """The next line of any kind, in order of arrival."""
        return self._find(lambda reply: True, timeout, "a line")

    def wait(self, tag="-", timeout=None):
        """The final reply to a tag; what came before it in items, early."""
        items, early = [], []
        deadline = time.monotonic() + (
            self.timeout if timeout is None else timeout)
        while True:
            reply = self._find(lambda reply: reply.tag == tag, max(
                0.0, deadline - time.monotonic()), f"the reply to {tag}")
            if reply.final:
                reply.items, reply.early = items, early
                return reply
            (items if reply.word == "ITEM" else early).append(reply)

    def queued(self, tag, timeout=None):
        """Waits for the QUEUED line of a request with progress=1."""
        return self._find(lambda reply: reply.tag == tag and reply.word ==
                          "QUEUED", timeout, f"QUEUED for {tag}")

    def waits(self, line, timeout=None):
        """Sends a LOCK, which must have to wait; its tag."""
        tag = self.submit(f"{line} progress=1")
        self.queued(tag, timeout)
        return tag

    def granted(self, tag="-", timeout=None):
        """wait() for a reply that must be OK."""
        reply = self.wait(tag, timeout)
        if not reply.ok:
            raise ClientError(f"wanted OK, got: {reply.line}")
        return reply

    def refused(self, tag, code, timeout=None):
        """wait() for a reply that must be ERR with this code."""
        reply = self.wait(tag, timeout)
        if reply.code != code:
            raise ClientError(f"wanted ERR {code}, got: {reply.line}")
        return reply

    def request(self, line, timeout=None, tag=True):
        """Sends a request and waits for its final reply."""
        if not tag:
            self.send(line)
            return self.wait("-", timeout)
        return self.wait(self.submit(line), timeout)

    def ok(self, line, timeout=None, **pairs):
        """request() that must be OK, and have these pairs."""
        reply = self.request(line, timeout)
        if not reply.ok:
            raise ClientError(f"{line}: wanted OK, got: {reply.line}")
        for key, value in pairs.items():
            if reply.get(key) != str(value):
                raise ClientError(
                    f"{line}: wanted {key}={value}, got: {reply.line}")
        return reply

    def err(self, line, code, timeout=None):
        """request() that must be ERR with this code."""
        try:
            return self.refused(self.submit(line), code, timeout)
        except ClientError as error:
            raise ClientError(f"{line}: {error}") from None

    def expect(self, *words, timeout=None):
        """The next line must begin (after its tag) with these words."""
        reply = self.line(timeout)
        got = tuple([reply.word, *reply.words][:len(words)])
        if got != words:
            raise ClientError(f"wanted {' '.join(words)}, got: {reply.line}")
        return reply

    def event(self, name, timeout=None, **pairs):
        """The first event `name` (with these pairs) not yet handed out."""
        def wanted(reply):
            return reply.tag == "*" and reply.word == name and all(
                reply.get(key) == str(value) for key, value in pairs.items())
        return self._find(wanted, timeout, f"event {name} {pairs or ''}")

    def next_event(self, *names):
        """The first event of these names not yet handed out."""
        return self._find(lambda reply: reply.tag == "*" and
                          reply.word in names, None, f"event {names}")

    def no_event(self, name, within):
        """Reads for `within` seconds; no such event may come."""
        deadline = time.monotonic() + within
        while self._pump(deadline):
            pass
        for reply in self.events:
            if reply.word == name:
                raise ClientError(f"unwanted event: {reply.line}")

    def no_reply(self, tag, within):
        """Reads for `within` seconds; the request must stay unanswered."""
        deadline = time.monotonic() + within
        while self._pump(deadline):
            pass
        for reply in self._arrived:
            if reply.tag == tag:
                raise ClientError(f"unwanted reply: {reply.line}")

    def at_end(self, timeout=None):
        """Waits for the end of the connection; lines not handed out."""
        deadline = time.monotonic() + (
            self.timeout if timeout is None else timeout)
        while self._pump(deadline):
            pass
        if not self.closed_by_peer:
            raise ClientError("the broker did not close the connection")
        return list(self._arrived)

    # ending

    def finish(self):
        """Sends FIN and goes on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def kill(self):
        """Ends with RST, as a killed process with unread input does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                               struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
