"""Every limit of the configuration is met, told, counted, and lived with."""

import contextlib
import os
import resource
import socket
import threading
import time

from harness import Broker, HarnessCase, shared_redis
from shared import stats


class LimitCase(HarnessCase):
    def limited(self, client, line, limit):
        reply = client.err(line, "LIMIT")
        self.assertEqual((reply["limit"], reply["retry"]), (limit, "1"))
        self.assertGreaterEqual(stats(client)[f"limit_{limit}"], 1)

    def one(self, **limits):
        return self.broker(overrides={f"limits.{name}": value
                                      for name, value in limits.items()})


class RequestLimitTest(LimitCase):
    def test_line(self):
        client = self.client(self.one(line=512))
        self.assertEqual(client.hello["max_line"], "512")
        line = "1 LOCK limit/line note="
        client.send("2 UNLOCK " + "x" * 600 + "\n3 PING")
        client.refused("2", "TOOLONG")
        client.granted("3")
        for filler, good in ((511, True), (512, False)):
            client.send("4 PING" + " " * (filler - 6))
            self.assertEqual(client.wait("4").ok, good, filler)
            # The end of the line counts, and so does a CR.
            client.send("5 PING" + " " * (filler - 7) + "\r")
            self.assertEqual(client.wait("5").ok, good, filler)
        client.send(line + "n" * 100)
        client.granted("1")
        self.assertEqual(stats(client)["lines_too_long"], 3)

    def test_name(self):
        client = self.client(self.one(name=10))
        client.ok("LOCK " + "x" * 10)
        client.ok("LOCK " + "%20" * 10)
        client.err("LOCK " + "x" * 11, "TOOLONG")
        client.err("SHOW " + "%20" * 11, "TOOLONG")

    def test_outstanding(self):
        broker = self.one(outstanding=16)
        holder, client = self.client(broker), self.client(broker)
        holder.ok("LOCK limit/outstanding")
        tags = [client.submit(f"LOCK limit/outstanding owner={n}")
                for n in range(16)]
        self.limited(client, "LOCK limit/other wait=0", "outstanding")
        self.limited(client, "SHOW limit/outstanding", "outstanding")
        client.ok("PING")
        self.client(broker).ok("LOCK limit/other wait=0")
        client.ok(f"CANCEL {tags[3]}")
        client.refused(tags[3], "CANCELLED")
        client.ok("SHOW limit/outstanding")
        holder.ok("UNLOCK limit/outstanding", count=0)
        client.granted(tags[0])

    def test_holds(self):
        client = self.client(self.one(holds=5))
        for number in range(5):
            client.ok(f"LOCK limit/holds-{number}")
        self.limited(client, "LOCK limit/holds-5", "holds")
        self.limited(client, "LOCK limit/holds-0 owner=x", "holds")
        client.ok("LOCK limit/holds-0", count=2)
        client.ok("UNLOCK limit/holds-1", count=0)
        client.ok("LOCK limit/holds-5", count=1)

    def test_waiters(self):
        broker = self.one(waiters=3)
        other = self.broker(overrides={"limits.waiters": 3})
        holder = self.client(broker, "LOCK limit/waiters")
        line = []
        for number in range(3):
            client = self.client((broker, other)[number % 2])
            tag = client.waits("LOCK limit/waiters")
            line.append((client, tag))
        for each in (broker, other):
            self.limited(self.client(each), "LOCK limit/waiters", "waiters")
        line[1][0].close()
        late = self.client(broker)
        self.wait_until(lambda: holder.ok("SHOW limit/waiters")["waiters"] ==
                        "2", 5, "one has left")
        tag = late.submit("LOCK limit/waiters progress=1")
        self.assertEqual(late.queued(tag)["position"], "3")

    def test_tickets(self):
        broker = self.one(tickets=16)
        clients = [self.client(broker) for _ in range(4)]
        for number in range(16):
            clients[number % 4].ok(f"LOCK limit/tickets-{number}")
        self.limited(clients[0], "LOCK limit/tickets-16", "tickets")
        self.limited(clients[1], "LOCK limit/tickets-0", "tickets")
        clients[0].ok("LOCK limit/tickets-0", count=2)
        clients[3].close()
        self.wait_until(lambda: clients[0].request("LOCK limit/tickets-16").ok,
                        5, "there is room again")
        # Over and over: refusals leave nothing behind.
        for number in range(200):
            clients[1].request(f"LOCK limit/more-{number}")
        clients[0].close()
        clients[1].close()
        self.wait_until(lambda: stats(clients[2])["tickets_now"] == 4, 5,
                        "only one client's are left")

    def test_requests(self):
        broker = self.one(requests=16)
        holder = self.client(broker, "LOCK limit/requests")
        waiters = [self.client(broker) for _ in range(4)]
        for number in range(16):
            client = waiters[number % 4]
            tag = client.submit(f"LOCK limit/requests owner={number} "
                                "progress=1")
            client.queued(tag)
        self.limited(waiters[0], "LOCK limit/free", "requests")
        holder.ok("PING")
        waiters[3].close()
        self.wait_until(lambda: waiters[0].request("LOCK limit/free").ok, 5,
                        "there is room again")

    def test_thousands_in_one_go(self):
        """4,000 LOCKs, and many PINGs, sent before an answer is read."""
        client = self.client(self.broker(), timeout=30)
        count = 4000
        text = "".join(f"{n} LOCK limit/many-{n}\n" for n in range(count))
        text += "".join(f"{n}u UNLOCK limit/many-{n}\n"
                        for n in range(0, 90))
        text += "".join(f"{n}p PING\n" for n in range(20000))
        sender = threading.Thread(target=client.socket.sendall,
                                  args=(text.encode(),))
        sender.start()
        answers = {}
        for _ in range(count + 90 + 20000):
            reply = client.line(timeout=30)
            self.assertNotIn(reply.tag, answers)
            answers[reply.tag] = reply
            client.lines.clear()
        sender.join()
        self.assertTrue(all(reply.ok for reply in answers.values()))
        self.assertEqual(client.ok("HELD").number("n"), count - 90)


class ConnectionLimitTest(LimitCase):
    def refused(self, broker):
        client = self.client(broker, greet=False)
        self.assertEqual([line.line for line in client.at_end()],
                         ["* BYE limit keep=1"])

    def test_connections(self):
        broker = self.one(connections=3)
        clients = [self.client(broker) for _ in range(3)]
        for _ in range(5):
            self.refused(broker)
        for name in ("sessions_refused", "limit_connections"):
            self.assertEqual(stats(clients[0])[name], 5)
        clients[1].close()
        self.wait_until(lambda: stats(clients[0])["sessions_now"] == 2, 5,
                        "one has left")
        with broker.client() as client:
            client.ok("PING")

    def test_ended_and_still_there(self):
        """A client that stays after QUIT takes nobody else's place."""
        broker = self.one(connections=8, connections_per_address=2)
        for what in (b"QUIT\n", b"QUIT\nPING\n", b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(20):
                sock = self.closing(
                    socket.create_connection(("127.0.0.1", broker.port), 5,
                                             source_address=("127.0.0.2", 0)))
                sock.sendall(what)
                self.assertIn(b"* BYE", self.read_to_end(sock))
        self.client(broker).ok("PING")
        self.assertEqual(broker.metric("sessions_refused_total"), 0)

    def test_ended_and_reads_nothing(self):
        """A client that has sent FIN and reads nothing is given up."""
        broker = Broker(shared_redis())
        broker.config["listen"]["unix"] = [broker.unix_path]
        self.addCleanup(broker.close)
        broker.start()
        for last in (b"", b"QUIT\n"):
            sock = self.closing(socket.socket(socket.AF_UNIX))
            sock.connect(broker.unix_path)
            sock.sendall(200 * b"HELP\n" + last)
            self.wait_until(lambda: broker.metric("buffered_bytes") > 0, 5,
                            "its output waits")
            if last:  # its FIN comes behind the session's end
                self.wait_until(lambda: broker.metric(
                    'connections_closed_total{reason="quit"}') == 1, 10,
                                "its session has ended")
            sock.shutdown(socket.SHUT_WR)
        self.wait_until(lambda: broker.metric("sessions") == 0, 10,
                        "both sessions have ended")
        self.wait_until(lambda: broker.metric("connections") == 0, 20,
                        "both connections have ended")

    @staticmethod
    def read_to_end(sock):
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while got := sock.recv(4096):
                data += got
        return data

    def test_no_descriptors(self):
        """EMFILE: no spinning, others go on, and it recovers."""
        broker = self.broker()
        client = self.client(broker, "LOCK limit/emfile")
        old = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        used = broker.descriptors()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE,
                         (used + 4, old[1]))
        sockets = []
        for _ in range(40):
            sockets.append(socket.create_connection(
                ("127.0.0.1", broker.port), 5))
            self.addCleanup(sockets[-1].close)
        self.wait_until(lambda: stats(client)["limit_descriptors"] > 0, 10,
                        "it has none left")
        self.wait_until(lambda: stats(client)["sessions_refused"] > 0, 10,
                        "who is told that there is none is counted")
        before, begin = broker.cpu_us(), time.monotonic()
        client.no_event("BYE", 1.0)
        share = (broker.cpu_us() - before) / 1e6 / (time.monotonic() - begin)
        self.assertLess(share, 0.3)
        client.ok("LOCK limit/emfile", count=2)
        for each in sockets:
            each.close()
        self.wait_until(lambda: self.greeted(broker), 20, "it greets again")
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, old)
        for _ in range(30):
            self.client(broker).ok("PING")

    @staticmethod
    def greeted(broker):
        with contextlib.suppress(OSError, AssertionError):
            with broker.client(timeout=1):
                return True
        return False


class MemoryLimitTest(LimitCase):
    def flood(self, broker, line, ended):
        """One that asks and never reads, until `ended()`."""
        host, port = broker.address.split(":")
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((host, int(port)))
            sock.setblocking(False)
            sock.send(b"LOCK limit/reader\n")
            data = line * 200
            deadline = time.monotonic() + 30
            while not ended() and time.monotonic() < deadline:
                try:
                    sock.send(data)
                except BlockingIOError:
                    time.sleep(0.001)
                except OSError:
                    break

    def test_output(self):
        broker = self.one(output="64KiB")
        client = self.client(broker)
        for number in range(100):
            client.ok(f"LOCK limit/list-{number}")
        for round_, line in enumerate((b"HELP\n", b"LOCKS\n", b"STATS\n",
                                       b"x\n"), 1):
            self.flood(broker, line, lambda round_=round_: stats(client)[
                "closed_output"] >= round_)
            self.assertEqual(stats(client)["closed_output"], round_, line)
            client.ok("LOCK limit/reader wait=5s")
            client.ok("UNLOCK limit/reader")
        self.wait_until(lambda: stats(client)["sessions_now"] == 1, 5,
                        "they are gone")

    def test_held_waits_for_its_reader(self):
        """A list that is longer than the limit goes to who reads."""
        broker = self.one(output="16KiB")
        client = self.client(broker, timeout=30)
        client.send("\n".join(f"LOCK limit/held-{n} note={'n' * 100}"
                              for n in range(1200)))
        for _ in range(1200):
            client.granted(timeout=30)
        self.assertEqual(client.ok("HELD", timeout=30).number("n"), 1200)

    def test_ended_behind_lists(self):
        """A client that reads nothing is sent away while lists wait."""
        broker = self.broker(overrides={"listen": {"tcp": [], "unix": [
            os.path.join(self.folder(), "s")]}})
        client = self.client(broker, timeout=30)
        client.send("\n".join(f"LOCK limit/list-{n}" for n in range(600)))
        for _ in range(600):
            client.granted(timeout=30)
        # All of this is one batch of events, in which another one connects.
        broker.pause()
        client.send_raw(b"HELD\n" * 3 + b"PING\n" * 900 + b"HELD\n" * 4 +
                        b"GET / HTTP/1.1\r\n")
        other = self.client(broker, greet=False)
        broker.resume()
        other.ok("LOCK limit/other", timeout=30)

    def test_memory(self):
        """Unfinished lines of many connections."""
        broker = self.one(memory="1MiB")
        client = self.client(broker)
        sockets = []
        for _ in range(400):
            sock = socket.create_connection(("127.0.0.1", broker.port), 10)
            self.addCleanup(sock.close)
            sock.sendall(b"1 LOCK " + b"x" * 4000)
            sockets.append(sock)
        self.wait_until(lambda: stats(client)["limit_memory"] >= 100, 10,
                        "some were sent away")
        self.assertLess(stats(client)["limit_memory"], 300)
        client.ok("LOCK limit/memory")
        for sock in sockets:
            sock.close()
        self.wait_until(lambda: stats(client)["sessions_now"] == 1, 10,
                        "all have left")
        before = stats(client)["limit_memory"]
        with contextlib.closing(self.client(broker)) as another:
            another.send_raw(b"1 PI")
            another.send_raw(b"NG\n")
            another.granted("1")
        self.assertEqual(stats(client)["limit_memory"], before)
