"""The client for threads: `holdfast.connect()` (PROTOCOL.md for the rules)."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import threading
import time
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Deque, Generic, List,
                    Optional, Sequence, Type, TypeVar, Union, cast)

from . import api, errors
from .api import Canceller, Config, ConnectArgs, Freed, LockArgs, Terms, View
from .core import Core
from .engine import Engine
from .model import Call, Hold, Member, Watch
from .wire import Text, check_seconds, check_text, text_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

RELEASE_S = 10.0  # for the answer to an UNLOCK; the hold is over before
LEAD_PAUSE_S = 1.0  # before another try to lead, while no broker answers
UNREAD = 1000  # news of a watch that are kept for its reader

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N")
R = TypeVar("R")


class Lock(View):
    """A lock of one or several names, as a context manager or by hand. Make an
    object for each use: it costs nothing before acquire()."""

    def __init__(self, client: Holdfast, terms: Terms) -> None:
        super().__init__([])
        self._client = client
        self._terms = terms
        self._taken = self._asking = self._told = False
        self._gone: Optional[threading.Event] = None

    @property
    def name(self) -> str:
        return self._terms.names[0]

    def acquire(self) -> Lock:
        """Waits for the lock. Busy, TimedOut, Deadlock, Unavailable."""
        if self._taken or self._asking:
            raise errors.UsageError(
                "this object is in use; make one for each use",
                names=(self.name,))
        client, terms, begin = self._client, self._terms, time.monotonic()

        calls: List[Call] = []

        def make() -> List[Call]:
            calls.append(client.core.lock(terms.names, **terms.keys))
            calls[0].user = self
            return calls

        self._asking = True
        try:
            client.engine.ask(make, cancel=terms.cancel)
            self._taken, self._gone = True, None
            if client.config.on_grant is not None:
                client.config.on_grant(self, time.monotonic() - begin)
            return self
        except BaseException:  # Ctrl-C, or an error of the hook
            self._taken = False
            client.engine.give_up(*calls)
            raise
        finally:
            self._asking = False

    def release(self, delay: Optional[float] = None,
                confirm: bool = True) -> None:
        """Gives it back; `delay`: nobody is granted it for so long. LockLost:
        it was lost before. Without `confirm` it does not wait."""
        self._must_hold()
        if delay is not None:
            check_seconds("delay", delay, api.DAY)
        core, engine = self._client.core, self._client.engine
        lost = None if confirm else self.lost

        def make() -> List[Call]:
            if not self._taken:
                return []
            for hold in self._holds:
                if self in hold.users:
                    hold.users.remove(self)
            calls = [core.unlock(hold, delay) for hold in self._holds]
            self._taken = False
            return calls

        try:
            if confirm:
                engine.ask(make, RELEASE_S)
                return
            engine.do(make)
        except BaseException:  # Ctrl-C may come at any time
            engine.do(make)
            raise
        if lost is not None:
            raise errors.LockLost(names=(self.name,), why=lost)

    def __enter__(self) -> Lock:
        try:
            self.acquire()
            return self
        except BaseException:  # Ctrl-C behind acquire()
            if self._taken:
                self.release(confirm=False)
            raise

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if not self._taken:
            return
        try:
            self.release(confirm=self._terms.confirm)
        except errors.HoldfastError as failure:
            # The hold is over; the broker goes on with its release. What the
            # body raised counts more.
            if error is None and not failure.retry:
                raise

    def renew(self, lease: float) -> None:
        """A new end: `lease` seconds from now."""
        self._must_hold()
        check_seconds("lease", lease, api.YEAR, api.MS)
        core = self._client.core
        self._client.engine.ask(lambda: [core.renew(hold, lease)
                                         for hold in self._holds])

    def note(self, note: str = "") -> None:
        """Another note, which others see; none without one."""
        self._must_hold()
        if note:
            check_text("note", note, api.NOTE_MAX)
        core = self._client.core
        self._client.engine.ask(lambda: [core.note(hold, note)
                                         for hold in self._holds])

    def give(self, permits: int) -> None:
        """Gives some permits of a semaphore back, and keeps the others."""
        self._must_hold()
        core = self._client.core
        self._client.engine.ask(lambda: [core.part(hold, permits)
                                         for hold in self._holds])

    def upgrade(self, wait: Optional[float] = None) -> Lock:
        """The exclusive lock above an upgradable one; release it first."""
        self._must_hold()
        return Lock(self._client, api.terms(
            self._terms.names, {"wait": wait}, owner=self._holds[0].owner))

    def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost; False: not within `timeout`."""
        with self._client.engine.mutex:
            if self._gone is None:
                self._gone = threading.Event()
            if self.lost is not None:
                self._gone.set()
        return self._gone.wait(timeout)

    def _must_hold(self) -> None:
        if not self._taken:
            raise errors.NotHeld("this object does not hold it",
                                 names=(self.name,))

    # the client's, with its mutex or in its thread

    def granted(self, holds: List[Hold]) -> None:
        """The OK has come."""
        self._holds = holds
        self._told = False
        for hold in holds:
            hold.users.append(self)

    def told_lost(self) -> None:
        """One of the names is lost."""
        if self._told:
            return
        self._told = True
        if self._gone is not None:
            self._gone.set()
        for hook in (self._terms.on_lost, self._client.config.on_lost):
            if hook is not None:
                hook(self)

    def told_closed(self) -> None:
        """The client was closed, which is no news for a hook."""
        if self._gone is not None:
            self._gone.set()

    def told_wanted(self, waiters: int) -> None:
        """Others wait for it."""
        if self._terms.on_wanted is not None:
            self._terms.on_wanted(self, waiters)


class Detached(View):
    """A hold that outlives this client: its fence is all it takes."""

    def __init__(self, client: Holdfast, hold: Hold) -> None:
        super().__init__([hold])
        self._client = client

    def renew(self, lease: float) -> None:
        """A new end: `lease` seconds from now, 24 h at most."""
        check_seconds("lease", lease, api.DAY, api.MS)
        core, hold = self._client.core, self._holds[0]
        self._client.engine.ask(
            lambda: [core.detached("RENEW", hold, lease)])

    def release(self) -> None:
        """Gives it back. NotHeld: it has ended."""
        core, hold = self._client.core, self._holds[0]
        self._client.engine.ask(lambda: [core.detached("UNLOCK", hold)])


class Watching(Generic[N]):
    """The news of a watch, as an iterator. close() ends it."""

    def __init__(self, client: Holdfast, name: str, members: bool) -> None:
        self._client = client
        self._ready = threading.Condition()
        self._news: Deque[N] = collections.deque(maxlen=UNREAD)
        self._over = False

        def make() -> List[Call]:
            call = client.core.watch(name, members)
            if call.watch is not None:
                call.watch.user = self
            return [call]

        call, = client.engine.ask(make)
        self._watch = cast(Watch, call.watch)

    def __iter__(self) -> Watching[N]:
        return self

    def __next__(self) -> N:
        with self._ready:
            self._ready.wait_for(lambda: self._news or self._over)
            if self._news:
                return self._news.popleft()
        if self._watch.error is not None:
            raise self._watch.error
        raise StopIteration

    def close(self) -> None:
        """Ends the watch."""
        self._client.engine.do(lambda: self._client.core.unwatch(self._watch))
        self.tell_over()

    def __enter__(self) -> Watching[N]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, news: N) -> None:
        """News of the broker."""
        with self._ready:
            self._news.append(news)
            self._ready.notify()

    def tell_over(self) -> None:
        """The watch has ended."""
        with self._ready:
            self._over = True
            self._ready.notify_all()


class Holdfast:
    """A client: any number of locks, for all threads of the process.

    It reconnects by itself. Without `keep` the end of a connection is the end
    of its locks; with it they move to the next broker.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.engine = Engine(config)

    @property
    def core(self) -> Core:
        """The state; only with engine.mutex."""
        return self.engine.core

    def close(self) -> None:
        """Gives all locks back. Calls that wait get Closed."""
        self.engine.close()
        with self.engine.mutex:
            for hold in self.core.holds.values():
                for lock in hold.users:
                    lock.told_closed()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- locks

    def lock(self, *names: Text, **args: Unpack[LockArgs]) -> Lock:
        """An exclusive lock of all names: `with hf.lock("a", wait=5)`, or by
        acquire(). LockArgs has the arguments."""
        return Lock(self, api.terms(names, args))

    def shared(self, *names: Text, **args: Unpack[LockArgs]) -> Lock:
        """A lock that its holders share."""
        return Lock(self, api.terms(names, args, mode="shared"))

    def upgradable(self, name: Text, **args: Unpack[LockArgs]) -> Lock:
        """A lock beside shared ones, which may upgrade()."""
        return Lock(self, api.terms((name,), args, mode="upgradable"))

    def semaphore(self, *names: Text, limit: int, permits: int = 1,
                  **args: Unpack[LockArgs]) -> Lock:
        """`permits` of a semaphore that has `limit` of them."""
        return Lock(self, api.terms(names, args, limit=limit,
                                    permits=permits))

    def resize(self, name: Text, limit: int) -> None:
        """Another limit for a semaphore that is held or waited for."""
        self.engine.ask(lambda: [self.core.resize(text_of(name), limit)])

    def detached(self, name: Text, mode: str = "exclusive",
                 **args: Unpack[LockArgs]) -> Detached:
        """Takes a lock that outlives this client, for `lease` seconds."""
        asked = api.terms((name,), args, detached=True,
                          mode=None if mode == "exclusive" else mode)
        calls: List[Call] = []

        def make() -> List[Call]:
            calls.append(self.core.lock(asked.names, **asked.keys))
            return calls

        try:
            self.engine.ask(make, cancel=asked.cancel)
            return Detached(self, calls[0].holds[0])
        except BaseException:  # Ctrl-C
            self.engine.give_up(*calls)
            raise

    def adopt(self, name: Text, fence: int) -> Detached:
        """A detached hold that another program took."""
        return Detached(self, Hold(text_of(name), "", fence))

    def await_free(self, name: Text, wait: Optional[float] = None,
                   cancel: Optional[Canceller] = None) -> Freed:
        """Waits until nobody holds the lock, and takes nothing."""
        asked = api.terms((name,), {"wait": wait})
        call, = self.engine.ask(
            lambda: [self.core.await_free(asked.names[0], wait)],
            cancel=cancel)
        return Freed.of(call)

    def locked(self, name: str, *, skip: bool = False,
               **args: Unpack[LockArgs]) -> Callable[[F], F]:
        """A decorator: the function runs under the lock. `name` may have the
        arguments: "job-{0}" or "job-{day}". `skip`: it does not run if the
        lock is held."""
        def decorate(function: F) -> F:
            signature = inspect.signature(function)

            @functools.wraps(function)
            def run(*values: Any, **keys: Any) -> Any:
                bound = signature.bind(*values, **keys)
                bound.apply_defaults()
                lock = self.lock(name.format(
                    *bound.args, **{**bound.arguments, **keys}), **args)
                with contextlib.ExitStack() as stack:
                    try:
                        stack.enter_context(lock)
                    except (errors.Busy, errors.TimedOut):
                        if skip:
                            return None
                        raise
                    return function(*values, **keys)
            return cast(F, run)
        return decorate

    # --- others' locks

    def watch(self, name: Text) -> Watching[Optional[Member]]:
        """The holder of a lock: now, and after each change. None: nobody."""
        return Watching(self, text_of(name), False)

    def members(self, name: Text) -> Watching[List[Member]]:
        """All holders of a lock, by their fences: now, and after each
        change."""
        return Watching(self, text_of(name), True)

    def lead(self, name: Text, work: Callable[[Lock], R],
             **args: Unpack[LockArgs]) -> R:
        """Runs work(lock) as the leader, again after each loss, and returns
        what it returns. `note` tells others who leads."""
        while True:
            lock, leads = self.lock(name, **args), False
            try:
                with lock:
                    leads = True
                    return work(lock)
            except errors.LockLost as error:
                # Of another lock it is the end of work, like any error.
                if lock.lost is None and lock.name not in error.names:
                    raise
            except errors.Unavailable as error:
                if leads or not error.retry:  # of work, or of its end
                    raise
                time.sleep(error.after or LEAD_PAUSE_S)


def connect(addresses: Union[str, Sequence[str]] = "127.0.0.1:4653", *,
            timeout: float = 15.0,
            **args: Unpack[ConnectArgs]) -> Holdfast:
    """Connects to a broker, within `timeout` seconds: AUTH alone may take 8.

    `addresses` are HOST:PORT, [V6]:PORT or the /PATH of a socket, several with
    commas: brokers of the same Redis, tried in turn. ConnectArgs has the other
    arguments.
    """
    client = Holdfast(api.config(addresses, args))
    try:
        client.engine.ask(lambda: [client.core.ready()], timeout)
    except BaseException:
        client.close()
        raise
    return client
