"""Mistakes in audits, for runs with many."""

SETTINGS = ("--set", "audit_ms=700,break_ms=2000")

PLANTED = {
    "audit-breaks-whoever": (
        "finding_break",
        "    op->fence = finding->fence;\n    op_submit(core, op);\n"
        "    return false;\n",
        "    op_submit(core, op);\n    return false;\n",
        "an audit breaks all holds of a lock that has an old one"),
    "nobody-knows-a-hold": (
        "broker_knows",
        "            memcmp(&ticket->owner_hash, owner_hash, 8) == 0)\n"
        "            return true;\n",
        "            memcmp(&ticket->owner_hash, owner_hash, 8) == 0)\n"
        "            return false;\n",
        "a broker that is asked does not know its own holds"),
    "limits-are-not-reloaded": (
        "core_configure",
        "    audit_set_limits(core, settings->audit_limits);\n", "",
        "audits go on by the limits of before"),
    "the-dead-are-counted": (
        "look_at",
        "        if flags ~= 0 then\n"
        "            live = live + 1\n        end\n",
        "        live = live + 1\n",
        "an audit counts tickets that are over"),
}
