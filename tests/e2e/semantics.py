"""A model of locks: what each request may be answered.

A lock is a queue of tickets in order of arrival; the granted are the longest
compatible prefix. A step is one atomic thing that happens. explore() goes
through all orders of several steps, and yields a model for each end: `out` has
the answers. Nothing here knows of sockets or time. Fences are not foretold:
`grants` has the order of grants, and taught() is told the fences.
"""


# Modes of the holders that a mode goes beside.
JOINS = {"exclusive": (), "shared": ("shared", "upgradable"),
         "upgradable": ("shared",)}


class Ticket:
    """A place in a queue. `lease`: None, "long" (never ends) or "short"."""

    __slots__ = ("actor", "mode", "permits", "granted", "fence", "count", "tag",
                 "delay", "lease", "part", "fresh", "words", "detached")

    def __init__(self, actor, ask):
        self.actor = actor
        self.mode = ask.mode
        self.permits = ask.permits
        self.tag = ask.tag
        self.delay = ask.delay
        self.lease = ask.lease
        self.words = ask.words
        self.part = ask.part  # of a LOCK of several names, not complete
        self.detached = ask.detached  # nobody's, once it is granted
        self.granted = False
        self.fresh = False    # granted to a wait, in these steps
        self.fence = 0
        self.count = 0

    def copy(self):
        twin = Ticket.__new__(Ticket)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin


class Ask:
    """A LOCK of one name."""

    __slots__ = ("mode", "limit", "permits", "tag", "no_wait", "delay",
                 "lease", "part", "words", "times_out", "detached")

    def __init__(self, tag, words="", mode="exclusive", limit=0, permits=1,
                 no_wait=False, delay=0, lease=None, part=False,
                 times_out=False, detached=False):
        self.tag, self.words, self.mode = tag, words, mode
        self.limit, self.permits, self.no_wait = limit, permits, no_wait
        self.delay, self.lease, self.part = delay, lease, part
        self.times_out, self.detached = times_out, detached


class Lock:
    """`barred`: a lock-delay may be running, or be over."""

    __slots__ = ("name", "model", "limit", "queue", "fence", "barred")

    def __init__(self, name, model):
        self.name, self.model = name, model
        self.limit, self.queue, self.fence = 0, [], 0
        self.barred = 0

    def copy(self, model):
        twin = Lock(self.name, model)
        twin.limit, twin.fence, twin.barred = self.limit, self.fence, \
            self.barred
        twin.queue = [ticket.copy() for ticket in self.queue]
        return twin

    def of(self, actor):
        for ticket in self.queue:
            if ticket.actor == actor and not (ticket.detached and
                                              ticket.granted):
                return ticket
        return None

    def detached(self):
        return [ticket for ticket in self.granted() if ticket.detached]

    def granted(self):
        return [ticket for ticket in self.queue if ticket.granted]

    def waiting(self):
        return [ticket for ticket in self.queue if not ticket.granted]

    def compatible(self, ticket):
        """Whether a ticket may join the granted; nobody waits before it."""
        held = self.granted()
        if self.limit:
            return sum(t.permits for t in held) + ticket.permits <= self.limit
        return all(t.mode in JOINS[ticket.mode] for t in held)

    def state(self):
        """The part of it that makes a difference from now on."""
        return (self.name, self.limit if self.queue else 0, self.barred,
                tuple(sorted((t.actor, t.mode, t.permits, t.count, t.part,
                              t.detached) for t in self.queue if t.granted)),
                tuple((t.actor, t.mode, t.permits, t.detached)
                      for t in self.queue if not t.granted))


class Several:
    """A LOCK of several names that is under way; never changed."""

    __slots__ = ("tag", "names", "got", "mode", "no_wait", "words")

    def __init__(self, tag, names, got, mode, no_wait, words):
        self.tag, self.names, self.got = tag, names, got
        self.mode, self.no_wait, self.words = mode, no_wait, words

    def next(self):
        return Several(self.tag, self.names, self.got + 1, self.mode,
                       self.no_wait, self.words)


class Model:
    """Some locks, by name, and the requests of several names.

    out       (client, tag, word, detail) of the lines that are to come
    grants    (lock, actor, tag) in order
    steps     what is still to happen
    touched   names of locks that somebody joined or left
    freed     names of locks that nobody held for a moment
    """

    def __init__(self, names=()):
        self.locks = {name: Lock(name, self) for name in names}
        self.several = {}
        self.clear()

    def settled(self):
        """All that was foretold has come."""
        for name in self.touched:
            for ticket in self.lock(name).queue:
                ticket.fresh = False
        self.clear()

    def clear(self):
        self.out, self.grants, self.steps = [], [], []
        self.touched, self.freed = set(), set()

    def copy(self):
        twin = Model()
        twin.locks = dict(self.locks)
        twin.several = dict(self.several)
        twin.out, twin.grants = list(self.out), list(self.grants)
        twin.steps, twin.touched = list(self.steps), set(self.touched)
        twin.freed = set(self.freed)
        return twin

    def lock(self, name):
        """A lock to be changed; another model keeps its own."""
        lock = self.locks[name]
        if lock.model is not self:
            lock = self.locks[name] = lock.copy(self)
        return lock

    def state(self):
        return (tuple(lock.state() for lock in self.locks.values()),
                tuple((actor, s.got) for actor, s in self.several.items()))

    def say(self, actor, tag, word, detail=None):
        self.out.append((actor[0], tag, word, detail))

    def holds(self, client):
        """(lock, ticket) of what the client knows that it holds."""
        return [(lock, ticket) for lock in self.locks.values()
                for ticket in lock.queue if ticket.granted and
                not ticket.part and not ticket.detached and
                ticket.actor[0] == client]

    # grants

    def grant(self, lock, ticket):
        ticket.granted, ticket.count = True, 1
        lock.barred = 0
        self.grants.append((lock.name, ticket.actor, ticket.tag))
        self.touched.add(lock.name)
        if ticket.part:
            self.steps.append(("next", ticket.actor))
            return
        self.say(ticket.actor, ticket.tag, "OK", 1)
        if ticket.lease == "short":
            self.steps.append(("expire", lock.name, ticket.actor))

    def serve(self, lock):
        """Extends the grants. A lock is free, and may be seen so, between the
        end of a lock-delay and the next grant."""
        between = lock.barred and not lock.granted()
        self.extend(lock)
        if between or not lock.granted():
            self.freed.add(lock.name)

    def extend(self, lock):
        for ticket in lock.queue:
            if ticket.granted:
                continue
            if not lock.compatible(ticket):
                break
            ticket.fresh = True
            self.grant(lock, ticket)

    def strike(self, lock, ticket, unclean=False):
        lock.queue.remove(ticket)
        self.touched.add(lock.name)
        if unclean and ticket.granted and ticket.delay:
            lock.barred = max(lock.barred, ticket.delay)

    # steps: each returns nothing; what follows is in self.steps

    def step_lock(self, name, actor, ask, barred=False):
        lock = self.lock(name)
        own = lock.of(actor)
        if own is not None:
            self.reenter(lock, own, ask)
            return
        if lock.queue and lock.limit != ask.limit:
            self.refuse(actor, ask, "CONFLICT")
            return
        if not lock.queue:
            lock.limit = ask.limit
        ticket = Ticket(actor, ask)
        if not lock.waiting() and lock.compatible(ticket) and not barred:
            lock.queue.append(ticket)
            self.grant(lock, ticket)
        elif ask.no_wait:
            self.refuse(actor, ask, "BUSY")
        else:
            lock.queue.append(ticket)
            self.touched.add(name)
            if not ask.part and not ask.times_out:
                self.say(actor, ask.tag, "QUEUED", len(lock.waiting()))
            if barred:
                self.steps.append(("unbar", name))
            if ask.times_out:
                self.steps.append(("timeout", name, actor))

    def step_unbar(self, name):
        lock = self.lock(name)
        lock.barred = 0
        self.serve(lock)

    def reenter(self, lock, own, ask):
        if not own.granted:
            self.say(own.actor, ask.tag, "ERR", "BUSY")
            return
        if ask.detached or lock.limit != ask.limit or \
                own.permits != ask.permits or (
                    ask.mode == "upgradable" != own.mode or
                    own.mode == "shared" != ask.mode):
            self.refuse(own.actor, ask, "CONFLICT")
            return
        own.count += 1
        self.say(own.actor, ask.tag, "OK", own.count)
        self.grants.append((lock.name, own.actor, ask.tag))
        if own.mode != ask.mode:  # it gives up what it had alone
            own.mode = "shared"
            self.touched.add(lock.name)
            self.serve(lock)

    def refuse(self, actor, ask, code):
        if ask.part:
            self.roll_back(actor, code)
        else:
            self.say(actor, ask.tag, "ERR", code)

    def step_unlock(self, name, actor, tag, fence=None, permits=0, delay=0):
        """`fence`: "stale" or None. `permits`: so many; 0: the hold."""
        lock = self.lock(name)
        ticket = lock.of(actor)
        if ticket is None or not ticket.granted or ticket.part:
            self.say(actor, tag, "ERR", "NOTHELD")
        elif fence == "stale":
            self.say(actor, tag, "ERR", "STALE")
        elif permits and (ticket.count > 1 or not lock.limit or
                          permits > ticket.permits):
            self.say(actor, tag, "ERR", "CONFLICT")
        elif permits and permits < ticket.permits:
            ticket.permits -= permits
            self.touched.add(name)
            self.say(actor, tag, "OK", 1)
            self.serve(lock)
        elif ticket.count > 1:
            ticket.count -= 1
            self.say(actor, tag, "OK", ticket.count)
        else:
            self.strike(lock, ticket)
            lock.barred = max(lock.barred, delay)
            self.say(actor, tag, "OK", 0)
            self.serve(lock)

    def step_give_back(self, name, client, tag, fence):
        """UNLOCK with detached=1."""
        lock = self.lock(name)
        for ticket in lock.granted():
            if ticket.fence != fence:
                continue
            if not ticket.detached:
                self.out.append((client, tag, "ERR", "CONFLICT"))
                return
            self.strike(lock, ticket)
            self.out.append((client, tag, "OK", 0))
            self.serve(lock)
            return
        self.out.append((client, tag, "ERR", "NOTHELD"))

    def step_cancel(self, client, target, tag, late=False):
        """`late`: where it was granted a moment ago, that is kept. "taken":
        the CANCEL came while a detached hold was being made."""
        for actor, several in self.several.items():
            if actor[0] == client and several.tag == target:
                self.leave_several(actor)
                self.say(actor, target, "ERR", "CANCELLED")
                self.out.append((client, tag, "OK", None))
                return
        for name in self.locks:
            for ticket in self.locks[name].queue:
                if ticket.actor[0] != client or ticket.tag != target or \
                        (ticket.granted and not ticket.fresh):
                    continue
                if ticket.granted and late:
                    if late == "taken":
                        self.out.append((client, tag, "OK", None))
                        return
                    break
                self.cancel_ticket(name, ticket)
                self.out.append((client, tag, "OK", None))
                return
        self.out.append((client, tag, "ERR", "BADREQ"))

    def cancel_ticket(self, name, found):
        lock = self.lock(name)
        actor = found.actor
        ticket = next(t for t in lock.queue
                      if (t.actor, t.tag) == (actor, found.tag))
        if ticket.granted:  # it did not get its word of that
            self.out.remove((actor[0], ticket.tag, "OK", 1))
            self.grants.remove((name, actor, ticket.tag))
        self.strike(lock, ticket)
        self.say(actor, ticket.tag, "ERR", "CANCELLED")
        self.serve(lock)

    def step_timeout(self, name, actor):
        lock = self.lock(name)
        ticket = lock.of(actor)
        if ticket is not None and not ticket.granted:
            self.strike(lock, ticket)
            self.say(actor, ticket.tag, "ERR", "TIMEOUT")
            self.serve(lock)

    def step_expire(self, name, actor):
        lock = self.lock(name)
        ticket = lock.of(actor)
        self.strike(lock, ticket, True)
        self.say(actor, "*", "LOST", (name, actor[1], "expired"))
        self.serve(lock)

    def step_break(self, name, client, tag):
        lock = self.lock(name)
        held = lock.granted()
        self.out.append((client, tag, "OK", len(held)))
        for ticket in held:
            self.strike(lock, ticket, True)
            if not ticket.detached:
                self.say(ticket.actor, "*", "LOST",
                         (name, ticket.actor[1], "broken"))
        self.serve(lock)

    def step_resize(self, name, client, tag, limit):
        lock = self.lock(name)
        if not lock.limit:
            self.out.append((client, tag, "ERR", "CONFLICT"))
            return
        lock.limit = limit
        for ticket in lock.waiting():
            if ticket.permits > limit:
                self.strike(lock, ticket)
                self.say(ticket.actor, ticket.tag, "ERR", "CONFLICT")
        self.out.append((client, tag, "OK", None))
        self.serve(lock)

    def step_gone(self, client, unclean):
        """A session ends."""
        for actor in [a for a in self.several if a[0] == client]:
            del self.several[actor]
        names = []
        for name in self.locks:
            if any(t.actor[0] == client for t in self.locks[name].queue):
                lock = self.lock(name)
                names.append(name)
                for ticket in list(lock.queue):
                    if ticket.actor[0] == client and not (
                            ticket.detached and ticket.granted):
                        self.strike(lock, ticket, unclean)
        for name in names:
            self.serve(self.lock(name))

    # several names

    def step_several(self, actor, several):
        self.several[actor] = several
        self.several_ask(actor)

    def several_ask(self, actor):
        several = self.several[actor]
        self.step_lock(several.names[several.got], actor,
                       Ask(several.tag, mode=several.mode, part=True,
                           no_wait=several.no_wait, words=several.words))

    def step_next(self, actor):
        several = self.several.get(actor)
        if several is None:
            return
        several = self.several[actor] = several.next()
        if several.got < len(several.names):
            self.several_ask(actor)
            return
        for name in several.names:
            self.lock(name).of(actor).part = False
        del self.several[actor]
        self.say(actor, several.tag, "OK", 1)

    def leave_several(self, actor):
        several = self.several.pop(actor)
        for name in several.names[:several.got + 1]:
            lock = self.lock(name)
            ticket = lock.of(actor)
            if ticket is not None:
                self.strike(lock, ticket)
                self.serve(lock)

    def roll_back(self, actor, code):
        self.say(actor, self.several[actor].tag, "ERR", code)
        self.leave_several(actor)

    # after a match

    def taught(self, fences):
        """The fault of the fences that were told, or None. `fences`:
        {(client, tag): {lock: fence}}."""
        for name, actor, tag in self.grants:
            lock = self.lock(name)
            ticket = next((t for t in lock.detached()
                           if (t.actor, t.tag) == (actor, tag)),
                          lock.of(actor))
            fence = fences.get((actor[0], tag), {}).get(name)
            if fence is None:
                continue  # of several names, and not complete yet; or over
            if ticket is not None and ticket.fence:
                if ticket.fence != fence:
                    return f"{name}: fence {fence} of a re-entry into " \
                        f"{ticket.fence}"
                continue
            if fence <= lock.fence:
                return f"{name}: fence {fence} after {lock.fence}"
            lock.fence = fence
            if ticket is not None:
                ticket.fence = fence
        for (client, tag), told in fences.items():
            for name, fence in told.items():
                lock = self.lock(name)
                lock.fence = max(lock.fence, fence)
                for ticket in lock.queue:
                    if ticket.tag == tag and ticket.actor[0] == client:
                        ticket.fence = fence
        return None


def variants(model, step):
    """The ways in which a step may go."""
    if step[0] == "lock" and model.locks[step[1]].barred and \
            len(step) == 4 and model.locks[step[1]].of(step[2]) is None:
        return [step, (*step, True)]
    if step[0] == "cancel" and len(step) == 4:
        for lock in model.locks.values():
            for ticket in lock.queue:
                if ticket.fresh and ticket.granted and \
                        (ticket.actor[0], ticket.tag) == step[1:3]:
                    taken = [(*step, "taken")] if ticket.detached else []
                    return [step, (*step, True), *taken]
    return [step]


def explore(model):
    """All that may come of a model's steps, in any order of them."""
    while len(model.steps) == 1:
        ways = variants(model, model.steps[0])
        if len(ways) > 1:
            break
        model.steps = []
        getattr(model, f"step_{ways[0][0]}")(*ways[0][1:])
    if not model.steps:
        yield model
        return
    for number, step in enumerate(model.steps):
        for way in variants(model, step):
            twin = model.copy()
            twin.steps.pop(number)
            getattr(twin, f"step_{way[0]}")(*way[1:])
            yield from explore(twin)
