"""Bugs of upgradable holds, and of upgrades."""

SETTINGS = ("--set", "usual=1,quorum=0,upgrades=50,shares=60,semaphores=0")

# name: (place, what is there, the mistake, what it is, more changes)
PLANTED = {
    "upgrade-granted": (
        "hold_objection",
        "    if (asked->mode == MODE_EXCLUSIVE &&\n",
        "    if (asked->mode == MODE_EXCLUSIVE && asked->permits == 0 &&\n",
        "a reader is told that it writes from now on"),
    "upgrade-lets-in": (
        "upgrade",
        "                    announce(r, t, own, grants)\n"
        "                end\n                return true\n",
        "                    announce(r, t, own, grants)\n"
        "                    return true\n                end\n",
        "readers join while an upgrade waits"),
    "upgrade-beside-reader": (
        "upgrade", "local fence = r.granted == 1 and not barred(r) and",
        "local fence = r.granted <= 2 and not barred(r) and",
        "an upgrade is granted beside a reader"),
    "two-upgradable": (
        "lua/record.lua",
        "    [UPGRADABLE] = {flag = UPGRADABLE_NOW, intents = 0,\n"
        "        beside = SHARED_NOW +",
        "    [UPGRADABLE] = {flag = UPGRADABLE_NOW, intents = 0,\n"
        "        beside = SHARED_NOW + UPGRADABLE_NOW +",
        "two upgradable holds stand beside each other"),
    "upgrade-claimed-as-hold": (
        "command_to_ticket", ": upgrade ? ticket_obtain_upgrade",
        ": upgrade ? ticket_obtain",
        "the claim of an upgrade is one of the hold below it"),
}
