"""Bugs of brokers that are not settled with a node: DESIGN.md D3."""

SETTINGS = ("--set", "cluster=1,sentinels=0,masters=2,replicas=1,brokers=3,"
            "quorum=0,strict=0")

# As in planted.py.
PLANTED = {
    "settled-at-once": ("history_begin",
                        "settled = store->settings.settle_us == 0;",
                        "settled = true;",
                        "a node whose history has changed is trusted at once"),
    "settled-too-soon": (
        "history_tick",
        "history.since_us + peers_settle_us(store, now_us))",
        "history.since_us + peers_settle_us(store, now_us) / 4)",
        "it is trusted after a quarter of a lease"),
    "marker-of-old": ("history_marked",
                      "if (memcmp(reply->text.at, value, conn->first ? 40 : "
                      "MARK_IDS) == 0)", "if (value[0] != 0)",
                      "a marker counts whatever ids it has"),
    "settled-with-another": (
        "look",
        "    known = sub(header, HEADER_ID + 1, HEADER_SETTLES_IN) == id or\n",
        "    known = true or\n",
        "a broker that has not heard of the change is served"),
    "change-is-benign": (
        "history_learn", "if (known && same_run && conn->first) {",
        "if (known && same_run) {", "a promotion is taken for a backup"),
    "restart-is-benign": ("history_learn",
                          "if (known && same_run && conn->first) {",
                          "if (known && conn->first) {",
                          "another process is taken for the same"),
    "stamped-by-a-wait": (
        "ticket_append",
        "    waits_until(r, t, t.ends)\n    ticket_put(r, words, t)\n",
        "    waits_until(r, t, t.ends)\n    ticket_put(r, words, t)\n"
        "    r.id = id\n",
        "who stands in the queue makes old data look new"),
    "stamped-by-a-reader": ("sole",
                            "return r.limit == 0 and t.mode == EXCLUSIVE",
                            "return true",
                            "one reader is taken for all of them"),
    "claimed-of-old": ("hold_speaks", "if r.pending and claims then",
                       "if false then",
                       "a grant of before the failover is claimed after it"),
    "adopted-unclaimed": (
        "adopt_holders", "if bit.band(flags, CLAIMED + BROKEN) ~= 0 then",
        "if true then", "an unclaimed grant of before stays one"),
    "expired-of-old": (
        "expire_holders", "if r.granted == 0 or r.pending or",
        "if r.granted == 0 or",
        "who is not settled ends a lease that another clock counts",
        ("expire_holders", "if t.ends <= now and (steady or lapsed) then",
         "if t.ends <= now and (steady or lapsed or r.pending) then")),
    "back-with-any-fence": ("hold_fits", "if t.fence <= r.fence then",
                            "if false then",
                            "a hold comes back that is older than the data"),
    "left-by-an-earlier-connection": (
        "lua/release.lua",
        "if bit.band(flags, UNCLEAN + REPEATS) ~= 0 and bereft(r, 0) and",
        "if false and",
        "what a dead connection had is free, though its session may "
        "have claimed it"),
    "never-back": (
        "hold_renew_done",
        "        if (ticket_is_taken(ticket))\n            hold_end_gone(",
        "        if (ticket != NULL)\n            hold_end_gone(",
        "a hold that Redis has lost is not put there again"),
    "back-at-the-end": ("ticket_back",
                        "t.place, over = place_for(r, t.arrival)",
                        "t.place, over = nil, false",
                        "waiters that come back lose their places"),
    "released-before-it-is-back": (
        "ticket_leave_at",
        "    if (ticket_reclaims(core, ticket))\n"
        "        ticket->main_op = ticket->renew_op;\n"
        "    else if (renewal != NULL)",
        "    if (renewal != NULL && !ticket_reclaims(core, ticket))",
        "a release overtakes the hold that comes back"),
    "slots-inherit-nothing": (
        "history_inherit",
        "    if (from == NULL) {\n"
        "        history_doubt(store, conn, false, now_us);\n"
        "        return;\n"
        "    }\n"
        "    if (from->history.state",
        "    if (from != conn)\n"
        "        return;\n"
        "    if (from->history.state",
        "a slot is trusted wherever it comes from"),
    "marker-for-all-slots": (
        "history_marked",
        "    if (conn->history.state != HISTORY_NEW)\n",
        "    if (conn->history.state == HISTORY_SETTLED)\n",
        "the marker counts for slots that came from elsewhere"),
    "taken-ticket-put-back": ("ticket_is_taken",
                              "return ticket->taken > ticket->generation;",
                              "return ticket->taken == UINT32_MAX;",
                              "a ticket that another broker has is put back"),
    "releases-not-repeated": (
        "core_changed", "    releases_repeat(core);\n", "",
        "what a failover has brought back of a hold stays until its end"),
    "old-releases-first": ("releases_pass",
                           "releases->left = releases->count;",
                           "releases->left = releases->count / 2;",
                           "the newest releases are not repeated"),
    "unshown-is-claimed": (
        "lua/renew.lua",
        "if claim_refused(r, t, seen, bit.band(flags, HOLDS) ~= 0) then",
        "if false then",
        "what a failover brings back is claimed, though it was given back"),
    "unheard-is-taken-up": (
        "op_is_overdue",
        "    return now_us + store->settings.command_timeout_us > "
        "op->over_us;\n",
        "    (void)store, (void)op, (void)now_us;\n    return false;\n",
        "a grant that nobody heard of is taken up when its lease is over"),
}
