"""A client without I/O: bytes and time in, bytes and events out.

A driver (threads.py, aio.py) owns the socket and does as `link` says:

    IDLE       nothing; a request makes it PAUSE
    PAUSE      no socket until dial_at; then dialing(), and connect
    DIALING    connected() or failed()
    GREETING   the peer has not greeted; then AUTH and HELLO are sent
    HELLO      they are not answered
    OPEN       requests go out
    CLOSED     nothing more; what take() gives is still sent

In GREETING, HELLO and OPEN bytes go both ways; in any other state the driver
has no socket. After each call it sends take(), acts on events(), and calls
tick() at due(). It reads before it calls tick(): an answer that has come
counts.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from . import errors
from .calls import Calls, Link
from .errors import HoldfastError, ProtocolError
from .holds import Holds
from .model import FOREVER, Call, Event, Queued
from .session import GREETING_S, Session
from .watches import Watches
from .wire import Line

CONNECTED = frozenset((Link.GREETING, Link.HELLO, Link.OPEN))


class Core(Session):
    """All of it: what a driver and its users call."""

    def ready(self) -> Call:
        """Done when a broker serves the session."""
        return self._submit(Call("", repeats=True))

    def resize(self, name: str, limit: int) -> Call:
        """RESIZE, of a semaphore."""
        return self._submit(Call("RESIZE", (name,), words=f"limit={limit}"))

    def await_free(self, name: str, wait: Optional[float]) -> Call:
        """AWAIT. call.keys has fence and note."""
        return self._submit(Call("AWAIT", (name,), wait=wait))

    def abandon(self, call: Call) -> None:
        """Its caller does not wait any more. A late grant is given back
        (profile B)."""
        if not (call.done or call.dropped):
            self._abandon(call)

    def _abandon(self, call: Call) -> None:
        call.dropped = True
        if call.watch is not None:
            self.unwatch(call.watch)
        if call in self._parked:
            self._parked.remove(call)
        elif call.verb in ("LOCK", "AWAIT") and call.tag in self._calls:
            self._submit(Call("CANCEL", (call.tag,), own=True, repeats=False))
        for hold in call.holds:  # it waits for its confirmation
            self._give_back(hold)

    def give_up(self, call: Call) -> None:
        """Its caller does not wait any more, also not for an answer that has
        come. A lock that it took is given back."""
        if call.own:  # given up before
            return
        if call.verb == "LOCK" and call.done and call.error is None:
            for hold in call.holds:
                if call.user in hold.users:
                    hold.users.remove(call.user)
                release = self.detached("UNLOCK", hold) if call.detached \
                    else self.unlock(hold)
                release.own = True
        elif call.verb in ("LOCK", "AWAIT", "WATCH", ""):
            self.abandon(call)
        call.own = True  # others go on without a caller

    def close(self) -> None:
        """QUIT gives back all holds. Later calls get CLOSED."""
        if self.link is Link.CLOSED:
            return
        if self.link is Link.OPEN:
            self._out.append(b"0 QUIT\n")
        else:
            self._out.clear()
        self.link = Link.CLOSED
        for hold in self.holds.values():
            hold.lost = hold.lost or "closed"
        error = errors.Closed("the client was closed")
        self._fail(error)
        for watch in list(self._watches.values()):
            self._end_watch(watch, error)

    def forked(self) -> None:
        """This is a child of fork(): the holds are the parent's."""
        for hold in self.holds.values():
            hold.lost = hold.lost or "fork"
        self.link = Link.CLOSED

    def dialing(self) -> None:
        """The driver begins to connect."""
        self.link = Link.DIALING
        self.dial_at = FOREVER

    def connected(self, more: bool) -> None:
        """There is a connection. `more`: this round has other addresses."""
        if self.link is not Link.DIALING:
            return
        self.link = Link.GREETING
        self.more = more
        self._by = self.clock() + GREETING_S

    def failed(self, error: HoldfastError, more: bool) -> None:
        """There is none."""
        if self.link is Link.DIALING:
            self.more = more
            self._drop(error)

    def lost(self, reason: str, tls: bool = False) -> None:
        """The connection has ended. `tls`: by an error of TLS, which counts
        as one of the handshake until the peer has greeted."""
        if self.link in CONNECTED:
            self._drop(errors.tls_failed(reason) if tls and
                       self.link is Link.GREETING else errors.gone(reason))

    def receive(self, data: bytes) -> None:
        """Bytes of the broker. Garbage ends the connection."""
        try:
            for line in self._lines.feed(data):
                if self.link not in CONNECTED:
                    return
                self._take(line)
        except ProtocolError as error:
            self._drop(error)

    def take(self) -> bytes:
        """Bytes to send."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def events(self) -> List[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def due(self) -> float:
        """When tick() must be called."""
        if self.link is Link.CLOSED:
            return FOREVER
        due = min(self._soonest, self._retry_at, self._by, self._move_at,
                  self._away_at + self._keep, self._answers_by)
        if self.link is Link.PAUSE:
            due = min(due, self.dial_at)
        elif self._ping is not None:
            due = min(due, self._ping.sent + self._silence())
        else:
            due = min(due, self._ping_at)
        return min([due, *map(self._limit, self._parked)]) \
            if self._parked else due

    def tick(self) -> None:
        """Acts on the time that has passed."""
        now = self.clock()
        if self.link is Link.CLOSED:
            return
        if now >= self._soonest:
            self._expire(now)
        if self.link is Link.OPEN:
            self._tick_open(now)
        elif now >= self._away_at + self._keep:
            self._end_session(errors.gone("no broker has taken the session"))
        elif now >= self._by:
            self._drop(errors.gone(
                "no greeting in time: is it a port of a broker, and without "
                "TLS?" if self.link is Link.GREETING else
                "no answer to HELLO in time"))
        for call in [call for call in self._parked
                     if now >= self._limit(call)]:
            self._parked.remove(call)
            self._finish(call, errors.gone("no broker can be asked"))
        if now >= self._answers_by:
            self._end_waits(now)

    def _end_waits(self, now: float) -> None:
        """Of calls whose answers are overdue. A late grant is given back."""
        waits = {hold.confirming for hold in self.holds.values()}
        self._answers_by = FOREVER
        for call in [*self._calls.values(), *waits]:
            if call is None or call.done:
                continue
            if now < self._limit(call):
                self._answers_by = min(self._answers_by, self._limit(call))
            else:
                self._finish(call, errors.gone("no answer in time"))
                self._abandon(call)

    def _tick_open(self, now: float) -> None:
        if self._ping is not None:
            if now >= self._ping.sent + self._silence():
                self._drop(errors.gone("the broker is silent"))
                return
        elif now >= self._ping_at:
            self._ask(now)
        if now >= self._move_at:
            self._drop(errors.gone("the broker drains"))
            self.dial_at = now
        elif now >= self._retry_at:
            self._flush()

    def _take(self, line: Line) -> None:
        if line.tag == "*":
            event = _EVENTS.get(line.word)
            if event is not None:
                event(self, line)
            return
        if self.link is Link.GREETING:
            raise ProtocolError("the peer is not a Holdfast broker")
        call = self._calls.get(line.tag)
        if call is None:  # nothing of ours is outstanding by this tag (6.1)
            return
        if line.word == "OK" or line.word == "ERR":
            self._proven = max(self._proven, call.sent)
            call.keys = line.keys
            error = None if line.word == "OK" else errors.of_code(
                line.argument, line.keys, line.text)
            if error is None or error.code != "DRAINING" or \
                    not self._waits_for_another_broker(call):
                reply = _REPLIES.get(call.verb, Calls._on_other)
                reply(self, call, line, error)
            self._calls.pop(line.tag, None)
        elif line.word == "ITEM" and call.verb == "HELD":
            self._on_item(call, line)
        elif line.word == "QUEUED" and not call.dropped:
            self._events.append(Queued(call, line.keys))


_EVENTS: Dict[str, Callable[[Core, Line], None]] = {
    "HELLO": Session._on_greeting,
    "BYE": Session._on_bye,
    "DRAIN": Session._on_drain,
    "PING": Session._on_ping,
    "LOST": Holds._on_lost,
    "WANTED": Holds._on_wanted,
    "HELD": Watches._on_news,
    "FREE": Watches._on_news,
    "MEMBERS": Watches._on_member,
    "JOINED": Watches._on_member,
    "CHANGED": Watches._on_member,
    "LEFT": Watches._on_member,
}

_REPLIES: Dict[str, Callable[
    [Core, Call, Line, Optional[HoldfastError]], None]] = {
    "AUTH": Session._on_auth,
    "HELLO": Session._on_hello,
    "CLAIM": Session._on_claim,
    "LOCK": Holds._on_lock,
    "UNLOCK": Holds._on_unlock,
    "RENEW": Holds._on_renew,
    "PING": Holds._on_ping_answer,
    "HELD": Holds._on_ping_answer,
    "WATCH": Watches._on_watch,
}
