"""A lane of the random operations: what its clients hear, against a model.

A lane is some locks, some clients at any brokers, and a model (semantics.py).
It sends requests, and waits until the answers are those that the model can
give in some order of the requests. random_operations.py chooses what is sent.
"""

import random
import time

from semantics import Model, explore

PATIENCE = 20.0  # s
EARLY = 0.002  # s that clocks may differ by


class Violation(AssertionError):
    """An answer that the model does not know."""


class Members:
    """The members of a lock, as a watch with members=1 tells them."""

    def __init__(self):
        self.complete, self.fences = False, set()

    def take(self, word, pairs):
        fence = int(pairs.get("fence", 0))
        if "begin" in pairs:
            self.__init__()
        elif word == "MEMBERS":
            self.complete = True
            assert len(self.fences) == int(pairs["members"]), pairs
        elif word == "JOINED":
            assert fence not in self.fences, pairs
            self.fences.add(fence)
        else:
            assert fence in self.fences, pairs
            if word == "LEFT":
                self.fences.remove(fence)


class Client:
    """One session; connected again whenever that is over."""

    def __init__(self, lane, number):
        self.lane, self.number = lane, number
        self.name = f"{lane.prefix}-{number}"
        self.peer = None
        self.session = ""
        self.gen = 1
        self.tag = 0
        # lock: the fence told last; 0: FREE; or None. Or its Members.
        self.watches = {}
        self.awaits = {}   # tag: Await

    def next_tag(self):
        self.tag += 1
        return str(self.tag)

    def send(self, line):
        self.lane.said.append(f"{self.number}> {line}")
        self.peer.send(line)


class Await:
    """An AWAIT. `freed`: nobody held the lock since. `over`: its session is.
    `answer`: a fence, not below that of the grant before; or a code."""

    def __init__(self, lock):
        self.name, self.fence = lock.name, lock.fence
        self.freed, self.over, self.answer = False, False, None


class Lane:
    """Locks called `prefix`/..., and `clients` clients."""

    def __init__(self, crowd, prefix, seed, addresses, clients, names):
        self.crowd, self.prefix = crowd, prefix
        self.random = random.Random(f"{seed} {prefix}")
        self.addresses = addresses
        self.names = [f"{prefix}/{number}" for number in range(names)]
        self.model = Model(self.names)
        self.clients = [Client(self, number) for number in range(clients)]
        self.said = []      # the last lines, for a failure
        self.seen = []      # replies and LOSTs that were not foretold yet
        self.fences = {}    # (client, tag): {lock: fence}
        self.asked = {}     # (client, tag): names of the LOCK
        self.read_at = {}   # (client, tag): when its OK was read
        self.items = {}     # (client, tag): ITEM lines
        self.not_before = {}  # lock: no grant sooner
        self.grants = 0

    # lines

    def fail(self, what):
        said = "\n  ".join(self.said[-60:])
        raise Violation(f"lane {self.prefix}: {what}\nseen: "
                        f"{sorted(self.seen, key=repr)}\nstate: "
                        f"{self.model.state()}\n  {said}")

    def hear(self):
        """Takes in all that has come."""
        for client in self.clients:
            if client.peer is None:
                continue
            while client.peer.inbox:
                line = client.peer.inbox.popleft()
                self.said.append(f"{client.number}< {line}")
                self.take(client, line)
        if len(self.said) > 2000:
            del self.said[:1000]

    def take(self, client, line):
        words = line.partition(" :")[0].split(" ")
        tag, word = words[0], words[1]
        if tag == "*":
            self.take_event(client, word, words[2:])
            return
        pairs = dict(part.split("=", 1) for part in words[2:] if "=" in part)
        if tag in client.awaits:
            client.awaits[tag].answer = \
                int(pairs["fence"]) if word == "OK" else words[2]
        elif word == "ITEM":
            self.items.setdefault((client.number, tag), []).append(pairs)
        elif word == "OK":
            detail = pairs.get("count") or pairs.get("holders")
            if "fence" in pairs:
                self.take_fences(client.number, tag, pairs["fence"])
            self.seen.append((client.number, tag, "OK",
                              None if detail is None else int(detail)))
        elif word == "ERR":
            self.seen.append((client.number, tag, "ERR", words[2]))
        else:
            self.seen.append((client.number, tag, word,
                              int(pairs["position"])))

    def take_fences(self, number, tag, text):
        names = self.asked.get((number, tag))
        if names:
            self.fences[number, tag] = dict(zip(names,
                                                map(int, text.split(","))))
            self.read_at[number, tag] = time.monotonic()

    def take_event(self, client, word, rest):
        pairs = dict(part.split("=", 1) for part in rest if "=" in part)
        if word == "LOST":
            self.seen.append((client.number, "*", "LOST", (
                rest[0], pairs.get("owner", ""), pairs["reason"])))
        elif word in ("HELD", "FREE"):
            self.take_news(client, word, rest[0], pairs)
        elif word in ("MEMBERS", "JOINED", "CHANGED", "LEFT"):
            if rest[0] in client.watches:
                client.watches[rest[0]].take(word, pairs)
        elif word == "BYE":
            self.seen.append((client.number, "*", "BYE", rest[0]))
        elif word not in ("HELLO", "JEOPARDY", "SAFE"):
            self.fail(f"an unknown event: {word}")

    def take_news(self, client, word, name, pairs):
        if name not in client.watches:
            return  # it came before the UNWATCH
        client.watches[name] = int(pairs["fence"]) if word == "HELD" else 0

    # waiting

    def until(self, condition, what):
        """Waits for lines until `condition` is met; its value."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.hear()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                self.fail(f"not within {PATIENCE:g} s: {what}")
            yield deadline

    def simple(self, client, line, word="OK"):
        """A request that changes no lock; it must be answered so."""
        tag = client.next_tag()
        client.send(f"{tag} {line}")

        def answered():
            for seen in self.seen:
                if seen[:2] == (client.number, tag):
                    return seen
            return None
        seen = yield from self.until(answered, line)
        self.seen.remove(seen)
        if word not in (seen[2], seen[3]):
            self.fail(f"{line}: wanted {word}, got {seen}")
        return self.items.pop((client.number, tag), [])

    def foretold(self, what):
        """Waits until all that the model's steps can bring has come."""
        ends = [(end, sorted(end.out, key=repr)) for end in
                explore(self.model)]

        def matching():
            seen = sorted(self.seen, key=repr)
            return [end for end, out in ends if out == seen]
        found = yield from self.until(
            matching, f"{what}; foretold: {[out for _, out in ends]}")
        if len(found) > 1:
            found = self.by_fences(found)
        if len({end.state() for end in found}) > 1:
            found = yield from self.by_looking(found)
        self.model = found[0]
        self.check_grants()
        # Of ends that are alike, any may be the true one.
        touched = self.model.touched
        freed = set().union(*(end.freed for end in found))
        self.seen.clear()
        self.fences.clear()
        self.read_at.clear()
        self.model.settled()
        yield from self.check_watches(touched)
        yield from self.check_awaits(freed)

    def by_fences(self, ends):
        """Those whose order of grants is that of the fences."""
        good = []
        for end in ends:
            if end.copy().taught(self.fences) is None:
                good.append(end)
        return good or ends

    def by_looking(self, ends):
        """That one which SHOW tells, in the end."""
        deadline = time.monotonic() + PATIENCE
        for name in self.names:
            found = ends
            while len({end.locks[name].state() for end in ends}) > 1:
                shown = yield from self.show(name)
                found = [end for end in ends
                         if self.expected(end, name) == shown]
                if found:
                    break
                if time.monotonic() > deadline:
                    self.fail(f"SHOW {name} tells of none of what may be: "
                              f"{shown}")
            ends = found
        return ends

    def check_grants(self):
        wrong = self.model.taught(self.fences)
        if wrong:
            self.fail(wrong)
        for name, actor, tag in self.model.grants:
            self.grants += 1
            at = self.read_at.get((actor[0], tag))
            if at is None or name not in self.not_before:
                continue
            held = self.model.locks[name].of(actor)
            if held and held.count > 1:  # a re-entry beside another's delay
                continue
            if at < self.not_before.pop(name) - EARLY:
                self.fail(f"{name} was granted within the lock-delay")

    def check_watches(self, touched):
        for client in self.clients:
            for name in client.watches:
                if name in touched:
                    yield from self.until(
                        lambda c=client, n=name: self.up_to_date(c, n),
                        f"client {client.number} hears of {name}")

    def check_awaits(self, freed):
        """One is answered if nobody holds the lock, and no sooner."""
        for client in self.clients:
            for tag, each in list(client.awaits.items()):
                lock = self.model.locks[each.name]
                each.freed = each.freed or each.name in freed
                if each.over:
                    continue
                if not lock.granted() and not lock.barred:
                    yield from self.until(
                        lambda e=each: e.answer is not None,
                        f"client {client.number}: AWAIT {each.name}")
                if each.answer is None:
                    continue
                if not each.freed or not isinstance(each.answer, int):
                    self.fail(f"AWAIT {each.name} ends with {each.answer}")
                if each.answer < each.fence:
                    self.fail(f"AWAIT {each.name} tells of {each.answer} "
                              f"after {each.fence}")
                del client.awaits[tag]

    def up_to_date(self, client, name):
        told = client.watches[name]
        if told is None:
            return False
        lock = self.model.locks[name]
        held = [ticket.fence for ticket in lock.granted()]
        if isinstance(told, Members):
            return told.complete and len(told.fences) == len(held) and \
                max(told.fences, default=0) >= max(held, default=0)
        if not held:
            return told == 0
        return told > 0 and told >= max(held)

    # looking

    @staticmethod
    def expected(model, name):
        """The right answer of SHOW, as show() has it: holders in any order."""
        lock = model.locks[name]
        return (sorted((t.actor, t.mode + "+" * t.detached, t.permits)
                       for t in lock.queue if t.granted),
                [(t.actor, t.mode, t.permits) for t in lock.queue
                 if not t.granted])

    def show(self, name, client=None):
        client = client or self.random.choice(self.clients)
        items = yield from self.simple(client, f"SHOW {name} limit=500")
        rows = {"holder": [], "waiter": []}
        for item in items:
            number = int(item["name"].rpartition("-")[2])
            rows[item["kind"]].append((
                (number, item.get("owner", "")),
                item.get("mode", "exclusive") + "+" * ("detached" in item),
                int(item.get("permits", 1))))
        return sorted(rows["holder"]), rows["waiter"]

    def settle(self, names, what):
        """Waits until Redis has what the model has."""
        deadline = time.monotonic() + PATIENCE
        for name in names:
            wanted = self.expected(self.model, name)
            shown = yield from self.show(name)
            while shown != wanted:
                if time.monotonic() > deadline:
                    self.fail(f"{what}: SHOW {name} has {shown}, and not "
                              f"{wanted}")
                shown = yield from self.show(name)
