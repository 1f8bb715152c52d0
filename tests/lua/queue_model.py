"""A model of one lock, without bytes: a list of tickets in order of arrival.

It knows nothing of places, widths, squeezing or bounds. Times are ms of the
node's clock.
"""

import collections
import dataclasses

from scripts import (BROKEN, BROKEN_NOW, BUSY, CLAIMED, CONFLICT, CORRUPT,
                     FENCE_FAR, FENCE_JUMP, FENCE_STEP, FULL, GONE,
                     BESIDE, GRANTED, HELD, INTENTS, LATE, LIVING, MOVED_ON,
                     OK, PART, SHARED, SUSPENDED, UPGRADE, WAITING, WAITS,
                     may_join)


@dataclasses.dataclass
class Standing:
    """A living ticket."""

    who: object
    broker: bytes
    flags: int
    mode: int
    permits: int
    arrival: int
    fence: int
    ends: int
    hold: int  # ms asked for; of a claimed hold, when it is over
    lease: int
    since: int
    delay: int
    words: tuple
    part: bool = False
    detached: bool = False

    @property
    def granted(self):
        return bool(self.flags & GRANTED)

    @property
    def plain_mode(self):
        return self.mode

    @property
    def claimed(self):
        return bool(self.flags & CLAIMED)

    @property
    def same_session(self):
        return self.who.session, self.who.owner


@dataclasses.dataclass
class Outcome:
    status: int
    ticket: object = None  # a Standing, where the result is about one
    grants: list = dataclasses.field(default_factory=list)
    published: list = dataclasses.field(default_factory=list)  # (kind, ticket)
    more: bool = False
    left: int = 0  # ms to the end of a hold that ends by itself
    waits: bool = False  # somebody is left waiting for a time to come
    broken: int = 0
    until: int = 0  # no detached hold that was broken has a larger fence
    used: int = 0  # permits that are out, where that is told
    limit: int = 0  # of a semaphore, likewise
    about: object = None  # (typical, age, words), or of a hold what it is


class Lock:
    """One lock; the caller sets the time and the id before each operation."""

    def __init__(self, grants_max):
        self.grants_max = grants_max
        self.tickets = []
        self.limit = 0
        self.resized = False
        self.fence = None  # of no record yet
        self.id = None
        self.arrival = 1
        self.longest = 0  # lease, since there was nobody
        self.delay = 0  # nobody is granted it sooner
        self.delayed = 0  # so long is that delay
        self.watch = 0  # changes are told until then
        self.wanted = False  # also those from or to no waiter
        self.typical = 0  # length of a hold
        self.grants = 0  # so many so far
        self.given_us = None  # when the last fence was, for a free lock
        self.seen = collections.Counter()  # sessions that moved, and others
        self.now_us = 0
        self.node_id = None

    @property
    def now(self):
        return self.now_us // 1000

    @property
    def granted(self):
        return [ticket for ticket in self.tickets if ticket.granted]

    @property
    def waiting(self):
        return [ticket for ticket in self.tickets if not ticket.granted]

    @property
    def used(self):
        return sum(ticket.permits for ticket in self.granted)

    @property
    def barred(self):
        return self.now < min(self.delay, self.now + self.delayed)

    @property
    def kept_out(self):
        """Whether somebody waits for the end of a lock-delay."""
        return bool(self.waiting) and self.barred

    def find(self, who):
        for ticket in self.tickets:
            if ticket.who == who:
                return ticket
        return None

    def run(self, call):
        """An operation by its name; a watchers' message comes last of all."""
        held, grants = len(self.granted), self.grants
        detached = self.seen["detached"] + self.seen["sooner"]
        waited = bool(self.waiting)
        self.moved, self.given, self.kept_from = [], 0, False
        operation = {"acquire": self.acquire, "release": self.release,
                     "renew": self.renew, "break": self.break_}[call.name]
        outcome = operation(call)
        if not self.tickets:
            self.limit = self.longest = 0
            self.resized = False
        outcome.published[:0] = [("M", moved) for moved in self.moved]
        news = (self.grants != grants or held != len(self.granted)
                or self.seen["detached"] + self.seen["sooner"] != detached
                or self.wanted and waited != bool(self.waiting))
        if self.now < self.watch and news:
            outcome.published.append(("W", None))
        if self.kept_from or self.waiting and (
                self.given or not waited):
            outcome.published += [("I", None)] * any(
                ticket.mode in INTENTS for ticket in self.granted)
        return outcome

    # steps

    def compatible(self, ticket):
        if self.limit:
            return self.used + ticket.permits <= self.limit
        return not self.granted or may_join(
            ticket.mode, ticket.who, self.granted)

    def closed(self):
        if self.limit:
            return self.used >= self.limit
        return any(ticket.mode not in BESIDE for ticket in self.granted)

    def base_of(self, ticket):
        """The hold below an upgrade, or None."""
        for other in self.granted:
            if ticket.mode == UPGRADE and not other.detached and \
                    (other.who.session, other.who.owner) == \
                    ticket.who.counterpart:
                return other
        return None

    def upgrade(self, call, outcome, own):
        """Grants it once no other hold is left. Whether it keeps all others
        out: it is granted, or first in turn."""
        for ticket in self.tickets:
            if ticket.mode != UPGRADE:
                continue
            if ticket.granted:
                return True
            base = self.base_of(ticket)
            if ticket.flags != WAITS or ticket.ends <= self.now or \
                    not base or base.arrival > ticket.arrival:
                continue
            fence = None
            if len(self.granted) == 1 and not self.barred:
                fence = self.raised(call.seen)
            if fence is not None:
                self.seen["upgrade"] += 1
                self.grant(ticket, call, fence)
                self.tell_grant(ticket, call, outcome, own)
            return True
        return False

    def tell_grant(self, ticket, call, outcome, own):
        if ticket.broker != call.broker:
            outcome.published.append(("G", ticket))
        elif ticket is not own:
            outcome.grants.append(ticket)

    def raised(self, seen, given_us=None):
        """The fence that the next grant starts from; None: beyond belief."""
        fence = self.fence
        if self.id != self.node_id:
            start = self.now_us + FENCE_JUMP
            fence = start if fence < start else fence + FENCE_STEP
        else:
            if given_us and fence < self.now_us + 2 * FENCE_JUMP:
                fence += min(max(self.now_us - given_us, 0) // 2, FENCE_JUMP)
            fence = max(fence, self.now_us)
        if seen > fence:
            if seen > self.now_us + FENCE_FAR:
                return None
            fence = seen
        return fence

    def adopt(self):
        """Whether another id wrote it: then holds last a lease longer."""
        if self.id == self.node_id:
            return False
        for ticket in self.granted:
            if ticket.detached:
                pass
            elif ticket.flags & (CLAIMED | BROKEN):
                ticket.ends = self.now + self.longest
                ticket.hold = ticket.hold and max(ticket.hold, ticket.ends)
            else:
                ticket.flags, ticket.fence = WAITS, 0
                ticket.ends = self.now + ticket.lease
            self.seen["adopted"] += 1
        self.fence, self.id = self.raised(0), self.node_id
        return True

    def over(self, ticket, at):
        """A hold ends: how long they last counts where others wait."""
        if ticket.claimed and self.waiting:
            took = max(at - ticket.since // 1000, 0)
            if self.typical:
                took = (7 * self.typical + took) // 8
            self.typical = max(took, 1)

    def nobody_follows(self, ticket, since):
        if ticket.claimed and ticket.delay:
            self.bar(ticket.delay, since)

    def bar(self, delay, since):
        self.delayed = max(self.delayed if self.barred else 0, delay)
        self.delay = max(self.delay, since + delay)

    def expire(self):
        for ticket in self.granted:
            if ticket.ends > self.now:
                continue
            self.over(ticket, ticket.ends)
            self.nobody_follows(ticket, ticket.ends)
            self.tickets.remove(ticket)
            if not ticket.claimed:
                for other in self.tickets:
                    if other.broker == ticket.broker and other.flags == WAITS:
                        other.flags = WAITS + SUSPENDED
        self.delay = min(self.delay, self.now + self.delayed)
        if not self.barred:
            self.delay = self.delayed = 0

    def claim(self, ticket):
        ticket.flags = HELD
        ticket.ends = self.now + ticket.lease
        if ticket.hold:
            ticket.hold += self.now
            ticket.ends = min(ticket.ends, ticket.hold)

    def grant(self, ticket, call, fence):
        self.fence, self.id = fence + 1, self.node_id
        self.grants += 1
        self.given += 1
        self.longest = max(self.longest, ticket.lease)
        ticket.fence = self.fence
        ticket.since = self.now_us
        if ticket.broker == call.broker:
            self.claim(ticket)
        else:
            ticket.flags = LIVING + GRANTED
            ticket.ends = self.now + min(ticket.lease, call.lapse)

    def full(self, call):
        """Even without those that are dead."""
        if len(self.waiting) >= call.waiters_max:
            self.tickets = [ticket for ticket in self.tickets
                            if ticket.granted or ticket.ends > self.now]
            self.seen["room"] += len(self.waiting) < call.waiters_max
        return len(self.waiting) >= call.waiters_max

    def serve(self, call, outcome, own=None):
        """Grants to waiters in their order, as long as the next one fits, and
        strikes out the dead. Whether one must still wait."""
        if not self.limit and self.upgrade(call, outcome, own):
            return True
        if not self.waiting:
            return False
        if self.barred or self.closed():
            return True
        blocked, given = False, 0
        for ticket in self.waiting:
            if ticket.ends <= self.now:
                self.tickets.remove(ticket)
            elif ticket.flags == WAITS:
                fence = self.raised(call.seen)
                fits = self.compatible(ticket) and fence is not None
                if fits and given < self.grants_max:
                    given += 1
                    self.grant(ticket, call, fence)
                    self.tell_grant(ticket, call, outcome, own)
                    blocked = ticket.mode == UPGRADE
                else:
                    blocked = True
                    outcome.more |= fits
            if blocked:
                break
        return blocked

    # operations; `call` has broker, lapse, waiters_max and the arguments

    def acquire(self, call):
        if self.now > call.latest:
            return Outcome(LATE)
        new = self.fence is None
        if new:
            self.fence, self.id = self.now_us + FENCE_JUMP, self.node_id
        adopted = self.adopt()
        if not self.tickets and not self.barred:
            fence = self.raised(call.seen, None if adopted else self.given_us)
            if fence is None:
                if new:
                    self.fence = None
                return Outcome(CORRUPT)
            self.expire()
            self.limit = call.limit
            ticket = self.append(call)
            self.grant(ticket, call, fence)
            return Outcome(OK, ticket)
        self.expire()
        outcome = Outcome(OK)
        ticket = self.find(call.who) if call.retry else None
        if ticket and ticket.flags & BROKEN:
            self.end_unclean(ticket)
            self.seen["again"] += 1
            return self.acquire_new(call, outcome)
        if ticket is None and call.moves:
            ticket = self.of_session(call.who)
            status = self.moves(ticket, call) if ticket else OK
            if status != OK:
                return self.refused(status, call, outcome)
            if ticket and self.given_up(ticket, call):
                self.end_unclean(ticket)
                self.seen["anew"] += 1
                ticket = None
            if ticket and not self.fence_anew(ticket, call):
                return self.refused(CORRUPT, call, outcome)
            if ticket:
                ticket.who, ticket.broker = call.who, call.broker
                ticket.words, ticket.part = call.words, call.part
                if not ticket.claimed:
                    ticket.hold = call.hold
                elif call.hold:
                    ticket.hold = self.now + call.hold
        if ticket:
            self.again(ticket, call)
            self.serve(call, outcome, ticket)
            return self.about(ticket, outcome, call)
        return self.acquire_new(call, outcome)

    def fence_anew(self, ticket, call):
        """A hold that is taken over by a LOCK has a fence above all."""
        if not ticket.granted:
            return True
        fence = self.raised(call.seen)
        if fence is not None:
            self.fence, self.id = fence + 1, self.node_id
            ticket.fence, ticket.since = self.fence, self.now_us
            self.grants += 1
            self.seen["refenced"] += 1
        return fence is not None

    def given_up(self, ticket, call):
        """The request is for another kind."""
        return ticket.flags & BROKEN or not self.of_kind(ticket, call)

    def moves(self, ticket, call):
        """Whether what stands there may be had, or be ended."""
        return OK if self.may_move(ticket, call) else MOVED_ON

    def end_unclean(self, ticket):
        """Nobody gives it back."""
        self.over(ticket, self.now)
        self.nobody_follows(ticket, self.now)
        self.tickets.remove(ticket)

    def refused(self, status, call, outcome):
        """Its own ticket is not for it; whoever waits is served."""
        self.serve(call, outcome)
        outcome.status, outcome.waits = status, self.kept_out
        return outcome

    def of_kind(self, ticket, call):
        return (ticket.mode, ticket.permits, self.limit > 0) == (
            call.mode, call.permits, call.limit > 0)

    def acquire_new(self, call, outcome):
        blocked = self.serve(call, outcome)
        if not self.tickets:
            self.limit = call.limit
        outcome.status = self.refusal(call, blocked)
        if outcome.status != OK:
            outcome.waits = self.kept_out
            if outcome.status == BUSY:
                self.tell(call, outcome, call)
                self.kept_from = True
            if outcome.status == CONFLICT:
                outcome.limit = self.limit
            return outcome
        ticket = self.append(call)
        if not blocked or ticket.mode == UPGRADE:
            self.serve(call, outcome, ticket)
        return self.about(ticket, outcome, call)

    def refusal(self, call, blocked):
        base = self.base_of(call)
        if self.limit != call.limit:
            return CONFLICT
        if base and base.mode == SHARED and len(self.granted) > 1:
            self.seen["alone"] += 1
            return CONFLICT
        if call.no_queue:
            if self.barred or blocked and not base or \
                    not self.compatible(call):
                return BUSY
            return CORRUPT if self.raised(call.seen) is None else OK
        return FULL if self.full(call) and not base else OK

    def anew(self, ticket, lease):
        """The end of a lease that begins anew: no sooner than it was."""
        return max(self.now + lease, min(ticket.ends, self.now + self.longest))

    def again(self, ticket, call):
        """Its broker asks for the same a second time."""
        if ticket.flags == LIVING + GRANTED:
            self.claim(ticket)
        elif ticket.flags == HELD and not ticket.detached:
            ticket.ends = self.anew(ticket, call.lease)
            if ticket.hold:
                ticket.ends = min(ticket.ends, ticket.hold)
            self.longest = max(self.longest, call.lease)
        elif not ticket.granted:
            ticket.flags, ticket.ends = WAITS, self.now + call.lease

    def of_session(self, who, fence=0):
        for ticket in self.tickets:
            if ticket.same_session == (who.session, who.owner) and \
                    fence in (0, ticket.fence) and not ticket.detached:
                return ticket
        return None

    def may_move(self, ticket, call):
        """A later generation, or its broker's next request, takes over."""
        old, new = ticket.who.generation, call.who.generation
        moves = old < new or (old == new and ticket.broker == call.broker)
        if moves and ticket.broker != call.broker:
            self.moved.append((ticket.broker, ticket.who.request, new))
        return moves

    def append(self, call):
        ticket = Standing(call.who, call.broker, WAITS, call.mode,
                          call.permits, self.arrival, 0,
                          self.now + call.lease, call.hold, call.lease,
                          self.now_us, call.delay, call.words, call.part)
        self.arrival += 1
        self.tickets.append(ticket)
        return ticket

    def about(self, ticket, outcome, call):
        outcome.ticket = ticket
        outcome.status = OK if ticket.granted else WAITING
        if ticket.granted and call.name == "renew" and ticket.hold:
            outcome.left = max(ticket.hold - self.now, 1)
        elif not ticket.granted:
            self.tell(call, outcome, ticket)
        return outcome

    def tell(self, call, outcome, asked):
        others = [ticket for ticket in self.granted
                  if ticket is not self.base_of(asked)]
        if call.tell and others:
            first = others[0]
            age = max(self.now - first.since // 1000, 0)
            outcome.about = (self.typical, age, first.words)

    def exact(self, call):
        """The ticket of that request and generation, or None."""
        for ticket in self.tickets:
            if ticket.who == call.who and call.arrival in (0, ticket.arrival):
                return ticket
        return None

    def named(self, call):
        """The ticket that renew means, or None."""
        if call.moves:
            return self.of_session(call.who, call.fence)
        ticket = self.exact(call)
        return ticket if ticket and call.fence in (0, ticket.fence) else None

    def of_fence(self, call):
        for ticket in self.granted:
            if ticket.fence == call.fence:
                return ticket
        return None

    def release(self, call):
        ticket = self.exact(call)
        if call.by_fence:
            ticket = self.of_fence(call)
            if ticket and not ticket.detached:
                return Outcome(CONFLICT)
        elif ticket is None and call.moves:
            ticket = self.of_session(call.who, call.fence)
            if ticket and not self.may_move(ticket, call):
                ticket = None
        if ticket is None or call.fence not in (0, ticket.fence):
            return Outcome(GONE)
        late = call.by_fence and self.id == self.node_id and \
            ticket.ends <= self.now
        ended = ticket.ends if late else self.now
        self.over(ticket, ended)
        if call.unclean or late:
            self.nobody_follows(ticket, ended)
        if call.delay and not late:
            self.bar(call.delay, self.now)
        self.tickets.remove(ticket)
        if self.tickets:
            self.adopt()
        self.expire()
        outcome = Outcome(GONE if late else OK)
        self.serve(call, outcome)
        outcome.waits = self.kept_out
        return outcome

    def renew(self, call):
        if self.now > call.latest:
            return Outcome(LATE)
        if self.fence is None and not (call.look and call.watch):
            return Outcome(GONE)
        if call.look:
            if self.fence is None:
                self.fence, self.id = self.now_us + FENCE_JUMP, self.node_id
            self.adopt()
            if call.watch:
                self.wanted = self.wanted or call.watch_waiters
                self.watch = max(self.watch, self.now + call.lease)
            return self.look(call, Outcome(OK))
        adopted = self.adopt()
        if call.by_fence:
            return self.prolong(call, adopted)
        if call.resizes:
            return self.resize(call)
        ticket = self.named(call)
        if ticket is None:
            return self.not_so(GONE, call, adopted)
        if ticket.detached and not call.detaches:
            return self.look(call, Outcome(GONE))
        if call.moves and ticket.granted and ticket.broker != call.broker and (
                ticket.part or ticket.mode in INTENTS):
            return self.not_so(GONE, call, adopted)
        if call.moves and not self.may_move(ticket, call):
            return self.not_so(MOVED_ON, call, adopted)
        if ticket.granted and ticket.ends <= self.now:
            return self.look(call, Outcome(GONE))
        parted = self.parted(ticket, call)
        if ticket.flags & BROKEN or parted:
            self.seen["parted"] += parted
            if call.moves and ticket.broker == call.broker:
                self.seen["given"] += ticket.who != call.who
                ticket.who = call.who
            self.seen["broken"] += call.moves
            return self.not_so(BROKEN_NOW, call, adopted)
        if call.moves:
            ticket.who, ticket.broker = call.who, call.broker
        if ticket.granted:
            return self.speak(ticket, call, adopted)
        if self.limit and ticket.permits > self.limit:
            self.tickets.remove(ticket)
            return self.look(call, Outcome(GONE))
        self.expire()
        ticket.flags, ticket.ends = WAITS, self.now + call.lease
        outcome = Outcome(OK)
        self.serve(call, outcome, ticket)
        self.seen["turn"] += call.moves and ticket.granted
        self.seen["waiter"] += call.moves and not ticket.granted
        outcome = self.about(ticket, outcome, call)
        if call.moves:
            outcome.about = self.kind(ticket)
        return outcome

    def parted(self, ticket, call):
        """Whether it would detach one of a hold and its upgrade, or make an
        intention a hold of the whole."""
        if ticket.mode in INTENTS and ticket.granted:
            return call.detaches or call.shares
        return call.detaches and ticket.granted and any(
            not other.detached and UPGRADE in (ticket.mode, other.mode) and
            (other.who.session, other.who.owner) == ticket.who.counterpart
            for other in self.granted)

    def resize(self, call):
        self.expire()
        if not self.tickets or not self.limit:
            return self.look(call, Outcome(
                CONFLICT if self.tickets else GONE))
        outcome = Outcome(OK, limit=call.keeps)
        for ticket in self.waiting:
            if self.limit > call.keeps and ticket.permits > call.keeps:
                self.tickets.remove(ticket)
                outcome.published.append(("D", ticket))
                self.seen["unfit"] += 1
        self.seen["shrunk"] += self.used > call.keeps
        self.limit, self.resized = call.keeps, True
        self.serve(call, outcome)
        outcome.used = self.used
        return outcome

    def prolong(self, call, adopted):
        ticket = self.of_fence(call)
        if ticket is None or ticket.flags & BROKEN or ticket.ends <= self.now:
            return self.look(call, Outcome(GONE))
        if not ticket.detached:
            return self.not_so(CONFLICT, call, adopted)
        self.seen["prolonged"] += 1
        return self.detach(ticket, call, Outcome(OK), adopted)

    def detach(self, ticket, call, outcome, adopted):
        if call.moves:
            outcome.about = self.kind(ticket)
        self.seen["detached"] += not ticket.detached
        if self.now + call.hold < ticket.ends:
            self.seen["sooner"] += 1
            first = next((each for each in self.waiting
                          if each.flags == WAITS), None)
            if first:
                outcome.published.append(("D", first))
        ticket.detached, ticket.lease = True, call.hold
        ticket.hold = ticket.ends = self.now + call.hold
        if adopted:
            self.serve(call, outcome, ticket)
        return self.about(ticket, outcome, call)

    def not_so(self, status, call, adopted):
        """Nothing is done for the ticket; others may be next."""
        outcome = Outcome(status)
        return self.look(call, outcome) if adopted else outcome

    def kind(self, ticket):
        """The answer about a ticket that was taken over."""
        self.seen["shared"] += ticket.granted and ticket.mode == SHARED
        hold = max(ticket.hold - self.now, 1) \
            if ticket.granted and ticket.hold else ticket.hold
        mode = ticket.mode | ticket.part * PART
        return (mode, ticket.permits, self.limit, ticket.delay, hold,
                ticket.words)

    def speak(self, ticket, call, adopted):
        """A holder says that it is there."""
        outcome = Outcome(OK)
        claims = not ticket.claimed
        if claims:
            self.claim(ticket)
        elif adopted and ticket.hold and call.hold:  # it was put off since
            ticket.hold = max(ticket.hold, self.now + call.hold)
        gives = self.limit and 0 < call.keeps < ticket.permits
        if gives:
            ticket.permits = call.keeps
            self.seen["part"] += 1
        downgrades = call.shares and ticket.mode != SHARED
        shares = downgrades or (call.shares and (claims or call.moves))
        if shares:
            ticket.ends = min(ticket.ends, self.now + self.longest)
            ticket.mode = SHARED
        if call.detaches:
            return self.detach(ticket, call, outcome, adopted)
        if shares:
            self.expire()
            self.serve(call, outcome, ticket)
        elif call.moves or not claims or gives:
            self.extend(ticket, call)
            if adopted or gives:
                self.serve(call, outcome, ticket)
        if call.moves:
            outcome.about = self.kind(ticket)
        return self.about(ticket, outcome, call)

    def extend(self, ticket, call):
        term = min(call.lease, call.hold or call.lease)
        if call.sets_end:
            ticket.hold = self.now + call.hold if call.hold else 0
            ticket.ends = self.now + term
        else:  # shortens nothing, and the end that was asked for stays
            ticket.ends = self.anew(ticket, term)
            if ticket.hold:
                ticket.ends = min(ticket.ends, ticket.hold)
        self.longest = max(self.longest, call.lease)

    def look(self, call, outcome):
        self.expire()
        blocked = self.serve(call, outcome)
        outcome.waits = blocked and bool(self.granted or self.barred)
        return outcome

    def break_(self, call):
        if self.fence is None:
            return Outcome(GONE)
        outcome, until = Outcome(GONE), call.fence or self.fence
        for ticket in self.granted:
            if ticket.ends > self.now and call.fence in (0, ticket.fence):
                outcome.broken += 1
                outcome.status = OK
                if ticket.detached:
                    self.end_unclean(ticket)
                    outcome.until = until
                else:
                    ticket.flags |= BROKEN
                    outcome.published.append(("B", ticket))
        if outcome.until:
            self.seen["ended"] += 1
            self.adopt()
            self.expire()
            self.serve(dataclasses.replace(call, seen=0), outcome)
        return outcome
