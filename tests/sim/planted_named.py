"""Bugs for mutants.py to plant: of a master that is reached by a name."""

SETTINGS = ("--set", "cluster=0,sentinels=0,quorum=0,strict=0,replicas=1")

# name: (place, what is there, the mistake, what it is)
PLANTED = {
    "replica-is-kept": (
        "link_reply",
        "    if (link->demoted)\n        link_leave(store, link, now_us);\n",
        "    (void)link_leave;\n",
        "a connection to what is a replica now stands"),
}
