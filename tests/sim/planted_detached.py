"""Bugs of detached holds, of permits that are given back in part, of RESIZE, of
AWAIT and of WANTED."""

SETTINGS = ("--set",
            "usual=1,detaches=30,parts=60,awaits=30,wants=60,resizes=20")

# name: (place, what is there, the mistake, what it is, more changes)
PLANTED = {
    "detached-ends-with-session": (
        "hold_detached",
        "    request_free(core, request);\n    ticket_rest(core, ticket);\n",
        "    request_free(core, request);\n    ticket->detached_us = 0;\n"
        "    ticket->holds = 1;\n    ticket_advance(core, ticket);\n",
        "a detached hold ends with its session"),
    "detached-is-capped": (
        "hold_detach", "true, term, now + term, now + term",
        "true, term, now + term, now + min(term, r.longest)",
        "no detached hold lasts longer than a lease of its broker"),
    "detached-is-adopted": (
        "adopt_holders", "            if t.detached then\n",
        "            if false then\n",
        "after a failover a detached hold has one lease, like others"),
    "detached-is-the-sessions": (
        "lua/record.lua",
        "            return not t.detached and (fence == 0 or",
        "            return (fence == 0 or",
        "a session that asks again takes its detached hold for its own"),
    "any-fence-prolongs": (
        "detached_speaks", "local t = ticket_of_fence(r, fence)",
        "local t = ticket_of_fence(r, fence) or ticket_of_fence(r, r.fence)",
        "a RENEW with another fence prolongs a detached hold"),
    "ordinary-is-given-back": (
        "lua/release.lua",
        "if t and not t.detached and bit.band(flags, REPEATS) == 0 then",
        "if t and false then",
        "UNLOCK with detached=1 gives back what a session holds"),
    "given-back-stands": (
        "lua/release.lua", "    ticket_strike(r, t)\n    if delay > 0 and",
        "    if not t.detached then\n        ticket_strike(r, t)\n    end\n"
        "    if delay > 0 and",
        "a detached hold that was given back stands"),
    "part-not-counted": (
        "gives_back", "r.used - t.permits + keeps, keeps", "r.used, keeps",
        "permits that are given back in part are out still"),
    "part-gives-more": (
        "gives_back", "r.used - t.permits + keeps, keeps",
        "r.used - t.permits + 1, 1",
        "UNLOCK permits= gives back all permits but one"),
    "part-stays": (
        "gives_back", "t.permits <= keeps then", "true then",
        "UNLOCK permits= is answered, and gives nothing back"),
    "resize-wakes-nobody": (
        "resize", "local grants = serve(r, seen)", "local grants",
        "a larger limit wakes no waiter"),
    "resize-grants-on": (
        "compatible", "return r.used + t.permits <= r.limit",
        "return r.used > r.limit or r.used + t.permits <= r.limit",
        "a smaller limit is not waited for",
        ("closed", "return r.used >= r.limit", "return false")),
    "resize-takes-permits": (
        "shrink", "            t.shown = history()\n",
        "            t.shown = history()\n"
        "            r.used, t.permits = r.used - t.permits + 1, 1\n",
        "a smaller limit takes permits from holders"),
    "resize-is-not-kept": (
        "resize", "    r.limit = limit\n", "",
        "RESIZE is answered, and changes nothing"),
    "resize-keeps-waiters": (
        "shrink", "t.permits > limit then", "false then",
        "a waiter for more permits than the limit blocks the queue"),
    "await-while-held": (
        "lock_is_free", "lock->news.holders == 0 &&",
        "lock->news.holders <= 1 &&",
        "AWAIT takes a lock with one holder for free"),
    "await-one-is-woken": (
        "watch_tell_lock",
        "            watch->await->tell(core, watch);\n"
        "            continue;\n",
        "            watch->await->tell(core, watch);\n"
        "            return true;\n",
        "of several AWAITs of a lock only the first is woken"),
    "await-old-fence": (
        "news_take", "    if (result->arrival > 1)\n", "    if (false)\n",
        "AWAIT tells the last fence that its broker has seen"),
    "wanted-counts-holders": (
        "news_take", "news->waiters = result->waiters +",
        "news->waiters = result->waiters + result->holders +",
        "WANTED counts holders among those who wait"),
    "wanted-again": (
        "watch_grows", "waiters > watch->told_waiters",
        "waiters >= watch->told_waiters && waiters > 0",
        "WANTED is told again, though no more wait"),
    "wanted-never": (
        "watch_grows", "return watch_hold(core, watch) != NULL;",
        "return false;", "WANTED is not told"),
}
