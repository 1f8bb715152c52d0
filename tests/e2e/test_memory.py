"""One allocation fails, each in turn, over a whole life of the programs.

Expected is a clean end with a documented status and a message, or service that
goes on: at worst one connection is closed. Never a crash, a hang or a leak.

A full sweep takes minutes, and more than an hour with TLS. The usual sample is
all of the first, then fewer and fewer. HOLDFAST_MEMORY_SWEEP=full does all,
=plain all without TLS, =17,18 these.
"""

import contextlib
import os
import socket
import ssl
import subprocess
import urllib.error

from fake_broker import CommandCase
from harness import Authority, Broker, HarnessCase, Tls, shared_redis
from harness.broker import SANITIZER_TEXTS
from harness.processes import temp_folder, wait_until
from tls_wire import authority, certificate, context

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "failing_memory.c")
SECONDS = 20.0     # nothing that is asked takes as long, whatever failed
DENSE = 24         # of the sample: as many at the beginning
GROWTH = 1.09      # and then steps that grow so
COARSE = 1.4       # or so, where there are far more
ENOUGH = 200000    # a program that never ends its allocations is at fault
EX_LOST = 123      # of the command
EX_NO_BROKER = 125
EX_NOT_RUN = 126
EX_SYSTEM = 71     # of the daemon
EX_CONFIG = 78
LIST = "ITEM kind=holder name=a fence=7 ttl_ms=1\nOK state=held"
SWEEP = os.environ.get("HOLDFAST_MEMORY_SWEEP", "")
_library = []


def library():
    """The library to be preloaded, built once a process."""
    if not _library:
        path = os.path.join(temp_folder(), "failing_memory.so")
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fPIC", "-shared",
                        "-D_GNU_SOURCE", "-o", path, SOURCE, "-ldl"],
                       check=True, timeout=120)
        _library.append(path)
    return _library[0]


def numbers(growth):
    """Which allocations are to fail; without an end."""
    if SWEEP not in ("", "full", "plain"):
        yield from (int(word) for word in SWEEP.split(","))
        return
    if SWEEP == "full" or (SWEEP == "plain" and growth < COARSE):
        growth = 1.0
    number = 1
    while number < ENOUGH:
        yield number
        number = max(number + 1, int(number * growth)) \
            if number >= DENSE else number + 1
    raise AssertionError(f"more than {ENOUGH} allocations")


class Sweep:
    """One after the other fails, until one number is not reached."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "failed")

    def environment(self, number):
        options = os.environ.get("ASAN_OPTIONS", "")
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
        return {"LD_PRELOAD": library(), "HOLDFAST_FAIL_AT": str(number),
                "HOLDFAST_FAIL_LOG": self.path,
                "ASAN_OPTIONS": options + ":verify_asan_link_order=0"}

    def failed(self):
        """Whether the allocation has been asked for, and refused."""
        try:
            with open(self.path, encoding="ascii") as file:
                return "failed" in file.read()
        except FileNotFoundError:
            return False


def sweep_all(case, what, one, growth=GROWTH):
    """Has one(sweep, number) tell what went wrong, until nothing fails."""
    sweep = Sweep(temp_folder())
    problems = []
    failed = 0
    for number in numbers(growth):
        wrong = one(sweep, number)
        if wrong:
            problems.append(f"allocation {number}: {wrong}")
        if not sweep.failed() or len(problems) > 5:
            break
        failed += 1
    print(f"{what}: {failed} allocations failed, one a run, up to {number}")
    case.assertEqual(problems, [], "\n".join(problems))
    case.assertGreater(failed, 0, "the library was not in use")


class Refused(Exception):
    """A connection ended, or a request was answered ERR."""


class Talk:
    """A client that takes an end for an answer, but not silence."""

    def __init__(self, address, tls=None):
        self.data = b""
        family = socket.AF_UNIX if "/" in address else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(SECONDS)
        if family == socket.AF_INET:
            host, _, port = address.rpartition(":")
            address = (host, int(port))
        try:
            self.socket.connect(address)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket,
                                              server_hostname="127.0.0.1")
            self.expect(b"* HELLO ")
        except (OSError, Refused) as error:
            self.socket.close()
            raise Refused from error

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, ssl.SSLError) as error:
            raise Refused from error

    def line(self):
        while b"\n" not in self.data:
            try:
                data = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError) as error:
                raise Refused from error
            except TimeoutError as error:
                raise AssertionError("neither an answer nor an end") from error
            if not data:
                raise Refused
            self.data += data
        line, _, self.data = self.data.partition(b"\n")
        return line

    def expect(self, beginning):
        line = self.line()
        while line.startswith(b"- ITEM "):
            line = self.line()
        if not line.startswith(beginning):
            raise Refused(line)

    def ask(self, data, beginning=b"- OK"):
        self.send(data)
        self.expect(beginning)


class DaemonTest(HarnessCase):
    test_timeout = 3600.0 if SWEEP else 180.0
    secure = None  # an address for TLS, and how; in place of the plain one

    def talk(self, stack, address):
        talk = Talk(*(self.secure if self.secure and "/" not in address
                      else (address,)))
        stack.callback(talk.socket.close)
        return talk

    def hand_over(self, stack, broker, name):
        first = self.talk(stack, broker.address)
        second = self.talk(stack, broker.address)
        first.ask(b"LOCK %s note=a%%20note\n" % name)
        second.ask(b"LOCK %s progress=1\n" % name, b"- QUEUED")
        first.ask(b"SHOW %s\n" % name)
        first.ask(b"UNLOCK %s\n" % name)
        second.expect(b"- OK fence=")
        second.ask(b"UNLOCK %s\n" % name)

    def odd_lines(self, stack, broker):
        """A line in two parts, and more output than the socket takes."""
        talk = self.talk(stack, broker.unix_path)
        talk.ask(b"PING\nPIN")
        talk.ask(b"G\n")
        talk.send(b"STATS\n" * 80)
        for _ in range(80):
            talk.expect(b"- OK")

    def session(self, broker, name):
        with contextlib.ExitStack() as stack:
            self.hand_over(stack, broker, name)
            self.odd_lines(stack, broker)
        try:
            broker.http("/metrics", timeout=SECONDS)
            broker.http("/", timeout=SECONDS)
        except TimeoutError as error:
            raise AssertionError("HTTP is silent") from error
        except (urllib.error.URLError, ConnectionError, OSError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise AssertionError("HTTP is silent") from error
            raise Refused from error

    def serves(self, broker, name):
        """Twice may go wrong what waits for a new connection to Redis."""
        for attempt in range(3):
            try:
                self.session(broker, name + b"-%d" % attempt)
                return
            except Refused as error:
                last = error
        self.fail(f"nobody is served any more: {last}")

    def starts(self, broker):
        """False where it ended, as it may, instead."""
        wait_until(lambda: not broker.running or self.greets(broker), SECONDS,
                   "it greets or ends")
        if broker.running:
            return True
        self.assertIn(broker.process.wait(), (EX_SYSTEM, EX_CONFIG))
        # libc's look-up of an address says other things then, and so does
        # OpenSSL, of a certificate that it cannot take apart.
        self.assertRegex(broker.log(), "memory|cannot listen|decode error")
        return False

    def greets(self, broker):
        try:
            Talk(broker.unix_path).socket.close()
            return True
        except Refused:
            return False

    def live(self, broker, sweep, number):
        if not self.starts(broker):
            return
        with contextlib.suppress(Refused):
            self.session(broker, b"a%d" % number)
        if sweep.failed():
            self.serves(broker, b"b%d" % number)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Refused):
                self.talk(stack, broker.address).ask(b"LOCK c%d\n" % number)
            broker.terminate()
            self.assertEqual(broker.wait_exit(SECONDS), 0)

    def one(self, redis, sweep, number, **overrides):
        """The failure, or None."""
        broker = Broker(redis, {"session.stop_grace": "100ms", **overrides},
                        env=sweep.environment(number))
        broker.config["listen"]["unix"] = [broker.unix_path]
        wrong = None
        try:
            self.live(broker.spawn(), sweep, number)
        except AssertionError as error:
            wrong = f"{error}\n{broker.log()}"
        broker.process.asked_to_end = True
        broker.process.kill()
        if any(text in broker.log() for text in SANITIZER_TEXTS):
            wrong = broker.log()
        with contextlib.suppress(AssertionError):
            broker.close()
        return wrong

    def test_life_of_the_daemon(self):
        redis = shared_redis()
        sweep_all(self, "holdfastd",
                  lambda sweep, number: self.one(redis, sweep, number))

    def test_life_with_tls(self):
        ca = Authority()
        node = ca.issue("node", "127.0.0.1")
        redis = self.redis(tls=Tls(ca, node))
        keys = {"redis.tls.ca": ca.cert, "redis.tls.cert": node.cert,
                "redis.tls.key": node.key}
        sweep_all(self, "holdfastd with TLS", lambda sweep,
                  number: self.one(redis, sweep, number, **keys), COARSE)

    def test_life_with_tls_for_clients(self):
        """Clients with certificates, too."""
        own = certificate("broker", "127.0.0.1", "localhost", "::1")
        port = self.port()
        self.secure = (f"127.0.0.1:{port}",
                       context(certificate("shop", "shop.example")))
        keys = {"listen.tls": [self.secure[0]], "listen.tls_cert": own.cert,
                "listen.tls_key": own.key,
                "listen.tls_client_ca": authority().cert}
        redis = shared_redis()
        sweep_all(self, "holdfastd with TLS for clients", lambda sweep,
                  number: self.one(redis, sweep, number, **keys), COARSE)


class CommandTest(CommandCase):
    """The command, before a broker that works."""

    test_timeout = DaemonTest.test_timeout

    def sweep(self, statuses, *arguments, **options):
        broker = self.broker(SHOW=LIST, LOCKS=LIST)

        def one(sweep, number):
            environment = {**self.environment(broker),
                           **sweep.environment(number)}
            done = self.command(broker, *arguments, env=environment,
                                timeout=SECONDS, **options)
            said = done.stderr.decode(errors="replace")
            if any(text in said for text in SANITIZER_TEXTS):
                return said
            if done.returncode not in statuses:
                return f"status {done.returncode}: {said}"
            if done.returncode == EX_NO_BROKER and "memory" not in said:
                return f"status {done.returncode} without a reason: {said}"
            return None

        sweep_all(self, " ".join(("holdfast", *arguments)), one)

    def test_run(self):
        self.sweep((7, EX_LOST, EX_NO_BROKER, EX_NOT_RUN),
                   "run", "job", "--", "sh", "-c", "exit 7")

    def test_lock(self):
        self.sweep((0, EX_LOST, EX_NO_BROKER), "lock", "job", input=b"")

    def test_lists(self):
        for output in ("json", "tabs", "columns"):
            self.sweep((0, EX_NO_BROKER), "show", "-o", output, "job")
            self.sweep((0, EX_NO_BROKER), "locks", "-o", output)

    def test_ping_and_raw(self):
        self.sweep((0, EX_NO_BROKER), "ping")
        self.sweep((0, EX_NO_BROKER), "raw", input=b"PING\n")
