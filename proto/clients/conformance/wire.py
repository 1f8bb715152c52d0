"""Lines of the protocol, and patterns of a scenario that match them.

A pattern is what stands in a scenario: `?x` takes a word, `$x` is a word that
was taken, `a|b` is one of several, `!a` another one, `5..9` a number of that
range, `>5` a larger one, `?x>5` both, `*` anything.
"""

import re
from urllib.parse import unquote_to_bytes

UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
DURATIONS = {"wait", "lease", "delay", "keep", "heartbeat"}
# A key with this value says no more than its absence.
DEFAULTS = {"count": "1", "mode": "exclusive", "permits": "1", "deadlock": "1",
            "progress": "*", "wanted": "0", "detached": "0", "tree": "0",
            "upgrade": "0", "members": "0", "reenter": "1"}
WORD = re.compile(r"(?!:)(?:[!-$&-<>-~]|%[0-9A-Fa-f]{2})+")
TAG = re.compile(r"[0-9][0-9A-Za-z._-]{0,15}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")


class Mismatch(Exception):
    """Says what was expected, and what came."""


def milliseconds(text):
    """Of a duration; ValueError if it is none."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|)", text)
    if not match:
        raise ValueError(f"no duration: {text}")
    return int(match[1]) * UNITS[match[2]]


def fill(text, variables):
    """The text with the values of its `$x`."""
    def value(match):
        if match[1] not in variables:
            raise Mismatch(f"no step has taken ?{match[1]}")
        return variables[match[1]]
    return re.sub(r"\$(\w+)", value, text)


def split(words):
    """Words that are no `key=value`, and the others as a dict."""
    return ([word for word in words if "=" not in word],
            dict(word.split("=", 1) for word in words if "=" in word))


class Request:
    """A line of a client. ValueError if it is not well formed. Names and
    values stay encoded."""

    def __init__(self, line, at):
        self.line, self.at = line.decode("ascii"), at
        words = self.line.split(" ")
        self.tag = "-"
        if TAG.fullmatch(words[0]):
            self.tag = words.pop(0)
        self.verb = words.pop(0).upper() if words else ""
        if not self.verb.isalpha():
            raise ValueError("no verb")
        if self.tag == "-" and self.verb not in ("PONG", "QUIT"):
            raise ValueError("no tag")
        self.names, self.keys = [], {}
        for word in words:
            key, equals, value = word.partition("=")
            if not WORD.fullmatch(value if equals else word):
                raise ValueError(f"not encoded, or empty: {word!r}")
            if not equals and self.keys:
                raise ValueError("a name behind key=value")
            if key.lower() in self.keys:
                raise ValueError(f"{key}= twice")
            if equals:
                self.keys[key.lower()] = value
            else:
                self.names.append(word)


def decoded(text):
    """The items of a list, as bytes."""
    return [unquote_to_bytes(item) for item in text.split(",")]


def value_matches(pattern, value, variables, is_duration=False):
    """Takes `?x`. Both are encoded, the pattern with `|` in between."""
    if pattern == "*":
        return True
    if pattern.startswith("?"):
        name, _, least = pattern[1:].partition(">")
        if least and int(value) <= int(fill(least, variables)):
            return False
        variables[name] = value
        return True
    pattern = fill(pattern, variables)
    if pattern.startswith("!"):
        return decoded(value) != decoded(pattern[1:])
    if is_duration:
        value = str(milliseconds(value))
    match = RANGE.fullmatch(pattern)
    if match:
        return value.isdigit() and int(match[1]) <= int(value) <= int(match[2])
    if pattern.startswith(">"):
        return value.isdigit() and int(value) > int(pattern[1:])
    if is_duration:
        return milliseconds(pattern) == int(value)
    return decoded(value) in [decoded(one) for one in pattern.split("|")]


def request_matches(pattern, request, variables):
    """Whether the line is that of `TAG VERB WORDS`; takes tag and `?x`."""
    tag, verb, *words = pattern.split()
    names, keys = split(words)
    if request.verb not in verb.split("|") or \
            (tag == "-") != (request.tag == "-") and tag != "*":
        return False
    taken = dict(variables)
    if len(names) != len(request.names) or not all(
            value_matches(*pair, taken) for pair in zip(names, request.names)):
        return False
    free = verb == "HELLO"
    for key in set(keys) | set(request.keys):
        default = DEFAULTS.get(key)
        if key not in keys and (free or default == "*" or (
                default and request.keys[key] == default)):
            continue
        if key not in keys or (key not in request.keys
                               and keys[key] != default):
            return False
        if key in request.keys and not value_matches(
                keys[key], request.keys[key], taken, key in DURATIONS):
            return False
    taken[tag] = request.tag
    variables.update(taken)
    return True


def result_matches(pattern, line, variables):
    """Whether a line of the driver has these words and keys; `||` stands
    between possible lines."""
    if " || " in pattern:
        return any(result_matches(one, line, variables)
                   for one in pattern.split(" || "))
    words, keys = split(pattern.split())
    got_words, got_keys = split(line.split())
    return len(words) == len(got_words) and all(
        value_matches(want, got, variables)
        for want, got in zip(words, got_words)) and all(
        key in got_keys and value_matches(want, got_keys[key], variables)
        for key, want in keys.items())
