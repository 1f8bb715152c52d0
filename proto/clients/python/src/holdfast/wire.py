"""Lines of the protocol: their encoding and their parts (PROTOCOL.md 1)."""

from __future__ import annotations

import re
from typing import Dict, Iterator, NamedTuple, Union
from urllib.parse import unquote_to_bytes

from .errors import ProtocolError, UsageError

#: A longer line of a broker is an error. The longest one is ERR DEADLOCK.
LINE_MAX = 64 * 1024
DIGITS_MAX = 19
NAME_MAX = 255

# Every byte outside 0x21..0x7E, `%`, `=`, and a leading `:` are encoded.
_ENCODED = re.compile(rb"[^!-$&-<>-~]|^:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")

Text = Union[str, bytes]


def text_of(name: Text) -> str:
    """Names are bytes on the wire. Here they are str, as of os.fsdecode()."""
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    check_text("a name", name, NAME_MAX)
    return name


def check_text(what: str, text: object, most: int,
               secret: bool = False) -> None:
    """Raises TypeError or UsageError, unless it is 1 to `most` bytes. No error
    shows a `secret`."""
    shown = "a secret" if secret else repr(text)[:60]
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}: "
                        f"{shown}")
    try:
        length = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeError:
        raise UsageError(f"{what} that is no text: {shown}") from None
    if not 1 <= length <= most:
        raise UsageError(f"{what} has {length} bytes, and 1 to {most} are "
                         f"possible: {shown}")


def check_seconds(what: str, value: object, most: float,
                  least: float = 0) -> None:
    """Raises TypeError or UsageError, unless it is `least` to `most`."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if not least <= value <= most:
        raise UsageError(f"{what}={value}: it must be {least:.9g} to "
                         f"{most:.9g} seconds")


def encode(value: Text) -> str:
    """A name or a value as a word of the wire."""
    data = value.encode("utf-8", "surrogateescape") \
        if isinstance(value, str) else value
    return _ENCODED.sub(lambda found: b"%%%02X" % found.group()[0],
                        data).decode("ascii")


def decode(word: str) -> str:
    """The inverse of encode()."""
    if "%" not in word:
        return word
    if _BAD_ESCAPE.search(word):
        raise ProtocolError(f"a percent sign without two hex digits: {word}")
    return unquote_to_bytes(word).decode("utf-8", "surrogateescape")


def duration(seconds: float) -> str:
    """A duration of the wire, in ms."""
    return str(round(seconds * 1000))


class Line(NamedTuple):
    """A reply or an event: `TAG WORD [argument] [key=value ...] [:text]`."""

    tag: str
    word: str
    argument: str
    keys: Dict[str, str]
    text: str

    def number(self, key: str) -> int:
        """The value of a key that must be a number."""
        value = self.keys.get(key, "")
        if not value.isdecimal() or len(value) > DIGITS_MAX:
            raise ProtocolError(f"{self.word} with {key}={value}")
        return int(value)

    def seconds(self, key: str) -> float:
        """The value of a key in ms, in seconds."""
        return self.number(key) / 1000


def parse(data: bytes) -> Line:
    """A line without its LF. Unknown keys and further words do no harm."""
    head, _, text = data.decode("utf-8", "surrogateescape").partition(" :")
    words = head.split(" ")
    if len(words) < 2 or not (head.isascii() and head.isprintable()):
        raise ProtocolError(f"no line of a broker: {data[:80]!r}")
    keys: Dict[str, str] = {}
    argument = ""
    for word in words[2:]:
        key, equals, value = word.partition("=")
        if equals:
            keys[key] = decode(value)
        elif not argument:
            argument = decode(word)
    return Line(words[0], words[1], argument, keys, text)


class Lines:
    """Bytes in, lines out. It keeps at most one unfinished line."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that `data` ends. An empty line is none."""
        parts = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = parts.pop()
        for part in parts + [self._rest]:
            if len(part) > LINE_MAX:
                raise ProtocolError(f"a line of more than {LINE_MAX} bytes")
        for part in parts:
            if part.endswith(b"\r"):
                part = part[:-1]
            if part:
                yield parse(part)
