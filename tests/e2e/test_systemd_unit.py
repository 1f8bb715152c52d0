"""The service unit: it is understood, sandboxed, and fits the programs."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
UNIT = os.path.join(ROOT, "systemd", "holdfastd.service")
SOCKET = os.path.join(ROOT, "systemd", "holdfastd.socket")
SYSUSERS = os.path.join(ROOT, "systemd", "holdfastd.sysusers")
EXPOSURE_MAX = 1.2


def analyze(*arguments):
    """systemd-analyze's (status, output); skips the test where it is not."""
    program = shutil.which("systemd-analyze")
    if program is None:
        raise unittest.SkipTest("no systemd-analyze")
    done = subprocess.run([program, *arguments], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={**os.environ, "LC_ALL": "C.UTF-8"})
    output = done.stdout + done.stderr
    if re.search(r"(unrecognized|invalid) option", output):
        raise unittest.SkipTest("systemd-analyze is too old: " + output)
    return done.returncode, output


class SystemdUnitTest(unittest.TestCase):
    def setUp(self):
        self.text = Path(UNIT).read_text(encoding="utf-8")

    def values(self, key):
        return re.findall(rf"^{key}=(.*)$", self.text, re.MULTILINE)

    def test_exposure(self):
        status, output = analyze("security", "--offline=true", UNIT)
        self.assertEqual(status, 0, output)
        found = re.search(r"exposure level for \S+: ([0-9.]+)", output)
        self.assertIsNotNone(found, output)
        self.assertLessEqual(float(found.group(1)), EXPOSURE_MAX, output)

    def test_verify(self):
        """Only the program itself, which is not installed, is replaced."""
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "holdfastd.service")
            Path(copy).write_text(self.text.replace(
                "/usr/sbin/holdfastd", "/bin/true"), encoding="utf-8")
            socket = shutil.copy(SOCKET, folder)
            _, output = analyze("verify", "--man=no", copy, socket)
        # It looks at other units as well, which are not ours to mend.
        ours = [line for line in output.splitlines() if "holdfast" in line]
        self.assertEqual(ours, [], output)

    def test_starts_the_daemon_with_its_file(self):
        self.assertEqual(self.values("ExecStart"), [
            "/usr/sbin/holdfastd -c /etc/holdfast/holdfast.yaml"])
        self.assertEqual(self.values("Type"), ["notify"])
        self.assertTrue(self.values("WatchdogSec"))

    def test_reload_checks_the_file_first(self):
        """systemd runs them in turn, up to the first that fails."""
        check, hang_up = self.values("ExecReload")
        self.assertEqual(check.replace(" --check-config ", " "),
                         self.values("ExecStart")[0])
        self.assertNotEqual(check, self.values("ExecStart")[0])
        self.assertEqual(hang_up, "/bin/kill -HUP $MAINPID")

    def test_what_does_not_mend_itself_is_not_tried_again(self):
        self.assertEqual(self.values("Restart"), ["on-failure"])
        self.assertEqual(self.values("RestartPreventExitStatus"), ["64 78"])

    def test_an_address_that_is_taken_is_tried_again_later(self):
        command, = self.values("ExecStopPost")
        with tempfile.TemporaryDirectory() as folder:
            sleep = os.path.join(folder, "sleep")
            with open(sleep, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\necho sleeps $1\n")
            os.chmod(sleep, 0o755)
            told = [subprocess.check_output(
                shlex.split(command.replace("$$", "$")), text=True,
                env={"PATH": f"{folder}:/usr/bin:/bin", "EXIT_STATUS": status})
                for status in ("71", "0", "78", "ABRT")]
        self.assertEqual(told, ["sleeps 5\n", "", "", ""])

    def test_instances(self):
        """Made of the same file: nothing of one is another's."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gen", "holdfastd@.service")
            subprocess.run(["make", "-s", f"BUILD={folder}", path], cwd=ROOT,
                           check=True, timeout=60, stdout=subprocess.DEVNULL,
                           env={name: value for name, value
                                in os.environ.items() if name != "MAKEFLAGS"})
            text = Path(path).read_text(encoding="utf-8")
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"/usr/sbin/holdfastd", "/bin/true", text))
            _, output = analyze("verify", "--man=no", path)
        self.assertEqual([line for line in output.splitlines()
                          if "holdfast" in line], [], output)
        wanted = self.text
        for old, new in (
                ("/etc/holdfast/holdfast.yaml", "/etc/holdfast/%i.yaml"),
                ("\nRuntimeDirectory=holdfast\n",
                 "\nRuntimeDirectory=holdfast-%i\n"),
                ("/run/holdfast ", "/run/holdfast-%i "),
                ("/holdfastd.service/", "/holdfastd@%i.service/"),
                ("=Holdfast lock broker\n", "=Holdfast lock broker, %i\n")):
            self.assertIn(old, wanted)
            wanted = wanted.replace(old, new)
        body = wanted.index("[Unit]")
        self.assertEqual(text[text.index("[Unit]"):], wanted[body:])

    def test_families(self):
        self.assertEqual(self.values("RestrictAddressFamilies"),
                         ["AF_INET AF_INET6 AF_UNIX"])
        self.assertEqual(self.values("IPAddressDeny"), [])

    def test_socket_is_that_of_the_configuration(self):
        with open(SOCKET, encoding="utf-8") as file:
            streams = re.findall(r"^ListenStream=(.*)$", file.read(),
                                 re.MULTILINE)
        with open(os.path.join(ROOT, "conf", "holdfast.yaml"),
                  encoding="utf-8") as file:
            tcp = re.findall(r'^  tcp: \["(.*)"\] ', file.read(), re.MULTILINE)
        self.assertEqual(streams, tcp)

    def test_stop_is_longer_than_the_grace(self):
        grace = re.search(r"stop_grace: (\d+)s", Path(os.path.join(
            ROOT, "conf", "holdfast.yaml")).read_text(encoding="utf-8"))
        self.assertGreater(int(self.values("TimeoutStopSec")[0]),
                           int(grace.group(1)) + 5)

    def test_user_is_the_one_of_sysusers(self):
        with open(SYSUSERS, encoding="utf-8") as file:
            users = re.findall(r"^u\s+(\S+)", file.read(), re.MULTILINE)
        self.assertEqual(users, self.values("User"))

    def test_it_knows_users_by_their_numbers(self):
        """Of a socket's peer nothing is known in a user namespace of one's
        own, in which it is not mapped."""
        self.assertEqual(self.values("PrivateUsers"), ["no"])

    def test_its_group_may_use_its_socket(self):
        mask, = self.values("UMask")
        mode = 0o777 & ~int(mask, 8)
        self.assertTrue(mode & 0o020, "who connects has to write")
        self.assertFalse(mode & 0o007, "others may not")
