#!/usr/bin/env python3
"""Builds the packages of the clients, as their users install them.

    packages.py NAME...          into build/clients/NAME
    packages.py --check NAME...  the same, and takes a lock with what is
                                 installed from it (c, java; the others have
                                 such a test among their own)
    packages.py --docs NAME...   the pages of the API: build/clients/docs/NAME

All have the version of the Makefile. The tools are those of clients.py.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
OUT = os.path.join(TREE, "build", "clients")
# Where a version stands, beside the Makefile.
VERSIONS = (
    ("proto/clients/python/src/holdfast/__init__.py",
     r'^__version__ = "(.*)"$'),
    ("proto/clients/node/package.json", r'^  "version": "(.*)",$'),
    ("proto/clients/java/pom.xml", r"^  <version>(.*)</version>$"),
    ("packaging/debian/changelog", r"^holdfast \((.*?)\)"),
)


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, cwd=options.pop(
        "cwd", TREE), stdin=subprocess.DEVNULL, **options)


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, **options).stdout


def read(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def the_version():
    version = re.search(r"^VERSION = (.*)$", read("Makefile"), re.M).group(1)
    for path, pattern in VERSIONS:
        found = re.search(pattern, read(path), re.M).group(1)
        if found != version:
            sys.exit(f"{path} has the version {found}, and the Makefile "
                     f"{version}: make them equal")
    return version


VERSION = the_version()


def fresh(name):
    """An empty folder build/clients/NAME."""
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


# --- build ------------------------------------------------------------------

def build_c():
    """What `make install` puts into /usr/local for programs in C."""
    folder = fresh("c")
    name = f"libholdfast-{VERSION}-{os.uname().machine}.tar.gz"
    with tempfile.TemporaryDirectory() as root:
        run("make", "-s", "install-library", f"DESTDIR={root}",
            "PREFIX=/usr/local", stdout=sys.stderr)
        with tarfile.open(os.path.join(folder, name), "w:gz") as tar:
            tar.add(root, ".", filter=owned_by_root)


def owned_by_root(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode |= 0o755 if member.isdir() else 0o644
    return member


def build_go():
    """A module proxy of files: GOPROXY=file://…/build/clients/go."""
    proxy = fresh("go")
    for folder in ("proto/clients/go", "proto/clients/go/gocron"):
        text = re.sub(r"^replace .*\n\n", "", read(f"{folder}/go.mod"),
                      flags=re.M).replace("/go v0.0.0", f"/go v{VERSION}")
        module = re.search(r"^module (\S+)$", text, re.M).group(1)
        place = os.path.join(proxy, module, "@v", f"v{VERSION}")
        write(os.path.join(os.path.dirname(place), "list"), f"v{VERSION}\n")
        write(f"{place}.info", f'{{"Version":"v{VERSION}"}}')
        write(f"{place}.mod", text)
        with zipfile.ZipFile(f"{place}.zip", "w",
                             zipfile.ZIP_DEFLATED) as file:
            for path in module_files(os.path.join(TREE, folder)):
                file.write(os.path.join(TREE, folder, path),
                           f"{module}@v{VERSION}/{path}")
            file.writestr(f"{module}@v{VERSION}/go.mod", text)


def module_files(top):
    """All but go.mod, and but the modules within."""
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in sorted(folders) if not os.path.exists(
            os.path.join(folder, name, "go.mod"))]
        for name in sorted(names):
            if name != "go.mod":
                yield os.path.relpath(os.path.join(folder, name), top)


def build_java():
    """A repository of Maven: jars with sources and javadoc, and their poms."""
    run("mvn", "-q", "-f", "proto/clients/java", "-DskipTests",
        "-pl", "!:holdfast-examples",
        "-Dmaven.install.skip=true",
        f"-DaltDeploymentRepository=build::default::file:{fresh('java')}",
        "deploy")


def build_node():
    run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination",
        fresh("node"), cwd=os.path.join(TREE, "proto/clients/node"),
        stdout=sys.stderr)


def build_python():
    """With `build` and `hatchling` of the package index, which stay in
    build/python-tools."""
    tools = os.path.join(TREE, "build", "python-tools")
    python = os.path.join(tools, "bin", "python")
    if not os.path.exists(os.path.join(tools, "done")):
        run(sys.executable, "-m", "venv", tools)
        run(python, "-m", "pip", "-q", "install", "build", "hatchling")
        write(os.path.join(tools, "done"), "")
    run(python, "-m", "build", "-q", "--no-isolation", "--outdir",
        fresh("python"), os.path.join(TREE, "proto/clients/python"))


# --- check ------------------------------------------------------------------

@contextlib.contextmanager
def dev_broker():
    """The address of a broker."""
    daemon = os.environ.get("HOLDFASTD", "build/holdfastd")
    with subprocess.Popen([daemon, "--dev=0"], cwd=TREE, text=True,
                          stdout=subprocess.PIPE) as process:
        try:
            yield next(match.group(1) for match in map(
                re.compile(r"listening on (127\.0\.0\.1:\d+)").search,
                process.stdout) if match)
        finally:
            process.terminate()


def check_c(folder, address):
    """The example of the page, linked with either library of the package."""
    package, = os.listdir(os.path.join(OUT, "c"))
    with tarfile.open(os.path.join(OUT, "c", package)) as tar:
        tar.extractall(folder)
    text = re.search(r"^```c\n(.*?)^```$", read("proto/clients/c/README.md"),
                     re.M | re.S).group(1)
    write(os.path.join(folder, "example.c"), text)
    library = os.path.join(folder, "usr/local/lib")
    flags = output("pkg-config", "--cflags", "--libs", "holdfast", env={
        **os.environ, "PKG_CONFIG_SYSROOT_DIR": folder,
        "PKG_CONFIG_LIBDIR": os.path.join(library, "pkgconfig")})
    for words in (flags, flags.replace("-lholdfast", "-l:libholdfast.a")):
        run("cc", "-Wall", "-Wextra", "-Werror", "-o", "example", "example.c",
            *shlex.split(words), cwd=folder)
        told = output("./example", address, cwd=folder,
                      env={**os.environ, "LD_LIBRARY_PATH": library})
        assert re.fullmatch(r"fence \d+\n", told), told


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>user</groupId>
  <artifactId>user</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <repositories>
    <repository><id>built</id><url>file:{repository}</url></repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>example.holdfast</groupId>
      <artifactId>holdfast-client</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""
MAIN = """import example.holdfast.*;

public class Main {
    public static void main(String[] arguments) {
        try (Holdfast hf = Holdfast.connect(Options.at(arguments[0]));
                Hold hold = hf.lock("package")) {
            System.out.println("fence " + hold.fence());
        }
    }
}
"""


def check_java(folder, address):
    """A project of Maven that depends on the client. Its repository is
    build/m2, so that the user's own one stays as it is."""
    local = os.path.join(TREE, "build", "m2")
    shutil.rmtree(os.path.join(local, "example"), ignore_errors=True)
    write(os.path.join(folder, "pom.xml"), POM.format(
        repository=os.path.join(OUT, "java"), version=VERSION))
    write(os.path.join(folder, "src/main/java/Main.java"), MAIN)
    run("mvn", "-q", f"-Dmaven.repo.local={local}", "compile", cwd=folder)
    jar = os.path.join(local, "example/holdfast/holdfast-client", VERSION,
                       f"holdfast-client-{VERSION}.jar")
    told = output("java", "-cp", f"target/classes:{jar}", "Main", address,
                  cwd=folder)
    assert re.fullmatch(r"fence \d+\n", told), told


# --- docs -------------------------------------------------------------------

def docs_c(folder):
    """The headers are the pages."""
    for path in ("proto/clients/c/holdfast.h", "proto/tls/holdfast_tls.h"):
        shutil.copy(os.path.join(TREE, path), folder)


def docs_go(folder):
    write(os.path.join(folder, "holdfast.txt"), output(
        "go", "doc", "-all", ".", cwd=os.path.join(TREE, "proto/clients/go")))


def docs_java(folder):
    """Those of the jars."""
    build_java()
    for place, _, names in os.walk(os.path.join(OUT, "java")):
        for name in names:
            if name.endswith("-javadoc.jar"):
                with zipfile.ZipFile(os.path.join(place, name)) as file:
                    file.extractall(os.path.join(folder, name[:-12]))


def docs_node(folder):
    """By typedoc, in build/node-tools with the compiler that it knows."""
    tools = os.path.join(TREE, "build", "node-tools")
    os.makedirs(tools, exist_ok=True)
    run("npm", "install", "--prefix", tools, "--loglevel=error", "--no-audit",
        "--no-fund", "--prefer-offline", "typedoc@0.28", "typescript@5.9")
    run(os.path.join(tools, "node_modules/.bin/typedoc"), "--logLevel",
        "Error", "--out", folder, "src/index.ts",
        cwd=os.path.join(TREE, "proto/clients/node"))


def docs_python(folder):
    run(sys.executable, "-m", "pydoc", "-w", "holdfast", "holdfast.aio",
        cwd=folder, stdout=sys.stderr, env={
            **os.environ,
            "PYTHONPATH": os.path.join(TREE, "proto/clients/python/src")})


def docs(name):
    folder = fresh(os.path.join("docs", name))
    globals()[f"docs_{name}"](folder)
    print(os.path.relpath(folder, TREE))


def check(name):
    build(name)
    with tempfile.TemporaryDirectory() as folder, dev_broker() as address:
        globals()[f"check_{name}"](folder, address)


def build(name):
    globals()[f"build_{name}"]()
    for folder, _, names in os.walk(os.path.join(OUT, name)):
        for file in sorted(names):
            if file.endswith((".whl", ".gz", ".tgz", ".zip", ".jar")):
                print(os.path.relpath(os.path.join(folder, file), TREE))


def main(arguments):
    act = {"--check": check, "--docs": docs}.get(arguments[0], build)
    for name in arguments[act is not build:]:
        act(name)


if __name__ == "__main__":
    main(sys.argv[1:])
