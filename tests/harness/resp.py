"""A small Redis client (RESP2) for tests: commands, pipelines, pub/sub.

Status replies are str, bulk strings bytes, integers int, nil None. command()
raises an error reply (RedisError); in a pipeline or an array it is a value.
"""

import ast
import re
import socket
import time


class RedisError(Exception):
    """An error reply; `code` is its first word (MOVED, NOSCRIPT, ERR...)."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text
        self.code = text.split(" ", 1)[0]

    def __eq__(self, other):
        return isinstance(other, RedisError) and other.text == self.text

    def __hash__(self):
        return hash(self.text)


def encode_command(args):
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        if isinstance(arg, (bytes, bytearray)):
            data = bytes(arg)
        else:
            data = str(arg).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class RedisConnection:
    """One connection, by `tls` if given. OSError: lost; TimeoutError: late."""

    def __init__(self, host, port, timeout=10.0, tls=None):
        self.timeout = timeout
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._input = bytearray()

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, *args):
        """Sends one command and reads nothing."""
        self._socket.sendall(encode_command(args))

    def read(self, timeout=None):
        """The next reply (or pub/sub message)."""
        deadline = time.monotonic() + (timeout or self.timeout)
        return self._reply(deadline)

    def command(self, *args, timeout=None):
        self.send(*args)
        value = self.read(timeout)
        if isinstance(value, RedisError):
            raise value
        return value

    def text(self, *args):
        """command(), a bulk string decoded."""
        value = self.command(*args)
        return value.decode("utf-8", "surrogateescape") \
            if isinstance(value, bytes) else value

    def pipeline(self, commands, timeout=None):
        """Sends all in one write; a list of replies, errors among them."""
        commands = list(commands)
        self._socket.sendall(b"".join(encode_command(c) for c in commands))
        deadline = time.monotonic() + (timeout or self.timeout)
        return [self._reply(deadline) for _ in commands]

    def subscribe(self, *channels):
        self.send("SUBSCRIBE", *channels)
        return [self.read() for _ in channels]

    def message(self, timeout=None):
        """The next pub/sub message as (channel, payload)."""
        while True:
            value = self.read(timeout)
            if isinstance(value, list) and value[0] in (b"message",
                                                        b"pmessage",
                                                        b"smessage"):
                return value[-2], value[-1]

    def _fill(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no reply from Redis in time")
        self._socket.settimeout(left)
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("Redis closed the connection")
        self._input += data

    def _line(self, deadline):
        while (end := self._input.find(b"\r\n")) < 0:
            self._fill(deadline)
        line = bytes(self._input[:end])
        del self._input[:end + 2]
        return line

    def _reply(self, deadline):
        line = self._line(deadline)
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode("utf-8", "surrogateescape")
        if kind == b"-":
            return RedisError(rest.decode("utf-8", "surrogateescape"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._bulk(int(rest), deadline)
        if kind == b"*":
            count = int(rest)
            return None if count < 0 else [self._reply(deadline)
                                           for _ in range(count)]
        raise ConnectionError(f"not a reply: {line!r}")

    def _bulk(self, length, deadline):
        if length < 0:
            return None
        while len(self._input) < length + 2:
            self._fill(deadline)
        data = bytes(self._input[:length])
        del self._input[:length + 2]
        return data


# What the short cut of a script of lua/ asks Redis for: one read, and one write
# that no other way makes like that.
SHORT_CUTS = {name: [("GETRANGE", 0, 239), ("SETRANGE", *write)]
              for name, write in {"acquire": (2, 238), "release": (2, 50),
                                  "acquire with words": (2, 302),
                                  "renew": (160, 8)}.items()}


class Monitor(RedisConnection):
    """The commands of a server from here on, by MONITOR."""

    def __init__(self, host, port, **options):
        super().__init__(host, port, **options)
        self._marks = 0
        self._seen = {}
        self.command("MONITOR")

    def of_scripts(self, server, key):
        """The scripts' commands on that key since the last call: words without
        the key, and the length of a written value."""
        self._marks += 1
        mark = f"mark-{id(self)}-{self._marks}"
        server.command("ECHO", mark)
        while mark not in (line := self.read()):
            if " lua] " not in line:
                continue
            words = [ast.literal_eval(f'b"{word}"') for word in re.findall(
                r'"((?:[^"\\]|\\.)*)"', line.partition("]")[2])]
            if len(words) < 2:
                continue
            self._seen.setdefault(words[1].decode("latin-1"), []).append(
                (words[0].decode(), *(
                    len(word) if words[0] == b"SETRANGE" and place else
                    int(word) if word.isdigit() else word
                    for place, word in enumerate(words[2:]))))
        return self._seen.pop(key, [])
