#!/usr/bin/env python3
"""Adds up `holdfast-sim --record FILE` by version; repeated seeds count."""

import json
import sys


def add(total, run):
    for key, value in run.items():
        if isinstance(value, dict):
            add(total.setdefault(key, {}), value)
        elif isinstance(value, (int, float)):
            total[key] = total.get(key, 0) + value


def kinds(counts):
    return " ".join(f"{name}={count}" for name, count in counts.items())


def quantile(counts, share):
    left = share * (sum(counts.values()) - 1)
    for value, count in sorted(counts.items()):
        left -= count
        if left < 0:
            return value
    return value


def values(counts):
    """The values of a key: the least, the largest, and how often."""
    counts = {int(value): count for value, count in counts.items()}
    usual = max(counts, key=counts.get)
    return (f"{min(counts)} to {max(counts)}, {len(counts)} values, quartiles "
            f"{' '.join(str(quantile(counts, n / 4)) for n in (1, 2, 3))}, "
            f"{usual} in {100 * counts[usual] / sum(counts.values()):.0f} %")


def describe(version, runs):
    total = {}
    for run in runs:
        add(total, run)
    yield (f"version {version[0]} ({version[1]}): {len(runs)} runs, "
           f"{total['seeds']} seeds, {total['virtual_s'] / 3600:.1f} virtual "
           f"hours, {total['grants']} grants, "
           f"{sum(total['faults'].values())} faults, "
           f"{total['crashed']} crashes, {total['violations']} violations")
    # A run of a few seeds takes no second.
    core_s = max(1, sum(run["real_s"] * run["jobs"] for run in runs))
    yield (f"  {total['seeds'] / core_s:.1f} seeds and "
           f"{total['virtual_s'] / core_s:.0f} virtual seconds a second of "
           f"one process, {core_s / 3600:.1f} hours of them")
    yield f"  faults: {kinds(total['faults'])}"
    yield f"  done: {kinds(total['done'])}"
    yield f"  excused: {kinds(total['excused']) or 'none'}"
    for name, share in total["settings"].items():
        yield (f"  {name}: {share['seeds']} seeds, "
               f"{share['virtual_s'] / 3600:.1f} virtual hours, "
               f"{share['grants']} grants, {share['faults']} faults, "
               f"{share['overlaps']} overlaps excused, "
               f"{share['violations']} violations")
    for key, counts in total.get("config", {}).items():
        yield f"  {key}: {values(counts)}"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: summary.py FILE\n\n{__doc__}")
    versions = {}
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            for line in file:
                run = json.loads(line)
                key = (run["version"], run["program"])
                versions.setdefault(key, []).append(run)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"summary.py: {sys.argv[1]}: {error!r}")
    for version, runs in versions.items():
        print("\n".join(describe(version, runs)))


if __name__ == "__main__":
    main()
