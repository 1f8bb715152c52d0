"""Judges what clients believed, what they were told and what they wrote.

A pure function: check(run) -> Verdict. It knows nothing of processes, sockets
or files, and belongs to run.py, which gathers, and to test_checker.py, which
plants violations. All times are seconds of one CLOCK_MONOTONIC.

run = {
  "lease": 3.0,         the longest lease, s
  "grace": 1.5,         how long on top of it what was lost may show, s
  "late_read": 0.5,     how late a running client may read its LOST, s
  "unobtainable": 6.0,  how long a healed lock may stay away from everybody, s
  "histories": {client: [event...]}     in the order of the client's own file
  "writes": [{lock, id, base, fence, t}...]  what the resource has accepted
  "final": {lock: id}                   what the resource has in the end
  "world": [event...]                   what the runner did, in order
}

Events of a client (each with t, e):
  start                         the process began; earlier holds ended with it
  ask    conn tag verb lock     a request was sent
  final  conn tag ok code       a final reply was read (fence, count of OKs)
  begin  hold lock fence until  it believes that it holds, until then at most
  until  hold until             the new deadline
  end    hold why               it believes no more, from t on
  write  lock id done           done: ok, refused, unknown
  foul   what                   a rule of the protocol was broken
Events of the world:
  kill   client                 SIGKILL is about to be sent
  excuse cause from to locks split    what the topology cannot promise; `locks`
                                None: all; `split`: two masters at once
  heal   until; probe lock from to    to None: was not granted
  broken what                   a server ended by itself, or another finding

Overlaps and lost plain updates within an excuse (and a lease and the grace
after it) are counted under its cause. The order of fences is excused only
where two masters granted at once. A lost fenced update, a fence told twice and
a second final reply never are.
"""

import collections

FENCED = "fenced/"


class Hold:
    """One belief interval."""

    def __init__(self, client, event):
        self.client = client
        self.id = event["hold"]
        self.lock = event["lock"]
        self.fence = event["fence"]
        self.begin = event["t"]
        self.until = event["until"]
        self.end = None
        self.why = None

    def close(self, at, why):
        """Belief never outlasts the deadline."""
        if self.end is None:
            self.end, self.why = (at, why) if at <= self.until else (
                self.until, "deadline")

    def __repr__(self):
        return (f"{self.client} hold {self.id} fence {self.fence} "
                f"[{self.begin:.4f} .. {self.end:.4f} {self.why}]")


class Verdict:
    """violations: texts; the rest are numbers."""

    def __init__(self):
        self.violations = []
        self.excused = collections.Counter()
        self.acquisitions = 0
        self.holds = 0
        self.writes = 0
        self.fenced_writes = 0
        self.refused_writes = 0
        self.late_reads = 0
        self.requests = 0
        self.unknown_replies = 0
        self.longest_unobtainable = 0.0
        self.answers = collections.Counter()
        self.holders = collections.Counter()  # holds of a kind of client
        self.ends = collections.Counter()     # why they ended

    @property
    def ok(self):
        return not self.violations

    def violation(self, kind, text):
        self.violations.append(f"{kind}: {text}")


class Excuses:
    """An excuse: its cause, and its time."""

    def __init__(self, world, margin):
        self.events = [e for e in world if e["e"] == "excuse"]
        self.margin = margin

    def cause(self, lock, begin, end=None, order=False):
        """The cause that covers any of begin .. end at that lock, or None."""
        end = begin if end is None else end
        for event in self.events:
            if event["locks"] is not None and lock not in event["locks"]:
                continue
            if order and not event.get("split"):
                continue
            if begin <= event["to"] + self.margin and end >= event["from"]:
                return event["cause"]
        return None


def read_holds(client, events, kills, verdict):
    """The belief intervals of one client. One that begins while SIGKILL is on
    its way ends at once."""
    holds, opened = [], {}
    started = 0.0

    def drop_all(at):
        died = [t for t in kills if t >= started and (at is None or t <= at)]
        for hold in opened.values():
            hold.close(max(min(died), hold.begin) if died else
                       (at if at is not None else hold.until), "killed")
        opened.clear()

    for event in events:
        kind = event["e"]
        if kind == "start":
            drop_all(event["t"])
            started = event["t"]
        elif kind == "begin":
            hold = Hold(client, event)
            holds.append(hold)
            opened[hold.id] = hold
        elif kind == "until" and event["hold"] in opened:
            hold = opened[event["hold"]]
            if event["t"] > hold.until:
                verdict.violation("careless", f"{client} revived a belief: "
                                  f"{event}")
            hold.until = event["until"]
            if hold.until < event["t"]:  # sooner than it was: it ends now
                hold.until = event["t"]
        elif kind == "end" and event["hold"] in opened:
            opened.pop(event["hold"]).close(event["t"], event["why"])
    drop_all(None)
    return holds


def check_replies(client, events, verdict):
    """One final reply to each request; what the client itself noticed."""
    asked, answered = {}, collections.Counter()
    for event in events:
        kind = event["e"]
        if kind == "ask":
            asked[event["conn"], event["tag"]] = event
            verdict.requests += 1
        elif kind == "final":
            key = event["conn"], event["tag"]
            answered[key] += 1
            if key not in asked:
                verdict.violation("reply", f"{client}: nobody asked for "
                                  f"{event}")
            elif answered[key] == 2:
                verdict.violation("reply", f"{client}: two final replies to "
                                  f"{asked[key]}")
            elif asked[key]["verb"] == "LOCK":
                verdict.answers["OK" if event["ok"] else event["code"]] += 1
        elif kind == "foul":
            verdict.violation("foul", f"{client} at {event['t']:.4f}: "
                              f"{event['what']}")
    verdict.unknown_replies += len(asked) - len(answered)


def read_grants(client, events):
    """(asked, told, fence, lock, client) of each grant but re-entries."""
    asked, grants = {}, []
    for event in events:
        if event["e"] == "ask" and event["verb"] == "LOCK":
            asked[event["conn"], event["tag"]] = event
        elif event["e"] == "final" and event["ok"]:
            ask = asked.get((event["conn"], event["tag"]))
            if ask and event.get("count", 1) == 1:
                grants.append((ask["t"], event["t"], event["fence"],
                               ask["lock"], client))
    return grants


def check_mutex(lock, holds, run, excuses, verdict):
    """No two belief intervals of one lock overlap."""
    latest = None
    for hold in sorted(holds, key=lambda h: (h.begin, h.fence)):
        if latest is not None and hold.begin < latest.end:
            cause = excuses.cause(lock, hold.begin)
            if cause:
                verdict.excused[f"overlap, {cause}"] += 1
            elif latest.why in ("lost", "closed") and \
                    latest.end - hold.begin <= run["late_read"]:
                verdict.late_reads += 1
            else:
                verdict.violation("overlap", f"{lock}: {latest!r} and "
                                  f"{hold!r}")
        if latest is None or hold.end > latest.end:
            latest = hold


def check_fences(lock, grants, holds, excuses, verdict):
    """Fences are told once; they grow in real time and in order of belief."""
    told = {}
    for grant in grants:
        if grant[2] in told:
            verdict.violation("fence", f"{lock}: told twice: {grant} and "
                              f"{told[grant[2]]}")
        told[grant[2]] = grant
    backwards = []
    by_end = sorted(grants, key=lambda g: g[1])
    highest, place = None, 0
    for grant in sorted(grants):
        while place < len(by_end) and by_end[place][1] < grant[0]:
            if highest is None or by_end[place][2] > highest[2]:
                highest = by_end[place]
            place += 1
        if highest is not None and grant[2] <= highest[2]:
            backwards.append((highest[1], grant[1], highest, grant))
    top = None
    for hold in sorted(holds, key=lambda h: h.begin):
        if top is not None and hold.fence < top.fence and \
                hold.begin >= top.end:
            backwards.append((top.end, hold.begin, top, hold))
        if top is None or hold.fence > top.fence:
            top = hold
    seen = set()
    for _, at, before, after in backwards:
        fence = after[2] if isinstance(after, tuple) else after.fence
        if fence in seen:
            continue
        seen.add(fence)
        cause = excuses.cause(lock, at, order=True)
        if cause:
            verdict.excused[f"fence, {cause}"] += 1
        else:
            verdict.violation("fence", f"{lock}: {before} and later {after}")


def check_writes(run, excuses, verdict):
    """All acknowledged updates are in what the resource has in the end."""
    accepted = {write["id"]: write for write in run["writes"]}
    chains = {}
    for lock, last in run["final"].items():
        chain = chains[lock] = set()
        while last and last not in chain:
            chain.add(last)
            last = accepted[last]["base"] if last in accepted else None
    done = []
    for client, events in run["histories"].items():
        done += [(client, e) for e in events if e["e"] == "write"]
    for client, write in done:
        if write["done"] == "refused":
            verdict.refused_writes += 1
        if write["done"] != "ok":
            continue
        lock = write["lock"]
        fenced = lock.startswith(FENCED)
        verdict.writes += 1
        verdict.fenced_writes += fenced
        if write["id"] in chains.get(lock, ()):
            continue
        cause = None
        if not fenced:
            cause = excuses.cause(lock, write["t"], write["t"] + run["lease"])
        if cause:
            verdict.excused[f"lost update, {cause}"] += 1
        else:
            verdict.violation("lost update", f"{lock}: {client} {write}")
    highest = {}
    for write in run["writes"]:
        lock = write["lock"]
        if not lock.startswith(FENCED):
            continue
        if write["fence"] < highest.get(lock, 0):
            verdict.violation("resource", f"accepted a stale fence: {write}")
        highest[lock] = max(write["fence"], highest.get(lock, 0))


def uncovered(begin, end, holds):
    """The longest part of begin .. end in which nobody believed to hold."""
    longest, at = 0.0, begin
    for hold in sorted(holds, key=lambda h: h.begin):
        if hold.end <= at:
            continue
        if hold.begin >= end:
            break
        longest = max(longest, hold.begin - at)
        at = max(at, hold.end)
    return max(longest, end - at)


def check_liveness(run, holds, verdict):
    """After each heal each lock is to be had, by the probe or by others."""
    healed = None
    for event in run["world"]:
        if event["e"] == "heal":
            healed = event
        elif event["e"] == "probe":
            lock = event["lock"]
            end = event["to"] if event["to"] is not None else healed["until"]
            gap = uncovered(event["from"], end, holds.get(lock, []))
            verdict.longest_unobtainable = max(
                verdict.longest_unobtainable, gap)
            if gap > run["unobtainable"]:
                verdict.violation(
                    "liveness", f"{lock}: healed at {event['from']:.2f}, for "
                    f"{gap:.1f} s nobody had it; the probe was "
                    f"{'not ' if event['to'] is None else ''}granted")
        elif event["e"] == "broken":
            verdict.violation("broken", event["what"])


def check(run):
    """The verdict on one run."""
    verdict = Verdict()
    excuses = Excuses(run["world"], run["lease"] + run["grace"])
    holds = collections.defaultdict(list)
    grants = collections.defaultdict(list)
    for client, events in run["histories"].items():
        kills = [e["t"] for e in run["world"]
                 if e["e"] == "kill" and e["client"] == client]
        for hold in read_holds(client, events, kills, verdict):
            holds[hold.lock].append(hold)
            verdict.holds += 1
            verdict.holders[client.rstrip("0123456789")] += 1
            verdict.ends[hold.why] += 1
        for grant in read_grants(client, events):
            grants[grant[3]].append(grant)
            verdict.acquisitions += 1
        check_replies(client, events, verdict)
    for lock in sorted(set(holds) | set(grants)):
        check_mutex(lock, holds[lock], run, excuses, verdict)
        check_fences(lock, grants[lock], holds[lock], excuses, verdict)
    check_writes(run, excuses, verdict)
    check_liveness(run, holds, verdict)
    return verdict
