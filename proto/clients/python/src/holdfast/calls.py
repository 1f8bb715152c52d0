"""Requests and their final replies: the lowest part of the core.

A call is parked until a broker serves the session, or until an earlier call
about the same hold is answered. Sent, it has a tag that is never used again.
The parts of the core are one object: Calls, Holds, Watches, Session, Core.
Each part knows those before it in this list.
"""

from __future__ import annotations

import copy
import enum
import random
from typing import Callable, Dict, List, Optional, Tuple

from . import errors
from .errors import HoldfastError
from .model import (FOREVER, Answered, Call, Event, Hold, Options, Watch)
from .wire import Line, Lines, encode

SILENCE_S = 10.0  # of a broker that does not answer a PING
PING_LEAST_S = 0.05
COMMAND_S = 1.0  # what the broker takes to answer, beyond a wait
NETWORK_S = 5.0  # what the network takes, or a broker to be found
RETRY_S = (0.1, 0.3)  # before a CLAIM or another own request is sent again


class Link(enum.Enum):
    """The connection, as core.py explains."""

    IDLE = "idle"
    PAUSE = "pause"
    DIALING = "dialing"
    GREETING = "greeting"
    HELLO = "hello"
    OPEN = "open"
    CLOSED = "closed"


class Calls:
    """The state of a client, and the way of a request."""

    def __init__(self, options: Options, clock: Callable[[], float],
                 chance: Callable[[], float] = random.random) -> None:
        self.options = options
        self.clock = clock
        self._chance = chance
        self.link = Link.IDLE
        self.dial_at = 0.0
        #: The driver's: the address that it connects to, for errors.
        self.peer = ""
        self.holds: Dict[Tuple[str, str, int], Hold] = {}
        self._out: List[bytes] = []
        self._events: List[Event] = []
        self._lines = Lines()
        self._tags = self._owners = 0
        self._calls: Dict[str, Call] = {}  # sent, by tag
        self._parked: List[Call] = []  # not sent, in their order
        self._watches: Dict[str, Watch] = {}
        # the session
        self._session: Optional[str] = None  # its ID, if it is kept
        self._keep = 0.0  # as the broker has agreed
        self._gen = 0
        self._away_at = FOREVER  # when it lost its connection
        self._settling = False  # holds are to be claimed
        # the connection
        #: The next connection is of the same round of all addresses.
        self.more = False
        self._rounds = 0  # failed ones
        self._opened = 0.0  # when it began to serve
        self._by = FOREVER  # greeting and HELLO must have come
        self._move_at = FOREVER
        self._retry_at = FOREVER  # the first parked call that is due
        self._command = COMMAND_S  # as told by the broker
        self._answers_by = FOREVER  # no wait that was sent is over sooner
        # deadlines
        self._soonest = FOREVER  # no deadline is sooner
        self._proven = 0.0  # the last sending of an answered request
        self._ttl = SILENCE_S  # as last told, or silence_ms of HELLO
        self._ping: Optional[Call] = None
        self._ping_at = FOREVER

    def _about(self, verb: str, hold: Hold) -> Call:
        words = f"fence={hold.fence}"
        if hold.owner:
            words += " owner=" + encode(hold.owner)
        return Call(verb, (hold.name,), words=words, owner=hold.owner,
                    hold=hold)

    def _submit(self, call: Call) -> Call:
        now = call.asked = self.clock()
        if self.link is Link.CLOSED:
            self._finish(call, errors.Closed("the client was closed"))
        elif call.hold is not None and call.hold.lost is not None \
                and not call.own:
            self._finish(call, errors.LockLost(why=call.hold.lost))
        elif self.link is Link.OPEN and not self._blocked(call, now):
            self._send(call, now)
        else:
            self._parked.append(call)
            if self.link is Link.IDLE:
                self.link = Link.PAUSE
        return call

    def _blocked(self, call: Call, now: float) -> bool:
        """An unclaimed hold comes first: a LOCK would take it for its own
        first one (profile C, 4)."""
        if call.after > now:
            return True
        if call.verb == "CLAIM":
            return False
        if call.hold is not None:
            return call.hold.unclaimed
        return self._settling and call.verb == "LOCK" and any(
            hold.unclaimed and hold.owner == call.owner and
            hold.name in call.names for hold in self.holds.values())

    def _send(self, call: Call, now: float) -> None:
        if not call.verb:  # ready()
            self._finish(call)
            return
        self._tags += 1
        call.tag, call.sent = str(self._tags), now
        self._calls[call.tag] = call
        self._out.append(call.line(now))
        self._answers_by = min(self._answers_by, self._limit(call))
        if self._ping_at == FOREVER and self._ping is None:
            self._ping_at = now + self._pause(self._ttl)

    def _limit(self, call: Call) -> float:
        """When a call with a wait must have been answered (profile A)."""
        return FOREVER if call.wait is None else \
            call.asked + call.wait + self._command + NETWORK_S

    def _flush(self) -> None:
        """Sends what was parked, in its order."""
        now = self.clock()
        calls, self._parked, self._retry_at = self._parked, [], FOREVER
        for call in calls:
            if self._blocked(call, now):
                self._parked.append(call)
                if call.after > now:
                    self._retry_at = min(self._retry_at, call.after)
            else:
                self._send(call, now)

    def _later(self, call: Call) -> None:
        """Sends it again after a pause."""
        call.again = True
        call.after = self.clock() + self._between(*RETRY_S)
        self._retry_at = min(self._retry_at, call.after)
        self._parked.append(call)

    def _between(self, least: float, most: float) -> float:
        return least + (most - least) * self._chance()

    def _pause(self, ttl: float) -> float:
        """Between two PINGs: a third of the ttl, and of what a kept session
        may rely on after the end of its connection."""
        if self._session is not None:
            ttl = min(ttl, self._keep)
        return max(ttl / 3, PING_LEAST_S)

    def _finish(self, call: Call,
                error: Optional[HoldfastError] = None) -> None:
        if call.hold is not None:
            call.hold.doubt(call)
        if call.done:
            return
        if error is not None:
            error = copy.copy(error)  # several threads may raise it
            if not call.own:  # AUTH has the secret among its names
                error.names = error.names or call.names
        call.done, call.error = True, error
        if error is not None and call.watch is not None and \
                not call.watch.begun:
            self._watches.pop(call.watch.name, None)
        if not (call.own or call.dropped):
            self._events.append(Answered(call))

    def _fail(self, error: HoldfastError) -> None:
        """No call gets an answer any more."""
        calls = [*self._calls.values(), *self._parked]
        self._calls.clear()
        self._parked.clear()
        self._retry_at = FOREVER
        for call in calls:
            self._finish(call, error)

    def _on_other(self, call: Call, _line: Line,
                  error: Optional[HoldfastError]) -> None:
        """A reply that changes nothing here."""
        if error is not None and call.again and call.verb == "UNLOCK" and \
                error.code == "NOTHELD":
            error = None  # the first one was carried out
        self._finish(call, error)
