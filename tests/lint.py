#!/usr/bin/env python3
"""The rules of this tree that no compiler knows. See RULES at the end.

    lint.py [--tree FOLDER] [--build FOLDER]

--build is where the objects are (`make lint` has them made). Each rule prints
what it looked at, each finding `FILE:LINE: what`; the exit status is 1 where
there was any.
"""

import argparse
import os
import re
import subprocess
import sys

import words

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

TOP_LEVEL = {"Makefile", "README.md", "LICENSE", "daemon", "proto", "conf",
             "lua", "tests", "packaging", "systemd"}
# And dot files.
NOT_OURS = {"build", "__pycache__", "corpus", "dist", "node_modules"}

# --- layers ---------------------------------------------------------------

PURE_HEADERS = {
    "ctype.h", "endian.h", "errno.h", "inttypes.h", "limits.h", "stdarg.h",
    "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h"}
FOREIGN = ("event2/", "hiredis/", "hiredis.h", "read.h", "sds.h", "yaml.h",
           "systemd/", "jansson.h", "openssl/", "lua", "check.h")

# folder: folders of ours that it may include, headers of libc (None: all),
# beginnings of foreign headers
LAYERS = {
    "daemon/base": (
        ("daemon/base",),
        PURE_HEADERS | {"sys/mman.h", "sanitizer/asan_interface.h"}, ()),
    "proto": (("daemon/base", "proto"), PURE_HEADERS, ()),
    "daemon/op": (("daemon/base", "proto", "daemon/op"), PURE_HEADERS, ()),
    "daemon/core": (
        ("daemon/base", "proto", "daemon/op", "daemon/core"), PURE_HEADERS,
        ()),
    "daemon/store": (
        ("daemon/base", "proto", "daemon/op", "daemon/store"), PURE_HEADERS,
        ()),
    "daemon/driver": (
        ("daemon/base", "proto", "daemon/op", "daemon/core", "daemon/store",
         "daemon/driver"), PURE_HEADERS, ()),
    "daemon/io": (
        ("daemon/base", "proto", "proto/tls", "daemon/op", "daemon/driver",
         "daemon/io", "conf"), None,
        ("event2/", "hiredis", "read.h", "sds.h", "openssl/",
         "jansson.h", "systemd/")),
    "daemon": (
        ("daemon/base", "proto", "daemon/driver", "daemon/io",
         "daemon", "conf"), None, ("event2/", "systemd/")),
    "conf": (("daemon/base", "proto", "conf"), None, ("yaml.h",)),
    "proto/clients/c": (("daemon/base", "proto", "proto/clients/c"), None, ()),
    "proto/clients/c/driver": (
        ("proto/clients/c", "proto/clients/c/driver", "proto/tls"), None, ()),
    "proto/tls": (("proto/clients/c", "proto/tls"), None, ("openssl/",)),
    "proto/holdfast": (
        ("daemon/base", "proto", "proto/clients/c", "proto/tls",
         "proto/holdfast"), None, ()),
}

# Sub-folders of a layer, from below: a file reaches its own folder and those
# before it. The layer's own folder ("") is on top, and its headers are what all
# others see of the layer.
STAIRS = {
    "daemon/core": ("model", "answer", "ticket", "feature", "command", ""),
    "daemon/store": (
        "wire", "model", "node", "strict", "queue", "conn", "topology", ""),
}

# Go packages that know of no world outside, and what they import.
GO_PURE = "/internal/"
GO_IMPORTS = {"errors", "fmt", "math", "slices", "sort", "strconv", "strings",
              "time"}

# --- symbols --------------------------------------------------------------

MEMORY = {
    "malloc", "calloc", "realloc", "reallocarray", "free", "mmap", "munmap",
    "posix_memalign", "aligned_alloc", "strdup", "strndup", "asprintf",
    "vasprintf"}
OUTSIDE = {
    "socket", "bind", "listen", "accept", "accept4", "connect", "shutdown",
    "send", "sendto", "sendmsg", "recv", "recvfrom", "recvmsg", "read",
    "write", "readv", "writev", "open", "openat", "close", "poll", "ppoll",
    "select", "epoll_create1", "epoll_ctl", "epoll_wait", "pipe", "pipe2",
    "eventfd", "timerfd_create", "getaddrinfo", "clock_gettime",
    "gettimeofday", "time", "clock", "nanosleep", "usleep", "sleep",
    "getrandom", "getentropy", "rand", "srand", "random", "srandom",
    "drand48", "printf", "vprintf", "fprintf", "vfprintf", "dprintf", "puts",
    "putchar", "fputs", "fputc", "fwrite", "fread", "fgets", "perror",
    "fopen", "fclose", "stdout", "stderr", "getenv", "fork", "execve",
    "signal", "sigaction", "pthread_create", "localtime", "gmtime"}
OUTSIDE_BEGINNINGS = ("event_", "evutil_", "evhttp_", "bufferevent_",
                      "evbuffer_", "redis", "yaml_", "sd_")

# Folders that know of no world outside, and whether they may take memory.
PURE_FOLDERS = {"daemon/base": True, "proto": False, "daemon/core": False,
                "daemon/store": False, "daemon/op": False,
                "daemon/driver": False}
# What single objects may use all the same: they create what is taken at
# start, or are the end of a broken promise; or keep what Redis has said, and
# can do without.
SYMBOLS_ALLOWED = {
    "daemon/base/assert": {"fprintf", "stderr"},
    "daemon/core/core": MEMORY,
    "daemon/core/model/effects": MEMORY,
    "daemon/store/node/conn": {"free"},
    "daemon/store/topology/quorum": MEMORY,
    "daemon/store/strict/replicas": MEMORY,
    "daemon/store/topology/round": MEMORY,
    "daemon/store/topology/vote": MEMORY,
    "daemon/store/store": MEMORY,
    "daemon/store/strict/strict": MEMORY,
}

# --- text -----------------------------------------------------------------

COLUMNS = 80
FUNCTION_LINES = 70
FUNCTION_LINES_TESTS = 90
FILE_LINES = 800
HEADER_LINES = 250
# Its users have it as one file, which tells them all.
PUBLIC_HEADERS = {"proto/clients/c/holdfast.h"}
# Files and functions that are longer still, and how long each may be. The list
# only shrinks.
LONGER = {
}
DECLARED = re.compile(
    r"^(?!typedef|static|extern|#|struct \w+ ?\{)"
    r"(?:[\w]+[ *]+)+(?P<name>\w+)\((?!\*)[^{}()]*(?:\([^{}()]*\)[^{}()]*)*\)"
    r"[^{};]*;", re.M)
COMMENT = re.compile(r"^/\*(?:(?!\*/).)*\*/\n\Z", re.M | re.S)
FILE_NAME = re.compile(r"/\*\s*[\w, ]+\.[ch]:?\s*\*/")
COVERED_MOST = 3  # declarations below one comment
BANNED = re.compile(
    r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atoll|gets|rand|"
    r"srand|gettimeofday)\s*\(")
NARROW = (".c", ".h", ".def", ".py", ".lua", ".sh", ".go", ".ts", ".mjs",
          "Makefile", ".ci/run")
PLAIN = NARROW + (".md", ".yaml", ".yml", ".service", ".socket", ".conf",
                  ".clang-tidy", ".clang-format", "LICENSE", ".dict")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
NOT_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
ENUM = re.compile(r"\benum(?: \w+)? \{([^}#]*)\}")
COUNTS = re.compile(r"(^|_)(COUNT|KINDS|PARTS|PURPOSES)$")
TABLE = re.compile(r"= \{\s*(\[\w+\] =[^;]*)\};")
GAP = r"\s+(?:(?:\*|--|#)\s+)?"  # a new line of a comment, too
CITED = re.compile(rf"DESIGN\.md((?:(?:,|,? and|,? to)?{GAP}D[\d.]*\d)+)")
NAMED = re.compile(r"[\w/.-]*\w\.(?:c|h|def|lua|py|md|yaml)\b")
FOREIGN_FILES = {"sysexits.h"}
SECTION = re.compile(r"\bD\d+(?:\.\d+)?\b")
INCLUDE = re.compile(r"^\s*#\s*include\s+([<\"])([^>\"]+)[>\"]")


class Lint:
    """The tree, read once, and the findings."""

    def __init__(self, tree, build):
        self.tree = tree
        self.build = build
        self.findings = 0
        self.files = sorted(self._walk())
        self.sources = [path for path in self.files
                        if path.endswith((".c", ".h"))]
        self.go = [path for path in self.files if path.endswith(".go")]

    def _walk(self):
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [name for name in folders if name not in NOT_OURS
                          and (not name.startswith(".") or name == ".ci")]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.tree)

    def read(self, path):
        with open(os.path.join(self.tree, path), encoding="utf-8",
                  errors="replace") as source:
            return source.read()

    def finding(self, path, line, what):
        self.findings += 1
        print(f"{path}:{line}: {what}" if line else f"{path}: {what}")


def code_of(text):
    """The text with comments and strings emptied, lines kept."""
    return NOT_CODE.sub(
        lambda match: "\n" * match.group().count("\n"), text)


def layer_of(path):
    """The folder of LAYERS that the file is in."""
    folder = os.path.dirname(path)
    return next((top for top, stairs in STAIRS.items()
                 if folder.startswith(top + "/") and
                 folder[len(top) + 1:] in stairs), folder)


def stair(path):
    """The place of the file's sub-folder in STAIRS; 0 without one."""
    layer = layer_of(path)
    stairs = STAIRS.get(layer, ("",))
    return stairs.index(os.path.dirname(path)[len(layer) + 1:])


def may_include(path, header):
    layer = layer_of(header)
    if os.path.dirname(header) == layer:
        return layer in LAYERS[layer_of(path)][0]
    return layer == layer_of(path) and stair(header) <= stair(path)


def check_include(lint, path, number, bracket, header):
    folder = layer_of(path)
    _, libc, foreign = LAYERS[folder]
    if bracket == '"':
        if not may_include(path, header):
            lint.finding(path, number,
                         f"{os.path.dirname(path)} may not include {header}")
    elif header.startswith(FOREIGN):
        if not header.startswith(foreign or ("\0",)):
            lint.finding(path, number, f"{folder} may not use <{header}>")
    elif libc is not None and header not in libc:
        lint.finding(path, number, f"{folder} is pure: no <{header}>")


def check_go(lint, path):
    """Returns how many packages a Go file imports."""
    found = re.search(r"^import (?:\((.*?)^\)|(\S+))", lint.read(path),
                      re.M | re.S)
    names = re.findall(r'"([^"]+)"', found.group()) if found else []
    for name in names:
        if GO_PURE in path and name not in GO_IMPORTS and GO_PURE not in name:
            lint.finding(path, 0, f"is pure: no {name}")
    return len(names)


def rule_layers(lint):
    """folders that may include one another"""
    count = sum(check_go(lint, path) for path in lint.go
                if not path.endswith("_test.go"))
    for path in lint.sources:
        if path.startswith("tests/"):
            continue
        if layer_of(path) not in LAYERS:
            lint.finding(path, 0, "C file in a folder that is no layer")
            continue
        for number, line in enumerate(lint.read(path).splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                count += 1
                check_include(lint, path, number, *match.groups())
    return f"{count} includes"


def plain_symbol(symbol):
    """The name as written in C: no fortify, version or large-file dress."""
    symbol = symbol.split("@")[0]
    match = re.fullmatch(r"__(\w+?)_chk(?:_warn)?", symbol)
    if match:
        symbol = match.group(1)
    symbol = re.sub(r"^__(isoc\d+_)?(?=[a-z])", "", symbol)
    return re.sub(r"(?<=[a-z])64$", "", symbol)


def symbols(path, which):
    output = subprocess.run(["nm", which, path], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    return {plain_symbol(line.split()[-1])
            for line in output.splitlines() if line.strip()}


def check_symbols(lint, stem, item, own):
    folder = layer_of(stem)
    banned = OUTSIDE if PURE_FOLDERS[folder] else OUTSIDE | MEMORY
    used = symbols(item, "-u") - own - SYMBOLS_ALLOWED.get(stem, set())
    for symbol in sorted(used):
        if symbol in banned or symbol.startswith(OUTSIDE_BEGINNINGS):
            lint.finding(stem + ".c", 0, f"may not use {symbol}")


def rule_symbols(lint):
    """symbols that base, proto, core and store may link with"""
    items = {}
    for path in lint.sources:
        if layer_of(path) in PURE_FOLDERS and path.endswith(".c"):
            stem = path[:-len(".c")]
            items[stem] = os.path.join(lint.build, "obj", stem + ".o")
    for stem in [stem for stem in items if not os.path.exists(items[stem])]:
        lint.finding(stem + ".c", 0, f"has no object {items.pop(stem)}")
    own = set().union(*(symbols(item, "--defined-only")
                        for item in items.values()))
    for stem, item in items.items():
        check_symbols(lint, stem, item, own)
    return f"{len(items)} objects"


def components(edges):
    """The strongly connected components of {node: set of nodes} (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def circles(items):
    """The groups of files that reach one another, of {name: object file}."""
    owner = {}
    for name, item in items.items():
        for symbol in symbols(item, "--defined-only"):
            owner[symbol] = name
    edges = {}
    for name, item in items.items():
        used = {owner.get(symbol) for symbol in symbols(item, "-u")}
        edges[name] = used - {None, name}
    return [group for group in components(edges) if len(group) > 1]


def object_of(lint, path):
    return os.path.join(lint.build, "obj", path[:-len(".c")] + ".o")


def rule_upwards(lint):
    """symbols of a layer's sub-folders, which are reached downwards alone"""
    count = 0
    for layer in STAIRS:
        paths = [path for path in lint.sources
                 if path.endswith(".c") and layer_of(path) == layer]
        owner = {symbol: path for path in paths
                 for symbol in symbols(object_of(lint, path), "--defined-only")}
        found = [(path, symbol) for path in paths
                 for symbol in symbols(object_of(lint, path), "-u") & set(owner)
                 if stair(owner[symbol]) > stair(path)]
        count += len(owner)
        for path, symbol in sorted(found):
            lint.finding(path, 0,
                         f"reaches up to {symbol}() of {owner[symbol]}")
    return f"{count} symbols"


def rule_circles(lint):
    """files of a folder that reach one another in a circle, by their symbols"""
    folders = sorted(set(map(layer_of, lint.sources)) & set(LAYERS))
    for folder in folders:
        items = {}
        for path in lint.sources:
            if layer_of(path) == folder and path.endswith(".c"):
                items[path] = object_of(lint, path)
        found = sum(circles(items), [])
        if found:
            lint.finding(folder, 0, f"{len(found)} files reach one another in "
                         f"a circle: {' '.join(found)}")
    return f"{len(folders)} folders"


def rule_heads(lint):
    """files that begin with what they are for"""
    count = 0
    for path in lint.files:
        if not path.endswith((".c", ".h", ".def", ".py")):
            continue
        count += 1
        text = re.sub(r"^#![^\n]*\n", "", lint.read(path))
        if text and not text.startswith(("/*", '"""')):
            lint.finding(path, 1, "has no head comment")
    return f"{count} files"


def functions(lines):
    """(name, first line, count of lines) of each function definition."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
            while start > 1 and re.match(r"[\w ].*[^;]$", lines[start - 2]):
                start -= 1
        elif line.startswith("}") and start is not None:
            head = " ".join(lines[start - 1:number])
            name = re.search(r"START_TEST\((\w+)|(\w+) ?\((?!\()", head)
            yield (name.group(1) or name.group(2) if name else "?"), start, \
                number - start + 1
            start = None


def go_functions(lines):
    """As functions(), for Go."""
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("func ") and not line.endswith("}"):
            start = number
        elif line.startswith("}") and start is not None:
            name = re.match(r"func (?:\([^)]*\) )?(\w+)", lines[start - 1])
            yield name.group(1), start, number - start + 1
            start = None


def check_length(lint, path, number, name, length, most):
    """The name is that of LONGER, and has the path in front."""
    if length > LONGER.get(name, most):
        what = name[len(path):].lstrip(": ") or "the file"
        lint.finding(path, number, f"{what} has {length} lines; "
                     f"{LONGER.get(name, most)} are the most")
    elif name in LONGER and length <= most:
        lint.finding(path, number, f"take {name} out of LONGER: {length} lines")


def rule_functions(lint):
    """how long functions are"""
    count = 0
    for path in lint.sources + lint.go:
        most = (FUNCTION_LINES_TESTS if path.startswith("tests/") or
                path.endswith("_test.go") else FUNCTION_LINES)
        parts = go_functions if path.endswith(".go") else functions
        for name, number, length in parts(lint.read(path).splitlines()):
            count += 1
            check_length(lint, path, number, f"{path}: {name}()", length, most)
    return f"{count} functions"


def rule_files(lint):
    """how long the files of the product are"""
    paths = [path for path in lint.sources + lint.go
             if not path.startswith("tests/") and path not in PUBLIC_HEADERS]
    for path in paths:
        check_length(lint, path, 0, path, lint.read(path).count("\n"),
                     HEADER_LINES if path.endswith(".h") else FILE_LINES)
    for name in sorted(LONGER):
        if name.split(":")[0] not in paths:
            lint.finding(name.split(":")[0], 0, "is in LONGER, and no file")
    return f"{len(paths)} files"


def comments(text, start):
    """Whether a comment that says more than a file's name ends at `start`."""
    match = COMMENT.search(text, text.rfind("\n/*", 0, start) + 1, start)
    return bool(match) and not FILE_NAME.match(match.group())


def declared(text):
    """How many functions a header declares; (name, offset) without a comment.
    A comment holds for up to three declarations in a row."""
    found = list(DECLARED.finditer(text))
    bare, end, left = [], None, 0
    for match in found:
        if comments(text, match.start()):
            left = COVERED_MOST
        elif match.start() != end:
            left = 0
        if left == 0:
            bare.append((match["name"], match.start()))
        left = max(left - 1, 0)
        end = match.end() + 1
    return len(found), bare


def rule_declared(lint):
    """functions that a header of the product declares, with a comment"""
    count = 0
    for path in lint.sources:
        if path.startswith("tests/") or not path.endswith(".h"):
            continue
        text = lint.read(path)
        found, bare = declared(text)
        count += found
        for name, offset in bare:
            lint.finding(path, text.count("\n", 0, offset) + 1,
                         f"{name}() has no comment")
    return f"{count} functions"


def rule_banned(lint):
    """calls that are not to be used"""
    for path in lint.sources:
        code = code_of(lint.read(path))
        for number, line in enumerate(code.splitlines(), 1):
            for match in BANNED.finditer(line):
                lint.finding(path, number, f"{match.group(1)}() is banned")
    return f"{len(lint.sources)} files"


def check_line(lint, path, number, line):
    go = path.endswith(".go")
    columns = len(line.expandtabs(4)) if go else len(line)
    if path.endswith(NARROW) and columns > COLUMNS:
        lint.finding(path, number, f"{columns} columns")
    if "\t" in line and os.path.basename(path) != "Makefile" and not go:
        lint.finding(path, number, "tab")
    if line != line.rstrip():
        lint.finding(path, number, "trailing blank")
    match = UNFINISHED.search(line)
    if match:
        lint.finding(path, number, f"{match.group(1)} left")


def rule_text(lint):
    """columns, tabs, trailing blanks, things left undone"""
    count = 0
    for path in lint.files:
        if not path.endswith(PLAIN):
            continue
        count += 1
        text = lint.read(path)
        for number, line in enumerate(text.split("\n"), 1):
            check_line(lint, path, number, line)
        if text and not text.endswith("\n"):
            lint.finding(path, 0, "no newline at the end")
    return f"{count} files"


def enumerations(codes):
    """The enumerators of the enum that each one is of, but for a count."""
    found = {}
    for code in codes:
        for body in ENUM.findall(code):
            names = re.findall(r"(?:^|,)\s*(\w+)", body)
            names = [name for name in names if not COUNTS.search(name)]
            found.update(dict.fromkeys(names, names))
    return found


def rule_holes(lint):
    """tables by enumerators that have all of them"""
    codes = {path: code_of(lint.read(path)) for path in lint.sources
             if not path.startswith("tests/")}
    known = enumerations(codes.values())
    count = 0
    for path, code in codes.items():
        for table in TABLE.finditer(code):
            rows = re.findall(r"(?:^|,)\s*\[(\w+)\] =", table.group(1))
            number = code.count("\n", 0, table.start()) + 1
            count += 1
            for name in known.get(rows[0], rows):
                if name not in rows:
                    lint.finding(path, number, f"has no row for {name}")
    return f"{count} tables"


def rule_top(lint):
    """names in the top folder"""
    names = [name for name in os.listdir(lint.tree)
             if not name.startswith(".") and name != "build"]
    for name in sorted(names):
        if name not in TOP_LEVEL:
            lint.finding(name, 0, "is not one of the top folder's names")
    return f"{len(names)} names"


def rule_design(lint):
    """sections of daemon/DESIGN.md that are cited"""
    design = os.path.join("daemon", "DESIGN.md")
    known = set(re.findall(r"^#+ (D[\d.]*\d) ", lint.read(design), re.M))
    count = 0
    for path in lint.files:
        text = lint.read(path) if path.endswith(PLAIN) else ""
        inside = os.path.dirname(path) == "daemon" and path.endswith(".md")
        for cited in (SECTION if inside else CITED).finditer(text):
            for section in SECTION.findall(cited.group()):
                count += 1
                if section not in known:
                    lint.finding(path, text.count("\n", 0, cited.start()) + 1,
                                 f"DESIGN.md has no section {section}")
    return f"{count} citations"


def anchors(text):
    """The anchors of a page: of its headings, as GitHub makes them, and ids."""
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if slug not in found else slug + "-1")
    return found


def rule_names(lint):
    """files that comments of C name"""
    known = {os.path.basename(path) for path in lint.files} | FOREIGN_FILES
    count = 0
    for path in lint.sources:
        text = lint.read(path) if not path.startswith("tests/") else ""
        for comment in re.finditer(r"/\*.*?\*/", text, re.S):
            for name in NAMED.finditer(comment.group()):
                count += 1
                if os.path.basename(name.group()) not in known:
                    lint.finding(
                        path, text.count("\n", 0,
                                         comment.start() + name.start()) + 1,
                        f"there is no {name.group()}")
    return f"{count} names"


def rule_links(lint):
    """links of documents to files and headings that exist"""
    pages = {path: re.sub(r"(?ms)^```.*?^```$|`[^`\n]+`", lambda match:
                          "\n" * match.group().count("\n"), lint.read(path))
             for path in lint.files if path.endswith(".md")}
    count = 0
    for path, text in pages.items():
        for link in re.finditer(r"\]\(([^)\s]*)\)", text):
            file, _, anchor = link.group(1).partition("#")
            if "://" in file:
                continue
            count += 1
            number = text.count("\n", 0, link.start()) + 1
            target = os.path.normpath(os.path.join(
                os.path.dirname(path), file)) if file else path
            if not os.path.exists(os.path.join(lint.tree, target)):
                lint.finding(path, number, f"links to {file}, which is no file")
            elif anchor and anchor not in anchors(lint.read(target)):
                lint.finding(path, number, f"links to {link.group(1)}, which "
                             "is no heading")
    return f"{count} links"


def rule_words(lint):
    """sentences of over 30 words, or that open with who, what or where"""
    count = 0
    for group, told, allowed in words.groups(lint.files, lint.read):
        findings = sum(words.is_finding(sentence) for _, sentence, _ in told)
        count += len(told)
        if findings > allowed:
            lint.finding("tests/words.py", 0, f"{findings} findings in "
                         f"{group}, {allowed} allowed: words.py --list "
                         f"'{group}'")
        elif findings < allowed:
            print(f"note: {group} has {findings} findings: lower its number "
                  f"{allowed} in tests/words.py")
    return f"{count} sentences"


RULES = (rule_top, rule_heads, rule_layers, rule_symbols, rule_upwards,
         rule_circles, rule_functions, rule_files, rule_declared, rule_banned,
         rule_text, rule_holes, rule_design, rule_names, rule_links,
         rule_words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", default=TREE)
    parser.add_argument("--build", default=os.path.join(TREE, "build"))
    options = parser.parse_args()
    lint = Lint(options.tree, options.build)
    for rule in RULES:
        before = lint.findings
        what = rule(lint)
        name = rule.__name__[len("rule_"):]
        print(f"lint: {name}: {rule.__doc__}: {what}, "
              f"{lint.findings - before} findings")
    return 1 if lint.findings else 0


if __name__ == "__main__":
    sys.exit(main())
