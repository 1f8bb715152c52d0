"""`make install` and `make uninstall`; the programs here are empty files."""

import filecmp
import os
import re
import shlex
import subprocess
import unittest

from harness import temp_folder
from harness.case import HarnessCase
from shared import TREE, read

PROGRAMS = ("holdfastd", "holdfast", "libholdfast.a", "libholdfast-tls.a",
            "libholdfast.so.1", "libholdfast-tls.so.1")
# Of a make that is run by nobody else's.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
INSTALLED = {
    "etc/holdfast/holdfast.yaml",
    "usr/bin/holdfast",
    "usr/include/holdfast.h",
    "usr/include/holdfast_tls.h",
    "usr/lib/libholdfast-tls.a",
    "usr/lib/libholdfast-tls.so",
    "usr/lib/libholdfast-tls.so.1",
    "usr/lib/libholdfast.a",
    "usr/lib/libholdfast.so",
    "usr/lib/libholdfast.so.1",
    "usr/lib/pkgconfig/holdfast-tls.pc",
    "usr/lib/pkgconfig/holdfast.pc",
    "usr/lib/systemd/system/holdfastd.service",
    "usr/lib/systemd/system/holdfastd.socket",
    "usr/lib/systemd/system/holdfastd@.service",
    "usr/lib/sysusers.d/holdfast.conf",
    "usr/sbin/holdfastd",
    "usr/share/bash-completion/completions/holdfast",
    "usr/share/doc/holdfast/LICENSE",
    "usr/share/doc/holdfast/PROTOCOL.md",
    "usr/share/doc/holdfast/README.md",
    "usr/share/doc/holdfast/configuration.md",
    "usr/share/doc/holdfast/examples/grafana/holdfast.json",
    "usr/share/doc/holdfast/examples/holdfast.yaml",
    "usr/share/doc/holdfast/examples/minimal.yaml",
    "usr/share/doc/holdfast/examples/prometheus/README.md",
    "usr/share/doc/holdfast/examples/prometheus/holdfast.rules.yml",
    "usr/share/doc/holdfast/examples/prometheus/holdfast.test.yml",
    "usr/share/doc/holdfast/failures.md",
    "usr/share/doc/holdfast/figures.md",
    "usr/share/doc/holdfast/guarantees.md",
    "usr/share/doc/holdfast/operations.md",
    "usr/share/holdfast/resource/check.lua",
    "usr/share/holdfast/resource/set.lua",
    "usr/share/holdfast/resource/take.lua",
    "usr/share/man/man1/holdfast.1",
    "usr/share/man/man5/holdfast.yaml.5",
    "usr/share/man/man7/holdfast-failures.7",
    "usr/share/man/man7/holdfast-metrics.7",
    "usr/share/man/man7/holdfast-protocol.7",
    "usr/share/man/man8/holdfastd.8",
}


PROGRAM = """#include <holdfast.h>
#include <holdfast_tls.h>
#include <stdio.h>
int main(void)
{
    struct holdfast_tls_options how = {.ca = "/none"};
    char why[100];
    if (holdfast_tls_create(&how, why, sizeof(why)) == NULL)
        puts(holdfast_status_text(HOLDFAST_SUCCESS));
    return 0;
}
"""


def output(*command):
    return subprocess.check_output(command, text=True, timeout=60)


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
            env=ENVIRONMENT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def files(self):
        return {os.path.relpath(os.path.join(folder, name), self.root)
                for folder, _, names in os.walk(self.root) for name in names}

    def folders(self):
        return {name for _, names, _ in os.walk(self.root) for name in names}

    def pkg_config(self, package, libdir, *options):
        """--cflags and --libs of what is installed."""
        return subprocess.run(
            ["pkg-config", *options, "--cflags", "--libs", package], text=True,
            check=True, timeout=20, stdout=subprocess.PIPE,
            env={**os.environ, "PKG_CONFIG_PATH": os.path.join(
                self.root, libdir, "pkgconfig")}).stdout

    def check_links(self, folder):
        """Links between installed documents lead to installed files. The
        daemon's code, tests and clients are in the source alone."""
        for name in sorted(INSTALLED):
            if os.path.dirname(name) != folder or not name.endswith(".md"):
                continue
            with open(os.path.join(self.root, name), encoding="utf-8") as file:
                text = file.read()
            for link in re.findall(r"\]\(([^)#:]+\.(?:md|yaml))[)#]", text):
                if not re.match(
                        r"(\.\./\.\./)?(daemon|tests|proto/clients)/", link):
                    self.assertIn(f"{folder}/{link}", INSTALLED, name)

    def test_there_and_back(self):
        self.make("install")
        self.assertEqual(self.files(), INSTALLED)
        for name in INSTALLED:  # whatever the umask
            mode = os.stat(os.path.join(self.root, name)).st_mode & 0o777
            self.assertIn(mode, (0o644, 0o755), name)
        # Which is the one that ConfigurationTest starts a broker with.
        self.assertTrue(filecmp.cmp(
            os.path.join(self.root, "etc/holdfast/holdfast.yaml"),
            os.path.join(TREE, "conf", "minimal.yaml"), shallow=False))
        self.check_links("usr/share/doc/holdfast")
        self.make("uninstall")
        self.assertEqual(self.files(), set())
        self.assertNotIn("holdfast", self.folders())

    def test_libraries_that_are_missing(self):
        done = subprocess.run(
            ["make", "PKG_CONFIG=false", f"BUILD={self.build}"], cwd=TREE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 2)
        self.assertIn("`make deps` installs what is missing", done.stderr)
        self.assertNotIn("error:", done.stderr)  # of the compiler

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
        flags = self.pkg_config("holdfast", "my own/lib")
        self.assertEqual(shlex.split(flags),
                         ["-I/my own/include", "-L/my own/lib", "-lholdfast"])
        self.make("uninstall", *where)
        self.assertEqual(self.files(), set())
        self.assertTrue(os.path.exists(beside))

    def test_a_program_in_c(self):
        self.build = os.path.join(TREE, "build")
        where = os.path.join(self.root, "usr")
        self.make("install", "DESTDIR=", f"PREFIX={where}",
                  f"SYSCONFDIR={self.root}/etc")
        source = os.path.join(self.root, "program.c")
        for package, text in (
                ("holdfast", re.sub(r"#.*tls.*|struct h.*|char.*|if .*", "",
                                    PROGRAM)),
                ("holdfast-tls", PROGRAM)):
            with open(source, "w", encoding="ascii") as file:
                file.write(text)
            shared = self.pkg_config(package, "usr/lib")
            self.assertNotIn("-lssl", shared)
            static = re.sub(r"-l(holdfast\S*)", r"-l:lib\1.a", self.pkg_config(
                package, "usr/lib", "--static"))
            for flags, needed in ((shared, f"lib{package}.so.1"),
                                  (static, "")):
                with self.subTest(flags):
                    subprocess.run(
                        ["cc", "-Wall", "-Werror", "-o", f"{source}.out",
                         source, *shlex.split(flags)], check=True, timeout=60)
                    self.assertTrue(subprocess.check_output(
                        [f"{source}.out"], env={
                            **os.environ, "LD_LIBRARY_PATH": f"{where}/lib"}))
                    found = re.findall(r"\[(libholdfast.*)\]", output(
                        "readelf", "-d", f"{source}.out"))
                    self.assertEqual(needed in found, bool(needed), found)

    def test_what_the_shared_libraries_export(self):
        """The functions that the headers declare, and no others."""
        for name, header, needed in (
                ("holdfast", "proto/clients/c/holdfast.h", {"libc"}),
                ("holdfast-tls", "proto/tls/holdfast_tls.h",
                 {"libc", "libssl", "libcrypto"})):
            path = os.path.join(TREE, "build", f"lib{name}.so.1")
            text = re.sub(r"/\*.*?\*/", "", read(header), flags=re.S)
            declared = re.findall(r"^[a-z][^;{}()=]*?(holdfast_\w+)\s*\(", text,
                                  re.M)
            self.assertGreater(len(declared), 2)
            exported = re.findall(r" T (\S+)@@HOLDFAST_1$", output(
                "nm", "-D", "--defined-only", "--with-symbol-versions", path),
                re.M)
            self.assertEqual(sorted(exported), sorted(declared))
            told = output("readelf", "-d", path)
            self.assertIn(f"soname: [lib{name}.so.1]", told)
            self.assertEqual(set(re.findall(
                r"NEEDED.*\[(\w+)\.so", told)), needed)


class ConfigurationTest(HarnessCase):
    def test_with_the_redis_of_the_distribution(self):
        """The installed file, with free ports in place of its own."""
        redis = self.redis()
        text = read("conf/minimal.yaml")
        self.assertIn('nodes: ["127.0.0.1:6379"]\n', text)
        broker = self.broker(redis)
        broker.stop()
        own = broker.config
        broker.config = (
            text.replace("127.0.0.1:6379", redis.address) +
            "  settle: 0s\n"
            f"listen: {{tcp: [\"{own['listen']['tcp'][0]}\"]}}\n"
            f"admin: {{http: \"{own['admin']['http']}\"}}\n")
        broker.start()
        self.wait_until(lambda: broker.http("/readyz")[0] == 200, 10, "ready")
        self.client(broker).ok("LOCK a")
