"""The session: greeting, HELLO, BYE, and its moves from broker to broker.

Of a connection that has ended, nothing counts beyond `keep` after the sending
of the last request that it has answered. On the next one each hold is claimed
first; then unanswered requests are sent again (PROTOCOL.md, profile C). The
end of a session without `keep` is the end of its holds and calls.
"""

from __future__ import annotations

from typing import List, Optional

from . import errors
from .calls import Link
from .errors import HoldfastError, ProtocolError
from .model import FOREVER, Call, Hold, Moved
from .watches import Watches
from .wire import Line, Lines, duration, encode

GREETING_S = 5.0  # for the greeting, and for the answer to HELLO
AUTH_S = 12.0  # the answer to AUTH takes up to 8 s
PAUSE_S = (0.05, 2.0)  # between rounds of all addresses
STEADY_S = 0.5  # a connection of that age ends the growth of the pauses
MOVE_S = 5.0  # all clients leave a draining broker within that time
MOVE_SOON_S = 0.2  # the same, if a request waits for it

#: BYE with one of these reasons, and without keep=1, ends a kept session.
FINAL = frozenset(("killed", "quit", "resumed", "protocol", "auth"))


class Session(Watches):
    """One session after the other."""

    def _on_greeting(self, line: Line) -> None:
        if self.link is not Link.GREETING:
            return
        if line.keys.get("proto") != "1":
            raise ProtocolError("the broker speaks another protocol: "
                                f"proto={line.keys.get('proto')}")
        options = self.options
        self.link = Link.HELLO
        if options.user is not None:
            # Other replies may overtake the one to AUTH, so it comes alone.
            now = self.clock()
            self._by = now + AUTH_S
            self._send(Call("AUTH", (options.user, options.secret or ""),
                            own=True, repeats=False), now)
        elif "auth" in line.keys:
            self._refuse(errors.Denied("the broker requires a user",
                                       code="AUTH"))
        else:
            self._say_hello()

    def _say_hello(self) -> None:
        now = self.clock()
        options = self.options
        self._by = now + GREETING_S
        words = []
        if options.name is not None:
            words.append("name=" + encode(options.name))
        if options.heartbeat:
            words.append("heartbeat=" + duration(options.heartbeat))
        if options.keep:
            words.append("keep=" + duration(options.keep))
        self._gen += 1  # each try is larger, also one without an answer
        if self._session is not None:
            words.append(f"resume={self._session} gen={self._gen}")
        self._send(Call("HELLO", words=" ".join(words), own=True,
                        repeats=False), now)

    def _on_auth(self, _call: Call, _line: Line,
                 error: Optional[HoldfastError]) -> None:
        if error is not None:
            self._refuse(error)
        else:
            self._say_hello()

    def _refuse(self, error: HoldfastError) -> None:
        """This broker does not serve us; another one may know the session."""
        if self._session is None:
            self.more = False
            for watch in list(self._watches.values()):
                self._end_watch(watch, error)
        self._drop(error)

    def _on_hello(self, _call: Call, line: Line,
                  error: Optional[HoldfastError]) -> None:
        if error is not None:
            self._drop(errors.gone(f"the broker refuses HELLO: {error}"))
            return
        now = self.clock()
        moved = self._session is not None
        self._keep = line.seconds("keep_ms") if "keep_ms" in line.keys else 0.0
        self._session = line.keys.get("session") if self._keep else None
        if "silence_ms" in line.keys:
            self._ttl = line.seconds("silence_ms")
        if "command_ms" in line.keys:
            self._command = line.seconds("command_ms")
        self._ping_at = FOREVER  # it was set by what came before this
        self.link = Link.OPEN
        self._by = self._move_at = self._away_at = FOREVER
        self._opened = now
        if moved:
            self._events.append(Moved())
        for hold in list(self.holds.values()):  # first of all (step 4)
            self._claim(hold, now)
        for watch in self._watches.values():
            if watch.begun:
                self._rewatch(watch, now)
        self._flush()

    def _on_bye(self, line: Line) -> None:
        keep = line.keys.get("keep")
        if keep == "0" or keep is None and line.argument in FINAL:
            if self.link is not Link.GREETING:
                self._session = None
        text = f"the broker says BYE {line.argument}"
        self._drop(ProtocolError(text) if line.argument == "protocol"
                   else errors.gone(text))

    def _on_ping(self, line: Line) -> None:
        self._out.append(f"PONG {encode(line.argument)}\n".encode("ascii"))

    def _on_drain(self, line: Line) -> None:
        if self._session is not None:
            self._move(min(line.seconds("grace_ms") / 4, MOVE_S))

    def _move(self, within: float) -> None:
        """Leaves a draining broker, at a random time: not all at once."""
        if self.options.several:
            self._move_at = min(self._move_at, self.clock() +
                                self._between(0, within))

    def _waits_for_another_broker(self, call: Call) -> bool:
        """A kept session does not tell its caller that a broker drains."""
        if self._session is None or not call.repeats or call.dropped:
            return False
        call.again = True
        call.after = FOREVER  # until the next broker
        self._parked.append(call)
        self._move(MOVE_SOON_S)
        return True

    def _drop(self, error: HoldfastError) -> None:
        """The connection has ended, or there was none."""
        now = self.clock()
        error.text = f"{self.peer}: {error.text}" if self.peer else error.text
        was, self.link = self.link, Link.IDLE
        calls = list(self._calls.values())
        self._calls.clear()
        self._out.clear()
        self._lines = Lines()
        self._ping = None
        self._ping_at = self._by = self._move_at = self._retry_at = FOREVER
        steady = was is Link.OPEN and now >= self._opened + STEADY_S
        self.more = self.more and was is not Link.OPEN
        if not self.more:
            self._rounds = 0 if steady else self._rounds + 1
        self._park_again(calls, error)
        if self._session is not None:
            if was is Link.OPEN:
                self._away(now)
        elif was is Link.OPEN or self._away_at < FOREVER:
            self._end_session(error)
        elif not self.more:
            self._fail(error)
        self.dial_at = now if self.more else now + self._round_pause()
        if self._parked or self._watches or self._session is not None:
            self.link = Link.PAUSE

    def _round_pause(self) -> float:
        least, most = PAUSE_S
        if self._rounds == 0:
            return self._between(0, least)
        pause = min(most, least * 2 ** min(self._rounds, 10))
        return self._between(pause / 2, pause)

    def _away(self, now: float) -> None:
        """The broker may have seen the end of the connection right after the
        last answer: it keeps the session from then on (step 2)."""
        if self._away_at == FOREVER:
            self._away_at = now
        for hold in self.holds.values():
            hold.told = min(hold.told, self._proven + self._keep)
            self._soonest = min(self._soonest, hold.deadline)
            hold.unclaimed = self._settling = True

    def _park_again(self, calls: List[Call], error: HoldfastError) -> None:
        """Requests without an answer of the lost connection are sent again."""
        again = []
        for call in calls:
            call.again = True
            if call.repeats and not call.dropped:
                again.append(call)
            else:
                self._finish(call, error)
        for call in self._parked:
            call.after = 0.0
        self._parked = again + [call for call in self._parked
                                if call.verb != "CLAIM"]

    def _end_session(self, error: HoldfastError) -> None:
        self._session, self._gen = None, 0
        self._away_at, self._settling = FOREVER, False
        holds = list(self.holds.values())
        self.holds.clear()
        for hold in holds:
            self._lose(hold, "session")
        self._soonest = FOREVER
        self._fail(error)

    def _claim(self, hold: Hold, now: float) -> None:
        call = self._about("CLAIM", hold)
        call.own, call.repeats = True, False
        if hold.entries > 1:
            call.words += f" count={hold.entries}"
        if hold.wanted:
            call.words += " wanted=1"
        if hold.upgrade:
            call.words += " upgrade=1"
        self._send(call, now)

    def _on_claim(self, call: Call, line: Line,
                  error: Optional[HoldfastError]) -> None:
        hold = call.hold
        assert hold is not None
        if error is None:
            hold.unclaimed = False
            self._date(hold, call.sent, line.seconds("ttl_ms"))
            self._ping_at = min(self._ping_at, call.sent +
                                self._pause(line.seconds("ttl_ms")))
            if hold.confirming is not None:
                self._confirm(hold.confirming)
        elif error.code == "DRAINING":
            self._move(MOVE_SOON_S)  # the next broker is asked
            return
        elif isinstance(error, (errors.LockLost, errors.NotHeld)):
            hold.unclaimed = False
            self._settle(hold)
        else:  # it is not known yet: again, until the deadline (step 4)
            self._later(call)
            return
        self._settling = any(hold.unclaimed for hold in self.holds.values())
        self._flush()

    def _settle(self, hold: Hold) -> None:
        """The hold is gone, and so are the calls about it. An UNLOCK that was
        on its way has been carried out (step 5)."""
        in_time = hold.released and self.clock() < hold.deadline
        self._lose(hold, "gone")
        self._forget(hold)
        for call in [call for call in self._parked if call.hold is hold]:
            self._parked.remove(call)
            given_back = call.verb == "UNLOCK" and call.again and in_time
            self._finish(call, None if given_back else
                         errors.LockLost(why=hold.lost or "gone"))
