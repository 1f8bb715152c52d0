"""Only the very ticket: session, owner, generation, request, fence, arrival."""

import dataclasses

import scripts
from script_case import KEY, ScriptCase
from scripts import GONE, HELD, OK, WAITING, Who, who

BASE = Who(b"session-identity", b"owner-id", b"request!", 0x01020304)


def one_bit_off():
    """Every identity that differs from BASE in one bit."""
    for bit in range(32):
        yield dataclasses.replace(BASE, generation=BASE.generation ^ 1 << bit)
    for field in ("session", "owner", "request"):
        value = getattr(BASE, field)
        for bit in range(8 * len(value)):
            changed = bytearray(value)
            changed[bit // 8] ^= 1 << bit % 8
            yield dataclasses.replace(BASE, **{field: bytes(changed)})


class OneBit(ScriptCase):
    """A stranger's release and renewal do nothing, whatever it knows."""

    def refuse(self, stranger, known):
        for name in ("release", "renew"):
            for options in ({}, {"arrival": known.arrival},
                            {"arrival": known.arrival,
                             "place": known.place, "fence": known.fence}):
                self.says(self.assert_untouched(getattr(self.one, name),
                                                stranger, **options), GONE)

    def strangers(self, known):
        count = 0
        for stranger in one_bit_off():
            self.refuse(stranger, known)
            count += 1
        self.assertEqual(count, 32 + 8 * 32)

    def test_holder(self):
        self.strangers(self.hold(BASE))
        self.assert_holder(BASE)

    def test_holder_with_words(self):
        self.strangers(self.hold(BASE, words=(b"o", b"n", b"note")))
        self.assert_holder(BASE)

    def test_holder_before_a_queue(self):
        known = self.hold(BASE)
        self.wait(who(1))
        self.strangers(known)
        self.assert_order(BASE, who(1))

    def test_waiter(self):
        self.hold(who(1))
        self.strangers(self.wait(BASE))
        self.assert_order(who(1), BASE)

    def test_acquire_again_is_another(self):
        self.hold(BASE)
        for number, stranger in enumerate(one_bit_off()):
            if number % 17 == 0:
                result = self.says(self.one.acquire(stranger, retry=True),
                                   WAITING)
                self.assert_order(BASE, stranger)
                self.one.release(stranger, arrival=result.arrival)


class Prefixes(ScriptCase):
    def test_one_name_within_another(self):
        short = Who(b"s1" + b"\0" * 14, b"\0" * 8, b"r" * 8)
        long = Who(b"s12" + b"\0" * 13, b"\0" * 8, b"r" * 8)
        for holder, other in ((short, long), (long, short)):
            self.connection.command("DEL", KEY)
            known = self.hold(holder)
            for options in ({}, {"arrival": known.arrival,
                                 "fence": known.fence}):
                for name in ("release", "renew"):
                    self.says(self.assert_untouched(getattr(self.one, name),
                                                    other, **options), GONE)

    def test_fields_do_not_run_into_each_other(self):
        """The same bytes, shifted over the borders of the fields."""
        known = self.hold(Who(b"aaaaaaaaaaaaaaab", b"bbbbbbbc", b"cccccccd"))
        other = Who(b"aaaaaaaaaaaaaabb", b"bbbbbbcc", b"ccccccdd")
        self.says(self.one.release(other, arrival=known.arrival), GONE)

    def test_zeros(self):
        """Bytes of nothing find no ticket."""
        self.hold_once(who(0))
        nobody = Who(b"\0" * 16, b"\0" * 8, b"\0" * 8, 0)
        for name in ("release", "renew"):
            for options in ({}, {"arrival": 1}, {"arrival": 2}):
                self.says(self.assert_untouched(getattr(self.one, name),
                                                nobody, **options), GONE)


class Numbers(ScriptCase):
    def test_wrong_fence(self):
        known = self.hold(who(1))
        for fence in (known.fence - 1, known.fence + 1, 1, 2.0 ** 53 - 1,
                      known.fence + 0.5):
            for name in ("release", "renew"):
                for arrival in (0, known.arrival):
                    self.says(self.assert_untouched(getattr(self.one, name),
                                                    who(1), fence=fence,
                                                    arrival=arrival), GONE)
        self.says(self.one.renew(who(1), fence=known.fence), OK)

    def test_wrong_arrival(self):
        known = self.hold(who(1))
        for arrival in (known.arrival - 1, known.arrival + 1, 2.0 ** 52,
                        known.arrival + 0.5):
            if arrival > 0:
                for name in ("release", "renew"):
                    self.says(self.assert_untouched(getattr(self.one, name),
                                                    who(1), arrival=arrival,
                                                    fence=known.fence), GONE)

    def test_old_fence_of_the_same_ticket(self):
        """A late first release does not end the second hold."""
        first = self.hold(who(1))
        self.one.release(who(1), fence=first.fence)
        second = self.hold(who(1))
        for options in ({"fence": first.fence}, {"arrival": first.arrival}):
            self.says(self.assert_untouched(self.one.release, who(1),
                                            **options), GONE)
        self.says(self.one.release(who(1), fence=second.fence,
                                   arrival=second.arrival), OK)

    def test_waiters_release_has_no_fence(self):
        """A ticket granted meanwhile: a release with fence 0 ends it."""
        self.hold(who(0))
        known = self.wait(who(1))
        self.one.release(who(0))
        self.assert_holder(who(1), HELD)
        self.says(self.one.release(who(1), arrival=known.arrival,
                                   place=known.place), OK)
        self.assert_order()

    def test_lock_names_do_not_mix(self):
        known = self.hold(who(1), key="holdfast:{a}")
        for key in ("holdfast:{ab}", "holdfast:{}", "holdfast:{A}"):
            self.says(self.one.release(who(1), key=key, arrival=known.arrival,
                                       fence=known.fence), GONE)
            self.assertIsNone(self.raw(key))
        self.record("holdfast:{a}")


class Names(ScriptCase):
    def test_any_bytes_in_a_key(self):
        for name in (b"\0", b"\r\n", b"a b", b"}{", b"%d %s", b"\xff\xfe",
                     "\u00e4".encode(), b"x" * 255):
            key = b"holdfast:{" + name + b"}"
            result = self.hold(who(1), key=key)
            self.says(self.one.renew(who(1), key=key, arrival=result.arrival),
                      OK)
            self.says(self.one.release(who(1), key=key), OK)
            scripts.Record(self.raw(key)).check()
