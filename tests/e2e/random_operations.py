"""Random operations of all kinds, each answer held against a model.

Lanes (random_lane.py) run side by side on the same brokers. Each sends one to
three operations at once, and waits until all that follows has come. An owner
takes locks in the order of their names: ERR DEADLOCK is always wrong.
"""

import struct
import time

from harness import HEAD_AT, wait_until
from harness.crowd import Crowd
from random_lane import PATIENCE, Await, Lane, Members, Violation
from semantics import Ask, Several

SETTINGS = {"lease.default": "10s"}
KEEP = "5s"
SHORT_LEASE = 0.1  # s
SHORT_WAIT = 0.02
SHORT_KEEP = 0.03
OWNERS = ("", "b")
KINDS = (
    ("lock", 30), ("detached", 4), ("unlock", 34), ("give_back", 4),
    ("prolong", 1), ("cancel", 5), ("race", 12), ("several", 4),
    ("show", 3), ("held", 2), ("ping", 1), ("renew", 2), ("claim", 1),
    ("watch", 1.5), ("unwatch", 1), ("await", 2), ("wrong", 1), ("break", 0.8),
    ("resume", 0.8), ("die", 0.4), ("quit", 0.2), ("kill", 0.1),
    ("abandon", 0.1), ("time_out", 0.3), ("lapse", 0.1), ("delayed", 0.3),
    ("resize", 1.5), ("upgrade", 3), ("tree", 1),
)
NODES = ("", "/a", "/b", "/a/1", "/a/1/x")  # of a tree with a root


def tree_answer(held, actor, node, mode):
    """The answer to a LOCK in a tree; None: it is no matter of a tree, or two
    answers are right. `held`: (actor, node, mode), in the order of grants."""
    codes = set()
    for other, there, other_mode in held:
        meets = there == node or there.startswith(node + "/") or \
            node.startswith(there + "/")
        if other == actor and (there == node or
                               (mode, other_mode) == ("exclusive", "shared")):
            return None  # its intention may be a shared one
        if other == actor and meets:
            codes.add("CONFLICT")
        elif meets and "exclusive" in (mode, other_mode):
            codes.add("TIMEOUT")
    return (codes or {"OK"}).pop() if len(codes) < 2 else None


class Player(Lane):
    """A lane that does `operations` of them."""

    def __init__(self, operations, *arguments):
        super().__init__(*arguments)
        self.left = operations
        self.done = {}  # kind: how often
        self.weights = [weight for _, weight in KINDS]

    # choosing

    def actors(self):
        return [(client.number, owner) for client in self.clients
                for owner in OWNERS]

    def waits_of(self, actor):
        """The LOCK that an owner waits for: (tag, words), or None."""
        several = self.model.several.get(actor)
        if several is not None:
            return several.tag, several.words
        for lock in self.model.locks.values():
            ticket = lock.of(actor)
            if ticket is not None and not ticket.granted:
                return ticket.tag, ticket.words
        return None

    def held_of(self, actor):
        return [name for name in self.names
                if (ticket := self.model.locks[name].of(actor)) is not None
                and ticket.granted and not ticket.part]

    def lockable(self, actor):
        """Names that it may ask for without ever being in a circle."""
        if self.waits_of(actor):
            return []
        held = self.held_of(actor)
        after = max((self.names.index(name) for name in held), default=-1)
        return held + self.names[after + 1:]

    def kind_of(self, name):
        """The words that this lock is mostly asked for with."""
        lock = self.model.locks[name]
        if self.random.random() < 0.06:
            # No lock has 7 or 8: a re-entry may name a limit of before RESIZE.
            limit = self.random.choice((0, 7, 8) if lock.queue else (0, 3, 5))
        elif lock.queue:
            limit = lock.limit
        else:
            limit = 4 if self.names.index(name) % 3 == 2 else 0
        if limit:
            return {"limit": limit,
                    "permits": self.random.choice((1, 1, min(2, limit), limit))}
        return {"mode": self.random.choice(
            ("exclusive", "shared", "shared", "upgradable"))}

    def own_kind(self, name, actor):
        """Mostly what a re-entry is to ask for."""
        lock = self.model.locks[name]
        ticket = lock.of(actor)
        if ticket is None or self.random.random() < 0.15 or \
                0 < lock.limit < ticket.permits:  # by a RESIZE
            kind = self.kind_of(name)
            if ticket and ticket.mode in ("shared", "upgradable") and \
                    kind.get("mode") == "exclusive":
                kind["mode"] = "shared"  # that would be an upgrade
            return kind
        if lock.limit:
            return {"limit": lock.limit, "permits": ticket.permits}
        return {"mode": ticket.mode}

    def new_lock(self, actor, name, **more):
        """(line without its tag, step) of a LOCK."""
        client = self.clients[actor[0]]
        kind = self.own_kind(name, actor)
        if more.get("detached") and kind.get("mode") == "upgradable":
            kind["mode"] = "shared"  # such a hold cannot be detached
        words = f"LOCK {name}" + more.pop("lasting", "")
        if not more.get("times_out"):
            words += " progress=1"
        for key, value in kind.items():
            if (key, value) != ("mode", "exclusive"):
                words += f" {key}={value}"
        if actor[1]:
            words += f" owner={actor[1]}"
        no_wait = more.pop("no_wait", self.random.random() < 0.2)
        suffix = more.pop("suffix", "") + (" wait=0" if no_wait else "")
        tag = client.next_tag()
        self.asked[client.number, tag] = [name]
        ask = Ask(tag, words, no_wait=no_wait, **kind, **more)
        client.send(f"{tag} {words}{suffix}")
        return ("lock", name, actor, ask)

    # operations: each returns whether there was something to do

    def act(self, steps, what):
        self.model.steps += steps
        yield from self.foretold(what)

    def some(self, choices):
        return self.random.choice(choices) if choices else None

    def step_lock(self, busy=(), detached=False):
        actor = self.some([a for a in self.actors() if a not in busy and
                           self.lockable(a)])
        if actor is None:
            return None, None
        more = {}
        if self.random.random() < 0.05:
            more = {"lease": "long", "lasting": " lease=10m"}
        name = self.random.choice(self.lockable(actor))
        if self.model.locks[name].of(actor):
            more = {}
        if detached:
            more = {"detached": True, "lasting": " lease=10m detached=1"}
        return actor, self.new_lock(actor, name, **more)

    def step_unlock(self, busy=()):
        actor = self.some([a for a in self.actors() if a not in busy and
                           self.held_of(a)])
        if actor is None:
            return None, None
        name = self.random.choice(self.held_of(actor))
        client = self.clients[actor[0]]
        tag = client.next_tag()
        line = f"{tag} UNLOCK {name}"
        if actor[1]:
            line += f" owner={actor[1]}"
        fence, draw = None, self.random.random()
        if draw < 0.3:
            line += f" fence={self.model.locks[name].of(actor).fence}"
        elif draw < 0.35:
            fence = "stale"
            line += f" fence={self.model.locks[name].of(actor).fence - 1}"
        permits = 0
        if self.random.random() < (0.4 if self.model.locks[name].limit
                                   else 0.02):
            permits = self.random.choice((1, 1, 2, 5))
            line += f" permits={permits}"
        delay = 0
        # In a race nobody knows whether it came after a grant.
        held = self.model.locks[name].granted()
        if not permits and not fence and busy == () and len(held) == 1 and \
                held[0].count == 1 and self.random.random() < 0.1:
            delay = self.random.choice((20, 60))
            line += f" delay={delay}ms"
            self.not_before[name] = time.monotonic() + delay / 1000
        client.send(line)
        return actor, ("unlock", name, actor, tag, fence, permits, delay)

    def step_give_back(self, busy=()):
        """By any client: mostly a detached hold, or what a session holds."""
        held = [(lock, t) for lock in self.model.locks.values()
                for t in lock.granted() if not t.part and t.fence and
                (lock.name, t.fence) not in busy and
                (t.detached or self.random.random() < 0.05)]
        if not held:
            return None, None
        lock, ticket = self.random.choice(held)
        client = self.random.choice(self.clients)
        tag, fence = client.next_tag(), ticket.fence
        if self.random.random() < 0.1:
            fence = 1
        client.send(f"{tag} UNLOCK {lock.name} fence={fence} detached=1")
        return (lock.name, fence), ("give_back", lock.name, client.number,
                                    tag, fence)

    def step_cancel(self, busy=()):
        actor = self.some([a for a in self.actors() if a not in busy and
                           self.waits_of(a)])
        if actor is None:
            return None, None
        client = self.clients[actor[0]]
        tag, target = client.next_tag(), self.waits_of(actor)[0]
        client.send(f"{tag} CANCEL {target}")
        return actor, ("cancel", client.number, target, tag)

    def do_step(self, choose):
        _, step = choose()
        if step is None:
            return False
        yield from self.act([step], step)
        if self.model.several:
            yield from self.settle_several()
        return True

    def do_lock(self):
        return self.do_step(self.step_lock)

    def do_unlock(self):
        return self.do_step(self.step_unlock)

    def do_detached(self):
        return self.do_step(lambda: self.step_lock(detached=True))

    def do_give_back(self):
        return self.do_step(self.step_give_back)

    def do_prolong(self):
        found = self.some([(lock, t) for lock in self.model.locks.values()
                           for t in lock.detached()])
        if found is None:
            return False
        lock, ticket = found
        yield from self.simple(
            self.random.choice(self.clients), f"RENEW {lock.name} "
            f"fence={ticket.fence} lease=20m detached=1", "OK")
        return True

    def do_cancel(self):
        """The answer may come before the ticket has gone."""
        before = {name: len(self.model.locks[name].queue)
                  for name in self.names}
        done = yield from self.do_step(self.step_cancel)
        yield from self.settle(
            [name for name, count in before.items()
             if count != len(self.model.locks[name].queue)], "CANCEL")
        return done

    def settle_several(self):
        """The steps of a LOCK of several names are not told."""
        names = {name for several in self.model.several.values()
                 for name in several.names}
        yield from self.settle(sorted(names), "several names")

    def do_race(self):
        """Two or three at once; where one must follow another, only that."""
        if self.model.several:
            return False
        busy, steps = set(), []
        for _ in range(self.random.choice((2, 2, 3))):
            choose = self.random.choice((
                self.step_lock, self.step_lock, self.step_unlock,
                self.step_unlock, self.step_cancel, self.step_give_back))
            actor, step = choose(busy)
            if step is not None:
                busy.add(actor)
                steps.append(step)
        if not steps:
            return False
        self.left -= len(steps) - 1
        names = [] if all(step[0] != "cancel" for step in steps) else [
            lock.name for lock in self.model.locks.values() if lock.waiting()]
        yield from self.act(steps, steps)
        yield from self.settle(names, steps)
        return True

    def do_several(self):
        actor = self.some([a for a in self.actors()
                           if not self.waits_of(a)])
        if actor is None:
            return False
        held = self.held_of(actor)
        names = [name for name in self.lockable(actor) if name not in held and
                 not self.model.locks[name].barred]
        if len(names) < 2:
            return False
        names = self.random.sample(names, self.random.randint(
            2, min(3, len(names))))
        client = self.clients[actor[0]]
        mode = self.random.choice(("exclusive", "shared"))
        words = f"LOCK {' '.join(names)} mode={mode}"
        if actor[1]:
            words += f" owner={actor[1]}"
        no_wait = self.random.random() < 0.3
        tag = client.next_tag()
        self.asked[client.number, tag] = names
        client.send(f"{tag} {words}{' wait=0' if no_wait else ''}")
        yield from self.act([("several", actor, Several(
            tag, tuple(sorted(names)), 0, mode, no_wait, words))], words)
        yield from self.settle(names, words)
        return True

    def do_show(self):
        name = self.random.choice(self.names)
        yield from self.settle([name], "SHOW")
        return True

    def do_held(self):
        client = self.random.choice(self.clients)
        items = yield from self.simple(client, "HELD")
        told = sorted((item["name"], item.get("owner", ""),
                       int(item["fence"]), int(item["count"]),
                       item.get("mode", "exclusive"),
                       int(item.get("permits", 1))) for item in items)
        wanted = sorted((lock.name, t.actor[1], t.fence, t.count, t.mode,
                         t.permits) for lock, t in
                        self.model.holds(client.number))
        if told != wanted:
            self.fail(f"HELD tells {told}, and not {wanted}")
        return True

    def do_ping(self):
        yield from self.simple(self.random.choice(self.clients), "PING")
        return True

    def hold_words(self, lock, ticket, fence=None):
        owner = f" owner={ticket.actor[1]}" if ticket.actor[1] else ""
        return f"{lock.name} fence={fence or ticket.fence}{owner}"

    def a_hold(self):
        return self.some([(lock, t) for lock in self.model.locks.values()
                          for t in lock.queue if t.granted and not t.part and
                          not t.detached])

    def do_renew(self):
        found = self.a_hold()
        if found is None:
            return False
        yield from self.simple(
            self.clients[found[1].actor[0]],
            f"RENEW {self.hold_words(*found)} lease=10m", "OK")
        return True

    def do_upgrade(self):
        """Of a hold that shares, and back. `wait=0`: others see no wait."""
        watched = {name for client in self.clients for name in client.watches}
        found = self.some([
            (lock, t) for lock in self.model.locks.values()
            for t in lock.granted() if t.mode in ("shared", "upgradable") and
            not (lock.limit or lock.barred or t.part or t.detached or
                 lock.name in watched or self.waits_of(t.actor))])
        if found is None:
            return False
        lock, ticket = found
        client = self.clients[ticket.actor[0]]
        owner = f" owner={ticket.actor[1]}" if ticket.actor[1] else ""
        tag = client.next_tag()
        self.asked[client.number, tag] = [lock.name]
        client.send(f"{tag} LOCK {lock.name} wait=0{owner}")
        answer = (client.number, tag, "OK", ticket.count + 1)
        if len(lock.granted()) > 1:
            answer = (client.number, tag, "ERR", "CONFLICT"
                      if ticket.mode == "shared" else "BUSY")
        yield from self.until(lambda: self.seen, answer)
        if self.seen != [answer]:
            self.fail(f"an upgrade: wanted {answer}, got {self.seen}")
        self.seen.clear()
        if answer[2] == "ERR":
            return True
        fence = self.fences.pop((client.number, tag))[lock.name]
        if fence <= lock.fence:
            self.fail(f"{lock.name}: fence {fence} after {lock.fence}")
        self.model.lock(lock.name).fence = fence
        yield from self.simple(
            client, f"UNLOCK {lock.name} fence={fence}{owner}", ticket.count)
        return True

    def do_claim(self):
        """Of a hold that it has, or of one that was never there."""
        found = self.a_hold()
        if found is None:
            return False
        lock, ticket = found
        client = self.clients[ticket.actor[0]]
        known = "OK" if client.gen > 1 else "BADREQ"
        if known == "OK" and self.random.random() < 0.5:
            yield from self.simple(client, "CLAIM " + self.hold_words(
                lock, ticket, ticket.fence - 1), "LOST")
        else:
            yield from self.simple(
                client, f"CLAIM {self.hold_words(lock, ticket)} "
                f"count={ticket.count}", known)
        return True

    def do_wrong(self):
        """Requests that are refused whatever is held."""
        client = self.random.choice(self.clients)
        name = self.random.choice(self.names)
        line, code = self.random.choice((
            (f"UNLOCK {name} owner=nobody", "NOTHELD"),
            (f"LOCK {name} limit=2 permits=3", "BADREQ"),
            (f"LOCK {name} wait=never", "BADREQ"),
            (f"RENEW {name} lease=1s owner=nobody", "NOTHELD"),
            (f"CLAIM {name} fence=0", "BADREQ"),
            ("UNWATCH nothing", "NOTHELD"), ("CANCEL 1x", "BADREQ"),
            ("FROBNICATE", "UNKNOWN"), (f"KILL {'0' * 32}", "NOTHELD")))
        yield from self.simple(client, line, code)
        return True

    def do_watch(self):
        client = self.random.choice(self.clients)
        names = [n for n in self.names if n not in client.watches]
        if not names or len(client.watches) > 1:
            return False
        yield from self.watch(client, self.random.choice(names))
        return True

    def watch(self, client, name):
        members = self.random.random() < 0.5
        client.watches[name] = Members() if members else None
        yield from self.simple(
            client, f"WATCH {name} members=1" if members else f"WATCH {name}")
        yield from self.check_watches({name})

    def do_unwatch(self):
        client = self.some([c for c in self.clients if c.watches])
        if client is None:
            return False
        name = self.random.choice(sorted(client.watches))
        yield from self.simple(client, f"UNWATCH {name}")
        del client.watches[name]
        return True

    def do_await(self):
        """Looks once or for a moment, or waits, maybe until a CANCEL."""
        client = self.random.choice(self.clients)
        lock = self.model.locks[self.random.choice(self.names)]
        if lock.barred:
            return False
        line = f"AWAIT {lock.name}"
        ends = self.random.random() < 0.4
        if ends or not lock.granted():
            wait, code = self.random.choice(
                ((" wait=0", "BUSY"), (" wait=20ms", "TIMEOUT")))
            yield from self.simple(client, line + wait,
                                   code if lock.granted() else "OK")
            return True
        tag = client.next_tag()
        client.awaits[tag] = each = Await(lock)
        client.send(f"{tag} {line}")
        if self.random.random() < 0.2:
            yield from self.simple(client, f"CANCEL {tag}")
            yield from self.until(lambda: each.answer == "CANCELLED",
                                  f"{line}, cancelled")
            del client.awaits[tag]
        return True

    def do_tree(self):
        """Wholes and parts of a tree of its own, until all are given back."""
        actors = [a for a in self.actors() if not self.waits_of(a)]
        root = self.names[0] + "-tree"
        held = []
        for _ in range(self.random.randint(2, 5) if actors else 0):
            actor, node = self.random.choice(actors), self.random.choice(NODES)
            mode = self.random.choice(("exclusive", "shared"))
            code = tree_answer(held, actor, node, mode)
            if code is None:
                continue
            wait = "200ms" if code == "TIMEOUT" else "10s"
            owner = f" owner={actor[1]}" if actor[1] else ""
            yield from self.simple(
                self.clients[actor[0]], f"LOCK {root}{node} tree=1 mode={mode}"
                f" wait={wait}{owner}", code)
            if code == "OK":
                held.append((actor, node, mode))
        self.random.shuffle(held)
        for actor, node, _ in held:
            owner = f" owner={actor[1]}" if actor[1] else ""
            yield from self.simple(self.clients[actor[0]],
                                   f"UNLOCK {root}{node}{owner}")
        return bool(actors)

    def do_break(self):
        names = [name for name in self.names if not any(
            t.part for t in self.model.locks[name].queue)]
        if not names:
            return False
        yield from self.break_lock(self.random.choice(names))
        return True

    def break_lock(self, name):
        client = self.random.choice(self.clients)
        tag = client.next_tag()
        self.delay_begins([name])
        client.send(f"{tag} BREAK {name}")
        yield from self.act([("break", name, client.number, tag)], "BREAK")
        yield from self.settle([name], "BREAK")

    def do_resize(self):
        """Of a lock that is held, mostly a semaphore."""
        held = [name for name in self.names
                if self.model.locks[name].granted()]
        some = [name for name in held if self.model.locks[name].limit]
        name = self.some(some if self.random.random() < 0.9 else held)
        if name is None:
            return False
        client = self.random.choice(self.clients)
        tag, limit = client.next_tag(), self.random.choice((1, 2, 3, 4, 6))
        client.send(f"{tag} RESIZE {name} limit={limit}")
        yield from self.act([("resize", name, client.number, tag, limit)],
                            "RESIZE")
        yield from self.settle([name], "RESIZE")
        return True

    def do_time_out(self):
        """A wait that ends by itself, or is granted at once."""
        actor = self.some([a for a in self.actors() if self.lockable(a)])
        if actor is None:
            return False
        name = self.random.choice(self.lockable(actor))
        if self.model.locks[name].barred or self.model.locks[name].of(actor):
            return False
        step = self.new_lock(actor, name, no_wait=False, times_out=True,
                             suffix=f" wait={int(SHORT_WAIT * 1000)}ms")
        yield from self.act([step], "a wait that ends")
        yield from self.settle([name], "a wait that has ended")
        return True

    def alone(self, name):
        """Whether a LOCK of it is granted at once."""
        lock = self.model.locks[name]
        return not lock.queue and not lock.barred

    def do_lapse(self):
        """A lease that ends, maybe with a lock-delay."""
        return self.unclean_lock(True)

    def do_delayed(self):
        """A hold with a lock-delay, mostly broken while another waits."""
        name = yield from self.unclean_lock(False)
        if not name or self.random.random() < 0.3:
            return name
        other = self.some([a for a in self.actors()
                           if name in self.lockable(a) and
                           not self.model.locks[name].of(a)])
        if other is not None:
            yield from self.act([self.new_lock(other, name, no_wait=False)],
                                "LOCK")
            yield from self.break_lock(name)
        return True

    def unclean_lock(self, short):
        found = [(a, n) for a in self.actors() for n in self.lockable(a)
                 if self.alone(n)]
        if not found:
            return False
        actor, name = self.random.choice(found)
        more, suffix = {}, ""
        if not short or self.random.random() < 0.5:
            more["delay"] = self.random.choice((20, 60))
            suffix = f" delay={more['delay']}ms"
        if short:
            more["lease"] = "short"
            suffix += f" lease={int(SHORT_LEASE * 1000)}ms"
            self.not_before.pop(name, None)
        sent = time.monotonic()
        step = self.new_lock(actor, name, no_wait=False, suffix=suffix, **more)
        yield from self.act([step], "LOCK" + suffix)
        if short:  # a little later for others than for its client
            yield from self.settle([name], "a lease that has ended")
        # Beside a shared hold others may come as long as it stands for them.
        ask = step[3]
        if short and "delay" in more and ask.mode == "exclusive" and \
                not ask.limit:
            self.not_before[name] = sent + SHORT_LEASE * 0.98 + \
                more["delay"] / 1000
        return name

    def delay_begins(self, names, client=None):
        """Holds of these, or of that client, may end from now on. Permits of
        another holder may be granted before the one with the delay ends."""
        now = time.monotonic()
        for name in names:
            lock = self.model.locks[name]
            held = lock.granted()
            delays = [t.delay for t in held if t.delay and
                      client in (None, t.actor[0])]
            if delays and (len(held) == 1 or not lock.limit):
                self.not_before[name] = now + max(delays) / 1000

    # sessions

    def connect(self, client, hello=""):
        address = self.random.choice(self.addresses)
        client.peer = self.crowd.connect(address)
        client.send(f"h HELLO name={client.name} keep={KEEP}{hello}"
                    .replace("h ", "0h ", 1))

        def greeted():
            for seen in self.seen:
                if seen[:2] == (client.number, "0h"):
                    return seen
            return None
        seen = yield from self.until(greeted, "HELLO")
        self.seen.remove(seen)
        if seen[2] != "OK":
            self.fail(f"HELLO{hello}: {seen}")

    def session_of(self, client):
        """From the greeting, which is among what was said last."""
        for line in reversed(self.said):
            if line.startswith(f"{client.number}< * HELLO "):
                return line.partition("session=")[2].split(" ")[0]
        return self.fail("no greeting")

    def begin(self, client):
        client.watches, client.awaits = {}, {}
        client.gen = 1
        yield from self.connect(client)
        client.session = self.session_of(client)

    def touched_by(self, client):
        return [name for name in self.names if any(
            t.actor[0] == client.number
            for t in self.model.locks[name].queue)]

    def gone(self, client, unclean, what):
        """Its session is over; another one begins."""
        names = self.touched_by(client)
        self.forget_watches(client)
        yield from self.act([("gone", client.number, unclean)], what)
        client.peer = None
        yield from self.begin(client)
        yield from self.settle(names, what)
        if self.model.several:
            yield from self.settle_several()

    def do_die(self):
        client = self.random.choice(self.clients)
        yield from self.simple(client, "HELLO keep=0")
        return (yield from self.drop(client, "death"))

    def do_abandon(self):
        """A session that is kept, and for which nobody comes."""
        client = self.random.choice(self.clients)
        yield from self.simple(
            client, f"HELLO keep={int(SHORT_KEEP * 1000)}ms")
        return (yield from self.drop(client, "abandoned"))

    def drop(self, client, what):
        self.delay_begins(self.names, client.number)
        self.said.append(f"{client.number}> (closes)")
        client.peer.close()
        yield from self.gone(client, True, what)
        return True

    def forget_watches(self, client):
        client.watches = {}
        for each in client.awaits.values():
            each.over = True

    def do_kill(self):
        """By another one at the same broker."""
        victim = self.random.choice(self.clients)
        killer = self.some([
            c for c in self.clients if c is not victim and
            c.peer.address == victim.peer.address])
        if killer is None:
            return False
        self.delay_begins(self.names, victim.number)
        tag = killer.next_tag()
        self.model.out += [(victim.number, "*", "BYE", "killed"),
                           (killer.number, tag, "OK", None)]
        killer.send(f"{tag} KILL {victim.session}")
        yield from self.gone(victim, True, "KILL")
        return True

    def waits_of_client(self, client):
        return [wait[0] for owner in OWNERS
                if (wait := self.waits_of((client.number, owner)))]

    def do_quit(self):
        client = self.random.choice(self.clients)
        tag = client.next_tag()
        for wait in self.waits_of_client(client):
            self.model.out.append((client.number, wait, "ERR", "CANCELLED"))
        self.model.out += [(client.number, tag, "OK", None),
                           (client.number, "*", "BYE", "quit")]
        client.send(f"{tag} QUIT")
        yield from self.gone(client, False, "QUIT")
        return True

    def do_resume(self):
        """Another connection, to any broker, goes on with the session."""
        client = self.random.choice(self.clients)
        old = client.peer
        half_open = self.random.random() < 0.3
        if not half_open:
            self.said.append(f"{client.number}> (closes)")
            old.close()
        client.gen += 1
        watches, client.watches = sorted(client.watches), {}
        client.awaits = {}
        yield from self.connect(
            client, f" resume={client.session} gen={client.gen}")
        if half_open:
            old.close()
        for lock, ticket in self.model.holds(client.number):
            yield from self.simple(
                client, f"CLAIM {self.hold_words(lock, ticket)} "
                f"count={ticket.count}")
        for owner in OWNERS:
            yield from self.ask_again(client, owner)
        for name in watches:
            yield from self.watch(client, name)
        yield from self.settle(self.touched_by(client), "a session that moved")
        return True

    def ask_again(self, client, owner):
        """Puts the owner's waiting LOCK again: the same place."""
        actor = (client.number, owner)
        wait = self.waits_of(actor)
        if wait is None:
            return
        tag = client.next_tag()
        client.send(f"{tag} {wait[1]}")
        several = self.model.several.get(actor)
        if several is not None:
            self.asked[client.number, tag] = self.asked[client.number, wait[0]]
            self.model.several[actor] = Several(
                tag, several.names, several.got, several.mode,
                several.no_wait, several.words)
            names = several.names
        else:
            def queued():
                return [seen for seen in self.seen
                        if seen[:3] == (client.number, tag, "QUEUED")]
            yield from self.until(queued, f"{wait[1]} put again")
            self.seen.clear()
            names = self.names
        for name in names:
            ticket = self.model.lock(name).of(actor)
            if ticket is not None and ticket.tag == wait[0]:
                ticket.tag = tag
                self.asked[client.number, tag] = \
                    self.asked[client.number, wait[0]]

    # the life of it

    def run(self):
        for client in self.clients:
            yield from self.begin(client)
        kinds = [kind for kind, _ in KINDS]
        while self.left > 0:
            kind = self.random.choices(kinds, self.weights)[0]
            method = getattr(self, f"do_{kind}")()
            if method is False:
                continue
            done = yield from method
            if done is False:
                continue
            self.left -= 1
            self.done[kind] = self.done.get(kind, 0) + 1
            if len(self.asked) > 5000:
                self.forget()
        while self.clients:
            while any(lock.detached() for lock in self.model.locks.values()):
                yield from self.do_give_back()
            yield from self.do_quit_for_good(self.clients[-1])
            self.clients.pop()

    def forget(self):
        """The names of requests that are over."""
        live = {(actor[0], several.tag)
                for actor, several in self.model.several.items()}
        live |= {(t.actor[0], t.tag) for lock in self.model.locks.values()
                 for t in lock.queue}
        self.asked = {key: value for key, value in self.asked.items()
                      if key in live}

    def do_quit_for_good(self, client):
        tag = client.next_tag()
        for wait in self.waits_of_client(client):
            self.model.out.append((client.number, wait, "ERR", "CANCELLED"))
        self.model.out += [(client.number, tag, "OK", None),
                           (client.number, "*", "BYE", "quit")]
        self.forget_watches(client)
        client.send(f"{tag} QUIT")
        yield from self.act([("gone", client.number, False)], "QUIT")


class Result:
    """The operations done, and how often."""

    def __init__(self, lanes, seconds):
        self.done = {}
        for lane in lanes:
            for kind, count in lane.done.items():
                self.done[kind] = self.done.get(kind, 0) + count
        self.grants = sum(lane.grants for lane in lanes)
        self.seconds = seconds


def run(addresses, seed, operations, lanes=5, clients=50, names=5):
    """`operations` of them over all lanes. Violation where one is wrong."""
    crowd = Crowd()
    begin = time.monotonic()
    made = [Player(operations // lanes, crowd, f"r{number}", seed, addresses,
                   clients // lanes, names) for number in range(lanes)]
    for lane in made:
        crowd.start(lane.run())
    crowd.run()
    crowd.close()
    return Result(made, time.monotonic() - begin)


LEFT_NAMES = ("held_now", "waiting_now", "tickets_now", "operations_now",
              "deadlocks")


def left_in_broker(broker, names):
    """Leftovers of a broker."""
    with broker.client() as client:
        stats = {item["name"]: int(item["value"])
                 for item in client.ok("STATS").items}
    left = {name: stats[name] for name in names if stats[name]}
    if stats["sessions_now"] > 1:  # its own one
        left["sessions_now"] = stats["sessions_now"] - 1
    return left


def left_in_redis(redis):
    """Keys that are no lock of a lane, and records in which somebody lives."""
    left = {}
    for key in redis.command("KEYS", "*:{*"):
        live, granted = struct.unpack("<II", redis.command(
            "GETRANGE", key, HEAD_AT["LIVE"], HEAD_AT["LIVE"] + 7))
        if live or granted or not key.startswith(b"holdfast:{r"):
            left[key.decode()] = (live, granted)
    return left


def check_left(redis, brokers, locks_too=False):
    """Nothing is; sessions that moved are kept for a while where they were.
    `locks_too`: a lock that nobody has is forgotten within a lease."""
    names = LEFT_NAMES + (("locks_now",) if locks_too else ())
    for broker in brokers:
        try:
            wait_until(lambda b=broker: not left_in_broker(b, names), PATIENCE,
                       step=0.05)
        except AssertionError:
            raise Violation(f"left in the broker {broker.address}: "
                            f"{left_in_broker(broker, names)}") from None
    left = left_in_redis(redis)
    if left:
        raise Violation(f"left in Redis, living and granted: {left}")
