"""proto/PROTOCOL.md and proto/commands.def say the same.

Each command, key, error and event of one is in the other. Transcripts are
lines of the protocol, and the Python client is as described. Another test runs
the transcripts.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

from harness import Closing
from shared import TREE, read

UNITS = {"": 1, " ms": 1, " s": 1000, " h": 3600000, " days": 86400000}

TAG = r"[0-9][0-9A-Za-z._-]{0,15}"
WORD = r"(?:(?!:)[!-~]+)"
REQUEST = re.compile(rf"(?:({TAG}) )?([A-Za-z]+)((?: [!-~]+)*)$")
REPLY = re.compile(rf"({TAG}|-|\*) ([A-Z]+)((?: {WORD})*)(?: :(.*))?$")


def definitions(text, macro):
    """The arguments of each MACRO(...) line as lists of strings."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    found = []
    call = rf'^{macro}\(((?:"[^"]*"|[^")]|\([^)]*\)|\))*?)\)$'
    for match in re.finditer(call, text, flags=re.M):
        parts = re.findall(r'(?:"[^"]*"\s*)+|(?:\([^)]*\)|[^,"])+',
                           match.group(1))
        row = []
        for part in (part.strip() for part in parts):
            strings = re.findall(r'"([^"]*)"', part)
            if part:
                row.append("".join(strings) if strings else part)
        found.append(row)
    return found


def section(text, title):
    """The text below a heading, up to the next one of its level."""
    match = re.search(rf"^(#+) {re.escape(title)}$", text, flags=re.M)
    if match is None:
        return None
    rest = text[match.end():]
    end = re.search(rf"^#{{1,{len(match.group(1))}}} ", rest, flags=re.M)
    return rest[:end.start()] if end else rest


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.M | re.S)


def without_letters(text):
    """Syntax with its placeholders' letters left out: `wait=D` as `wait=`."""
    return re.sub(r"=[A-Z]+\b", "=", text)


class TableTest(unittest.TestCase):
    """A row that leaves a column out, or empty, does not compile."""

    def compiles(self, table, before, row, sources):
        text = read(table)
        self.assertEqual(text.count(before), 1)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, table)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(before, row + before))
            done = subprocess.run(
                ["cc", "-std=gnu11", "-fsyntax-only", "-I", folder, "-I", TREE,
                 *(os.path.join(TREE, source) for source in sources)],
                stderr=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def check(self, table, before, macro, columns, sources):
        def compiles(*words):
            row = f"{macro}(NEW, {', '.join(words)})\n"
            return self.compiles(table, before, row, sources)
        self.assertTrue(compiles(*columns))
        self.assertFalse(compiles(*columns[1:]))
        for place, column in enumerate(columns):
            words = list(columns)
            words[place] = ""
            self.assertFalse(compiles(*words), column)

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_a_command(self):
        self.check("proto/commands.def", "COMMAND(HELLO, ", "COMMAND",
                   ("USER", "SERVED", "AT_ONCE", "command_ping", "no_timer",
                    "NONE", "0", '"N"', '"n"'),
                   ("proto/request.c", "proto/vocabulary.c",
                    "daemon/core/command/admit.c",
                    "daemon/core/command/command.c",
                    "daemon/core/ticket/final.c"))

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_an_operation(self):
        self.check("daemon/op/op.def", "#undef OP", "OP",
                   ('"n"', "LOCK", "ticket_done", "NONE", "KEYED", "ALONE",
                    "FREES", "take_plain", "plain_decide"),
                   ("daemon/core/model/op_pool.c",
                    "daemon/core/feature/recent.c", "daemon/core/core.c",
                    "daemon/store/wire/record.c", "daemon/store/queue/call.c",
                    "daemon/store/topology/quorum.c",
                    "daemon/store/topology/round.c",
                    "daemon/store/strict/strict.c"))


class VocabularyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = read("proto/commands.def")
        cls.doc = read("proto/PROTOCOL.md")
        cls.commands = definitions(text, "COMMAND")
        cls.keys = definitions(text, "KEY")
        cls.errors = definitions(text, "ERROR")
        cls.events = definitions(text, "EVENT")

    def test_the_definitions_were_read(self):
        text = read("proto/commands.def")
        for macro, rows, width in (("COMMAND", self.commands, 10),
                                   ("KEY", self.keys, 5),
                                   ("ERROR", self.errors, 3),
                                   ("EVENT", self.events, 3)):
            begun = re.findall(rf"^{macro}\(", text, flags=re.M)
            self.assertEqual(len(rows), len(begun), macro)
            self.assertTrue(rows)
            for row in rows:
                self.assertEqual(len(row), width, row)

    def commands_part(self):
        return section(self.doc, "4. Commands") + \
            section(self.doc, "7. Operators' commands")

    def test_each_command_has_a_section(self):
        part = self.commands_part()
        titles = re.findall(r"^### (\S+)$", part, flags=re.M)
        self.assertEqual(titles, [row[0] for row in self.commands])
        for name, *_, usage, _ in self.commands:
            body = section(part, name)
            syntax = re.search(r"^    (\S.*)$", body, flags=re.M).group(1)
            self.assertEqual(without_letters(syntax), without_letters(usage))
            self.assertRegex(self.doc, rf"(?m)^C\d?: (\d+ )?{name}\b")
            self.assertIn(f"| [`{name}`](#{name.lower()}) |", part)
        self.assertIn(f"OK n={len(titles)}\n", section(part, "HELP"))

    def test_each_reason_of_status(self):
        text = read("daemon/op/health.def")
        reasons = re.findall(r'^REASON\(\w+, "(\w+)"', text, flags=re.M)
        self.assertEqual(len(reasons) + 1,  # FINE has no word
                         len(re.findall(r"^REASON\(", text, flags=re.M)))
        part = section(self.commands_part(), "STATUS")
        rows = re.findall(r"^\| `(\w+)` \|", part, flags=re.M)
        self.assertEqual(rows[4:], reasons)  # behind the states

    def test_each_usage_names_the_keys_of_the_command(self):
        words = {row[0]: row[1] for row in self.keys}
        for name, *_, keys, usage, _ in self.commands:
            wanted = {words[key] for key in re.findall(r"[KR]\((\w+)\)", keys)}
            named = set(re.findall(r"(\w+)=", usage))
            self.assertEqual(named, wanted, name)
            needed = {words[key] for key in re.findall(r"R\((\w+)\)", keys)}
            optional = set(re.findall(r"(\w+)=", " ".join(
                re.findall(r"\[[^]]*\]", usage))))
            self.assertEqual(named - optional, needed, name)

    def test_each_key_has_its_limits(self):
        part = section(self.doc, "1.3 Values")
        rows = [line for line in part.splitlines() if line.startswith("|")]
        for _, word, kind, low, high in self.keys:
            row = [line for line in rows if f"`{word}=`" in line.split("|")[1]]
            self.assertEqual(len(row), 1, word)
            form, limit = (cell.strip() for cell in row[0].split("|")[2:4])
            self.assertEqual(form, kind.lower(), word)
            self.check_limits(word, limit, int(low), int(high))

    def check_limits(self, word, text, low, high):
        if text == "`0` or `1`":
            self.assertEqual((low, high), (0, 1), word)
            return
        match = re.match(r"(\d+)( ms)? to (\d+)(\^\d+ - 1)?( ms| s| h| days)?",
                         text)
        self.assertIsNotNone(match, text)
        first, unit_low, last, power, unit_high = match.groups()
        top = int(last) * UNITS[unit_high or ""]
        if power:
            top = int(last) ** int(power[1:-4]) - 1
        self.assertEqual((int(first) * UNITS[unit_low or ""], top),
                         (low, high), word)

    def test_each_error_is_in_the_table(self):
        part = section(self.doc, "2. Errors")
        rows = re.findall(r"^\| `([A-Z]+)` \| ([01]) \| (.+?) \| (.+?) \|$",
                          part, flags=re.M)
        self.assertEqual([row[:2] for row in rows],
                         [tuple(row[:2]) for row in self.errors])

    def test_each_error_named_exists(self):
        known = {row[0] for row in self.errors}
        text = self.doc[:self.doc.index("## 8. Reserved")]
        for code in re.findall(r"`ERR ([A-Z]+)", text):
            self.assertIn(code, known | {"CODE"})

    def test_each_event_has_a_section(self):
        part = section(self.doc, "5. Events")
        titles = re.findall(r"^### (\S+)$", part, flags=re.M)
        self.assertEqual(titles, [row[0] for row in self.events])
        for name, form, _ in self.events:
            syntax = re.search(r"^    \* (\S.*)$", section(part, name),
                               flags=re.M).group(1)
            want, got = form.split(), syntax.split()
            self.assertEqual([without_letters(word).split("=")[0]
                              for word in got][:len(want)],
                             [without_letters(word).split("=")[0]
                              for word in want])

    def test_what_is_reserved_is_not_there(self):
        part = section(self.doc, "8. Reserved")
        there = {row[0] for row in self.commands + self.errors}
        for word in re.findall(r"`([A-Z]+)`", part):
            self.assertNotIn(word, there)

    def test_links_lead_somewhere(self):
        titles = re.findall(r"^#+ (.+)$", self.doc, flags=re.M)
        anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")
                   for title in titles}
        for link in re.findall(r"\]\(#([^)]+)\)", self.doc):
            self.assertIn(link, anchors)


class TranscriptTest(unittest.TestCase):
    def setUp(self):
        text = read("proto/PROTOCOL.md")
        self.transcripts = blocks(text, "transcript")
        self.assertEqual(len(self.transcripts), text.count("```transcript"))

    def test_lines_are_of_the_protocol(self):
        for transcript in self.transcripts:
            for line in transcript.splitlines():
                match = re.match(r"([CS])([23]?): (\S.*)$", line)
                self.assertIsNotNone(match, line)
                side, _, text = match.groups()
                if side == "S":
                    self.assertRegex(text, REPLY)
                self.assertLessEqual(len(text), 4095)

    def test_each_request_has_one_final_reply(self):
        for transcript in self.transcripts:
            asked, final = [], []
            for line in transcript.splitlines():
                who, text = line.split(": ", 1)
                if who[0] == "C":
                    asked += [(who[1:], tag) for tag in self.tag_of(text)]
                    continue
                tag, word = REPLY.match(text).groups()[:2]
                if tag != "*" and word in ("OK", "ERR"):
                    final.append((who[1:], tag))
            self.assertEqual(sorted(asked), sorted(final), transcript)

    @staticmethod
    def tag_of(text):
        """The tag that the final reply to a request has; none for PONG."""
        match = REQUEST.match(text)
        if match is None:
            return [text if re.fullmatch(TAG, text) else "-"]
        tag, verb, _ = match.groups()
        return [] if verb in ("PONG", "GET") else [tag or "-"]

    def test_each_has_locks_of_its_own(self):
        seen = set()
        for transcript in self.transcripts:
            names = set(re.findall(r"^C\d?: (?:\S+ )?LOCK (\S+)", transcript,
                                   flags=re.M))
            for name in names:
                self.assertTrue(name.startswith(("doc/", "wait=")), name)
            self.assertFalse(names & seen, names & seen)
            seen |= names

    def test_what_is_sent_was_received_before(self):
        for transcript in self.transcripts:
            known = set()
            for line in transcript.splitlines():
                names = set(re.findall(r"<(\w+)>", line))
                if line.startswith("C"):
                    self.assertLessEqual(names, known, line)
                known |= names


class PythonClientTest(Closing, unittest.TestCase):
    """The client of profile A, before a broker that knows its lines."""

    def setUp(self):
        found = blocks(read("proto/PROTOCOL.md"), "python")
        self.assertEqual(len(found), 1)
        self.source = found[0]
        self.namespace = {}
        exec(compile(self.source, "PROTOCOL.md", "exec"), self.namespace)
        listener = self.closing(socket.create_server(("127.0.0.1", 0)))
        self.port = listener.getsockname()[1]
        self.got = []
        self.answers = [b""]
        self.broker = threading.Thread(target=self.serve, args=(listener,))
        self.broker.daemon = True

    def serve(self, listener):
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(b"* HELLO proto=1 server=x session=00\n")
            for answer in self.answers:
                self.got.append(lines.readline())
                connection.sendall(answer)

    def lock(self, *answers, names=("a",), **keys):
        self.answers = answers
        self.broker.start()
        lock = self.namespace["Lock"](("127.0.0.1", self.port), *names, **keys)
        self.addCleanup(lock.socket.close)
        return lock

    def lost(self, answer, broken=b""):
        """Why a lock is lost after that answer to its second HELD."""
        lock = self.lock(b"1 OK fence=7 ttl_ms=9 count=1\n",
                         b"2 ITEM ttl_ms=1500\n2 OK n=1\n" + broken, answer)
        self.wait_until(lambda: not lock.held() and hasattr(lock, "why"))
        return str(lock.why)

    def test_it_is_short(self):
        self.assertLess(len([line for line in self.source.splitlines()
                             if line.strip()]), 70)

    def test_it_locks_and_unlocks(self):
        lock = self.lock(
            b"1 QUEUED position=1\n1 OK fence=7,3 ttl_ms=9 count=1 new=x\n",
            b"* NEW a b=c :d\n2 ITEM ttl_ms=70000\n2 ITEM ttl_ms=60000\n"
            b"2 OK n=2\n", b"* BYE quit\n",
            names=("a b=%\u00e4", b"\xff"), wait="5s", note=":x")
        self.assertEqual(lock.fences, ["7", "3"])
        self.assertTrue(lock.held())
        self.assertLess(lock.deadline, self.namespace["now"]() + 59.5)
        lock.close()
        self.wait_until(lambda: not lock.held())
        self.broker.join(10)
        self.assertEqual(self.got, [
            b"1 LOCK a%20b%3D%25%C3%A4 %FF wait=5s note=%3Ax\n", b"2 HELD\n",
            b"3 QUIT\n"])
        lock.close()
        self.assertFalse(lock.held())

    def test_it_tells_an_error(self):
        with self.assertRaisesRegex(self.namespace["NotHeld"], "BUSY"):
            self.lock(b"1 ERR BUSY retry=1 :held\n", wait="0")

    def test_it_has_patience(self):
        with self.assertRaises(OSError):
            self.lock(b"", b"", patience=0.1)
        self.broker.join(10)
        self.assertEqual(self.got, [b"1 LOCK a\n", b""])  # it has closed

    def test_it_sees_a_loss(self):
        self.assertIn("LOST a", self.lost(
            b"", b"* LOST a fence=7 reason=gone\n"))

    def test_it_sees_no_hold(self):
        self.assertTrue(self.lost(b"2 OK n=0\n"))

    def test_it_sees_the_end(self):
        self.assertIn("BYE drain", self.lost(b"* BYE drain\n"))

    def test_half_a_line_is_none(self):
        self.assertIn("ended", self.lost(b"2 ITEM ttl_ms=9000\n2 OK n=1"))
