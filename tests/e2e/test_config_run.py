"""The daemon's command line, its configuration file, its addresses."""

import contextlib
import os
import re
import socket
import stat
import subprocess
from pathlib import Path

from harness import Broker, HarnessCase, shared_redis
from harness.broker import broker_path
from shared import TREE, read, with_hosts
from test_activation import has_v6


def run(*arguments, **options):
    """(status, stdout, stderr) of a daemon that ends by itself."""
    done = subprocess.run([broker_path(), *arguments], capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=20,
                          **options)
    return done.returncode, done.stdout, done.stderr


class CommandLineTest(HarnessCase):
    def file(self, text):
        path = os.path.join(self.folder(), "holdfast.yaml")
        Path(path).write_text(text, encoding="utf-8")
        return path

    def test_version_and_help(self):
        for flag in ("-V", "--version"):
            status, out, err = run(flag)
            self.assertRegex(out, r"^holdfastd/\d+\.\d+\.\d+\n$")
            self.assertEqual((status, err), (0, ""))
        for flag in ("-h", "--help"):
            status, out, err = run(flag)
            self.assertTrue(out.startswith("Usage: holdfastd "))
            self.assertEqual((status, err), (0, ""))

    def test_what_cannot_be_printed(self):
        path = self.file("")
        for arguments in (["-V"], ["-h"], ["--print-config"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([broker_path(), *arguments, "-c", path],
                                      stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False, timeout=30)
            self.assertEqual((done.returncode, done.stderr),
                             (71, "holdfastd: cannot write to stdout\n"),
                             arguments)

    def test_usage(self):
        path = self.file("")
        for arguments in (["-x"], ["--nonsense"], ["-c"], ["word"],
                          ["-c", path, "word"], ["-c", path, "-c", path],
                          ["-t", "--print-config"], ["-c", ""],
                          ["--version=1"], ["-tx", "-c", path]):
            status, out, err = run(*arguments)
            self.assertEqual((status, out), (64, ""), arguments)
            self.assertRegex(err, r"^holdfastd: .+\n$", arguments)

    def test_check(self):
        path = self.file('redis:\n  nodes: ["127.0.0.1:1"]\n')
        self.assertEqual(run("-t", "-c", path), (0, f"{path}: ok\n", ""))
        self.assertEqual(run("--check-config", f"--config={path}")[0], 0)
        # It has listened nowhere and asked nobody: no Redis is there.
        shipped = os.path.join(TREE, "conf", "holdfast.yaml")
        self.assertEqual(run("-t", "-c", shipped)[0], 0)

    def test_bad_configuration(self):
        cases = (
            ("nonsense: 1\n", 1, 1), ("lease:\n  default: 1d\n", 2, 12),
            ("lease:\n  default: 30s\n  default: 30s\n", 3, 3),
            ("lease: 5\n", 1, 8), ("redis:\n  topology: other\n", 2, 13),
            ("redis:\n  topology: quorum\n  nodes: [a:1, b:1]\n", 3, 3),
            ("redis:\n  topology: quorum\n  nodes: [a:1, b:1, c:1]\n"
             "  safety: strict\n", 4, 3),
            ("redis:\n  safety: strictly\n", 2, 11),
            ("lease:\n  default: 999ms\n", 2, 12),
            ("listen:\n  tcp: [127.0.0.1]\n", 2, 9),
            ("limits:\n  line: 511\n", 2, 9),
            ("a: [\n", None, None), ("\tx: 1\n", None, None),
            ("lease:\n  default: 30s\n--- \nlease: 1\n", None, None),
            ("[]\n", 1, 1), ("redis: {nodes: []}\n", 1, None))
        for text, line, column in cases:
            path = self.file(text)
            for more in ([], ["-t"], ["--print-config"]):
                status, out, err = run("-c", path, *more)
                self.assertEqual((status, out), (78, ""), text)
                match = re.match(rf"{re.escape(path)}:(\d+):(\d+): .+\n", err)
                self.assertIsNotNone(match, (text, err))
                if line is not None:
                    self.assertEqual(int(match.group(1)), line, (text, err))
                if column is not None:
                    self.assertEqual(int(match.group(2)), column, (text, err))

    def test_all_mistakes(self):
        path = self.file("nonsense: 1\nlease:\n  default: 5\n"
                         "redis: {topology: single}\n")
        for more in ([], ["-t"]):
            status, out, err = run("-c", path, *more)
            self.assertEqual((status, out), (78, ""))
            self.assertEqual([re.match(r".*?:(\d+:\d+): .", line).group(1)
                              for line in err.splitlines()],
                             ["1:1", "3:12", "4:9"])

    def test_no_file(self):
        path = os.path.join(self.folder(), "none.yaml")
        status, out, err = run("-c", path)
        self.assertEqual((status, out), (78, ""))
        self.assertIn(path, err)
        status, _, err = run("-c", self.folder())
        self.assertEqual(status, 78, err)

    def test_print_config(self):
        path = self.file("lease:\n  default: 7s\nredis:\n"
                         "  nodes: [\"127.0.0.1:1\"]\n  key_prefix: mine\n")
        status, printed, err = run("-c", path, "--print-config")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(printed, r"(?m)^ +default: 7s$")
        self.assertRegex(printed, r"(?m)^ +key_prefix: \"?mine\"?$")
        # What it prints is a configuration, and the same one.
        again = self.file(printed)
        self.assertEqual(run("-c", again, "--print-config"), (0, printed, ""))
        # The shipped file has every key, and so has this configuration.
        keys = re.findall(r"^ *#?([a-z_]+):(?: |$)",
                          read("conf/holdfast.yaml"), re.M)
        rows = re.findall(r'^    (?:KEY|SECTION)\("(?:\w+\.)*(\w+)"',
                          read("conf/keys.c"), re.M)
        self.assertEqual(sorted(keys), sorted(rows + ["namespaces"]))
        for key in keys:
            self.assertRegex(printed, rf"(?m)^ *{key}:")

    def test_password_is_not_printed(self):
        folder = self.folder()
        secret = os.path.join(folder, "secret")
        Path(secret).write_text("hush-hush\n", encoding="utf-8")
        path = self.file(f"redis:\n  password_file: {secret}\n")
        status, printed, err = run("-c", path, "--print-config")
        self.assertEqual(status, 0, err)
        self.assertNotIn("hush-hush", printed)
        os.unlink(secret)
        status, _, err = run("-c", path, "-t")
        self.assertEqual(status, 78)
        self.assertRegex(err, rf"^{re.escape(path)}:2:\d+: ")


class AddressTest(HarnessCase):
    def config(self, tcp=(), unix=(), http="none"):
        redis = shared_redis()
        listen = {"beyond_loopback_without_users": "allowed"}
        if tcp is not None:
            listen["tcp"] = list(tcp)
        if unix:
            listen["unix"] = list(unix)
        return {"listen": listen, "admin": {"http": http},
                "redis": {"topology": "single", "nodes": [redis.address],
                          "settle": "0s"}}

    def taken(self):
        server = self.closing(socket.create_server(("127.0.0.1", 0)))
        return "127.0.0.1:%d" % server.getsockname()[1]

    def unstarted(self, config):
        return self.closing(Broker(config=config))

    def test_in_use(self):
        taken = self.taken()
        for config in (self.config([taken]), self.config(
                [], [os.path.join(self.folder(), "s")], taken)):
            status, log = self.unstarted(config).run_to_exit()
            self.assertEqual(status, 71, log)
            self.assertIn(taken, log)
            self.assertIn("level=error", log)

    def test_beyond_loopback(self):
        """Not without users; a name that hides it is refused later."""
        for address in ("0.0.0.0:0", "192.0.2.1:4653", "[::]:0",
                        "[2001:db8::1]:4653", "[::ffff:192.0.2.1]:1"):
            config = self.config(["127.0.0.1:0", address])
            del config["listen"]["beyond_loopback_without_users"]
            status, log = self.unstarted(config).run_to_exit()
            self.assertEqual(status, 78, log)
            self.assertIn(f":2:3: listen.tcp: {address} is reached from beyond"
                          " this machine, and there are no users", log)
        config = self.config(["here:0"])
        del config["listen"]["beyond_loopback_without_users"]
        broker = self.closing(Broker(config=config,
                                     program=with_hosts(self, "0.0.0.0 here")))
        status, log = broker.run_to_exit()
        self.assertEqual(status, 71, log)
        self.assertIn("other machines can reach it", log)
        for address in ("127.0.0.1:0", "127.9.9.9:0", "[::1]:0"):
            config = self.config([address])
            del config["listen"]["beyond_loopback_without_users"]
            broker = self.unstarted(config)
            self.assertEqual(broker.run_to_exit("-t", "-c",
                                                broker.write_config())[0], 0)

    def test_not_ours(self):
        for address in ("192.0.2.1:4653", "[2001:db8::1]:4653"):
            for config in (self.config([address]),
                           self.config(None, ["/none/s"], address)):
                status, log = self.unstarted(config).run_to_exit()
                self.assertEqual(status, 71, log)
        status, log = self.unstarted(
            self.config(["[2001:db8::1]:4653"])).run_to_exit()
        self.assertIn("cannot listen on [2001:db8::1]:4653: ", log)

    def test_a_name_is_all_its_addresses(self):
        """It was the first of them alone."""
        port, admin = self.port(), self.port()
        broker = Broker(
            config=self.config([f"here:{port}"], http=f"here:{admin}"),
            program=with_hosts(
                self,
                # One twice, and one of a family that the system has not, or
                # has no address of.
                "127.0.0.1 here", "127.0.0.2 here", "127.0.0.1 here",
                "2001:db8::1 here"))
        self.addCleanup(broker.close)
        broker.spawn()
        for host in ("127.0.0.1", "127.0.0.2"):
            self.wait_until(lambda host=host: self.greets(f"{host}:{port}"),
                            10, f"{host} greets")
            socket.create_connection((host, admin.number), 2).close()
        self.assertEqual(broker.log().count("event=listening"), 4)
        self.assertEqual(broker.stop(), 0)

    def test_a_name_that_cannot_be_listened_on(self):
        port = self.port()
        own = "127.0.0.1 here"
        for lines, why in (
                ((own, "192.0.2.1 here"), "here:"),  # half is not enough
                ((own, *(f"127.0.1.{n} here" for n in range(1, 9))), "many"),
                (("2001:db8::1 here",), "here:"), ((own + "abouts",), "here:")):
            broker = self.closing(Broker(config=self.config([f"here:{port}"]),
                                         program=with_hosts(self, *lines)))
            status, log = broker.run_to_exit()
            self.assertEqual(status, 71, log)
            self.assertIn("cannot listen on here:", log)
            self.assertIn(why, log)

    def test_several(self):
        one, two = self.port(), self.port()
        addresses = [f"127.0.0.1:{one.number}", f"127.0.0.1:{two.number}"]
        broker = self.unstarted(self.config(addresses))
        broker.spawn()
        broker.wait_log("listening")
        for address in addresses:
            self.wait_until(lambda address=address: self.greets(address), 10,
                            "it greets")
        self.assertEqual(broker.stop(), 0)

    def test_all_of_both_families(self):
        """The one does not take the port of the other."""
        if not has_v6():
            self.skipTest("no IPv6 here")
        port = self.port()
        for tcp in ([f"0.0.0.0:{port}", f"[::]:{port}"],
                    [f"[::]:{port}", f"127.0.0.1:{port}"], [f"[::]:{port}"]):
            broker = self.unstarted(self.config(tcp))
            broker.spawn()
            for host in "127.0.0.1", "::1":
                self.wait_until(
                    lambda host=host: self.greets(f"{host}:{port}"), 10,
                    f"{host} greets, of {tcp}")
            self.assertEqual(broker.stop(), 0)

    def greets(self, address):
        try:
            with socket.create_connection(
                    tuple(address.rsplit(":", 1)), 2) as sock:
                return sock.recv(8) == b"* HELLO "
        except OSError:
            return False

    def test_unix(self):
        path = os.path.join(self.folder(), "s")
        broker = self.broker(config=self.config(None, [path]))
        client = self.client(broker)
        self.assertTrue(stat.S_ISSOCK(os.stat(path).st_mode))
        client.ok("LOCK config/unix", count=1)
        (item,) = client.ok("SESSIONS limit=1").items
        self.assertEqual(item["peer"], "unix")
        # No TCP there that may stay silent: the lease alone is told.
        self.assertGreater(client.ok("PING").ttl_ms, 20000)
        other = self.client(broker)
        tag = other.submit("LOCK config/unix")
        client.close()
        other.granted(tag)
        other.close()
        self.assertEqual(broker.stop(), 0)
        self.assertFalse(os.path.exists(path))

    def test_unix_of_the_dead(self):
        """A dead socket is replaced; a live one or another file is not."""
        path = os.path.join(self.folder(), "s")
        broker = self.broker(config=self.config(None, [path]))
        broker.kill()
        self.assertTrue(os.path.exists(path))
        broker.start()
        status, log = self.unstarted(self.config(None, [path])).run_to_exit()
        self.assertEqual(status, 71, log)
        self.client(broker).ok("PING")
        plain = os.path.join(self.folder(), "file")
        Path(plain).write_text("keep", encoding="utf-8")
        status, log = self.unstarted(self.config(None, [plain])).run_to_exit()
        self.assertEqual(status, 71, log)
        self.assertEqual(Path(plain).read_text(encoding="utf-8"), "keep")

    def test_unix_of_somebody_else(self):
        """Of another type, or with a full queue: it is not replaced."""
        for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET,
                     socket.SOCK_STREAM):
            path = os.path.join(self.folder(), "s")
            with contextlib.ExitStack() as stack:
                def end(kind=kind):
                    return stack.enter_context(
                        socket.socket(socket.AF_UNIX, kind))
                server = end()
                server.bind(path)
                if kind == socket.SOCK_STREAM:
                    server.listen(0)
                    end().connect(path)
                there = os.stat(path).st_ino
                status, log = self.unstarted(
                    self.config(None, [path])).run_to_exit()
                self.assertEqual(status, 71, log)
                self.assertIn(f"cannot listen on {path}: ", log)
                self.assertEqual(os.stat(path).st_ino, there)

    def test_nowhere(self):
        broker = self.unstarted(self.config([]))
        status, log = broker.run_to_exit()
        self.assertEqual(status, 78, log)

    def test_key_prefix(self):
        """Brokers of another prefix have other locks."""
        redis = shared_redis()
        one = self.client(self.broker(redis, {"redis.key_prefix": "one"}))
        two = self.client(self.broker(redis, {"redis.key_prefix": "two"}))
        one.ok("LOCK config/prefix", count=1)
        two.ok("LOCK config/prefix wait=5s", count=1)
        self.assertEqual(redis.command("KEYS", "one:{*"),
                         [b"one:{config/prefix}"])

    def test_log_level(self):
        quiet = self.broker(overrides={"log.level": "error"})
        self.client(quiet).ok("PING")
        self.assertEqual(quiet.log(), "")
        loud = self.broker(overrides={"log.level": "debug"})
        client = self.client(loud)
        client.kill()
        loud.wait_log("level=debug")
