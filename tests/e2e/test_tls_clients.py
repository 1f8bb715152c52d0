"""TLS for clients: sessions by it and their ends, certificates as users,
reloads, addresses. Hostile clients are in test_tls_hostile.py."""

import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import unittest
from pathlib import Path

from harness import Authority, Client, shared_redis
from test_activation import ActivationCase, address_of, has_v6
from test_config_run import run
from tls_wire import TlsPortCase, authority, certificate, context

# Holds a lock by TLS, says so, and waits to be killed.
HOLDER = """
import socket, ssl, sys, time
tls = ssl.create_default_context(cafile=sys.argv[2])
end = tls.wrap_socket(socket.create_connection(
    ("127.0.0.1", int(sys.argv[1]))), server_hostname="127.0.0.1")
end.sendall(b"LOCK killed\\n")
data = b""
while b"OK" not in data:
    data += end.recv(1000)
print("held", flush=True)
time.sleep(100)
"""
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class SessionTest(TlsPortCase):
    def setUp(self):
        self.broker_ = self.tls_broker()

    def test_a_session(self):
        broker = self.broker_
        for newest in VERSIONS:
            client = self.secure(broker, context(newest=newest))
            self.assertEqual(client.hello["proto"], "1")
            name = f"a{newest.value}"
            fence = client.ok(f"LOCK {name}", count=1).fence
            client.ok(f"SHOW {name}", state="held")
            plain = self.client(broker)
            plain.err(f"LOCK {name} wait=0", "BUSY")
            client.ok(f"UNLOCK {name} fence={fence}", count=0)
            plain.ok(f"LOCK {name} wait=0")
            client.send("QUIT")
            self.assertEqual([reply.line for reply in client.at_end()],
                             ["- OK", "* BYE quit keep=0"])
        self.assertEqual(self.counted(broker, "done"), 2)
        self.wait_until(lambda: broker.metric("tls_connections") == 0,
                        what="it has none by TLS")

    def test_bursts(self):
        """Many requests in few records, and in a record each."""
        client = self.secure(self.broker_)
        lines = [b"%d LOCK b%d note=%s\n" % (i, i, b"x" * 60)
                 for i in range(4000)]
        client.send_raw(b"".join(lines))
        for i in range(4000):
            client.granted(str(i))
        for i in range(4000):
            client.send_raw(b"%d UNLOCK b%d\n" % (i, i))
        for i in range(4000):
            self.assertEqual(client.wait(str(i))["count"], "0")

    def test_in_pieces(self):
        """Every cut of a record, and of a line over records."""
        wire = self.wire(self.broker_).shake()
        wire.read_lines(1)
        sent = b"".join(wire.sealed(part)
                        for part in (b"1 PI", b"NG\n2 ", b"PING\n"))
        for i in range(len(sent)):
            wire.socket.sendall(sent[i:i + 1])
            time.sleep(0.001)
        self.assertEqual(wire.read_lines(2), ["1 OK", "2 OK"])

    def test_slow_reader(self):
        """Much that it reads little by little, all of it and in order."""
        broker = self.broker_
        holder = self.client(broker)
        holder.send_raw(b"".join(b"%d LOCK s%04d\n" % (i, i)
                                 for i in range(2000)))
        for i in range(2000):
            holder.granted(str(i))
        for newest in VERSIONS:
            wire = self.wire(broker, context(newest=newest))
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            wire.shake()
            wire.socket.sendall(wire.sealed(b"1 LOCKS limit=500\n" +
                                            b"2 HELP\n3 LOCKS limit=500\n"))
            time.sleep(0.3)
            lines = wire.read_lines(1)
            while not lines[-1].startswith("3 OK"):
                time.sleep(0.001)
                lines += wire.read_lines(1)
            for tag in ("1", "3"):
                items = [line for line in lines
                         if line.startswith(f"{tag} ITEM")]
                self.assertEqual(len(items), 500)
                self.assertEqual(len(items), len(set(items)))
            # Both ways at once, where neither side reads for a while.
            burst = wire.sealed(b"".join(b"%d SHOW s%04d\n" % (i + 10, i)
                                         for i in range(2000)))
            wire.socket.sendall(burst)
            time.sleep(0.2)
            done = 0
            while done < 2000:
                done += sum(" OK " in line for line in wire.read_lines(1))
            self.assertEqual(done, 2000)

    def test_no_reader(self):
        broker = self.tls_broker({"limits.output": "64KiB"})
        wire = self.wire(broker)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.shake()
        wire.socket.sendall(wire.sealed(b"LOCK kept\n"))
        bystander = self.client(broker)
        self.wait_until(lambda: bystander.ok("SHOW kept")["state"] == "held")
        wire.socket.settimeout(0.2)
        closed = 'holdfast_connections_closed_total{reason="output"}'
        with self.assertRaises(OSError):
            while True:
                wire.socket.sendall(wire.sealed(b"HELP\n" * 1000))
        self.wait_until(lambda: broker.metrics()[closed] == 1)
        bystander.ok("LOCK kept wait=5s")

    def test_openssl(self):
        """Another program as a client, both ways to end it."""
        port = self.broker_.tls.rpartition(":")[2]
        for more in ([], ["-tls1_2"], ["-no_tls1_3", "-cipher",
                                       "ECDHE-ECDSA-AES128-GCM-SHA256"]):
            done = subprocess.run(
                ["openssl", "s_client", "-quiet", "-connect",
                 f"127.0.0.1:{port}", "-CAfile", authority().cert,
                 "-verify_return_error", *more],
                input=b"1 LOCK o\n2 UNLOCK o\nQUIT\n", timeout=30,
                capture_output=True, check=True)
            lines = done.stdout.decode().splitlines()
            self.assertTrue(lines[1].startswith("1 OK fence="), lines)
            self.assertEqual(lines[2:], ["2 OK count=0", "- OK",
                                         "* BYE quit keep=0"])

    def test_first_come(self):
        """Clients of both kinds in one queue."""
        broker = self.broker_
        holder = self.secure(broker)
        holder.ok("LOCK q")
        waiters = [self.secure(broker) if i % 2 else self.client(broker)
                   for i in range(10)]
        for waiter in waiters:
            waiter.tag = waiter.submit("LOCK q progress=1")
            waiter.queued(waiter.tag)
        for waiter in waiters:
            holder.close()
            waiter.granted(waiter.tag)
            holder = waiter

    def test_renewed_while_idle(self):
        broker = self.tls_broker({"lease.default": "1s"})
        client = self.secure(broker)
        fence = client.ok("LOCK idle").fence
        client.no_event("LOST", 2.5)
        client.ok(f"UNLOCK idle fence={fence}", count=0)

    def test_stop(self):
        broker = self.broker_
        client, silent = self.secure(broker), self.raw(broker)
        client.ok("LOCK a")
        began = time.monotonic()
        broker.terminate()
        client.event("DRAIN")
        client.ok("UNLOCK a")
        self.assertEqual(client.at_end()[-1].line, "* BYE drain keep=1")
        self.assertEqual(self.ended(silent), b"")
        self.assertEqual(broker.wait_exit(), 0)
        self.assertLess(time.monotonic() - began, 4)  # not stop_grace


class EndTest(TlsPortCase):
    """Requests before an end are carried out; holds are freed."""

    def setUp(self):
        self.broker_ = self.tls_broker()

    def test_close_notify(self):
        broker = self.broker_
        for newest in VERSIONS:
            wire = self.wire(broker, context(newest=newest)).shake()
            wire.read_lines(1)
            sent = wire.sealed(b"1 LOCK a\n2 LOCK b\n3 SHOW a\n4 LO")
            wire.socket.sendall(sent + wire.close_notify())
            lines = wire.read_all()
            self.assertTrue(lines[0].startswith("1 OK fence="), lines)
            self.assertTrue(lines[1].startswith("2 OK fence="), lines)
            self.assertTrue(lines[-2].startswith("3 OK state=held"), lines)
            self.assertEqual(lines[-1], "* BYE eof keep=0")
            # It has said its end by TLS; the connection ends as well.
            self.assertEqual(self.ended(wire.socket), b"")
            with broker.client() as other:
                other.ok("LOCK a b wait=5s")
        self.assertEqual(
            broker.metric('connections_closed_total{reason="dropped"}'), 0)

    def test_close_notify_ends_waits(self):
        broker = self.broker_
        holder = self.client(broker, "LOCK w")
        wire = self.wire(broker).shake()
        wire.read_lines(1)
        wire.socket.sendall(wire.sealed(b"1 LOCK w progress=1\n"))
        wire.read_lines(1)
        wire.socket.sendall(wire.close_notify())
        lines = wire.read_all()
        self.assertTrue(lines[0].startswith("1 ERR CANCELLED"), lines)
        self.assertEqual(lines[-1], "* BYE eof keep=0")

    def test_close_notify_behind_much(self):
        """Requests of more than a turn are done before it counts."""
        wire = self.wire(self.broker_).shake()
        wire.read_lines(1)
        burst = wire.sealed(b"".join(
            b"%d LOCK %s\n" % (i, b" ".join(
                b"%x" % (i * 16 + j) for j in range(16)))
            for i in range(240)))
        wire.socket.settimeout(30)
        wire.socket.sendall(burst + wire.close_notify())
        lines = wire.read_all()
        self.assertEqual(lines[-1], "* BYE eof keep=0")
        # Each is answered; of several names, some are waits by then.
        self.assertEqual(sum(" OK fence=" in line or " ERR CANCELLED " in line
                             for line in lines), 240, lines[:9])

    def test_ends_without_a_word(self):
        def fin(wire):
            wire.socket.shutdown(socket.SHUT_WR)

        def broken(wire):
            bad = bytearray(wire.sealed(b"UNLOCK f\n"))
            bad[-1] ^= 1
            wire.socket.sendall(bad)

        dropped = 'connections_closed_total{reason="dropped"}'
        for name, half, end in (
                ("FIN", b"", fin), ("FIN within a record", b"LOCK g\n", fin),
                ("a record of another key", b"", broken),
                ("a reset", b"", lambda wire: wire.reset())):
            with self.subTest(end=name):
                before = self.broker_.metric(dropped)
                wire = self.wire(self.broker_).shake()
                wire.socket.sendall(wire.sealed(b"LOCK f\n"))
                wire.read_lines(2)
                wire.socket.sendall(wire.sealed(half)[:-3] if half else b"")
                self.passes(self.broker_, "f", lambda: end(wire), 1.0)
                if name != "a reset":
                    self.ended(wire.socket)
                if name == "FIN":
                    self.assertEqual(self.broker_.metric(dropped), before + 1)
        self.client(self.broker_).ok("SHOW g", state="free")

    def test_kill(self):
        """Milliseconds, as on a plain connection; the best of some, as the
        machine does other things too."""
        broker = self.broker_
        best = 10.0
        for _ in range(3):
            holder = subprocess.Popen(
                [sys.executable, "-c", HOLDER, broker.tls.rpartition(":")[2],
                 authority().cert], stdout=subprocess.PIPE, text=True)
            self.addCleanup(holder.stdout.close)
            self.addCleanup(holder.kill)
            self.assertEqual(holder.stdout.readline(), "held\n")
            waiter = self.client(broker)
            tag = waiter.waits("LOCK killed")
            before = time.monotonic()
            holder.kill()
            waiter.granted(tag)
            best = min(best, time.monotonic() - before)
            holder.wait()
            waiter.close()
        self.assertLess(best, 0.1)

    def test_kept(self):
        """A session goes on over another connection, plain or not."""
        broker = self.broker_
        client = self.secure(broker)
        session = client.ok("HELLO keep=30s")["session"]
        fence = client.ok("LOCK k").fence
        client.kill()
        other = self.secure(broker)
        other.ok(f"HELLO resume={session} gen=2")
        self.assertEqual(other.ok(f"CLAIM k fence={fence}").fence, fence)


def secret(user, word):
    salt = bytes(16)
    digest = hashlib.sha256(salt + word.encode()).hexdigest()
    return f"{user} secret=sha256${salt.hex()}${digest}"


class UserTest(TlsPortCase):
    def users_broker(self, *lines, overrides=None):
        self.users = self.users_file(*lines)
        return self.tls_broker({"auth.users_file": self.users,
                                "listen.tls_client_ca": authority().cert,
                                "log.level": "debug", **(overrides or {})})

    def user_of(self, broker, cert, **options):
        """The user that the broker sees; None: no user."""
        client = self.secure(broker, context(cert, **options))
        reply = client.request("SESSIONS")
        if reply.code == "AUTH":
            return None
        session = client.hello["session"]
        self.assertTrue(session)
        users = {item.get("user") for item in reply.items}
        client.close()
        self.assertEqual(len(users), 1, reply.items)
        return users.pop()

    def test_names(self):
        broker = self.users_broker(
            "dns cert=shop.example lock=*", "mail cert=desk@shop.example",
            "uri cert=spiffe://shop.example/ns/a", "cn cert=of%20the%20shop",
            "never cert=10.0.0.7", "two cert=one.example cert=two.example",
            "other cert=not%20asked", "umlaut cert=K%C3%A4se")
        for number, (names, common, user) in enumerate((
                (("shop.example",), None, "dns"),
                (("email:desk@shop.example",), None, "mail"),
                (("URI:spiffe://shop.example/ns/a",), None, "uri"),
                ((), "of the shop", "cn"),
                ((), "K\u00e4se", "umlaut"),
                ((), "Of the shop", None),
                # The common name is one only where there is no other.
                (("shop.example",), "of the shop", "dns"),
                (("unknown.example",), "of the shop", None),
                (("10.0.0.7",), "of the shop", "cn"),
                (("10.0.0.7",), "x", None),
                (("two.example", "one.example"), None, "two"),
                (("x.example", "two.example", "y.example"), None, "two"),
                (("SHOP.example",), None, None),
                (("shop.example.org",), None, None))):
            with self.subTest(names=names, common=common):
                cert = authority().issue(f"n{number}", *names, common=common)
                self.assertEqual(self.user_of(broker, cert), user)
        self.assertIsNone(self.user_of(broker, None))

    def test_in_both_versions(self):
        broker = self.users_broker("shop cert=shop.example lock=a")
        cert = certificate("shop", "shop.example")
        for newest in VERSIONS:
            client = self.secure(broker, context(cert, newest=newest))
            client.ok("LOCK a")
            client.err("LOCK b", "DENIED")
            client.ok("UNLOCK a")

    def test_names_of_two(self):
        broker = self.users_broker("one cert=one.example lock=*",
                                   "two cert=two.example lock=*")
        cert = authority().issue("both", "one.example", "two.example")
        self.assertIsNone(self.user_of(broker, cert))
        broker.wait_log("event=certificate_ambiguous")
        self.assertRegex(broker.log(), 'user="one" other="two"')

    def test_very_many_names(self):
        broker = self.users_broker("one cert=one.example lock=*")
        cert = authority().issue("many", *(f"n{i}.example" for i in range(64)),
                                 "one.example")
        self.assertIsNone(self.user_of(broker, cert))
        broker.wait_log("event=certificate_names")

    def test_auth_changes_it(self):
        broker = self.users_broker("shop cert=shop.example lock=a",
                                   secret("ops", "w" * 20) + " lock=* admin")
        client = self.secure(broker, context(certificate("shop",
                                                         "shop.example")))
        client.err("LOCK b", "DENIED")
        client.ok(f"AUTH ops {'w' * 20}")
        client.ok("LOCK b")
        client.err(f"AUTH shop {'w' * 20}", "AUTH")
        anonymous = self.secure(broker)
        anonymous.err("LOCK a", "AUTH")
        anonymous.ok(f"AUTH ops {'w' * 20}")
        anonymous.ok("LOCK a")

    def test_it_counts_for_its_user(self):
        broker = self.users_broker("shop cert=shop.example lock=a", overrides={
            "limits.connections_per_user": 1})
        tls = context(certificate("shop", "shop.example"))
        first = self.secure(broker, tls)
        second = self.secure(broker, tls, greet=False)
        self.assertEqual([reply.line for reply in second.at_end()],
                         ["* BYE limit keep=1"])
        first.close()
        self.wait_until(lambda: broker.metric("sessions") == 0)
        self.secure(broker, tls).ok("LOCK a")

    def test_other_users(self):
        """By SIGHUP: who has no such certificate any more has to go."""
        broker = self.users_broker("shop cert=shop.example lock=*",
                                   "desk cert=desk.example lock=*")
        shop = self.secure(broker, context(certificate("shop",
                                                       "shop.example")))
        desk = self.secure(broker, context(certificate("desk",
                                                       "desk.example")))
        shop.ok("LOCK a")
        desk.ok("LOCK b")
        with open(self.users, "w", encoding="ascii") as file:
            file.write("shop cert=shop.example lock=*\n"
                       "desk cert=desks.example lock=*\n")
        self.assertIn("changed=auth.users_file", broker.reload())
        desk.event("BYE")
        shop.ok("UNLOCK a", count=0)
        self.assertIsNone(self.user_of(broker, certificate("desk")))

    def refused(self, broker, tls, count, *words):
        """The handshake fails, and the client is told why."""
        before = self.counted(broker, "certificate")
        with self.assertRaises((ssl.SSLError, AssertionError)) as caught:
            client = self.closing(Client(broker.tls, tls=tls, greet=False))
            client.socket.settimeout(10)
            client.socket.recv(100)
            self.fail("it was served")
        self.assertEqual(self.counted(broker, "certificate"), before + count)
        for word in words:
            self.assertIn(word, str(caught.exception).lower())

    def test_who_is_not_trusted(self):
        broker = self.users_broker("shop cert=shop.example lock=*")
        stranger = Authority("stranger").issue("shop", "shop.example")
        expired = authority().issue("late", "shop.example", days=-1)
        self.refused(broker, context(stranger), 1, "unknown ca")
        broker.wait_log('why="its certificate cannot be verified: ')
        self.refused(broker, context(expired), 1, "expired")
        broker.wait_log("verified: certificate has expired")
        # A server's own is none of a client's, where it says so.
        self.assertEqual(self.user_of(
            broker, certificate("shop", "shop.example")), "shop")
        # Requests may lie behind it that nobody reads: it is told all the same.
        wire = self.wire(broker, context(stranger))
        wire.socket.sendall(wire.flight())
        last = wire.flight()
        wire.socket.sendall(last + wire.sealed(b"LOCK a\n" * 1000))
        with self.assertRaisesRegex(ssl.SSLError, "(?i)unknown.ca"):
            wire.read()
        # Not by a reset, which would take that away in some systems.
        self.assertEqual(wire.socket.recv(100), b"")

    def test_who_does_not_trust_us(self):
        broker = self.tls_broker()
        for newest in VERSIONS:
            with self.assertRaises(ssl.SSLCertVerificationError):
                Client(broker.tls, tls=context(
                    ca=Authority("other").cert, newest=newest))
        self.wait_counted(broker, "certificate", 2)

    def test_required(self):
        broker = self.users_broker("shop cert=shop.example lock=*", overrides={
            "listen.tls_client_cert": "required"})
        self.refused(broker, context(), 1, "certificate")
        broker.wait_log("peer did not return a certificate")
        self.refused(broker, context(newest=VERSIONS[0]), 1)
        self.assertEqual(self.user_of(
            broker, certificate("shop", "shop.example")), "shop")
        # Who is nobody's user is served what nobody has to be a user for.
        unknown = self.secure(broker, context(certificate("x", "x.example")))
        unknown.ok("PING")
        unknown.err("LOCK a", "AUTH")

    def test_none_is_asked_for(self):
        """Then one that is shown all the same is not looked at."""
        broker = self.users_broker("shop cert=shop.example lock=*",
                                   overrides={"listen.tls_client_ca": None})
        self.assertIsNone(self.user_of(
            broker, certificate("shop", "shop.example")))

    def test_without_users(self):
        broker = self.tls_broker({"listen.tls_client_ca": authority().cert})
        self.secure(broker, context(certificate(
            "shop", "shop.example"))).ok("LOCK a")

    def test_through_an_intermediate(self):
        """A chain that the client shows, up to a CA that is trusted."""
        broker = self.users_broker("shop cert=deep.example lock=*")
        middle = authority().intermediate("middle")
        cert = middle.issue("deep", "deep.example")
        with open(cert.cert, "a", encoding="ascii") as file, \
                open(middle.cert, encoding="ascii") as chain:
            file.write(chain.read())
        self.assertEqual(self.user_of(broker, cert), "shop")

    def test_what_is_shown(self):
        """Nothing out of the file of who signs clients' certificates, on which
        it would depend then whether the broker's own verifies."""
        middle = authority().intermediate("shown")
        own = middle.issue("brokers", "127.0.0.1")
        both = os.path.join(self.folder(), "both")
        with open(both, "w", encoding="ascii") as file:
            for path in (middle.cert, authority().cert):
                file.write(Path(path).read_text(encoding="ascii"))
        broker = self.tls_broker({"listen.tls_client_ca": both}, cert=own)
        with self.assertRaises(ssl.SSLCertVerificationError):
            Client(broker.tls, tls=context())
        self.secure(broker, context(ca=both)).ok("PING")


class ReloadTest(TlsPortCase):
    def setUp(self):
        folder = self.folder()
        self.files = {name: os.path.join(folder, name)
                      for name in ("cert", "key", "client_ca")}
        self.use(certificate("broker", "127.0.0.1", "localhost", "::1"),
                 authority())
        self.broker_ = self.tls_broker({
            f"listen.tls_{name}": path for name, path in self.files.items()})

    def use(self, cert, ca):
        shutil.copy(cert.cert, self.files["cert"])
        shutil.copy(cert.key, self.files["key"])
        shutil.copy(ca.cert, self.files["client_ca"])

    def shown(self):
        """The serial number of the certificate that clients are shown."""
        with socket.create_connection(("127.0.0.1", int(
                self.broker_.tls.rpartition(":")[2])), 10) as end:
            tls = context()
            tls.load_verify_locations(self.other.cert)
            with tls.wrap_socket(end, server_hostname="127.0.0.1") as secure:
                return secure.getpeercert()["serialNumber"]

    def test_other_files(self):
        broker, self.other = self.broker_, Authority("other")
        live = self.secure(broker)
        half = self.wire(broker)
        half.socket.sendall(half.flight())
        half.pull()
        live.ok("LOCK a")
        first = self.shown()
        self.use(self.other.issue("new", "127.0.0.1"), self.other)
        self.assertIn("changed=listen.tls_cert,listen.tls_key,"
                      "listen.tls_client_ca\n", broker.reload())
        second = self.shown()
        self.assertNotEqual(first, second)
        live.ok("UNLOCK a", count=0)
        # Whose handshake was under way gets what it began with.
        half.shake()
        self.assertTrue(half.read_lines(1)[0].startswith("* HELLO"))
        # CAs: those of before are none any more.
        tls = context(certificate("shop", "shop.example"), ca=self.other.cert)
        with self.assertRaises((ssl.SSLError, AssertionError)):
            Client(broker.tls, tls=tls, timeout=10)
        self.secure(broker, context(self.other.issue("c"),
                                    ca=self.other.cert)).ok("PING")
        self.assertIn("changed=none", broker.reload())

    def test_expiry(self):
        """/metrics says when what is shown ends, the first of its chain."""
        def ends_in_days(broker, shown_to="clients"):
            at = broker.metrics().get(
                "holdfast_tls_certificate_expiry_timestamp_seconds"
                f'{{shown_to="{shown_to}"}}')
            return at and round((at - time.time()) / 86400, 2)

        broker = self.broker_
        self.assertEqual(ends_in_days(broker), 2)
        self.assertIsNone(ends_in_days(broker, "redis"))
        # Those of intermediate authorities are for two days.
        between = authority().intermediate("between")
        for days in (1, 5):
            own = between.issue(f"leaf{days}", "127.0.0.1", days=days)
            self.use(own, authority())
            with open(self.files["cert"], "a", encoding="ascii") as file:
                file.write(Path(between.cert).read_text(encoding="ascii"))
            self.assertIn("changed=listen.tls_cert,listen.tls_key\n",
                          broker.reload())
            self.assertAlmostEqual(ends_in_days(broker), min(days, 2),
                                   delta=0.1)
        # Beyond 2038, when seconds need more than 31 bits, and 2106.
        for days in (9000, 36500):
            self.use(authority().issue(f"late{days}", "127.0.0.1", days=days),
                     authority())
            broker.reload()
            self.assertAlmostEqual(ends_in_days(broker), days, delta=0.1)

    def test_expired(self):
        """It is said, and changes nothing: clients refuse it themselves."""
        broker = self.broker_
        self.use(authority().issue("over", "127.0.0.1", days=-1), authority())
        says = (r"level=warn event=certificate_expired key=listen\.tls_cert "
                r"end=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n")
        self.assertRegex(broker.reload(), says)
        with self.assertRaisesRegex(ssl.SSLError, "expired"):
            Client(broker.tls, timeout=10, tls=context(
                certificate("shop", "shop.example")))
        broker.restart()
        self.assertRegex(broker.log(), says)
        self.use(authority().issue("good", "127.0.0.1"), authority())
        self.assertNotRegex(broker.reload(), says)

    def test_bad_files(self):
        broker, self.other = self.broker_, authority()
        shown = self.shown()
        for name in self.files:
            with self.subTest(name=name):
                good = Path(self.files[name]).read_text(encoding="ascii")
                for bad, why in (("nonsense", "PEM"), ("", "PEM"),
                                 (None, "No such file"),
                                 (authority().issue("another").key,
                                  "does not fit" if name == "key" else "PEM")):
                    if bad is None:
                        os.unlink(self.files[name])
                    elif bad.endswith(".key"):
                        shutil.copy(bad, self.files[name])
                    else:
                        Path(self.files[name]).write_text(bad,
                                                          encoding="ascii")
                    log = broker.reload()
                    self.assertIn("event=reload_failed", log)
                    self.assertIn(f"listen.tls_{name}: ", log)
                    self.assertIn(why, log)
                    self.assertEqual(self.shown(), shown)
                Path(self.files[name]).write_text(good, encoding="ascii")
        self.assertIn("event=reloaded", broker.reload())

    def test_asked_or_required(self):
        broker = self.broker_
        anonymous = self.secure(broker)
        self.assertIn("changed=listen.tls_client_cert\n", broker.reload(
            {"listen.tls_client_cert": "required"}))
        anonymous.ok("LOCK a")
        with self.assertRaises((ssl.SSLError, AssertionError)):
            Client(broker.tls, tls=context())
        self.secure(broker, context(certificate("shop", "shop.example")))
        self.assertIn("changed=listen.tls_client_ca,listen.tls_client_cert\n",
                      broker.reload({"listen.tls_client_ca": "",
                                     "listen.tls_client_cert": "asked"}))
        self.secure(broker).ok("PING")

    def test_what_needs_a_restart(self):
        log = self.broker_.reload({"listen.tls": [], "listen.tls_cert": "",
                                   "listen.tls_key": "",
                                   "listen.tls_client_ca": ""})
        self.assertIn("reload_needs_restart keys=listen.tls,listen.tls_cert,"
                      "listen.tls_key,listen.tls_client_ca\n", log)
        self.secure(self.broker_).ok("PING")


class AddressTest(TlsPortCase):
    @unittest.skipUnless(has_v6(), "no IPv6 on loopback")
    def test_v6_and_several(self):
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        port = self.port()
        addresses = [f"[::1]:{port}", f"127.0.0.1:{port}"]
        broker = self.broker(overrides={
            "listen.tls": addresses, "listen.tls_cert": own.cert,
            "listen.tls_key": own.key})
        for address in addresses:
            self.client(address, tls=context()).ok("PING")
            broker.wait_log(f"for=clients_tls address={address}")

    def test_tls_alone(self):
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        port = self.port()
        path = os.path.join(self.folder(), "s")
        broker = self.broker(overrides={
            "listen.tcp": [], "listen.unix": [path],
            "listen.tls": [f"127.0.0.1:{port}"], "listen.tls_cert": own.cert,
            "listen.tls_key": own.key})
        self.client(f"127.0.0.1:{port}", tls=context()).ok("LOCK a")

    def told(self, **keys):
        """The errors of a failing configuration check."""
        path = os.path.join(self.folder(), "holdfast.yaml")
        with open(path, "w", encoding="ascii") as file:
            file.write("listen:\n" + "".join(
                f'  {key}: "{value}"\n' for key, value in keys.items()))
        status, out, error = run("-t", "-c", path)
        self.assertEqual((status, out), (78, ""))
        return error[len(path) + 1:]

    def test_beyond_loopback(self):
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        self.assertIn("listen.tls: 0.0.0.0:1 is reached from beyond",
                      self.told(tls="0.0.0.0:1", tls_cert=own.cert,
                                tls_key=own.key))

    def test_files_at_the_start(self):
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        other = certificate("shop", "shop.example")
        for keys, place, why in (
                ({"tls_key": other.key}, "3:12: listen.tls_key: ",
                 "does not fit"),
                ({"tls_cert": "/no/file"}, "2:13: listen.tls_cert: ",
                 "No such file"),
                ({"tls_cert": own.key}, "2:13: listen.tls_cert: ", "PEM"),
                ({"tls_client_ca": own.key}, "4:18: listen.tls_client_ca: ",
                 "PEM"),
                ({"tls_client_ca": "/tmp"}, "4:18: listen.tls_client_ca: ",
                 "not a regular file")):
            error = self.told(**{"tls_cert": own.cert, "tls_key": own.key,
                                 **keys})
            self.assertTrue(error.startswith(place), error)
            self.assertIn(why, error)


class PassedTest(ActivationCase):
    """A socket named `tls` stands for listen.tls."""

    def keys(self):
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        return {"listen.tls_cert": own.cert, "listen.tls_key": own.key}

    def test_named_tls(self):
        end, plain = self.stream(), self.stream()
        broker = self.passed(end, names="tls", redis=shared_redis(),
                             overrides=self.keys())
        broker.start()
        self.client(address_of(end), tls=context()).ok("PING")
        self.client(broker).ok("PING")
        broker.stop()
        # In place of its addresses, as other ones are of theirs.
        other = self.port()
        broker = self.passed(end, plain, names="tls:x", redis=shared_redis(),
                             overrides={"listen.tls": [f"127.0.0.1:{other}"],
                                        **self.keys()})
        broker.spawn()
        broker.wait_log("for=http")
        self.client(address_of(end), tls=context()).ok("PING")
        self.client(address_of(plain)).ok("PING")
        for address in (f"127.0.0.1:{other}", broker.address):
            with self.assertRaises(OSError):
                Client(address)

    def test_unfit(self):
        status, log = self.passed(self.stream(), names="tls").run_to_exit()
        self.assertEqual(status, 71)
        self.assertIn("passed socket 3, tls: listen.tls_cert is not set", log)
        path = os.path.join(self.folder(), "s")
        status, log = self.passed(
            self.stream(path, socket.AF_UNIX), names="tls",
            overrides=self.keys()).run_to_exit()
        self.assertEqual(status, 71)
        self.assertIn("passed socket 3, tls: TLS is for TCP only", log)
