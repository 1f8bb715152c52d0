"""A broker made of threads, for what a real one does not do on request.

It grants everything; it can also stay silent, refuse, lose locks, say any line
and cut connections. CommandCase runs the `holdfast` command ($HOLDFAST, or
build/holdfast).
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from harness import Closing
from harness.broker import TREE

HOLDFAST = os.environ.get("HOLDFAST") or os.path.join(
    TREE, "build", "holdfast")
GREETING = ("* HELLO proto=1 server=holdfastd/0.0.0 session=0123456789abcdef"
            " max_line=4096 lease_ms=30000")


class FakeBroker:
    """Listens on a free port of 127.0.0.1, or on `path`.

    answers   {verb: text without the tag, or a function of the request's words
              that gives one; None: no answer}. Several lines are split at LF.
    lines     what was received: (time.monotonic(), text)
    """

    def __init__(self, path=None, port=0, greeting=GREETING, ttl_ms=9000,
                 **answers):
        self.greeting = greeting
        self.ttl_ms = ttl_ms
        self.silent = False
        self.lines = []
        self.connections = []
        self.ended = 0  # connections that the client ended
        self.answers = {
            "HELLO": "OK session=x",
            "LOCK": lambda _: f"OK fence=42 ttl_ms={self.ttl_ms} count=1",
            "UNLOCK": "OK count=0",
            "PING": lambda _: f"OK ttl_ms={self.ttl_ms}",
            **answers,
        }
        if path is None:
            self.server = socket.socket()
            self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.server.bind(("127.0.0.1", port))
            self.address = "127.0.0.1:%d" % self.server.getsockname()[1]
        else:
            self.server = socket.socket(socket.AF_UNIX)
            self.server.bind(path)
            self.address = path
        self.server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,),
                             daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, ValueError):
            if self.greeting:
                connection.sendall(self.greeting.encode() + b"\n")
                if self.greeting.startswith("* BYE"):
                    return
            with connection.makefile("rb") as file:
                for line in file:
                    self._take(connection, line.decode().rstrip("\n"))
            if connection in self.connections:
                self.ended += 1
                self.connections.remove(connection)
                connection.sendall(b"* BYE eof\n")

    def _take(self, connection, line):
        self.lines.append((time.monotonic(), line))
        words = line.split(" ")
        tag = words.pop(0) if line[:1].isdigit() else "-"
        answer = self.answers.get(words[0].upper(), "ERR UNKNOWN retry=0")
        if callable(answer):
            answer = answer(words)
        if answer is None or self.silent:
            return
        for part in answer.split("\n"):
            connection.sendall(f"{tag} {part}\n".encode())

    def answer(self, verb, text):
        """Answers the newest request of this verb."""
        tag, = [line.split(" ")[0] for _, line in list(self.lines)
                if line.split(" ")[1:2] == [verb]][-1:]
        self.connections[-1].sendall(f"{tag} {text}\n".encode())

    def say(self, text):
        """An event, to every connection."""
        for connection in list(self.connections):
            connection.sendall(text.encode() + b"\n")

    def cut(self):
        """Ends all connections, as a broker that dies."""
        for connection in list(self.connections):
            with contextlib.suppress(ValueError):  # its thread was faster
                self.connections.remove(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def received(self, verb):
        """The requests of this verb, without their tags."""
        texts = (text.partition(" ")[2] if text[:1].isdigit() else text
                 for _, text in list(self.lines))
        return [text for text in texts if text.split(" ")[0] == verb]

    def close(self):
        # accept() sleeps on in its thread unless it is woken.
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.cut()


class Peer:
    """Is no broker: gives its one connection to `talk`, in a thread."""

    def __init__(self, talk, path=None, host="127.0.0.1", port=0):
        if path is None:
            self.server = socket.create_server((host, port))
            self.address = "%s:%d" % self.server.getsockname()
        else:
            self.server = socket.socket(socket.AF_UNIX)
            self.server.bind(path)
            self.server.listen()
            self.address = path
        self.talk = talk
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            connection, _ = self.server.accept()
            with connection:
                self.talk(connection)

    def close(self):
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


class Ends:
    """Beside a TestCase that has command(), which runs it to the end."""

    def ends(self, status, broker, *arguments, out=None, err=b"",
             complaint=None, **options):
        """command() that must end so. `out` is all of its output, `complaint`
        all of its errors, `err` a part of them."""
        result = self.command(broker, *arguments, **options)
        self.assertEqual(result.returncode, status, result)
        self.assertIn(err, result.stderr)
        if out is not None:
            self.assertEqual(result.stdout, out)
        if complaint is not None:
            self.assertEqual(result.stderr, complaint)
        return result


@unittest.skipUnless(os.access(HOLDFAST, os.X_OK), f"{HOLDFAST} is not built")
class CommandCase(Ends, Closing, unittest.TestCase):
    """Runs the command against a broker of the test's own."""

    def setUp(self):
        # A script's shell has them ignored in what it puts into the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        self.new_folder()

    def new_folder(self):
        folder = tempfile.TemporaryDirectory(prefix="holdfast-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def broker(self, **options):
        return self.closing(FakeBroker(**options))

    def peer(self, talk, **options):
        return self.closing(Peer(talk, **options))

    def free_address(self):
        """An address without a listener."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return "127.0.0.1:%d" % probe.getsockname()[1]

    def path(self, name):
        return os.path.join(self.folder, name)

    def environment(self, broker, **more):
        address = broker if isinstance(broker, str) else broker.address
        return {**os.environ, "HOLDFAST_ADDR": address, **more}

    def command(self, broker, *arguments, **options):
        """Runs to the end; a CompletedProcess with bytes."""
        options.setdefault("timeout", 30)
        options.setdefault("env", self.environment(broker))
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run([HOLDFAST, *arguments], capture_output=True,
                              check=False, **options)

    def start(self, broker, *arguments, **options):
        """Starts it in a session of its own; killed with the test."""
        options.setdefault("env", self.environment(broker))
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([HOLDFAST, *arguments],
                                   start_new_session=True, **options)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

        self.addCleanup(end)
        return process

    def kill_at_end(self, pid):
        def end():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        self.addCleanup(end)

    def read(self, name):
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def wait_lines(self, name, count=1):
        """The lines of a file of the test, once there are so many."""
        self.wait_until(lambda: self.read(name).count("\n") >= count,
                        what=f"{count} lines in {name}")
        return self.read(name).splitlines()
