#!/usr/bin/env python3
"""holdfast-failures(7), from packaging/doc/failures.md.

    python3 packaging/man/failures_page.py packaging/doc/failures.md >PAGE

protocol_page.py reads the Markdown. The tables need the headings here. Their
last column names tests, and is left out.
"""

import re
import sys

from protocol_page import Page, guarded, inline, prose

FOR_TESTERS = "shown by"

HEAD = """\
.\\" Made of packaging/doc/failures.md by packaging/man/failures_page.py.
.Dd November 25, 2026
.Dt HOLDFAST-FAILURES 7
.Os
.Sh NAME
.Nm holdfast-failures
.Nd what clients of the lock broker see when something fails
.Sh DESCRIPTION
"""

FOOT = """\
.Sh SEE ALSO
.Xr holdfast.yaml 5 ,
.Xr holdfast-protocol 7 ,
.Xr holdfastd 8
"""


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def table(rows):
    """Each row is a list: its first cell, and one item for each heading."""
    names = cells(rows[0])
    out = ".Bl -tag -width Ds\n"
    for row in map(cells, rows[2:]):
        if len(row) != len(names):
            raise SystemExit(f"{len(row)} cells, not {len(names)}: {row[0]}")
        out += f".It {guarded(inline(row[0]))}\n.Bl -tag -width Ds -compact\n"
        for name, cell in zip(names[1:], row[1:]):
            if name != FOR_TESTERS:
                out += f".It Em {guarded(inline(name))}\n{prose(cell)}"
        out += ".El\n"
    return out + ".El\n"


class Failures(Page):
    table = staticmethod(table)


def without_tests(text):
    """The text without the title and the sentence about the last column."""
    return re.sub(r"\n\*Shown by\*.*?\)\.\n", "\n",
                  text.split("\n", 1)[1], flags=re.DOTALL)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = without_tests(file.read())
    if "hown by*" in text:
        raise SystemExit("the sentence about tests is another one")
    sys.stdout.write(HEAD + Failures(text.splitlines()).body() + FOOT)


if __name__ == "__main__":
    main()
