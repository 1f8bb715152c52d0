"""packaging/prometheus and packaging/grafana: each name exists, each alert is
explained and tried, and no part of its rule is in vain.

Both YAML files keep to one layout, of which this reads a part; promtool's
count shows that nothing is missed.
"""

import collections
import json
import os
import re
import unittest
from pathlib import Path

from harness import temp_folder
from shared import TREE, promtool, read
from tls_wire import TlsPortCase

PROMETHEUS = os.path.join(TREE, "packaging", "prometheus")
GIVEN = {"job", "instance"}  # labels that Prometheus adds
VARIABLES = {"__rate_interval": "5m", "__range": "3h", "instance": ".*",
             "namespace": ".*"}

Rule = collections.namedtuple("Rule", "kind name text")
SELECTOR = re.compile(r"\b([a-zA-Z_]\w*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def text_of(name):
    return read("packaging/prometheus", name)


def parts(text, pattern):
    """(match, text up to the next one) of each match."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [(match, text[match.start():end])
            for match, end in zip(found, ends)]


def all_rules():
    return [Rule(match.group(1), match.group(2),
                 re.split(r"^- name:", part, flags=re.MULTILINE)[0])
            for match, part in parts(text_of("holdfast.rules.yml"),
                                     r"^  - (alert|record): (\S+)$")]


RULES = all_rules()
ALERTS = [rule for rule in RULES if rule.kind == "alert"]


def expression(rule):
    return re.search(r"^    expr: \|\n((?:      .*\n)+)", rule.text,
                     re.MULTILINE).group(1)


def field(rule, pattern):
    """The first match of the pattern in the rule, or None."""
    found = re.search(pattern, rule.text, re.MULTILINE)
    return found.group(1) if found else None


def head_and_tests():
    """holdfast.test.yml: its head, and (name, text) of each test."""
    text = text_of("holdfast.test.yml")
    tests = parts(text, r"^- name: (\w+)")
    return text[:text.index(tests[0][1])], [
        (match.group(1), part) for match, part in tests]


def dashboard():
    return json.loads(read("packaging/grafana/holdfast.json"))


def dashboard_expressions():
    board = dashboard()
    return [target["expr"] for panel in board["panels"]
            for target in panel.get("targets", ())] + [
        note["expr"] for note in board["annotations"]["list"]
        if "expr" in note]


def metric_names(text):
    """holdfast_... in an expression, and not what a rule has recorded."""
    return set(re.findall(r"(?<![\w:])holdfast_\w+(?!\w*:)\b", text))


def sources(folder, ending):
    """The text of all such files below the folder."""
    text = ""
    for path, _, names in os.walk(os.path.join(TREE, folder)):
        for name in names:
            if name.endswith(ending):
                with open(os.path.join(path, name), encoding="utf-8") as file:
                    text += file.read()
    return text


def events():
    """The lines that the daemon logs, whose names are in a table or not."""
    return set(re.findall(r'(?:\blog_write\([^",]*,\s*|\] = )"([a-z_]+)",',
                          sources("daemon", ".c")))


def words_of_configuration():
    paths = re.findall(r'^    [A-Z]+\("([a-z_.]+)", ', sources("conf", ".c"),
                       re.MULTILINE)
    return {word for path in paths for word in path.split(".")}


def label_values():
    return set(re.findall(r'^PART\(\w+, \w+, "(\w+)"',
                          sources("daemon", ".def"), re.MULTILINE))


def mutants(rule):
    """(part, text) of the rule without `for`, comparison or matchers."""
    if "\n    for: " in rule.text:
        yield "for", re.sub(r"\n    for: .*", "", rule.text)
    body = expression(rule)
    for pattern, instead in ((r"(==|!=|>=?) [\d.]+", ">= 0"),
                             (r"<=? [\d.]+", "< Inf"), (r"\{[^}]*\}", "")):
        for found in re.finditer(pattern, body):
            changed = body[:found.start()] + instead + body[found.end():]
            yield found.group(), rule.text.replace(body, changed)


class AlertTest(unittest.TestCase):
    def test_check(self):
        status, output = promtool(
            "check", "rules", os.path.join(PROMETHEUS, "holdfast.rules.yml"))
        self.assertEqual(status, 0, output)
        self.assertIn(f"SUCCESS: {len(RULES)} rules found", output)

    def test_cases(self):
        status, output = promtool(
            "test", "rules", os.path.join(PROMETHEUS, "holdfast.test.yml"))
        self.assertEqual(status, 0, output)

    def test_each_fires_and_does_not(self):
        fires, quiet = set(), set()
        for name, text in head_and_tests()[1]:
            for at in re.findall(r"alertname: (\w+)\n    exp_alerts:(.*)",
                                 text):
                self.assertEqual(at[0], name)
                (quiet if at[1] == " []" else fires).add(name)
        names = {rule.name for rule in ALERTS}
        self.assertEqual(len(names), len(ALERTS))
        self.assertEqual(fires, names)
        self.assertEqual(quiet, names)

    def test_each_part_is_needed(self):
        """A rule without one of its parts fails one of its cases."""
        folder = temp_folder()
        head, tests = head_and_tests()
        recorded = "".join(rule.text for rule in RULES
                           if rule.kind == "record")
        made = {}
        for rule in ALERTS:
            cases = "".join(text for name, text in tests if name == rule.name)
            for what, text in mutants(rule):
                name = f"{len(made)}.rules.yml"
                Path(os.path.join(folder, name)).write_text(
                    "groups:\n- name: one\n  rules:\n" + recorded + text,
                    encoding="utf-8")
                case = os.path.join(folder, f"{len(made)}.test.yml")
                Path(case).write_text(head.replace(
                    "holdfast.rules.yml", name) + cases, encoding="utf-8")
                made[case] = f"{rule.name} without {what}"
        self.assertGreater(len(made), 2 * len(ALERTS))
        _, output = promtool("test", "rules", *made)
        self.assertEqual(output.count("Unit Testing:"), len(made))
        told = dict(re.findall(r"Unit Testing:  (\S+)\n\s+(\w+)", output))
        self.assertEqual([what for case, what in made.items()
                          if told[case] != "FAILED"], [])
        self.assertNotIn("parse error", output)

    def test_each_is_explained(self):
        """README.md has a section of its name, in order, with its severity."""
        sections = parts(text_of("README.md"), r"^### (\w+)$")
        self.assertEqual([match.group(1) for match, _ in sections],
                         [rule.name for rule in ALERTS])
        for rule, (_, text) in zip(ALERTS, sections):
            with self.subTest(alert=rule.name):
                severity = field(rule, r"labels: \{severity: (page|ticket)\}$")
                self.assertRegex(text.split("\n\n")[1],
                                 rf"\A{severity.capitalize()}\b")
                self.assertIn("*Do:*", text)
                self.assertEqual(field(rule, r"^      runbook: (\S+)$"),
                                 f"README.md#{rule.name.lower()}")
                self.assertTrue(field(rule, r"^      summary: (.*\.)$"))
                self.assertTrue(field(rule, r"^      description: (>-)$"))

    def test_links(self):
        text = text_of("README.md")
        for name, anchor in re.findall(r"\[(\w+)\]\(#(\w+)\)", text):
            self.assertIn(f"\n### {name}\n", text)
            self.assertEqual(anchor, name.lower())

    def test_events(self):
        """Each event that README.md names exists."""
        text = text_of("README.md")
        known = events() | words_of_configuration() | label_values()
        named = set(re.findall(r"`(?:event=)?([a-z]+(?:_[a-z]+)+)`", text))
        named = {name for name in named if not name.startswith("holdfast_")}
        self.assertGreater(len(named & events()), 15)
        self.assertEqual(named - known, set())

    def test_what_is_recorded_is_used(self):
        recorded = {rule.name for rule in RULES if rule.kind == "record"}
        self.assertEqual(set(re.findall(r"\w+:\w+:\w+", "".join(
            expression(rule) for rule in ALERTS))), recorded)


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.board = dashboard()
        self.panels = self.board["panels"]
        self.graphs = [panel for panel in self.panels
                       if panel["type"] != "row"]

    def test_ids(self):
        ids = [panel["id"] for panel in self.panels]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertNotIn(None, ids)
        for panel in self.graphs:
            refs = [target["refId"] for target in panel["targets"]]
            self.assertEqual(len(refs), len(set(refs)))

    def test_panels_are_told_of(self):
        titles = [panel["title"] for panel in self.panels]
        self.assertEqual(len(titles), len(set(titles)))
        for panel in self.graphs:
            with self.subTest(panel=panel["title"]):
                self.assertTrue(panel["description"].endswith("."))
                unit = panel["fieldConfig"]["defaults"].get("unit") or \
                    panel["options"]["yAxis"]["unit"]
                self.assertTrue(unit)

    def test_no_panel_covers_another(self):
        taken = set()
        for panel in self.panels:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                     for y in range(at["y"], at["y"] + at["h"])}
            self.assertEqual(cells & taken, set(), panel["title"])
            taken |= cells

    def test_variables(self):
        variables = {each["name"] for each in self.board["templating"]["list"]}
        self.assertEqual(variables, {"datasource", "instance", "namespace"})
        text = "".join(dashboard_expressions())
        self.assertEqual(set(re.findall(r"\$(\w+)", text)), set(VARIABLES))
        for panel in self.graphs:
            for what in (panel, *panel["targets"]):
                self.assertEqual(what["datasource"]["uid"], "${datasource}")

    def test_expressions(self):
        lines = ["groups:", "- name: dashboard", "  rules:"]
        for number, text in enumerate(dashboard_expressions()):
            for name, value in VARIABLES.items():
                text = re.sub(rf"\${name}\b", value, text)
            lines.append(f"  - {{record: r{number}, expr: '{text}'}}")
        path = os.path.join(temp_folder(), "dashboard.rules.yml")
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
        status, output = promtool("check", "rules", path)
        self.assertEqual(status, 0, output)
        self.assertIn(f"{len(lines) - 3} rules found", output)


class NamesTest(TlsPortCase):
    """A real broker has what rules and dashboard name."""

    def setUp(self):
        _, body = self.tls_broker({"namespaces": [{"prefix": "leader/"}]}
                                  ).http("/metrics")
        self.families = set(re.findall(r"^# TYPE (\w+) ", body, re.MULTILINE))
        self.assertEqual(self.families, set(re.findall(
            r"^# HELP (\w+) ", body, re.MULTILINE)))
        self.labels = collections.defaultdict(set)
        for name, labels in SELECTOR.findall(body):
            self.labels[name] |= {(label, value) for label, _, value
                                  in MATCHER.findall(labels)}
        self.series = set(re.findall(r"^(\w+)[ {]", body, re.MULTILINE))

    def check(self, text, free=()):
        """The metrics of an expression, and their labels, without `free`."""
        names = metric_names(text)
        self.assertEqual(names - self.series, set())
        for name, labels in SELECTOR.findall(text):
            if name not in names:
                continue
            for label, _, values in MATCHER.findall(labels):
                if label in GIVEN or label in free or values.startswith("$"):
                    continue
                for value in values.split("|"):
                    self.assertIn((label, value), self.labels[name], text)
        return names

    def test_rules(self):
        for rule in RULES:
            body = expression(rule)
            self.assertTrue(self.check(body) or "up{" in body or ":" in body,
                            rule.name)

    def test_dashboard(self):
        for text in dashboard_expressions():
            self.assertTrue(self.check(text) or "ALERTS{" in text, text)
        for variable in dashboard()["templating"]["list"]:
            self.check(variable.get("definition", ""))

    def test_cases(self):
        """They feed what a broker has, with names and versions of their own."""
        for text in re.findall(r"- series: '(.*)'$",
                               text_of("holdfast.test.yml"), re.MULTILINE):
            self.assertTrue(self.check(text, ("namespace", "version")) or
                            text.startswith("up{"), text)
