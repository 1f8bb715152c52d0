"""A broker that says what a scenario tells it to.

It answers by itself what clients ask when they like, so that a scenario is
about its subject alone. It does no more than that: it knows of no lock but
those that a scenario has granted.
"""

import os
import secrets
import selectors
import socket
import ssl
import struct
import tempfile
import time

from wire import Mismatch, Request, milliseconds

AUTO = ("HELLO", "AUTH", "PING", "PONG", "HELD", "CANCEL", "QUIT")
SEND_SECONDS = 10
READ_BYTES = 1 << 16
LINE_MAX = 4096  # with the LF


def _key(words, key):
    """The value of `key=`, or None."""
    return next((word[len(key) + 1:] for word in words
                 if word.startswith(key + "=")), None)


class Settings:
    """What the broker does by itself; for all its connections."""

    def __init__(self):
        self.verbs = set(AUTO)
        self.ttl = "10000"
        self.greeting = ""  # None: none
        self.answers = {}   # by verb: what a scenario says instead
        self.final = False  # the scenario is over: UNLOCK is answered, too


class Connection:
    """One of a client. `requests` are the lines that no step has taken."""

    def __init__(self, sock, number, settings, holds, log):
        self.sock, self.number, self.listener = sock, number, None
        self.settings, self.holds, self._log = settings, holds, log
        self.session = secrets.token_hex(16)
        self.requests, self.answered = [], []
        self.outstanding = {}  # by tag
        self.ended = None      # when the client ended it
        self.closed = False
        self.fault = None      # what the client did wrong
        self.bytes, self.joined = False, None
        self._input = b""
        self._behind = []  # requests that wait for the reply to AUTH
        sock.settimeout(SEND_SECONDS)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self):
        """The greeting."""
        if self.settings.greeting is not None:
            self.say(f"* HELLO proto=1 server=holdfastd/0.1.0 session="
                     f"{self.session} max_line={LINE_MAX} lease_ms=30000"
                     f"{self.settings.greeting}")

    def say(self, line):
        """Sends a line; keeps the table of holds and of requests."""
        self._log(f"S#{self.number} {line}")
        tag, word, *rest = line.split(" ")
        request = None
        if word in ("OK", "ERR") and tag in self.outstanding:
            request = self.outstanding.pop(tag)
            self._answered(request, word == "OK", rest)
        if word == "LOST":
            self.holds.pop(_key(rest, "fence"), None)
        self.send(line.encode() + b"\n")
        if request and request.verb == "AUTH":
            behind, self._behind = self._behind, []
            for each in behind:
                self._answer(each)

    def _answered(self, request, good, words):
        fence = _key(words, "fence") or request.keys.get("fence")
        if good and request.verb in ("LOCK", "CLAIM", "RENEW") and fence \
                and "detached" not in request.keys:
            end = None if not _key(words, "lease_ms") else \
                time.monotonic() + int(_key(words, "ttl_ms")) / 1e3
            for each, name in zip(fence.split(","), request.names):
                owner = request.keys.get("owner")
                self.holds[each] = end, f"name={name}" + (
                    f" owner={owner}" if owner else "")
        elif good and request.verb == "UNLOCK" and "count=0" in words:
            self.holds.pop(fence, None)
        elif not good and request.verb == "CLAIM" and "LOST" in words:
            self.holds.pop(fence, None)

    def send(self, data):
        """Sends bytes in the present way; an ended connection is a Mismatch
        while a scenario is about it."""
        if self.joined is not None:
            self.joined += data
            return
        try:
            for piece in ([data[i:i + 1] for i in range(len(data))]
                          if self.bytes else [data]):
                self.sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.ended = self.ended or time.monotonic()
        except TimeoutError:
            raise Mismatch("the client does not read") from None

    def read(self):
        """Reads once, and answers; False: the end."""
        try:
            data = self.sock.recv(READ_BYTES)
            while isinstance(self.sock, ssl.SSLSocket) and \
                    self.sock.pending():
                data += self.sock.recv(READ_BYTES)
        except (OSError, ssl.SSLError):
            data = b""
        if not data:
            self.ended = time.monotonic()
            self._log(f"C#{self.number} (end)")
            return False
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._take(line)
        return True

    def _take(self, line):
        self._log(f"C#{self.number} {line.decode('latin-1')}")
        if not line.strip():
            return  # a sign of life
        try:
            request = Request(line, time.monotonic())
        except (ValueError, UnicodeDecodeError) as error:
            self.fault = self.fault or f"{line!r}: {error}"
            return
        if request.tag in self.outstanding:
            self.fault = self.fault or f"{line!r}: the tag is outstanding"
        elif request.tag != "-":
            self.outstanding[request.tag] = request
        if len(line) >= LINE_MAX:
            self.say(f"{request.tag} ERR TOOLONG retry=0 :the line")
        elif request.verb in self.settings.verbs or self.settings.final:
            self.answered.append(request)
            if any(each.verb == "AUTH" and each is not request
                   for each in self.outstanding.values()):
                self._behind.append(request)
            else:
                self._answer(request)
        else:
            self.requests.append(request)

    def _answer(self, request):
        text = self.settings.answers.get(request.verb)
        answer = getattr(self, f"_on_{request.verb.lower()}", None)
        if self.closed:
            return
        if text:
            self.say(f"{request.tag} {text}")
        elif answer:
            answer(request)

    def _on_hello(self, request):
        keys = request.keys
        words = f"session={keys.get('resume', self.session)} proto=1" \
            " server=holdfastd/0.1.0"
        for key in ("heartbeat", "keep"):
            if key in keys:
                words += f" {key}_ms={milliseconds(keys[key])}"
        if "gen" in keys:
            words += f" gen={keys['gen']}"
        self.say(f"{request.tag} OK {words}")

    def _on_auth(self, request):
        self.say(f"{request.tag} OK")

    def _on_ping(self, request):
        renewed = any(not end for end, _ in self.holds.values())
        self.say(f"{request.tag} OK"
                 + (f" ttl_ms={self.settings.ttl}" if renewed else ""))

    def _on_held(self, request):
        for fence, (end, hold) in self.holds.items():
            left = max(0, int((end - time.monotonic()) * 1e3)) if end else 0
            self.say(f"{request.tag} ITEM {hold} fence={fence} count=1 " + (
                f"ttl_ms={left} lease_ms={left}" if end else
                f"ttl_ms={self.settings.ttl} renewed=1"))
        self.say(f"{request.tag} OK n={len(self.holds)}")

    def _on_cancel(self, request):
        wait = self.outstanding.get(request.names[0])
        good = wait and wait.verb in ("LOCK", "AWAIT")
        self.say(f"{request.tag} " + (
            "OK" if good else
            "ERR BADREQ retry=0 :no LOCK or AWAIT with that tag is "
            "outstanding"))
        if good and self.settings.final:
            self.say(f"{wait.tag} ERR CANCELLED retry=1")

    def _on_unlock(self, request):
        self.say(f"{request.tag} OK count=0")

    def _on_quit(self, request):
        self.holds.clear()
        for tag in [tag for tag in self.outstanding if tag != request.tag]:
            self.say(f"{tag} ERR CANCELLED retry=1 :the wait was cancelled")
        self.say(f"{request.tag} OK")
        self.say("* BYE quit keep=0")
        self.ended = self.ended or time.monotonic()
        self.close()

    def close(self, how="close"):
        """`close`, `rst`, or `fin`: the sending only, without close_notify."""
        self._log(f"S#{self.number} ({how})")
        try:
            if how == "rst":
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                     struct.pack("ii", 1, 0))
            elif how == "fin":
                self.sock.shutdown(socket.SHUT_WR)
                return
            elif isinstance(self.sock, ssl.SSLSocket):
                self.sock.settimeout(0.2)
                self.sock.unwrap()
        except OSError:
            pass
        self.closed = True
        self.sock.close()


class Listener:
    """A port on loopback: `off`, `on`, `deaf`, or `slam`, which accepts and
    closes. `unix`: a socket of the file system instead."""

    def __init__(self):
        self.tls = None
        self.slams, self.slammed = False, 0
        self.sock, self.fillers = None, []
        self._port = 0
        self._folder = None  # of a Unix socket
        self.set("on")

    @property
    def address(self):
        return os.path.join(self._folder.name, "broker.sock") \
            if self._folder else f"127.0.0.1:{self._port}"

    def set(self, state):
        """`deaf`: connections to it neither succeed nor fail."""
        self.end()
        self.slams = state == "slam"
        if state == "off":
            return
        if state == "unix":
            self._folder = tempfile.TemporaryDirectory()
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.bind(self.address)
            self.sock.listen(64)
            return
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("127.0.0.1", self._port))
        self._port = self.sock.getsockname()[1]
        self.sock.listen(0 if state == "deaf" else 64)
        if state == "deaf":
            for _ in range(4):  # the queue is full then
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", self._port))
                self.fillers.append(filler)

    def accept(self):
        """A connection; TLS is ready. None: it failed."""
        sock, _ = self.sock.accept()
        if self.slams:
            self.slammed += 1
            sock.close()
            return None
        if not self.tls:
            return sock
        sock.settimeout(SEND_SECONDS)
        try:
            return self.tls.wrap_socket(sock, server_side=True)
        except OSError:
            sock.close()
            return None

    def end(self):
        for each in [self.sock, *self.fillers]:
            if each:
                each.close()
        self.sock, self.fillers = None, []
        if self._folder:
            self._folder.cleanup()
            self._folder = None


class Broker:
    """Listeners and connections, with the driver's output in one loop."""

    def __init__(self, log):
        self.log = log
        self.settings = Settings()
        self.listeners = {}
        self.connections = []
        self.accepted = {}  # of a listener: those that no step has taken
        self.holds = {}
        self.selector = selectors.DefaultSelector()

    def listener(self, name):
        if name not in self.listeners:
            self.listeners[name] = Listener()
            self.accepted[name] = []
            self.watch(name)
        return self.listeners[name]

    def watch(self, name):
        """After a change of the listener's socket."""
        sock = self.listeners[name].sock
        if sock and not self.listeners[name].fillers:
            self.selector.register(sock, selectors.EVENT_READ,
                                   lambda: self._accept(name))

    def set_listener(self, name, state):
        sock = self.listener(name).sock
        if sock and sock.fileno() in self.selector.get_map():
            self.selector.unregister(sock)
        self.listeners[name].set(state)
        self.watch(name)

    def _accept(self, name):
        sock = self.listeners[name].accept()
        self.log(f"C#{len(self.connections) + 1} ({name}"
                 f"{': connection' if sock else ': none'})")
        if not sock:
            return
        connection = Connection(sock, len(self.connections) + 1,
                                self.settings, self.holds, self.log)
        connection.listener = name
        self.connections.append(connection)
        self.accepted[name].append((time.monotonic(), connection))
        self.selector.register(sock, selectors.EVENT_READ,
                               lambda: self._read(connection))
        connection.begin()

    def _read(self, connection):
        going = connection.read()
        if not going or connection.closed:
            self.forget(connection)

    def forget(self, connection):
        """Reads nothing of it any more."""
        for key in list(self.selector.get_map().values()):
            if key.fileobj is connection.sock:
                self.selector.unregister(connection.sock)

    def turn(self, seconds):
        """Serves what is ready; waits for at most `seconds`."""
        for key, _ in self.selector.select(max(0, seconds)):
            key.data()

    def fault(self):
        """What a client did against the grammar, or None."""
        return next((each.fault for each in self.connections if each.fault),
                    None)

    def end(self):
        self.selector.close()
        for each in self.connections:
            each.sock.close()
        for each in self.listeners.values():
            each.end()


def server_tls(folder, name, client=False):
    """A context with a certificate of this name, issued by ca.pem there; it
    may ask the client for one, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, name + ".pem"),
                            os.path.join(folder, name + ".key"))
    if client:
        context.load_verify_locations(os.path.join(folder, "ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
