#!/usr/bin/env python3
"""Runs the scenarios with the driver of a client: see README.md.

    run.py --driver 'COMMAND' [--lacks WORD=REASON] [-k NAME] [-j JOBS] [-v]

A scenario with the line `# may lack: WORD` is skipped for a client that lacks
that. The last line is `N passed, N failed, N skipped`.
"""

import argparse
import concurrent.futures
import fnmatch
import glob
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from scenario import MAY_LACK, Run  # noqa: E402
from wire import Mismatch  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios")
SHOWN_LINES = 60


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, timeout=60,
                   capture_output=True)


def make_certificates(folder):
    """Two authorities, `ca` and `other`; certificates of `ca`."""
    def path(name):
        return os.path.join(folder, name)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-keyout", path(name + ".key"), "-out",
                path(name + ".pem"), "-days", "2", "-subj", f"/CN={name}",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    for name, host in (("local", "IP:127.0.0.1"), ("named", "DNS:broker"),
                       ("client", "DNS:client")):
        openssl("req", *key, "-keyout", path(name + ".key"), "-out",
                path(name + ".csr"), "-subj", f"/CN={name}")
        with open(path(name + ".ext"), "w", encoding="ascii") as file:
            file.write(f"subjectAltName={host}\n"
                       "authorityKeyIdentifier=keyid\n")
        openssl("x509", "-req", "-in", path(name + ".csr"), "-CA",
                path("ca.pem"), "-CAkey", path("ca.key"), "-CAcreateserial",
                "-days", "2", "-extfile", path(name + ".ext"), "-out",
                path(name + ".pem"))


def run_scenario(path, command, folder, lacks):
    """(outcome, words, lines) of one; no exception."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    may_lack = MAY_LACK.search(text)
    if may_lack and may_lack[1] in lacks:
        return "skipped", lacks[may_lack[1]], []
    run = Run(text, command, folder)
    try:
        run.play()
        return "passed", "", run.log
    except Mismatch as error:
        return "failed", str(error), [*run.log, run.driver.errors()]
    except Exception as error:  # a fault of the scenario, or of the runner
        return "failed", repr(error), [*run.log, run.driver.errors()]
    finally:
        run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--driver", required=True, metavar="COMMAND")
    parser.add_argument("--lacks", metavar="WORD=REASON", action="append",
                        default=[], type=lambda text: text.split("=", 1))
    parser.add_argument("-k", metavar="NAME", help="a part of a name")
    parser.add_argument("-j", type=int, default=4, metavar="JOBS")
    parser.add_argument("-v", action="store_true",
                        help="shows those that pass, and all lines")
    options = parser.parse_args()
    paths = [path for path in sorted(glob.glob(os.path.join(FOLDER, "*.txt")))
             if fnmatch.fnmatch(os.path.basename(path)[:-4],
                                f"*{options.k or ''}*")]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        make_certificates(folder)

        def play(path):
            begin = time.monotonic()
            return *run_scenario(path, options.driver, folder,
                                 dict(options.lacks)), time.monotonic() - begin

        for path, result in zip(paths, pool.map(play, paths)):
            outcome, words, lines, seconds = result
            counts[outcome] += 1
            name = os.path.basename(path)[:-4]
            if outcome != "passed" or options.v:
                print(f"{outcome:7} {seconds:6.2f} s  {name}"
                      + (f": {words}" if words else ""), flush=True)
            if outcome == "failed" or (options.v and options.k):
                for line in lines[-SHOWN_LINES:]:
                    print(f"    {line}", flush=True)
    print("{passed} passed, {failed} failed, {skipped} skipped"
          .format(**counts))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
