"""TLS from the daemon to Redis and to Sentinels: real ones, whose ports speak
nothing else, and certificates of the test's own."""

import contextlib
import os
import socket
import ssl
import threading
import time
from pathlib import Path

from harness import Authority, HarnessCase, Tls
from harness.certificates import openssl
from test_config_run import run

QUICK = {"redis.connect_timeout": "500ms", "redis.command_timeout": "500ms",
         "redis.patience": "300ms"}
_made = {}


def authority():
    """One for all tests: with it `node`, of 127.0.0.1, `named`, of other
    names, and `own`, the broker's."""
    if not _made:
        _made["ca"] = Authority()
        for name, hosts in (("node", ("127.0.0.1",)), ("own", ()),
                            ("named", ("redis.example", "localhost"))):
            _made[name] = _made["ca"].issue(name, *hosts)
    return _made["ca"]


def certificate(name):
    authority()
    return _made[name]


def tls_keys(**keys):
    """Of the broker's configuration; by default all that a Redis asks for."""
    own = certificate("own")
    keys = {"ca": authority().cert, "cert": own.cert, "key": own.key, **keys}
    return {f"redis.tls.{key}": value for key, value in keys.items()
            if value is not None}


def forward(source, target, step, pause):
    """Bytes from one socket to the other, at most `step` at a time."""
    with contextlib.suppress(OSError):
        while data := source.recv(step):
            target.sendall(data)
            time.sleep(pause)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class TlsCase(HarnessCase):
    def tls(self, name="node", **options):
        return Tls(authority(), certificate(name), **options)

    def listen(self, serve):
        """An address; serve(socket) for each who connects, in a thread."""
        server = self.closing(socket.create_server(("127.0.0.1", 0)))

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    peer = server.accept()[0]
                    self.addCleanup(peer.close)
                    threading.Thread(target=serve, args=(peer,),
                                     daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
        return "127.0.0.1:%d" % server.getsockname()[1]

    def refused(self, redis, keys, *words):
        """Nothing is granted, the log says why, and little is made of it."""
        broker = self.broker(redis, {**QUICK, **keys}, can_ask=False)
        client = self.client(broker)
        client.err("LOCK a", "UNAVAILABLE")
        for word in words:
            broker.wait_log(word)
        before, descriptors = broker.cpu_us(), broker.descriptors()
        time.sleep(1.5)
        self.assertLess(broker.cpu_us() - before, 150000)
        self.assertLess(broker.log().count("level=warn"), 10, broker.log())
        self.assertLessEqual(broker.descriptors(), descriptors + 2)
        client.ok("PING")
        return broker

    def works(self, broker, other=None, name="a"):
        """Lock, wait, hand over, to another broker too."""
        holder, waiter = self.client(broker), self.client(other or broker)
        fence = holder.ok(f"LOCK {name} wait=10s", count=1).fence
        tag = waiter.waits(f"LOCK {name}")
        holder.ok(f"UNLOCK {name}", count=0)
        self.assertGreater(waiter.wait(tag).fence, fence)
        waiter.ok(f"UNLOCK {name}", count=0)
        holder.close()
        waiter.close()


class TopologyTest(TlsCase):
    """All links of each kind."""

    def brokers(self, redis, **overrides):
        return [self.broker(redis, {**tls_keys(), **overrides})
                for _ in range(2)]

    def test_single(self):
        redis = self.redis(tls=self.tls())
        one, two = self.brokers(redis)
        self.works(one, two)
        one.wait_log("use=hints")
        self.assertEqual(one.log().count("redis_link_lost"), 0)

    def test_cluster(self):
        one, two = self.brokers(self.cluster(tls=self.tls()))
        for name in "abcdefgh":
            self.works(one, two, name)

    def test_sentinel(self):
        redis = self.sentinels(tls=self.tls(), replicas=1)
        one, two = self.brokers(redis)
        self.works(one, two)
        one.wait_log("use=sentinel")
        holder = self.client(one, "LOCK b")
        old = redis.master
        self.assertEqual(old.command("WAIT", 1, 10000), 1)
        old.kill()
        redis.wait_master(other_than=old)
        self.wait_until(lambda: self.client(two).request(
            "LOCK c wait=1s").ok, 30, "the new master grants")
        holder.ok("UNLOCK b", count=0)

    def test_quorum(self):
        nodes = [self.redis(tls=self.tls()) for _ in range(3)]
        one, two = self.brokers([node.address for node in nodes],
                                **{"redis.topology": "quorum"})
        self.works(one, two)
        nodes[0].kill()
        self.works(one, two)
        nodes[0].start()
        nodes[1].kill()
        self.works(one, two)

    def test_strict(self):
        """The second link, which asks for replicas."""
        master, replica = (self.redis(tls=self.tls()) for _ in range(2))
        replica.command("REPLICAOF", master.host, master.port)
        self.wait_until(lambda: master.info("replication")
                        ["connected_slaves"] == "1", 20, "it follows")
        one, two = self.brokers(master, **{"redis.safety": "strict"})
        self.works(one, two)
        one.wait_log("use=replicas")


class TrustTest(TlsCase):
    def test_client_certificate(self):
        redis = self.redis(tls=self.tls())
        # By TLS 1.3 Redis says so only after the handshake.
        self.refused(redis, tls_keys(cert=None, key=None),
                     "event=redis_link_lost", "certificate required")
        stranger = Authority("stranger").issue("own")
        self.refused(redis, tls_keys(cert=stranger.cert, key=stranger.key),
                     "event=redis_link_lost", "unknown ca")
        broker = self.broker(redis, tls_keys())
        self.works(broker)
        ends = ("holdfast_tls_certificate_expiry_timestamp_seconds"
                '{shown_to="redis"}')
        self.assertAlmostEqual((broker.metrics()[ends] - time.time()) / 86400,
                               2, delta=0.1)

    def test_client_certificate_in_tls_1_2(self):
        redis = self.redis(tls=self.tls(), tls_protocols="TLSv1.2")
        self.refused(redis, tls_keys(cert=None, key=None),
                     "event=redis_link_lost", "why=\"it ends TLS (")
        self.works(self.broker(redis, tls_keys()))

    def test_no_client_certificate_is_asked_for(self):
        redis = self.redis(tls=self.tls(clients="no"))
        self.works(self.broker(redis, tls_keys(cert=None, key=None)))

    def test_another_authority(self):
        redis = self.redis(tls=self.tls())
        for verify in ("full", "ca"):
            self.refused(
                redis, tls_keys(ca=Authority("other").cert, verify=verify),
                "event=redis_link_lost", "certificate cannot be verified: ")

    def test_a_certificate_that_has_ended(self):
        old = authority().issue("old", "127.0.0.1", days=-1)
        redis = self.redis(tls=Tls(authority(), old, clients="no"))
        self.refused(redis, tls_keys(), "verified: certificate has expired")

    def test_another_host(self):
        redis = self.redis(tls=self.tls("named"))
        self.refused(redis, tls_keys(), "event=redis_link_lost",
                     r"certificate does not name \"127.0.0.1\"")
        self.refused(redis, tls_keys(server_name="other.example"),
                     r"certificate does not name \"other.example\"")
        self.works(self.broker(redis, tls_keys(server_name="redis.example")))
        self.works(self.broker(redis, tls_keys(verify="ca")))
        node = self.redis(tls=self.tls("node"))
        self.refused(node, tls_keys(server_name="127.0.0.2"),
                     r"certificate does not name \"127.0.0.2\"")

    def test_a_host_with_a_name(self):
        redis = self.redis(tls=self.tls("named"))
        broker = self.broker([f"localhost:{redis.port}"], tls_keys())
        self.works(broker)

    def test_cluster_of_numbers(self):
        """Nodes tell each other's numbers, which no certificate names."""
        cluster = self.cluster(tls=self.tls("named"))
        self.works(self.broker(cluster, tls_keys(verify="ca")))
        self.works(self.broker(cluster, tls_keys(server_name="redis.example")))

    def test_cluster_of_names(self):
        cluster = self.cluster(
            tls=self.tls("named"), cluster_announce_hostname="localhost",
            cluster_preferred_endpoint_type="hostname")
        seeds = [f"localhost:{node.port}" for node in cluster.nodes[:1]]
        broker = self.broker(seeds, {**tls_keys(),
                                     "redis.topology": "cluster"})
        for name in "abcdef":
            self.works(broker, name=name)

    def test_the_name_that_is_asked_for(self):
        names = {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate("named").cert,
                                certificate("named").key)
        context.sni_callback = lambda sock, name, _: names.setdefault(
            str(sock.getsockname()[1]), name)

        def serve(peer):
            with contextlib.suppress(OSError):
                context.wrap_socket(peer, server_side=True).close()
        for host, server_name, name in (
                ("127.0.0.1", None, None), ("localhost", None, "localhost"),
                ("127.0.0.1", "redis.example", "redis.example"),
                ("localhost", "127.0.0.1", None)):
            # Another one, since those before go on trying.
            port = self.listen(serve).rpartition(":")[2]
            self.broker([f"{host}:{port}"],
                        {**QUICK, **tls_keys(server_name=server_name)})
            self.wait_until(lambda: port in names, 10, "it has come")
            self.assertEqual(names[port], name)


class TroubleTest(TlsCase):
    def test_redis_without_tls(self):
        self.refused(self.redis(), tls_keys(), "event=redis_link_lost")

    def test_something_without_tls(self):
        def serve(peer):
            with contextlib.suppress(OSError):
                peer.recv(1)
                peer.sendall(b"-ERR unknown command\r\n")
        self.refused([self.listen(serve)], tls_keys(),
                     "event=redis_link_lost", "it does not speak TLS")

    def test_tls_that_the_broker_does_not_know_of(self):
        self.refused(self.redis(tls=self.tls()), {}, "event=redis_link_lost",
                     "closed before any answer: is it a TLS port?")

        def alert(peer):
            with contextlib.suppress(OSError):
                peer.recv(1)
                peer.sendall(b"\x15\x03\x01\x00\x02\x02\x46")
        self.refused([self.listen(alert)], {}, "event=redis_link_lost",
                     "it speaks TLS: set redis.tls")

    def test_silence(self):
        """A listener that says nothing."""
        accepted = []
        broker = self.refused([self.listen(accepted.append)], tls_keys(),
                              "no answer to the TLS handshake in time")
        self.wait_until(lambda: len(accepted) > 2, 10, "it tries again")
        # The time-out is that of connecting.
        began = time.monotonic()
        count = len(accepted)
        self.wait_until(lambda: len(accepted) > count + 1, 10, "and again")
        self.assertGreater(time.monotonic() - began, 0.5)
        self.assertEqual(broker.stop(), 0)

    def test_half_a_handshake(self):
        """It ends at any byte of it."""
        redis = self.redis(tls=self.tls())
        left = [900, 700, 200, 100, 5, 1]

        def serve(peer):
            with contextlib.suppress(OSError):
                node = socket.create_connection((redis.host, redis.port))
                threading.Thread(target=forward, args=(peer, node, 9999, 0),
                                 daemon=True).start()
                if not left:
                    forward(node, peer, 9999, 0)
                    return
                count = left.pop()
                while count > 0 and (data := node.recv(count)):
                    peer.sendall(data)
                    count -= len(data)
                peer.shutdown(socket.SHUT_RDWR)
                node.close()
        broker = self.broker([self.listen(serve)], {
            **QUICK, **tls_keys(), "redis.patience": "60s"})
        self.works(broker)
        self.assertIn("closed by Redis in the TLS handshake", broker.log())

    def test_drops(self):
        """A network that passes a few bytes at a time."""
        redis = self.redis(tls=self.tls())

        def serve(peer):
            node = socket.create_connection((redis.host, redis.port))
            threading.Thread(target=forward, args=(peer, node, 101, 0.0001),
                             daemon=True).start()
            forward(node, peer, 7, 0.0001)
        broker = self.broker([self.listen(serve)], {
            **tls_keys(), "redis.connect_timeout": "10s",
            "redis.command_timeout": "9s", "redis.patience": "20s"})
        self.works(broker)

    def test_restart(self):
        redis = self.redis(tls=self.tls(), appendonly="yes",
                           appendfsync="always")
        broker = self.broker(redis, tls_keys())
        holder = self.client(broker)
        fence = holder.ok("LOCK kept").fence
        self.works(broker)
        descriptors = broker.descriptors()
        for kill in (True, False, True):
            redis.restart(kill=kill)
            self.works(broker)
        broker.wait_log("why=\"closed by Redis\"")
        self.wait_until(lambda: broker.descriptors() <= descriptors, 10,
                        "its descriptors are given back")
        self.assertEqual(holder.ok("LOCK kept", count=2).fence, fence)

    def test_killed_links(self):
        """While much is under way; then all of it is answered."""
        redis = self.redis(tls=self.tls())
        broker = self.broker(redis, tls_keys())
        client = self.client(broker)
        for turn in range(5):
            tags = [client.submit(f"LOCK k{turn}-{n} wait=10s")
                    for n in range(300)]
            redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            redis.command("CLIENT", "KILL", "TYPE", "pubsub")
            for tag in tags:
                self.assertIn(client.wait(tag, timeout=20).word, ("OK", "ERR"))
        self.works(broker)

    def test_much(self):
        """Replies and requests of many records: ten thousand locks that are
        renewed, and a queue of a thousand that is listed."""
        redis = self.redis(tls=self.tls())
        broker = self.broker(redis, {**tls_keys(), "lease.default": "3s"})
        client = self.client(broker)
        for first in range(0, 10000, 2000):
            tags = [client.submit(f"LOCK m{n}")
                    for n in range(first, first + 2000)]
            for tag in tags:
                client.granted(tag, timeout=30)
        waiters = [self.client(broker) for _ in range(4)]
        for waiter in waiters:
            tags = [waiter.submit(f"LOCK m0 owner=w{n} note={'n' * 100} "
                                  "progress=1") for n in range(250)]
            for tag in tags:
                waiter.queued(tag)
        shown = client.ok("SHOW m0 limit=500", timeout=20)
        self.assertEqual(int(shown["waiters"]), 1000)
        self.assertEqual(len(shown.items), 500)
        client.no_event("LOST", 6)
        self.assertEqual(client.ok("UNLOCK m9999", count=0).word, "OK")
        self.assertGreater(broker.metric("renewals_total"), 20000)


class ConfigurationTest(TlsCase):
    def told(self, **keys):
        """Status and error of `-t`, and of a start, which are the same."""
        lines = "".join(f"    {key}: {value}\n" for key, value in keys.items())
        path = os.path.join(self.folder(), "holdfast.yaml")
        Path(path).write_text("redis:\n  tls:\n" + lines, encoding="utf-8")
        results = [run("-c", path, *more)
                   for more in (["-t"], ["--print-config"], [])]
        self.assertEqual(len(set(results)), 1, results)
        status, out, error = results[0]
        self.assertEqual((status, out), (78, ""))
        self.assertTrue(error.startswith(path + ":"), error)
        return error[len(path) + 1:].rstrip("\n")

    def write(self, text):
        path = os.path.join(self.folder(), "file.pem")
        Path(path).write_text(text, encoding="ascii")
        return path

    def read(self, path):
        return Path(path).read_text(encoding="ascii")

    def test_good(self):
        keys = "".join(f"    {key.rpartition('.')[2]}: {value}\n"
                       for key, value in tls_keys().items())
        path = self.write("redis:\n  tls:\n" + keys)
        self.assertEqual(run("-t", "-c", path), (0, f"{path}: ok\n", ""))
        status, printed, _ = run("--print-config", "-c", path)
        self.assertEqual(status, 0)
        self.assertIn(f'ca: "{authority().cert}"', printed)
        # Several authorities in one file, and words between them.
        both = self.write("first\n" + self.read(authority().cert) + "next\n" +
                          self.read(Authority("next").cert))
        path = self.write(f"redis:\n  tls:\n    ca: {both}\n")
        self.assertEqual(run("-t", "-c", path), (0, f"{path}: ok\n", ""))

    def test_files(self):
        ca, own = authority().cert, certificate("own")
        none, text = "/nonexistent/f", self.write("no certificate\n")
        cut = self.write(self.read(ca)[:200])
        folder = self.folder()
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        for keys, place, word in (
                ({"ca": none}, "3:9: redis.tls.ca: ", "No such file"),
                ({"ca": folder}, "3:9: redis.tls.ca: ", "not a regular file"),
                ({"ca": pipe}, "3:9: redis.tls.ca: ", "not a regular file"),
                ({"ca": text}, "3:9: redis.tls.ca: ", "no certificates in"),
                ({"ca": cut}, "3:9: redis.tls.ca: ", "no certificates in"),
                ({"ca": own.key}, "3:9: redis.tls.ca: ", "no certificates in"),
                ({"cert": none}, "4:11: redis.tls.cert: ", "No such file"),
                ({"cert": text}, "4:11: redis.tls.cert: ", "no certificate"),
                ({"cert": own.key}, "4:11: redis.tls.cert: ",
                 "no certificate"),
                ({"key": none}, "5:10: redis.tls.key: ", "No such file"),
                ({"key": text}, "5:10: redis.tls.key: ", "no private key"),
                ({"key": own.cert}, "5:10: redis.tls.key: ",
                 "no private key"),
                ({"key": certificate("node").key}, "5:10: redis.tls.key: ",
                 "does not fit")):
            keys = {"ca": ca, "cert": own.cert, "key": own.key, **keys}
            error = self.told(**keys)
            self.assertTrue(error.startswith(place), error)
            self.assertIn(word, error)
            self.assertIn('"/', error)

    def test_key_with_a_passphrase(self):
        """Nobody is asked for it, a terminal or not."""
        key = os.path.join(self.folder(), "locked.key")
        openssl("pkey", "-in", certificate("own").key, "-aes256",
                "-passout", "pass:hush", "-out", key)
        error = self.told(ca=authority().cert, cert=certificate("own").cert,
                          key=key)
        self.assertIn("redis.tls.key: ", error)
        self.assertIn("has a passphrase", error)

    def test_keys_that_need_others(self):
        ca, own = authority().cert, certificate("own")
        self.assertEqual(self.told(cert=own.cert, key=own.key),
                         "2:3: redis.tls: needs redis.tls.ca")
        self.assertEqual(self.told(ca=ca, cert=own.cert),
                         "4:5: redis.tls.cert: needs redis.tls.key")
        self.assertIn("unknown key", self.told(ca=ca, verfy="ca"))
        self.assertIn("expected full or ca", self.told(ca=ca, verify="none"))
