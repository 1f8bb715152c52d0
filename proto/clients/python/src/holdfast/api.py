"""The common part of threads and asyncio: arguments, hooks, locks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import (Any, Callable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, TypedDict, Union)

from . import errors, net
from .model import (Call, Event, Hold, Lost, Moved, Options, Queued, Seen,
                    Wanted, WatchOver)
from .wire import Text, check_seconds, check_text, text_of

NAMES_MAX = 16
YEAR = 365 * 86400
DAY = 86400
HOUR = 3600
MS = 0.001
NOTE_MAX = 128
SECRET_MAX = 255

Hook = Callable[..., object]


class ConnectArgs(TypedDict, total=False):
    """Of connect(). Times are in seconds.

    name: of the client, for people.
    keep: how long its locks outlive a connection. They move to the next
        broker, or to the same one after its restart. 0, the default: they end.
    heartbeat: 2 by default. A client that hangs, or is cut off, is noticed
        after three heartbeats. 0: never, or by TCP after about 11 s.
    user, secret, secret_file: for a broker with users. The secret is given as
        such or in a file.
    tls: TLS with the certificates that the system trusts. Each of the next
        four turns TLS on too. The default port is 4655 then.
    ca: TLS with the certificates of this file.
    cert, key: the client's own certificate, and the file of its key if that
        is apart.
    server_name: the name in the broker's certificate; by default that of its
        address.
    ssl_context: in place of tls, ca, cert and key.
    on_wait: called with the lock and what the broker tells of its wait.
    on_grant: called with the lock and the time that it waited.
    on_lost: called with a lock that is lost.
    on_move: called after a move to another connection.
    """

    name: str
    keep: float
    heartbeat: float
    user: str
    secret: str
    secret_file: str
    tls: bool
    ca: str
    cert: str
    key: str
    server_name: str
    ssl_context: SSLContext
    on_wait: Hook
    on_grant: Hook
    on_lost: Hook
    on_move: Hook


class LockArgs(TypedDict, total=False):
    """Of lock() and its like. Times are in seconds.

    wait: how long to wait for it. 0: not at all. None, the default: no limit.
    lease: how long it lasts. None, the default: until it is released.
    owner: the holder. An owner may take a lock twice. The default is an owner
        for each lock(), so that tasks and threads exclude each other.
    note: for others who look, and for those who watch().
    delay: how long nobody gets it, if this client dies.
    tree: the name is a path. It excludes those above and below it.
    confirm: whether the end of the `with` waits until the broker has answered,
        which is the default. With False, a loss in the last moment, that the
        client has not heard of, is not raised.
    cancel: its cancel() ends the wait from another thread. Not of asyncio.
    on_lost: called with the lock when it is lost.
    on_wanted: called with the lock and the number of waiters, when others
        wait.
    """

    wait: Optional[float]
    lease: Optional[float]
    owner: Optional[str]
    note: Optional[str]
    delay: Optional[float]
    tree: bool
    confirm: bool
    cancel: Canceller
    on_lost: Hook
    on_wanted: Hook


_LOCK_ARGS = LockArgs.__annotations__.keys()


@dataclass(frozen=True)
class Config:
    """The arguments of connect(), checked."""

    addresses: List[net.Address]
    options: Options
    context: Optional[SSLContext]
    server_name: Optional[str]
    on_wait: Optional[Hook]
    on_grant: Optional[Hook]
    on_lost: Optional[Hook]
    on_move: Optional[Hook]


def config(addresses: Union[str, Sequence[str]], args: ConnectArgs) -> Config:
    """Checks the arguments of connect()."""
    unknown = set(args) - set(ConnectArgs.__annotations__)
    if unknown:
        raise TypeError(f"connect() has no argument {', '.join(unknown)}")
    context = args.get("ssl_context")
    ca, cert, key = args.get("ca"), args.get("cert"), args.get("key")
    if context is None and (args.get("tls") or args.get("server_name") or
                            ca or cert or key):
        context = net.context_of(ca, cert, key)
    found = net.addresses_of(addresses, context is not None)
    _check_hooks(args, "on_wait", "on_grant", "on_lost", "on_move")
    for what in ("name", "user"):
        if args.get(what) is not None:
            check_text(what, args.get(what), 64)
    keep, heartbeat = args.get("keep") or 0, args.get("heartbeat", 2) or 0
    check_seconds("keep", keep, HOUR)
    check_seconds("heartbeat", heartbeat, HOUR, 0.1 if heartbeat else 0)
    user, secret = args.get("user"), args.get("secret")
    if args.get("secret_file") is not None:
        if secret is not None:
            raise errors.UsageError("secret or secret_file, not both")
        secret = _secret_in(args["secret_file"])
    if secret is not None:
        check_text("the secret", secret, SECRET_MAX, secret=True)
    if (user is None) != (secret is None):
        raise errors.UsageError("user needs secret or secret_file, and they "
                                "need user")
    if context is not None and any(not place.port for place in found):
        raise errors.UsageError("a Unix socket has no TLS")
    options = Options(
        name=args.get("name"), user=user, secret=secret,
        keep=keep, heartbeat=heartbeat,
        progress=args.get("on_wait") is not None, several=len(found) > 1)
    return Config(found, options, context, args.get("server_name"),
                  args.get("on_wait"), args.get("on_grant"),
                  args.get("on_lost"), args.get("on_move"))


def tell(config: Config, event: Event) -> None:
    """Tells an event, other than Answered, to the objects of its user and to
    the hooks."""
    if isinstance(event, Lost):
        for lock in list(event.hold.users):
            lock.told_lost()
    elif isinstance(event, Wanted):
        for lock in list(event.hold.users):
            lock.told_wanted(event.waiters)
    elif isinstance(event, Seen):
        event.watch.user.tell(event.news)
    elif isinstance(event, WatchOver):
        event.watch.user.tell_over()
    elif isinstance(event, Queued) and config.on_wait is not None:
        config.on_wait(event.call.user, event.keys)
    elif isinstance(event, Moved) and config.on_move is not None:
        config.on_move()


def _secret_in(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise errors.UsageError(f"secret_file: {error}") from error
    except UnicodeError:
        raise errors.UsageError(f"secret_file={path}: no UTF-8") from None


def _check_hooks(args: Mapping[str, object], *keys: str) -> None:
    for key in keys:
        if args.get(key) is not None and not callable(args[key]):
            raise TypeError(f"{key} must be a function, not {args[key]!r}")


class Canceller:
    """cancel() ends the wait of the call that has it: Cancelled."""

    def __init__(self) -> None:
        self._act: Optional[Callable[[], None]] = None
        self._cancelled = False

    def cancel(self) -> None:
        """From any thread. A lock that comes late is given back."""
        self._cancelled = True
        act = self._act
        if act is not None:
            act()

    def attach(self, act: Optional[Callable[[], None]]) -> None:
        """The client's: what cancel() does; None: the call is over."""
        self._act = act
        if act is not None and self._cancelled:
            act()


class Terms(NamedTuple):
    """Of one LOCK: names, and the arguments of Core.lock()."""

    names: Tuple[str, ...]
    keys: Mapping[str, Any]
    on_lost: Optional[Hook]
    on_wanted: Optional[Hook]
    cancel: Optional[Canceller]
    confirm: bool


def terms(names: Sequence[Text], args: LockArgs, **keys: Any) -> Terms:
    """Checks the arguments: the answer of the broker has no value in it."""
    if not args.keys() <= _LOCK_ARGS:
        unknown = ", ".join(args.keys() - _LOCK_ARGS)
        raise TypeError(f"a lock has no argument {unknown}")
    if not 1 <= len(names) <= NAMES_MAX:
        raise errors.UsageError(f"{len(names)} names, and 1 to {NAMES_MAX} "
                                "are possible")
    for key, least, most in (("wait", 0, YEAR), ("lease", MS, YEAR),
                             ("delay", 0, DAY)):
        if args.get(key) is not None:
            check_seconds(key, args.get(key), most, least)
    for key, length in (("owner", 64), ("note", NOTE_MAX)):
        if args.get(key) is not None:
            check_text(key, args.get(key), length)
    if (args.get("owner") or "").startswith("~"):
        raise errors.UsageError(f"owner={args['owner']}: it must not begin "
                                "with ~")
    _check_hooks(args, "on_lost", "on_wanted")
    if not isinstance(args.get("cancel"), (Canceller, type(None))):
        raise TypeError(f"cancel must be a Canceller, not {args['cancel']!r}")
    keys.update(args)
    on_lost, on_wanted = keys.pop("on_lost", None), keys.pop("on_wanted", None)
    cancel, confirm = keys.pop("cancel", None), keys.pop("confirm", True)
    keys["wanted"] = on_wanted is not None
    return Terms(tuple(map(text_of, names)), keys, on_lost, on_wanted, cancel,
                 confirm)


class Freed(NamedTuple):
    """The last grant, as await_free() tells; 0 and "": not known."""

    fence: int
    note: str

    @classmethod
    def of(cls, call: Call) -> Freed:
        return cls(int(call.keys.get("fence", "0")),
                   call.keys.get("note", ""))


class View:
    """Held locks: what can be said of them without asking anybody."""

    def __init__(self, holds: List[Hold]) -> None:
        self._holds = holds

    def __repr__(self) -> str:
        state = f"lost: {self.lost}" if self.lost else \
            f"{self.left():.3g} s left"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def __iter__(self) -> Iterator[View]:
        """One for each name: `with hf.lock("a", "b") as (a, b)`."""
        return iter([View([hold]) for hold in self._holds])

    @property
    def name(self) -> str:
        """The first name."""
        return self._holds[0].name

    @property
    def fence(self) -> int:
        """The number of the grant, larger than all before: give it to what
        the lock protects."""
        if not self._holds:
            raise errors.NotHeld("the lock was not acquired",
                                 names=(self.name,))
        return self._holds[0].fence

    @property
    def fences(self) -> Tuple[int, ...]:
        """That of each name."""
        return tuple(hold.fence for hold in self._holds)

    @property
    def lost(self) -> Optional[str]:
        """Why it was lost, also by its deadline; None: it was not."""
        now = net.clock()
        for hold in self._holds:
            if hold.lost is not None:
                return hold.lost
            if hold.deadline and not hold.released and not hold.left(now):
                return "deadline"
        return None

    @property
    def held(self) -> bool:
        """Whether it can be relied on now."""
        return self.left() > 0

    def left(self) -> float:
        """Seconds for which it can be relied on without further word."""
        now = net.clock()
        return min((hold.left(now) for hold in self._holds), default=0.0)

    def check(self) -> None:
        """Raises LockLost if it cannot be relied on any more."""
        why = self.lost
        if why is not None:
            raise errors.LockLost(names=(self.name,), why=why)
        if not self.held:
            raise errors.NotHeld("the lock was not acquired, or was released",
                                 names=(self.name,))
