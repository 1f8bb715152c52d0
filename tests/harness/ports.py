"""Free ports on loopback, kept free until the server that needs one has it.

A reservation is a socket bound without SO_REUSEADDR, which it gets afterwards.
A server that sets the option before its bind may listen beside it, even after
a restart; no other reservation and no outgoing connection can take the port.
The numbers are below the range of outgoing connections.
"""

import random
import socket

PORT_LOWEST = 10240


def _ephemeral_lowest():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range",
                  encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError):
        return 32768


class Port:
    """A reserved port; `number` is valid until release()."""

    def __init__(self, number, holder):
        self.number = number
        self._holder = holder

    def release(self):
        self._holder.close()

    def __int__(self):
        return self.number

    def __str__(self):
        return str(self.number)


def reserve(host="127.0.0.1"):
    """Reserves one free TCP port of `host`."""
    highest = _ephemeral_lowest() - 1
    if highest < PORT_LOWEST + 1000:
        highest = 65535
    chooser = random.SystemRandom()
    for _ in range(1000):
        number = chooser.randint(PORT_LOWEST, highest)
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind((host, number))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return Port(number, holder)
    raise RuntimeError(f"no free port on {host}")


def can_listen(host, number):
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
            probe.listen(1)
        except OSError:
            return False
    return True
