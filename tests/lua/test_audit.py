"""An audit of all the records of a node."""

from harness import slot_of

import scripts
from script_case import KEY, ClockCase, ScriptCase
from scripts import (LATE_HOLD, LEASE, OLD_HOLD, OLD_WAIT, RIGHT, SHARED,
                     TICKET_BYTES, WRONG_COUNTS, WRONG_EXPIRY, WRONG_FENCE,
                     WRONG_NAME, WRONG_RECORD, WRONG_TYPE, WRONG_VERSION, who)
from test_cluster import Cluster


class Ages(ClockCase):
    def setUp(self):
        super().setUp()
        self.connection.command("FLUSHALL")

    def suspects(self, **options):
        return {suspect.name: suspect for suspect in
                self.one.audit_all(**options).suspects}

    def test_nothing(self):
        self.assertEqual(self.one.audit(), (0, 0, 0, 0, 0, 0, []))

    def test_counts(self):
        self.queue(3)
        for number in range(4):
            self.hold(who(number), key="holdfast:{shared}", mode=SHARED)
        self.one.release(who(2), key="holdfast:{shared}")
        self.hold(who(9), key="holdfast:{free}")
        self.one.release(who(9), key="holdfast:{free}")
        self.assertEqual(self.one.audit_all(), (3, 4, 3, 0, 0, 0, []))

    def test_an_old_hold(self):
        self.hold(who(1))
        self.pass_time(20000)
        self.one.renew(who(1))
        self.pass_time(5000)
        self.assertEqual(self.suspects(held=25001), {})
        suspect = self.suspects(held=25000)[b"key"]
        self.assertEqual(suspect, (OLD_HOLD, RIGHT, 25000, 0, b"key"))

    def test_an_old_wait(self):
        self.queue(2)
        self.pass_time(7000)
        self.one.renew(who(0))
        self.assertEqual(self.suspects(wait=7001, held=7001), {})
        self.assertEqual(self.suspects(wait=7000)[b"key"],
                         (OLD_WAIT, RIGHT, 7000, 7000, b"key"))
        self.assertEqual(self.suspects(wait=7000, held=1)[b"key"].flags,
                         OLD_WAIT + OLD_HOLD)

    def test_the_oldest_counts(self):
        for number in (1, 2):
            self.hold(who(number), mode=SHARED)
            self.pass_time(5000)
        for number in (3, 4):
            self.wait(who(number))
            self.pass_time(2000)
        self.assertEqual(self.suspects(held=1, wait=1)[b"key"],
                         (OLD_HOLD + OLD_WAIT, RIGHT, 14000, 4000, b"key"))

    def test_what_is_over_is_none(self):
        self.queue(1)
        self.pass_time(LEASE)
        self.assertEqual(self.one.audit_all(held=1, wait=1),
                         (1, 0, 0, 0, 0, 0, []))

    def test_nobody_knows_whether_it_is_over(self):
        """The clock may have stepped, or the history is another one."""
        self.hold(who(1))
        self.pass_time(LEASE)
        self.one.steady_in = 1000
        self.one.within = 1000
        self.assertEqual(self.suspects(held=1)[b"key"].flags, OLD_HOLD)
        self.one.steady_in = 0
        self.edit(id=b"1" * 40)
        self.assertEqual(self.suspects(held=1)[b"key"].flags, OLD_HOLD)

    def test_a_hold_that_is_not_renewed(self):
        self.hold(who(1))
        self.pass_time(LEASE // 2)
        self.assertEqual(self.suspects(), {})
        self.pass_time(1)
        self.assertEqual(self.suspects()[b"key"].flags, LATE_HOLD)
        self.one.renew(who(1))
        self.assertEqual(self.suspects(), {})

    def test_a_broken_hold_is_not_renewed(self):
        self.hold(who(1))
        self.one.break_()
        self.pass_time(LEASE - 1)
        self.assertEqual(self.suspects(), {})

    def test_the_end_of_a_lease_is_not_renewed(self):
        self.hold(who(1), hold=20000)
        self.pass_time(19000)
        self.assertEqual(self.suspects(), {})
        self.hold(who(2), key="holdfast:{longer}", hold=10 * LEASE)
        self.pass_time(LEASE - 1)
        self.assertEqual(self.suspects()[b"longer"].flags, LATE_HOLD)

    def test_a_grant_that_is_not_claimed_is_not_late(self):
        self.hold(who(1))
        self.wait(who(2), self.two)
        self.one.release(who(1))
        self.pass_time(1999)
        self.assertEqual(self.suspects(), {})

    def test_behind_the_dead(self):
        self.queue(4)
        self.one.release(who(1))
        self.one.release(who(2))
        self.pass_time(1000)
        audit = self.one.audit(wait=1000)
        self.assertEqual(audit[:3], (1, 1, 2))
        self.assertEqual(audit.suspects[0].flags, OLD_WAIT)

    def test_words_and_a_long_queue(self):
        self.hold(who(0), words=(b"o", b"n", b"x" * 100))
        for number in range(1, 101):
            self.wait(who(number), words=(b"", b"w", b""))
        self.pass_time(3000)
        audit = self.one.audit(wait=3000, held=3000)
        self.assertEqual(audit[:4], (1, 1, 100, 0))
        self.assertEqual(audit.suspects[0][:2], (OLD_HOLD + OLD_WAIT, RIGHT))


class Senseless(ScriptCase):
    def setUp(self):
        super().setUp()
        self.connection.command("FLUSHALL")

    def assert_wrong(self, wrong, name=b"key"):
        audit = self.one.audit()
        self.assertEqual(audit.records, 1)
        self.assertEqual([(suspect.wrong, suspect.name)
                          for suspect in audit.suspects],
                         [(wrong, name)])

    def test_another_type(self):
        self.connection.command("HSET", KEY, "a", "b")
        self.assert_wrong(WRONG_TYPE)

    def test_no_record(self):
        for value in (b"\0" * 240, b"\1", b"\1 of another program " * 20):
            self.connection.command("SET", KEY, value)
            self.assert_wrong(WRONG_RECORD)

    def test_words_that_do_not_fit(self):
        """Their lengths, or that of all of them, of a ticket in any place."""
        words = (b"owner", b"client", b"n" * 40)
        room = scripts.HEAD_BYTES + TICKET_BYTES
        for place in (0, 2):
            self.connection.command("DEL", KEY)
            self.queue(3, words=words)
            self.assertEqual(self.one.audit().suspects, [])
            whole, width = self.raw(), self.record().width
            at = room + place * width
            for offset, value in ((0, 255), (6, 60), (13, 41), (13, 255)):
                self.connection.command("SETRANGE", KEY, at + offset,
                                        bytes([value]))
                self.assert_wrong(WRONG_RECORD)
                self.connection.command("SET", KEY, whole, "PX", 10000)
            for count in (1, 53, width - TICKET_BYTES + 1, 65535):
                self.edit_ticket(place, words_bytes=count)
                self.assert_wrong(WRONG_RECORD)
                self.connection.command("SET", KEY, whole, "PX", 10000)

    def test_words_of_any_length(self):
        for number, words in enumerate((
                (b"", b"", b"n"), (b"o", b"", b""), (b"", b"c", b""),
                (b"o" * 64, b"c" * 64, b"n" * 128))):
            for count in (0, 1, 3):
                self.connection.command("DEL", KEY)
                self.queue(count, words=words)
                self.assertEqual(self.one.audit(),
                                 (1, 1, count, 0, 0, 0, []), number)

    def test_words_of_the_dead(self):
        self.queue(2, words=(b"o", b"c", b"n"))
        self.edit_ticket(1, words_bytes=65535)
        self.one.release(who(1))
        self.assertEqual(self.one.audit().suspects, [])

    def test_a_later_version(self):
        self.connection.command("SET", KEY, b"\4" * 240)
        self.assert_wrong(WRONG_VERSION)

    def test_counts(self):
        for fields in ({"live": 2}, {"granted": 0, "used": 0}, {"granted": 0},
                       {"used": 5}):
            self.connection.command("DEL", KEY)
            self.queue(2)
            self.edit(**fields)
            self.assert_wrong(WRONG_COUNTS)

    def test_it_never_expires(self):
        self.hold(who(1))
        self.connection.command("PERSIST", KEY)
        self.assert_wrong(WRONG_EXPIRY)

    def test_a_fence_of_later(self):
        self.hold(who(1))
        self.edit(fence=self.record().fence + 2 * scripts.FENCE_FAR)
        self.assert_wrong(WRONG_FENCE)

    def test_names(self):
        for key, name in ((b"holdfast:{", b""), (b"holdfast:{}", b"}"),
                          (b"holdfast:{a", b"a"), (b"holdfast:{a}b", b"a}b"),
                          (b"holdfast:{" + b"n" * 256 + b"}", b"n" * 255)):
            self.connection.command("FLUSHALL")
            self.connection.command("SET", key, "x")
            self.assert_wrong(WRONG_NAME, name)
        key = "holdfast:{" + "n" * 255 + "}"
        self.connection.command("FLUSHALL")
        self.hold(who(1), key=key)
        self.assertEqual(self.one.audit(held=0).suspects[0].name, b"n" * 255)

    def test_keys_of_others_are_not_seen(self):
        for key in ("holdfast:settled", "holdfast:audit:{7}", "holdfast",
                    "holdfastx:{a}", "other:{a}", "xholdfast:{a}"):
            self.connection.command("SET", key, "x")
        self.assertEqual(self.one.audit_all().records, 0)

    def test_bytes_that_mean_something_to_patterns(self):
        for name in ("*", "?", "[a", "]", "\\", "{", "a\nb", "\0", "é"):
            self.hold(who(1), key="holdfast:{" + name + "}")
        self.assertEqual(
            {suspect.name.decode() for suspect in
             self.one.audit_all(held=0).suspects},
            {"*", "?", "[a", "]", "\\", "{", "a\nb", "\0", "é"})


class Steps(ScriptCase):
    def setUp(self):
        super().setUp()
        self.connection.command("FLUSHALL")

    def test_all_of_many_in_parts(self):
        for number in range(1000):
            self.hold(who(number), key=f"holdfast:{{{number}}}")
            self.connection.command("SET", f"other:{number}", "x")
        names = {b"%d" % number for number in range(1000)}
        whole = self.one.audit_all(held=0, count=50)
        self.assertEqual({suspect.name for suspect in whole.suspects}, names)
        self.assertGreaterEqual(whole.records, 1000)
        part = self.one.audit(held=0, count=50)
        self.assertLess(part.records, 200)
        self.assertNotEqual(part.cursor, 0)

    def test_more_than_there_is_room_for(self):
        for number in range(600):
            self.connection.command("SET", f"holdfast:{{{number}}}", "x")
        audit = self.one.audit(count=2000)
        self.assertEqual((audit.records, len(audit.suspects), audit.left),
                         (600, 512, 88))

    def test_nothing_is_written(self):
        self.queue(2)
        self.connection.command("SET", "holdfast:{wrong}", "x")
        before = self.connection.command("INFO", "replication")
        self.assert_untouched(self.one.audit_all, held=0, wait=0)
        self.assertEqual(self.connection.command("INFO", "replication"),
                         before)

    def test_what_brokers_write_makes_sense(self):
        """No operation makes a record that an audit calls wrong."""
        self.queue(5)
        for number in (3, 0, 1):
            self.one.release(who(number))
        self.one.look("holdfast:{watched}", watch=True)
        self.one.acquire(who(1), key="holdfast:{busy}", no_queue=True)
        self.one.acquire(who(2), key="holdfast:{busy}", no_queue=True)
        for number in range(4):
            self.one.acquire(who(number), key="holdfast:{permits}", limit=5,
                             permits=2)
        self.one.release(who(1), key="holdfast:{permits}", unclean=True)
        self.one.break_("holdfast:{permits}")
        self.hold(who(1), key="holdfast:{delayed}", delay=5000)
        self.one.release(who(1), key="holdfast:{delayed}", unclean=True)
        audit = self.one.audit_all()
        self.assertEqual((audit.records, audit.suspects), (5, []))


class AllSlots(Cluster):
    def names(self, **options):
        """The audit of each master."""
        return [sorted(suspect.name for suspect in self.broker(node).audit_all(
            held=0, **options).suspects) for node in self.cluster.masters]

    def test_each_node_has_its_own(self):
        names = [b"lock/%d" % number for number in range(60)]
        for name in names:
            key = "holdfast:{%s}" % name.decode()
            self.broker(
                self.cluster.node_of_slot(slot_of(key))).acquire(who(1),
                                                                 key=key)
        seen = self.names()
        self.assertTrue(all(seen))
        self.assertEqual(sorted(sum(seen, [])), sorted(names))

    def test_a_slot_that_moves(self):
        """Records where their slot is not are passed over until it is."""
        key = "holdfast:{moves}"
        self.broker(self.ends(key)[1]).acquire(who(1), key=key)
        migration, source, target = self.begin(key)
        self.assertEqual(
            [suspect.name for suspect in source.audit_all(held=0).suspects],
            [b"moves"])
        self.cluster.migrate_keys(migration)
        self.assertEqual(target.connection.command("DBSIZE"), 1)
        self.assertEqual(source.audit_all(held=0), (0, 0, 0, 0, 0, 0, []))
        self.assertEqual(target.audit_all(held=0), (0, 0, 0, 0, 0, 0, []))
