"""Bugs of answers that wait for replicas: DESIGN.md D4."""

SETTINGS = ("--set", "cluster=1,sentinels=0,masters=2,replicas=2,brokers=3,"
            "quorum=0,strict=1")

# As in planted.py.
PLANTED = {
    "strict-tells-at-once": (
        "confirm_wanted",
        "    return store->settings.strict && reply->type == RESP_STRING &&\n",
        "    return false && reply->type == RESP_STRING &&\n",
        "nothing waits for replicas"),
    "renewals-unconfirmed": (
        "confirm_wanted", "grants == KIND_GRANTS);",
        "container_of(call->ops.next, struct op, link)->kind == "
        "OP_ACQUIRE);", "only grants wait for replicas"),
    "shortfall-is-ok": (
        "replicas_judge", "state == REPLICAS_FINE && !view.behind &&",
        "state == REPLICAS_FINE &&", "how far the replicas are does not count",
        ("replicas_judge", "else if (lags)",
         "else if (lags && replicas->error)")),
    "one-replica-is-enough": (
        "replicas_judge",
        "    else if (view.missing.len > 0 ||\n"
        "             view.online < replicas_needed(store, replicas))\n",
        "    else if (view.online < 1)\n",
        "the replicas that are there are enough"),
    "later-answer-is-confirmed": (
        "confirm_verdict",
        "        if (!call->covered)\n            break;\n",
        "",
        "an answer after the question counts as asked for"),
    "another-history-confirms": (
        "confirm_verdict", "if (!all_have_it || "
        "!text_equal(record_reply_id(call_said(call)), id))",
        "if (!all_have_it || id.len == 0)",
        "what was written before a failover counts as confirmed after it"),
}
