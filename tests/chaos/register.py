#!/usr/bin/env python3
"""The resource that the locks protect: one register for each lock.

    register.py HOST PORT LOG

It speaks lines of JSON. A client reads a register, and writes it anew with the
name of the write that it has read (`base`). A write with another `base` than
the last write is a lost update, which the checker sees in LOG.

  {"op": "read", "lock": L, "fence": F}
  {"op": "write", "lock": L, "fence": F, "until": T, "id": I, "base": B}

Registers called fenced/... refuse a fence below the highest that they have
seen, of reads too. The others take writes before their `until`
(CLOCK_MONOTONIC). A later write is of a client that was held up after its last
look at the clock. Nothing of Holdfast is known here. run.py starts it and does
no harm to it.
"""

import json
import os
import selectors
import socket
import sys
import time

FENCED = "fenced/"


class Register:
    """The values, and the log of accepted writes."""

    def __init__(self, log_path):
        self.values = {}
        self.highest = {}
        self.log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                           0o644)

    def answer(self, ask):
        lock, fence = ask["lock"], ask["fence"]
        if lock.startswith(FENCED):
            if fence < self.highest.get(lock, 0):
                return {"ok": False, "why": "stale fence"}
            self.highest[lock] = fence
        if ask["op"] == "read":
            return {"ok": True, "id": self.values.get(lock, "")}
        now = time.monotonic()
        if now > ask["until"] and not lock.startswith(FENCED):
            return {"ok": False, "why": "late"}
        self.values[lock] = ask["id"]
        os.write(self.log, json.dumps(
            {"lock": lock, "id": ask["id"], "base": ask["base"],
             "fence": fence, "t": now}).encode() + b"\n")
        return {"ok": True}


def serve(host, port, log_path):
    register = Register(log_path)
    selector = selectors.DefaultSelector()
    listener = socket.create_server((host, port), backlog=128)
    selector.register(listener, selectors.EVENT_READ, None)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(peer, selectors.EVENT_READ, bytearray())
                continue
            peer, data = key.fileobj, key.data
            try:
                got = peer.recv(65536)
                data += got
                while b"\n" in data:
                    line, _, rest = bytes(data).partition(b"\n")
                    data[:] = rest
                    peer.sendall(json.dumps(
                        register.answer(json.loads(line))).encode() + b"\n")
            except OSError:
                got = b""
            if not got:
                selector.unregister(peer)
                peer.close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
