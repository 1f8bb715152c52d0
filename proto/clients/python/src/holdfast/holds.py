"""Locks: requests about them, their answers, their loss, their deadlines.

A deadline counts from the sending of the request that was answered. Nothing
but an answer moves it on. One timer sends PING at a third of what was told,
and notices the deadlines that pass (PROTOCOL.md 6.5).
"""

from __future__ import annotations

from typing import Iterable, Optional

from . import errors
from .calls import SILENCE_S, Calls, Link
from .errors import HoldfastError, ProtocolError
from .model import FOREVER, Call, Hold, Lost, Wanted
from .wire import Line, duration, encode

DRIFT = 0.99  # clocks do not run alike: 1 % of each ttl_ms is not used
LEASE_SLACK_S = 0.002  # a lease ends that much sooner for its client
#: After these replies it is not known what the broker has done (section 2).
DOUBTS = ("UNAVAILABLE", "INDOUBT", "INTERNAL")
KEPT_SILENCE_S = (1.0, 5.0)  # of a broker, if another one may do better


class Holds(Calls):
    """The locks of the session."""

    def lock(self, names: Iterable[str], *, owner: Optional[str] = None,
             wait: Optional[float] = None, lease: Optional[float] = None,
             delay: Optional[float] = None, mode: Optional[str] = None,
             limit: Optional[int] = None, permits: Optional[int] = None,
             note: Optional[str] = None, wanted: bool = False,
             detached: bool = False, tree: bool = False) -> Call:
        """LOCK. Without `owner` it has an owner of its own: two tasks of one
        session exclude each other (profile B)."""
        if owner is None:
            self._owners += 1
            owner = f"~{self._owners}"  # no named one begins so
        words = ["owner=" + encode(owner)]
        for key, seconds in (("lease", lease), ("delay", delay)):
            if seconds is not None:
                words.append(f"{key}={duration(seconds)}")
        for key, value in (("mode", mode), ("limit", limit),
                           ("permits", permits), ("note", note)):
            if value is not None:
                words.append(f"{key}={encode(str(value))}")
        for key, flag in (("wanted", wanted), ("detached", detached),
                          ("tree", tree), ("progress", self.options.progress)):
            if flag:
                words.append(f"{key}=1")
        # The OK of a detached LOCK may be lost: sent again, it would wait for
        # its own first hold (3.4).
        call = Call("LOCK", tuple(names), words=" ".join(words), wait=wait,
                    owner=owner, repeats=not detached)
        call.wanted, call.detached = wanted, detached
        call.leased = lease is not None
        return self._submit(call)

    def unlock(self, hold: Hold, delay: Optional[float] = None) -> Call:
        """UNLOCK, always with the fence. The hold is over from now on."""
        call = self._about("UNLOCK", hold)
        if delay is not None:
            call.words += " delay=" + duration(delay)
        if hold.lost is None and not hold.released:
            hold.entries -= 1
            hold.released = hold.entries == 0
        return self._submit(call)

    def renew(self, hold: Hold, lease: float) -> Call:
        """RENEW. From now on PING tells nothing of the hold (6.5)."""
        call = self._about("RENEW", hold)
        call.words += " lease=" + duration(lease)
        call.lease = lease
        hold.leased = hold.outlasts = True  # as far as is known
        return self._submit(call)

    def note(self, hold: Hold, note: str) -> Call:
        """NOTE; the empty note is none."""
        call = self._about("NOTE", hold)
        if note:
            call.words += " note=" + encode(note)
        return self._submit(call)

    def part(self, hold: Hold, permits: int) -> Call:
        """UNLOCK of some permits. Sent twice, it would give back twice."""
        call = self._about("UNLOCK", hold)
        call.repeats = False
        call.words += f" permits={permits}"
        return self._submit(call)

    def detached(self, verb: str, hold: Hold,
                 lease: Optional[float] = None) -> Call:
        """UNLOCK or RENEW of a detached hold, whoever took it."""
        call = Call(verb, (hold.name,), hold=hold,
                    words=f"fence={hold.fence} detached=1")
        call.detached = True
        if lease is not None:
            call.words += " lease=" + duration(lease)
            call.lease = lease
        return self._submit(call)

    def _send(self, call: Call, now: float) -> None:
        super()._send(call, now)
        hold = call.hold
        if hold is not None and call.lease:
            # Until the answer the new end counts, where that is sooner. The
            # end by an earlier sending still counts.
            end = now + call.lease * DRIFT - LEASE_SLACK_S
            hold.renewals[call] = min(end, hold.renewals.get(call, end))
            self._soonest = min(self._soonest, end)

    def _on_lock(self, call: Call, line: Line,
                 error: Optional[HoldfastError]) -> None:
        if error is not None:
            self._finish(call, error)
            return
        fences = line.keys.get("fence", "").split(",")
        if len(fences) != len(call.names) or \
                not all(fence.isdecimal() for fence in fences):
            raise ProtocolError("the OK of a LOCK without its fences")
        ttl = line.seconds("ttl_ms")
        # The OK of a wait: counted from the last request that was answered
        # before it, if that was sent later (6.5).
        base = max(call.sent, self._proven)
        call.holds = [self._enter(call, name, int(fence), line)
                      for name, fence in zip(call.names, fences)]
        for hold in call.holds:
            self._date(hold, base, ttl)
        if call.dropped:
            for hold in call.holds:
                self._give_back(hold, call.detached)
        elif call.detached:
            self._finish(call)
        elif self.clock() + ttl / 2 <= base + ttl:
            self._ping_at = min(self._ping_at, base + self._pause(ttl))
            self._finish(call)
        else:  # too old to begin with it: the answer to a PING comes first
            self._ping_at = 0.0
            for hold in call.holds:
                hold.confirming = call

    def _enter(self, call: Call, name: str, fence: int, line: Line) -> Hold:
        key = name, call.owner, fence
        hold = self.holds.get(key)
        if hold is None or hold.lost is not None or hold.released:
            hold = Hold(name, call.owner, fence)
            hold.leased = call.leased
            hold.upgrade = "upgrade" in line.keys
            if not call.detached:
                self.holds[key] = hold
        hold.outlasts = "lease_ms" in line.keys and \
            line.number("lease_ms") > line.number("ttl_ms")
        hold.wanted = hold.wanted or call.wanted
        hold.entries += 1
        return hold

    def _on_unlock(self, call: Call, line: Line,
                   error: Optional[HoldfastError]) -> None:
        hold = call.hold
        assert hold is not None
        if call.detached:
            hold.released = hold.released or error is None
            self._on_other(call, line, error)
            return
        if error is not None and error.code == "LIMIT":
            self._later(call)  # nothing was done
            return
        if error is not None and error.code == "INDOUBT" and hold.released:
            error = None  # the broker goes on with the release (profile B)
        if error is not None and hold.lost and isinstance(
                error, (errors.NotHeld, errors.LockLost)):
            error = errors.LockLost(why=hold.lost)
        self._finish(call, error)
        count = line.number("count") if line.word == "OK" else 0
        if line.word == "OK" and count == 0:
            hold.released = True  # all its permits, maybe
        if not (hold.released or hold.lost):
            return
        if count > 0 and not self._beside(hold):
            # A LOCK that was sent again was counted twice.
            self._give_back(hold)
        else:
            self._forget(hold)

    def _beside(self, hold: Hold) -> bool:
        """Whether it has an upgrade, or is one. `count` is then of both."""
        return any(other is not hold and other.name == hold.name and
                   other.owner == hold.owner for other in self.holds.values())

    def _give_back(self, hold: Hold, detached: bool = False) -> None:
        """A hold that nobody uses, and that the broker may still renew."""
        hold.entries = 0
        hold.confirming = None
        hold.released = True
        if detached:
            self.detached("UNLOCK", hold).own = True
            return
        call = self._about("UNLOCK", hold)
        call.own = True
        self._submit(call)

    def _forget(self, hold: Hold) -> None:
        key = hold.name, hold.owner, hold.fence
        if self.holds.get(key) is hold:
            del self.holds[key]

    def _on_renew(self, call: Call, line: Line,
                  error: Optional[HoldfastError]) -> None:
        hold = call.hold
        assert hold is not None
        # Of a detached hold that was asked for twice no CLAIM tells more.
        if error is None or not (error.code in DOUBTS or
                                 call.detached and call.again):
            hold.renewals.pop(call, None)
        if error is None:
            hold.outlasts = line.number("lease_ms") > line.number("ttl_ms")
            ttl = line.seconds("ttl_ms")
            self._date(hold, call.sent, ttl)
            self._ping_at = min(self._ping_at, call.sent + self._pause(ttl))
        self._finish(call, error)

    def _on_lost(self, line: Line) -> None:
        # Name, owner and fence: another owner's, or an earlier hold of the
        # same lock, is not ours.
        hold = self.holds.get((line.argument, line.keys.get("owner", ""),
                               line.number("fence")))
        if hold is not None:
            self._lose(hold, line.keys.get("reason", "gone"))
            self._forget(hold)

    def _on_wanted(self, line: Line) -> None:
        owner = line.keys.get("owner", "")
        for hold in self.holds.values():
            if hold.wanted and hold.name == line.argument and \
                    hold.owner == owner:
                self._events.append(Wanted(hold, line.number("waiters")))

    def _silence(self) -> float:
        if self._session is None:
            return SILENCE_S
        least, most = KEPT_SILENCE_S
        return min(max(self._ttl / 4, least), most)

    def _date(self, hold: Hold, base: float, ttl: float) -> None:
        """The latest answer counts, even where it is sooner."""
        hold.told = base + ttl * DRIFT
        self._soonest = min(self._soonest, hold.deadline)

    def _ask(self, now: float) -> None:
        """PING, while something depends on its answer; HELD beside leases."""
        self._ping_at = FOREVER
        if not (self.holds or self._calls):
            return
        leases = any(
            hold.leased and hold.lost is None and
            (hold.outlasts or hold.confirming is not None)
            for hold in self.holds.values())
        self._ping = Call("HELD" if leases else "PING", own=True,
                          repeats=False)
        self._send(self._ping, now)

    def _on_item(self, call: Call, line: Line) -> None:
        hold = self.holds.get((line.keys.get("name", ""),
                               line.keys.get("owner", ""),
                               line.number("fence")))
        if hold is None or hold.unclaimed:
            return
        if "lease_ms" in line.keys:
            hold.outlasts = line.number("lease_ms") > line.number("ttl_ms")
        ttl = line.seconds("ttl_ms")
        call.least = min(call.least, ttl)
        self._date(hold, call.sent, ttl)

    def _on_ping_answer(self, call: Call, line: Line,
                        _error: Optional[HoldfastError]) -> None:
        if call is not self._ping:
            return
        self._ping = None
        ttl = call.least
        if "ttl_ms" in line.keys:
            ttl = line.seconds("ttl_ms")
            for hold in self.holds.values():
                # It covers neither leases nor holds that are not claimed.
                if not (hold.leased or hold.unclaimed):
                    self._date(hold, call.sent, ttl)
        if ttl < FOREVER:
            self._ttl = ttl
        self._ping_at = call.sent + self._pause(self._ttl)
        for hold in list(self.holds.values()):
            if hold.confirming is not None and not hold.unclaimed:
                self._confirm(hold.confirming)

    def _confirm(self, call: Call) -> None:
        """A grant that came late is told, once its deadline is known."""
        now = self.clock()
        if any(hold.unclaimed for hold in call.holds):
            return
        if any(now >= hold.deadline for hold in call.holds):
            self._ping_at = now
            return
        for hold in call.holds:
            hold.confirming = None
        self._finish(call)

    def _expire(self, now: float) -> None:
        """Deadlines that have passed. The broker may still renew such a hold:
        it is given back (profile B)."""
        self._soonest = FOREVER
        for hold in list(self.holds.values()):
            if hold.lost is not None or hold.released or \
                    hold.confirming is not None and self.link is Link.OPEN:
                continue
            if now < hold.deadline:
                self._soonest = min(self._soonest, hold.deadline)
            else:
                self._lose(hold, "deadline")
                self._give_back(hold)

    def _lose(self, hold: Hold, why: str) -> None:
        if hold.lost is not None:
            return
        hold.lost = why
        if hold.confirming is not None:  # nobody was told that it is held
            call, hold.confirming = hold.confirming, None
            self._finish(call, errors.gone("the session has ended")
                         if why == "session" else errors.LockLost(why=why))
            for other in call.holds:
                if other is not hold and other.confirming is call:
                    self._give_back(other)
        elif not hold.released:
            self._events.append(Lost(hold))
