"""Bugs of whole and parts: of intentions in the records, and of parts."""

SETTINGS = ("--set", "usual=1,quorum=0,break_ms=0,trees=95,shares=30,keeps=95,"
            "clients=12,brokers=3,think_us=200000,hold_us=500000,delays=0,"
            "faults=0,broker_drain=16,half_open=4,redis_stop=4,partition=4,"
            "fault_us=500000")

# name: (place, what is there, the mistake, what it is, more changes)
PLANTED = {
    "part-beside-readers": (
        "lua/record.lua",
        "        beside = INTENT_NOW + INTENT_SHARED_NOW},",
        "        beside = SHARED_NOW + INTENT_NOW + INTENT_SHARED_NOW},",
        "a part is granted while others share the whole"),
    "readers-beside-part": (
        "lua/record.lua",
        "        beside = SHARED_NOW + UPGRADABLE_NOW + INTENT_SHARED_NOW},",
        "        beside = SHARED_NOW + UPGRADABLE_NOW + INTENT_NOW +\n"
        "            INTENT_SHARED_NOW},",
        "the whole is shared while somebody has a part"),
    "readers-stay": (
        "modes_left", "    if r.granted == shared + others + upgradable then",
        "    if r.granted == shared + others - 1 then",
        "a part waits for readers of the whole that have left"),
    "parts-stay": (
        "modes_left", "max(r.intents - mode.intents, 0)", "r.intents",
        "intentions that have left still count"),
    "idle-intentions-stay": (
        "intent_is_over", "    return intent->called || intent->reborn ||",
        "    return",
        "an idle intention is kept while others wait",
        ("intent_keep", "intent->granted_us + INTENT_KEPT_US;", "NEVER;")),
    "parts-are-forgotten": (
        "session_forget",
        "        if (intent_is_idle(ticket))\n"
        "            ticket_leave(core, ticket);\n", "",
        "a broker that stops gives back the intentions of kept parts",
        ("ticket_forget", "    if (ticket_reclaims(core, ticket)) {",
         "    if (intent_is_idle(ticket)) {\n"
         "        ticket_leave(core, ticket);\n        return;\n    }\n"
         "    if (ticket_reclaims(core, ticket)) {")),
}
