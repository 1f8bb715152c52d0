"""redis.lock.Lock and redis.asyncio.lock.Lock, with Holdfast behind them.

    Lock = redis_lock.lock_class(hf)
    with r.lock("stock/4711", timeout=30, lock_class=Lock) as lock:
        write(fence=lock.fence)

The token of a lock is its fence. With `timeout` the lock is a detached one:
its token is enough to release it, in any process. Without `timeout` it ends
with this process. It needs redis-py 5.1 or later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from types import SimpleNamespace
from typing import Any, Iterator, Optional, Type, Union, overload

from redis.exceptions import LockError, LockNotOwnedError

from . import aio, errors, threads
from .wire import Text

log = logging.getLogger("holdfast")

OVER = "Cannot {} a lock that's no longer owned"


class _Base:
    """The parts without I/O, as in redis-py."""

    client: Any  # of lock_class()
    held: Any  # all holds of this client, by name and token
    watching: Any  # one watch at a time has a name

    def __init__(self, redis: Any, name: Text,
                 timeout: Optional[float] = None, sleep: float = 0.1,
                 blocking: bool = True,
                 blocking_timeout: Optional[float] = None,
                 thread_local: bool = True,
                 raise_on_release_error: bool = True) -> None:
        """As of redis.lock.Lock. `redis` and `sleep` are not used: a waiter
        stands in the queue of the broker. `timeout` is 24 h at most."""
        self.redis, self.name = redis, name
        self.timeout, self.sleep = timeout, sleep
        self.blocking, self.blocking_timeout = blocking, blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if thread_local \
            else SimpleNamespace()
        self.local.token = None

    @property
    def fence(self) -> int:
        """The number of the grant, for what the lock protects."""
        return int(self._token("use"))

    def _take(self, blocking: Optional[bool],
              blocking_timeout: Optional[float], token: object) -> Any:
        """Its lock, not acquired yet, or what detached() returns."""
        if token is not None:
            raise LockError("The token is the fence, and cannot be chosen",
                            self.name)
        wait = self.blocking_timeout if blocking_timeout is None \
            else blocking_timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0
        if self.timeout:
            return self.client.detached(self.name, lease=self.timeout,
                                        wait=wait)
        return self.client.lock(self.name, wait=wait)

    def _keep(self, hold: Any) -> None:
        token = str(hold.fence).encode()
        self.held[self.name, token] = hold
        self.local.token, self.local.hold = token, hold

    def _token(self, act: str, timed: bool = False) -> bytes:
        token = getattr(self.local, "token", None)
        if token is None:
            raise LockError(f"Cannot {act} a lock that's not owned or is "
                            "already unlocked.", self.name)
        if timed and not self.timeout:
            raise LockError(f"Cannot {act} a lock with no timeout", self.name)
        return token if isinstance(token, bytes) else str(token).encode()

    def _hold(self, token: Union[str, bytes]) -> Any:
        """The hold of a token, which another process may have taken."""
        if isinstance(token, str):
            token = token.encode()
        hold = self.held.get((self.name, token))
        return hold or self.client.adopt(self.name, int(token))

    def _end(self, hold: Any, more: float, replace: bool) -> float:
        """The new lease; at most `timeout` is left, where it is not known."""
        left: float = 0 if replace else hold.left() or self.timeout or 0
        return left + more

    def _knows(self, hold: Any) -> bool:
        """Whether the client hears of its loss."""
        return isinstance(hold, (threads.Lock, aio.Lock))

    @contextlib.contextmanager
    def _errors(self, act: str) -> Iterator[None]:
        """Errors as redis-py has them."""
        try:
            yield
        except (errors.NotHeld, errors.LockLost) as error:
            raise LockNotOwnedError(OVER.format(act), self.name) from error
        except errors.HoldfastError as error:
            raise LockError(str(error), self.name) from error
        except (ValueError, OverflowError) as error:  # a token of another kind
            if isinstance(error, LockError):
                raise
            raise LockNotOwnedError(OVER.format(act), self.name) from error

    def _warn(self) -> None:
        log.warning("Lock was unlocked or no longer owned when exiting "
                    "context manager.")


class Lock(_Base):
    """In the place of redis.lock.Lock; lock_class() makes one for a client."""

    def __enter__(self) -> Lock:
        if self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified",
                        self.name)

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            self._warn()

    def acquire(self, sleep: Optional[float] = None,
                blocking: Optional[bool] = None,
                blocking_timeout: Optional[float] = None,
                token: Union[None, str, bytes] = None) -> bool:
        """Whether it was granted. `token` is not supported."""
        with self._errors("acquire"):
            try:
                hold = self._take(blocking, blocking_timeout, token)
                self._keep(hold if self.timeout else hold.acquire())
            except (errors.Busy, errors.TimedOut):
                return False
        return True

    def release(self) -> None:
        """LockError: it is not held. LockNotOwnedError: it was lost."""
        token = self._token("release")
        self.local.token = None
        self.do_release(token)

    def do_release(self, expected_token: Union[str, bytes]) -> None:
        """Releases the hold of this token."""
        with self._errors("release"):
            self._hold(expected_token).release()

    def extend(self, additional_time: float,
               replace_ttl: bool = False) -> bool:
        """Adds seconds to the time that is left, or replaces it."""
        token = self._token("extend", timed=True)
        with self._errors("extend"):
            hold = self._hold(token)
            hold.renew(self._end(hold, additional_time, replace_ttl))
            self._keep(hold)
        return True

    def reacquire(self) -> bool:
        """`timeout` seconds are left again."""
        token = self._token("reacquire", timed=True)
        with self._errors("reacquire"):
            hold = self._hold(token)
            hold.renew(self.timeout)
            self._keep(hold)
        return True

    def locked(self) -> bool:
        """Whether anybody holds it."""
        with self._errors("ask for"):
            try:
                self.client.await_free(self.name, wait=0)
            except (errors.Busy, errors.TimedOut):
                return True
        return False

    def owned(self) -> bool:
        """Whether it is held by the token of this object."""
        if getattr(self.local, "token", None) is None:
            return False
        with self._errors("ask for"):
            hold = self._hold(self._token("ask for"))
            if self._knows(hold):
                return bool(hold.held)
            with self.watching, self.client.watch(self.name) as watch:
                holder = next(watch)
        return holder is not None and holder.fence == hold.fence


class AsyncLock(_Base):
    """In the place of redis.asyncio.lock.Lock."""

    async def __aenter__(self) -> AsyncLock:
        if await self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified",
                        self.name)

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            self._warn()

    async def acquire(self, sleep: Optional[float] = None,
                      blocking: Optional[bool] = None,
                      blocking_timeout: Optional[float] = None,
                      token: Union[None, str, bytes] = None) -> bool:
        """Whether it was granted. `token` is not supported."""
        with self._errors("acquire"):
            try:
                hold = self._take(blocking, blocking_timeout, token)
                self._keep(await (hold if self.timeout else hold.acquire()))
            except (errors.Busy, errors.TimedOut):
                return False
        return True

    async def release(self) -> None:
        """LockError: it is not held. LockNotOwnedError: it was lost."""
        token = self._token("release")
        self.local.token = None
        await self.do_release(token)

    async def do_release(self, expected_token: Union[str, bytes]) -> None:
        """Releases the hold of this token."""
        with self._errors("release"):
            await self._hold(expected_token).release()

    async def extend(self, additional_time: float,
                     replace_ttl: bool = False) -> bool:
        """Adds seconds to the time that is left, or replaces it."""
        token = self._token("extend", timed=True)
        with self._errors("extend"):
            hold = self._hold(token)
            await hold.renew(self._end(hold, additional_time, replace_ttl))
            self._keep(hold)
        return True

    async def reacquire(self) -> bool:
        """`timeout` seconds are left again."""
        token = self._token("reacquire", timed=True)
        with self._errors("reacquire"):
            hold = self._hold(token)
            await hold.renew(self.timeout)
            self._keep(hold)
        return True

    async def locked(self) -> bool:
        """Whether anybody holds it."""
        with self._errors("ask for"):
            try:
                await self.client.await_free(self.name, wait=0)
            except (errors.Busy, errors.TimedOut):
                return True
        return False

    async def owned(self) -> bool:
        """Whether it is held by the token of this object."""
        if getattr(self.local, "token", None) is None:
            return False
        with self._errors("ask for"):
            hold = self._hold(self._token("ask for"))
            if self._knows(hold):
                return bool(hold.held)
            async with self.watching, self.client.watch(self.name) as watch:
                holder = await watch.__anext__()
        return holder is not None and holder.fence == hold.fence


@overload
def lock_class(client: threads.Holdfast) -> Type[Lock]: ...
@overload
def lock_class(client: aio.Holdfast) -> Type[AsyncLock]: ...


def lock_class(client: Union[threads.Holdfast, aio.Holdfast]) -> Any:
    """The class for `lock_class=` of redis-py: its locks are the client's."""
    known = vars(client)  # each client has one, for as long as itself
    if "_lock_class" not in known:
        waits = isinstance(client, aio.Holdfast)
        base: Type[_Base] = AsyncLock if waits else Lock
        known.setdefault("_lock_class", type(base.__name__, (base,), {
            "client": client, "held": weakref.WeakValueDictionary(),
            "watching": asyncio.Lock() if waits else threading.Lock()}))
    return known["_lock_class"]
