"""The connection and the timer of an asyncio client.

All of it runs in the loop's thread. The loop handles what has come before it
calls a timer, so that an answer that has come counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import weakref
from typing import Optional, cast

from . import errors, net
from .api import Config, tell
from .calls import Link
from .core import CONNECTED, Core
from .model import FOREVER, Answered, Call, Event

CLOSE_S = 2.0  # for the answer to QUIT

log = logging.getLogger("holdfast")
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class _Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.transport: Optional[asyncio.Transport] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._engine.made(self)

    def data_received(self, data: bytes) -> None:
        self._engine.received(self, data)

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._engine.ended(self, error)


class Engine:
    """A core with a connection, in the running loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.core = Core(config.options, net.clock)
        self._loop = asyncio.get_running_loop()
        self._places = net.Places(config.addresses)
        self._connection: Optional[_Connection] = None
        self._dialing: Optional[asyncio.Task[None]] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_at = FOREVER
        self._closed = asyncio.Event()
        _engines.add(self)

    async def close(self) -> None:
        """Gives all locks back. Calls that wait get Closed."""
        self.core.close()
        self.settle()
        if self._dialing is not None:
            self._dialing.cancel()
        if self._connection is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), CLOSE_S)
        self._drop_connection()
        if self._timer is not None:
            self._timer.cancel()

    async def ask(self, *calls: Call, limit: Optional[float] = None) -> Call:
        """Waits for the answers to calls, and raises the first error. Without
        answers after `limit` seconds: GONE. Returns the first call."""
        waiting = []
        for call in calls:
            call.waiter = self._loop.create_future()
            waiting.append(call.waiter)
        self.settle()
        try:
            if (await asyncio.wait(waiting, timeout=limit))[1]:
                raise errors.gone(f"no answer within {limit:g} s")
        except BaseException:
            for call in calls:
                self.core.give_up(call)
            self.settle()
            raise
        for call in calls:
            if call.error is not None:
                raise call.error
        return calls[0]

    def settle(self) -> None:
        """After each use of the core: sends, connects, tells, sets the
        timer."""
        core = self.core
        data = core.take()
        if self._connection is not None:
            transport = self._connection.transport
            if data and transport is not None:
                transport.write(data)
                if transport.get_write_buffer_size() > net.UNSENT_MAX:
                    core.lost("the broker does not read")
            if core.link not in CONNECTED and core.link is not Link.CLOSED:
                self._drop_connection()
        if core.link is Link.PAUSE and net.clock() >= core.dial_at:
            core.dialing()
            self._dialing = self._loop.create_task(self._dial())
        for event in core.events():
            self._tell(event)
        due = core.due()
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(
                max(0.0, due - net.clock()), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, FOREVER
        self.core.tick()
        self.settle()

    def made(self, connection: _Connection) -> None:
        """There is a connection; its bytes may come before _dial() goes on."""
        if self.core.link is Link.DIALING:
            self._connection = connection
            self._closed.clear()
            self.core.connected(self._places.more)
            self.settle()
        elif connection.transport is not None:
            connection.transport.abort()

    def received(self, connection: _Connection, data: bytes) -> None:
        """Bytes of the broker."""
        if connection is self._connection:
            self.core.receive(data)
            self.settle()

    def ended(self, connection: _Connection,
              error: Optional[Exception]) -> None:
        """The connection has."""
        if connection is self._connection:
            self._connection = None
            self._closed.set()
            self.core.lost(str(error or "the broker has closed it"),
                           isinstance(error, ssl.SSLError))
            self.settle()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    async def _dial(self) -> None:
        """Tries one place."""
        error: errors.HoldfastError
        try:
            await asyncio.wait_for(self._connect(), net.CONNECT_S)
            return
        except ssl.SSLError as failure:
            error = errors.tls_failed(str(failure))
        except (OSError, UnicodeError, asyncio.TimeoutError) as failure:
            error = errors.gone(str(failure) or "no answer in time")
        self.core.failed(error, self._places.more)
        self.settle()

    async def _connect(self) -> None:
        places, loop = self._places, self._loop
        if not self.core.more:
            places.begin()
        place = places.next()
        self.core.peer = str(place)
        while isinstance(place, net.Address):
            if place.port:
                places.resolved(place, await loop.getaddrinfo(
                    place.host, place.port, type=net.STREAM))
            else:
                places.put(net.unix(place))
            place = places.next()
        self.core.peer = str(place)
        if isinstance(place.sockaddr, str):
            await loop.create_unix_connection(lambda: _Connection(self),
                                              place.sockaddr)
        else:
            context = self.config.context
            await loop.create_connection(
                lambda: _Connection(self), *place.sockaddr[:2],
                ssl=context, server_hostname=None if context is None
                else self.config.server_name or place.host)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Answered):
            call = event.call
            if call.user is not None and call.error is None:
                call.user.granted(call.holds)  # LOST may be the next line
            if call.waiter is not None and not call.waiter.done():
                call.waiter.set_result(None)
            return
        try:
            tell(self.config, event)
        except Exception:  # of a hook, which must not end the connection
            log.exception("a hook of holdfast has failed")

    def forked(self) -> None:
        """In the child the holds are lost; the loop is the parent's."""
        self.core.forked()
        transport = None if self._connection is None \
            else self._connection.transport
        if transport is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, transport.get_extra_info("socket").fileno())
            os.close(null)


def _forked() -> None:
    for engine in list(_engines):
        engine.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
