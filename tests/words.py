#!/usr/bin/env python3
"""Length and opening words of sentences in documents, comments and messages.

    words.py               figures of README and of each group of files
    words.py --list GROUP  the findings of a group

A finding is a sentence of more than 30 words, or an opening such as who, what,
where. tests/lint.py fails for a group with more findings than GROUPS allows.
These numbers may only become smaller.
"""

import argparse
import fnmatch
import os
import re
import statistics

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS_MAX = 30
OPENING = re.compile(r"((of|to|for|by|from|with|in) )?"
                     r"(who(m|se|ever)?|what(ever)?|where(ver)?)\b|"
                     r"(of|to|for|by|from|with|in) which\b", re.I)

# group: its files (* crosses folders), and the findings that are allowed
GROUPS = {
    "README": (("README.md",), 0),
    "documents": (("packaging/doc/*.md", "daemon/*.md"), 0),
    "PROTOCOL": (("proto/PROTOCOL.md",), 0),
    "runbook": (("packaging/prometheus/*.md",), 0),
    "tests/README": (("tests/*.md",), 0),
    "manuals": (("packaging/man/*.[1-8]",), 0),
    "configuration": (("conf/*.yaml",), 0),
    "comments": (("daemon/*.[ch]", "proto/*.[ch]", "conf/*.[ch]", "*.def",
                  "lua/*.lua"), 0),
    "helps": (("*.def",), 0),
    "messages": (("daemon/*.c", "proto/*.c", "conf/*.c"), 0),
    "comments of Go": (("*.go",), 0),
    "clients": (("proto/clients/*.md",), 0),
    "comments of tests": (("tests/*.[ch]",), 0),
    "docstrings": (("tests/*.py", "proto/clients/python/*.py"), 0),
}

STRING = r'"(?:\\.|[^"\\\n])*"'
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
BREAKS = {"It", "Pp", "Sh", "Ss", "Bl", "El", "Nd", "Nm", "Dd", "Op"}
FONTS = re.compile(r"\b(Ar|Fl|Cm|Ev|Pa|Li|Ql|Dv|Xr|Em|Ns|Pq|Dq|Sq) ")


def markdown(text):
    """Paragraphs and list items; headings and table cells, which are no
    prose."""
    text = re.sub(r"(?s:^```.*?^```$)|<[^>\n]*>", "\n", text, flags=re.M)
    block = []
    for line in text.split("\n") + [""]:
        item = ITEM.match(line)
        heading = re.match(r"#+ (?:[\d.]+ )?(.*)", line)
        if item or heading or not line.strip() or line.startswith("|"):
            yield " ".join(block), True
            block = []
        if heading:
            yield heading.group(1), False
        elif line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                yield cell, False
        elif block or item or not line.startswith("    "):
            block.append(line[item.end() if item else 0:].strip())


def manual(text):
    """Paragraphs; what a macro prints is one word."""
    text = re.sub(r"^\.Sh SYNOPSIS.*?(?=^\.Sh)|^\.Bd.*?^\.Ed$", ".Pp\n", text,
                  flags=re.M | re.S)
    block = []
    for line in text.split("\n") + [".Pp"]:
        macro = re.match(r"\.(\w\w)\b ?(.*)", line)
        if macro is None:
            block.append(line)
        elif macro.group(1) in BREAKS:
            yield " ".join(block), True
            block = []
        else:
            end = re.search(r" ([.,:;)])$", FONTS.sub("", macro.group(2)))
            block.append("`x`" + (end.group(1) if end else ""))


def comments(text, comment, margin):
    """Paragraphs, list items, and rows of columns; no strings."""
    text = re.sub(STRING, "x", text)
    return prose(re.findall(comment, text, re.M | re.S), margin)


def docstrings(text):
    """As comments(); a paragraph that is set in is an example."""
    found = re.findall(r'^ *"""(.*?)"""', text, re.M | re.S)
    return prose((re.sub(r"\n\n    \S.*?(?=\n\n|$)", "", each, flags=re.S)
                  for each in found), "")


def prose(parts, margin):
    for part in parts:
        lines = [re.sub(margin, "", line).strip() for line in part.split("\n")]
        for block in re.split(r"\n\s*\n|\n(?=- |\d+\. |\S+(?: \S+){0,5}  +\S)",
                              "\n".join(lines)):
            yield block.replace("\n", " "), True


def strings(text):
    """Helps, errors and reasons: adjacent literals are one text."""
    text = re.sub(rf"(?s:/\*.*?\*/)|'\\?\"'|^ *#.*$|\bPRI\w+|{STRING}",
                  lambda found: found[0] if found[0][0] == '"' else "", text,
                  flags=re.M)
    literals = (re.sub(r'(?<!\\)"\s*"', "", found.strip())[1:-1]
                for found in re.findall(rf"(?:{STRING}\s*)+", text))
    return prose((each.replace(r"\"", '"').replace(r"\n", "\n")
                  for each in literals), "")


def blocks(group, path, text):
    if group in ("helps", "messages"):
        return strings(text)
    if path.endswith((".md", ".8", ".1")):
        return markdown(text) if path.endswith(".md") else manual(text)
    if path.endswith((".c", ".h", ".def")):
        return comments(text, r"/\*+(.*?)\*/", r"^\s*\*\s?")
    if path.endswith(".py"):
        return docstrings(text)
    sign = {".lua": "--", ".go": "//"}.get(os.path.splitext(path)[1], "#")
    return comments(text, rf"((?:^\s*{sign}[^\n]*\n)+)", rf"^\s*{sign}+")


def sentences(group, path, text):
    """(words, whether it is prose and no cell of a table) of each sentence."""
    for block, prose in blocks(group, path, text):
        block = re.sub(r"``.*?``|`[^`]*`", "x", block)
        block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)
        block = re.sub(r"\*+", "", block)
        for part in re.split(r"(?<=[.!?])[)\"]*\s+(?=[(\"]*[A-Z0-9x])", block):
            words = [word for word in part.split() if re.search(r"\w", word)]
            if len(words) > 2:
                yield words, prose


def opens_badly(words):
    return OPENING.match(" ".join(words[:2]).lstrip("(\"")) is not None


def is_finding(words):
    return len(words) > WORDS_MAX or opens_badly(words)


def groups(files, read):
    """(group, [(path, words, prose)], findings that are allowed) of each."""
    for group, (patterns, allowed) in GROUPS.items():
        yield group, [
            (path, *sentence) for path in files
            if any(fnmatch.fnmatchcase(path, each) for each in patterns)
            for sentence in sentences(group, path, read(path))], allowed


def figures(group, told):
    sizes = sorted(len(words) for _, words, prose in told if prose)
    opening = sum(opens_badly(words) for _, words, _ in told)
    return (f"{group}: {len(told)} sentences; words of prose: median "
            f"{statistics.median(sizes):.0f}, 90th percentile "
            f"{sizes[len(sizes) * 9 // 10]}, longest {sizes[-1]}; "
            f"{100 * opening / len(told):.1f} % open with who/what/where; "
            f"{sum(is_finding(words) for _, words, _ in told)} findings")


def main():
    import lint
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", metavar="GROUP", choices=GROUPS)
    wanted = parser.parse_args().list
    tree = lint.Lint(TREE, None)
    if wanted is None:
        text = tree.read("README.md")
        print(f"README.md: {len(text.splitlines())} lines, "
              f"{len(text.split())} words")
    for group, told, _ in groups(tree.files, tree.read):
        if wanted is None and told:
            print(figures(group, told))
        for path, words, _ in told if wanted == group else ():
            if is_finding(words):
                print(f"{path}: {len(words)}: {' '.join(words)}")


if __name__ == "__main__":
    main()
