"""The broker answers as the transcripts of proto/PROTOCOL.md say."""

import os
import re
import sys
import unittest

from harness import BrokerFailure, ClientError, HarnessCase, shared_redis
from shared import BrokerCase, read

WORD = re.compile(r"<(\w+)>")
FRESH = ("LOCKS", "SESSIONS", "TOP")  # show what other sessions have


def transcripts():
    """Each block as (title, [(kind, client, text)])."""
    text = read("proto/PROTOCOL.md")
    found = []
    pattern = r"^#+ ([^\n]+)$|^```transcript\n(.*?)^```$"
    title = ""
    for match in re.finditer(pattern, text, flags=re.M | re.S):
        if match.group(2) is None:
            title = match.group(1)
            continue
        lines = []
        for line in match.group(2).splitlines():
            who, said = line.split(": ", 1)
            lines.append((who[0], who[1:] or "1", said))
        found.append((title, lines))
    return found


def split(line):
    """(words, pairs) of a line without its free text."""
    words, pairs = [], {}
    for token in line.partition(" :")[0].split(" "):
        key, equals, value = token.partition("=")
        if equals and len(words) > 1:
            pairs[key] = value
        else:
            words.append(token)
    return words, pairs


class Example:
    """One block, played to a broker."""

    def __init__(self, connect, lines):
        self.connect = connect
        self.lines = lines
        self.known = {}
        self.clients = {}

    def client(self, number):
        if number not in self.clients:
            shown = any(kind == "S" and who == number and " HELLO " in said
                        for kind, who, said in self.lines)
            self.clients[number] = self.connect(greet=not shown)
        return self.clients[number]

    def play(self):
        expected = {}
        for kind, who, said in self.lines:
            if kind == "S":
                expected.setdefault(who, []).append(said)
                continue
            self.receive(expected)
            self.client(who).send(self.fill_in(said))
        self.receive(expected)
        for client in self.clients.values():
            self.check_nothing_more(client)

    def fill_in(self, said):
        return WORD.sub(lambda match: self.known[match.group(1)], said)

    def receive(self, expected):
        """Takes the lines of each client; those of one tag in their order."""
        for who, lines in expected.items():
            while lines:
                got = self.client(who).line().line
                tag = got.split(" ", 1)[0]
                same = [line for line in lines
                        if line.split(" ", 1)[0] == tag]
                if not same:
                    raise ClientError(f"unexpected: {got}, wanted: {lines}")
                self.compare(same[0], got)
                lines.remove(same[0])

    def compare(self, wanted, got):
        words, pairs = split(wanted)
        got_words, got_pairs = split(got)
        fits = len(words) == len(got_words) and pairs.keys() == \
            got_pairs.keys()
        both = list(zip(words, got_words)) + [
            (value, got_pairs.get(key, "")) for key, value in pairs.items()]
        if not fits or not all(self.matches(*each) for each in both):
            raise ClientError(f"wanted: {wanted}\n   got: {got}\n"
                              f"known: {self.known}")

    def matches(self, wanted, got):
        match = WORD.fullmatch(wanted)
        if match is None:
            if WORD.search(wanted):
                raise ValueError(f"a <word> is not alone: {wanted}")
            return wanted == got
        name = match.group(1)
        if not got or name.endswith(("ms", "ttl")):
            return bool(re.fullmatch(r"\d+", got))
        return self.known.setdefault(name, got) == got

    @staticmethod
    def check_nothing_more(client):
        """All that was said was in the block."""
        last = client.lines[-1] if client.lines else None
        if last is not None and last.tag == "*" and last.word == "BYE":
            more = client.at_end()
        else:
            client.send("999 PING")
            more = []
            while (reply := client.line()).tag != "999":
                more.append(reply)
        if more:
            raise ClientError(f"more than is written: {more}")


class ExampleTest(BrokerCase):
    def test_transcripts(self):
        blocks = transcripts()
        self.assertEqual(len(blocks),
                         read("proto/PROTOCOL.md").count("```transcript"))
        for title, lines in blocks:
            with self.subTest(section=title):
                self.play(title, lines)

    def play(self, title, lines):
        broker = self.served
        if title in FRESH:
            broker = self.broker(shared_redis())
        clients = []

        def connect(**options):
            clients.append(self.client(broker, **options))
            return clients[-1]

        try:
            Example(connect, lines).play()
        finally:
            for client in clients:
                client.close()
        if not broker.running:
            raise BrokerFailure(broker.log())


class ProgramTest(HarnessCase):
    """The client of profile A, as printed, before real brokers."""

    def start(self, broker, *names, **keys):
        source = re.search(r"^```python\n(.*?)^```$", read("proto/PROTOCOL.md"),
                           flags=re.M | re.S).group(1)
        address = (broker.host, broker.port)
        program = self.process([sys.executable, "-c", source + f"""
lock = Lock({address!r}, *{names!r}, **{keys!r})
print("held", *lock.fences, flush=True)
while lock.held():
    time.sleep(0.005)
print("lost", flush=True)
time.sleep(60)
"""], log_path=os.path.join(self.folder(), "log"))
        program.wait_log("held")
        return program

    def pair(self, overrides):
        """Two brokers of one Redis."""
        redis = self.redis()
        return [self.broker(redis, overrides) for _ in range(2)]

    def test_a_stopped_broker(self):
        """The program knows before the lock is another's."""
        first, second = self.pair({"lease.default": "3s"})
        program = self.start(first, "a", b"\xe9 =%", note="x y")
        client = self.client(second)
        tag = client.waits("LOCK %E9%20%3D%25 a")
        first.process.pause()
        self.addCleanup(first.process.resume)
        client.granted(tag, timeout=20)
        self.assertIn("lost", program.log())

    def test_an_overdue_lock_is_given_back(self):
        """The broker goes on before the lease of 30 s is over."""
        first, second = self.pair({"session.tcp_user_timeout": "1s"})
        program = self.start(first, "b")
        client = self.client(second)
        tag = client.waits("LOCK b")
        first.process.pause()
        self.addCleanup(first.process.resume)
        program.wait_log("lost")
        first.process.resume()
        client.granted(tag)

    def test_a_lease(self):
        """HELD counts it, PING does not."""
        first, _ = self.pair({})
        program = self.start(first, "c", lease="2s")
        first.process.pause()
        self.addCleanup(first.process.resume)
        program.wait_log("lost", 5)


class MatchTest(unittest.TestCase):
    """The comparison itself tells right from wrong."""

    def setUp(self):
        self.example = Example(None, [])

    def good(self, wanted, got):
        self.example.compare(wanted, got)

    def bad(self, wanted, got):
        with self.assertRaises(ClientError):
            self.example.compare(wanted, got)

    def test_it_compares(self):
        self.good("1 OK fence=<f> ttl_ms=<ttl> count=1",
                  "1 OK count=1 ttl_ms=5 fence=7")
        self.good("2 OK fence=<f> ttl_ms=<ttl>", "2 OK fence=7 ttl_ms=6")
        self.bad("2 OK fence=<f>", "2 OK fence=8")
        self.bad("2 OK fence=<f> ttl_ms=<ttl>", "2 OK fence=7 ttl_ms=-6")
        self.bad("1 OK count=1", "1 OK count=2")
        self.bad("1 OK", "1 OK count=2")
        self.bad("1 OK count=1", "1 OK")
        self.good("1 ERR BUSY retry=1 :a", "1 ERR BUSY retry=1 :b")
        self.bad("1 ERR BUSY retry=1 :a", "1 ERR LOST retry=1 :a")

    def test_orders_of_lines(self):
        class Said:
            def __init__(self, *lines):
                self.lines = list(lines)

            def line(self):
                class One:
                    line = self.lines.pop(0)
                return One

        def play(*lines):
            self.example.clients = {"1": Said(*lines)}
            self.example.receive({"1": ["1 ITEM a=1", "1 OK", "2 OK"]})

        play("2 OK", "1 ITEM a=1", "1 OK")
        play("1 ITEM a=1", "2 OK", "1 OK")
        with self.assertRaises(ClientError):
            play("1 OK", "1 ITEM a=1", "2 OK")
        with self.assertRaises(ClientError):
            play("1 ITEM a=1", "3 OK", "1 OK")
