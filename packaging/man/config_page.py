#!/usr/bin/env python3
"""holdfast.yaml(5), from the keys, defaults and comments of conf/holdfast.yaml.

    python3 packaging/man/config_page.py conf/holdfast.yaml >holdfast.yaml.5

A comment belongs to the key below it. A key behind a # has no fixed default. A
key without a comment shares the one before it. The mark behind a key says
whether a reload takes it.
"""

import re
import sys
import textwrap

HEAD = """\
.\\" Made of conf/holdfast.yaml by packaging/man/config_page.py.
.Dd November 23, 2026
.Dt HOLDFAST.YAML 5
.Os
.Sh NAME
.Nm holdfast.yaml
.Nd configuration of the lock broker
.Sh DESCRIPTION
.Xr holdfastd 8
reads
.Pa /etc/holdfast/holdfast.yaml ,
or what its option
.Fl c
names: sections, keys and values in YAML.
A key that is left out has its default;
one that is unknown or doubled, or a bad value, is refused with its place,
line and column.
.Ql holdfastd -t
checks a file, and
.Ql holdfastd --print-config
prints what is in force.
"""

FOOT = """\
.Sh FILES
.Bl -tag -width Ds
.It Pa /etc/holdfast/holdfast.yaml
The configuration; as installed it shows every key with its default.
.El
.Sh SEE ALSO
.Xr holdfast 1 ,
.Xr holdfast-protocol 7 ,
.Xr holdfastd 8
"""

KEY = re.compile(r"^(?P<indent> *)(?P<off>#?)(?P<name>[a-z_]+):"
                 r"(?: (?P<value>.*?)(?:  # (?P<mark>\w+))?)?$")
MARKS = {None: "", "reload": "A reload takes a new value.\n",
         "restart": "A new value waits for a restart.\n"}
# An example item of a list that is empty by default.
ITEM = re.compile(r"^# +(?:- )?(?P<name>[a-z_]+): \S+ +# (?P<about>.*)$")


def joined(comment):
    """The comment with one line for each paragraph, item or example line."""
    text = "\n".join(line.lstrip("#")[1:] for line in comment)
    text = re.sub(r"(?<!\n)\n(?!\n|- |    ) *", " ", text)
    return re.sub(r"\n+", "\n", text)


def entries(lines):
    """(dotted path, default, comment, mark) of each key; a section has no
    default, and a key that follows others has None."""
    sections, comment, last = [], [], None
    for line in lines:
        key = KEY.match(line)
        item = ITEM.match(line)
        if item:
            yield f"{last}.{item['name']}", None, item["about"], None
        elif not line.strip():
            comment = []
        elif key is None or (key["off"] and key["indent"] == ""):
            comment.append(line.strip())
        else:
            indent = len(key["indent"])
            while sections and sections[-1][0] >= indent:
                sections.pop()
            path = ".".join([name for _, name in sections] + [key["name"]])
            value = None if key["off"] else key["value"] or ""
            if value == "":
                sections.append((indent, key["name"]))
            yield path, value, joined(comment), key["mark"]
            comment, last = [], path


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")


def sentences(text):
    """One sentence a line, as in manuals; no line begins a request."""
    for sentence in re.split(r"(?<=[.:;]) (?=[A-Z0-9])", escaped(text)):
        for line in textwrap.wrap(sentence, 78, break_on_hyphens=False):
            yield ("\\&" if line[0] in ".'" else "") + line


def prose(text):
    """Paragraphs, with lists and examples between them."""
    end = ""
    for part in text.split("\n") + [""]:
        item, code = part.startswith("- "), part.startswith("    ")
        begin, wanted = ((".Bl -dash -compact", ".El") if item else
                         (".Bd -literal", ".Ed") if code else ("", ""))
        if end != wanted:
            yield from filter(None, (end, begin))
        end = wanted
        if code:
            yield escaped(part.strip())
        else:
            yield from [".It"] * item
            yield from sentences(part[2 * item:])


def default(value):
    if value in ("", '""', "[]"):
        return "By default there is none.\n"
    return f'By default\n.Ql "{escaped(value)}" .\n'


def page(lines):
    out = []
    depth = 0
    for path, value, comment, mark in entries(lines):
        if value == "" and "." not in path:
            if depth:
                out.append(".El\n")
            out.append(f".Ss {path}\n")
            out += [f"{line}\n" for line in prose(comment)]
            out.append(".Bl -tag -width Ds\n")
            depth = 1
            continue
        if value not in (None, "") and "." not in path:
            out.append(f".El\n.Ss {path}\n.Bl -tag -width Ds\n")
        out.append(f".It Cm {escaped(path)}\n")
        out += [f"{line}\n" for line in prose(comment)]
        if value:
            out.append(default(value))
        out.append(MARKS[mark])
    return "".join(out) + ".El\n" + FOOT


def reloading(text):
    """The paragraph of the file about SIGHUP."""
    about = next(part for part in text.split("\n\n") if "SIGHUP" in part)
    return ".Pp\n" + "".join(
        f"{line}\n" for line in prose(joined(about.splitlines())))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    # The text before the first section is about the file itself.
    first = re.search(r"^# .*\n(?=listen:)", text, re.MULTILINE)
    sys.stdout.write(HEAD + reloading(text) +
                     page(text[first.start():].splitlines()))


if __name__ == "__main__":
    main()
