"""Bugs of turns: one call at a time, and a session with very many requests."""

SETTINGS = ("--settings", "single", "--set",
            "usual=1,batch=1,in_flight=1,locks=3,jitter_us=10000")

# name: (place, what is there, the mistake, what it is, more changes)
PLANTED = {
    "kinds-take-no-turns": (
        "call_flush_node", "turn = (turn + 1) % LANE_COUNT;",
        "turn = has ? turn : (turn + 1) % LANE_COUNT;",
        "a kind of operation goes on as long as any of it waits"),
    "sessions-take-no-turns": (
        "lead_hash", "memcpy(key, op->session, sizeof(op->session));",
        "memset(key, 0, sizeof(op->session));",
        "operations of all sessions stand in one queue",
        ("lead_find", "memcmp(lead->session, op->session, "
         "sizeof(op->session)) == 0)", "op_own(lead)->leads)")),
}
