"""One scenario: its steps, a driver, and a broker that plays the other side.

The README of this folder says what the steps are. All waiting is for an event;
the time of an event counts only where a step says so.
"""

import codecs
import os
import random
import re
import select
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections import defaultdict, deque

from broker import AUTO, Broker, server_tls
from wire import Mismatch, fill, milliseconds, request_matches, result_matches

EVENT_SECONDS = 10
EXIT_SECONDS = 10
WINDOW = re.compile(r"\s*\[(\w+)\+(\w+)\.\.(\w+)\+(\w+)\]$")
SIZE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MAY_LACK = re.compile(r"^# may lack: (\w+)$", re.M)
SHORT = {"...": "ttl_ms=10000 count=1 renewed=1"}
CHUNK = 1 << 16
FUZZ_LINES = 300
FUZZ_WORDS = [
    "*", "-", "$x", "$y", "1", "OK", "ERR", "ITEM", "QUEUED", "LOST", "PING",
    "HELD", "FREE", "MEMBERS", "JOINED", "LEFT", "CHANGED", "WANTED", "DRAIN",
    "JEOPARDY", "SAFE", "a", "b", "7", "fence=7", "fence=7,8", "fence=x",
    "fence=99999999999999999999", "ttl_ms=10000", "ttl_ms=-1", "ttl_ms=",
    "ttl_ms=18446744073709551615", "count=1", "count=0", "n=1", "begin=1",
    "members=1", "waiters=2", "reason=gone", "owner=$o", "name=a", "=", "%",
    "%0", "a=%zz", "grace_ms=1", "keep=1", ":text", "BUSY", "retry=1", ""]


def size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * SIZE[match[2]]


class Driver:
    """The client's program, in a process group of its own."""

    def __init__(self, command, folder, log):
        self._log = log
        self.lines = defaultdict(deque)  # by ID: (when, line)
        self._errors = tempfile.TemporaryFile(dir=folder)
        self.process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, bufsize=0,
            stdout=subprocess.PIPE, stderr=self._errors,
            start_new_session=True)
        self._input = b""
        self.ended = False
        self.over = False  # its stdin is closed: what it says is let be

    def say(self, line):
        self._log(f"D> {line}")
        if not select.select([], [self.process.stdin], [], EVENT_SECONDS)[1]:
            raise Mismatch("the driver does not read its stdin")
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise Mismatch("the driver has ended") from None

    def read(self):
        data = os.read(self.process.stdout.fileno(), CHUNK)
        if not data:
            self.ended = True
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            self._log(f"D< {text}")
            words = text.split()
            if words[1:2] == ["unsupported"]:
                raise Mismatch(f"the driver lacks a command: {text}")
            if words and not self.over:
                self.lines[words[0]].append((time.monotonic(), text))

    def memory(self, peak):
        """Bytes of all its processes, now or at most."""
        field = "VmHWM:" if peak else "VmRSS:"
        total = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.getpgid(int(name)) != self.process.pid:
                    continue
                with open(f"/proc/{name}/status", encoding="ascii",
                          errors="replace") as file:
                    total += sum(int(line.split()[1]) << 10 for line in file
                                 if line.startswith(field))
            except (OSError, ProcessLookupError):
                continue
        return total

    def errors(self):
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode("utf-8", "replace")

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


class Run:
    """One run of a scenario; raises Mismatch."""

    def __init__(self, text, command, folder):
        self.text = text
        self._folder = folder
        self._begin = time.monotonic()
        self.log = []
        self._variables = {"CA": os.path.join(folder, "ca.pem"),
                           "OTHERCA": os.path.join(folder, "other.pem"),
                           "CERT": os.path.join(folder, "client.pem"),
                           "KEY": os.path.join(folder, "client.key")}
        self._marks = {}
        self._memory = None
        self._lenient = False
        self._current = None
        self.broker = Broker(self._say)
        self.driver = Driver(command, folder, self._say)
        self.broker.selector.register(
            self.driver.process.stdout, selectors.EVENT_READ, self._read)

    def _say(self, line):
        self.log.append(f"{time.monotonic() - self._begin:8.3f}  "
                        f"{line[:300]}")

    def _read(self):
        self.driver.read()
        if self.driver.ended:
            self.broker.selector.unregister(self.driver.process.stdout)

    # --- waiting

    def _until(self, find, what, window=None):
        """Serves until find() is not None; the result of it is (when, ...)."""
        begin, limit, least = time.monotonic(), EVENT_SECONDS, None
        if window:
            least = self._marks[window[1]] + milliseconds(window[2]) / 1e3
            limit = self._marks[window[3]] + milliseconds(window[4]) / 1e3 \
                - begin
        while True:
            found = find()
            if found is not None:
                if least and found[0] < least:
                    raise Mismatch(f"{(least - found[0]) * 1e3:.0f} ms too "
                                   f"soon: {what}")
                if window and found[0] > begin + limit:
                    raise Mismatch(f"too late: {what}")
                return found
            self._no_fault()
            if self.driver.ended:
                raise Mismatch(f"the driver has ended, instead of {what}")
            rest = begin + limit - time.monotonic()
            if rest <= 0:
                raise Mismatch(f"no {what}")
            self.broker.turn(rest)

    def _connection(self, number=None):
        if number:
            return self.broker.connections[int(number) - 1]
        if not self._current:
            raise Mismatch("the scenario has accepted no connection")
        return self._current

    # --- steps

    def _driver_line(self, words, window):
        queues = [self.driver.lines[fill(one.split()[0], self._variables)]
                  for one in words.split(" || ")]
        found = self._until(
            lambda: next((queue.popleft() for queue in queues if queue), None),
            f"D< {words}", window)
        if not result_matches(words, found[1], self._variables):
            raise Mismatch(f"D< {words}: it is {found[1]}")

    def _client_line(self, words, window, connection):
        def find():
            for place in (connection.requests, connection.answered):
                for request in place:
                    if request_matches(words, request, self._variables):
                        place.remove(request)
                        return (request.at,)
            return None
        self._until(find, f"C {words}", window)

    def _accept(self, words, window):
        names = [words or "A"]
        if words in ("*", "other"):
            names = [name for name in self.broker.listeners if words == "*"
                     or name != self._current.listener]

        def find():
            for name in names:
                if self.broker.accepted[name]:
                    return self.broker.accepted[name].pop(0)
            return None
        found = self._until(find, f"connection at {words or 'A'}", window)
        self._current = found[1]
        self._variables[f"s{found[1].number}"] = found[1].session

    def _step_open(self, words):
        self._step_to_driver(f"connect $A {words}")
        self._accept("A", None)
        self._driver_line("connected", None)

    def _step_to_driver(self, words):
        for name in re.findall(r"\$(?:port)?([A-Z])\b", words):
            address = self.broker.listener(name).address
            self._variables[name] = address
            self._variables[f"port{name}"] = address.rpartition(":")[2]
        self.driver.say(fill(words, self._variables).strip())

    def _step_send(self, words, connection):
        tag, *rest = words.split(" ")
        tag = self._variables.get(tag, tag)
        line = fill(" ".join([tag, *(SHORT.get(word, word)
                                     for word in rest)]), self._variables)
        connection.say(line)
        if connection.ended:
            raise Mismatch(f"the client has ended the connection: S {words}")

    def _step_end(self, window):
        connection = self._connection()
        self._until(lambda: (connection.ended,) if connection.ended else None,
                    "end of the connection", window)

    def _step_close(self, how):
        connection = self._connection()
        if how != "fin":
            self.broker.forget(connection)
        connection.close(how)

    def _step_join(self, words):
        connection = self._connection()
        data, connection.joined = connection.joined, \
            b"" if words == "on" else None
        if data:
            connection.send(data)

    def _step_raw(self, words):
        text = codecs.escape_decode(fill(words, self._variables).encode())[0]
        self._say(f"S raw {text!r}")
        self._connection().send(text)

    def _step_flood(self, words):
        """Goes on until the client ends the connection."""
        count, text = words.split(" ", 1)
        connection = self._connection()
        piece = codecs.escape_decode(text.encode())[0]
        piece *= CHUNK // len(piece)
        for _ in range(size(count) // len(piece)):
            connection.send(piece)
            if connection.ended:
                break

    def _step_auto(self, words):
        settings = self.broker.settings
        for word in words.replace(" off", "=off").split():
            key, _, value = word.partition("=")
            if key == "off":
                settings.verbs.clear()
            elif value == "off":
                settings.verbs.discard(key)
            elif key == "ttl":
                settings.ttl = value
            else:
                settings.verbs.add(key)

    def _step_answer(self, words):
        verb, _, text = words.partition(" ")
        self.broker.settings.verbs.add(verb)
        self.broker.settings.answers[verb] = text

    def _step_pause(self, words):
        end = time.monotonic() + milliseconds(words) / 1e3
        while time.monotonic() < end:
            self.broker.turn(end - time.monotonic())

    def _step_greeting(self, words):
        self.broker.settings.greeting = None if words == "off" else \
            " " + words

    def _step_listen(self, words):
        self.broker.set_listener(*words.split())

    def _step_slammed(self, words):
        name, least, most = words.split()
        count = self.broker.listeners[name].slammed
        if not int(least) <= count <= int(most):
            raise Mismatch(f"{count} connections at {name}")

    def _step_any(self, _words):
        """From now on any line of driver and client is right."""
        self._lenient = True

    def _step_fuzz(self, words):
        """Random lines, of words that count; of an even seed none is
        malformed."""
        chance = random.Random(int(words))
        sound = int(words) % 2 == 0
        choices = [word for word in FUZZ_WORDS
                   if not sound or "%" not in word and word != "="]
        self._lenient = True
        connection = self._connection()
        try:
            for _ in range(FUZZ_LINES):
                line = " ".join(chance.choices(
                    choices, k=chance.randint(1, 6))) + "\n"
                if not sound and chance.random() < 0.1:
                    line = line[:chance.randrange(len(line))] + \
                        chr(chance.randrange(256)) + line
                connection.send(fill(line, self._variables).encode("latin-1"))
        except Mismatch as error:
            self._say(str(error))

    def _step_tls(self, words):
        name, *how = words.split()
        self.broker.listener(name).tls = server_tls(
            self._folder, how[0], "client" in how[1:])

    def _step_memory(self, words):
        if words == "mark":
            self._memory = self.driver.memory(False)
            return
        grown = self.driver.memory(True) - self._memory
        self._say(f"memory: {grown >> 10} KiB")
        if grown > size(words):
            raise Mismatch(f"the driver has grown by {grown >> 20} MiB")

    def _step_stall(self):
        self.broker.forget(self._connection())

    def step(self, line):
        """Carries out one step."""
        window = WINDOW.search(line)
        if window:
            line = line[:window.start()]
        word, _, words = line.partition(" ")
        words = words.strip()
        word, _, number = word.partition("#")
        if word == "D>":
            self._step_to_driver(words)
        elif word == "D<":
            self._driver_line(words, window)
        elif word == "C":
            self._client_line(words, window, self._connection(number))
        elif word == "S":
            self._step_send(words, self._connection(number))
        elif word == "accept":
            self._accept(words, window)
        elif word == "end":
            self._step_end(window)
        elif word in ("close", "rst", "fin"):
            self._step_close(word)
        elif word == "bytes":
            self._connection().bytes = words == "on"
        elif word == "stall":
            self._step_stall()
        elif word == "mark":
            self._marks[words] = time.monotonic()
        else:
            getattr(self, f"_step_{word}")(words)

    # --- the whole

    def play(self):
        lines = [line for line in self.text.splitlines()
                 if line.strip() and not line.startswith("#")]
        while lines:
            line = lines.pop(0)
            if not line.startswith("each "):
                self._say(f"-- {line}")
                self.step(line)
                continue
            body = lines[:lines.index("done")]
            del lines[:len(body) + 1]
            self._each(line, body)
        self._leftovers()
        self._finish()

    def _each(self, line, body):
        """The steps up to `done`, for each value."""
        _, name, *values = line.split()
        match = re.fullmatch(r"(\d+)\.\.(\d+)", values[0])
        if match:
            values = map(str, range(int(match[1]), int(match[2]) + 1))
        for value in values:
            self._variables[name] = value
            for each in body:
                self.step(re.sub(rf"\${name}\b", value, each))

    def _no_fault(self):
        fault = self.broker.fault()
        if fault:
            raise Mismatch(f"a bad line of the client: {fault}")

    def _leftovers(self):
        """Lines that no step has taken; unless clients send these when they
        like, or on a connection for a session that is new."""
        self.broker.turn(0)
        self._no_fault()
        if self._lenient:
            return
        left = [f"C {request.line}" for each in self.broker.connections
                for request in each.requests if request.verb not in AUTO]
        left += [f"D< {line}" for queue in self.driver.lines.values()
                 for _, line in queue]
        left += [f"C {request.line}" for queue in
                 self.broker.accepted.values() for _, connection in queue
                 for request in connection.answered
                 if "resume" in request.keys]
        if left:
            raise Mismatch("lines that no step takes: " + "; ".join(left[:9]))

    def _finish(self):
        """The end of stdin ends the driver, whatever the broker does."""
        self._say("-- (the end of stdin)")
        self.broker.settings.final = self.driver.over = True
        self.driver.process.stdin.close()
        limit = time.monotonic() + EXIT_SECONDS
        while not self.driver.ended:
            if time.monotonic() > limit:
                raise Mismatch("the driver does not exit")
            self.broker.turn(limit - time.monotonic())
        self.broker.turn(0)  # what it said last
        self._no_fault()
        status = self.driver.process.wait(EXIT_SECONDS)
        if status != 0:
            raise Mismatch(f"the driver exits with status {status}")

    def end(self):
        self.broker.end()
        self.driver.end()
