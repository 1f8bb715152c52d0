#!/usr/bin/env python3
"""Three nodes elect a leader, which is killed, and the next one hands over.

The epoch of a leader is its fence: each is larger than those before. An
observer watches. It kills the first leader (SIGKILL), and asks the second one
to end (SIGTERM): that one gives its lock back.
"""

import argparse
import signal
import subprocess
import sys
import threading

import holdfast

NAME = "leader/shop"


def node(broker, name):
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())

    def work(lock):
        while not ends.wait(0.05):
            lock.check()  # LockLost: lead() stands for election again

    with holdfast.connect(broker) as hf:
        hf.lead(NAME, work, note=name)


def show(broker):
    nodes = {f"node-{number}": subprocess.Popen(
        [sys.executable, __file__, "--broker", broker, "--node",
         f"node-{number}"]) for number in (1, 2, 3)}
    orders = [signal.SIGKILL, signal.SIGTERM]
    try:
        with holdfast.connect(broker) as hf, hf.watch(NAME) as leaders:
            for leader in leaders:
                if leader is None:
                    print("nobody leads", flush=True)
                    continue
                print(leader.note, "leads in epoch", leader.fence, flush=True)
                if not orders:
                    break
                order = orders.pop(0)
                print(leader.note, "gets", order.name, flush=True)
                nodes[leader.note].send_signal(order)
    finally:
        for each in nodes.values():
            each.kill()
            each.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:4653")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        node(options.broker, options.node)
    else:
        show(options.broker)
