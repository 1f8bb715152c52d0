"""Bugs of UNLOCK with delay=."""

SETTINGS = ("--set", "usual=1,rests=60,detaches=30,shares=20,clients=12,"
            "brokers=2,think_us=100000,hold_us=200000,faults=0,cut=16,"
            "half_open=4,client_list_kill=8,redis_stop=4,fault_us=200000")

# name: (place, what is there, the mistake, what it is, more changes)
PLANTED = {
    "unlock-without-delay": (
        "lua/release.lua", "    if delay > 0 and not over then",
        "    if delay > 600000 and not over then",
        "the delay of an UNLOCK does not begin"),
    "plain-without-delay": (
        "release_plain",
        "        sub(arg, IDENTITY + RELEASE_DELAY + 1) ~= NO_DELAY or\n", "",
        "the short cut for a release ignores its delay"),
    "delay-of-first-try": (
        "ticket_send_release", "    op->delay_ms = ticket->delay_ms;\n",
        "    op->delay_ms = ticket->doubt ? 0 : ticket->delay_ms;\n",
        "a release that is tried again has no delay"),
    "detached-without-delay": (
        "detached_ask", "    op->delay_ms = request->ask.delay_ms;\n", "",
        "UNLOCK with detached=1 ignores its delay"),
}
