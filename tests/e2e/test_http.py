"""The operators' port: health, readiness, metrics, the status page, limits."""

import socket

from harness import Broker, HarnessCase

CONNECTIONS = 32


def connect(broker, timeout=10.0):
    host, port = broker.admin_address.split(":")
    return socket.create_connection((host, int(port)), timeout)


def ask(broker, request):
    """(status line, {header: value}, body) of raw bytes on a connection."""
    with connect(broker) as sock:
        sock.sendall(request)
        answer = b""
        while True:
            part = sock.recv(65536)
            if not part:
                break
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return first, headers, body


class HttpTest(HarnessCase):
    def test_healthy_and_ready(self):
        broker = self.broker()
        self.assertEqual(broker.http("/healthz"), (200, "ok\n"))
        self.wait_until(lambda: broker.http("/readyz")[0] == 200,
                        what="readiness")
        self.assertEqual(broker.http("/readyz"), (200, "ready\n"))
        status, page = broker.http("/")
        self.assertEqual(status, 200)
        self.assertIn("Holdfast", page)
        self.assertIn("ready", page)
        self.assertEqual(broker.http("/nothing")[0], 404)
        self.assertIn('<meta name="viewport" content="width=device-width">',
                      page)

    def test_not_ready_without_redis(self):
        redis = self.redis()
        broker = self.broker(redis)
        self.wait_until(lambda: broker.http("/readyz")[0] == 200,
                        what="readiness")
        redis.kill()
        self.wait_until(lambda: broker.http("/readyz")[0] == 503,
                        what="Redis to be missed")
        status, why = broker.http("/readyz")
        self.assertEqual(status, 503)
        self.assertIn("redis", why)
        self.assertEqual(broker.http("/healthz")[0], 200)
        self.assertEqual(broker.metric("ready"), 0)
        redis.start()
        self.wait_until(lambda: broker.http("/readyz")[0] == 200,
                        what="Redis to be found again")

    def test_not_ready_while_stopping(self):
        """It is still answered then: a holder has a grace to end in."""
        broker = self.broker(overrides={"session.stop_grace": "60s"})
        client = self.client(broker, "LOCK a")
        broker.terminate()
        self.wait_until(lambda: broker.http("/readyz") == (503, "stopping\n"),
                        what="the stop")
        self.assertEqual(broker.http("/healthz")[0], 200)
        client.close()
        self.assertEqual(broker.wait_exit(), 0)

    def test_requests_as_they_come(self):
        broker = self.broker()
        for request, status in (
                (b"GET /healthz HTTP/1.0\r\n\r\n", "200 OK"),
                (b"GET /healthz?a=b HTTP/1.1\n\n", "200 OK"),
                (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
                 "405 Method Not Allowed"),
                (b"get / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
                (b"GET /../healthz HTTP/1.1\r\n\r\n", "404 Not Found"),
                (b"GET /\r\n\r\n", "400 Bad Request"),
                (b"GET  / HTTP/1.1\r\n\r\n", "400 Bad Request"),
                (b"GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
                (b"\0\0\0\n\n", "400 Bad Request"),
                (b"\n\n", "400 Bad Request"),
                (b"GET / HTTP/1.1\r\nA: " + b"x" * 4096,
                 "431 Request Header Fields Too Large"),
                (b"x" * 100000, "431 Request Header Fields Too Large")):
            with self.subTest(request=request[:40]):
                first, headers, body = ask(broker, request)
                self.assertEqual(first, f"HTTP/1.1 {status}")
                self.assertEqual(int(headers["content-length"]), len(body))
                self.assertEqual(headers["connection"], "close")
                self.assertEqual("allow" in headers, status[:3] == "405")

    def test_head(self):
        broker = self.broker()
        first, headers, body = ask(broker, b"HEAD /healthz HTTP/1.1\r\n\r\n")
        self.assertEqual(first, "HTTP/1.1 200 OK")
        self.assertEqual((headers["content-length"], body), ("3", b""))

    def test_in_pieces(self):
        broker = self.broker()
        with connect(broker) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"GET /healthz HTTP/1.1\r\n\r\n":
                sock.sendall(bytes([byte]))
            self.assertTrue(sock.recv(4096).startswith(b"HTTP/1.1 200 OK"))

    def test_slow_ones_and_too_many(self):
        """Those who only connect are ended; meanwhile clients are served."""
        broker = self.broker()
        idle = [self.closing(connect(broker, 30))
                for _ in range(CONNECTIONS + 8)]
        for sock in idle:
            self.assertEqual(sock.recv(1), b"")
        self.client(broker).ok("LOCK a")
        self.assertEqual(broker.http("/healthz")[0], 200)
        metrics = broker.metrics()
        self.assertEqual(metrics["holdfast_http_refused_total"], 8)
        self.assertEqual(metrics["holdfast_http_slow_total"], CONNECTIONS)

    def test_who_asks_gets_in(self):
        """However many there are who say nothing, little, or read nothing."""
        broker = self.broker()
        for what in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
            for _ in range(2 * CONNECTIONS):
                self.closing(connect(broker, 30)).sendall(what)
            self.assertEqual(broker.http("/healthz")[0], 200)
            self.assertEqual(broker.http("/readyz")[0], 200)

    def test_clients_do_not_wait_for_http(self):
        broker = self.broker()
        client = self.client(broker)
        for _ in range(200):
            sock = connect(broker)
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            sock.close()  # gone before the answer
        client.ok("LOCK a")
        client.ok("UNLOCK a")

    def test_off(self):
        broker = self.broker(overrides={"admin.http": "none"}, can_ask=False)
        self.assertNotIn("for=http", broker.log())
        with self.assertRaises(OSError):
            ask(broker, b"GET / HTTP/1.1\r\n\r\n")

    def test_address_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            first = self.broker()
            status, log = self.closing(Broker(
                overrides={"redis.nodes": first.config["redis"]["nodes"],
                           "admin.http": address})).run_to_exit()
        self.assertEqual(status, 71)
        self.assertIn(f"cannot listen on {address}: ", log)
