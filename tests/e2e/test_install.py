"""`make install` puts everything in its place, and `make uninstall` takes it
back. What would be built is not: the programs here are empty files."""

import os
import re
import subprocess
import unittest

from harness import temp_folder
from shared import TREE

PROGRAMS = ("holdfastd", "holdfast", "libholdfast.a", "libholdfast-tls.a")
INSTALLED = {
    "etc/holdfast/holdfast.yaml",
    "usr/bin/holdfast",
    "usr/include/holdfast.h",
    "usr/include/holdfast_tls.h",
    "usr/lib/libholdfast-tls.a",
    "usr/lib/libholdfast.a",
    "usr/lib/systemd/system/holdfastd.service",
    "usr/lib/systemd/system/holdfastd.socket",
    "usr/lib/sysusers.d/holdfast.conf",
    "usr/sbin/holdfastd",
    "usr/share/bash-completion/completions/holdfast",
    "usr/share/doc/holdfast/LICENSE",
    "usr/share/doc/holdfast/PROTOCOL.md",
    "usr/share/doc/holdfast/README.md",
    "usr/share/doc/holdfast/examples/grafana/holdfast.json",
    "usr/share/doc/holdfast/examples/prometheus/README.md",
    "usr/share/doc/holdfast/examples/prometheus/holdfast.rules.yml",
    "usr/share/doc/holdfast/examples/prometheus/holdfast.test.yml",
    "usr/share/man/man1/holdfast.1",
    "usr/share/man/man5/holdfast.yaml.5",
    "usr/share/man/man7/holdfast-failures.7",
    "usr/share/man/man7/holdfast-metrics.7",
    "usr/share/man/man7/holdfast-protocol.7",
    "usr/share/man/man8/holdfastd.8",
}


class InstallTest(unittest.TestCase):
    def setUp(self):
        self.build, self.root = temp_folder(), temp_folder()
        for name in PROGRAMS:
            with open(os.path.join(self.build, name), "wb"):
                pass

    def make(self, target, *variables):
        """-o: as if it were made."""
        done = subprocess.run(
            ["make", "-s", "-o", "all", "-o", "libraries", target,
             f"BUILD={self.build}", f"DESTDIR={self.root}", "PREFIX=/usr",
             *variables],
            cwd=TREE, umask=0o077, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
            env={name: value for name, value in os.environ.items()
                 if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")})
        self.assertEqual(done.returncode, 0, done.stdout)

    def files(self):
        return {os.path.relpath(os.path.join(folder, name), self.root)
                for folder, _, names in os.walk(self.root) for name in names}

    def folders(self):
        return {name for _, names, _ in os.walk(self.root) for name in names}

    def test_there_and_back(self):
        self.make("install")
        self.assertEqual(self.files(), INSTALLED)
        for name in INSTALLED:  # whatever the umask
            mode = os.stat(os.path.join(self.root, name)).st_mode & 0o777
            self.assertIn(mode, (0o644, 0o755), name)
        self.make("uninstall")
        self.assertEqual(self.files(), set())
        self.assertNotIn("holdfast", self.folders())

    def test_a_changed_configuration_stays(self):
        self.make("install")
        name = "etc/holdfast/holdfast.yaml"
        with open(os.path.join(self.root, name), "a",
                  encoding="utf-8") as file:
            file.write("# changed\n")
        self.make("install")
        self.make("uninstall")
        self.assertEqual(self.files(), {name})
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            self.assertTrue(file.read().endswith("# changed\n"))

    def test_folders_with_blanks(self):
        """And what is called like the first word of one is left alone."""
        where = ("PREFIX=/my own", "SYSCONFDIR=/my etc")
        beside = os.path.join(self.root, "a")
        with open(beside, "wb"):
            pass
        self.root = os.path.join(self.root, "a b")
        self.make("install", *where)
        self.assertEqual(
            self.files(),
            {re.sub("^usr/", "my own/", re.sub("^etc/", "my etc/", name))
             for name in INSTALLED})
        with open(os.path.join(self.root, "my own/lib/systemd/system",
                               "holdfastd.service"),
                  encoding="utf-8") as file:
            self.assertIn("\nExecStart=/my\\x20own/sbin/holdfastd -c "
                          "/my\\x20etc/holdfast/holdfast.yaml\n", file.read())
        self.make("uninstall", *where)
        self.assertEqual(self.files(), set())
        self.assertTrue(os.path.exists(beside))


if __name__ == "__main__":
    unittest.main()
