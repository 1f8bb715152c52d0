"""A core with a clock of the test's own, and a broker that the test plays.

It comes before `holdfast` in the imports of a test: it says where that is.
"""

import os
import sys
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(FOLDER, "src"))

from holdfast import model  # noqa: E402
from holdfast.core import Core, Link  # noqa: E402

GREETING = "* HELLO proto=1 server=x session=ab12 max_line=4096 lease_ms=30000"


class Rig:
    """`says()` gives lines to the core, `sent()` takes what it has sent."""

    def __init__(self, **options):
        self.now = 1000.0
        self.options = model.Options(**options)
        self.core = Core(self.options, lambda: self.now, lambda: 0.5)

    def says(self, *lines):
        self.core.receive("".join(f"{line}\n" for line in lines).encode())
        return self

    def sent(self):
        return self.core.take().decode().splitlines()

    def events(self):
        return self.core.events()

    def seen(self, kind):
        """The events of one kind."""
        return [event for event in self.events() if isinstance(event, kind)]

    def dial(self, more=False):
        """The connection that the core waits for."""
        assert self.core.link is Link.PAUSE, self.core.link
        self.now = max(self.now, self.core.dial_at)
        self.core.dialing()
        self.core.connected(more)
        return self

    def greet(self, *keys):
        """The greeting, and the answer to HELLO; what was sent behind it."""
        self.says(GREETING)
        hello = self.sent()[-1]
        kept = f" keep_ms={round(self.options.keep * 1000)}" \
            if self.options.keep else ""
        self.says(f"{hello.split()[0]} OK session=ab12 proto=1{kept} "
                  "silence_ms=6000")
        return self.sent()

    def open(self):
        """A connection that serves."""
        self.core.ready()
        self.dial().greet()
        self.events()
        return self

    def pass_time(self, seconds):
        """Time passes, with each tick that is due."""
        end = self.now + seconds
        while self.core.due() <= end:
            self.now = max(self.now, self.core.due())
            if self.core.link is Link.PAUSE and self.now >= self.core.dial_at:
                break
            self.core.tick()
        self.now = max(self.now, end) if self.core.link is not Link.PAUSE \
            else self.now
        return self

    def grant(self, name="a", ttl=6000, **keys):
        """A LOCK and its OK; the hold."""
        call = self.core.lock((name,), **keys)
        line, = self.sent()
        self.says(f"{line.split()[0]} OK fence=7 ttl_ms={ttl} count=1 "
                  "renewed=1")
        return call.holds[0]

    def move(self, *keys):
        """The connection ends, and the next one resumes; what it is sent."""
        self.core.lost("test")
        return self.dial().greet(*keys)


class CoreTest(unittest.TestCase):
    def answered(self, call):
        """The call is answered by now; its error, or None."""
        self.assertTrue(call.done)
        return None if call.error is None else str(call.error.code)
