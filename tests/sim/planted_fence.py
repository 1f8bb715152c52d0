"""Bugs of the fence clock and of old records: DESIGN.md D2, D11."""

SETTINGS = ("--set", "cluster=0,sentinels=0,masters=1,replicas=0,brokers=3,"
            "quorum=0,strict=0,settle_ms=0")

# As in planted.py.
PLANTED = {
    "fence-clock-forgets": (
        "fence_clock_us",
        "    return store->fence_clock_us + age_us - age_us / CLOCK_DRIFT;\n",
        "    return store->realtime_us + 0 * age_us;\n",
        "the fence clock goes back with the others"),
    "old-copy-believed": ("raise_fence", "elseif number == 0 then",
                          "elseif false then",
                          "an older record that comes back is believed"),
    "forgotten-begins-at-the-clock": (
        "raise_fence", "local start = clock_us + FENCE_JUMP",
        "local start = clock_us - FENCE_JUMP",
        "a lock that Redis has forgotten begins below the last fence",
        ("first_fence", "return clock_us + FENCE_JUMP",
         "return clock_us - FENCE_JUMP")),
}
