"""The thread behind a client: its socket, its timer, its hooks.

One mutex guards the core, the socket and TLS. A caller encodes and sends its
request itself. If nobody else waits it also reads its answer, for a moment: a
change of threads costs as much as all the rest. The thread reads for several
callers and for long waits, keeps the deadlines, and calls the hooks, without
the mutex. Connecting blocks, so it has a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import ssl
import threading
import time
import weakref
from typing import Callable, List, Optional, Tuple

from . import errors, net
from .api import Canceller, Config, tell
from .calls import Link
from .core import CONNECTED, Core
from .model import FOREVER, Answered, Call, Event

CLOSE_S = 2.0  # for the answer to QUIT
OWN_S = 0.02  # for so long a caller reads its answer itself
AGAIN_S = 0.01  # after so long without a reading caller the thread reads again

log = logging.getLogger("holdfast")
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """A core with a socket and a thread, which starts at the first call."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._begin()
        _engines.add(self)

    def _begin(self) -> None:
        self.core = Core(self.config.options, net.clock)
        self.mutex = threading.Lock()
        self._places = net.Places(self.config.addresses)
        self._thread: Optional[threading.Thread] = None
        self._ident = 0  # the thread's
        self._sock: Optional[socket.socket] = None
        self._tls: Optional[net.Tls] = None
        self._unsent = b""
        self._events: List[Event] = []
        self._waiting = 0  # calls with a caller
        self._watches = True  # the thread reads
        self._reads = 0.0  # a caller reads, until then at the latest
        self._own = 0  # the number of such readings
        self._until = 0.0  # the thread looks at the time then
        self._end = FOREVER  # a closed connection is not read beyond
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)

    # --- callers

    def ask(self, make: Callable[[], List[Call]],
            limit: Optional[float] = None,
            cancel: Optional[Canceller] = None) -> List[Call]:
        """Makes calls under the mutex, and waits for their answers. Without
        them after `limit` seconds: GONE. The first error is raised."""
        if threading.get_ident() == self._ident:
            raise errors.UsageError("a hook must not wait for the broker")
        end = None if limit is None else time.monotonic() + limit
        calls: List[Call] = []
        try:  # Ctrl-C may come at any time: also with the answer
            with self.mutex:
                calls = make()
                for call in calls:
                    call.waiter = threading.Lock()
                    call.waiter.acquire()
                    self._waiting += 1
                self._settle()
                begin = time.monotonic()
                own = not self._watches and self._reads <= begin and \
                    cancel is None and self._waiting == len(calls) and \
                    self._sock is not None
                if own:
                    self._reads = begin + OWN_S
            if own:
                self._read_own(calls[-1])
            if cancel is not None:
                cancel.attach(lambda: self._cancel(calls))
            for call in calls:
                if not call.waiter.acquire(
                        timeout=-1 if end is None
                        else max(0.0, end - time.monotonic())):
                    raise errors.gone(f"no answer within {limit:g} s")
            for call in calls:
                if call.error is not None:
                    raise call.error
            return calls
        except BaseException:
            self.give_up(*calls)
            raise
        finally:
            if cancel is not None:
                cancel.attach(None)

    def _read_own(self, call: Call) -> None:
        """Reads in the caller's thread, until its answer or OWN_S."""
        self._own += 1
        sock = self._sock
        end = time.monotonic() + OWN_S
        left = OWN_S
        try:
            while not call.done and left > 0 and sock is not None:
                readable = net.wait_readable(sock, left)
                with self.mutex:
                    if not readable or sock is not self._sock:
                        break
                    self._receive()
                    self._settle()
                left = end - time.monotonic()
        finally:  # Ctrl-C too leaves the reading to the thread
            with self.mutex:
                self._reads = 0.0
                if self._waiting:
                    self._watch()

    def _watch(self) -> None:
        """From now on the thread reads."""
        if not self._watches:
            self._watches = True
            self._ring()

    def give_up(self, *calls: Call) -> None:
        """Nobody waits for them any more. Locks that they took are given
        back."""
        with self.mutex:
            for call in calls:
                if not (call.done or call.dropped) and call.waiter:
                    self._waiting -= 1
                self.core.give_up(call)
            self._settle()

    def _cancel(self, calls: List[Call]) -> None:
        with self.mutex:
            for call in calls:
                if not call.done and not call.dropped:
                    self.core.abandon(call)
                    call.error = errors.Cancelled()
                    call.waiter.release()
                    self._waiting -= 1
            self._settle()

    def do(self, act: Callable[[], object]) -> None:
        """Something whose answer nobody waits for."""
        with self.mutex:
            act()
            self._settle()

    def close(self) -> None:
        """Gives back all, and ends the thread."""
        with self.mutex:
            quits = self.core.link is Link.OPEN
            self.core.close()
            self._end = net.clock() + CLOSE_S if quits else 0.0
            self._settle()
            self._ring()
            thread = self._thread
        if thread is None:
            self._mute()
        elif thread is not threading.current_thread():
            thread.join(CLOSE_S + 1)

    # --- with the mutex

    def _settle(self) -> None:
        """After each use of the core: sends, connects, tells."""
        core = self.core
        self._send(core.take())
        if core.link is Link.PAUSE and net.clock() >= core.dial_at:
            core.dialing()
            threading.Thread(target=self._dial, args=(core,), daemon=True,
                             name="holdfast-dial").start()
        for event in core.events():
            if isinstance(event, Answered):
                call = event.call
                if call.user is not None and call.error is None:
                    call.user.granted(call.holds)  # LOST may be the next line
                if call.waiter is None:
                    continue
                self._waiting -= 1
                if not self._events:  # hooks of earlier events come first
                    call.waiter.release()
                    continue
            self._events.append(event)
        if self._thread is None:
            if core.link is not Link.IDLE and core.link is not Link.CLOSED:
                self._thread = threading.Thread(
                    target=self._run, args=(core,), daemon=True,
                    name="holdfast")
                self._thread.start()
        elif (self._events or self._unsent or core.due() < self._until) and \
                threading.get_ident() != self._ident:
            self._ring()

    def _ring(self) -> None:
        """Wakes the thread."""
        with contextlib.suppress(OSError):
            self._bell.send(b"\0")

    def _mute(self) -> None:
        """There is no thread to wake any more."""
        self._bell.close()
        self._ear.close()

    def _send(self, data: bytes) -> None:
        if self._sock is None:
            return
        try:
            if data and self._tls is not None:
                data = self._tls.encrypt(data)
            data = self._unsent + data
            if len(data) > net.UNSENT_MAX:
                self._ended("the broker does not read")
            elif data:
                self._unsent = data[self._sock.send(data):]
        except (BlockingIOError, ssl.SSLWantReadError):
            self._unsent = data
        except OSError as error:
            self._ended(str(error))

    def _ended(self, reason: str, tls: bool = False) -> None:
        """The connection has: _turn() closes the socket."""
        self._unsent = b""
        self._end = 0.0
        self.core.lost(reason, tls)

    def _receive(self, first: bool = False) -> None:
        """`first`: TLS may have bytes that came with its handshake."""
        if self._sock is None:
            return
        try:
            data = b"" if first else self._sock.recv(net.READ_BYTES)
            if not data and not first:
                self._ended("the broker has closed the connection")
                return
            if self._tls is not None:
                data = self._tls.decrypt(data)
            self.core.receive(data)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._ended(str(error), isinstance(error, ssl.SSLError))

    def _turn(self) -> float:
        """All that is due; the seconds until the next turn, -1: the end."""
        core, now = self.core, net.clock()
        if now >= core.due():
            self._receive()  # an answer that has come counts
            core.tick()
        self._settle()
        closed = core.link is Link.CLOSED
        if core.link not in CONNECTED and not (closed and now < self._end) \
                and self._sock is not None:
            self._sock.close()
            self._sock = self._tls = None
            self._unsent = b""
        if closed and self._sock is None:
            return -1.0
        self._until = self._end if closed else core.due()
        return max(0.0, self._until - net.clock())

    # --- the thread

    def _run(self, core: Core) -> None:
        self._ident = threading.get_ident()
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            watched: Optional[socket.socket] = None
            wants = own = 0
            while True:
                with self.mutex:
                    pause = self._turn()
                    told, self._events = self._events, []
                    before, wants = wants, selectors.EVENT_READ | (
                        selectors.EVENT_WRITE if self._unsent else 0)
                    sock = self._sock if self._watches or self._unsent \
                        else None
                if sock is not watched:
                    if watched is not None:
                        selector.unregister(watched)
                    if sock is not None:
                        selector.register(sock, wants)
                    watched = sock
                elif sock is not None and wants != before:
                    selector.modify(sock, wants)
                self._tell(told)
                if pause < 0:
                    self._ident = 0  # another thread may have it now
                    self._mute()
                    return
                if not self._watches:
                    pause = min(pause, AGAIN_S)
                own = self._own
                ready = selector.select(None if pause == FOREVER else pause)
                self._hear(ready)
                if not ready and not self._watches and own == self._own:
                    with self.mutex:
                        self._watches = self._reads <= time.monotonic()

    def _hear(self, ready: List[Tuple[selectors.SelectorKey, int]]) -> None:
        for key, what in ready:
            if key.fileobj is self._ear:
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(4096)
            elif what & selectors.EVENT_READ:
                with self.mutex:
                    self._receive()
                    self._settle()
                    self._watches = self._waiting > 0

    def _tell(self, events: List[Event]) -> None:
        for event in events:
            if isinstance(event, Answered):
                event.call.waiter.release()
                continue
            try:
                tell(self.config, event)
            except Exception:  # of a hook, which must not end the thread
                log.exception("a hook of holdfast has failed")

    # --- connecting

    def _dial(self, core: Core) -> None:
        """Tries one place, in a thread of its own."""
        places = self._places
        sock, tls, place = None, None, None
        error: errors.HoldfastError = errors.gone("no address")
        try:
            if not core.more:
                places.begin()
            place = places.next()
            while isinstance(place, net.Address):
                self._resolve(place)
                place = places.next()
            sock, tls = self._connect(place)
        except ssl.SSLError as failure:
            error = errors.tls_failed(str(failure))
        except (OSError, UnicodeError) as failure:  # of a name, the latter
            error = errors.gone(str(failure))
        with self.mutex:
            if self.core is not core or core.link is not Link.DIALING:
                if sock is not None:
                    sock.close()
                return
            core.peer = str(place)
            if sock is None:
                core.failed(error, places.more)
            else:
                sock.setblocking(False)
                self._sock, self._tls = sock, tls
                core.connected(places.more)
                self._receive(first=True)
            self._settle()
            self._ring()

    def _resolve(self, address: net.Address) -> None:
        if address.port:
            self._places.resolved(address, socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM))
        else:
            self._places.put(net.unix(address))

    def _connect(self, place: net.Endpoint) -> Tuple[
            socket.socket, Optional[net.Tls]]:
        sock = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            sock.settimeout(net.CONNECT_S)
            sock.connect(place.sockaddr)
            net.tune(sock)
            if self.config.context is None:
                return sock, None
            tls = net.Tls(self.config.context,
                          self.config.server_name or place.host)
            tls.shake(sock)
            return sock, tls
        except BaseException:
            sock.close()
            raise

    # --- fork

    def forked(self) -> None:
        """In the child the holds are lost, and the next call connects anew.
        The parent goes on: closing the copy of its socket does no harm."""
        for sock in (self._sock, self._bell, self._ear):
            if sock is not None:
                sock.close()
        self.core.forked()
        self._begin()


def _forked() -> None:
    for engine in list(_engines):
        engine.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
