"""A certificate authority of a test's own, by the command `openssl`.

    ca = Authority()
    node = ca.issue("node", "127.0.0.1")     # .cert and .key, paths
    redis = RedisServer(tls=Tls(ca, node))   # see redis_server.py
"""

import os
import re
import ssl
import subprocess

from .processes import temp_folder


def openssl(*arguments):
    """Its output."""
    return subprocess.run(["openssl", *arguments], check=True, timeout=60,
                          capture_output=True, text=True).stdout


def _kind(host):
    """The kind of an alternative name."""
    if re.match(r"(email|URI|DNS|RID):", host):
        return ""
    return "IP:" if re.fullmatch(r"[\d.]+|.*:.*", host) else "DNS:"


class Certificate:
    """Paths of two PEM files."""

    def __init__(self, cert, key):
        self.cert = cert
        self.key = key


class Authority:
    """Issues certificates of quick elliptic keys; `cert` is its own."""

    def __init__(self, name="test-ca"):
        self.dir = temp_folder()
        own = self._path(name)
        self.name = name
        self.cert, self._key = own + ".pem", own + ".key"
        self._make_key(self._key)
        openssl("req", "-x509", "-new", "-key", self._key, "-subj",
                f"/CN={name}", "-days", "2", "-out", self.cert,
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def _path(self, name):
        return os.path.join(self.dir, name)

    @staticmethod
    def _make_key(path):
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt",
                "ec_paramgen_curve:P-256", "-out", path)

    def issue(self, name, *hosts, days=2, common=None):
        """For these hosts, or others as `URI:x:y`. `days` of -1: it has ended.
        `common`: its common name, if not `name`."""
        path = self._path(name)
        self._make_key(path + ".key")
        openssl("req", "-new", "-key", path + ".key", "-utf8",
                "-subj", f"/CN={common or name}", "-out", path + ".csr")
        with open(path + ".ext", "w", encoding="ascii") as file:
            names = ",".join(
                _kind(host) + host for host in hosts)
            file.write("authorityKeyIdentifier=keyid\n")
            if names:
                file.write(f"subjectAltName={names}\n")
        openssl("x509", "-req", "-in", path + ".csr", "-CA", self.cert,
                "-CAkey", self._key, "-CAcreateserial", "-days", str(days),
                "-extfile", path + ".ext", "-out", path + ".pem")
        return Certificate(path + ".pem", path + ".key")


    def intermediate(self, name):
        """Another one, whose own certificate this one has signed."""
        other = Authority(name)
        openssl("req", "-new", "-key", other._key, "-subj", f"/CN={name}",
                "-out", other._path("csr"))
        with open(other._path("ext"), "w", encoding="ascii") as file:
            file.write("basicConstraints=critical,CA:true\n")
        openssl("x509", "-req", "-in", other._path("csr"), "-CA", self.cert,
                "-CAkey", self._key, "-CAcreateserial", "-days", "2",
                "-extfile", other._path("ext"), "-out", other.cert)
        return other


class Tls:
    """TLS of servers; `clients`: yes, no or optional, as tls-auth-clients."""

    def __init__(self, authority, certificate, clients="yes"):
        self.authority = authority
        self.certificate = certificate
        self.clients = clients

    def options(self):
        """Of redis.conf, without the port."""
        return {"tls-cert-file": self.certificate.cert,
                "tls-key-file": self.certificate.key,
                "tls-ca-cert-file": self.authority.cert,
                "tls-auth-clients": self.clients,
                "tls-replication": "yes"}

    def context(self):
        """For the tests' own connections, which take any certificate."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.certificate.cert, self.certificate.key)
        return context
