"""Intentions beside other modes: who may join whom, and who is next."""

import itertools

import scripts
from script_case import ScriptCase
from scripts import (BROKEN_NOW, BUSY, CONFLICT, EXCLUSIVE, GONE, INTENT,
                     INTENT_SHARED, KEY, LEASE, NEWER, OK, PART, SHARED,
                     UPGRADABLE, UPGRADE, WAITING, who)

MODES = {"X": EXCLUSIVE, "S": SHARED, "U": UPGRADABLE, "i": INTENT_SHARED,
         "I": INTENT}
TOGETHER = ("SS", "SU", "Si", "Ui", "ii", "iI", "II")


def go_together(held):
    return all("".join(pair) in TOGETHER or "".join(pair[::-1]) in TOGETHER
               for pair in itertools.combinations(held, 2))


def prefix(queue):
    """The letters that hold the lock: the longest that go together."""
    count = 0
    while count < len(queue) and go_together(queue[:count + 1]):
        count += 1
    return queue[:count]


class TreeCase(ScriptCase):
    def take(self, number, letter, broker=None, **options):
        return (broker or self.one).acquire(
            who(number), mode=MODES[letter], **options)

    def stand(self, letters):
        self.connection.command("DEL", KEY)
        return [self.take(*item).status for item in enumerate(letters)]

    def holders(self):
        return [int(ticket.who.request[1:]) for ticket in
                self.record().check().living if ticket.granted]


class Matrix(TreeCase):
    def test_pairs(self):
        for pair in itertools.product(MODES, repeat=2):
            fits = go_together(pair)
            self.assertEqual(self.stand(pair), [OK, OK if fits else WAITING],
                             pair)
            self.stand(pair[:1])
            self.says(self.take(1, pair[1], no_queue=True),
                      OK if fits else BUSY)

    def test_any_order_of_leaving(self):
        """Each is granted in its turn, whoever of the others leaves first."""
        for letters in itertools.product("SUiI", repeat=3):
            for order in itertools.permutations(range(3)):
                queue = dict(enumerate(letters + ("I", "X", "S")))
                self.stand(queue.values())
                for number in order:
                    there = [*queue]
                    held = prefix([*queue.values()])
                    self.assertEqual(self.holders(), there[:len(held)],
                                     (letters, order))
                    self.one.release(who(number))
                    del queue[number]
                self.assertEqual(self.holders(), [3])

    def test_the_last_reader_lets_an_intention_in(self):
        self.assertEqual(self.stand("SiSiIi"), [OK] * 4 + [WAITING] * 2)
        self.one.release(who(0))
        self.assertEqual(self.holders(), [1, 2, 3])
        result = self.one.release(who(2))
        self.assertEqual([grant.request for grant in result.grants],
                         [who(4).request, who(5).request])
        self.assertEqual(self.holders(), [1, 3, 4, 5])

    def test_a_writer_is_not_overtaken(self):
        self.stand("IXiI")
        self.assertEqual(self.holders(), [0])
        self.says(self.take(4, "i", no_queue=True), BUSY)
        self.one.release(who(0))
        self.assertEqual(self.holders(), [1])
        self.one.release(who(1))
        self.assertEqual(self.holders(), [2, 3])

    def test_a_hold_that_is_over(self):
        self.stand("S")
        self.take(1, "i", lease=2 * LEASE)
        self.take(2, "I", lease=2 * LEASE)
        self.age(LEASE)
        self.one.look()
        self.assertEqual(self.holders(), [1, 2])

    def test_an_upgrade_waits_for_intentions(self):
        self.stand("Ui")
        self.says(self.one.acquire(who(0).above(), mode=UPGRADE), WAITING)
        self.says(self.take(2, "i", no_queue=True), BUSY)
        result = self.one.release(who(1))
        self.assertEqual(len(result.grants), 1)

    def test_a_downgrade_lets_shared_ones_in(self):
        self.stand("XiI")
        self.says(self.one.renew(who(0), shares=True), OK)
        self.assertEqual(self.holders(), [0, 1])


class Record(TreeCase):
    def test_earlier_brokers_refuse_it(self):
        self.stand("Xi")
        self.assertEqual(self.record().version, 3)
        self.one.release(who(1))
        self.one.release(who(0))
        self.assertEqual(self.record().version, 1)
        self.says(self.take(0, "I"), OK)
        self.assertEqual((self.record().version, self.record().intents),
                         (3, [1, 0]))
        self.edit(version=4)
        self.says(self.take(1, "S"), NEWER)

    def test_it_is_no_semaphore(self):
        self.stand("iI")
        self.says(self.one.acquire(who(2), limit=3), CONFLICT)
        self.says(self.one.resize(5), CONFLICT)
        self.age(LEASE)
        self.says(self.one.acquire(who(2), limit=3), OK, ahead=3)
        self.assertEqual((self.record().version, self.record().limit), (1, 3))
        self.says(self.take(3, "I"), CONFLICT)

    def test_it_never_becomes_a_hold_of_the_whole(self):
        for options in ({"detaches": True, "hold": LEASE}, {"shares": True}):
            self.stand("I")
            self.says(self.one.renew(who(0), **options), BROKEN_NOW)

    def test_they_come_back(self):
        """To data that lack them: each with its fence, and all are counted."""
        fences = [self.take(*item).fence for item in enumerate("iSi")]
        stood = [(each, ticket.arrival)
                 for each, ticket in zip("iSi", self.record().living)]
        self.connection.command("DEL", KEY)
        self.one.settles_in = 5000
        for number, (letter, arrival) in enumerate(stood):
            self.says(self.one.acquire(
                who(number), mode=MODES[letter], stood=(
                    arrival, fences[number])), OK)
        self.assertEqual(self.holders(), [0, 1, 2])
        self.assertEqual(self.record().intents, [0, 2])


class Wanted(TreeCase):
    def setUp(self):
        super().setUp()
        self.messages = self.listen(b"watch")

    def heard(self):
        """How many messages of it since."""
        told = self.messages()
        self.assertEqual(told, [(b"watch", b"I" + KEY.encode())] * len(told))
        return len(told)

    def test_of_the_first_waiter(self):
        self.says(self.take(0, "I"), OK, waited_for=False)
        self.take(1, "i", self.two)
        self.assertEqual(self.heard(), 0)
        self.take(2, "X", self.three)
        self.assertEqual(self.heard(), 1)
        self.take(3, "X", self.three)
        self.assertEqual(self.heard(), 0)
        self.says(self.one.renew(who(0)), OK, waited_for=True)
        self.says(self.two.acquire(who(1), mode=INTENT_SHARED, retry=True), OK,
                  waited_for=True)

    def test_of_a_grant_before_a_waiter(self):
        self.take(0, "X")
        self.take(1, "I")
        self.take(2, "X")
        self.assertEqual(self.heard(), 0)
        self.says(self.one.release(who(0)), OK)
        self.assertEqual(self.heard(), 1)

    def test_of_one_that_does_not_wait(self):
        self.take(0, "I", self.two)
        self.says(self.take(1, "X", no_queue=True), BUSY)
        self.assertEqual(self.heard(), 1)
        self.says(self.two.renew(who(0)), OK, waited_for=False)


class Parts(TreeCase):
    def marks(self):
        return [ticket.mode for ticket in self.record().living]

    def test_the_mark_stays_with_the_ticket(self):
        for mode in (EXCLUSIVE, SHARED, UPGRADABLE):
            self.connection.command("DEL", KEY)
            result = self.one.acquire(who(0), mode=mode + PART)
            self.says(self.one.acquire(who(1), mode=SHARED + PART),
                      OK if mode else WAITING)
            self.says(self.one.renew(who(0), fence=result.fence), OK)
            self.assertEqual(self.marks(), [mode + PART, SHARED + PART])
            claim = self.one.renew(who(0, 2), fence=result.fence, moves=True)
            self.says(claim, OK)
            self.assertEqual(claim.about.mode, mode + PART)

    def test_no_other_broker_claims_a_part_or_an_intention(self):
        for mode in (PART, SHARED + PART, INTENT):
            self.connection.command("DEL", KEY)
            fence = self.one.acquire(who(0), mode=mode).fence
            claim = self.two.renew(who(0, 2), fence=fence, moves=True)
            self.says(claim, GONE)
            self.says(self.one.renew(who(0), fence=fence), OK)

    def test_a_later_lock_is_a_part_or_not(self):
        self.one.acquire(who(0), mode=PART)
        self.says(self.two.acquire(who(0, 2), moves=True), OK)
        self.assertEqual(self.marks(), [EXCLUSIVE])
        self.says(self.one.acquire(who(0, 3), mode=PART, moves=True), OK)
        self.assertEqual(self.marks(), [PART])

    def test_by_the_short_cuts(self):
        """They are as fast as locks without a tree."""
        texts = {name: scripts.replaced(text, "slow = slow or general()",
                                        "error('the general way')")
                 if name in scripts.TIMED else text
                 for name, text in scripts.sources().items()}
        broker = self.broker_of(b"broker-1", texts=texts)
        for _ in range(2):  # the first use of the name, and a later one
            held = broker.acquire(who(0), mode=PART)
            known = {"arrival": held.arrival, "fence": held.fence}
            self.says(broker.renew(who(0), **known), OK)
            self.assertEqual((self.record().version, self.marks()), (1, [PART]))
            self.says(broker.release(who(0), **known), OK)
