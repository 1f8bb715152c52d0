"""Bad input does no harm to the broker, nor to other clients."""

import http.client
import os
import random
import socket
import ssl

from shared import BrokerCase, stats

SEED = int(os.environ.get("HOLDFAST_SEED", "20"))


class BadInputTest(BrokerCase):
    # What is freed must be seen to be freed by the sanitized build as well.
    QUARANTINE = ":quarantine_size_mb=1"

    @classmethod
    def setUpClass(cls):
        options = os.environ.get("ASAN_OPTIONS")
        os.environ["ASAN_OPTIONS"] = (options or "") + cls.QUARANTINE
        try:
            super().setUpClass()
        finally:
            if options is None:
                del os.environ["ASAN_OPTIONS"]
            else:
                os.environ["ASAN_OPTIONS"] = options

    def setUp(self):
        self.bystander = self.connect()
        self.fence = self.bystander.ok("LOCK bad/bystander").fence

    def tearDown(self):
        """The one beside has noticed nothing."""
        self.assertTrue(self.served.running)
        (item,) = self.bystander.ok("HELD", n=1).items
        self.assertEqual(item.fence, self.fence)
        self.assertEqual([line for line in self.bystander.lines
                          if line.tag == "*" and line.word != "HELLO"], [])
        self.bystander.ok("UNLOCK bad/bystander", count=0)
        self.bystander.close()

    def raw(self):
        sock = socket.create_connection(("127.0.0.1", self.served.port), 10)
        self.addCleanup(sock.close)
        return sock

    @staticmethod
    def read_all(sock):
        data = b""
        try:
            while part := sock.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        return data

    def test_random_bytes(self):
        rng = random.Random(SEED)
        words = [b"LOCK", b"UNLOCK", b"1", b"wait=", b"=", b"%", b" ", b"\r",
                 b"\n", b"\0", b"bad/x", b"CANCEL 1", b"lease=1", b"HELLO",
                 b"PONG", b":", b"*", b"-", b"\xff", b"owner=a", b"999999999"]
        for number in range(150):
            if number % 2:
                data = rng.randbytes(rng.randrange(1, 6000))
            else:
                data = b"".join(rng.choices(words, k=rng.randrange(1, 800)))
            if data[:1] == b"\x16":
                continue
            sock = self.raw()
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            lines = self.read_all(sock).decode("utf-8",
                                               "surrogateescape").split("\n")
            self.assertRegex(lines[-2], r"^\* BYE (eof|quit|protocol) keep=0$",
                             f"seed {SEED}, number {number}: {data!r}")
            self.assertEqual(lines[-1], "")
            sock.close()

    def test_cut_at_every_byte(self):
        text = (b"1 LOCK bad/cut%20x wait=5s note=a%20b owner=o\r\n"
                b"2 UNLOCK bad/cut%20x owner=o\n\n3 PING\n")
        for place in range(1, len(text)):
            client = self.connect()
            client.send_raw(text[:place])
            self.bystander.ok("PING")  # the first part has been read
            client.send_raw(text[place:])
            for tag in "123":
                self.assertTrue(client.wait(tag).ok, text[:place])
            client.close()

    def test_byte_by_byte(self):
        client = self.connect()
        for byte in b"1 LOCK bad/bytes\n2 LOCK bad/bytes\n3 UNLOCK bad/by\n":
            client.send_raw(bytes([byte]))
            self.bystander.ok("PING")
        self.assertEqual(client.wait("1")["count"], "1")
        self.assertEqual(client.wait("2")["count"], "2")
        client.refused("3", "NOTHELD")

    def test_control_bytes(self):
        client = self.connect()
        for line in (b"1 LOCK a\0b", b"1 LOCK \0", b"1 LOCK a\rb",
                     b"1 LOCK a\tb", b"1 LOCK \x7f", b"1 LOCK \xc3\xa9",
                     b"1 PING\0", b"1 LOCK a note=\x01", b"1 \0"):
            client.send(line)
            self.assertIn(client.wait("1").code, ("BADREQ", "UNKNOWN"), line)
        for line in (b"\0a", b"\0\0\0\0", b"\r", b"\xff" * 100, b"\x7f",
                     b" \t ", b"*", b"- OK", b"* BYE eof"):
            client.send(line)
            reply = client.wait("-") if line != b"\r" else None
            self.assertIn(reply and reply.code, ("BADREQ", "UNKNOWN", None))
        client.send(b"\r\n \r\n    \n2 PING\r")
        client.granted("2")

    def test_endless_line(self):
        client = self.connect()
        before = self.served.rss_bytes()
        client.send_raw(b"7 LOCK ")
        for _ in range(200):
            client.send_raw(b"x" * 65536)
        client.refused("7", "TOOLONG")
        client.send_raw(b"\n8 PING\n")
        client.granted("8")
        self.assertEqual([line.line for line in client.lines
                          if line.code == "TOOLONG"][1:], [])
        self.assertLess(self.served.rss_bytes() - before, 8 << 20)

    def test_overlong_names(self):
        client = self.connect()
        for size in (256, 300, 1000, 4000):
            client.err("LOCK " + "x" * size, "TOOLONG")
        client.err("LOCK a owner=" + "x" * 4000, "BADREQ")
        client.err("LOCK a " + "b" * 4000, "TOOLONG")
        client.err("UNLOCK a " + "b" * 4000, "TOOLONG")
        client.err("x" * 4000, "UNKNOWN")
        client.send("1" * 3000 + " PING")
        client.refused("-", "BADREQ")
        client.err("LOCK a fence=" + "9" * 400, "BADREQ")
        client.err("LOCK a wait=" + "9" * 400, "BADREQ")

    def protocol(self, data):
        """The answer to bytes of another protocol: BYE, and the end."""
        sock = self.raw()
        sock.sendall(data)
        answer = self.read_all(sock).decode()
        self.assertRegex(answer, r"^\* HELLO [^\n]*\n(- ERR [^\n]*\n)*"
                         r"\* BYE protocol keep=0\n$", data)

    def test_http(self):
        for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"get /\r\n",
                     b"POST /x HTTP/1.0\r\n\r\nLOCK bad/http\n",
                     b"OPTIONS * HTTP/1.1\r\n", b"CONNECT x:1 HTTP/1.1\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"BREW / X\nhost: a\n", b"Host: x\n"):
            self.protocol(data)
        self.bystander.ok("SHOW bad/http", state="free")

    def test_a_real_http_client(self):
        connection = http.client.HTTPConnection("127.0.0.1",
                                                self.served.port, timeout=10)
        body = "LOCK bad/smuggled\r\n" * 50
        connection.request("POST", "/", body)
        with self.assertRaises((http.client.HTTPException, OSError)):
            connection.getresponse()
        connection.close()
        self.bystander.ok("SHOW bad/smuggled", state="free")

    def test_tls(self):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with self.assertRaises((ssl.SSLError, OSError)):
            context.wrap_socket(self.raw())
        self.protocol(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" +
                      b"\n" * 20)
        self.protocol(b"\x16")

    def test_floods_cost_no_memory(self):
        """Rounds of all kinds; the last ones take no more than the first."""
        rng = random.Random(SEED)
        sizes = []
        for _ in range(6):
            for number in range(60):
                sock = self.raw()
                kind = number % 4
                if kind == 0:
                    sock.sendall(b"y" * 300000)
                elif kind == 1:
                    sock.sendall(b"\n".join(
                        b"LOCK bad/flood-%d wait=1" % rng.randrange(50)
                        for _ in range(500)))
                elif kind == 2:
                    sock.sendall(rng.randbytes(20000))
                else:
                    sock.sendall(b"LOCK half")
                sock.close()
            self.wait_until(lambda: stats(self.bystander)["sessions_now"] == 1,
                            20, "all have gone")
            sizes.append(self.served.rss_bytes())
        self.assertLess(sizes[-1] - sizes[1], 8 << 20, sizes)

    def test_silent_connections(self):
        """Hundreds that say nothing, and leave in all ways."""
        for number in range(300):
            client = self.connect(greet=number % 3 == 0)
            if number % 2:
                client.kill()
            elif number % 5:
                client.finish()
                client.close()
            else:
                client.close()
        self.wait_until(lambda: stats(self.bystander)["sessions_now"] == 1,
                        20, "all have gone")
