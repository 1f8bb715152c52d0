"""Many connections in one thread, each line handed to whom it concerns.

    crowd = Crowd()
    peer = crowd.connect(broker.address)
    peer.send("1 LOCK a")
    crowd.start(task)      a generator
    crowd.run()            until all tasks have ended

A task yields to wait. It goes on with a new line in the inbox of one of its
peers (peer.task), or at the time.monotonic() that it yielded, if any.
"""

import collections
import heapq
import itertools
import selectors
import time

from .client import open_socket


class Peer:
    """One connection. `ended`: the other side has closed it."""

    def __init__(self, crowd, address):
        self.crowd = crowd
        self.address = address
        self.inbox = collections.deque()
        self.task = None
        self.ended = False
        self.socket = open_socket(address)
        self.socket.setblocking(False)
        self._input = b""
        crowd.selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self, line):
        self.socket.setblocking(True)
        self.socket.sendall(line.encode() + b"\n")
        self.socket.setblocking(False)

    def read(self):
        """Takes what has come into the inbox; whether it was anything."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.ended = True
            self.crowd.selector.unregister(self.socket)
            return True
        *lines, self._input = (self._input + data).split(b"\n")
        self.inbox.extend(line.decode() for line in lines)
        return bool(lines)

    def close(self):
        if not self.ended:
            self.crowd.selector.unregister(self.socket)
        self.ended = True
        self.socket.close()


class Crowd:
    """All of them, and the tasks that use them."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.tasks = set()
        self.current = None  # the task that goes on now
        self._alarms = []
        self._number = itertools.count()

    def connect(self, address, task=None):
        peer = Peer(self, address)
        peer.task = task or self.current
        return peer

    def start(self, task, peers=()):
        for peer in peers:
            peer.task = task
        self.tasks.add(task)
        self._go(task)

    def _go(self, task):
        self.current = task
        try:
            alarm = next(task)
        except StopIteration:
            self.tasks.discard(task)
            return
        if alarm is not None:
            heapq.heappush(self._alarms, (alarm, next(self._number), task))

    def turn(self, most=1.0):
        """Waits for lines or an alarm, for `most` seconds at most."""
        now = time.monotonic()
        if self._alarms:
            most = min(most, max(0.0, self._alarms[0][0] - now))
        ready = {}
        for key, _ in self.selector.select(most):
            if key.data.read() and key.data.task in self.tasks:
                ready[key.data.task] = None
        now = time.monotonic()
        while self._alarms and self._alarms[0][0] <= now:
            task = heapq.heappop(self._alarms)[2]
            if task in self.tasks:
                ready[task] = None
        for task in ready:
            if task in self.tasks:
                self._go(task)

    def run(self):
        while self.tasks:
            self.turn()

    def close(self):
        for key in list(self.selector.get_map().values()):
            key.data.close()
        self.selector.close()
