"""Each command, with one broker and one Redis, nothing broken."""

import os
import re
import time

from harness import SHORT_CUTS, Monitor, encode, shared_redis
from shared import BrokerCase, definitions, read, stats, unread


class LockTest(BrokerCase):
    def test_lock_and_unlock(self):
        client = self.connect()
        first = client.ok("LOCK locks/plain", count=1)
        self.assertLess(first.ttl_ms, 30001)
        self.assertLess(0, first.ttl_ms)
        client.ok(f"UNLOCK locks/plain fence={first.fence}", count=0)
        second = client.ok("LOCK locks/plain", count=1)
        self.assertGreater(second.fence, first.fence)
        self.assertLess(second.fence, 2 ** 53)
        client.ok("UNLOCK locks/plain", count=0)
        client.err("UNLOCK locks/plain", "NOTHELD")

    def test_reentry(self):
        client, other = self.connect(), self.connect()
        fence = client.ok("LOCK locks/again", count=1).fence
        client.ok("LOCK locks/again", count=2, fence=fence)
        client.ok("LOCK locks/again lease=1s wait=0", count=3, fence=fence)
        waiting = other.waits("LOCK locks/again")
        client.ok("UNLOCK locks/again", count=2)
        client.ok("UNLOCK locks/again", count=1)
        other.no_reply(waiting, 0.1)
        client.ok("UNLOCK locks/again", count=0)
        self.assertGreater(other.wait(waiting).fence, fence)

    def test_owners_exclude_each_other(self):
        client = self.connect()
        one = client.ok("LOCK locks/owners owner=a", count=1)
        client.err("LOCK locks/owners owner=b wait=0", "BUSY")
        client.err("LOCK locks/owners wait=0", "BUSY")
        client.ok("LOCK locks/owners owner=a", count=2, fence=one.fence)
        client.err("UNLOCK locks/owners owner=b", "NOTHELD")
        client.err("UNLOCK locks/owners", "NOTHELD")
        waiting = client.submit("LOCK locks/owners owner=b")
        client.ok("UNLOCK locks/owners owner=a", count=1)
        client.ok("UNLOCK locks/owners owner=a", count=0)
        self.assertGreater(client.wait(waiting).fence, one.fence)
        client.ok("UNLOCK locks/owners owner=b", count=0)

    def test_an_owner_is_its_bytes(self):
        client = self.connect("LOCK locks/bytes owner=%41")
        client.ok("LOCK locks/bytes owner=A", count=2)
        client.err("LOCK locks/bytes owner=a wait=0", "BUSY")
        client.err("LOCK locks/bytes owner=A%00 wait=0", "BUSY")

    def test_names_are_bytes(self):
        client = self.connect()
        whole = encode(bytes(range(256))[1:])
        fences = [client.ok(f"LOCK {name}", count=1).fence
                  for name in (whole, "%00", "%00%00", "%7b}", "{", "}x")]
        self.assertEqual(len(fences), 6)
        client.ok("LOCK %7B%7D", count=2)
        names = {item["name"] for item in client.ok("HELD", n=6).items}
        self.assertEqual(len(names), 6)
        for name in (whole, "%00", "%00%00", "%7b}", "{", "}x"):
            self.assertEqual(
                client.ok(f"SHOW {name}", state="held").items[0]["session"],
                client.ok("SHOW {").items[0]["session"])

    def test_verbs_and_keys_in_any_case(self):
        client = self.connect()
        client.ok("lock locks/case WAIT=0 Lease=20S".replace("20S", "20s"))
        client.ok("rEnEw locks/case LEASE=20s")
        client.ok("Unlock locks/case", count=0)

    def test_wait_is_over(self):
        holder, client = self.connect("LOCK locks/wait"), self.connect()
        client.err("LOCK locks/wait wait=0", "BUSY")
        begin = time.monotonic()
        reply = client.err("LOCK locks/wait wait=300ms", "TIMEOUT")
        self.assertGreaterEqual(time.monotonic() - begin, 0.299)
        self.assertEqual(reply["retry"], "1")
        holder.ok("UNLOCK locks/wait")
        client.ok("LOCK locks/wait wait=0", count=1)

    def test_who_timed_out_is_not_granted(self):
        holder, late, next_one = (self.connect() for _ in range(3))
        holder.ok("LOCK locks/late")
        late.err("LOCK locks/late wait=50ms", "TIMEOUT")
        waiting = next_one.submit("LOCK locks/late progress=1")
        self.assertEqual(next_one.queued(waiting)["position"], "1")
        holder.ok("UNLOCK locks/late")
        next_one.wait(waiting)
        late.ok("HELD", n=0)

    def test_progress(self):
        clients = [self.connect() for _ in range(4)]
        self.assertEqual(clients[0].ok("LOCK locks/line progress=1").early, [])
        tags = []
        for place, client in enumerate(clients[1:], 1):
            tags.append(client.submit("LOCK locks/line progress=1"))
            self.assertEqual(client.queued(tags[-1])["position"], str(place))
        clients[0].ok("UNLOCK locks/line")
        for client, tag in zip(clients[1:], tags):
            reply = client.wait(tag)
            self.assertTrue(reply.ok)
            self.assertEqual(reply.early, [])
            client.ok("UNLOCK locks/line")

    def test_one_place_an_owner(self):
        holder, client = self.connect("LOCK locks/place"), self.connect()
        first = client.waits("LOCK locks/place")
        second = client.submit("LOCK locks/place progress=1")
        client.err("LOCK locks/place wait=0", "BUSY")
        client.no_reply(second, 0.1)
        holder.ok("UNLOCK locks/place")
        self.assertEqual(client.wait(first)["count"], "1")
        reply = client.wait(second)
        self.assertEqual(reply["count"], "2")
        self.assertEqual(reply.early, [])

    def test_held_by_who_waits_behind_himself(self):
        """The second LOCK of an owner, called off, leaves the first alone."""
        holder, client = self.connect("LOCK locks/self"), self.connect()
        first = client.waits("LOCK locks/self")
        second = client.submit("LOCK locks/self")
        client.ok(f"CANCEL {second}")
        client.refused(second, "CANCELLED")
        third = client.submit("LOCK locks/self wait=50ms")
        self.assertIn(client.wait(third).code, ("TIMEOUT", "UNAVAILABLE"))
        client.no_reply(first, 0.05)
        holder.ok("UNLOCK locks/self")
        self.assertEqual(client.wait(first)["count"], "1")

    def test_hello_and_ttl(self):
        client = self.connect()
        self.assertEqual(client.hello["lease_ms"], "30000")
        reply = client.ok("HELLO heartbeat=1s name=a%20b", heartbeat_ms=1000)
        self.assertEqual(reply["session"], client.hello["session"])
        self.assertLessEqual(client.ok("LOCK locks/ttl").ttl_ms, 3000)
        self.assertLessEqual(client.ok("PING").ttl_ms, 3000)

    def test_quit(self):
        client, other = self.connect(), self.connect()
        client.ok("LOCK locks/quit")
        other.ok("LOCK locks/quit-other")
        client.send("1 LOCK locks/quit-other\n2 QUIT\n3 PING")
        client.wait("2")
        client.refused("1", "CANCELLED")
        client.event("BYE")
        self.assertEqual(client.at_end(), [])
        other.ok("LOCK locks/quit wait=5s")


class LeaseTest(BrokerCase):
    overrides = {"lease.default": "1s"}

    def test_renewed_while_the_session_lives(self):
        client, other = self.connect(), self.connect()
        fence = client.ok("LOCK lease/watchdog").fence
        waiting = other.submit("LOCK lease/watchdog")
        client.no_event("LOST", 2.2)
        (item,) = client.ok("HELD").items
        self.assertEqual(item.fence, fence)
        other.no_reply(waiting, 0.01)
        client.ok("UNLOCK lease/watchdog", count=0)
        self.assertGreater(other.wait(waiting).fence, fence)

    def test_a_lease_ends(self):
        client, other = self.connect(), self.connect()
        begin = time.monotonic()
        fence = client.ok("LOCK lease/end lease=500ms").fence
        waiting = other.submit("LOCK lease/end")
        granted = other.wait(waiting)
        self.assertIn(b"* LOST lease/end", unread(client))
        self.assertGreater(granted.at - begin, 0.45)
        lost = client.event("LOST", fence=fence, reason="expired")
        self.assertEqual(lost.words, ["lease/end"])
        client.err("UNLOCK lease/end", "NOTHELD")
        client.err("RENEW lease/end lease=1s", "NOTHELD")

    def test_longer_than_the_default(self):
        client, other = self.connect(), self.connect()
        begin = time.monotonic()
        client.ok("LOCK lease/long lease=2500ms")
        waiting = other.submit("LOCK lease/long")
        self.assertGreater(other.wait(waiting).at - begin, 2.4)
        self.assertIn(b"* LOST lease/long", unread(client))

    def test_renew(self):
        client = self.connect()
        fence = client.ok("LOCK lease/renew lease=400ms").fence
        for _ in range(4):
            time.sleep(0.2)
            client.ok(f"RENEW lease/renew lease=400ms fence={fence}")
        self.assertEqual(client.ok("HELD", n=1).items[0].fence, fence)
        client.err("RENEW lease/renew lease=1s fence=1", "STALE")
        client.err("RENEW lease/other lease=1s", "NOTHELD")
        client.err("RENEW lease/renew lease=1s owner=x", "NOTHELD")
        client.ok("LOCK lease/watched")
        client.ok("RENEW lease/watched lease=600ms")
        for _ in range(2):
            client.event("LOST", reason="expired")
        self.connect().ok("LOCK lease/watched wait=2s")

    def test_renew_sooner_and_later(self):
        client, other = self.connect(), self.connect()
        client.ok("LOCK lease/turn lease=20s")
        begin = time.monotonic()
        reply = client.ok("RENEW lease/turn lease=400ms")
        self.assertLessEqual(reply.ttl_ms, 400)
        lost = client.event("LOST", reason="expired")
        self.assertLess(lost.at - begin, 5)
        other.ok("LOCK lease/turn wait=5s")

    def test_reentry_keeps_the_lease(self):
        client = self.connect()
        fence = client.ok("LOCK lease/keep lease=600ms").fence
        client.ok("LOCK lease/keep lease=20s", count=2)
        client.event("LOST", fence=fence, reason="expired")
        reply = client.request("UNLOCK lease/keep")
        self.assertIn(reply.code, ("LOST", "NOTHELD"))

    def test_ping_tells_the_least(self):
        client = self.connect()
        self.assertNotIn("ttl_ms", client.ok("PING"))
        client.ok("LOCK lease/least")
        client.ok("LOCK lease/less lease=200ms")
        self.assertGreater(client.ok("PING").ttl_ms, 200)
        client.event("LOST")
        self.assertLessEqual(client.ok("PING").ttl_ms, 1000)

    def test_what_was_lost_comes_back_with_a_new_fence(self):
        client = self.connect()
        fence = client.ok("LOCK lease/back lease=100ms owner=me").fence
        client.event("LOST", owner="me")
        self.assertGreater(client.ok("LOCK lease/back owner=me").fence, fence)


class ShortCutTest(BrokerCase):
    """The daemon's flags let the scripts take their short cuts."""

    overrides = {"lease.default": "1s"}

    def test_each_takes_it(self):
        redis = shared_redis()
        with Monitor(redis.host, redis.port) as monitor:
            def told(name):
                return monitor.of_scripts(redis, f"holdfast:{{cuts/{name}}}")
            clients = {"plain": self.connect(), "kept": self.connect(),
                       "moved": self.connect(), "owned": self.connect()}
            owner = {**dict.fromkeys(clients, ""), "owned": "owner=~1"}
            clients["kept"].ok("HELLO heartbeat=10s keep=10s")
            session = clients["moved"].ok("HELLO keep=10s")["session"]
            for name, client in clients.items():
                client.ok(f"LOCK cuts/{name}")
                client.ok(f"UNLOCK cuts/{name}")
            for name in clients:
                told(name)
            fences = {name: client.ok(
                f"LOCK cuts/{name} {way} {owner[name]}").fence
                      for (name, client), way in zip(clients.items(), (
                          "wait=0", "progress=1", "", "wait=5s note=a"))}
            for name in clients:
                self.assertEqual(told(name), SHORT_CUTS[
                    "acquire" + " with words" * bool(owner[name])], name)
            clients["moved"].kill()
            clients["moved"] = self.connect()
            clients["moved"].ok(f"HELLO resume={session} gen=2")
            clients["moved"].ok(f"CLAIM cuts/moved fence={fences['moved']}")
            told("moved")
            for name, client in clients.items():
                renewals = []
                self.wait_until(lambda n=name, r=renewals: r.extend(told(n)) or
                                r, 5.0, f"a renewal of {name}")
                self.assertEqual(renewals[:2], SHORT_CUTS["renew"], name)
                client.ok(f"UNLOCK cuts/{name} {owner[name]}")
                self.assertEqual(told(name)[-2:], SHORT_CUTS["release"], name)


class CancelTest(BrokerCase):
    def test_cancel(self):
        holder, client = self.connect("LOCK cancel/wait"), self.connect()
        tag = client.waits("LOCK cancel/wait")
        client.ok(f"CANCEL {tag}")
        client.refused(tag, "CANCELLED")
        client.err(f"CANCEL {tag}", "BADREQ")
        again = client.submit(f"{tag} LOCK cancel/wait progress=1")
        self.assertEqual(client.queued(again)["position"], "1")
        holder.ok("UNLOCK cancel/wait")
        client.granted(again)

    def test_the_rest_move_up(self):
        clients = [self.connect() for _ in range(4)]
        clients[0].ok("LOCK cancel/middle")
        tags = []
        for client in clients[1:]:
            tags.append(client.submit("LOCK cancel/middle progress=1"))
            client.queued(tags[-1])
        clients[2].ok(f"CANCEL {tags[1]}")
        clients[2].wait(tags[1])
        clients[0].ok("UNLOCK cancel/middle")
        clients[1].granted(tags[0])
        clients[3].no_reply(tags[2], 0.05)
        clients[1].ok("UNLOCK cancel/middle")
        clients[3].granted(tags[2])

    def test_only_waits_of_the_session(self):
        holder, client = self.connect("LOCK cancel/own"), self.connect()
        client.send("77 LOCK cancel/own progress=1")
        client.queued("77")
        holder.err("CANCEL 77", "BADREQ")
        client.err("CANCEL 78", "BADREQ")
        client.err("CANCEL x", "BADREQ")
        client.ok("CANCEL 77")
        client.refused("77", "CANCELLED")

    def test_at_once(self):
        """LOCK and CANCEL in one write: one final reply to each."""
        client = self.connect()
        for number in range(200):
            client.send(f"{number} LOCK cancel/now\n{number}x CANCEL {number}")
            granted = client.wait(f"{number}")
            cancelled = client.wait(f"{number}x")
            if granted.ok:
                client.ok("UNLOCK cancel/now")
            else:
                self.assertEqual(granted.code, "CANCELLED")
                self.assertTrue(cancelled.ok)
        client.ok("LOCK cancel/now wait=5s", count=1)


class OrderTest(BrokerCase):
    def test_lock_and_unlock_in_one_write(self):
        client = self.connect()
        client.send("\n".join(["LOCK order/many\nUNLOCK order/many"] * 300))
        fences = []
        for _ in range(300):
            fences.append(client.line().fence)
            self.assertEqual(client.line()["count"], "0")
        self.assertEqual(fences, sorted(set(fences)))

    def test_an_unlock_waits_for_its_lock(self):
        holder, client, third = (self.connect() for _ in range(3))
        holder.ok("LOCK order/later")
        client.send("1 LOCK order/later progress=1\n2 UNLOCK order/later\n"
                    "3 PING")
        client.queued("1")
        client.granted("3")
        waiting = third.submit("LOCK order/later")
        client.no_reply("2", 0.05)
        holder.ok("UNLOCK order/later")
        client.granted("1")
        self.assertEqual(client.wait("2")["count"], "0")
        third.granted(waiting)

    def test_a_wait_delays_nothing_else(self):
        holder, client = self.connect("LOCK order/blocked"), self.connect()
        waiting = client.submit("LOCK order/blocked")
        for number in range(20):
            client.ok(f"LOCK order/free-{number}", count=1)
        client.no_reply(waiting, 0.01)

    def test_a_tag_that_is_outstanding(self):
        holder, client = self.connect("LOCK order/tag"), self.connect()
        client.send("1 LOCK order/tag progress=1")
        client.queued("1")
        client.send("1 PING")
        client.refused("1", "BADREQ")
        holder.ok("UNLOCK order/tag")
        client.granted("1")
        client.send("1 UNLOCK order/tag")
        client.granted("1")

    def test_untagged(self):
        client = self.connect()
        client.send("PING\nLOCK order/untagged\nnonsense\nHELD")
        client.granted()
        replies = [client.wait(), client.wait(), client.wait()]
        self.assertEqual(sorted(reply.code or "" for reply in replies),
                         ["", "", "UNKNOWN"])

    def test_the_grant_is_told_before_the_loss(self):
        client = self.connect()
        for number in range(20):
            client.send(f"{number} LOCK order/lost lease=1ms")
        for _ in range(60):
            reply = client.line()
            if reply.word == "LOST":
                told = [each for each in client.lines
                        if each.ok and each.get("fence") == reply["fence"]]
                self.assertTrue(told, reply.line)
            if reply.tag == "19":
                break


class ListTest(BrokerCase):
    def test_words_are_shown(self):
        client, waiter = self.connect(), self.connect()
        client.ok("HELLO name=%00shop%FF")
        waiter.ok("HELLO name=second")
        fence = client.ok("LOCK list/words owner=o%20o note=" +
                          "n" * 127 + "%25").fence
        waiter.waits("LOCK list/words note=later")
        reply = client.ok("SHOW list/words", state="held", mode="exclusive",
                          holders=1, waiters=1)
        holder, waits = reply.items
        self.assertEqual(
            (holder["kind"], holder["name"], holder["owner"], holder["note"],
             holder.fence),
            ("holder", "\0shop\udcff", "o o", "n" * 127 + "%", fence))
        self.assertEqual((waits["kind"], waits["name"], waits["note"],
                          waits["position"]),
                         ("waiter", "second", "later", "1"))
        self.assertNotIn("owner", waits)
        self.assertNotEqual(holder["session"], waits["session"])
        (item,) = client.ok("HELD").items
        self.assertEqual((item["note"], item["owner"], item.fence),
                         ("n" * 127 + "%", "o o", fence))
        (item,) = [item for item in client.ok("LOCKS limit=500").items
                   if item["name"] == "list/words"]
        self.assertEqual((item["client"], item["waiters"], item["state"]),
                         ("\0shop\udcff", "1", "held"))
        self.assertEqual(item["session"], holder["session"])

    def test_show_at_another_broker(self):
        redis = shared_redis()
        here = self.client(self.broker(redis))
        other = self.client(self.broker(redis))
        here.ok("HELLO name=here")
        here.ok("LOCK list/remote note=x")
        other.waits("LOCK list/remote")
        here_sees = [item.pairs for item in here.ok("SHOW list/remote").items]
        there_sees = [item.pairs for item in other.ok("SHOW list/remote").items]
        for pairs in here_sees + there_sees:
            pairs.pop("ttl_ms", None)
            pairs.pop("age_ms")
        self.assertEqual(here_sees, there_sees)
        self.assertNotEqual(here_sees[0]["broker"], here_sees[1]["broker"])

    def test_show_is_bounded(self):
        client = self.connect("LOCK list/bound owner=x")
        for number in range(120):
            tag = client.submit(f"LOCK list/bound owner={number} progress=1")
        client.queued(tag)
        for limit, shown in (("", 100), (" limit=7", 7), (" limit=0", 0),
                             (" limit=500", 121), (" limit=4294967295", 121)):
            reply = client.ok(f"SHOW list/bound{limit}", waiters=120)
            self.assertEqual(len(reply.items), shown, limit)
        places = [int(item["position"]) for item in reply.items[1:]]
        self.assertEqual(places, list(range(1, 121)))

    def test_many_holds(self):
        client = self.connect()
        names = [f"list/held-{number}" for number in range(1234)]
        client.send("\n".join(f"{place} LOCK {name}"
                              for place, name in enumerate(names)))
        for place in range(1234):
            client.granted(f"{place}")
        reply = client.ok("HELD", n=1234)
        self.assertEqual([item["name"] for item in reply.items], names)
        self.check_pages(client, names)

    def check_pages(self, client, names):
        seen, cursor, pages = [], "", 0
        while True:
            reply = client.ok(f"LOCKS limit=200{cursor}")
            self.assertLessEqual(len(reply.items), 200)
            self.assertEqual(reply.number("n"), len(reply.items))
            seen += [item["name"] for item in reply.items]
            pages += 1
            if "cursor" not in reply:
                break
            cursor = f" cursor={reply['cursor']}"
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual(set(names), set(seen))
        self.assertGreater(pages, 6)
        self.assertEqual(len(client.ok("LOCKS").items), 100)
        self.assertEqual(len(client.ok("LOCKS limit=9999").items), 500)
        self.assertEqual(client.ok("LOCKS cursor=4294967295", n=0).items, [])

    def test_sessions(self):
        broker = self.broker(shared_redis())
        clients = [self.client(broker) for _ in range(30)]
        for number, client in enumerate(clients):
            client.ok(f"HELLO name=number-{number}")
        clients[3].ok("LOCK list/sessions-a")
        clients[3].ok("LOCK list/sessions-b")
        clients[4].waits("LOCK list/sessions-a")
        seen, cursor = {}, ""
        while True:
            reply = clients[0].ok(f"SESSIONS limit=7{cursor}")
            for item in reply.items:
                self.assertNotIn(item["session"], seen)
                seen[item["session"]] = item
            if "cursor" not in reply:
                break
            cursor = f" cursor={reply['cursor']}"
        named = {item.get("name"): item for item in seen.values()}
        self.assertEqual({f"number-{number}" for number in range(30)},
                         set(named) - {None})
        self.assertEqual(
            [(named[f"number-{number}"]["holds"],
              named[f"number-{number}"]["waits"]) for number in (3, 4, 5)],
            [("2", "0"), ("0", "1"), ("0", "0")])
        host, port = clients[3].socket.getsockname()
        self.assertEqual(named["number-3"]["peer"], f"{host}:{port}")

    def test_the_secret_is_not_shown(self):
        client = self.connect()
        secret = client.hello["session"]
        self.assertRegex(secret, r"^[0-9a-f]{32}$")
        client.ok("LOCK list/secret")
        for line in ("SHOW list/secret", "LOCKS limit=500", "SESSIONS", "HELD",
                     "STATS", "HELP"):
            for item in client.ok(line).items:
                self.assertNotIn(secret, item.line)
        self.assertNotIn(secret, self.served.log())

    def test_stats(self):
        names = re.findall(r"^COUNTER\((\w+),",
                           read("daemon/op/counters.def"), flags=re.M)
        client = self.connect()
        before = stats(client)
        self.assertLessEqual(set(names), set(before))
        client.ok("LOCK list/stats")
        client.ok("LOCK list/stats")
        client.ok("UNLOCK list/stats")
        client.request("nonsense")
        after = stats(client)
        for name, more in (("grants", 1), ("reentries", 1), ("held_now", 1),
                           ("requests_bad", 1), ("requests", 5)):
            self.assertEqual(after[name] - before[name], more, name)
        reply = client.ok("STATS")
        self.assertEqual(reply.number("n"), len(reply.items))

    def test_help(self):
        reply = self.connect().ok("HELP")
        self.assertEqual([item["command"] for item in reply.items],
                         definitions("COMMAND"))
        for item in reply.items:
            self.assertTrue(item.text.startswith(item["command"]), item.line)


class ErrorTest(BrokerCase):
    """Each code of commands.def is produced, with the retry= it should."""

    QUICK = {"redis.patience": "300ms", "redis.command_timeout": "200ms",
             "lease.default": "1s", "redis.connect_timeout": "200ms"}

    def test_each_code(self):
        codes = definitions("ERROR")
        self.assertEqual({f"produce_{code.lower()}" for code in codes},
                         {name for name in dir(self)
                          if name.startswith("produce_")})
        for code in codes:
            with self.subTest(code=code):
                reply = getattr(self, f"produce_{code.lower()}")()
                self.assertEqual(reply.code, code)
                self.assertIn(reply["retry"], "01")
                self.assertTrue(reply.text)

    def produce_badreq(self):
        client = self.connect()
        for line in ("LOCK", "UNLOCK a a", "LOCK a b a", "LOCK a wait=",
                     "LOCK a wait=1 wait=2",
                     "LOCK a wait=-1", "LOCK a wait=01", "LOCK a wait=1d",
                     "LOCK a nonsense=1", "LOCK a fence=1", "LOCK a=b",
                     "LOCK %", "LOCK %g0", "LOCK :a", "LOCK a lease=0",
                     "LOCK a wait=8761h", "LOCK a owner=" + "x" * 65,
                     "LOCK a note=" + "x" * 129, "HELLO name=" + "x" * 65,
                     "HELLO heartbeat=99", "RENEW a", "UNLOCK a fence=0",
                     f"UNLOCK a fence={2 ** 53}", "CANCEL", "PONG x", "HELP x",
                     "LOCK a progress=2", "LOCK a mode=share",
                     "LOCK a limit=0", "LOCK a permits=1",
                     "LOCK a limit=1 permits=2", "LOCK a limit=1 mode=shared",
                     "HELLO resume=" + "0" * 32, "HELLO gen=2",
                     "HELLO resume=" + "x" * 32 + " gen=2", "CLAIM a fence=1",
                     "CLAIM a", "KILL x", "WATCH", "BREAK",
                     "LOCK " + " ".join(map(str, range(100, 117))),
                     "LOCKS limit=4294967296", "PING x=1", "LOCK \tb",
                     "LOCK caf\u00e9", "CANCEL 1x5+"):
            reply = client.err(line, "BADREQ")
        return reply

    def produce_unknown(self):
        client = self.connect()
        for verb in ("AUTHS", "quitter", "LOC", "L%4FCK", "*", "-", "OK"):
            reply = client.err(f"{verb} a", "UNKNOWN")
        return reply

    def produce_toolong(self):
        client = self.connect()
        client.err("LOCK " + "x" * 256, "TOOLONG")
        client.ok("LOCK " + "x" * 255)
        client.ok("SHOW " + "%78" * 255, state="held")
        client.send("7 LOCK " + "x" * 5000 + "\n8 PING")
        reply = client.wait("7")
        client.granted("8")
        return reply

    def produce_auth(self):
        return self.connect().err("AUTH nobody not-a-secret", "AUTH")

    def produce_denied(self):
        folder = self.folder()
        os.chmod(folder, 0o755)
        users, path = (os.path.join(folder, name) for name in "us")
        with open(users, "w", encoding="ascii") as file:
            file.write(f"me uid={os.getuid()} lock=mine\n")
        self.broker(overrides={"auth.users_file": users,
                               "listen.unix": [path]})
        return self.client(path).err("LOCK errors/denied", "DENIED")

    def produce_limit(self):
        client = self.client(self.broker(overrides={"limits.holds": 1}))
        client.ok("LOCK errors/one")
        return client.err("LOCK errors/two", "LIMIT")

    def produce_busy(self):
        self.connect().ok("LOCK errors/busy")
        return self.connect().err("LOCK errors/busy wait=0", "BUSY")

    def produce_timeout(self):
        self.connect().ok("LOCK errors/timeout")
        return self.connect().err("LOCK errors/timeout wait=1ms", "TIMEOUT")

    def produce_cancelled(self):
        self.connect().ok("LOCK errors/cancel")
        client = self.connect()
        client.send("1 LOCK errors/cancel\n2 CANCEL 1")
        return client.wait("1")

    def produce_notheld(self):
        return self.connect().err("UNLOCK errors/none", "NOTHELD")

    def produce_stale(self):
        client = self.connect("LOCK errors/stale")
        return client.err("UNLOCK errors/stale fence=1", "STALE")

    def produce_lost(self):
        client = self.connect("LOCK errors/lost")
        shared_redis()  # empties it
        return client.err("UNLOCK errors/lost", "LOST")

    def produce_conflict(self):
        client = self.connect("LOCK errors/conflict mode=shared")
        return client.err("LOCK errors/conflict limit=2", "CONFLICT")

    def produce_deadlock(self):
        one, two = self.connect(), self.connect()
        one.ok("LOCK errors/this")
        two.ok("LOCK errors/that")
        one.queued(one.submit("LOCK errors/that progress=1"))
        return two.err("LOCK errors/this", "DEADLOCK")

    def produce_unavailable(self):
        redis = self.redis()
        client = self.client(self.broker(redis, self.QUICK))
        redis.kill()
        return client.err("LOCK errors/away", "UNAVAILABLE")

    def produce_indoubt(self):
        redis = self.redis()
        client = self.client(self.broker(redis, self.QUICK),
                             "LOCK errors/doubt", "UNLOCK errors/doubt")
        redis.pause()
        reply = client.err("LOCK errors/doubt", "INDOUBT")
        redis.resume()
        self.client(self.broker(redis)).ok("LOCK errors/doubt wait=9s")
        return reply

    def produce_draining(self):
        broker = self.broker()
        client = self.client(broker, "LOCK errors/drain")
        broker.terminate()
        client.event("DRAIN")
        reply = client.err("LOCK errors/drain-not", "DRAINING")
        client.ok("UNLOCK errors/drain")
        self.assertEqual(client.event("BYE").words, ["drain"])
        self.assertEqual(broker.wait_exit(), 0)
        return reply

    def produce_internal(self):
        shared_redis().command("SET", "holdfast:{errors/internal}", "x")
        return self.connect().err("LOCK errors/internal", "INTERNAL")
