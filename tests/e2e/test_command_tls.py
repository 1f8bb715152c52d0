"""The `holdfast` command by TLS: trust, certificates, and moved sessions."""

import os
import re
import socket
import subprocess
import time

import test_command_move
from fake_broker import CommandCase
from harness import Authority, Broker, Client, ports, shared_redis
from harness.processes import is_running
from tls_wire import authority, certificate


def trust(ca=None):
    return {"HOLDFAST_TLS_CA": ca or authority().cert}


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class TlsBroker(Broker):
    """Its address is that for TLS; the tests' own clients do without."""

    def __init__(self, overrides=None, cert=None):
        self._tls = ports.reserve()
        own = cert or certificate("broker", "127.0.0.1", "localhost", "::1")
        super().__init__(shared_redis(), {
            "listen.tls": [f"127.0.0.1:{self._tls}"],
            "listen.tls_cert": own.cert, "listen.tls_key": own.key,
            **(overrides or {})})

    @property
    def address(self):
        return f"127.0.0.1:{self._tls}"

    @property
    def plain(self):
        return f"127.0.0.1:{self.port}"

    def client(self, **options):
        return Client(self.plain, **options)

    def close(self):
        super().close()
        self._tls.release()


class TlsCase(CommandCase):
    def holdfastd(self, overrides=None, **options):
        return self.closing(TlsBroker(overrides, **options)).start()

    def ask(self, broker, *words, **more):
        """Status and what it complained of."""
        result = self.command(broker, *words,
                              env=self.environment(broker, **more))
        return result.returncode, result.stderr.decode()

    def refused(self, why, broker, *words, code=125, **more):
        status, complaint = self.ask(broker, *(words or ("ping",)), **more)
        self.assertEqual(status, code, complaint)
        self.assertIn(why, complaint)

    def well(self, broker, *words, **more):
        self.assertEqual(self.ask(broker, *(words or ("ping",)), **more),
                         (0, ""))


class TrustTest(TlsCase):
    def test_options_and_environment(self):
        broker = self.holdfastd()
        ca = authority().cert
        self.well(broker, "--tls-ca", ca, "ping")
        self.well(broker, "ping", f"--tls-ca={ca}", "--tls")
        self.well(broker, HOLDFAST_TLS_CA=ca)
        self.well(broker, "run", "--tls-ca", ca, "job", "--", "true")
        self.well(broker, "lock", "job", "--tls-ca", ca)
        for words in (("show", "job"), ("locks",), ("sessions",), ("slow",)):
            self.well(broker, *words, HOLDFAST_TLS_CA=ca)
        # An option is more than the environment.
        self.well(broker, "--tls-ca", ca, "ping", HOLDFAST_TLS_CA="/none")
        for no in ("", "0"):
            status, _ = self.ask(broker.plain, "ping", HOLDFAST_TLS=no,
                                 HOLDFAST_TLS_CA="")
            self.assertEqual(status, 0)

    def test_the_system_trusts(self):
        broker = self.holdfastd()
        ca = authority().cert
        self.well(broker, "--tls", "ping", SSL_CERT_FILE=ca)
        self.well(broker, HOLDFAST_TLS="1", SSL_CERT_FILE=ca)
        self.refused("its certificate cannot be verified", broker,
                     HOLDFAST_TLS="1")

    def test_another_authority(self):
        broker = self.holdfastd()
        other = Authority("other").cert
        self.refused(f"no broker at {broker.address}: its certificate cannot "
                     "be verified", broker, **trust(other))
        self.refused("its certificate cannot be verified", broker,
                     HOLDFAST_TLS_VERIFY="ca", **trust(other))
        self.refused("its certificate cannot be verified", broker, "raw",
                     **trust(other))
        before = time.monotonic()
        self.refused("its certificate cannot be verified", broker, "run",
                     "--wait", "1s", "job", "--", "true", **trust(other))
        self.assertLess(time.monotonic() - before, 10)

    def test_names(self):
        broker = self.holdfastd(cert=certificate("elsewhere", "b.example"))
        self.refused('its certificate does not name "127.0.0.1"', broker,
                     **trust())
        self.well(broker, HOLDFAST_TLS_NAME="b.example", **trust())
        self.well(broker, "--tls-name", "b.example", "ping", **trust())
        self.refused('its certificate does not name "c.example"', broker,
                     HOLDFAST_TLS_NAME="c.example", **trust())
        self.well(broker, HOLDFAST_TLS_VERIFY="ca", **trust())
        self.well(broker, "ping", "--tls-verify", "ca", **trust())
        self.refused("does not name", broker, "--tls-verify", "full", "ping",
                     **trust())

    def test_one_of_several(self):
        """One whose certificate is not to be trusted is passed over."""
        good = self.holdfastd()
        bad = self.holdfastd(cert=certificate("elsewhere", "b.example"))
        for _ in range(6):
            self.well(f"{good.address},{bad.address}", **trust())
        good.stop()
        self.refused("does not name", f"{good.address},{bad.address}",
                     **trust())

    def test_localhost(self):
        """A name is looked up, and is what the certificate has to have."""
        broker = self.holdfastd()
        port = broker.address.rpartition(":")[2]
        self.well(f"localhost:{port}", **trust())

    def test_plain_text(self):
        broker = self.holdfastd()
        self.refused("it does not speak TLS", broker.plain, **trust())
        self.refused("it does not speak TLS", broker.plain, "raw", **trust())
        # And the other way round.
        hint = "in time; if it is a TLS port, give --tls"
        before = time.monotonic()
        self.refused(hint, broker)
        self.assertLess(time.monotonic() - before, 11)

    def test_usage(self):
        ca = authority().cert
        for words, why, code in (
                (("-a", "/run/s", "--tls"), "TLS is not supported", 64),
                (("-a", "h,/run/s", "--tls-ca", ca), "TLS is not", 64),
                (("--tls-cert", ca), "--tls-key: one without the other", 64),
                (("--tls-key", ca), "--tls-key: one without the other", 64),
                (("--tls-verify", "none"), "'none' is not full or ca", 64),
                (("--tls-ca", "/none"), "/none: No such file", 125),
                (("--tls-ca", "Makefile"), "Makefile: ", 125),
                (("--tls-cert", ca, "--tls-key", ca), "no private key", 125),
        ):
            for command in (("ping",), ("raw",), ("locks",), ("bench",)):
                self.refused(why, "127.0.0.1:1", *words, *command, code=code)
            self.refused(why, "127.0.0.1:1", *words, "run", "job", "--",
                         "true")
        self.assertEqual(self.ask("h:1", "--tls=1", "ping")[0], 64)
        self.assertEqual(self.ask("h:1", "ping", "--tls-ca")[0], 64)

    def test_each_command(self):
        """No command sends anything if TLS fails, nor dies by a signal."""
        names = set(re.findall(r"^  ([a-z]+)\b", self.command(
            "", "help").stdout.decode(), re.MULTILINE)) - {"help", "secret"}
        self.assertLessEqual({"bench", "drain", "top"}, names)
        words = {"run": ("--wait", "1s", "k", "--", "true"), "lock": ("k",),
                 "show": ("k",), "watch": ("k",), "break": ("k",),
                 "kill": ("01234567",), "await": ("k",),
                 "unlock": ("--fence", "1", "k"),
                 "resize": ("--limit", "1", "k"),
                 "renew": ("--fence", "1", "--lease", "1s", "k")}
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            address = "127.0.0.1:%d" % server.getsockname()[1]
            for name in sorted(names):
                with self.subTest(command=name):
                    self.refused("/none: No such file", address, "--tls-ca",
                                 "/none", name, *words.get(name, ()))
            with self.assertRaises(BlockingIOError):
                server.accept()
        if any(listens(port) for port in (4653, 4655)):
            self.skipTest("a broker is there, which would be given orders")
        for name in sorted(names):
            with self.subTest(command=name):
                self.ends(125, "", name, *words.get(name, ()),
                          err=b"127.0.0.1:4653")

    def test_usual_port(self):
        for address in ("", "127.0.0.1"):
            result = self.command(address, "--tls", "ping")
            # Whether or not anybody is there.
            self.assertIn(b"127.0.0.1:4655" if not address else b"127.0.0.1:",
                          result.stdout + result.stderr)


class UserTest(TlsCase):
    """Certificates of clients."""

    def shown(self, cert):
        return {"HOLDFAST_TLS_CERT": cert.cert, "HOLDFAST_TLS_KEY": cert.key,
                **trust()}

    def test_required(self):
        broker = self.holdfastd({
            "listen.tls_client_ca": authority().cert,
            "listen.tls_client_cert": "required"})
        self.refused("certificate required", broker, **trust())
        self.well(broker, **self.shown(certificate("desk", "desk.example")))
        other = Authority("strangers").issue("desk", "desk.example")
        self.refused("it ends TLS", broker, **self.shown(other))

    def test_user(self):
        with open(self.path("users"), "w", encoding="ascii") as file:
            file.write("desk cert=desk.example lock=desk/*\n")
        broker = self.holdfastd({
            "listen.tls_client_ca": authority().cert,
            "auth.users_file": self.path("users")})
        desk = self.shown(certificate("desk", "desk.example"))
        self.well(broker, "run", "desk/1", "--", "true", **desk)
        status, complaint = self.ask(broker, "run", "job", "--", "true",
                                     **desk)
        self.assertEqual(status, 125)
        self.assertIn("DENIED", complaint)
        status, complaint = self.ask(broker, "run", "desk/1", "--", "true",
                                     **trust())
        self.assertEqual(status, 125)
        self.assertIn("AUTH", complaint)

    def test_secret(self):
        """It is said by TLS like all else."""
        made = self.command("127.0.0.1:1", "secret", "--new",
                            self.path("secret"), "shop").stdout.decode()
        with open(self.path("users"), "w", encoding="ascii") as file:
            file.write(made.strip() + " lock=*\n")
        broker = self.holdfastd({"auth.users_file": self.path("users")})
        self.well(broker, "-u", "shop", "-s", self.path("secret"), "run",
                  "job", "--", "true", **trust())


class RawTest(TlsCase):
    def raw(self, text, **more):
        broker = self.holdfastd(**more).wait_redis()
        return self.command(broker, "raw", input=text, timeout=60,
                            env=self.environment(broker, **trust()))

    def test_end_of_input(self):
        """Earlier requests are answered, as without TLS."""
        result = self.raw(b"LOCK a\nUNLOCK a\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.decode().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("OK count=0", lines[2])
        self.assertIn("BYE", lines[3])

    def test_bursts(self):
        """Many records both ways."""
        count = 3000
        result = self.raw(b"".join(b"%d SHOW %s\n" % (i, b"x" * 200)
                                   for i in range(count)))
        self.assertEqual(result.returncode, 0, result.stderr)
        tags = {line.split()[0] for line in result.stdout.decode().splitlines()
                if " OK " in line}
        self.assertEqual(len(tags), count)


class ByTls:
    """Over two brokers' ports for TLS, whoever else is the same."""

    def holdfastd(self):
        return self.closing(TlsBroker({"lease.default": self.lease})).start()

    def environment(self, broker, **more):
        return super().environment(broker, **{**trust(), **more})


class RunMovesByTlsTest(ByTls, test_command_move.RunMovesTest):
    test_drain_is_ordered = None
    test_rolling_restart = None


class KilledByTlsTest(ByTls, test_command_move.KilledTest):
    test_nobody_reaps_and_proc_has_other_numbers = None

    def test_at_once(self):
        """The guard of a session, kept or not, needs none of the files."""
        own = certificate("desk", "desk.example")
        for keep in ("0", "1h"):
            files = {name: self.path(f"{name}-{keep}") for name in
                     ("ca", "cert", "key")}
            for name, path in zip(files, (authority().cert, own.cert,
                                          own.key)):
                with open(path, "rb") as one, open(files[name], "wb") as two:
                    two.write(one.read())
            process = self.start(
                self.one, "--tls-ca", "ca-" + keep, "--tls-cert",
                "cert-" + keep, "--tls-key", "key-" + keep, "run", "--keep",
                keep, "job", "--", "sh", "-c",
                f"echo $$ >>{self.path('log' + keep)}; sleep 100",
                cwd=self.folder)
            group = int(self.wait_lines("log" + keep)[0])
            self.kill_at_end(-group)
            for path in files.values():
                os.unlink(path)
            rival = self.client(self.two)
            waiting = rival.submit("LOCK job")
            self.wait_position(rival, "job", 1)
            before = time.monotonic()
            self.kill(process)
            rival.granted(waiting)
            self.assertLess(time.monotonic() - before, 2)
            self.wait_until(lambda: not is_running(group), 2,
                            "the end of the program")
            rival.ok("UNLOCK job")


class KilledWaiterByTlsTest(ByTls, test_command_move.KilledWaiterTest):
    test_semaphore = None


class WatchByTlsTest(ByTls, test_command_move.MoveCase):
    lease = "3s"

    def test_goes_on_at_the_other_broker(self):
        process = self.start(self.both, "watch", "job", stdout=subprocess.PIPE)
        self.assertIn(b"free", process.stdout.readline())
        first = self.served_watch()
        first.kill()
        self.client(self.other(first)).ok("LOCK job")
        self.assertIn(b"held", process.stdout.readline())

    def served_watch(self):
        def find():
            for broker in (self.one, self.two):
                if broker.metric("tls_connections") > 0:
                    return broker
            return None
        return self.wait_until(find, what="a broker that serves it")
