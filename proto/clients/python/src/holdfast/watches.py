"""Watched locks and groups (PROTOCOL.md, WATCH).

A watch goes on at each next connection, also in a new session. Its news are
the present state: after a move, only a changed state is news.
"""

from __future__ import annotations

from typing import Optional

from . import errors
from .calls import Link
from .errors import HoldfastError
from .holds import Holds
from .model import Call, Member, Seen, Watch, WatchOver
from .wire import Line


def _member(line: Line) -> Member:
    keys = line.keys
    return Member(
        line.argument, line.number("fence"), keys.get("note", ""),
        keys.get("name", ""), keys.get("owner", ""), keys.get("session", ""),
        line.number("permits") if "permits" in keys else 1,
        line.number("holders") if "holders" in keys else 1,
        "detached" in keys)


class Watches(Holds):
    """The watches of the client: one for a name."""

    def watch(self, name: str, members: bool = False) -> Call:
        """WATCH. call.watch tells its news by Seen, at each broker."""
        call = Call("WATCH", (name,), words="members=1" if members else "")
        if name in self._watches:
            self._finish(call, errors.Conflict("this client watches it"))
            return call
        call.watch = self._watches[name] = Watch(name, members)
        return self._submit(call)

    def unwatch(self, watch: Watch) -> None:
        """UNWATCH. No news comes after it."""
        if self._watches.get(watch.name) is watch:
            del self._watches[watch.name]
            watch.over = True
            if self.link is Link.OPEN:
                self._submit(Call("UNWATCH", (watch.name,), own=True,
                                  repeats=False))

    def _rewatch(self, watch: Watch, now: float) -> None:
        call = Call("WATCH", (watch.name,), own=True, repeats=False,
                    words="members=1" if watch.members else "")
        call.watch, call.again = watch, True
        self._send(call, now)

    def _on_watch(self, call: Call, _line: Line,
                  error: Optional[HoldfastError]) -> None:
        watch = call.watch
        assert watch is not None
        if error is not None and not watch.over:
            if call.own and error.retry:
                self._later(call)
                return
            self._end_watch(watch, error)
        if error is None:
            watch.begun = True
        self._finish(call, error)

    def _end_watch(self, watch: Watch, error: HoldfastError) -> None:
        if self._watches.get(watch.name) is watch:
            del self._watches[watch.name]
        watch.over, watch.error = True, error
        self._events.append(WatchOver(watch))

    def _on_news(self, line: Line) -> None:
        watch = self._watches.get(line.argument)
        if watch is None or watch.members:
            return
        news = None if line.word == "FREE" else _member(line)
        if news != watch.last:
            watch.last = news
            self._events.append(Seen(watch, news))

    def _on_member(self, line: Line) -> None:
        watch = self._watches.get(line.argument)
        if watch is None or not watch.members:
            return
        if line.word == "MEMBERS":
            watch.listing = "begin" in line.keys
            if watch.listing:
                watch.all.clear()  # an earlier list is void
        elif line.word == "LEFT":
            watch.all.pop(line.number("fence"), None)
        else:
            watch.all[line.number("fence")] = _member(line)
        watch.last = None
        if not watch.listing:
            self._events.append(Seen(watch, sorted(
                watch.all.values(), key=lambda member: member.fence)))
