"""What a lock is, without bytes: a list of tickets in order of arrival.

A model of the scripts for one lock, to be held against them: it knows nothing
of places, widths, squeezing or lower bounds. Times are ms of the node's clock.
"""

import dataclasses

from scripts import (BUSY, CORRUPT, FENCE_FAR, FENCE_JUMP, FENCE_STEP, FULL,
                     GONE, GRANTED, HELD, LATE, LIVING, OK, SUSPENDED, WAITING,
                     WAITS)


@dataclasses.dataclass
class Standing:
    """A living ticket."""

    who: object
    broker: bytes
    flags: int
    arrival: int
    fence: int
    ends: int
    hold: int
    lease: int
    since: int
    words: tuple

    @property
    def granted(self):
        return bool(self.flags & GRANTED)

    @property
    def term(self):
        return min(self.lease, self.hold) if self.hold else self.lease


@dataclasses.dataclass
class Outcome:
    status: int
    ticket: object = None  # a Standing, where the result is about one
    grants: list = dataclasses.field(default_factory=list)
    published: list = dataclasses.field(default_factory=list)


class Lock:
    """One lock; the caller sets the time and the id before each operation."""

    def __init__(self):
        self.tickets = []
        self.fence = None  # of no record yet
        self.id = None
        self.arrival = 1
        self.now_us = 0
        self.node_id = None

    @property
    def now(self):
        return self.now_us // 1000

    @property
    def granted(self):
        return [ticket for ticket in self.tickets if ticket.granted]

    def find(self, who):
        for ticket in self.tickets:
            if ticket.who == who:
                return ticket
        return None

    # steps

    def raised(self, seen):
        """The fence that the next grant starts from; None: beyond belief."""
        fence = self.fence
        if self.id != self.node_id:
            start = self.now_us + FENCE_JUMP
            fence = start if fence < start else fence + FENCE_STEP
        if seen > fence:
            if seen > self.now_us + FENCE_FAR:
                return None
            fence = seen
        return fence

    def expire(self):
        for ticket in self.granted:
            if ticket.ends <= self.now:
                self.tickets.remove(ticket)
                if ticket.flags == LIVING + GRANTED:
                    for other in self.tickets:
                        if other.broker == ticket.broker and \
                                other.flags == WAITS:
                            other.flags = WAITS + SUSPENDED

    def grant(self, ticket, broker, lapse, fence):
        self.fence, self.id = fence + 1, self.node_id
        ticket.fence = self.fence
        ticket.since = self.now
        term = ticket.term
        ticket.flags = HELD
        if ticket.broker != broker:
            ticket.flags = LIVING + GRANTED
            term = min(term, lapse)
        ticket.ends = self.now + term

    def full(self, call):
        return len(self.tickets) - len(self.granted) >= call.waiters_max

    def serve(self, call, outcome, own=None):
        """The first that waits, lives and is not suspended. Who is found
        dead on the way is struck out, also to make room."""
        if all(each.granted for each in self.tickets) or (
                self.granted and not self.full(call)):
            return
        for ticket in list(self.tickets):
            if not ticket.granted and ticket.ends <= self.now:
                self.tickets.remove(ticket)
            elif ticket.flags == WAITS:
                if self.granted:
                    return
                fence = self.raised(call.seen)
                if fence is None:
                    return
                self.grant(ticket, call.broker, call.lapse, fence)
                if ticket.broker != call.broker:
                    outcome.published.append(ticket)
                elif ticket is not own:
                    outcome.grants.append(ticket)

    # operations; `call` has broker, lapse, waiters_max and the arguments

    def acquire(self, call):
        if self.now > call.latest:
            return Outcome(LATE)
        if self.fence is None:
            self.fence, self.id = self.now_us + FENCE_JUMP, self.node_id
            if self.raised(call.seen) is None:
                self.fence = None
                return Outcome(CORRUPT)
        if not self.tickets:
            fence = self.raised(call.seen)
            if fence is None:
                return Outcome(CORRUPT)
            ticket = self.append(call)
            self.grant(ticket, call.broker, call.lapse, fence)
            return Outcome(OK, ticket)
        self.expire()
        outcome = Outcome(OK)
        ticket = self.find(call.who) if call.retry else None
        if ticket is not None:
            if ticket.granted:
                ticket.flags, ticket.ends = HELD, self.now + ticket.term
            else:
                ticket.flags, ticket.ends = WAITS, self.now + call.lease
            self.serve(call, outcome, ticket)
        elif call.no_queue:
            self.serve(call, outcome)
            if self.granted:
                outcome.status = BUSY
                return outcome
        elif self.full(call):
            self.serve(call, outcome)
            if self.full(call):
                outcome.status = FULL
                return outcome
        if ticket is None:
            ticket = self.append(call)
            self.serve(call, outcome, ticket)
        return self.about(ticket, outcome)

    def append(self, call):
        ticket = Standing(call.who, call.broker, WAITS, self.arrival, 0,
                          self.now + call.lease, call.hold, call.lease,
                          self.now, call.words)
        self.arrival += 1
        self.tickets.append(ticket)
        return ticket

    @staticmethod
    def about(ticket, outcome):
        outcome.ticket = ticket
        outcome.status = OK if ticket.granted else WAITING
        return outcome

    def named(self, call):
        """The ticket that release and renew mean, or None."""
        ticket = self.find(call.who)
        if ticket is None or (call.arrival and
                              call.arrival != ticket.arrival):
            return None
        if call.fence and call.fence != ticket.fence:
            return None
        return ticket

    def release(self, call):
        ticket = self.named(call)
        if ticket is None:
            return Outcome(GONE)
        self.tickets.remove(ticket)
        self.expire()
        outcome = Outcome(OK)
        self.serve(call, outcome)
        return outcome

    def renew(self, call):
        if self.now > call.latest:
            return Outcome(LATE)
        if self.fence is None:
            return Outcome(GONE)
        if call.look:
            return self.look(call, Outcome(OK))
        ticket = self.named(call)
        if ticket is None:
            return Outcome(GONE)
        if not ticket.granted:
            self.expire()
            ticket.flags, ticket.ends = WAITS, self.now + call.lease
            outcome = Outcome(OK)
            self.serve(call, outcome, ticket)
            return self.about(ticket, outcome)
        if ticket.ends <= self.now:
            return self.look(call, Outcome(GONE))
        if ticket.flags == HELD:
            ends = self.now + (min(call.lease, call.hold)
                               if call.hold else call.lease)
            if not call.sets_end:
                ends = max(ends, min(ticket.ends, self.now + call.lease))
            ticket.ends = ends
        else:
            ticket.flags, ticket.ends = HELD, self.now + ticket.term
        return Outcome(OK, ticket)

    def look(self, call, outcome):
        self.expire()
        self.serve(call, outcome)
        return outcome
