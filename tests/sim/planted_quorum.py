"""Bugs for mutants.py to plant: of a quorum of masters. See DESIGN.md D5."""

SETTINGS = ("--set", "quorum=1,masters=3,cluster=0,sentinels=0,replicas=0,"
            "semaphores=0,conflicts=0,strict=0,members=0,upgrades=0,trees=0,"
            "failover=0")

# As in planted.py.
PLANTED = {
    "half-is-a-majority": ("quorum_create",
                           "quorum->majority = quorum->nodes / 2 + 1;",
                           "quorum->majority = quorum->nodes / 2;",
                           "less than a majority grants"),
    "turns-never-pass": (
        "turn_due_us", "turn->grants >= QUORUM_TURN &&",
        "turn->grants > UINT32_MAX - 1 &&",
        "a broker goes on with its own tickets, whoever else waits"),
    "no-write-back": ("try_decide", "if (count.agree >= majority) {",
                      "if (count.has >= majority) {",
                      "a majority need not have the fence that is told"),
    "the-memoryless-vote": (
        "script_header",
        "        .settles_ms = history_settles_ms(store, conn, now_us),\n",
        "        .settles_ms = store->quorum != NULL\n"
        "                          ? 0\n"
        "                          : history_settles_ms(store, conn, "
        "now_us),\n",
        "a node that has lost its data grants at once"),
    "lost-try-stays": (
        "vote_settle",
        "    if (!stands)\n        vote_undo(store, vote);\n",
        "    if (!stands && round->won)\n        vote_undo(store, vote);\n",
        "what a minority has granted is not taken back"),
    "late-yes-stays": (
        "quorum_voted",
        "if (was == VOTE_REPAIRING ||\n"
        "        (round->decided && round->kind == OP_ACQUIRE)) {",
        "if (was == VOTE_REPAIRING) {",
        "nor what is granted after the decision"),
    "quorum-lease-from-the-reply": (
        "round_term", "result->sent_us = vote->sent_us;",
        "result->sent_us = store->now_us;", "a lease counts from the answers"),
    "released-by-one": (
        "leave_answer",
        "if (op == NULL || bits(bid->left) < store->quorum->majority)",
        "if (op == NULL || bits(bid->left) < 1)",
        "one node is enough for a release, and the others are not "
        "told again",
        ("leave_ask", "all_nodes(store->quorum) & ~(bid->asked_to_leave | "
         "bid->left);", "1u & ~(bid->asked_to_leave | bid->left);")),
    "renewal-ends-a-release": (
        "bid_is_over",
        "    if (bid->leaving)\n        return false;\n",
        "",
        "a renewal that finds a hold given back has its release forgotten"),
    "renewed-by-one": (
        "renew_decide",
        "    } else if (count.has >= majority) {\n        renew_won(",
        "    } else if (count.has >= 1) {\n        renew_won(",
        "one node is enough for a renewal"),
    "watch-before-agreed": (
        "view_fence",
        "        if (view->fences[i] == view->fences[i + majority "
        "- 1])\n", "", "who watches is told of what has not been granted yet"),
    "waited-without-words": (
        "ticket_refresh",
        "    ticket->refresh_us = NEVER;\n    ticket_words(ticket, op);\n",
        "    ticket->refresh_us = NEVER;\n",
        "who has waited has no note any more"),
    "mended-without-words": (
        "ticket_send_renewal",
        "    op->deadline_us = us_min(deadline_us, ticket->deadline_us);\n"
        "    ticket_words(ticket, op);\n",
        "    op->deadline_us = us_min(deadline_us, ticket->deadline_us);\n",
        "nor has what is put again at a node"),
    "comes-back-for-nothing": (
        "bid_waits", "    op->result.ask = bid->ask;\n", "",
        "who comes back to a wait has forgotten what kind of lock it "
        "is for", ("try_decide", ".ask = bid->ask, .arrival", ".arrival")),
    "watch-two-tries": (
        "same_ticket", "return a->request == b->request && a->generation == "
        "b->generation &&", "return a->generation == b->generation &&",
        "a node that was away has who watches told of an earlier hold"),
}
