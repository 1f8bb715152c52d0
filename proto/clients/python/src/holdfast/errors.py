"""The errors of the client: one class for each way that a caller reacts.

`code` is the code of the wire, such as BUSY, or one of the client's own:
CLOSED, GONE, PROTOCOL, TLS and USAGE. `retry` says that the same call may
succeed later (PROTOCOL.md 2).
"""

from __future__ import annotations

from typing import ClassVar, Dict, List, Mapping, Optional, Tuple, Type


class HoldfastError(Exception):
    """Any error of a broker, a connection or a call."""

    code: ClassVar[str] = "INTERNAL"
    retry: bool = False

    def __init__(self, text: str = "", *, code: Optional[str] = None,
                 retry: Optional[bool] = None,
                 keys: Optional[Mapping[str, str]] = None,
                 names: Tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        #: The locks that it is about.
        self.names = names
        if code is not None:
            self.code = code  # type: ignore[misc]
        if retry is not None:
            self.retry = retry
        self.keys: Dict[str, str] = dict(keys or {})

    def __str__(self) -> str:
        what = " ".join([self.code, *map(repr, self.names)])
        return f"{what}: {self.text}" if self.text else what


class Busy(HoldfastError):
    """Another client holds the lock, and `wait` was 0."""

    code = "BUSY"
    retry = True


class TimedOut(HoldfastError, TimeoutError):
    """The lock was held until `wait` was over."""

    code = "TIMEOUT"
    retry = True


class Cancelled(HoldfastError):
    """The wait was cancelled."""

    code = "CANCELLED"
    retry = True


class Deadlock(HoldfastError):
    """The wait was part of a deadlock: release what is held, begin again."""

    code = "DEADLOCK"
    retry = True

    @property
    def cycle(self) -> List[str]:
        """The names of the locks. An empty last one: there are more."""
        # A comma or % within a name has an encoding of its own (6.6).
        names = self.keys.get("cycle", "").split(",")
        return [name.replace("%2C", ",").replace("%25", "%")
                for name in names]


class LockLost(HoldfastError):
    """The hold has ended, and the client did not ask for it."""

    code = "LOST"

    def __init__(self, text: str = "", *, code: Optional[str] = None,
                 retry: Optional[bool] = None,
                 keys: Optional[Mapping[str, str]] = None,
                 names: Tuple[str, ...] = (), why: str = "") -> None:
        super().__init__(text or why, code=code, retry=retry, keys=keys,
                         names=names)
        #: The `reason=` of LOST, or `deadline`, `session`, `closed`, `fork`.
        self.why = why or self.keys.get("reason", "gone")


class NotHeld(HoldfastError):
    """There is no such hold."""

    code = "NOTHELD"


class Conflict(HoldfastError):
    """The request does not fit what is held: another kind, another limit."""

    code = "CONFLICT"


class Denied(HoldfastError):
    """The broker refuses the user, or the user lacks a right."""

    code = "DENIED"


class Unavailable(HoldfastError):
    """No answer now: Redis or all brokers are away, or a limit is reached.

    After INDOUBT and GONE the outcome is unknown, and nothing is held.
    """

    code = "UNAVAILABLE"
    retry = True

    @property
    def after(self) -> float:
        """Seconds before which a new try is in vain; 0: not known."""
        return int(self.keys.get("after_ms", "0")) / 1000


class ProtocolError(HoldfastError):
    """The peer has sent something that is not the protocol."""

    code = "PROTOCOL"


class UsageError(HoldfastError, ValueError):
    """The arguments of a call are wrong."""

    code = "USAGE"


class Closed(HoldfastError):
    """The client was closed."""

    code = "CLOSED"


def gone(text: str) -> Unavailable:
    """No broker is reachable, or the session ended before the answer."""
    return Unavailable(text, code="GONE")


def tls_failed(text: str) -> Unavailable:
    """The handshake failed, or the certificate is not trusted."""
    return Unavailable(f"the TLS handshake failed: {text}", code="TLS",
                       retry=False)


_CLASSES: Dict[str, Type[HoldfastError]] = {
    "BUSY": Busy, "TIMEOUT": TimedOut, "CANCELLED": Cancelled,
    "DEADLOCK": Deadlock, "LOST": LockLost, "NOTHELD": NotHeld,
    "STALE": NotHeld, "CONFLICT": Conflict, "AUTH": Denied,
    "DENIED": Denied, "UNAVAILABLE": Unavailable, "INDOUBT": Unavailable,
    "DRAINING": Unavailable, "LIMIT": Unavailable, "BADREQ": UsageError,
    "TOOLONG": UsageError,
}


def of_code(code: str, keys: Mapping[str, str], text: str) -> HoldfastError:
    """The error of an ERR. An unknown code counts by its retry= (2)."""
    return _CLASSES.get(code, HoldfastError)(
        text, code=code, retry=keys.get("retry") == "1", keys=keys)
