"""Redis answers nothing for a while: what becomes of 10,000 held locks?

`CLIENT PAUSE ms WRITE` holds all writes back; reads go on, so that the end of
each lease can be looked up. OUTAGES lists the seconds; the lease is 30 s.
Calls in the first second after the outage are counted: a storm would show.
"""

import os
import struct
import sys
import time

from measure import MeasureFailure

from harness import FIRST_AT, Broker, Client

LOCKS = int(os.environ.get("OUTAGE_LOCKS", "10000"))
SECONDS = [float(word) for word in
           os.environ.get("OUTAGES", "15,40").split(",")]
LEASE = 30.0
AT_ENDS = FIRST_AT["ENDS"]


def ends_of(redis):
    """When the lease of each lock is over, in s; by its number."""
    found = {}
    with redis.connect(timeout=60) as connection:
        for number in range(LOCKS):
            raw = connection.command("GETRANGE", f"holdfast:{{o{number}}}",
                                     AT_ENDS, AT_ENDS + 7)
            found[number] = struct.unpack("<d", bytes(raw))[0] / 1000
    return found


def asked(redis):
    """(scripts, bytes) that Redis was sent so far."""
    row = redis.info("commandstats").get("cmdstat_evalsha", "")
    calls = int(row.partition("calls=")[2].partition(",")[0] or 0)
    return calls, int(redis.info("stats")["total_net_input_bytes"])


def lines_until(client, done, timeout):
    """Reads on, and lets `done` look; at the end of the time, too."""
    end = time.monotonic() + timeout
    while not done() and time.monotonic() < end:
        client.no_event("NOTHING", 0.05)


def outage(bench, seconds):
    with Broker(bench.redis, {"lease.default": f"{LEASE:g}s",
                              "limits.holds": LOCKS}) as broker, \
            Client(broker.wait_redis().address, timeout=60) as client:
        for first in range(0, LOCKS, 500):
            tags = [client.submit(f"LOCK o{number}")
                    for number in range(first, min(first + 500, LOCKS))]
            for tag in tags:
                if not client.wait(tag).ok:
                    raise MeasureFailure("a lock was not granted")
        time.sleep(LEASE / 3)  # renewals are under way
        offset = time.time() - time.monotonic()
        bench.redis.command("CLIENT", "PAUSE", int(seconds * 1000), "WRITE")
        began = time.monotonic()
        ends = ends_of(bench.redis)
        over = began + seconds
        lines_until(client, lambda: False, over - time.monotonic() - 0.2)
        before = asked(bench.redis), broker.cpu_us()
        lines_until(client, lambda: False, over + 1 - time.monotonic())
        after = asked(bench.redis), broker.cpu_us()
        lines_until(client, lambda: False, over + LEASE / 2 - time.monotonic())
        events = {"JEOPARDY": 0, "SAFE": 0, "LOST": 0}
        ahead = []
        for line in client.lines:
            if line.word in events:
                events[line.word] += 1
            if line.word == "LOST":
                number = int(line.words[0].removeprefix("o"))
                ahead.append(ends[number] - (line.at + offset))
        held = client.request("HELD", timeout=60)
    return {"seconds": seconds, "events": events, "ahead_s": sorted(ahead),
            "held": held.number("n"),
            "scripts": after[0][0] - before[0][0],
            "bytes": after[0][1] - before[0][1],
            "cpu_us": after[1] - before[1]}


def run(bench):
    rows, storms = [], []
    for seconds in SECONDS:
        bench.redis.command("FLUSHALL")
        result = outage(bench, seconds)
        bench.keep("outage", result)
        events, ahead = result["events"], result["ahead_s"]
        rows.append([f"{seconds:g} s", f"{events['JEOPARDY']:,}",
                     f"{events['SAFE']:,}", f"{events['LOST']:,}",
                     f"{result['held']:,}",
                     f"{ahead[0] * 1000:,.0f}" if ahead else "-",
                     f"{sum(one < 0 for one in ahead)}"])
        storms.append([f"{seconds:g} s", f"{result['scripts']:,}",
                       f"{result['bytes'] / 1024:,.0f}",
                       f"{result['cpu_us'] / 1000:,.0f}"])
        if sum(one < 0 for one in ahead):
            print("outage: a loss was told too late", file=sys.stderr)
    bench.head(f"{LOCKS:,} held locks, lease {LEASE:g} s, while Redis holds "
               "back all writes")
    bench.table(["for", "in jeopardy", "safe again", "lost", "held at the end",
                 "told before the lease ended by at least ms", "told late"],
                rows)
    bench.say("What Redis is sent from the end of it until a second after:")
    bench.table(["after", "scripts", "KiB", "daemon CPU ms"], storms)
