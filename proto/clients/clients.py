#!/usr/bin/env python3
"""The clients of all languages: one row each, and what is run for them.

    clients.py conformance [NAME...]   the conformance suite with each driver
    clients.py check [NAME...]         that, and the tests of each client
    clients.py packages [NAME...]      each package into build/clients
    clients.py docs [NAME...]          the pages of each API, there too

A client whose tools are missing is one skipped test, or a failed one with
HOLDFAST_CLIENTS=required. So is a command that cannot reach its registry. All
commands run in the top folder. The last line is `N passed, N failed, N
skipped`.
"""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(FOLDER))
RUN = [sys.executable, "proto/clients/conformance/run.py"]
PACKAGES = [sys.executable, "proto/clients/packages.py"]
WHATS = ("conformance", "check", "packages", "docs")
# What npm, mvn, go and pip say without their registry.
UNREACHABLE = re.compile(
    r"npm error code (ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT)|"
    r'Could not transfer artifact|: Get "https?://\S*/@v/|'
    r"Failed to establish a new connection")
BESIDE = 2  # clients at a time: most of their time is waiting
# What go, Maven and the tests' own runners say of a test that failed.
FAILED = re.compile(r"^\s*--- FAIL|Tests run:.*(Failures|Errors): [1-9]|"
                    r"^failed +[\d.]+ s  ")
COUNT = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped\s*$")


class Client:
    """`tools` are programs in PATH. `build` and each of `tests` are commands.
    A test's last line may be `N passed, N failed, N skipped`; without it the
    test counts as one, by its exit status. `driver` is a line for a shell's
    rules of words, not for a shell. `lacks` has a reason for each feature that
    scenarios may find missing."""

    def __init__(self, name, tools, build, driver, tests=(), **lacks):
        self.name, self.tools, self.lacks = name, tools, lacks
        self.build, self.driver, self.tests = build, driver, tests

    def missing(self):
        return [tool for tool in self.tools if not shutil.which(tool)]


# The unit tests of the C library are among those of the tree.
CLIENTS = (
    Client("c", ["make", "cc"],
           [["make", "-s", "build/client-driver"]],
           os.environ.get("CLIENT_DRIVER", "build/client-driver"),
           [[*PACKAGES, "--check", "c"]],
           zero="names of the C client are strings"),
    Client("go", ["go", "cc"],
           [["go", "-C", "proto/clients/go", "build", "-o",
             "../../../build/go-driver", "./driver"]],
           "build/go-driver",
           [["go", "-C", folder, "test", "-race", "./..."]
            for folder in ("proto/clients/go", "proto/clients/go/gocron",
                           "proto/clients/examples/go")],
           fork="Go has no fork()"),
    Client("python", ["python3"], [],
           "python3 proto/clients/python/driver.py",
           [["python3", "proto/clients/python/tests/run.py"]]),
    Client("aio", ["python3"], [],
           "python3 proto/clients/python/driver.py --aio"),
    Client("node", ["node", "npm"],
           [["npm", "--prefix", "proto/clients/node", "ci",
             "--loglevel=error", "--no-audit", "--no-fund",
             "--prefer-offline", "--fetch-retries=1"],
            ["npm", "--prefix", "proto/clients/node", "run", "--silent",
             "build"]],
           "node proto/clients/node/driver.mjs",
           [["node", "proto/clients/node/tests/run.mjs"]],
           fork="Node.js has no fork()"),
    Client("java", ["java", "mvn"],
           [["mvn", "-q", "-f", "proto/clients/java", "-pl", "client",
             "test-compile"]],
           "java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
           "-cp proto/clients/java/client/target/classes:"
           "proto/clients/java/client/target/test-classes "
           "example.holdfast.driver.Driver",
           [["mvn", "-q", "-f", "proto/clients/java", "verify"],
            [*PACKAGES, "--check", "java"]],
           fork="Java has no fork()"),
)


def without():
    """The counts of what cannot be run here."""
    required = os.environ.get("HOLDFAST_CLIENTS") == "required"
    return [0, int(required), int(not required)]


def add(total, count):
    total[:] = [a + b for a, b in zip(total, count)]


def run(command, total):
    """Runs a test, shows its output once it has ended, adds its counts to the
    total."""
    shown = [f"--- {' '.join(command)}\n"]
    process = subprocess.Popen(command, cwd=TREE, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.STDOUT, errors="replace")
    count = None
    unreachable = failed = False
    for line in process.stdout:
        match = COUNT.match(line)
        unreachable = unreachable or bool(UNREACHABLE.search(line))
        failed = failed or bool(FAILED.search(line))
        if match:
            count = [int(number) for number in match.groups()]
        else:
            shown.append(line)
    good = process.wait() == 0
    unreachable = unreachable and not failed
    if count is None or (not good and not count[1]):
        count = [1, 0, 0] if good else \
            without() if unreachable else [0, 1, 0]
        if not good:
            shown.append(
                f"{'failed' if count[1] else 'skipped':7} {0:6.2f} s  "
                f"{' '.join(command)}"
                f"{': it reaches no registry' if unreachable else ''}\n")
    print("".join(shown), end="", flush=True)
    add(total, count)
    return count


def run_client(client, what):
    """Its counts, and what became of it in words."""
    total = [0, 0, 0]
    return total, told_of(client, what, total)


def told_of(client, what, total):
    """Adds to the total what was counted of it; the words."""
    missing = client.missing()
    if missing:
        count = without()
        add(total, count)
        return f"{'failed' if count[1] else 'skipped'}: no {missing[0]}"
    for command in client.build:
        count = run(command, [0, 0, 0])
        if not count[0]:
            add(total, count)
            return f"failed: {' '.join(command)}" if count[1] else \
                f"skipped: {command[0]} reaches no registry"
    if what in ("packages", "docs"):
        return "{} passed, {} failed, {} skipped".format(*run(
            [*PACKAGES, *(["--docs"] if what == "docs" else []), client.name],
            total))
    if what == "check":
        for command in client.tests:
            run(command, total)
    return "{} passed, {} failed, {} skipped of the conformance suite".format(
        *run([*RUN, "--driver", client.driver, *(
            f"--lacks={word}={why}" for word, why in client.lacks.items())],
            total))


def main(arguments):
    known = {client.name: client for client in CLIENTS}
    if not arguments or arguments[0] not in WHATS or \
            not set(arguments[1:]) <= set(known):
        sys.exit(__doc__.strip() + f"\n\nNAME is one of {' '.join(known)}")
    total, names = [0, 0, 0], arguments[1:] or list(known)
    if arguments[0] in ("packages", "docs"):  # that of python has aio, too
        names = [name for name in names if name != "aio"]
    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        rows = list(pool.map(run_client, (known[name] for name in names),
                             [arguments[0]] * len(names)))
    print("---")
    for name, (count, words) in zip(names, rows):
        add(total, count)
        print(f"{name:8} {words}")
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
