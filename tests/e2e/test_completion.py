"""Completion in bash offers the program's commands and options alone."""

import os
import re
import shutil
import subprocess
import unittest

from harness import temp_folder
from shared import TREE

SCRIPT = os.path.join(TREE, "packaging", "completion", "holdfast.bash")
PROGRAM = os.environ.get("HOLDFAST") or os.path.join(TREE, "build", "holdfast")
ASK = """\
source "$1"
COMP_LINE=$3 COMP_POINT=${#3}
read -ra COMP_WORDS <<<"$3"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_holdfast "$2" "" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tell(*words):
    return subprocess.run([PROGRAM, "help", *words], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=10).stdout


def commands():
    return re.findall(r"^  ([a-z][a-z-]*)\b", tell(), re.MULTILINE)


def options(text):
    """Long ones anywhere; short ones in the synopsis or before their text."""
    synopsis, _, rest = text.partition("\n\n")
    heads = "\n".join(re.findall(r"^  (-.*?)(?:  |$)", rest, re.MULTILINE))
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) | set(
        re.findall(r"(?<![\w-])-[A-Za-z]\b", f"{synopsis}\n{heads}"))


@unittest.skipUnless(shutil.which("bash") and os.access(PROGRAM, os.X_OK),
                     "no bash, or nothing built")
class CompletionTest(unittest.TestCase):
    def offered(self, line, folder="/"):
        done = subprocess.run(
            ["bash", "--norc", "-c", ASK, "-", SCRIPT, PROGRAM,
             f"holdfast {line}"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            check=False, timeout=30, cwd=folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return set(done.stdout.split())

    def test_commands(self):
        names = set(commands())
        self.assertLessEqual({"run", "lock", "show", "help"}, names)
        for line in ("", "-a 127.0.0.1:4653 ", "help ", "-o json -u me help "):
            self.assertEqual(self.offered(line), names, line)
        self.assertEqual(self.offered("sh"), {"show"})

    def test_options(self):
        own = options(tell())
        self.assertLessEqual({"-a", "-u", "-s", "-o", "-V", "-h"}, own)
        self.assertEqual(self.offered("-"), own)
        for command in commands():
            if command == "help":
                continue
            wanted = options(tell(command)) | {"-h"}
            for line in (f"{command} -", f"-a h:1,[::1]:2 {command} x -"):
                self.assertEqual(self.offered(line), wanted, line)
        self.assertEqual(self.offered("run --wait 1s --sh"), {"--shared"})

    def test_values(self):
        folder = temp_folder()
        for name in ("one.secret", "two.secret"):
            with open(os.path.join(folder, name), "wb"):
                pass
        for line in ("-s ", "secret --new "):
            self.assertEqual(self.offered(line + "o", folder), {"one.secret"})
        for line in ("-o ", "show -o ", "show x -o "):
            self.assertEqual(self.offered(line), {"json", "tabs", "columns"})
        self.assertEqual(self.offered("slow --kind l"), {"lost"})
        for line in ("-a ", "run --wait ", "run --note -", "show "):
            self.assertEqual(self.offered(line), set(), line)

    def test_program(self):
        """Behind -- nothing is ours."""
        folder = temp_folder()
        with open(os.path.join(folder, "--wait"), "wb"):
            pass
        self.assertIn("bash", self.offered("run --wait 1s key -- bas"))
        self.assertEqual(self.offered("run key -- bash --w", folder),
                         {"--wait"})
        self.assertEqual(self.offered("run key -- bash --n", folder), set())
