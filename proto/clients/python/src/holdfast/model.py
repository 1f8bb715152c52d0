"""The data of the core: options, holds, calls, watches; and its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (Any, Dict, List, Mapping, NamedTuple, Optional, Tuple,
                    Union)

from .errors import HoldfastError
from .wire import duration, encode

FOREVER = float("inf")


@dataclass(frozen=True)
class Options:
    """Of a session. Times are in seconds."""

    name: Optional[str] = None
    user: Optional[str] = None
    secret: Optional[str] = None
    #: How long the session outlives its connection; 0: it does not.
    keep: float = 0
    #: The broker asks for a sign of life at this pace; 0: never.
    heartbeat: float = 2
    #: Whether a wait tells its place: the event Queued.
    progress: bool = False
    #: Whether there are several addresses to move between.
    several: bool = False


class Hold:
    """One lock that was granted. The core alone writes to it."""

    __slots__ = ("name", "owner", "fence", "told", "renewals", "lost",
                 "released", "entries", "upgrade", "wanted", "leased",
                 "outlasts", "unclaimed", "confirming", "users")

    def __init__(self, name: str, owner: str, fence: int) -> None:
        self.name = name
        self.owner = owner
        self.fence = fence
        #: The deadline by the last answer, on the clock of the client.
        self.told = 0.0
        #: The ends that RENEWs without an answer may have set.
        self.renewals: Dict[Call, float] = {}
        #: Why it was lost; None: it was not.
        self.lost: Optional[str] = None
        #: The client has sent its last UNLOCK.
        self.released = False
        #: Calls of LOCK that were granted, less those of UNLOCK.
        self.entries = 0
        self.upgrade = False
        self.wanted = False
        #: A hold with lease= has a deadline of its own (6.5).
        self.leased = False
        #: Its lease is longer than its ttl_ms: only HELD moves the deadline.
        self.outlasts = False
        #: The present connection has not claimed it yet.
        self.unclaimed = False
        #: The call that is answered once the hold is confirmed.
        self.confirming: Optional[Call] = None
        #: The driver's: the objects that are told of its loss.
        self.users: List[Any] = []

    @property
    def deadline(self) -> float:
        """Nothing is believed beyond it (6.5)."""
        return min(self.told, *self.renewals.values()) if self.renewals \
            else self.told

    def doubt(self, call: Call) -> None:
        """A RENEW without a certain answer may have been carried out."""
        self.told = min(self.told, self.renewals.pop(call, FOREVER))

    def left(self, now: float) -> float:
        """Seconds for which it can be relied on; 0: not any more."""
        if self.lost is not None or self.released:
            return 0.0
        return max(0.0, self.deadline - now)


class Call:
    """A request, from its call to its final reply."""

    __slots__ = ("verb", "names", "words", "wait", "owner", "hold", "watch",
                 "own", "repeats", "asked", "sent", "tag", "again", "after",
                 "dropped", "done", "error", "keys", "holds", "wanted",
                 "leased", "lease", "detached", "least", "waiter",
                 "user")

    def __init__(self, verb: str, names: Tuple[str, ...] = (), *,
                 words: str = "", wait: Optional[float] = None,
                 owner: str = "", hold: Optional[Hold] = None,
                 own: bool = False, repeats: bool = True) -> None:
        self.verb = verb
        self.names = names
        self.words = words
        self.wait = wait
        self.owner = owner
        self.hold = hold
        self.watch: Optional[Watch] = None
        #: It is the core's own: nobody waits for its answer.
        self.own = own
        #: After a move it is sent again.
        self.repeats = repeats
        self.asked = self.sent = 0.0
        self.tag = ""
        self.again = False  # it was sent on an earlier connection too
        self.after = 0.0  # it is not sent before
        self.dropped = False  # its caller has given it up
        self.done = False
        self.error: Optional[HoldfastError] = None
        self.keys: Mapping[str, str] = {}
        self.holds: List[Hold] = []
        self.wanted = self.leased = self.detached = False
        self.lease = 0.0  # of a RENEW
        self.least = FOREVER  # of the ttl in its ITEMs
        self.waiter: Any = None  # the driver's: who waits
        self.user: Any = None  # the driver's: who takes its holds

    def line(self, now: float) -> bytes:
        """The request, with what is left of its wait (profile C)."""
        words = [self.tag, self.verb]
        words += map(encode, self.names)
        if self.words:
            words.append(self.words)
        if self.wait is not None:
            left = self.asked + self.wait - now
            words.append("wait=" + duration(max(0.0, left)))
        return (" ".join(words) + "\n").encode("ascii")


class Member(NamedTuple):
    """The holder of a watched lock, or a member of a watched group."""

    name: str  # of the lock
    fence: int
    note: str = ""
    client: str = ""
    owner: str = ""
    session: str = ""
    permits: int = 1
    holders: int = 1
    detached: bool = False


class Watch:
    """A watched lock. It goes on at the next connection, until unwatch()."""

    __slots__ = ("name", "members", "all", "listing", "last", "begun", "over",
                 "error", "user")

    def __init__(self, name: str, members: bool) -> None:
        self.name = name
        self.members = members
        self.all: Dict[int, Member] = {}
        self.listing = False
        self.last: Union[None, Member, Tuple[()]] = ()  # (): none told yet
        self.begun = False  # a broker has answered OK
        self.over = False
        self.error: Optional[HoldfastError] = None
        self.user: Any = None  # the driver's


class Answered(NamedTuple):
    """A call is done."""

    call: Call


class Queued(NamedTuple):
    """A LOCK waits; `keys` of QUEUED: position, holder, note, age_ms."""

    call: Call
    keys: Mapping[str, str]


class Lost(NamedTuple):
    """A hold was lost: hold.lost says why."""

    hold: Hold


class Wanted(NamedTuple):
    """Others wait for a hold."""

    hold: Hold
    waiters: int


class Seen(NamedTuple):
    """News of a watch: the holder, None if the lock is free, or members."""

    watch: Watch
    news: Union[None, Member, List[Member]]


class WatchOver(NamedTuple):
    """A watch has ended; watch.error says why."""

    watch: Watch


class Moved(NamedTuple):
    """The session goes on at another connection."""


Event = Union[Answered, Queued, Lost, Wanted, Seen, WatchOver, Moved]
