#!/usr/bin/env python3
"""holdfast-protocol(7), from proto/PROTOCOL.md, the normative text.

    python3 packaging/man/protocol_page.py proto/PROTOCOL.md >PAGE

It reads the Markdown of that page: headings, paragraphs, lists of one depth
with paragraphs and code, tables, code in fences or by indent. Within a line it
reads code, bold and links.
"""

import re
import sys
import textwrap

HEAD = """\
.\\" Made of proto/PROTOCOL.md by packaging/man/protocol_page.py.
.Dd November 23, 2026
.Dt HOLDFAST-PROTOCOL 7
.Os
.Sh NAME
.Nm holdfast-protocol
.Nd wire protocol of the lock broker
.Sh DESCRIPTION
"""

FOOT = """\
.Sh SEE ALSO
.Xr holdfast 1 ,
.Xr holdfast.yaml 5 ,
.Xr holdfastd 8
"""

LIST = re.compile(r"^(?:- |\d+\. )(?=\S)")


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    for sign, name in (("…", "..."), ("—", "\\(em"), ("'", "\\(aq"),
                       ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(sign, name)
    return text


def inline(text):
    """Code and words in bold, links as their text."""
    text = re.sub(r"\[((?:[^]`]|`[^`]*`)*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"(``? ?.+? ?``?|\*\*.+?\*\*|(?<!\w)\*[^* ][^*]*\*)", text)
    out = ""
    for part in parts:
        if part.startswith("`"):
            out += f"\\fB{escaped(part.strip('`').strip())}\\fP"
        elif part.startswith("**"):
            out += f"\\fB{inline(part[2:-2])}\\fP"
        elif part.startswith("*") and len(part) > 2:
            out += f"\\fI{inline(part[1:-1])}\\fP"
        else:
            out += escaped(part)
    return out


def guarded(line):
    return ("\\&" if line[:1] in (".", "'") else "") + line


def prose(text):
    out = ""
    for sentence in re.split(r"(?<=[.:;]) (?=[A-Z([])", " ".join(text.split())):
        for line in textwrap.wrap(inline(sentence), 78, break_on_hyphens=False,
                                  break_long_words=False):
            out += guarded(line) + "\n"
    return out


def literal(lines):
    indent = min((len(line) - len(line.lstrip()) for line in lines
                  if line.strip()), default=0)
    body = "".join(guarded(escaped(line[indent:])) + "\n" for line in lines)
    return f".Bd -literal -offset indent\n{body}.Ed\n"


def table(rows):
    """The first cell of a row is a tag, and the others follow. The third and
    later ones have the heads of their columns before them."""
    cells = [[cell.strip().replace("\\|", "|") for cell in
              re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows]
    out = ".Bl -tag -width Ds\n"
    for first, *others in cells[2:]:
        out += f".It {guarded(inline(first)) or 'none'}\n"
        said = others[:1] + [f"{head}: {cell}" for head, cell in
                             zip(cells[0][2:], others[1:]) if cell]
        out += prose("; ".join(cell.rstrip(".") for cell in said if cell))
    return out + ".El\n"


class Page:
    """Reads lines, one block after the other."""

    def __init__(self, lines):
        self.lines = lines
        self.at = 0
        self.fresh = True  # only a heading stands before

    table = staticmethod(table)

    def block(self, fits):
        begin = self.at
        while self.at < len(self.lines) and fits(self.lines[self.at]):
            self.at += 1
        return self.lines[begin:self.at]

    def paragraph(self):
        text = self.block(lambda line: line.strip() and not re.match(
            r"#|```|\||- |\d+\. ", line))
        pause = "" if self.fresh else ".Pp\n"
        self.fresh = False
        return pause + prose("\n".join(text))

    def fence(self):
        self.at += 1
        text = self.block(lambda line: not line.startswith("```"))
        self.at += 1
        self.fresh = False
        return literal(text)

    def items(self):
        numbered = self.lines[self.at][0].isdigit()
        out = f".Bl -{'enum' if numbered else 'bullet'}\n"
        while self.at < len(self.lines) and LIST.match(self.lines[self.at]):
            width = LIST.match(self.lines[self.at]).end()
            item = [self.lines[self.at][width:]]
            self.at += 1
            while self.at < len(self.lines) and (
                    not self.lines[self.at].strip() or
                    self.lines[self.at].startswith("  ")):
                item.append(self.lines[self.at][min(width, 3):])
                self.at += 1
            out += ".It\n" + Page(item).body()
        self.fresh = False
        return out + ".El\n"

    def heading(self):
        marks, text = self.lines[self.at].split(" ", 1)
        self.at += 1
        self.fresh = True
        if marks == "##":
            return f".Sh {inline(text.upper())}\n"
        return f".Ss {inline(text)}\n"

    def body(self):
        out = ""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip():
                self.at += 1
            elif line.startswith("#"):
                out += self.heading()
            elif line.startswith("```"):
                out += self.fence()
            elif line.startswith("    "):
                self.fresh = False
                out += literal([row for row in self.block(
                    lambda row: row.startswith("    ") or not row.strip())
                    if row.strip()])
            elif line.startswith("|"):
                self.fresh = False
                out += self.table(self.block(lambda row: row.startswith("|")))
            elif LIST.match(line):
                out += self.items()
            else:
                out += self.paragraph()
        return out


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read().splitlines()
    sys.stdout.write(HEAD + Page(lines[1:]).body() + FOOT)


if __name__ == "__main__":
    main()
