#!/usr/bin/env python3
"""Turns the scripts of lua/ into a C file and into files for the tests.

    embed.py --c OUT.c --lua FOLDER

A line `--@include FILE` is replaced by that file of lua/. Comments, leading and
trailing blanks and empty lines go, since Redis keeps and hashes every byte; the
first line, `#!lua ...`, stays. Constants (`local NAME, OTHER = 1, 'a'`, names
in capitals) are put in where they are used, since Redis runs a script from its
first line at each call and a local that functions refer to costs it time; a
name in capitals that is none is refused. The layouts of record.def are such
constants, see layout.py. Sums of them are put in as one number; TEXT(NUMBER)
is that number as a string. What is written to FOLDER is byte for byte what the
program loads. Long brackets ([[ ]]) are refused: they would need a parser.
"""

import argparse
import hashlib
import os
import re
import sys

import layout

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS_H = os.path.join(os.path.dirname(HERE), "daemon", "store", "wire",
                         "scripts.h")
INCLUDE = re.compile(r"^\s*--@include\s+(\S+)\s*$")
TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"|(?P<comment>--.*)|(?P<long>\[=*\[)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<other>.)", re.S)
LITERAL = r"(?:\d+|'(?:\\.|[^'\\])*')"
CONSTANT = r"[A-Z][A-Z0-9_]*"
CONSTANTS = re.compile(rf"local ({CONSTANT}(?:, {CONSTANT})*)"
                       rf" = ({LITERAL}(?:, {LITERAL})*)$")
OTHER_NAMES = ("KEYS", "ARGV", "TEXT")
SUM = re.compile(r"(?<![\w.])(?<![-*/^%.] )\d+(?: [+-] \d+)+(?![\w.]| [*/^%])")
TEXT = re.compile(r"\bTEXT\((\d+)\)")


def expand(name, seen=()):
    """The lines of a file with its includes put in, as (where, line)."""
    if name in seen:
        raise ValueError(f"lua/{name}: includes itself")
    with open(os.path.join(HERE, name), encoding="ascii") as source:
        for number, line in enumerate(source, 1):
            line = line.rstrip("\n")
            match = INCLUDE.match(line)
            if match:
                yield from expand(match.group(1), (*seen, name))
            else:
                yield f"lua/{name}:{number}", line


def strip(where, line):
    """A line without its comment and its outer blanks."""
    kept = []
    for token in TOKEN.finditer(line):
        text = token.group()
        if token.lastgroup == "comment":
            if re.match(r"--\[=*\[", text):
                raise ValueError(f"{where}: long comments are not known here")
            break
        if token.lastgroup == "long" or text in "\"'":
            raise ValueError(f"{where}: long or open string")
        kept.append(text)
    return "".join(kept).strip()


def constants_of(lines):
    """The constants that the lines define, by name, and the other lines."""
    values, others = layout.constants(), []
    for where, line in lines:
        match = CONSTANTS.match(line)
        if not match:
            others.append((where, line))
            continue
        names = match.group(1).split(", ")
        literals = re.findall(LITERAL, match.group(2))
        if len(names) != len(literals) or set(names) & set(values):
            raise ValueError(f"{where}: constants doubled or without value")
        values.update(zip(names, literals))
    return values, others


def put_in(values, where, line):
    """A line with the values of constants for their names."""
    kept = []
    for token in TOKEN.finditer(line):
        text = token.group()
        if token.lastgroup == "word" and re.fullmatch(CONSTANT, text) \
                and text not in OTHER_NAMES:
            if text not in values:
                raise ValueError(f"{where}: {text} is no constant")
            text = values[text]
        kept.append(text)
    sums = SUM.sub(lambda match: str(eval(match.group())), "".join(kept))
    return TEXT.sub(r"'\1'", sums)


def body_of(script):
    lines = list(expand(script + ".lua"))
    where, first = lines[0]
    if not first.startswith("#!lua"):
        raise ValueError(f"{where}: the first line must be #!lua")
    values, others = constants_of(
        (where, strip(where, line)) for where, line in lines[1:])
    body = [first.rstrip()]
    body += [put_in(values, *line) for line in others]
    return "".join(line + "\n" for line in body if line)


def scripts():
    """The names of enum script_id."""
    with open(SCRIPTS_H, encoding="ascii") as file:
        names = re.findall(r"^    SCRIPT_([A-Z]+),$", file.read(), re.M)
    return [name.lower() for name in names if name != "COUNT"]


def c_string(line):
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("??", "?\\?").replace("\t", "\\t")
    return f'    "{escaped}\\n"'


def c_file(bodies):
    out = ["/* Made by lua/embed.py; changes belong in lua/. */",
           '#include "daemon/store/wire/scripts.h"', ""]
    for name, body in bodies.items():
        out.append(f"static const char {name}_body[] =")
        out.append("\n".join(map(c_string, body.splitlines())) + ";")
        out.append("")
    out.append("const struct script scripts[SCRIPT_COUNT] = {")
    for name, body in bodies.items():
        sha1 = hashlib.sha1(body.encode("ascii")).hexdigest()
        out.append(f'    [SCRIPT_{name.upper()}] = {{"{name}", {name}_body,\n'
                   f'        sizeof({name}_body) - 1, "{sha1}"}},')
    out.append("};")
    return "\n".join(out) + "\n"


def write(path, text):
    """All of the file or nothing of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="ascii") as target:
        target.write(text)
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--c", required=True, help="the C file to write")
    parser.add_argument("--lua", required=True, help="folder for *.lua")
    options = parser.parse_args()
    try:
        bodies = {name: body_of(name) for name in scripts()}
    except (OSError, ValueError) as error:
        sys.exit(f"embed.py: {error}")
    for name, body in bodies.items():
        write(os.path.join(options.lua, name + ".lua"), body)
    write(options.c, c_file(bodies))


if __name__ == "__main__":
    main()
