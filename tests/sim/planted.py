"""Bugs for mutants.py to plant: of holds, queues, Redis and time."""

# name: (place, what is there, the mistake, what it is)
PLANTED = {
    "lease-from-reply": (
        "op_answered", "op->result.sent_us = call->sent_us;",
        "op->result.sent_us = now_us;",
        "a lease counts from the answer and not from the sending"),
    "lines-after-operations": (
        "engine_carry_out",
        """    for (uint32_t i = 0; i < effects->entry_count; i++)
        engine->sink.effect(engine->arg, &effects->entries[i]);
    engine->writing = true;
    engine->sink.written(engine->arg);
    engine->writing = false;
    if (!list_empty(&engine->effects.ops))
        store_submit(engine->store, engine_now(engine), &engine->effects.ops);
""",
        """    if (!list_empty(&engine->effects.ops))
        store_submit(engine->store, engine_now(engine), &engine->effects.ops);
    if (effects->entry_count > 4096 || engine_now(engine) % 2 == 0) {
        for (uint32_t i = 0; i < effects->entry_count; i++)
            engine->sink.effect(engine->arg, &effects->entries[i]);
        engine->writing = true;
        engine->sink.written(engine->arg);
        engine->writing = false;
    }
""",
        "lines of a turn are lost"),
    "deadline-ignored": (
        "ticket_arm",
        "due_us = us_min(ticket->deadline_us, ticket->jeopardy_us);",
        "due_us = ticket->jeopardy_us;", "nobody looks at a hold's deadline"),
    "deadline-late": (
        "hold_believe",
        "hold_deadline(core, ticket, sent_us, ttl_us));",
        "(uint64_t)100000 +\n        hold_deadline(core, ticket, sent_us, "
        "ttl_us));",
        "a deadline is 100 ms too late"),
    "lease-without-end": (
        "hold_set_end",
        "hold_ms == 0 ? NEVER : us_add(sent_us, us_from_ms(hold_ms));",
        "NEVER;", "a broker renews a lease= beyond its end"),
    "no-watchdog": ("ticket_arm", "due_us = us_min(due_us, ticket->renew_us);",
                    "due_us = us_min(due_us, ticket->deadline_us);",
                    "nobody renews"),
    "renewal-brings-back": (
        "lua/renew.lua",
        "    if not t or (fence > 0 and t.fence ~= fence) then\n",
        "    if fence > 0 and not (t and t.fence == fence) then\n"
        "        return result(OK, place, arrival, fence, lease)\n"
        "    elseif not t then\n",
        "a renewal of what is gone is answered OK"),
    "timed-out-stays-queued": (
        "ticket_cancel",
        """    if (ticket->state == TICKET_WAITING) {
        ticket_leave(core, ticket);
        return true;
    }
    ticket->fate = FATE_ABANDONED;
""",
        """    if (ticket->state == TICKET_WAITING) {
        ticket->renew_op = HANDLE_NONE;
        ticket_set_state(core, ticket, TICKET_IDLE);
        ticket_stir(core, ticket);
        return true;
    }
    ticket->fate = FATE_ABANDONED;
""",
        "who has stopped waiting stands in the queue still"),
    "dead-stay-queued": (
        "ticket_orphan",
        """    case TICKET_WAITING:
        ticket_leave(core, ticket);
        break;
    case TICKET_ASKING:
        ticket_abandon(ticket);
        break;
    case TICKET_LEAVING:""",
        """    case TICKET_WAITING:
        ticket->renew_op = HANDLE_NONE;
        ticket->holds = 0;
        ticket_set_state(core, ticket, TICKET_IDLE);
        ticket_free(core, ticket);
        break;
    case TICKET_ASKING:
        ticket_abandon(ticket);
        break;
    case TICKET_LEAVING:""",
        "the dead are not struck from the queue"),
    "dead-keep-locks": (
        "ticket_orphan",
        """        if (!quit)
            ticket->ending = ENDING_UNCLEAN;
        ticket_leave(core, ticket);
        break;""",
        """        if (!quit)
            ticket->ending = ENDING_UNCLEAN;
        ticket->renew_op = HANDLE_NONE;
        ticket->holds = 0;
        ticket_set_state(core, ticket, TICKET_IDLE);
        ticket_free(core, ticket);
        break;""",
        "the locks of the dead wait for their leases' end"),
    "grant-to-the-gone": (
        "ticket_grant",
        "    if (!good || !ticket_wanted(ticket)) {\n",
        "    if (!ticket_wanted(ticket)) {\n"
        "        ticket_rest(core, ticket);\n        return;\n    }\n"
        "    if (!good) {\n",
        "a late grant for a request that is gone is not released"),
    "stale-unlock": (
        "fence_is_stale",
        "    if (request->fence == 0 || request->fence == ticket->fence)\n"
        "        return false;",
        "    if (request->fence < (uint64_t)1 << 60)\n        return false;",
        "UNLOCK does not look at the fence"),
    "release-without-fence": (
        "lua/release.lua",
        "    if not t then\n",
        "    t = t or (r.live > 0 and ticket_unpack(r.first, call('GETRANGE',\n"
        "        key, ticket_at(r, r.first), ticket_at(r, r.first + 1) - 1),\n"
        "        1))\n    if not t then\n",
        "a release strikes out whoever stands first"),
    "acquire-not-idempotent": (
        "ticket_standing", "if bit.band(flags, RETRY) ~= 0 then",
        "if false then", "asking again stands in the queue twice"),
    "retry-not-told": (
        "ticket_ask", "    op->retry = ticket->doubt;\n"
        "    if (!op->retry)", "    if (!op->retry)",
        "after a lost answer nobody looks for the ticket"),
    "retry-finds-the-expired": (
        "lua/acquire.lua",
        "    expire(r)\n    if free",
        "    if bit.band(flags, RETRY) == 0 then\n        expire(r)\n"
        "    end\n    if free",
        "a retry is answered with a hold that is over, and that is told",
        ("ticket_again",
         "        t.ends, r.longest = ends_anew(r, t, lease), "
         "max(r.longest, lease)\n",
         "        r.longest = max(r.longest, lease)\n"),
        ("ticket_grant",
         "                ticket->deadline_us > core->now_us &&\n",
         "")),
    "no-latest-time": (
        "lua/acquire.lua",
        "    if now > latest then\n        return result(LATE)\n    end\n", "",
        "an acquire that slept in a buffer still runs"),
    "doubt-is-no": (
        "acquire_unknown",
        "    count(core->counters, COUNTER_outcomes_unknown);\n"
        "    ticket->doubt = true;\n    asking_called_off",
        "    count(core->counters, COUNTER_outcomes_unknown);\n"
        "    asking_called_off",
        "a lost answer is taken for a no"),
    "unknown-is-unsent": ("call_lost", "op_done(store, op, OP_UNKNOWN);",
                          "op_done(store, op, OP_UNSENT);",
                          "what was sent and not answered counts as not sent"),
    "two-holders": ("compatible", "return r.granted == 0 or",
                    "return r.granted <= 1 or", "two are compatible"),
    "expires-early": ("expire_holders",
                      "if t.ends <= now and (steady or lapsed) then",
                      "if t.ends <= now + 400 and (steady or lapsed) then",
                      "a lease ends 400 ms too early"),
    "no-suspension": ("expire_holders", "if lapsed then", "if false then",
                      "a lapse does not suspend the broker's other tickets"),
    "suspended-for-ever": (
        "lua/renew.lua", "    t.flags = WAITS\n    waits_until",
        "    waits_until",
        "a refresh does not end a suspension"),
    "last-in-first": (
        "serve", "        elseif flags == WAITS then",
        "        elseif flags == WAITS and\n"
        "            (place == r.stored - 1 or now % 3 > 0) then",
        "the queue is not served in order"),
    "unclaimed-for-ever": ("grant", "now + min(t.lease, lapse)",
                           "now + t.lease * 100",
                           "an unclaimed grant does not lapse"),
    "no-publish": (
        "announce", "        hint(t, t.fence)\n", "",
        "no hint is published, and the releaser does not ask either",
        ("core_lock_op_done", "    if (result->handed)", "    if (false)"),
        ("ticket_waits",
         "    lock_ask_at(core, ticket->lock,\n"
         "        core->now_us + us_from_ms(result->again_ms) + 20000 +",
         "    lock_ask_at(core, ticket->lock,\n"
         "        core->now_us + us_from_ms(result->again_ms) + 600000000 +")),
    "fence-by-clock": (
        "raise_fence",
        "    if seen > fence then\n",
        "    fence = now_us\n    if seen > fence then\n",
        "the fence is the clock"),
    "fence-no-jump": ("raise_fence",
                      "fence = fence < start and start or fence + FENCE_STEP",
                      "fence = fence + 0",
                      "no jump of the fence where the replication id changed"),
    "fence-runs-away": (
        "raise_fence", "fence = fence < start and start or fence + FENCE_STEP",
        "fence = math.max(start, fence + FENCE_STEP)",
        "changes of the replication id in short order lead too far ahead"),
    "fence-forgets": (
        "head_new", "fence = settled and first_fence() or 0,", "fence = 0,",
        "a lock without a record begins at fence 0",
        ("acquire_first", "local fence = raise_fence(0, NO_ID, seen)",
         "local fence = raise_fence(0, NO_ID, seen) and seen")),
    "same-fence": (
        "grant", "r.fence, r.news, r.given = next_fence(r.fence), true, true",
        "r.news, r.given = true, true",
        "a hand-over gives the last fence again"),
    "squeeze-loses-one": ("record_write",
                          "kept[#kept + 1] = sub(raw, from, at - 1)",
                          "kept[#kept + 1] = sub(raw, from + r.width, at - 1)",
                          "squeezing the dead out loses a living ticket"),
    "prefix-compared": (
        "ticket_of",
        "    if t and t.flags ~= 0 and t.identity == identity then",
        "    if t and t.flags ~= 0 and\n"
        "        sub(t.identity, 1, 4) == sub(identity, 1, 4) then",
        "identities are compared by their beginning"),
    "predecessor-lives": (
        "conn_prepare",
        "    if (conn->old_client_id != 0 &&\n        memcmp",
        "    if (conn->old_client_id == UINT64_MAX &&\n        memcmp",
        "the lost connection's commands may still run",
        ("lua/acquire.lua",
         "    if now > latest then\n        return result(LATE)\n    end\n",
         "")),
    "ask-without-asking": ("refused_ask", "op_own(op)->asking = true;",
                           "op_own(op)->asking = false;",
                           "ASK is followed without ASKING"),
    "no-split": (
        "op_refused",
        "        count(store->counters, COUNTER_redis_tryagain);\n"
        "        op_own(op)->single = true;\n",
        "        count(store->counters, COUNTER_redis_tryagain);\n",
        "a batch that got TRYAGAIN is tried again as it is, without jitter",
        ("op_again",
         "        op_park(store, op, now_us + store_jitter(store, delay_us));",
         "        op_park(store, op, now_us + delay_us);")),
    "moved-ignored": (
        "refused_moved",
        "    (void)route_slot(store, slot, node, now_us);\n"
        "    op_again(store, op, node",
        "    op_again(store, op, conn->node",
        "MOVED is not followed",
        ("refused_moved",
         "    count(store->counters, COUNTER_redis_moved);\n"
         "    store->map_wanted = true;",
         "    count(store->counters, COUNTER_redis_moved);")),
    "noscript-not-loaded": (
        "call_refused",
        "    if (refusal_of(error) == REFUSAL_NOSCRIPT)\n"
        "        load_for(store, conn, call, now_us);\n", "",
        "scripts that Redis forgot are not loaded again"),
    "wheel-late": (
        "wheel_add", "    node->due_us = due_us;\n    place",
        "    node->due_us = due_us + 700000;\n    place",
        "timers fire 700 ms late"),
    "handle-not-checked": (
        "slab_get",
        "    return node->generation == handle.generation ? node : NULL;",
        "    return (node->generation & 1) == 1 ? node : NULL;",
        "what is meant for one that is gone reaches who has its place"),
    "requests-forgotten": (
        "ticket_advance",
        "            if (!idle_serve(core, ticket, request))\n"
        "                return;\n"
        "            break;",
        "            (void)idle_serve(core, ticket, request);\n"
        "            return;",
        "what was queued behind a request is never served"),
    "reentry-not-counted": ("hold_reenter", "if (ticket->holds++ > 0)",
                            "if (ticket->holds > 0 || ticket->holds++ > 0)",
                            "an inner UNLOCK frees the outer section"),
    "lost-not-told": ("hold_end", "    hold_lost(core, ticket, reason);\n", "",
                      "LOST is not sent"),
    "undelivered-unlock": (
        "release_done",
        "        release_given_up(core, ticket, result->sent_us);\n", "",
        "UNLOCK of what ran out undelivered is told that it was never held"),
    "overtaken-renewal-shortens": (
        "hold_extend", "t.ends = ends_anew(r, t, term)", "t.ends = now + term",
        "a renewal that was overtaken shortens the lease"),
    "heartbeats-forgotten": (
        "session_beat", "if (silent_us >= 3 * session->heartbeat_us) {",
        "if (silent_us >= 300 * session->heartbeat_us) {",
        "a session that misses its heartbeats is not ended"),
    "told-beyond-silence": (
        "ticket_ttl_ms", "left_us = us_min(left_us, session_silence_us(core, "
        "ticket->session));", "left_us = us_min(left_us, NEVER);",
        "a ttl_ms is longer than the silence that ends the session"),
    "hint-forgotten": (
        "ticket_hint",
        "    if (ticket->state != TICKET_WAITING ||\n"
        "        !handle_equal(ticket->renew_op, HANDLE_NONE)) {\n"
        "        ticket->hinted = true;\n",
        "    if (ticket->state != TICKET_WAITING ||\n"
        "        !handle_equal(ticket->renew_op, HANDLE_NONE)) {\n",
        "a hint that comes while a question is under way is forgotten"),
    "unheard-ignored": (
        "core_unheard",
        "        if (ticket == NULL)\n            continue;\n"
        "        if (ticket->state == TICKET_ASKING ||\n",
        "        if (ticket == NULL || !ticket->hinted)\n"
        "            continue;\n"
        "        if (ticket->state == TICKET_ASKING ||\n",
        "hints that may have been missed are not asked after"),
    "place-not-kept": (
        "ticket_waits",
        "    ticket->refresh_us = core->now_us + lease_us / 3 -",
        "    ticket->refresh_us = core->now_us + 10 * lease_us -",
        "who waits does not renew its place in the queue",
        ("ticket_waits",
         "    lock_ask_at(core, ticket->lock,\n"
         "        core->now_us + us_from_ms(result->again_ms) + 20000 +",
         "    lock_ask_at(core, ticket->lock,\n"
         "        core->now_us + 2 * lease_us + 20000 +")),
    "silent-link-kept": (
        "conn_await", "if (now_us >= until_us || replaced) {",
        "if (now_us >= until_us + 1000000000) {",
        "a Redis that does not answer is waited for",
        ("op_until_us", "return op->deadline_us < most_us ? op->deadline_us : "
         "most_us;", "return sent_us + 1000000000;")),
    "slow-is-dead": ("conn_await", "if (now_us >= until_us || replaced) {",
                     "if (now_us >= conn_in_time_us(store, conn)) {",
                     "a connection is closed when one answer is late"),
    "sentinel-alone": (
        "master_elected", "return 2 * votes > store->sentinel_count;",
        "return votes > 0;", "one Sentinel is enough to make a master"),
    "sentinel-of-old": (
        "daemon/store/model/state.h", "#define TRUST_US 2000000",
        "#define TRUST_US     20000000",
        "what Sentinels said counts for long"),
    "release-once": (
        "release_done",
        "    ticket_refuse_late(core, ticket);\n"
        "    ticket->refresh_us =\n"
        "        core->now_us + core_jitter(core, refused\n"
        "                                             ? core->settings."
        "command_timeout_us\n"
        "                                             : RETRY_US);\n"
        "    ticket_arm(core, ticket);\n"
        "    ticket_advance(core, ticket);\n",
        "    release_given_up(core, ticket);\n"
        "    (void)ticket_refuse_late;\n"
        "    ticket_rest(core, ticket);\n",
        "a release that could not be sent is not tried again"),
}
