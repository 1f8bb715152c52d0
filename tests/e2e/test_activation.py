"""Sockets passed on as systemd does; several addresses, IPv6 too."""

import os
import socket
import sys
import unittest
import urllib.request

from harness import Broker, Client, HarnessCase, broker_path
from test_reload import tuned

NO_REDIS = ("127.0.0.1:1",)
MPTCP = 262  # of linux/in.h

# A program that has the descriptors of PASS_FDS from 3 on, and is the daemon.
PASS_ON = f"""#!{sys.executable}
import fcntl, os, sys
wanted = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 100)
          for word in os.environ.pop("PASS_FDS").split()]
for number, fd in enumerate(wanted):
    os.dup2(fd, 3 + number)
os.closerange(3 + len(wanted), 1000)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execv({broker_path()!r}, ["holdfastd", *sys.argv[1:]])
"""


def has_v6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def address_of(end):
    name = end.getsockname()
    if isinstance(name, str):
        return name
    return f"[{name[0]}]:{name[1]}" if ":" in name[0] else \
        f"{name[0]}:{name[1]}"


def get(address, path="/healthz"):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as file:
        return file.read()


class ActivationCase(HarnessCase):
    def stream(self, address=("127.0.0.1", 0), family=socket.AF_INET,
               kind=socket.SOCK_STREAM, listen=True, protocol=0):
        end = self.closing(socket.socket(family, kind, protocol))
        end.bind(address)
        if listen:
            end.listen(16)
        return end

    def passed(self, *ends, names=None, redis=NO_REDIS, overrides=None, **env):
        """A daemon, not started yet, to which these are passed."""
        program = os.path.join(self.folder(), "program")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PASS_ON)
        os.chmod(program, 0o700)
        env = {"PASS_FDS": " ".join(str(end.fileno()) for end in ends),
               "LISTEN_FDS": str(len(ends)), **env}
        if names is not None:
            env["LISTEN_FDNAMES"] = names
        broker = Broker(redis, overrides, program=program, env=env,
                        pass_fds=[end.fileno() for end in ends])
        self.addCleanup(broker.close)
        return broker


class PassedTest(ActivationCase):
    def test_in_place_of_the_configuration(self):
        tcp, path = self.stream(), os.path.join(self.folder(), "s")
        unix = self.stream(path, socket.AF_UNIX)
        redis = self.redis()
        broker = self.passed(tcp, unix, redis=redis,
                             overrides={"session.stop_grace": "0s"})
        before = self.client(address_of(tcp), greet=False)  # nobody is there
        broker.spawn()
        before.expect("HELLO")
        before.ok("LOCK a wait=10s")
        self.client(path).err("LOCK a wait=0", "BUSY")
        with self.assertRaises(OSError):
            Client(broker.address).close()
        self.assertEqual(get(broker.admin_address), b"ok\n")
        self.assertEqual(broker.stop(), 0)
        self.assertTrue(os.path.exists(path))
        # Who comes meanwhile waits for the next one.
        between = self.client(path, greet=False)
        broker.spawn()
        between.expect("HELLO")

    def test_what_is_found_out_of_silence(self):
        """As of sockets of its own: clients are told to count on that."""
        tcp = self.stream()
        broker = self.passed(tcp, overrides={
            "session.keepalive.idle": "7s", "session.tcp_user_timeout": "3s"})
        early = self.client(address_of(tcp), greet=False)
        broker.spawn()
        early.expect("HELLO")
        for client in (early, self.client(address_of(tcp))):
            self.assertEqual(tuned(broker, client), (7, 2, 3, 3000))

    def test_http(self):
        http = [self.stream(), self.stream(
            os.path.join(self.folder(), "h"), socket.AF_UNIX)]
        client = self.stream()
        for ends, names in ((http, "http:http"),
                            ([*http, client], "http:http:holdfastd.socket"),
                            ([client, *http], "x:http:http")):
            broker = self.passed(*ends, names=names)
            broker.spawn()
            broker.wait_log("for=clients")
            self.assertEqual(get(address_of(http[0])), b"ok\n")
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(address_of(http[1]))
                end.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                self.assertIn(b"200 OK", end.recv(1000))
            with self.assertRaises(OSError):
                get(broker.admin_address)
            self.client(address_of(client) if client in ends
                        else broker.address)
            broker.stop()

    def test_http_where_there_is_none_configured(self):
        http = self.stream()
        broker = self.passed(http, names="http",
                             overrides={"admin.http": "none"})
        broker.start()
        self.assertEqual(get(address_of(http)), b"ok\n")

    def test_nothing_of_it_is_inherited(self):
        tcp = self.stream()
        broker = self.passed(tcp, names="x")
        broker.spawn()
        self.client(address_of(tcp))
        with open(f"/proc/{broker.pid}/fdinfo/3", encoding="ascii") as file:
            flags = next(line for line in file if line.startswith("flags:"))
        self.assertTrue(int(flags.split()[1], 8) & os.O_CLOEXEC)

    def test_not_for_us(self):
        """Of a process that was there before: the configuration counts."""
        tcp = self.stream()
        for env in ({"LISTEN_PID": "1"}, {"LISTEN_PID": "x"},
                    {"LISTEN_FDS": "0"}):
            broker = self.passed(tcp, **env)
            broker.start()
            broker.stop()

    def refused(self, *ends, why, names=None, **env):
        status, log = self.passed(*ends, names=names, **env).run_to_exit()
        self.assertEqual(status, 71, log)
        self.assertIn("event=cannot_start", log)
        self.assertIn(why, log)

    def test_unfit(self):
        good = self.stream()
        folder = self.folder()
        with open(os.path.join(folder, "file"), "wb") as file:
            self.refused(file, why="passed socket 3, unnamed: "
                                   "Socket operation on non-socket")
        for end, why in (
                (self.stream(kind=socket.SOCK_DGRAM, listen=False),
                 "not a stream socket"),
                (self.stream(os.path.join(folder, "s"), socket.AF_UNIX,
                             socket.SOCK_SEQPACKET), "not a stream socket"),
                (self.stream(listen=False), "does not listen")):
            self.refused(good, end, names="one:two",
                         why=f"passed socket 4, two: {why}")
            self.refused(good, end, names="one:http",
                         why=f"passed socket 4, http: {why}")
        self.refused(*(self.stream() for _ in range(9)),
                     names=":".join(["http"] * 9), why="more than 8 sockets")

    def test_another_protocol(self):
        """A socket of another protocol than TCP."""
        try:
            end = self.stream(protocol=MPTCP)
        except OSError as error:
            self.skipTest(f"no MPTCP here: {error}")
        self.refused(end, why="neither TCP nor a Unix socket")

    def test_bad_variables(self):
        good = self.stream()
        for count in ("x", "-1", "65", "99999999999999999999", "", "1 "):
            self.refused(good, LISTEN_FDS=count, why="LISTEN_FDS: ")
        for names in ("a:b", ":", "n" * 256):
            self.refused(good, names=names, why="LISTEN_FDNAMES: ")
        self.refused(good, LISTEN_FDS="2", why="LISTEN_FDS: descriptor 4: ")


@unittest.skipUnless(has_v6(), "no IPv6 here")
class AddressTest(ActivationCase):
    def test_several_of_both_families(self):
        port, admin = self.port(), self.port()
        addresses = [f"127.0.0.1:{port}", f"[::1]:{port}"]
        path = os.path.join(self.folder(), "s")
        broker = self.closing(Broker(
            self.redis(), {"listen.tcp": addresses, "listen.unix": [path],
                           "admin.http": f"[::1]:{admin}"}))
        broker.spawn().wait_log("for=http")
        holder, *others = [self.client(one) for one in (*addresses, path)]
        holder.ok("LOCK a wait=10s")
        for other in others:
            other.err("LOCK a wait=0", "BUSY")
        self.assertEqual(get(f"[::1]:{admin}"), b"ok\n")
        self.assertIn(f"address=[::1]:{port}", broker.log())

    def test_any_free_port(self):
        """Of IPv6, told in the log."""
        broker = self.closing(Broker(NO_REDIS, {"listen.tcp": ["[::1]:0"],
                                                "admin.http": "[::1]:0"}))
        broker.spawn()
        broker.wait_log("for=http")
        told = dict(line.partition("event=listening for=")[2].split()
                    for line in broker.log().splitlines()
                    if "event=listening" in line)
        self.client(told["clients"].removeprefix("address="))
        self.assertEqual(get(told["http"].removeprefix("address=")), b"ok\n")

    def test_passed(self):
        tcp = self.stream(("::1", 0), socket.AF_INET6)
        broker = self.passed(tcp)
        broker.spawn()
        self.client(address_of(tcp))
