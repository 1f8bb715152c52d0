"""Bugs for mutants.py to plant: of a lease.default that changes."""

SETTINGS = ("--set", "usual=1,cluster=0,sentinels=0,quorum=0,strict=0,"
            "replicas=0,brokers=3,lease_ms=6000,settle_ms=6000,"
            "command_timeout_ms=500,peers=1,short_ms=2000,rolls=1")

# name: (place, what is there, the mistake, what it is)
PLANTED = {
    "longest-ignored": (
        "peers_settle_us",
        "        store->longest_us > own_us)\n"
        "        return store->longest_us;\n",
        "        store->longest_us > own_us)\n        return own_us;\n",
        "the longer lease of another broker is not waited for"),
}
