"""Redis goes away, comes back, forgets, stalls, refuses."""

import calendar
import os
import re
import socket
import struct
import threading
import time
from pathlib import Path

from contest import Contest
from harness import (FIRST_AT, HEAD_AT, HarnessCase, RedisServer,
                     shared_redis)
from shared import Balancer, NameServer, record_field, stats, with_hosts

QUICK = {"redis.patience": "500ms", "redis.command_timeout": "200ms",
         "redis.connect_timeout": "200ms"}


def lease_end_ms(redis, name):
    """When the first ticket's lease ends, by the clock of Redis."""
    raw = record_field(redis, name, FIRST_AT["ENDS"], FIRST_AT["ENDS"] + 7)
    return struct.unpack("<d", raw)[0]


def logged_ms(log, event):
    """The time of the first such event in a log, in ms since 1970."""
    match = re.search(rf"^time=(\S+)\.(\d+)Z .*event={event} ", log, re.M)
    seconds = calendar.timegm(
        time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1000 + int(match.group(2))


class AwayTest(HarnessCase):
    def away(self):
        """A Redis that is not running, at an address of its own."""
        return self.closing(RedisServer())

    def test_at_the_start(self):
        redis = self.away()
        broker = self.broker(redis, {"redis.patience": "500ms"}, can_ask=False)
        client = self.client(broker)
        broker.wait_log(f"level=warn event=redis_link_lost "
                        f"node={redis.address}")
        begin = time.monotonic()
        reply = client.err("LOCK away/start", "UNAVAILABLE")
        self.assertGreater(time.monotonic() - begin, 0.49)
        self.assertEqual(reply["retry"], "1")
        client.err("LOCK away/start wait=100ms", "UNAVAILABLE")
        client.err("SHOW away/start", "UNAVAILABLE")
        client.err("UNLOCK away/start", "NOTHELD")
        client.ok("PING")
        redis.start()
        self.wait_until(lambda: client.request("LOCK away/start wait=2s").ok,
                        10, "the lock is granted")

    def test_at_once_without_patience(self):
        client = self.client(
            self.broker(self.away(), {"redis.patience": "60s"}, can_ask=False))
        begin = time.monotonic()
        client.err("LOCK away/now wait=0", "UNAVAILABLE")
        client.err("LOCK away/now wait=50ms", "UNAVAILABLE")
        self.assertLess(time.monotonic() - begin, 5)

    def test_the_end_of_who_waits(self):
        """A LOCK that waits for Redis ends with its session, at once."""
        broker = self.broker(self.away(), {"redis.patience": "60s"},
                             can_ask=False)
        for bye in ("quit", "eof"):
            for waited in (0, 0.3):
                client = self.client(broker)
                client.send("1 LOCK away/end\n2 LOCK away/end away/too")
                time.sleep(waited)
                begin = time.monotonic()
                if bye == "quit":
                    client.send("3 QUIT")
                else:
                    client.finish()
                lines = client.at_end()
                self.assertLess(time.monotonic() - begin, 0.9)
                self.assertEqual(lines[-1].line, f"* BYE {bye} keep=0")
                codes = {reply.tag: reply.code for reply in lines[:-1]}
                self.assertEqual(codes.pop("1"), "CANCELLED")
                self.assertEqual(codes.pop("2"), "CANCELLED")
                self.assertEqual(codes, {"3": None} if bye == "quit" else {})

    def test_waited_for(self):
        """Requests meanwhile are served when it comes, in order."""
        redis = self.away()
        broker = self.broker(redis, {"redis.patience": "20s"}, can_ask=False)
        clients = [self.client(broker) for _ in range(3)]
        tags = [client.submit("LOCK away/wait") for client in clients]
        clients[0].no_reply(tags[0], 0.2)
        redis.start()
        clients[0].granted(tags[0])
        clients[0].ok("UNLOCK away/wait", count=0)
        clients[1].granted(tags[1])

    def test_unlock_and_waits_while_away(self):
        redis = self.redis(appendonly=True, appendfsync="always")
        broker = self.broker(redis, {**QUICK, "lease.default": "2s"})
        broker.wait_redis()
        holder, waiter = self.client(broker), self.client(broker)
        holder.ok("LOCK away/held")
        tag = waiter.waits("LOCK away/held wait=300ms")
        redis.kill()
        self.assertIn(waiter.wait(tag).code, ("UNAVAILABLE", "TIMEOUT"))
        holder.err("UNLOCK away/held", "INDOUBT")
        redis.start()
        # Until the broker has tried again, patience may be over once more.
        broker.wait_redis()
        # Released as soon as Redis can be asked; the lease ends in any case.
        waiter.ok("LOCK away/held wait=9s", count=1)


class RestartTest(HarnessCase):
    def test_with_loss(self):
        redis = self.redis()
        broker = self.broker(redis, {"lease.default": "2s"})
        holder, waiter = self.client(broker), self.client(broker)
        fence = holder.ok("LOCK restart/lost").fence
        tag = waiter.submit("LOCK restart/lost")
        redis.restart()
        self.assertGreater(waiter.wait(tag).fence, fence)
        holder.event("LOST", fence=fence)
        self.assertGreater(holder.ok("LOCK restart/other").fence, 0)

    def test_killed_with_its_data_kept(self):
        redis = self.redis(appendonly=True, appendfsync="always")
        broker = self.broker(redis, {"lease.default": "4s"})
        holder, waiter = self.client(broker), self.client(broker)
        fences = {}
        for number in range(30):
            name = f"restart/kept-{number}"
            fences[name] = holder.ok(f"LOCK {name}").fence
        tag = waiter.waits("LOCK restart/kept-0")
        redis.restart(kill=True)
        # All have been renewed since.
        self.wait_until(lambda: stats(waiter)["renewals"] >= 30, 10,
                        "the holds are renewed")
        self.assertEqual({item["name"]: item.fence
                          for item in holder.ok("HELD").items}, fences)
        waiter.no_reply(tag, 0.05)
        for name, fence in fences.items():
            holder.ok(f"UNLOCK {name} fence={fence}", count=0)
        self.assertGreater(waiter.wait(tag).fence, fences["restart/kept-0"])
        holder.no_event("LOST", 0)

    def test_under_load(self):
        redis = self.redis(appendonly=True, appendfsync="always")
        brokers = [self.broker(redis, {"lease.default": "2s"})
                   for _ in range(2)]
        contest = Contest(brokers, seed=21)
        self.addCleanup(contest.close)
        contest.play(seconds=2.5, faults=[
            (0.5, redis.kill), (0.9, redis.start), (1.7, redis.restart)])
        contest.play(grants=100)
        contest.finish()


class StallTest(HarnessCase):
    """SIGSTOP: connections stand, and nothing is answered."""

    LEASE = {"lease.default": "4s", "redis.command_timeout": "500ms"}

    def test_shorter_than_the_lease(self):
        redis = self.redis()
        client = self.client(self.broker(redis, self.LEASE))
        fences = {client.ok(f"LOCK stall/short-{n} owner=me").fence
                  for n in range(50)}
        redis.pause()
        reply = client.event("JEOPARDY", owner="me")
        self.assertRegex(reply.words[0], "^stall/short-")
        self.assertLessEqual(reply.ttl_ms, 4000 / 3)
        redis.resume()
        self.assertGreater(client.event("SAFE", owner="me").ttl_ms, 4000 / 3)
        self.wait_until(
            lambda: all(item.ttl_ms > 4000 / 3
                        for item in client.ok("HELD").items), 10,
            "all are renewed")
        self.assertEqual({item.fence for item in client.ok("HELD").items},
                         fences)
        client.no_event("LOST", 0.05)
        jeopardies = [each.words for each in client.lines
                      if each.word == "JEOPARDY"]
        safes = [each.words for each in client.lines if each.word == "SAFE"]
        self.assertEqual(sorted(jeopardies), sorted(safes))

    def test_the_end_of_who_asks(self):
        """As late as an answer may be; what Redis does then is undone."""
        redis = self.redis()
        broker = self.broker(redis, self.LEASE)
        client = self.client(broker, "LOCK stall/first")
        redis.pause()
        begin = time.monotonic()
        client.send("1 LOCK stall/end\n2 QUIT")
        lines = client.at_end()
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual([reply.line.split(" :")[0] for reply in lines],
                         ["1 ERR INDOUBT retry=1", "2 OK",
                          "* BYE quit keep=0"])
        redis.resume()
        begin = time.monotonic()
        self.client(broker).ok("LOCK stall/end")
        self.assertLess(time.monotonic() - begin, 3)

    def test_longer_than_the_lease(self):
        redis = self.redis()
        broker = self.broker(redis, {**self.LEASE, "lease.default": "2s",
                                     "redis.command_timeout": "200ms"})
        client = self.client(broker)
        other = self.client(self.broker(redis, {"lease.default": "2s"}))
        fence = client.ok("LOCK stall/long").fence
        tag = other.waits("LOCK stall/long")
        first = lease_end_ms(redis, "stall/long")
        ends = self.wait_until(
            lambda: lease_end_ms(redis, "stall/long") > first and
            lease_end_ms(redis, "stall/long"), 10, "it has been renewed")
        redis.pause()
        client.event("JEOPARDY")
        lost = client.event("LOST", reason="backend", fence=fence)
        self.assertEqual(lost.words, ["stall/long"])
        self.assertLess(logged_ms(broker.log(), "lost"), ends)
        redis.resume()
        self.assertGreater(other.wait(tag).fence, fence)
        self.assertIn(client.request("UNLOCK stall/long").code,
                      ("NOTHELD", "LOST"))

    def test_a_slow_command(self):
        """A late answer counts as long as somebody waits for it."""
        redis = self.redis()
        broker = self.broker(redis, {"redis.command_timeout": "200ms",
                                     "redis.patience": "20s"})
        client, other = self.client(broker), self.client(broker)
        client.ok("LOCK stall/before")
        with redis.connect() as connection:
            connection.send("DEBUG", "SLEEP", "0.9")
            time.sleep(0.1)
            client.send("1 LOCK stall/slow\n2 UNLOCK stall/before")
            self.assertEqual(client.wait("1")["count"], "1")
            self.assertEqual(client.wait("2")["count"], "0")
            self.assertEqual(connection.read(), "OK")
        self.assertEqual(stats(other)["outcomes_unknown"], 0)
        other.err("LOCK stall/slow wait=0", "BUSY")
        other.ok("LOCK stall/before wait=0", count=1)
        client.ok("UNLOCK stall/slow", count=0)
        other.ok("LOCK stall/slow wait=0", count=1)

    def test_slow_for_longer_than_a_lease(self):
        """Each answer takes longer than a command may: no hold is lost."""
        redis = self.redis()
        broker = self.broker(redis, {"lease.default": "2s",
                                     "redis.command_timeout": "100ms"})
        client = self.client(broker)
        for number in range(20):
            client.ok(f"LOCK stall/held-{number}")
        with redis.connect() as connection:
            for _ in range(10):
                connection.send("DEBUG", "SLEEP", "0.25")
                self.assertEqual(connection.read(), "OK")
        self.assertEqual(client.ok("HELD")["n"], "20")
        client.no_event("LOST", 0.05)
        self.assertRegex(broker.log(), "event=redis_late .*waited_ms=100 "
                         ".*redis.command_timeout")

    def test_no_ghosts(self):
        """A call that slept in Redis' buffer grants nothing to the gone."""
        redis = self.redis()
        broker = self.broker(redis, QUICK)
        client = self.client(broker, "LOCK stall/warm")
        redis.pause()
        tags = [client.submit(f"LOCK stall/ghost-{n}") for n in range(20)]
        for tag in tags:
            self.assertIn(client.wait(tag).code, ("INDOUBT", "UNAVAILABLE"))
        redis.resume()
        other = self.client(self.broker(redis))
        for number in range(20):
            other.ok(f"LOCK stall/ghost-{number} wait=9s", count=1)
        self.wait_until(lambda: stats(client)["tickets_now"] == 1, 10,
                        "the broker has cleared up")


class ForgetTest(HarnessCase):
    def check_clean(self, brokers, names):
        for broker in brokers:
            with broker.client() as client:
                self.wait_until(
                    lambda client=client: stats(client)["tickets_now"] == 0,
                    10, "no ticket is left")
                for name in names:
                    client.ok(f"LOCK {name} wait=5s", count=1)
                    client.ok(f"UNLOCK {name}", count=0)

    def test_script_flush_under_load(self):
        redis = self.redis()
        brokers = [self.broker(redis) for _ in range(2)]
        contest = self.closing(Contest(brokers, seed=31))

        def flush():
            redis.command("SCRIPT", "FLUSH")
        contest.play(seconds=1.5, faults=[(0.05 * n, flush)
                                          for n in range(25)])
        contest.finish()
        self.assertGreater(contest.grants, 100)
        self.assertEqual(contest.lost, 0)
        self.assertNotIn("INDOUBT", contest.refused)
        self.assertNotIn("UNAVAILABLE", contest.refused)
        self.assertGreater(stats(self.client(brokers[0]))["redis_noscript"], 0)
        self.check_clean(brokers, contest.names)

    def test_connections_killed_under_load(self):
        redis = self.redis()
        # A lock that is left behind stays: no lease ends within the test.
        brokers = [self.broker(redis, {"lease.default": "1m"})
                   for _ in range(2)]
        contest = self.closing(Contest(brokers, seed=32, cuts=0.01))

        faults = []
        for number in range(20):
            faults += self.kill_in_a_stall(redis, 0.3 + 0.2 * number)
        contest.play(seconds=4, faults=faults)
        contest.play(grants=200)
        contest.finish()
        self.assertGreater(contest.grants, 300)
        self.assertGreater(
            sum(stats(self.client(broker))["outcomes_unknown"]
                for broker in brokers), 0)
        self.check_clean(brokers, contest.names)

    @staticmethod
    def kill_in_a_stall(redis, at):
        """Short stalls, after which answers are lost with connections."""
        pair = []

        def stall():
            pair.extend([redis.connect(), redis.connect()])
            pair[0].send("DEBUG", "SLEEP", "0.06")

        def kill():
            # Connected before: else it would be served one turn too late.
            pair[1].pipeline([("CLIENT", "KILL", "TYPE", "pubsub"),
                              ("CLIENT", "KILL", "TYPE", "normal")])
            for connection in pair:
                connection.close()
        return [(at, stall), (at + 0.04, kill)]

    def test_flushall(self):
        redis = shared_redis()
        broker = self.broker(redis, {"lease.default": "1s"})
        other_broker = self.broker(redis, {"lease.default": "1s"})
        holder, other = self.client(broker), self.client(other_broker)
        fence = holder.ok("LOCK forget/all").fence
        waiting = self.client(broker)
        tag = waiting.waits("LOCK forget/all")
        redis.command("FLUSHALL")
        holder.event("LOST", reason="gone", fence=fence)
        fences = [fence, waiting.wait(tag).fence]
        for client in (other, holder, other, holder):
            redis.command("FLUSHALL")
            fences.append(client.ok("LOCK forget/all wait=9s").fence)
            client.ok("UNLOCK forget/all")
        self.assertEqual(fences, sorted(set(fences)))

    def test_fences_ahead_of_the_clock(self):
        """The broker remembers such a fence where Redis does not."""
        redis = self.redis()
        client = self.client(self.broker(redis))
        hour_ahead = int((time.time() + 3600) * 1e6)
        fences = [client.ok("LOCK forget/ahead").fence]
        client.ok("UNLOCK forget/ahead", count=0)
        fences.append(hour_ahead)
        redis.command("SETRANGE", "holdfast:{forget/ahead}", HEAD_AT["FENCE"],
                      struct.pack("<d", hour_ahead))
        for order in ("PING", "FLUSHALL", "FLUSHALL"):
            redis.command(order)
            fences.append(client.ok("LOCK forget/ahead wait=9s").fence)
            client.ok("UNLOCK forget/ahead", count=0)
        self.assertEqual(fences, sorted(set(fences)))

    def test_one_key_is_removed(self):
        redis = shared_redis()
        broker = self.broker(redis, {"lease.default": "1s"})
        holder = self.client(broker, "LOCK forget/stays")
        fence = holder.ok("LOCK forget/one owner=me").fence
        redis.command("DEL", "holdfast:{forget/one}")
        holder.event("LOST", reason="gone", fence=fence, owner="me")
        self.assertEqual([item["name"] for item in holder.ok("HELD").items],
                         ["forget/stays"])

    def test_a_record_that_is_none(self):
        """Garbage and newer records are refused, and do no harm."""
        redis = shared_redis()
        client = self.client(self.broker(redis, QUICK))
        for number, value in enumerate((
                b"x", b"\x01" * 50, b"\x09" + b"\0" * 300, b"\xff" * 400,
                b"\x01" + b"\xff" * 300, b"\x01" + b"\0" * 215)):
            redis.command("SET", f"holdfast:{{forget/bad-{number}}}", value)
            reply = client.request(f"LOCK forget/bad-{number} wait=0")
            self.assertIn(reply.code, ("INTERNAL", None), value)
            client.request(f"SHOW forget/bad-{number}")
        redis.command("LPUSH", "holdfast:{forget/list}", "x")
        client.err("LOCK forget/list wait=0", "INTERNAL")
        client.err("SHOW forget/list", "INTERNAL")
        client.ok("LOCK forget/good", count=1)


class RefusalTest(HarnessCase):
    def password_file(self, text):
        path = os.path.join(self.folder(), "password")
        Path(path).write_text(text, encoding="utf-8")
        return path

    def test_password(self):
        redis = self.redis(requirepass="a-word")
        for wrong in (None, "another"):
            config = dict(QUICK)
            if wrong:
                config["redis.password_file"] = self.password_file(wrong)
            broker = self.broker(redis, config, can_ask=False)
            with broker.client() as client:
                client.err("LOCK refuse/word", "UNAVAILABLE")
            self.wait_until(lambda broker=broker: re.search(
                "level=(warn|error) ", broker.log()), 10, "a warning")
            self.assertNotIn("another", broker.log())
        broker = self.broker(redis, {
            "redis.password_file": self.password_file("a-word\n")})
        self.client(broker).ok("LOCK refuse/word", count=1)
        self.assertNotIn("a-word", broker.log())

    def test_password_that_changes(self):
        """Redis refuses the old one: the file is read again."""
        redis = self.redis(requirepass="one")
        path = self.password_file("one\n")
        broker = self.broker(redis, {"redis.password_file": path})
        client = self.client(broker, "LOCK refuse/rotated")
        redis.command("CONFIG", "SET", "requirepass", "two")
        redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        broker.wait_log("event=unready reason=password ")
        Path(path).write_text("two\n", encoding="ascii")
        broker.wait_log("event=reloaded changed=redis.password_file")
        client.ok("LOCK refuse/rotated-2 wait=9s")
        client.ok("UNLOCK refuse/rotated", count=0)

    def test_acl_user(self):
        redis = self.redis()
        redis.command("ACL", "SETUSER", "broker", "on", ">secret",
                      "~holdfast:*", "&holdfast/broker/*", "+@all")
        redis.command("ACL", "SETUSER", "default", "resetkeys", "-@all",
                      "+acl", "+ping")
        config = {"redis.username": "broker",
                  "redis.password_file": self.password_file("secret")}
        one, two = (self.broker(redis, config) for _ in range(2))
        holder, waiter = self.client(one, "LOCK refuse/acl"), self.client(two)
        tag = waiter.waits("LOCK refuse/acl")
        two.wait_log("use=hints")
        holder.ok("UNLOCK refuse/acl")
        waiter.granted(tag)

    def test_warning_of_eviction(self):
        broker = self.broker(self.redis(maxmemory_policy="allkeys-lru"))
        broker.wait_log("redis_may_evict_locks")
        self.assertIn("maxmemory_policy=allkeys-lru", broker.log())
        self.client(broker).ok("LOCK refuse/evict", count=1)
        quiet = self.broker(self.redis())
        quiet.wait_log("redis_link_ready")
        self.assertNotIn("redis_may_evict_locks", quiet.log())

    def test_a_name_as_node(self):
        redis = self.redis()
        broker = self.broker([f"localhost:{redis.port}"])
        client = self.client(broker)
        client.ok("LOCK refuse/name", count=1)
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        client.ok("UNLOCK refuse/name", count=0)

    def test_a_name_that_nobody_has(self):
        broker = self.broker(["nobody.invalid:6379"], QUICK)
        client = self.client(broker)
        client.err("LOCK refuse/nobody", "UNAVAILABLE")
        client.ok("PING")

    def test_a_name_of_several_addresses(self):
        """Those that refuse are passed over."""
        redis = self.redis()
        program = with_hosts(self, "127.0.0.2 several", "127.0.0.3 several",
                             "127.0.0.1 several")
        broker = self.broker([f"several:{redis.port}"], program=program)
        client = self.client(broker, "LOCK refuse/several wait=9s")
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        client.ok("UNLOCK refuse/several", count=0)
        broker.wait_log("use=hints")

    def test_a_name_that_is_known_later(self):
        """The resolver's files are read again, and the log says so."""
        redis = self.redis()
        program = with_hosts(self, files={
            "/etc/resolv.conf": "nameserver nonsense\n"})
        broker = self.broker([f"later:{redis.port}"], QUICK, program=program)
        client = self.client(broker)
        client.err("LOCK refuse/later", "UNAVAILABLE")
        broker.wait_log("event=libevent text=")
        with open(self.bound["/etc/hosts"], "a", encoding="ascii") as file:
            file.write("127.0.0.1 later\n")
        client.ok("LOCK refuse/later wait=9s")
        for line in broker.log().splitlines():
            self.assertTrue(line.startswith("time="), line)

    def test_name_servers_that_do_not_answer(self):
        """The first one does not at all, the second one not for IPv6."""
        redis = self.redis()
        silent = NameServer(self)
        other = NameServer(self, {"db.test": "127.0.0.1"})
        program = with_hosts(self, files={
            "/etc/resolv.conf": silent.line + other.line})
        config = {"redis.patience": "500ms", "redis.connect_timeout": "500ms"}
        broker = self.broker([f"db.test:{redis.port}"], config,
                             program=program)
        client = self.client(broker, "LOCK refuse/servers wait=5s",
                             "UNLOCK refuse/servers")
        self.assertNotIn("level=warn", broker.log())
        Path(self.bound["/etc/resolv.conf"]).write_text(silent.line,
                                                        encoding="ascii")
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        broker.wait_log("event=unready reason=name ")

    def test_full_memory(self):
        """Nothing new is taken; what is held is renewed and released."""
        redis = self.redis()
        broker = self.broker(redis, {**QUICK, "lease.default": "1s"})
        client = self.client(broker)
        fence = client.ok("LOCK refuse/full").fence
        redis.command("CONFIG", "SET", "maxmemory", "1")
        before = stats(client)["renewals"]
        self.wait_until(lambda: stats(client)["renewals"] > before + 2, 10,
                        "it is renewed")
        client.err("LOCK refuse/full-new", "UNAVAILABLE")
        client.ok(f"UNLOCK refuse/full fence={fence}", count=0)
        redis.command("CONFIG", "SET", "maxmemory", "0")
        client.ok("LOCK refuse/full-new wait=5s", count=1)

    def test_a_replica(self):
        redis = self.redis()
        redis.command("REPLICAOF", "127.0.0.1", "1")
        broker = self.broker(redis, QUICK, can_ask=False)
        client = self.client(broker)
        client.err("LOCK refuse/replica", "UNAVAILABLE")
        broker.wait_log("redis_unfit")
        redis.command("REPLICAOF", "NO", "ONE")
        self.wait_until(lambda: client.request("LOCK refuse/replica").ok, 10,
                        "it is a master again")

    def test_becomes_a_replica(self):
        """READONLY: nothing is granted, nothing hangs."""
        redis = self.redis()
        client = self.client(self.broker(redis, QUICK), "LOCK refuse/demoted")
        redis.command("REPLICAOF", "127.0.0.1", "1")
        client.err("LOCK refuse/demoted-2", "UNAVAILABLE")
        redis.command("REPLICAOF", "NO", "ONE")
        self.wait_until(lambda: client.request("LOCK refuse/demoted-2").ok, 10,
                        "it is a master again")

    def test_a_name_that_moves(self):
        """The master becomes a replica; its name leads to its successor."""
        old, new = self.redis(), self.redis()
        new.command("REPLICAOF", old.host, old.port)
        self.wait_until(
            lambda: new.info("replication")["master_link_status"] == "up", 10,
            "it follows")
        balancer = Balancer(self, old)
        broker = self.broker([balancer.address], {
            **QUICK, "lease.default": "2s", "redis.settle": "1s"})
        client, idle = self.client(broker), self.client(broker)
        fence = client.ok("LOCK refuse/moves").fence
        self.wait_until(lambda: new.command(
            "EXISTS", "holdfast:{refuse/moves}"), 10, "it has come")
        new.command("REPLICAOF", "NO", "ONE")
        old.command("REPLICAOF", new.host, new.port)
        balancer.target = new
        reply = self.client(broker).ok("LOCK refuse/moves-2 wait=9s")
        self.assertEqual(reply["count"], "1")
        broker.wait_log('why="it is a replica now"')
        self.assertEqual(new.command("EXISTS", "holdfast:{refuse/moves-2}"), 1)
        self.assertEqual(idle.ok("SHOW refuse/moves").items[0].fence, fence)
        client.ok(f"UNLOCK refuse/moves fence={fence}", count=0)
        client.no_event("LOST", 0.05)

    def test_closes_what_is_idle(self):
        """As with `timeout 1`: a request is tried once more."""
        redis = self.redis()
        client = self.client(self.broker(redis, {
            "lease.default": "9s", "redis.command_timeout": "2s"}))
        for _ in range(10):
            redis.command("CLIENT", "KILL", "TYPE", "normal")
            client.ok("LOCK refuse/idle wait=0", count=1)
            client.ok("SHOW refuse/idle")
            client.ok("UNLOCK refuse/idle", count=0)

    def test_what_is_no_redis(self):
        """A node that talks nonsense, or says nothing, or ends at once."""
        for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None,
                       b"*-7\r\n" * 50, b"$99999999999\r\n",
                       b"+OK\r\n" * 100, b"*1\r\n" * 200):
            server = self.closing(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=self.talk, args=(server, answer),
                             daemon=True).start()
            host, port = server.getsockname()
            broker = self.broker([f"{host}:{port}"], QUICK)
            client = self.client(broker)
            client.err("LOCK refuse/nonsense", "UNAVAILABLE")
            client.ok("PING")

    def test_resp3(self):
        """Nobody asked for it, and no value of it is taken for one of ours."""
        for answer in (b",1.5\r\n", b"#t\r\n", b"(12\r\n", b"_\r\n",
                       b"=6\r\ntxt:ab\r\n", b"%1\r\n+a\r\n:1\r\n",
                       b"~1\r\n+a\r\n", b">2\r\n+a\r\n+b\r\n",
                       b"*2\r\n,1.5\r\n#f\r\n", b"*1\r\n%0\r\n"):
            server = self.closing(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=self.talk, args=(server, answer),
                             daemon=True).start()
            host, port = server.getsockname()
            broker = self.broker([f"{host}:{port}"], QUICK)
            if answer != b"_\r\n":
                broker.wait_log("it does not speak RESP")
            client = self.client(broker)
            client.err("LOCK refuse/resp3 wait=0", "UNAVAILABLE")

    @staticmethod
    def talk(server, answer):
        kept = []
        while True:
            try:
                connection, _ = server.accept()
                if answer is None:
                    connection.close()
                    continue
                kept.append(connection)
                connection.sendall(answer)
            except OSError:
                return
