"""mode=upgradable and upgrades, through the sockets of two brokers."""

from test_kinds import KindsCase


class UpgradeTest(KindsCase):
    def test_beside_readers_and_alone(self):
        holder, reader, other, late = (self.connect() for _ in range(4))
        first = holder.ok("LOCK u mode=upgradable", count=1).fence
        reader.ok("LOCK u mode=shared", count=1)
        other.err("LOCK u mode=upgradable wait=0", "BUSY")
        tag = holder.waits("LOCK u")
        # New readers wait behind the upgrade, also without waiting.
        late.err("LOCK u mode=shared wait=0", "BUSY")
        late_tag = late.waits("LOCK u mode=shared")
        shown = other.ok("SHOW u", mode="upgradable", holders=2, waiters=2)
        self.assertEqual([(item["kind"], item.get("mode"), item.get("upgrade"))
                          for item in shown.items],
                         [("holder", "upgradable", None),
                          ("holder", "shared", None),
                          ("waiter", None, "1"),
                          ("waiter", "shared", None)])
        reader.ok("UNLOCK u", count=0)
        alone = holder.wait(tag)
        self.assertEqual(alone["count"], "2")
        self.assertGreater(alone.fence, first)
        other.ok("SHOW u", mode="exclusive", holders=2, waiters=1)
        holder.ok("UNLOCK u", count=1)
        self.assertGreater(late.wait(late_tag).fence, alone.fence)
        self.assertEqual([item.fence for item in holder.ok("HELD", n=1).items],
                         [first])
        holder.ok("UNLOCK u", count=0)
        other.ok("LOCK u mode=upgradable wait=0")

    def test_it_is_given_up(self):
        """The hold stays, and the readers behind it are served."""
        holder, reader, late = (self.connect() for _ in range(3))
        first = holder.ok("LOCK u mode=upgradable").fence
        reader.ok("LOCK u mode=shared")
        tag = holder.waits("LOCK u")
        late_tag = late.waits("LOCK u mode=shared")
        holder.ok(f"CANCEL {tag}")
        self.assertEqual(holder.wait(tag).word, "ERR")
        late.wait(late_tag)
        holder.err("LOCK u wait=100ms", "TIMEOUT")
        holder.err("LOCK u wait=0", "BUSY")
        holder.ok(f"UNLOCK u fence={first}", count=0)

    def test_of_a_reader(self):
        """Only while it is the sole one, and before those that wait."""
        reader, other, writer = (self.connect() for _ in range(3))
        reader.ok("LOCK u mode=shared")
        other.ok("LOCK u mode=shared")
        for client in (reader, other):
            client.err("LOCK u", "CONFLICT")
        other.ok("UNLOCK u")
        tag = writer.waits("LOCK u")
        reader.ok("LOCK u", count=2)
        other.err("LOCK u mode=shared wait=0", "BUSY")
        reader.ok("UNLOCK u", count=1)
        self.assertFalse(writer.events)
        reader.ok("UNLOCK u", count=0)
        writer.wait(tag)

    def test_a_deadlock_with_a_reader_is_found(self):
        holder, reader = self.connect(), self.connect()
        holder.ok("LOCK m")
        holder.ok("LOCK u mode=upgradable")
        reader.ok("LOCK u mode=shared")
        reader_tag = reader.waits("LOCK m")
        tag = holder.waits("LOCK u")
        self.assertEqual(holder.wait(tag).code, "DEADLOCK")
        holder.ok("UNLOCK m")
        reader.wait(reader_tag)

    def test_a_deadlock_behind_an_upgradable_wait_is_found(self):
        """A reader waits for the one before it, which waits for the holder."""
        holder, reader, other = (self.connect() for _ in range(3))
        holder.ok("LOCK u mode=upgradable")
        reader.ok("LOCK m")
        other.waits("LOCK u mode=upgradable")
        reader.waits("LOCK u mode=shared")
        tag = holder.waits("LOCK m")
        self.assertEqual(holder.wait(tag).code, "DEADLOCK")

    def test_several_names_upgrade_nothing(self):
        client = self.connect()
        client.ok("LOCK u mode=upgradable")
        client.err("LOCK u v", "CONFLICT")
        client.ok("HELD", n=1)

    def test_the_holder_dies(self):
        holder, reader, late = (self.connect() for _ in range(3))
        holder.ok("LOCK u mode=upgradable")
        reader.ok("LOCK u mode=shared")
        holder.waits("LOCK u")
        tag = late.waits("LOCK u mode=upgradable")
        holder.close()
        late.wait(tag)
        late_tag = late.waits("LOCK u")
        reader.close()
        late.wait(late_tag)
