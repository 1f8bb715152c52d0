"""The client for asyncio: the names of `holdfast`, awaited.

    async with aio.connect("broker:4653") as hf:
        async with hf.lock("stock/4711", wait=5) as lock:
            await write(fence=lock.fence)

The body of `async with hf.lock()` is cancelled when the lock is lost, and
LockLost is raised.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import inspect
import time
from types import TracebackType
from typing import (TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable,
                    Deque, Generator, Generic, List, Optional, Sequence, Type,
                    TypeVar, Union, cast)

from . import api, errors
from .api import Config, ConnectArgs, Freed, LockArgs, Terms, View
from .loop import Engine
from .model import Hold, Member, Watch
from .threads import LEAD_PAUSE_S, RELEASE_S, UNREAD
from .wire import Text, check_seconds, check_text, text_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
N = TypeVar("N")
R = TypeVar("R")


class Lock(View):
    """A lock of one or several names, for `async with` or by hand. Make an
    object for each use."""

    def __init__(self, client: Holdfast, terms: Terms) -> None:
        super().__init__([])
        self._client = client
        self._terms = terms
        self._taken = self._asking = self._told = False
        self._task: Optional[asyncio.Task[Any]] = None  # in `async with`
        self._interrupted = False
        self._gone: Optional[asyncio.Event] = None

    @property
    def name(self) -> str:
        return self._terms.names[0]

    async def acquire(self) -> Lock:
        """Waits for the lock. Busy, TimedOut, Deadlock, Unavailable."""
        if self._taken or self._asking:
            raise errors.UsageError(
                "this object is in use; make one for each use",
                names=(self.name,))
        client, begin = self._client, time.monotonic()
        call = client.core.lock(self._terms.names, **self._terms.keys)
        call.user = self
        self._asking = True
        try:
            await client.ask(call)
        finally:
            self._asking = False
        self._taken, self._gone = True, None
        if client.config.on_grant is not None:
            client.config.on_grant(self, time.monotonic() - begin)
        return self

    async def release(self, delay: Optional[float] = None,
                      confirm: bool = True) -> None:
        """Gives it back; `delay`: nobody is granted it for so long. LockLost:
        it was lost before. Without `confirm` it does not wait."""
        self._must_hold()
        if delay is not None:
            check_seconds("delay", delay, api.DAY)
        self._taken = False
        for hold in self._holds:
            if self in hold.users:
                hold.users.remove(self)
        core, lost = self._client.core, None if confirm else self.lost
        calls = [core.unlock(hold, delay) for hold in self._holds]
        if confirm:
            await self._client.ask(*calls, limit=RELEASE_S)
            return
        self._client.engine.settle()
        if lost is not None:
            raise errors.LockLost(names=(self.name,), why=lost)

    async def __aenter__(self) -> Lock:
        self._interrupted = False
        await self.acquire()
        self._task = asyncio.current_task()
        if self.lost is not None:
            self._interrupt()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        task, self._task = self._task, None
        cancelled = isinstance(error, asyncio.CancelledError)
        if self._interrupted and task is not None:
            if not cancelled:  # the cancellation is still on its way
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            # Somebody else may have cancelled the task too (from 3.11 on).
            if hasattr(task, "uncancel") and task.uncancel() > 0:
                return
        if not self._taken:
            return
        try:
            await self.release(confirm=self._terms.confirm)
        except errors.HoldfastError as failure:
            # The hold is over; the broker goes on with its release. What the
            # body raised counts more, unless it is our cancellation.
            if error is None and not failure.retry or \
                    cancelled and self._interrupted:
                raise failure from None

    async def renew(self, lease: float) -> None:
        """A new end: `lease` seconds from now."""
        self._must_hold()
        check_seconds("lease", lease, api.YEAR, api.MS)
        core = self._client.core
        await self._client.ask(*[core.renew(hold, lease)
                                 for hold in self._holds])

    async def note(self, note: str = "") -> None:
        """Another note, which others see; none without one."""
        self._must_hold()
        if note:
            check_text("note", note, api.NOTE_MAX)
        core = self._client.core
        await self._client.ask(*[core.note(hold, note)
                                 for hold in self._holds])

    async def give(self, permits: int) -> None:
        """Gives some permits of a semaphore back, and keeps the others."""
        self._must_hold()
        core = self._client.core
        await self._client.ask(*[core.part(hold, permits)
                                 for hold in self._holds])

    def upgrade(self, wait: Optional[float] = None) -> Lock:
        """The exclusive lock above an upgradable one; release it first."""
        self._must_hold()
        return Lock(self._client, api.terms(
            self._terms.names, {"wait": wait}, owner=self._holds[0].owner))

    async def wait_lost(self) -> None:
        """Waits until the lock is lost."""
        if self._gone is None:
            self._gone = asyncio.Event()
        if self.lost is None:
            await self._gone.wait()

    def _must_hold(self) -> None:
        if not self._taken:
            raise errors.NotHeld("this object does not hold it",
                                 names=(self.name,))

    # the client's

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
        self._interrupt()
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

    def _interrupt(self) -> None:
        if self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()


class Detached(View):
    """A hold that outlives this client: its fence is all it takes."""

    def __init__(self, client: Holdfast, hold: Hold) -> None:
        super().__init__([hold])
        self._client = client

    async def renew(self, lease: float) -> None:
        """A new end: `lease` seconds from now, 24 h at most."""
        check_seconds("lease", lease, api.DAY, api.MS)
        await self._client.ask(self._client.core.detached(
            "RENEW", self._holds[0], lease))

    async def release(self) -> None:
        """Gives it back. NotHeld: it has ended."""
        await self._client.ask(self._client.core.detached(
            "UNLOCK", self._holds[0]))


class Watching(Generic[N]):
    """The news of a watch, for `async for`. close() ends it."""

    def __init__(self, client: Holdfast, name: str, members: bool) -> None:
        self._client = client
        self._name, self._members = name, members
        self._watch: Optional[Watch] = None
        self._ready = asyncio.Event()
        self._news: Deque[N] = collections.deque(maxlen=UNREAD)
        self._over = False

    def __aiter__(self) -> AsyncIterator[N]:
        return self

    async def __anext__(self) -> N:
        if self._watch is None and not self._over:
            call = self._client.core.watch(self._name, self._members)
            if call.watch is not None:
                call.watch.user = self
            self._watch = call.watch  # close() may come before the answer
            try:
                await self._client.ask(call)
            except BaseException:
                self._watch = None
                raise
        while not (self._news or self._over):
            self._ready.clear()
            await self._ready.wait()
        if self._news:
            return self._news.popleft()
        if self._watch is not None and self._watch.error is not None:
            raise self._watch.error
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            self._client.core.unwatch(self._watch)
            self._client.engine.settle()
        self.tell_over()

    async def __aenter__(self) -> Watching[N]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def tell(self, news: N) -> None:
        """News of the broker."""
        self._news.append(news)
        self._ready.set()

    def tell_over(self) -> None:
        """The watch has ended."""
        self._over = True
        self._ready.set()


class Holdfast:
    """A client: any number of locks, for all tasks of one event loop.

    It reconnects by itself. Without `keep` the end of a connection is the end
    of its locks; with it they move to the next broker.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.engine = Engine(config)
        self.core = self.engine.core
        self.ask = self.engine.ask

    async def close(self) -> None:
        """Gives all locks back. Calls that wait get Closed."""
        await self.engine.close()
        for hold in self.core.holds.values():
            for lock in hold.users:
                lock.told_closed()

    async def __aenter__(self) -> Holdfast:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- locks

    def lock(self, *names: Text, **args: Unpack[LockArgs]) -> Lock:
        """An exclusive lock of all names: `async with hf.lock("a", wait=5)`,
        or by acquire(). LockArgs has the arguments."""
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

    async def resize(self, name: Text, limit: int) -> None:
        """Another limit for a semaphore that is held or waited for."""
        await self.ask(self.core.resize(text_of(name), limit))

    async def detached(self, name: Text, mode: str = "exclusive",
                       **args: Unpack[LockArgs]) -> Detached:
        """Takes a lock that outlives this client, for `lease` seconds."""
        asked = api.terms((name,), args, detached=True,
                          mode=None if mode == "exclusive" else mode)
        call = await self.ask(self.core.lock(asked.names, **asked.keys))
        return Detached(self, call.holds[0])

    def adopt(self, name: Text, fence: int) -> Detached:
        """A detached hold that another program took."""
        return Detached(self, Hold(text_of(name), "", fence))

    async def await_free(self, name: Text,
                         wait: Optional[float] = None) -> Freed:
        """Waits until nobody holds the lock, and takes nothing."""
        asked = api.terms((name,), {"wait": wait})
        return Freed.of(await self.ask(
            self.core.await_free(asked.names[0], wait)))

    def locked(self, name: str, *, skip: bool = False,
               **args: Unpack[LockArgs]) -> Callable[[F], F]:
        """A decorator: the coroutine runs under the lock. `name` may have the
        arguments: "job-{0}" or "job-{day}". `skip`: it does not run if the
        lock is held."""
        def decorate(function: F) -> F:
            signature = inspect.signature(function)

            @functools.wraps(function)
            async def run(*values: Any, **keys: Any) -> Any:
                bound = signature.bind(*values, **keys)
                bound.apply_defaults()
                lock = self.lock(name.format(
                    *bound.args, **{**bound.arguments, **keys}), **args)
                async with contextlib.AsyncExitStack() as stack:
                    try:
                        await stack.enter_async_context(lock)
                    except (errors.Busy, errors.TimedOut):
                        if skip:
                            return None
                        raise
                    return await function(*values, **keys)
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

    async def lead(self, name: Text, work: Callable[[Lock], Awaitable[R]],
                   **args: Unpack[LockArgs]) -> R:
        """Runs work(lock) as the leader, again after each loss, and returns
        what it returns. `note` tells others who leads."""
        while True:
            lock, leads = self.lock(name, **args), False
            try:
                async with lock:
                    leads = True
                    return await work(lock)
            except errors.LockLost as error:
                # Of another lock it is the end of work, like any error.
                if lock.lost is None and lock.name not in error.names:
                    raise
            except errors.Unavailable as error:
                if leads or not error.retry:  # of work, or of its end
                    raise
                await asyncio.sleep(error.after or LEAD_PAUSE_S)


class Connecting:
    """`await aio.connect(...)`, or `async with aio.connect(...)`."""

    def __init__(self, config: Config, timeout: float) -> None:
        self._config = config
        self._timeout = timeout
        self._client: Optional[Holdfast] = None

    async def _connect(self) -> Holdfast:
        client = Holdfast(self._config)
        try:
            await client.ask(client.core.ready(), limit=self._timeout)
        except BaseException:
            await client.close()
            raise
        return client

    def __await__(self) -> Generator[Any, None, Holdfast]:
        return self._connect().__await__()

    async def __aenter__(self) -> Holdfast:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()


def connect(addresses: Union[str, Sequence[str]] = "127.0.0.1:4653", *,
            timeout: float = 15.0,
            **args: Unpack[ConnectArgs]) -> Connecting:
    """Connects to a broker; see holdfast.connect()."""
    return Connecting(api.config(addresses, args), timeout)
