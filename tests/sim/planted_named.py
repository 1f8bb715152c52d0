"""Bugs for mutants.py to plant: of a master that is reached by a name."""

SETTINGS = ("--set", "cluster=0,sentinels=0,quorum=0,strict=0,replicas=1")

# name: (place, what is there, the mistake, what it is)
PLANTED = {
    "replica-is-kept": (
        "conn_reply",
        "    if (conn->demoted)\n        conn_leave(store, conn, now_us);\n",
        "    (void)conn_leave;\n",
        "a connection to what is a replica now stands"),
}
