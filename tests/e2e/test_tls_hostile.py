"""Hostile bytes at the port for TLS end, are counted, and disturb nobody."""

import _ssl
import contextlib
import ctypes
import os
import random
import select
import socket
import ssl
import threading
import time

from harness import Client
from harness.certificates import Certificate, openssl
from tls_wire import TlsPortCase, Wire, authority, context

SEED = int(os.environ.get("HOLDFAST_SEED", "4655"))
SECONDS = 10  # that a handshake may take


def rsa_certificate(folder, bits):
    """For a broker, signed by itself."""
    own = Certificate(os.path.join(folder, "c"), os.path.join(folder, "k"))
    openssl("req", "-x509", "-newkey", f"rsa:{bits}", "-nodes", "-subj",
            "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1",
            "-days", "2", "-keyout", own.key, "-out", own.cert)
    return own


class OwnWire(Wire):
    """By OpenSSL itself, for what Python's does not let one do."""

    def __init__(self, address):
        super().__init__(address)
        library = ctypes.CDLL(_ssl.__file__)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new", "BIO_new",
                     "BIO_s_mem"):
            getattr(library, name).restype = ctypes.c_void_p
        self._library = library
        self._context = ctypes.c_void_p(library.SSL_CTX_new(
            ctypes.c_void_p(library.TLS_client_method())))
        self._link = ctypes.c_void_p(library.SSL_new(self._context))
        self._from, self._to = (ctypes.c_void_p(library.BIO_new(
            ctypes.c_void_p(library.BIO_s_mem()))) for _ in range(2))
        library.SSL_set_bio(self._link, self._from, self._to)
        library.SSL_set_connect_state(self._link)

    def free(self):
        self._library.SSL_free(self._link)
        self._library.SSL_CTX_free(self._context)

    def _made(self):
        """The bytes to send."""
        made = b""
        room = ctypes.create_string_buffer(65536)
        while (got := self._library.BIO_read(self._to, room, 65536)) > 0:
            made += room.raw[:got]
        return made

    def pull(self):
        data = self.socket.recv(65536)
        self._library.BIO_write(self._from, data, len(data))
        return bool(data)

    def shake(self):
        while self._library.SSL_do_handshake(self._link) != 1:
            self.socket.sendall(self._made())
            if not self.pull():
                raise ConnectionError("ended in the handshake")
        self.socket.sendall(self._made())
        return self

    def offer(self, protocols):
        """Names, as of HTTP, in its ClientHello."""
        self._library.SSL_set_alpn_protos(self._link, protocols,
                                          len(protocols))

    def updates(self, count):
        for _ in range(count):
            self._library.SSL_key_update(self._link, 0)
            self._library.SSL_do_handshake(self._link)
        return self._made()

    def sealed(self, data):
        self._library.SSL_write(self._link, data, len(data))
        return self._made()

    def read(self):
        room = ctypes.create_string_buffer(65536)
        while (got := self._library.SSL_read(self._link, room, 65536)) <= 0:
            if not self.pull():
                return None
        return room.raw[:got]


class HostileCase(TlsPortCase):
    def setUp(self):
        self.broker_ = self.tls_broker()
        self.bystander = self.client(self.broker_)
        self.bystander.ok("LOCK bystander")

    def tearDown(self):
        self.bystander.ok("UNLOCK bystander", count=0)

    def sends(self, data, end=False):
        """The answer to these bytes, until the end."""
        peer = self.raw(self.broker_)
        with contextlib.suppress(OSError):
            peer.sendall(data)
            if end:
                peer.shutdown(socket.SHUT_WR)
        return self.ended(peer)

    def hello(self):
        """The first bytes of a handshake."""
        wire = Wire(self.broker_.tls)
        wire.socket.close()
        return wire.flight()

    def settled(self):
        """Nobody is left but the bystander."""
        self.wait_until(lambda: self.broker_.metric("connections") == 1,
                        what="the others are gone")
        self.assertEqual(self.broker_.metric("tls_connections"), 0)


class NonsenseTest(HostileCase):
    def test_no_tls(self):
        broker = self.broker_
        for number, data in enumerate((
                b"LOCK smuggled\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\0" * 5, b"\xff" * 5000, b"LOCK smuggled\n" * 5000,
                b"\x80\x2e\x01\x00\x02" + b"x" * 43), 1):
            answer = self.sends(data)
            self.assertNotIn(b"HELLO", answer)
            self.assertNotIn(b"BYE", answer)
            self.wait_counted(broker, "protocol", number)
        self.bystander.ok("SHOW smuggled", state="free")
        broker.wait_log("event=tls_failed peer=127.0.0.1:")
        broker.wait_log("does not speak TLS")
        self.settled()

    def test_tls_on_the_plain_port(self):
        """As ever."""
        with self.assertRaises((ssl.SSLError, OSError)):
            self.client(self.broker_.address, tls=context())

    def test_old_versions(self):
        broker = self.broker_
        for flag in ("-tls1_1", "-tls1"):
            with self.assertRaises(Exception):
                openssl("s_client", "-connect", broker.tls, flag, "-cipher",
                        "ALL:@SECLEVEL=0", "-CAfile", authority().cert)
        self.wait_counted(broker, "protocol", 2)
        broker.wait_log("unsupported protocol")
        self.settled()

    def test_costly_groups(self):
        """A handshake by those would take a hundred times as long."""
        for group in ("ffdhe8192", "ffdhe2048", "P-521"):
            with self.assertRaises(Exception):
                openssl("s_client", "-connect", self.broker_.tls, "-tls1_3",
                        "-groups", group, "-CAfile", authority().cert)
        self.wait_counted(self.broker_, "protocol", 3)

    def test_a_long_hello(self):
        """It would be kept for as long as the connection is there."""
        for count, good in ((60, True), (250, False)):
            wire = OwnWire(self.broker_.tls)
            self.addCleanup(wire.free)
            self.addCleanup(wire.socket.close)
            wire.offer((b"\xfa" + b"p" * 250) * count)
            if good:
                wire.shake().read_lines(1)
                continue
            with self.assertRaises(OSError):
                wire.shake()
            self.wait_counted(self.broker_, "protocol", 1)
            self.broker_.wait_log("its ClientHello is too long")

    def test_no_resumption_and_no_renegotiation(self):
        """No ticket is given, and a second handshake is not begun."""
        path = os.path.join(self.folder(), "session")
        for flag in ("-tls1_2", "-tls1_3"):
            text = openssl("s_client", "-connect", self.broker_.tls, flag,
                           "-CAfile", authority().cert, "-sess_out", path)
            self.assertNotIn("TLS session ticket:", text)
            self.assertIn("Compression: NONE", text)
        self.assertNotIn("Reused", openssl(
            "s_client", "-connect", self.broker_.tls, "-tls1_2", "-CAfile",
            authority().cert, "-reconnect"))

    def test_garbage(self):
        """At random; and what began as a handshake."""
        rng = random.Random(SEED)
        hello = self.hello()
        for number in range(60):
            if number % 2:
                data = rng.randbytes(rng.randint(1, 2000))
            else:
                data = bytearray(hello)
                for _ in range(rng.randint(1, 5)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
            self.assertNotIn(b"HELLO", self.sends(data, end=True))
        self.settled()

    def test_garbage_behind_a_handshake(self):
        rng = random.Random(SEED)
        for _ in range(20):
            wire = self.wire(self.broker_).shake()
            with contextlib.suppress(OSError):
                wire.socket.sendall(
                    rng.choice((b"", wire.sealed(b"LOCK half"),
                                wire.sealed(b"LOCK half")[:-1])) +
                    rng.randbytes(rng.randint(1, 3000)))
                wire.socket.shutdown(socket.SHUT_WR)
            self.ended(wire.socket)
        self.bystander.ok("SHOW half", state="free")
        self.settled()

    def test_records_of_nothing(self):
        """Very many small ones are work for many turns."""
        broker = self.broker_
        wire = self.wire(broker).shake()
        wire.read_lines(1)
        data = b"".join(wire.sealed(b"x") for _ in range(4000)) + \
            wire.sealed(b"\n1 PING\n")
        wire.socket.sendall(data)
        began = time.monotonic()
        self.bystander.ok("PING")
        self.assertLess(time.monotonic() - began, 1)
        self.assertTrue(wire.read_lines(2)[-1].startswith("1 OK"))

    def test_updates_of_keys(self):
        """They are no request, and work for many turns all the same."""
        broker = self.broker_
        wire = OwnWire(broker.tls)
        self.addCleanup(wire.free)
        self.addCleanup(wire.socket.close)
        wire.shake().read_lines(1)
        for _ in range(5):  # this process may be the one that comes late
            flood = wire.updates(30000) + wire.sealed(b"1 PING\n")
            broker.pause()
            wire.socket.sendall(flood)
            tag = self.bystander.submit("PING")
            broker.resume()
            self.bystander.granted(tag)
            first = not select.select([wire.socket], [], [], 0)[0]
            self.assertTrue(wire.read_lines(1)[0].startswith("1 OK"))
            if first:
                return
        self.fail("each time the flood was answered first")


class PiecesTest(HostileCase):
    def cut(self, flights, at):
        """A handshake that ends after so many bytes of its own."""
        wire = Wire(self.broker_.tls, context(
            newest=ssl.TLSVersion.TLSv1_2 if flights else None))
        with contextlib.closing(wire.socket):
            for _ in range(flights):
                wire.socket.sendall(wire.flight())
            data = wire.flight()
            wire.socket.sendall(data[:at])
            if at % 3 == 0:
                wire.reset()
            elif at % 3 == 1:
                wire.socket.shutdown(socket.SHUT_WR)
                self.ended(wire.socket)
            return len(data)

    def test_cut_at_any_byte(self):
        cuts = 0
        for flights in (0, 1):
            at, length = 0, 1
            while at < length:
                length = self.cut(flights, at)
                cuts += 1
                at += 1 if at < 12 or at % 16 > 13 else 5
        self.wait_until(lambda: self.counted(self.broker_, "closed") +
                        self.counted(self.broker_, "protocol") >= cuts)
        self.assertEqual(self.counted(self.broker_, "done"), 0)
        self.settled()

    def test_byte_by_byte(self):
        wire = self.wire(self.broker_)
        while data := wire.flight():
            for i in range(len(data)):
                wire.socket.sendall(data[i:i + 1])
                if i % 20 == 0:
                    time.sleep(0.001)
            with contextlib.suppress(ssl.SSLWantReadError):
                wire._tls.do_handshake()
                if not wire._out.pending:
                    break
        self.assertTrue(wire.read_lines(1)[0].startswith("* HELLO"))

    def test_half_open(self):
        """A silent client has ten seconds, and costs nothing."""
        broker = self.broker_
        hello = self.hello()
        half = [self.raw(broker) for _ in range(20)]
        for i, peer in enumerate(half):
            peer.sendall(hello[:i * 20])
        self.wait_until(lambda: broker.metric("connections") >= 21)
        began, before = time.monotonic(), broker.cpu_us()
        for peer in half:
            self.assertNotIn(b"HELLO", self.ended(peer, SECONDS + 10))
        took = time.monotonic() - began
        self.assertGreater(took, SECONDS - 2)
        self.assertLess(took, SECONDS + 5)
        self.assertLess(broker.cpu_us() - before, 500000)
        self.assertGreaterEqual(self.counted(broker, "timeout"), 20)
        broker.wait_log('why="handshake timed out"')

    def test_not_read(self):
        """A client that does not read the handshake."""
        wire = self.wire(self.broker_)
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        hello = wire.flight()
        wire.socket.sendall(hello)
        self.bystander.ok("PING")
        wire.reset()
        self.settled()


class FloodTest(HostileCase):
    def comes_in(self):
        """It may have to try again: a part of all has no room."""
        try:
            with Client(self.broker_.tls, tls=context()) as client:
                return client.ok("PING")
        except (OSError, AssertionError):
            return None

    def test_flood_beside_a_client(self):
        broker, stop = self.broker_, threading.Event()
        hello = self.hello()

        def flood():
            rng = random.Random(SEED)
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    with socket.create_connection(
                            ("127.0.0.1",
                             int(broker.tls.rpartition(":")[2])), 5) as end:
                        end.sendall(hello[:rng.choice((10, 9999, 9999))])
                        time.sleep(0.002)
        floods = [threading.Thread(target=flood, daemon=True)
                  for _ in range(4)]
        for thread in floods:
            thread.start()
        slowest, count, until = 0.0, 0, time.monotonic() + 3
        while time.monotonic() < until:
            began = time.monotonic()
            self.bystander.ok(f"LOCK f{count}")
            self.bystander.ok(f"UNLOCK f{count}")
            slowest = max(slowest, time.monotonic() - began)
            count += 1
        self.wait_until(self.comes_in, 20, "one of them is served")
        stop.set()
        for thread in floods:
            thread.join()
        self.assertGreater(count, 30)
        self.assertLess(slowest, 1.0)
        self.assertEqual(broker.metric("loop_stalls_total"), 0)
        self.settled()


class LimitTest(TlsPortCase):
    def test_no_tls_and_many(self):
        """They are told of in a few lines."""
        broker = self.tls_broker({"log.rate": 3})
        for _ in range(100):
            peer = self.raw(broker)
            peer.sendall(b"LOCK a\n")
            peer.close()
        self.wait_until(lambda: self.counted(broker, "protocol") +
                        self.counted(broker, "closed") == 100)
        self.assertLess(broker.log().count("event=tls_failed"), 40)

    def test_a_great_certificate(self):
        """Of more bytes than anybody's are is not taken in."""
        broker = self.tls_broker({"listen.tls_client_ca": authority().cert})
        names = [f"{'n' * 60}{i}.example" for i in range(700)]
        great = authority().issue("great", *names)
        with self.assertRaises((ssl.SSLError, AssertionError)):
            self.secure(broker, context(great))
        self.wait_until(lambda: self.counted(broker, "certificate") == 1)

    def test_no_agreement(self):
        """A key of RSA signs, and decrypts nothing: what was said stays
        secret where the key gets known."""
        own = rsa_certificate(self.folder(), 2048)
        broker = self.tls_broker(cert=own)
        for ciphers, done in (("AES128-SHA:AES256-GCM-SHA384", False),
                              ("ECDHE-RSA-AES128-GCM-SHA256", True)):
            tls = context(ca=own.cert, newest=ssl.TLSVersion.TLSv1_2)
            tls.set_ciphers(ciphers)
            if done:
                self.secure(broker, tls).ok("PING")
            else:
                with self.assertRaisesRegex(ssl.SSLError, "HANDSHAKE_FAILURE"):
                    Client(broker.tls, tls=tls)
                self.wait_counted(broker, "protocol", 1)

    def share_the_loop(self, broker, tls):
        """How many of a hundred have an answer when a plain client has."""
        wires = [self.wire(broker, tls) for _ in range(100)]
        hellos = [wire.flight() for wire in wires]
        plain = self.client(broker)
        broker.pause()
        for wire, hello in zip(wires, hellos):
            wire.socket.sendall(hello)
        tag = plain.submit("PING")
        broker.resume()
        plain.granted(tag)
        sockets = [wire.socket for wire in wires]
        answered = len(select.select(sockets, [], [], 0)[0])
        for wire in wires:
            wire.shake()
            self.assertTrue(wire.read_lines(1)[0].startswith("* HELLO"))
        return answered

    def test_handshakes_share_the_loop(self):
        """Very many at once, whose key makes each of them costly: no turn of
        the loop is long."""
        own = rsa_certificate(self.folder(), 3072)
        broker = self.tls_broker(cert=own)
        tls = context(ca=own.cert)
        # This process may be the one that comes late.
        answered = min(self.share_the_loop(broker, tls) for _ in range(3))
        self.assertEqual(self.counted(broker, "done"), 300)
        self.assertLess(answered, 50)

    def all_get_in(self):
        broker = self.tls_broker({"limits.memory": "1MiB"})
        wires = [self.wire(broker) for _ in range(300)]
        hellos = [wire.flight() for wire in wires]
        for wire, hello in zip(wires, hellos):
            wire.socket.sendall(hello)
        try:
            for wire in wires:
                wire.shake()
                self.assertTrue(wire.read_lines(1)[0].startswith("* HELLO"))
        except ConnectionError:
            return False
        return self.counted(broker, "done") == 300 and \
            self.counted(broker, "crowded") == 0

    def test_many_who_mean_it(self):
        """They get in one after the other, and nobody has to go, unless this
        process keeps the broker waiting for 0.3 s."""
        self.assertTrue(any(self.all_get_in() for _ in range(4)))

    def test_byte_by_byte(self):
        """A client that dribbles makes room, too."""
        broker = self.tls_broker({"limits.memory": "1MiB"})
        wire = self.wire(broker)
        hello = wire.flight()
        wire.socket.close()
        self.wait_counted(broker, "closed", 1)
        slow = [self.raw(broker) for _ in range(64)]
        stop = threading.Event()

        def dribble():
            for byte in hello:
                for each in slow:
                    with contextlib.suppress(OSError):
                        each.sendall(bytes((byte,)))
                if stop.wait(0.05):
                    return
        thread = threading.Thread(target=dribble, daemon=True)
        thread.start()
        self.secure(broker).ok("PING")
        self.assertEqual(self.counted(broker, "crowded"), 1)
        self.assertEqual(self.counted(broker, "timeout"), 0)
        stop.set()
        thread.join()

    def test_too_many_at_once(self):
        """The oldest makes room: who means it gets in all the same."""
        broker = self.tls_broker({"limits.memory": "1MiB"})
        silent = [self.raw(broker) for _ in range(64)]
        self.wait_until(lambda: broker.metric("connections") == 64)
        self.assertEqual(self.counted(broker, "crowded"), 0)
        self.secure(broker).ok("PING")
        self.assertEqual(self.counted(broker, "crowded"), 1)
        self.assertEqual(self.ended(silent[0]), b"")
        self.raw(broker)
        self.raw(broker)
        self.wait_counted(broker, "crowded", 2)
        self.assertEqual(self.ended(silent[1]), b"")

    def test_too_many_of_an_address(self):
        """They count before their handshake is done."""
        broker = self.tls_broker({"limits.connections_per_address": 5})
        silent = [self.raw(broker) for _ in range(4)]
        client = self.secure(broker)
        metric = 'holdfast_limits_hit_total{limit="address"}'
        before = broker.metrics()[metric]
        self.assertEqual(self.ended(self.raw(broker)), b"")
        plain = self.client(broker, greet=False)
        self.assertEqual(plain.at_end()[-1].line, "* BYE limit keep=1")
        self.assertEqual(broker.metrics()[metric], before + 2)
        silent[0].close()
        self.wait_until(lambda: self.counted(broker, "closed") >= 1)
        other = self.secure(broker)
        other.ok("PING")
        # One that is done is counted once.
        client.close()
        self.wait_until(lambda: broker.metric("sessions") == 1)
        self.client(broker).ok("PING")
        broker.reload({"limits.connections_per_address": 0})
        for peer in silent:
            peer.close()
        self.secure(broker).ok("PING")

    def test_too_many_connections(self):
        broker = self.tls_broker({"limits.connections": 6})
        self.wait_until(lambda: broker.metric("connections") == 0)
        silent = [self.raw(broker) for _ in range(6)]
        self.wait_until(lambda: broker.metric("connections") == 6)
        self.assertEqual(self.ended(self.raw(broker)), b"")
        self.client(broker, greet=False).expect("BYE", "limit")
        for peer in silent:
            peer.close()
        self.wait_until(lambda: broker.metric("connections") == 0)
        self.secure(broker).ok("PING")

    def test_memory_is_bounded(self):
        """Parts of records count as memory, so who hoards them has to go."""
        broker = self.tls_broker({"limits.memory": "1MiB"})
        bystander = self.client(broker, "LOCK kept")
        wires = [self.wire(broker).shake() for _ in range(90)]
        for wire in wires:
            wire.read_lines(1)
            with contextlib.suppress(OSError):
                wire.socket.sendall(wire.sealed(b"y" * 16000)[:-1])
        ended = 'holdfast_connections_closed_total{reason="memory"}'
        self.wait_until(lambda: broker.metrics()[ended] >= 20)
        self.wait_until(lambda: broker.metric("buffered_bytes") < 1200000)
        bystander.ok("UNLOCK kept", count=0)
        for wire in wires:
            wire.socket.close()
        self.wait_until(lambda: broker.metric("connections") == 1)
        self.assertEqual(broker.metric("buffered_bytes"), 0)
