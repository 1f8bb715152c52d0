"""The checker of chaos finds what was planted, and nothing in a clean run."""

import copy
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
        return events[-1]

    def hold(self, client, lock, begin, end, fence, why="unlock", until=None,
             asked=None):
        """A LOCK, its belief and its end."""
        self.tags += 1
        asked = begin - 0.01 if asked is None else asked
        self.note(client, "ask", asked, conn=1, tag=self.tags, verb="LOCK",
                  lock=lock)
        self.note(client, "final", begin, conn=1, tag=self.tags, ok=True,
                  code=None, fence=fence, count=1)
        self.note(client, "begin", begin, hold=self.tags, lock=lock,
                  fence=fence, until=begin + 3 if until is None else until)
        if end is not None:
            self.note(client, "end", end, hold=self.tags, why=why)
        return self.tags

    def write(self, client, lock, at, name, base, fence, done="ok",
              accepted=True):
        self.note(client, "write", at, lock=lock, id=name, done=done,
                  fence=fence)
        if accepted:
            self.writes.append({"lock": lock, "id": name, "base": base,
                                "fence": fence, "t": at})
            self.final[lock] = name

    def excuse(self, cause, begin, end, locks=None, **more):
        self.world.append({"t": end, "e": "excuse", "cause": cause,
                           "from": begin, "to": end, "locks": locks, **more})

    def verdict(self):
        return checker.check(copy.deepcopy({
            "lease": 3.0, "grace": 1.0, "late_read": 0.5, "unobtainable": 5.0,
            "histories": self.histories, "writes": self.writes,
            "final": self.final, "world": self.world}))


class CheckerCase(unittest.TestCase):
    def setUp(self):
        self.story = Story()

    def assert_clean(self):
        verdict = self.story.verdict()
        self.assertEqual(verdict.violations, [])
        return verdict

    def assert_found(self, kind, count=1):
        verdict = self.story.verdict()
        self.assertEqual([text.split(":")[0] for text in verdict.violations],
                         [kind] * count)
        return verdict


class MutexTest(CheckerCase):
    def test_clean(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 2.0, 3.0, 11, asked=1.5)
        self.story.hold("a", "mutex/1", 2.5, 3.5, 7)
        verdict = self.assert_clean()
        self.assertEqual((verdict.acquisitions, verdict.holds), (3, 3))

    def test_overlap(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 1.9, 3.0, 11, asked=1.5)
        self.assert_found("overlap")

    def test_overlap_across_a_shorter_one(self):
        """The longest belief counts, not the one before."""
        self.story.hold("a", "mutex/0", 1.0, 3.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 3.1, 13)
        self.assert_clean()
        self.story.hold("c", "mutex/0", 1.5, 1.6, 11)
        self.story.hold("d", "mutex/0", 2.5, 2.6, 12)
        self.assert_found("overlap", 2)

    def test_a_deadline_ends_belief(self):
        self.story.hold("a", "mutex/0", 1.0, 9.0, 10, until=4.0)
        self.story.hold("b", "mutex/0", 4.1, 5.0, 11)
        self.assert_clean()

    def test_a_longer_deadline_is_longer_belief(self):
        hold = self.story.hold("a", "mutex/0", 1.0, None, 10, until=4.0)
        self.story.note("a", "until", 2.0, hold=hold, until=6.0)
        self.story.hold("b", "mutex/0", 5.0, 5.5, 11)
        self.assert_found("overlap")

    def test_a_sooner_deadline_does_not_undo_belief(self):
        """What was believed until it was told stays believed."""
        hold = self.story.hold("a", "mutex/0", 1.0, None, 10, until=4.0)
        self.story.note("a", "until", 3.0, hold=hold, until=2.0)
        self.story.hold("b", "mutex/0", 3.1, 3.5, 12)
        self.assert_clean()
        self.story.hold("c", "mutex/0", 2.9, 2.95, 11)
        self.assert_found("overlap")

    def test_belief_revived_after_its_deadline(self):
        hold = self.story.hold("a", "mutex/0", 1.0, None, 10, until=4.0)
        self.story.note("a", "until", 5.0, hold=hold, until=7.0)
        self.assert_found("careless")

    def test_a_killed_client_believes_until_then(self):
        self.story.hold("a", "mutex/0", 1.0, None, 10)
        self.story.world.append({"t": 2.0, "e": "kill", "client": "a"})
        self.story.note("a", "start", 2.5)
        self.story.hold("b", "mutex/0", 2.1, 2.2, 12)
        self.assert_clean()
        self.story.hold("c", "mutex/0", 1.5, 1.6, 11)
        self.assert_found("overlap")

    def test_a_stopped_client_believes_until_its_deadline(self):
        self.story.hold("a", "mutex/0", 1.0, 9.0, 10, why="deadline",
                        until=4.0)
        self.story.hold("b", "mutex/0", 3.9, 3.95, 11)
        self.assert_found("overlap")

    def test_excused_by_cause_lock_and_time(self):
        self.story.hold("a", "mutex/0", 11.0, 13.0, 10)
        self.story.hold("b", "mutex/0", 12.0, 12.5, 11)
        self.story.excuse("failover", 1.0, 9.0, ["mutex/0"])
        verdict = self.assert_clean()
        self.assertEqual(verdict.excused["overlap, failover"], 1)
        self.story.world.clear()
        self.story.excuse("failover", 1.0, 9.0, ["mutex/1"])
        self.assert_found("overlap")
        self.story.world.clear()
        self.story.excuse("failover", 1.0, 7.0, ["mutex/0"])  # too long ago
        self.assert_found("overlap")
        self.story.world.clear()
        self.story.excuse("failover", 12.5, 20.0, ["mutex/0"])  # later
        self.assert_found("overlap")

    def test_a_lost_may_be_read_a_little_late(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10, why="lost")
        self.story.hold("b", "mutex/0", 1.9, 3.0, 11)
        self.assertEqual(self.assert_clean().late_reads, 1)

    def test_and_not_very_late(self):
        self.story.hold("a", "mutex/0", 1.0, 2.6, 10, why="lost")
        self.story.hold("b", "mutex/0", 1.9, 3.0, 11)
        self.assert_found("overlap")


class FenceTest(CheckerCase):
    def test_backwards(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 9)
        self.assert_found("fence")

    def test_backwards_between_those_that_waited(self):
        """Asked before the other was told; belief gives the order."""
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 9, asked=0.5)
        self.assert_found("fence")

    def test_backwards_without_belief(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.note("b", "ask", 3.0, conn=1, tag=99, verb="LOCK",
                        lock="mutex/0")
        self.story.note("b", "final", 3.1, conn=1, tag=99, ok=True, code=None,
                        fence=9, count=1)
        self.assert_found("fence")

    def test_twice(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 10)
        self.assert_found("fence", 2)  # told twice, and does not grow

    def test_a_reentry_has_the_same_one(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.note("a", "ask", 1.2, conn=1, tag=50, verb="LOCK",
                        lock="mutex/0")
        self.story.note("a", "final", 1.3, conn=1, tag=50, ok=True, code=None,
                        fence=10, count=2)
        self.assert_clean()

    def test_a_failover_is_no_excuse(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 9)
        self.story.excuse("failover", 0.0, 5.0)
        self.assert_found("fence")

    def test_two_masters_are(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 9)
        self.story.excuse("failover", 0.0, 5.0, split=True)
        self.assertEqual(self.assert_clean().excused["fence, failover"], 1)

    def test_told_twice_is_never_excused(self):
        self.story.hold("a", "mutex/0", 1.0, 2.0, 10)
        self.story.hold("b", "mutex/0", 3.0, 4.0, 10)
        self.story.excuse("failover", 0.0, 5.0, split=True)
        self.assert_found("fence")


class WriteTest(CheckerCase):
    def lose(self, lock):
        """b read before a wrote, and wrote after it."""
        self.story.write("a", lock, 1.0, "a-1", "", 5)
        self.story.write("a", lock, 2.0, "a-2", "a-1", 5)
        self.story.write("b", lock, 2.1, "b-1", "a-1", 6)

    def test_clean(self):
        self.story.write("a", "set/0", 1.0, "a-1", "", 5)
        self.story.write("b", "set/0", 2.0, "b-1", "a-1", 6)
        self.story.write("b", "fenced/0", 2.0, "b-2", "", 6)
        verdict = self.assert_clean()
        self.assertEqual((verdict.writes, verdict.fenced_writes), (3, 1))

    def test_lost_update(self):
        self.lose("set/0")
        self.assert_found("lost update")

    def test_lost_update_excused(self):
        self.lose("set/0")
        self.story.excuse("data lost", 1.5, 1.6)
        verdict = self.assert_clean()
        self.assertEqual(verdict.excused["lost update, data lost"], 1)

    def test_fenced_is_never_excused(self):
        self.lose("fenced/0")
        self.story.excuse("data lost", 1.5, 1.6, split=True)
        self.assert_found("lost update")

    def test_acknowledged_and_not_there(self):
        self.story.write("a", "set/0", 1.0, "a-1", "", 5, accepted=False)
        self.story.final["set/0"] = ""
        self.assert_found("lost update")

    def test_an_unknown_one_may_be_missing(self):
        self.story.write("a", "set/0", 1.0, "a-1", "", 5, done="unknown",
                         accepted=False)
        self.story.write("a", "set/0", 1.0, "a-2", "", 5, done="refused",
                         accepted=False)
        self.assertEqual(self.assert_clean().refused_writes, 1)

    def test_a_stale_fence_accepted(self):
        self.story.write("a", "fenced/0", 1.0, "a-1", "", 6)
        self.story.write("b", "fenced/0", 2.0, "b-1", "a-1", 5)
        self.assert_found("resource")


class ReplyTest(CheckerCase):
    def setUp(self):
        super().setUp()
        self.story.note("a", "ask", 1.0, conn=1, tag=1, verb="PING", lock=None)
        self.story.note("a", "final", 1.1, conn=1, tag=1, ok=True, code=None)

    def test_one(self):
        self.assert_clean()

    def test_two_final_replies(self):
        self.story.note("a", "final", 1.2, conn=1, tag=1, ok=True, code=None)
        self.assert_found("reply")

    def test_nobody_asked(self):
        self.story.note("a", "final", 1.2, conn=1, tag=2, ok=True, code=None)
        self.assert_found("reply")

    def test_none_is_unknown(self):
        self.story.note("a", "ask", 1.2, conn=1, tag=2, verb="PING", lock=None)
        self.assertEqual(self.assert_clean().unknown_replies, 1)

    def test_what_a_client_noticed(self):
        self.story.note("a", "foul", 1.2, what="count=3")
        self.assert_found("foul")

    def test_a_server_that_ended(self):
        self.story.world.append({"t": 1.0, "e": "broken", "what": "status 1"})
        self.assert_found("broken")


class LivenessTest(CheckerCase):
    def probe(self, to):
        self.story.world.append({"t": 10.0, "e": "heal", "until": 40.0})
        self.story.world.append({"t": 40.0, "e": "probe", "lock": "mutex/0",
                                 "from": 10.0, "to": to})

    def test_soon(self):
        self.probe(12.5)
        self.assertAlmostEqual(
            self.assert_clean().longest_unobtainable, 2.5)

    def test_late(self):
        self.probe(16.0)
        self.assert_found("liveness")

    def test_late_since_others_had_it(self):
        self.story.hold("a", "mutex/0", 11.0, 15.0, 5, until=15.0)
        self.probe(16.0)
        self.assertAlmostEqual(self.assert_clean().longest_unobtainable, 1.0)

    def test_never(self):
        self.probe(None)
        self.assert_found("liveness")

    def test_a_holder_that_does_nothing_hides_no_gap(self):
        self.story.hold("a", "mutex/0", 9.0, 11.0, 5)
        self.probe(None)
        self.assert_found("liveness")
