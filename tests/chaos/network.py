"""Hosts of one's own: a network namespace each, on one bridge.

The runner is in a namespace of its own already (run.py): nothing here touches
the machine's network, and all ends with its processes. A cut is one way or
both, by nftables at the receiver or by a blackhole route at the sender.
"""

import os
import shutil
import subprocess

from harness import Process, wait_until

PREFIX = "10.77"
MEANS = ("nft", "route")
RULES = """table inet chaos {
  set deaf { type ipv4_addr; }
  chain input {
    type filter hook input priority 0;
    ip saddr @deaf drop
  }
}
"""


class Network:
    """Off (`on` false): all is on 127.0.0.1 and nothing can be cut."""

    def __init__(self, on):
        self.on = on
        self.hosts = {}  # name: (Process, address)
        self.cuts = []
        self.means = [m for m in MEANS
                      if m == "route" or shutil.which("nft")]
        if on:
            self.shell("ip link set lo up; ip link add br0 type bridge; "
                       f"ip addr add {PREFIX}.0.1/16 dev br0; "
                       "ip link set br0 up; "
                       "echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind")

    @property
    def own_address(self):
        return f"{PREFIX}.0.1" if self.on else "127.0.0.1"

    @staticmethod
    def shell(script, prefix=(), data=None):
        done = subprocess.run([*prefix, "sh", "-ec", script], input=data,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{script}: {done.stdout}")

    def add(self, name):
        """Makes a host; its address."""
        if not self.on:
            return "127.0.0.1"
        number = len(self.hosts) + 2
        address = f"{PREFIX}.0.{number}"
        process = Process(["unshare", "--net", "sleep", "infinity"],
                          name=f"host {name}")
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own,
                   10, f"{name} has a namespace")
        self.hosts[name] = process, address
        self.shell(f"ip link add v{number} type veth peer name e0 netns "
                   f"{process.pid}; ip link set v{number} master br0 up")
        self.shell(f"ip addr add {address}/16 dev e0; ip link set e0 up; "
                   "ip link set lo up", self.prefix(name))
        if "nft" in self.means:
            try:
                self.shell("nft -f -", self.prefix(name), RULES)
            except RuntimeError:
                self.means.remove("nft")
        return address

    def address(self, name):
        return self.hosts[name][1] if self.on else "127.0.0.1"

    def prefix(self, name):
        """The words before a command that is to run on that host."""
        if not self.on or name is None:
            return []
        return ["nsenter", f"--net=/proc/{self.hosts[name][0].pid}/ns/net",
                "--"]

    def cut(self, sender, receiver, means):
        """Packets of the sender are lost."""
        there, here = self.address(sender), self.address(receiver)
        if means == "nft":
            self.shell(f"nft add element inet chaos deaf '{{ {there} }}'",
                       self.prefix(receiver))
        else:
            self.shell(f"ip route replace blackhole {here}/32",
                       self.prefix(sender))
        self.cuts.append((sender, receiver, means))

    def heal(self):
        for sender, receiver, means in self.cuts:
            there, here = self.address(sender), self.address(receiver)
            if means == "nft":
                self.shell("nft flush set inet chaos deaf",
                           self.prefix(receiver))
            else:
                self.shell(f"ip route del blackhole {here}/32 || true",
                           self.prefix(sender))
        self.cuts = []
