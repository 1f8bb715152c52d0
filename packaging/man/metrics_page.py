#!/usr/bin/env python3
"""holdfast-metrics(7), from the tables of /metrics.

    python3 packaging/man/metrics_page.py TABLE.def ... >PAGE

An entry is a macro call at the begin of a line; see the head of each table. A
quoted text may have several pieces.
"""

import re
import sys
import textwrap

HEAD = """\
.\\" Made of the tables of metrics by packaging/man/metrics_page.py.
.Dd November 24, 2026
.Dt HOLDFAST-METRICS 7
.Os
.Sh NAME
.Nm holdfast-metrics
.Nd what the lock broker tells Prometheus
.Sh DESCRIPTION
.Xr holdfastd 8
answers GET of
.Pa /metrics
on
.Cm admin.http
in the text format of Prometheus, version 0.0.4.
Each family and its labels are below.
No series has the name of a lock:
.Cm namespace
is the beginning of names that
.Cm namespaces
in
.Xr holdfast.yaml 5
lists, or
.Ql other .
Counters only grow, and begin at 0 when the broker starts.
"""

FOOT = """\
.Sh SEE ALSO
.Xr holdfast.yaml 5 ,
.Xr holdfastd 8
.Pp
Alerts and a dashboard are among the examples in the folder of the package's
documentation.
"""

TITLES = {"gauge": "Gauges", "histogram": "Histograms", "counter": "Counters"}
WORD = re.compile(r'((?:"(?:[^"\\]|\\.)*"\s*)+)|([A-Za-z_0-9]+)')


def calls(text):
    """(macro, arguments) of each entry, in order."""
    for macro, words in re.findall(r"^([A-Z]+)\((.*?)\)$", text,
                                   re.MULTILINE | re.DOTALL):
        yield macro, [
            "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', quoted)) or word
            for quoted, word in WORD.findall(words)]


class Family:
    def __init__(self, name, kind, labels, about):
        self.name = name
        self.kind = kind
        self.labels = [label for label in labels if label]
        self.about = about
        self.parts = []  # (value of the last label, what it is)


def families(text):
    """The metrics of a table. Those of namespaces.def are by namespace."""
    found = {}
    spaces = "namespace and label" in text
    for macro, words in calls(text):
        if macro == "SHOWN":
            name, kind, label, about = words
            found[name] = Family(name, kind, [label], about)
        elif macro == "SINGLE":
            name, about = words
            found[name] = Family(f"{name}_total", "counter", [], about)
        elif macro == "FAMILY":
            name, label, about = words
            found[name] = Family(f"{name}_total", "counter",
                                 ["namespace"] * spaces + [label], about)
        elif macro == "PART":
            _, family, value, about = words
            found[family].parts.append((value, about))
        elif macro != "STAT":
            raise SystemExit(f"{macro}: an entry of no known kind")
    return list(found.values())


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def prose(text):
    """One sentence; no line begins a request."""
    text = escaped(text[:1].upper() + text[1:] + ".")
    return "".join(("\\&" if line[0] in ".'" else "") + line + "\n"
                   for line in textwrap.wrap(text, 78, break_on_hyphens=False))


def entry(family):
    labels = " Ns Brq Ar " + " , ".join(family.labels) \
        if family.labels else ""
    out = f".It Cm holdfast_{family.name}{labels}\n" + prose(family.about)
    if family.parts:
        out += ".Bl -tag -width Ds -compact\n"
        for value, about in family.parts:
            out += f".It Ql {escaped(value)}\n{prose(about)}"
        out += ".El\n"
    return out


def page(found):
    out = HEAD
    for kind, title in TITLES.items():
        out += f".Ss {title}\n.Bl -tag -width Ds\n"
        out += "".join(entry(family) for family in found
                       if family.kind == kind)
        out += ".El\n"
    return out + FOOT


def main():
    found = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            found += families(file.read())
    sys.stdout.write(page(found))


if __name__ == "__main__":
    main()
