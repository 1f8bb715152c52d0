"""Bugs of kinds of locks, moved sessions, watches, deadlocks and orders."""

# name: (place, what is there, the mistake, what it is)
PLANTED = {
    "reader-overtakes": (
        "serve", "        elseif flags == WAITS then",
        "        elseif flags == WAITS and\n"
        "            (not blocked or byte(raw, at + 1) == SHARED) then",
        "a reader overtakes a writer that waits",
        ("serve",
         "        if waiting == 0 or blocked then\n",
         "        if waiting == 0 then\n")),
    "batch-past-writer": (
        "serve", "                blocked, whole = true, false\n",
        "                blocked, whole = given == 0, false\n",
        "a batch of readers goes on behind the writer that ends it"),
    "reader-beside-writer": (
        "compatible",
        "held > 0 and bit.band(held, mode.beside) == held",
        "t.mode == SHARED", "a reader joins a writer"),
    "writer-beside-reader": (
        "compatible",
        "held > 0 and bit.band(held, mode.beside) == held",
        "held > 0 and (t.mode == SHARED or r.granted == 1)",
        "who goes on as a reader lets a writer in"),
    "downgrade-not-stored": (
        "hold_speaks", "t.mode, t.ends = SHARED, min(t.ends, now + r.longest)",
        "t.ends = min(t.ends, now + r.longest)",
        "who goes on as a reader keeps readers out"),
    "one-permit-more": ("compatible", "return r.used + t.permits <= r.limit",
                        "return r.used + t.permits <= r.limit + 1",
                        "a semaphore counts its permits wrong by one"),
    "large-request-starves": (
        "serve", "                blocked, whole = true, false\n",
        "                blocked, whole = r.limit == 0, false\n",
        "small requests overtake a large one at a semaphore"),
    "crash-keeps-permits": (
        "ticket_orphan",
        """        if (!quit)
            ticket->ending = ENDING_UNCLEAN;
        ticket_leave(core, ticket);
        break;""",
        """        if (!quit)
            ticket->ending = ENDING_UNCLEAN;
        if (ticket->ask.permits_max > 0) {
            ticket->renew_op = HANDLE_NONE;
            ticket->holds = 0;
            ticket_set_state(core, ticket, TICKET_IDLE);
            ticket_free(core, ticket);
            break;
        }
        ticket_leave(core, ticket);
        break;""",
        "a crash does not give permits back"),
    "limit-not-compared": (
        "refusal",
        "    if r.limit ~= limit then\n        return CONFLICT\n",
        "    if r.limit == 0 and limit > 0 then\n        return CONFLICT\n",
        "another limit= is no conflict"),
    "no-lock-delay": (
        "expire_holders", "elseif t.delay > 0 then",
        "elseif t.delay > 600000 then",
        "no lock-delay begins where a lease ends",
        ("lua/release.lua",
         "if (over or bit.band(flags, UNCLEAN) ~= 0) and t.delay > 0 and",
         "if bit.band(flags, UNCLEAN) ~= 0 and t.delay > 600000 and")),
    "no-delay-at-death": ("ticket_orphan", "        if (!quit)\n",
                          "        if (!quit && killed)\n",
                          "no lock-delay begins at a death"),
    "delay-after-unlock": (
        "lua/release.lua",
        "if (over or bit.band(flags, UNCLEAN) ~= 0) and t.delay > 0 and",
        "if t.delay > 0 and", "the lock-delay begins at an UNLOCK too",
        ("release_plain", "(byte(arg, IDENTITY + RELEASE_FLAGS + 1) ~= 0 and",
         "(")),
    "await-in-delay": (
        "news_take", "us_max(result->delay_ms, result->ttl_ms)",
        "result->ttl_ms", "AWAIT takes a lock for free in its lock-delay"),
    "late-release": (
        "ticket_of",
        "    if t and t.flags ~= 0 and t.identity == identity then",
        "    if t and t.flags ~= 0 and\n"
        "        sub(t.identity, 5, 28) == sub(identity, 5, 28) then",
        "what the broker of an earlier generation says late still counts"),
    "generation-goes-back": (
        "ticket_move",
        "    if old > new or (old == new and t.broker ~= broker) then\n",
        "    if old == new and t.broker ~= broker then\n",
        "an earlier generation takes a ticket back"),
    "place-lost": (
        "lua/acquire.lua", "if not t and bit.band(flags, MOVES) ~= 0 then",
        "if false then", "who moves stands in the queue anew, at its end"),
    "claim-not-moved": ("claim_ask", "    op->moves = true;\n", "",
                        "a claim does not find what another broker has"),
    "claim-forgets-count": ("hold_claimed", "ticket->holds = request->holds;",
                            "ticket->holds = 1;",
                            "a claim forgets re-entries"),
    "kept-is-released": (
        "session_disconnected",
        "    else if (!session_keeps(session) || session->ticket_count == 0)\n",
        "    else if (!core->stopping)\n",
        "what a session should keep ends with its connection"),
    "kept-for-ever": (
        "session_go_away",
        "    session->keep_due_us = us_add(core->now_us, session->keep_us);\n",
        "    session->keep_due_us = NEVER;\n",
        "what nobody comes for is kept for ever"),
    "kept-for-nothing": ("session_check_end",
                         "(!((session->drained || away) && bare) ||",
                         "(!(session->drained && bare) ||",
                         "a session is kept whose holds other brokers have"),
    "drain-releases": (
        "session_disconnected",
        "    else if (core->stopping || !room) ",
        "    else if (core->stopping)\n"
        "        session_free(core, session, counter);\n"
        "    else if (!room) ",
        "a broker that stops releases what its sessions keep",
        ("session_disconnected",
         "    if (over)\n        session_forget(core, session, counter);\n",
         "    if (over)\n        session_free(core, session, counter);\n")),
    "several-kept": (
        "multilock_roll_back",
        "        if (ticket != NULL)\n"
        "            ticket_give_back(core, ticket);\n",
        "",
        "a LOCK of several names that fails keeps what it had"),
    "several-unordered": (
        "multilock_insert", "name) > 0)", "name) > 0 && false)",
        "several names are taken in the order of the request"),
    "several-part-lost": (
        "hold_lost", "multilock_lost(core, had);", "had->asked = false;",
        "one of several names is lost on the way, and all the same "
        "it is OK"),
    "deadlock-oldest": ("probe_conclude", "if (a->since_us > b->since_us ||",
                        "if (a->since_us < b->since_us ||",
                        "the oldest wait of a cycle is ended"),
    "deadlock-unverified": (
        "probe_closes", "probe_send(core, next, next->nodes[0].broker, lock);",
        "probe_conclude(core, next, lock);",
        "a wait is ended for a cycle that is none any more"),
    "deadlock-own-broker": ("probe_tell", "= message_create(core);",
                            "= lock == NULL ? message_create(core) : NULL;",
                            "cycles over several brokers are not found"),
    "deadlock-not-asked-to": ("wait_counts", "!request->no_deadlock;", "true;",
                              "deadlock=0 is not obeyed"),
    "deadlock-never": (
        "deadlock_search",
        "if (ticket->who == NULL || !owner_is_in_between(ticket->who))",
        "if (ticket->lock != NULL)", "nobody looks for cycles"),
    "broken-is-renewed": ("hold_speaks",
                          "if parted or bit.band(t.flags, BROKEN) ~= 0 then",
                          "if parted then", "what was broken is renewed"),
    "broken-not-told": (
        "ticket_broken",
        "    if (ticket != NULL && ticket->state == TICKET_HELD &&\n"
        "        ticket->fence == fence)\n        hold_broken",
        "    if (ticket != NULL && ticket->state == TICKET_HELD &&\n"
        "        ticket->fence > fence)\n        hold_broken",
        "BREAK leaves the holder in its belief",
        ("hold_renew_done",
         "    case OP_BROKEN:\n        hold_broken(core, ticket);\n"
         "        return;\n",
         "    case OP_BROKEN:\n"
         "        hold_not_renewed(core, ticket, OP_UNSENT);\n"
         "        return;\n")),
    "broken-without-delay": (
        "ticket_send_release",
        "op->unclean = ticket->ending >= ENDING_UNCLEAN;",
        "op->unclean = ticket->ending == ENDING_UNCLEAN;",
        "no lock-delay begins at BREAK"),
    "cancelled-and-granted": (
        "request_end",
        "    if (request->ticket->state != TICKET_ASKING || "
        "code == ERROR_DRAINING) {\n",
        "    if (request->ticket->state != TICKET_IDLE || "
        "code == ERROR_DRAINING) {\n",
        "CANCELLED is told before the grant is given back"),
    "ttl-beyond-keep": (
        "session_silence_bound_us",
        "    if (session->keep_us > 0)\n        return session->keep_us;\n", "",
        "ttl_ms tells more than keep="),
    "kill-keeps": ("session_was_killed",
                   "session->end == END_KILLED || session->end == END_AUTH;",
                   "false;",
                   "what a session keeps is kept after KILL"),
    "note-of-the-first": (
        "lua/record.lua",
        "    call('SETRANGE', r.key, ticket_at(r, t.place) + TICKET,\n",
        "    call('SETRANGE', r.key, ticket_at(r, r.first) + TICKET,\n",
        "another note is written to the first ticket of the lock"),
    "watch-old-fence": ("news_take",
                        "if (!ticket->granted || ticket->fence < news->fence)",
                        "if (!ticket->granted || news->fence > 0)",
                        "of several holders the oldest is told"),
    "watch-without-free": (
        "watch_has_news",
        "    return !watch->told || held != (watch->told_holders > 0) ||\n",
        "    return !watch->told || (held && watch->told_holders == 0) ||\n",
        "FREE is not told"),
    "members-before-list": (
        "members_change",
        "        if (watch->kind != WATCH_MEMBERS || "
        "ticket->arrival > watch->shown)\n",
        "        if (watch->kind != WATCH_MEMBERS)\n",
        "changes of members are told before the list"),
    "members-leave-untold": (
        "ungrant",
        "    member_tell(r, LEAVES, t, r.granted)\n", "",
        "nobody hears that a member leaves, nor that messages are lost",
        ("members_change",
         "    if (members->count != told->count || "
         "members->history != told->history ||\n",
         "    if (members->history != told->history ||\n"),
        ("members_page",
         "    if (was.count != told->count || "
         "was.sum != told->sum ||\n        was.history",
         "    if (was.history")),
    "watch-behind": (
        "watch_inspected",
        "    news_take(core, &lock->news, &op->result);\n",
        "    if (!lock->news.known)\n"
        "        news_take(core, &lock->news, &op->result);\n",
        "what is told is one change behind",
        ("watch_inspected",
         "    if (lock->watch_again)\n        watch_inspect(core, lock);\n",
         "    watch_tell_all(core);\n"
         "    news_take(core, &lock->news, &op->result);\n"
         "    if (lock->watch_again)\n        watch_inspect(core, lock);\n")),
    "watch-unheard": (
        "watchers_tell",
        "        pcall_redis('PUBLISH', channel .. 'watch', 'W' .. "
        "r.key)\n", "", "changes are not published to who watches"),
    "watch-not-again": ("watch_inspect", "        lock->watch_again = true;\n",
                        "", "a change during an inspection is forgotten"),
}
