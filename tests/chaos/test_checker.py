"""The checker of chaos finds what was planted, and nothing in a clean run."""

import unittest

import checker


class Story:
    """A run in the making: clients that take turns, second by second."""

    def __init__(self):
        self.histories = {}
        self.writes = []
        self.final = {}
        self.world = []
        self.tags = 0

    def note(self, client, kind, at, **more):
        events = self.histories.setdefault(
            client, [{"t": 0.0, "e": "start", "pid": 1}])
        events.append({"t": at, "e": kind, **more})

    def ask(self, client, at, tag, verb="PING", lock=None):
        self.note(client, "ask", at, conn=1, tag=tag, verb=verb, lock=lock)

    def answer(self, client, at, tag, **more):
        self.note(client, "final", at, conn=1, tag=tag, ok=True, code=None,
                  **more)

    def hold(self, client, begin, end, fence, why="unlock", until=None,
             asked=None, lock="mutex/0", count=1):
        """A LOCK, its belief and its end."""
        self.tags += 1
        self.ask(client, begin - 0.01 if asked is None else asked, self.tags,
                 "LOCK", lock)
        self.answer(client, begin, self.tags, fence=fence, count=count)
        if count > 1:
            return
        self.note(client, "begin", begin, hold=self.tags, lock=lock,
                  fence=fence, until=begin + 3 if until is None else until)
        if end is not None:
            self.note(client, "end", end, hold=self.tags, why=why)

    def until(self, client, at, until):
        """The last hold of all has another deadline."""
        self.note(client, "until", at, hold=self.tags, until=until)

    def write(self, client, at, name, base, fence, lock="set/0", done="ok",
              accepted=True):
        self.note(client, "write", at, lock=lock, id=name, done=done,
                  fence=fence)
        if accepted:
            self.writes.append({"lock": lock, "id": name, "base": base,
                                "fence": fence, "t": at})
            self.final[lock] = name

    def excuse(self, cause, begin, end, locks=None, **more):
        self.event(end, "excuse", cause=cause, to=end, locks=locks,
                   **{"from": begin}, **more)

    def event(self, at, kind, **more):
        self.world.append({"t": at, "e": kind, **more})

    def probe(self, to):
        self.event(10.0, "heal", until=40.0)
        self.event(40.0, "probe", lock="mutex/0", to=to, **{"from": 10.0})

    def verdict(self):
        return checker.check({
            "lease": 3.0, "grace": 1.0, "late_read": 0.5, "unobtainable": 5.0,
            "histories": self.histories, "writes": self.writes,
            "final": self.final, "world": self.world})


def step(name):
    """A function that gives one step of a story."""
    return lambda *arguments, **more: lambda story: getattr(story, name)(
        *arguments, **more)


note, ask, answer, hold, until, write, excuse, event, probe = map(step, (
    "note", "ask", "answer", "hold", "until", "write", "excuse", "event",
    "probe"))

OVERLAP = (hold("a", 11.0, 13.0, 10), hold("b", 12.0, 12.5, 11))
BACKWARDS = (hold("a", 1.0, 2.0, 10), hold("b", 3.0, 4.0, 9))
TWICE = (hold("a", 1.0, 2.0, 10), hold("b", 3.0, 4.0, 10))
KILLED = (hold("a", 1.0, None, 10), event(2.0, "kill", client="a"),
          note("a", "start", 2.5), hold("b", 2.1, 2.2, 12))
LONG = (hold("a", 1.0, 3.0, 10), hold("b", 3.0, 3.1, 13))
SOONER = (hold("a", 1.0, None, 10, until=4.0), until("a", 3.0, 2.0),
          hold("b", 3.1, 3.5, 12))
PING = (ask("a", 1.0, 1), answer("a", 1.1, 1))


def lost_update(lock):
    """b read before a wrote, and wrote after it."""
    return (write("a", 1.0, "a-1", "", 5, lock),
            write("a", 2.0, "a-2", "a-1", 5, lock),
            write("b", 2.1, "b-1", "a-1", 6, lock))


# name: (the kinds of violations, fields of the verdict, the story)
STORIES = {
    # exclusion
    "clean": ("", {"acquisitions": 3, "holds": 3}, (
        hold("a", 1.0, 2.0, 10), hold("b", 2.0, 3.0, 11, asked=1.5),
        hold("a", 2.5, 3.5, 7, lock="mutex/1"))),
    "overlap": ("overlap", {}, (
        hold("a", 1.0, 2.0, 10), hold("b", 1.9, 3.0, 11, asked=1.5))),
    "one belief in another's end": ("", {}, LONG),
    "overlap across a shorter belief": ("overlap overlap", {}, (
        *LONG, hold("c", 1.5, 1.6, 11), hold("d", 2.5, 2.6, 12))),
    "a deadline ends belief": ("", {}, (
        hold("a", 1.0, 9.0, 10, until=4.0), hold("b", 4.1, 5.0, 11))),
    "a longer deadline is longer belief": ("overlap", {}, (
        hold("a", 1.0, None, 10, until=4.0), until("a", 2.0, 6.0),
        hold("b", 5.0, 5.5, 11))),
    "a sooner deadline ends belief": ("", {}, SOONER),
    "a sooner deadline does not undo belief": ("overlap", {}, (
        *SOONER, hold("c", 2.9, 2.95, 11))),
    "belief revived after its deadline": ("careless", {}, (
        hold("a", 1.0, None, 10, until=4.0), until("a", 5.0, 7.0))),
    "a killed client believes no longer": ("", {}, KILLED),
    "a killed client believes until then": ("overlap", {}, (
        *KILLED, hold("c", 1.5, 1.6, 11))),
    "a client believes no longer when its signal has come": ("", {}, (
        hold("a", 1.0, None, 10), event(0.99, "kill", client="a"),
        note("a", "start", 2.5), hold("b", 1.1, 1.2, 12))),
    "a stopped client believes until its deadline": ("overlap", {}, (
        hold("a", 1.0, 9.0, 10, why="deadline", until=4.0),
        hold("b", 3.9, 3.95, 11))),
    "excused": ("", {"excused": {"overlap, failover": 1}}, (
        *OVERLAP, excuse("failover", 1.0, 9.0, ["mutex/0"]))),
    "excused for another lock": ("overlap", {}, (
        *OVERLAP, excuse("failover", 1.0, 9.0, ["mutex/1"]))),
    "excused too long ago": ("overlap", {}, (
        *OVERLAP, excuse("failover", 1.0, 7.0, ["mutex/0"]))),
    "excused too late": ("overlap", {}, (
        *OVERLAP, excuse("failover", 12.5, 20.0, ["mutex/0"]))),
    "LOST is read a little late": ("", {"late_reads": 1}, (
        hold("a", 1.0, 2.0, 10, why="lost"), hold("b", 1.9, 3.0, 11))),
    "LOST is read very late": ("overlap", {}, (
        hold("a", 1.0, 2.6, 10, why="lost"), hold("b", 1.9, 3.0, 11))),
    # fences
    "fence backwards": ("fence", {}, BACKWARDS),
    "fence backwards by belief, not by request": ("fence", {}, (
        hold("a", 1.0, 2.0, 10), hold("b", 3.0, 4.0, 9, asked=0.5))),
    "fence backwards without belief": ("fence", {}, (
        hold("a", 1.0, 2.0, 10), ask("b", 3.0, 99, "LOCK", "mutex/0"),
        answer("b", 3.1, 99, fence=9, count=1))),
    "fence told twice, and does not grow": ("fence fence", {}, TWICE),
    "a reentry has the same fence": ("", {}, (
        hold("a", 1.0, 2.0, 10), hold("a", 1.3, None, 10, count=2))),
    "a failover does not excuse a fence": ("fence", {}, (
        *BACKWARDS, excuse("failover", 0.0, 5.0))),
    "two masters excuse a fence": ("", {"excused": {"fence, failover": 1}}, (
        *BACKWARDS, excuse("failover", 0.0, 5.0, split=True))),
    "nothing excuses a fence told twice": ("fence", {}, (
        *TWICE, excuse("failover", 0.0, 5.0, split=True))),
    # writes
    "clean writes": ("", {"writes": 3, "fenced_writes": 1}, (
        write("a", 1.0, "a-1", "", 5), write("b", 2.0, "b-1", "a-1", 6),
        write("b", 2.0, "b-2", "", 6, "fenced/0"))),
    "lost update": ("lost update", {}, lost_update("set/0")),
    "lost update excused": ("", {"excused": {"lost update, data lost": 1}}, (
        *lost_update("set/0"), excuse("data lost", 1.5, 1.6))),
    "lost fenced update, never excused": ("lost update", {}, (
        *lost_update("fenced/0"), excuse("data lost", 1.5, 1.6, split=True))),
    "acknowledged and not there": ("lost update", {}, (
        write("a", 1.0, "a-1", "", 5, accepted=False),
        lambda story: story.final.update({"set/0": ""}))),
    "an unknown write may be missing": ("", {"refused_writes": 1}, (
        write("a", 1.0, "a-1", "", 5, done="unknown", accepted=False),
        write("a", 1.0, "a-2", "", 5, done="refused", accepted=False))),
    "a stale fence accepted": ("resource", {}, (
        write("a", 1.0, "a-1", "", 6, "fenced/0"),
        write("b", 2.0, "b-1", "a-1", 5, "fenced/0"))),
    # replies
    "one reply": ("", {}, PING),
    "two final replies": ("reply", {}, (*PING, answer("a", 1.2, 1))),
    "a reply nobody asked for": ("reply", {}, (*PING, answer("a", 1.2, 2))),
    "no reply is unknown": ("", {"unknown_replies": 1}, (
        *PING, ask("a", 1.2, 2))),
    "what a client noticed": ("foul", {}, (
        *PING, note("a", "foul", 1.2, what="count=3"))),
    "a server that ended": ("broken", {}, (
        *PING, event(1.0, "broken", what="status 1"))),
    # liveness
    "had soon": ("", {"longest_unobtainable": 2.5}, (probe(12.5),)),
    "had late": ("liveness", {}, (probe(16.0),)),
    "had late since others had it": ("", {"longest_unobtainable": 1.0}, (
        hold("a", 11.0, 15.0, 5, until=15.0), probe(16.0))),
    "never had": ("liveness", {}, (probe(None),)),
    "a holder that does nothing hides no gap": ("liveness", {}, (
        hold("a", 9.0, 11.0, 5), probe(None))),
}


class CheckerTest(unittest.TestCase):
    def test_stories(self):
        for name, (kinds, fields, steps) in STORIES.items():
            with self.subTest(story=name):
                story = Story()
                for each in steps:
                    each(story)
                verdict = story.verdict()
                self.assertEqual(" ".join(
                    text.split(":")[0] for text in verdict.violations), kinds)
                for field, value in fields.items():
                    self.assertEqual(getattr(verdict, field), value, field)
