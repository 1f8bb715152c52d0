#!/usr/bin/env python3
"""Checks the packages of `make deb`: their files, and that their programs run.

    python3 packaging/debian/inspect.py FOLDER VERSION
"""

import glob
import os
import subprocess
import sys
import tempfile

# some files of each package
CONTENTS = {
    "holdfastd": ("usr/sbin/holdfastd", "etc/holdfast/holdfast.yaml",
                  "lib/systemd/system/holdfastd.service",
                  "lib/systemd/system/holdfastd.socket",
                  "lib/systemd/system/holdfastd@.service",
                  "usr/lib/sysusers.d/holdfast.conf",
                  "usr/share/man/man8/holdfastd.8.gz",
                  "usr/share/man/man5/holdfast.yaml.5.gz",
                  "usr/share/man/man7/holdfast-failures.7.gz",
                  "usr/share/man/man7/holdfast-metrics.7.gz",
                  "usr/share/man/man7/holdfast-protocol.7.gz",
                  "usr/share/doc/holdfastd/examples/grafana/holdfast.json",
                  "usr/share/doc/holdfastd/examples/holdfast.yaml",
                  "usr/share/doc/holdfastd/examples/minimal.yaml"),
    "holdfast": ("usr/bin/holdfast", "usr/share/man/man1/holdfast.1.gz",
                 "usr/share/bash-completion/completions/holdfast",
                 "usr/share/holdfast/resource/take.lua"),
    "libholdfast1": ("usr/lib/*/libholdfast.so.1", "DEBIAN/symbols"),
    "libholdfast-tls1": ("usr/lib/*/libholdfast-tls.so.1", "DEBIAN/symbols"),
    "libholdfast-dev": ("usr/include/holdfast.h",
                        "usr/lib/*/libholdfast.a",
                        "usr/lib/*/libholdfast.so",
                        "usr/lib/*/libholdfast-tls.so",
                        "usr/lib/*/pkgconfig/holdfast.pc",
                        "usr/lib/*/pkgconfig/holdfast-tls.pc"),
}


def output(*command):
    return subprocess.run(command, check=True, text=True, timeout=60,
                          stdout=subprocess.PIPE).stdout


def look_at(package, name, version):
    """Of one package; what is wrong with it, a line each."""
    with tempfile.TemporaryDirectory() as root:
        output("dpkg-deb", "-R", package, root)
        for path in CONTENTS[name]:
            if not glob.glob(os.path.join(root, path)):
                yield f"{path} is missing"
        for program in glob.glob(os.path.join(root, "usr/*bin/*")):
            told = output(program, "-V").strip()
            if told not in (f"{os.path.basename(program)} {version}",
                            f"{os.path.basename(program)}/{version}"):
                yield f"{program} says to be {told}"
    told = output("dpkg-deb", "-f", package, "Version").strip()
    if told != version:
        yield f"its version is {told}"


def main(folder, version):
    status = 0
    for name in CONTENTS:
        found = glob.glob(os.path.join(folder, f"{name}_{version}_*.deb"))
        wrong = list(look_at(found[0], name, version)) if found else [
            "there is no such package"]
        for line in wrong:
            print(f"{name}: {line}", file=sys.stderr)
            status = 1
        print("\n".join(found))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
