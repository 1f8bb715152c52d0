"""Fences: they only grow, also where Redis forgot, failed over or restarted."""

import struct
import time

from harness import FIRST_AT, wait_until

import scripts
from script_case import KEY, ClockCase, ScriptCase
from scripts import (CORRUPT, FENCE_FAR, FENCE_JUMP, FENCE_STEP, GONE, GRACE,
                     HELD, LEASE, MISSING, OK, SHARED, WAITING, who)

SHAPES = ({}, {"words": (b"owner", b"", b"")}, {"hold": 4000})


class FirstFence(ScriptCase):
    def time_us(self):
        seconds, us = self.connection.command("TIME")
        return int(seconds) * 1_000_000 + int(us)

    def test_clock_of_redis(self):
        before = self.time_us()
        fence = self.hold(who(1)).fence
        self.assertEqual(fence, self.one.last.time_us + FENCE_JUMP + 1)
        self.assertLessEqual(before, fence - FENCE_JUMP - 1)
        self.assertLessEqual(fence - FENCE_JUMP - 1, self.time_us())

    def test_clock_of_the_broker_where_it_is_ahead(self):
        self.one.clock_us = self.time_us() + 3_600_000_000
        self.assertEqual(self.hold(who(1)).fence,
                         self.one.clock_us + FENCE_JUMP + 1)

    def test_clock_of_the_broker_where_it_is_behind(self):
        for clock_us in (0, 1, self.time_us() - 3_600_000_000):
            self.connection.command("DEL", KEY)
            self.one.clock_us = clock_us
            self.assertEqual(self.hold(who(1)).fence,
                             self.one.last.time_us + FENCE_JUMP + 1)

    def test_clock_of_the_broker_beyond_belief(self):
        self.one.clock_us = self.time_us() + 2 * FENCE_FAR
        self.assertEqual(self.hold(who(1)).fence,
                         self.one.last.time_us + FENCE_JUMP + 1)

    def test_exact_in_every_digit(self):
        """Large fences keep their last bit."""
        first = self.queue(8)[0].fence
        for number in range(8):
            fence = self.one.release(who(number)).grants[0].fence
            self.assertEqual(fence, first + number + 1)


class Floor(ScriptCase):
    def test_new_record(self):
        self.one.look()
        seen = int(time.time() * 1e6) + 5_000_000_000
        self.assertEqual(self.hold(who(1), seen=seen).fence, seen + 1)

    def test_used_record(self):
        for shape in SHAPES:
            seen = int(time.time() * 1e6) + 3_000_000_000
            self.connection.command("DEL", KEY)
            self.hold_once(who(1))
            self.assertEqual(self.hold(who(2), seen=seen, **shape).fence,
                             seen + 1)

    def test_lower_floor_does_nothing(self):
        first = self.hold(who(1)).fence
        self.one.release(who(1))
        for number, seen in enumerate((0, 1, first - 1, first), 2):
            fence = self.hold(who(number), seen=seen).fence
            self.assertGreater(fence, first)
            self.assertLess(fence, self.one.last.time_us + FENCE_JUMP)
            self.one.release(who(number))
            first = fence

    def test_hand_over(self):
        self.queue(2)
        seen = int(time.time() * 1e6) + 7_000_000_000
        result = self.one.release(who(0), seen=seen)
        self.assertEqual(result.grants[0].fence, seen + 1)
        self.edit_ticket(1, ends=self.one.now - 1)
        self.edit(low=self.one.now - 1)
        self.says(self.one.renew(who(2), seen=seen + 500), OK,
                  fence=seen + 501)

    def test_far_beyond_the_clock_is_refused(self):
        far = int(time.time() * 1e6) + FENCE_FAR + 60_000_000
        self.says(self.one.acquire(who(1), seen=far), CORRUPT)
        self.assertIsNone(self.raw())
        self.hold_once(who(1))
        for shape in SHAPES:
            self.says(self.assert_untouched(self.one.acquire, who(2), seen=far,
                                            **shape), CORRUPT)

    def test_far_floor_in_a_batch_is_one_operations_own(self):
        far = int(time.time() * 1e6) + FENCE_FAR + 60_000_000
        results = self.one.call(
            "acquire", ("holdfast:{a}", scripts.acquire(who(1))),
            ("holdfast:{b}", scripts.acquire(who(1), seen=far)),
            ("holdfast:{c}", scripts.acquire(who(1))))
        self.assertEqual([result.status for result in results],
                         [OK, CORRUPT, OK])

    def test_far_floor_grants_nothing_in_a_queue(self):
        self.queue(1)
        far = int(time.time() * 1e6) + FENCE_FAR + 60_000_000
        self.says(self.one.release(who(0), seen=far), OK, grants=[])
        self.assert_order(who(1))
        self.assertEqual(self.record().granted, 0)
        self.says(self.one.renew(who(1)), OK)

    def test_after_flushall(self):
        """The broker remembers what Redis forgot."""
        seen = self.hold(who(1), seen=int(time.time() * 1e6)
                         + 9_000_000_000).fence
        self.connection.command("FLUSHALL")
        self.assertGreater(self.hold(who(2), seen=seen).fence, seen)


class Forgetting(ScriptCase):
    """A record outlives the time that its fence names: the next fence, made by
    the clock, would begin below it."""

    def outlives(self, share=1):
        record = self.record()
        clock_us = max(self.one.last.time_us, self.one.clock_us)
        ahead = max(record.fence - clock_us, 0) // 1000
        idle = self.one.idle_after
        least = max(idle * share, idle / 2 + ahead if share == 1 else 0)
        self.assertGreaterEqual(record.forget - self.one.now, int(least) - 1)
        self.assertLessEqual(record.forget - self.one.now,
                             max(idle, idle / 2 + ahead) + 1)
        left = self.connection.command("PTTL", KEY)
        self.assertAlmostEqual(left, record.forget - self.one.now, delta=5000)

    def test_clock_of_the_broker(self):
        for words in ((), (b"o", b"", b"")):
            self.connection.command("DEL", KEY)
            self.one.clock_us = int(time.time() * 1e6) + 5 * 3_600_000_000
            self.hold(who(1), words=words)
            self.outlives()

    def test_floor(self):
        self.one.idle_after = 120_001  # half of it is no whole number
        for words in ((), (b"o", b"", b"")):
            self.connection.command("DEL", KEY)
            self.hold_once(who(1))
            self.hold(who(2), words=words,
                      seen=int(time.time() * 1e6) + 7 * 3_600_000_000)
            self.outlives()
            self.one.release(who(2))
            self.hold(who(3), words=words)
            self.outlives()

    def test_stamped_by_who_looks(self):
        """A broker that is not settled has made it, without any fence."""
        self.one.settles_in = 1000
        self.one.acquire(who(1))
        self.says(self.one.release(who(1)), OK)
        self.assertEqual(self.record().fence, 0)
        self.one.settles_in = 0
        self.one.clock_us = int(time.time() * 1e6) + 5 * 3_600_000_000
        self.one.look()
        self.assertGreater(self.record().fence, 0)
        self.outlives(0.5)

    def test_hand_over(self):
        self.queue(1)
        self.one.release(who(0),
                         seen=int(time.time() * 1e6) + 9 * 3_600_000_000)
        self.outlives()

    def test_a_long_hold_and_its_release(self):
        """A renewal keeps a record whose time is half over."""
        for words in ((), (b"o", b"", b"")):
            self.connection.command("DEL", KEY)
            held = self.hold(who(1), words=words)
            known = {"arrival": held.arrival, "fence": held.fence}
            before = self.record().forget
            self.says(self.one.renew(who(1), **known), OK)
            self.assertEqual(self.record().forget, before)
            self.edit(forget=self.one.now + self.one.idle_after // 2 - 1000)
            self.says(self.one.renew(who(1), **known), OK)
            record = self.record()
            self.assertEqual(record.flags, scripts.KEPT)
            self.assertGreaterEqual(record.forget - self.one.now,
                                    self.one.forget_after)
            self.says(self.one.release(who(1), **known), OK)
            self.one.look()
            self.assertEqual(self.record().flags, 0)
            self.outlives(0.9)
            self.hold(who(2), words=words)
            self.outlives(0.5)

    def test_what_is_used_again_and_again(self):
        """It has half of the time at each grant."""
        for words in ((), (b"o", b"", b"")):
            for number in range(4):
                self.hold(who(number), words=words)
                self.outlives(0.5)
                self.one.release(who(number))
                self.edit(forget=self.one.now + self.one.idle_after // 4)


class OldCopies(ScriptCase):
    """An older copy comes back: the next fence is above all grants since."""

    def use(self, broker, count, number=0, **shape):
        fence = 0
        for _ in range(count):
            fence = self.hold(who(number), broker, **shape).fence
            broker.release(who(number))
        return fence

    def restore(self, copy):
        self.connection.command("RESTORE", KEY, 0, copy, "REPLACE")

    def test_of_a_free_lock(self):
        for shape in SHAPES:
            self.connection.command("DEL", KEY)
            self.use(self.one, 3, **shape)
            for _ in range(3):
                copy = self.connection.command("DUMP", KEY)
                last = self.use(self.two, 20, **shape)
                self.restore(copy)
                self.assertGreater(self.use(self.three, 1, **shape), last)

    def test_long_after_the_beginning(self):
        """Fences are the time then."""
        self.use(self.one, 1)
        old = self.one.last.time_us
        self.edit(fence=old - 1)
        copy = self.connection.command("DUMP", KEY)
        last = self.use(self.two, 20)
        self.assertGreater(last, old)
        self.assertLessEqual(last, self.two.last.time_us + 1)
        self.restore(copy)
        self.assertGreater(self.use(self.three, 1), last)

    def test_of_one_with_waiters(self):
        self.queue(1)
        self.edit(fence=self.one.now * 1000)
        copy = self.connection.command("DUMP", KEY)
        self.one.release(who(0))
        self.one.release(who(1))
        last = self.use(self.two, 20, 7)
        self.restore(copy)
        grant, = self.one.release(who(0)).grants
        self.assertGreater(grant.fence, last)

    def given(self, us):
        self.connection.command("SETRANGE", KEY, FIRST_AT["SINCE"],
                                struct.pack("<d", us))

    def test_never_far_ahead_of_the_clock(self):
        self.use(self.one, 1)
        self.given(self.one.last.time_us - 100 * FENCE_JUMP)
        fence = self.use(self.one, 1)
        self.assertLessEqual(fence, self.one.last.time_us + 2 * FENCE_JUMP + 1)
        self.given(self.one.last.time_us + FENCE_JUMP)
        self.assertEqual(self.use(self.one, 1), fence + 1)


class OldCopyAsTheClockArrives(ClockCase):
    """TIME passes the copy's fence, and not yet those that followed it."""

    def test_free_lock(self):
        for shape in SHAPES:
            self.connection.command("DEL", KEY)
            for passes_ms in (0, 9900, 4900, 2500, 1250, 700, 300):
                copy = self.connection.command("DUMP", KEY)
                self.pass_time(passes_ms)
                last = self.hold(who(1), **shape).fence
                self.one.release(who(1))
            self.assertGreater(last, self.now_us + 200_000)
            self.pass_time(100)
            self.connection.command("RESTORE", KEY, 0, copy, "REPLACE")
            self.assertGreater(self.hold(who(2), **shape).fence, last)
            self.one.release(who(2))


class SetBack(ClockCase):
    """The clock of Redis is set back, and records are gone."""

    def test_fences_grow(self):
        fences = []
        for hours in (0, 1, 2):
            for number in range(2):
                held = self.hold(who(number))
                fences.append(held.fence)
                self.one.release(who(number))
            self.connection.command("DEL", KEY)
            self.now_us -= hours * 3_600_000_000
            self.one.clock_us = 1_800_000_000_000_000 + len(fences)
        self.assertEqual(fences, sorted(set(fences)))


class Leap(ScriptCase):
    def test_forward(self):
        """A broker that has not noticed grants nothing, and ends no hold."""
        held = self.hold(who(1))
        self.connection.command("DEL", KEY)
        leap_us = 80 * self.one.idle_after
        for by_us, leaps in ((leap_us + 1, True), (leap_us // 2, False)):
            self.one.within = 100_000
            self.one.expected_us = self.one.last.time_us - by_us
            self.says(self.one.renew(who(1), arrival=held.arrival,
                                     fence=held.fence),
                      MISSING if leaps else GONE)
            self.says(self.one.release(who(1)), MISSING if leaps else GONE)
            self.says(self.one.acquire(who(2), no_queue=True),
                      GRACE if leaps else OK)


class ReplicationId(ScriptCase):
    def change(self):
        """Another replication id, as after a failover."""
        before = self.server.info("replication")["master_replid"]
        self.server.command("DEBUG", "CHANGE-REPL-ID")
        after = self.server.info("replication")["master_replid"]
        self.assertNotEqual(before, after)
        return after.encode()

    def test_free_record(self):
        for shape in SHAPES:
            self.connection.command("DEL", KEY)
            first = self.hold(who(1)).fence
            self.one.release(who(1))
            new_id = self.change()
            second = self.hold(who(2), **shape).fence
            self.assertEqual(second, self.one.last.time_us + FENCE_JUMP + 1)
            self.assertGreater(second, first)
            self.assertEqual(self.record().id, new_id)
            self.one.release(who(2))
            self.assertGreater(self.hold(who(3), **shape).fence, second)

    def test_steps_where_the_record_is_far_ahead_of_the_clock(self):
        seen = int(time.time() * 1e6) + 7_000_000_000
        first = self.hold(who(1), seen=seen).fence
        self.one.release(who(1))
        self.change()
        self.assertEqual(self.hold(who(2)).fence, first + FENCE_STEP + 1)

    def test_a_new_record_is_above_all_before_it(self):
        """The last fence may be ahead of the clock."""
        fences = [self.hold(who(1)).fence]
        for order in ("change", "change", "lose", "lose", "change", "lose"):
            if order == "change":
                self.one.release(who(len(fences)))
                self.change()
            else:
                self.connection.command("DEL", KEY)
            fences.append(self.hold(who(len(fences) + 1)).fence)
        self.assertEqual(fences, sorted(set(fences)))

    def test_hand_over(self):
        first = self.queue(2)[0].fence
        new_id = self.change()
        fence = self.one.release(who(0)).grants[0].fence
        self.assertGreater(fence, first)
        self.assertEqual(fence, self.one.last.time_us + FENCE_JUMP + 1)
        self.assertEqual(self.record().id, new_id)
        self.assertEqual(self.one.release(who(1)).grants[0].fence, fence + 1)

    def test_renewal_stamps_the_id_and_keeps_its_fence(self):
        first = self.hold(who(1))
        new_id = self.change()
        self.says(self.one.renew(who(1), arrival=first.arrival,
                                 fence=first.fence), OK, fence=first.fence)
        record = self.record()
        self.assertEqual((record.id, record.holder.fence),
                         (new_id, first.fence))
        self.assertGreater(record.fence, first.fence)
        self.assertEqual(record.fence, self.one.last.time_us + FENCE_JUMP)
        self.one.release(who(1))
        self.assertGreater(self.hold(who(2)).fence, record.fence)

    def test_release_and_enqueue_leave_the_id(self):
        """They grant nothing, so what a failover lost stays in doubt."""
        self.hold(who(1))
        old = self.record().id
        self.change()
        self.one.settles_in = 1
        self.wait(who(2))
        self.assertEqual(self.record().id, old)
        self.one.release(who(2))
        self.assertEqual(self.record().id, old)
        self.one.release(who(1))
        self.assertEqual(self.record().id, old)

    def test_many_changes(self):
        fences = []
        for number in range(12):
            fences.append(self.hold(who(number)).fence)
            self.one.release(who(number))
            if number % 3:
                self.change()
        self.assertEqual(fences, sorted(set(fences)))


class Failover(ScriptCase):
    """A replica that is promoted: the id changes, the fence jumps."""

    def promoted(self, replica):
        """A broker that is settled with the new master."""
        replica.command("REPLICAOF", "NO", "ONE")
        known = replica.info("replication")["master_replid"].encode()
        return self.broker_of(b"broker-9", self.connected(replica),
                              known_id=known)

    def connected(self, server):
        return self.closing(scripts.connect(server))

    def follow(self, master):
        replica = self.redis(replicaof=f"127.0.0.1 {master.port}")
        wait_until(lambda: replica.info("replication").get(
            "master_link_status") == "up", 20, "the replica follows")
        return replica

    def in_step(self, master, replica):
        wait_until(
            lambda: replica.info("replication")["slave_repl_offset"]
            == master.info("replication")["master_repl_offset"],
            20, "the replica is in step")

    def test_lost_writes_do_not_repeat_a_fence(self):
        master = self.redis()
        old = self.broker_of(b"broker-1", self.connected(master))
        replica = self.follow(master)
        for number in range(3):
            known = old.acquire(who(number))
            old.release(who(number), arrival=known.arrival)
        self.in_step(master, replica)
        new = self.promoted(replica)
        lost = []  # what the old master issues and the new one never sees
        for number in range(20):
            result = old.acquire(who(number))
            lost.append(result.fence)
            old.release(who(number), arrival=result.arrival)
        result = new.acquire(who(100))
        self.says(result, OK)
        self.assertGreater(result.fence, max(lost))

    def test_a_replica_has_the_same_bytes(self):
        """A script's writes are replicated by effect."""
        master = self.redis()
        connection = self.connected(master)
        brokers = [self.broker_of(b"broker-%d" % number, connection)
                   for number in range(3)]
        replica = self.follow(master)
        for number in range(200):
            broker = brokers[number % 3]
            key = f"holdfast:{{{number % 4}}}"
            broker.acquire(who(number), key=key)
            if number % 5 == 4:
                broker.renew(who(number), key=key, lease=LEASE + number)
            if number % 3 == 2:
                broker.release(who(number - 4), key=key)
        self.in_step(master, replica)
        for number in range(4):
            key = f"holdfast:{{{number}}}"
            mine = connection.command("GET", key)
            self.assertEqual(replica.command("GET", key), mine)
            scripts.Record(mine).check()
            self.assertGreater(replica.command("PTTL", key), 60_000)

    def test_holder_survives_the_failover(self):
        master = self.redis()
        old = self.broker_of(b"broker-1", self.connected(master))
        replica = self.follow(master)
        held = old.acquire(who(1))
        old.acquire(who(2))
        self.in_step(master, replica)
        new = self.promoted(replica)
        new.broker = b"broker-1"
        result = new.renew(who(1), arrival=held.arrival, fence=held.fence)
        self.says(result, OK, fence=held.fence)
        raised = new.last.time_us + FENCE_JUMP
        self.says(new.renew(who(2)), WAITING)
        result = new.release(who(1), fence=held.fence)
        self.assertEqual(result.grants[0].fence, raised + 1)
        self.assertGreater(raised, held.fence)

    def test_restart_without_data(self):
        """Nothing is known, the broker's memory and clock are what is left."""
        master = self.redis()
        broker = self.broker_of(b"broker-1", self.connected(master))
        held = broker.acquire(who(1))
        master.restart(kill=True)
        broker.connection = self.connected(master)
        broker.load(scripts.sources())
        self.says(broker.renew(who(1), fence=held.fence), GONE)
        self.assertGreater(self.says(broker.acquire(
            who(1), retry=True, seen=held.fence), OK).fence, held.fence)

    def test_restart_with_old_data(self):
        master = self.redis()
        connection = self.connected(master)
        broker = self.broker_of(b"broker-1", connection)
        broker.acquire(who(0))
        broker.release(who(0))
        connection.command("SAVE")
        later = [broker.acquire(who(1)).fence]
        broker.release(who(1))
        later.append(broker.acquire(who(2)).fence)
        master.restart(kill=True)
        broker.connection = self.connected(master)
        broker.load(scripts.sources())
        record = scripts.Record(broker.connection.command("GET", KEY))
        self.assertIsNone(record.check().holder)
        self.assertGreater(broker.acquire(who(3)).fence, max(later))
        holder = scripts.Record(
            broker.connection.command("GET", KEY)).check().holder
        self.assertEqual((holder.who, holder.flags), (who(3), HELD))


class QuorumTest(ScriptCase):
    """Each node gives fences of its own, and takes what another gave."""

    def grants(self):
        """Fences in the order of their grants, each made in another way."""
        yield self.one.acquire(who(1)).fence
        self.one.release(who(1))
        yield self.one.acquire(who(2)).fence  # a record that there is
        self.one.release(who(2))
        yield self.one.acquire(who(3), words=(b"", b"name", b"")).fence
        self.one.acquire(who(4))
        yield self.one.release(who(3)).grants[0].fence
        self.one.release(who(4))
        yield self.one.acquire(who(5), mode=SHARED).fence
        yield self.one.acquire(who(6), mode=SHARED).fence
        seen = int(self.record().fence) + 100
        yield self.one.acquire(who(7), mode=SHARED, seen=seen).fence
        for number in (5, 6, 7):
            self.one.release(who(number))
        yield self.one.acquire(who(8)).fence

    def test_numbers(self):
        self.one.number = 3
        fences = list(self.grants())
        self.assertEqual([fence % 16 for fence in fences], [0] * len(fences))
        steps = {later - fence for fence, later in zip(fences, fences[1:])}
        self.assertEqual(steps, {16, 112})  # and 100 were left out

    def test_another_nodes_fence(self):
        for number in (1, 2, 15):
            with self.subTest(number=number):
                self.connection.command("FLUSHALL")
                self.one.number = number
                self.raises(number)

    def raises(self, number):
        def is_raised(seen, fence, highest, agreed=False):
            self.says(self.one.renew(who(1), raises=True, agreed=agreed,
                                     seen=seen), OK, fence=fence)
            record = self.record()
            self.assertEqual(record.fence, highest)
            self.assertEqual([ticket.fence for ticket in record.living],
                             [fence, second])

        first = self.one.acquire(who(1), mode=SHARED).fence
        second = self.one.acquire(who(2), mode=SHARED).fence
        self.assertEqual(second, first + 16)
        is_raised(first, first, second)
        is_raised(first + 9, first + 9, second)  # some node's, and no other's
        own = second + number
        is_raised(second, own, own)  # another's here
        is_raised(second, own, own)
        is_raised(own, own, own)
        is_raised(second + 16, second + 16, second + 16)  # given by nobody yet
        is_raised(second + 32 + number, second + 32 + number,
                  second + 32 + number)
        highest = second + 32 + number
        is_raised(first, highest, highest)
        is_raised(first, first, highest, agreed=True)
        is_raised(second + 16, second + 16, highest, agreed=True)
        third = self.one.acquire(who(3), mode=SHARED).fence
        self.assertEqual(third, second + 48)
        far = self.one.last.time_us + FENCE_FAR + 10_000_000
        self.says(self.one.renew(who(1), raises=True, seen=far), CORRUPT)
        self.assertEqual(self.record().living[0].fence, second + 16)
