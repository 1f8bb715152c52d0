#!/usr/bin/env python3
"""The driver for the conformance suite: see ../conformance/README.md.

    driver.py          the client for threads
    driver.py --aio    the client for asyncio
"""

import asyncio
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "src"))

import holdfast  # noqa: E402
from holdfast import aio  # noqa: E402
from holdfast.wire import decode, encode  # noqa: E402

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
NUMBERS = ("limit", "permits")
TIMES = ("wait", "lease", "delay", "keep", "heartbeat")
FLAGS = ("tree", "detached", "members")


def seconds(text):
    """A duration of the wire."""
    number = text.rstrip("hms")
    return int(number) * UNITS[text[len(number):] or "ms"]


def arguments(words):
    """(names, keys) of the words of a command."""
    names, keys = [], {}
    for word in words:
        key, equals, value = word.partition("=")
        value = decode(value)
        if not equals:
            names.append(decode(word))
        elif key in TIMES:
            keys[key] = seconds(value)
        elif key in NUMBERS:
            keys[key] = int(value)
        elif key in FLAGS:
            keys[key] = value == "1"
        else:
            keys[key] = value
    return names, keys


_out = threading.Lock()


def say(*words):
    """One result."""
    with _out:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def failed(error):
    """The words of an error."""
    if isinstance(error, holdfast.Deadlock):
        cycle = ",".join(encode(name).replace(",", "%2C")
                         for name in error.cycle)
        return ["err", error.code, f"cycle={cycle}"]
    return ["err", error.code]


def method(names, keys):
    """(name of the method of the client, its arguments)."""
    mode = keys.pop("mode", None)
    if keys.pop("wanted", None):
        keys["on_wanted"] = None  # the driver sets it
    if keys.get("detached"):
        keys.pop("detached")
        if mode is not None:
            keys["mode"] = mode
        return "detached", keys
    keys.pop("detached", None)
    if mode in ("shared", "upgradable"):
        return mode, keys
    return ("semaphore" if "limit" in keys else "lock"), keys


def members(news):
    """The words of a list of members."""
    return ["members"] + [
        f"{one.fence}={encode(one.note)}" if one.note else one.fence
        for one in news]


def holder(news):
    """The words of the holder of a watched lock."""
    if news is None:
        return ["free"]
    return ["held", news.fence] + (
        [f"note={encode(news.note)}"] if news.note else [])


def freed(news):
    """The words of the answer to AWAIT."""
    return ["free"] + ([f"fence={news.fence}"] if news.fence else []) + (
        [f"note={encode(news.note)}"] if news.note else [])


def checked(lock):
    """The words of check()."""
    try:
        lock.check()
    except holdfast.LockLost as error:
        return ["lost", error.why]
    except holdfast.NotHeld:
        return ["lost", "released"]
    return ["good"]


def in_a_child(name, lock):
    """check() in a child of fork()."""
    with _out:  # else the child has a lock that nobody releases
        child = os.fork()
    if child == 0:
        say(name, "forked", checked(lock)[0])
        os._exit(0)
    os.waitpid(child, 0)


class Driver:
    """Each command that waits has a thread of its own."""

    def __init__(self):
        self.client = None
        self.locks = {}
        self.watches = {}
        self.waits = {}

    def run(self):
        for line in sys.stdin:
            words = line.split()
            if not words:
                continue
            command = getattr(self, "do_" + words[0], None)
            if command is None:
                say(*words[1:2], "unsupported")
            elif words[0] in ("lock", "unlock", "renew", "note", "await",
                              "watch", "connect", "close"):
                threading.Thread(target=self.guarded, daemon=True,
                                 args=(command, words[1:])).start()
            else:
                command(words[1:])
        if self.client is not None:
            self.client.close()

    def guarded(self, command, words):
        name = [] if command in (self.do_connect, self.do_close) \
            else words[:1]
        try:
            if self.client is None and command != self.do_connect:
                raise holdfast.Closed()
            command(words)
        except holdfast.HoldfastError as error:
            say(*name, *failed(error))

    def do_connect(self, words):
        names, keys = arguments(words[1:])
        self.client = holdfast.connect(words[0], on_move=lambda: say("moved"),
                                       **keys)
        say("connected")

    def do_lock(self, words):
        names, keys = arguments(words[1:])
        kind, keys = method(names, keys)
        name = words[0]
        keys["cancel"] = self.waits[name] = holdfast.Canceller()
        if "on_wanted" in keys:
            keys["on_wanted"] = lambda _, waiters: say(name, "wanted", waiters)
        held = threading.Event()  # "lost" comes behind "held"

        def lost(lock):
            held.wait(5)
            say(name, "lost", lock.lost)

        if kind != "detached":
            keys["on_lost"] = lost
        made = getattr(self.client, kind)(*names, **keys)
        if kind != "detached":
            self.locks[name] = made
            made.acquire()
        self.locks[name] = made
        say(name, "held", ",".join(map(str, made.fences)))
        held.set()

    def do_unlock(self, words):
        keys = arguments(words[1:])[1]
        self.locks[words[0]].release(**keys)
        say(words[0], "released")

    def do_cancel(self, words):
        self.waits[words[0]].cancel()

    def do_check(self, words):
        say(words[0], *checked(self.locks[words[0]]))

    def do_left(self, words):
        say(words[0], "left", round(self.locks[words[0]].left() * 1000))

    def do_renew(self, words):
        self.locks[words[0]].renew(arguments(words[1:])[1]["lease"])
        say(words[0], "renewed")

    def do_note(self, words):
        self.locks[words[0]].note(*arguments(words[1:])[0])
        say(words[0], "noted")

    def do_adopt(self, words):
        self.locks[words[0]] = self.client.adopt(decode(words[1]),
                                                 int(words[2]))
        say(words[0], "adopted")

    def do_await(self, words):
        names, keys = arguments(words[1:])
        keys["cancel"] = self.waits[words[0]] = holdfast.Canceller()
        say(words[0], *freed(self.client.await_free(names[0], **keys)))

    def do_watch(self, words):
        names, keys = arguments(words[1:])
        group = keys.get("members")
        watch = self.client.members(names[0]) if group \
            else self.client.watch(names[0])
        self.watches[words[0]] = watch
        for news in watch:
            say(words[0], *(members(news) if group else holder(news)))
        say(words[0], "over")

    def do_unwatch(self, words):
        self.watches[words[0]].close()

    def do_fork(self, words):
        in_a_child(words[0], self.locks[words[0]])

    def do_close(self, _words):
        self.client.close()
        say("closed")


class AioDriver:
    """Each command is a task, and cancel cancels it."""

    def __init__(self):
        self.client = None
        self.locks, self.watches, self.tasks = {}, {}, {}

    async def run(self):
        loop = asyncio.get_running_loop()
        lines = asyncio.Queue()

        def read():
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.split())
            loop.call_soon_threadsafe(lines.put_nowait, None)

        threading.Thread(target=read, daemon=True).start()
        while (words := await lines.get()) is not None:
            if not words:
                continue
            name = " ".join(words[:2])
            self.tasks[name] = loop.create_task(self.guarded(*words))
        if self.client is not None:
            await self.client.close()

    async def guarded(self, command, *words):
        name = words[:0 if command in ("connect", "close") else 1]
        act = getattr(self, "do_" + command, None)
        if act is None:
            say(*name, "unsupported")
            return
        try:
            if self.client is None and command != "connect":
                raise holdfast.Closed()
            await act(*words)
        except holdfast.HoldfastError as error:
            say(*name, *failed(error))
        except asyncio.CancelledError:
            say(*name, "err", "CANCELLED")

    async def do_connect(self, addresses, *words):
        self.client = await aio.connect(
            addresses, on_move=lambda: say("moved"), **arguments(words)[1])
        say("connected")

    async def do_lock(self, name, *words):
        names, keys = arguments(words)
        kind, keys = method(names, keys)
        held = []  # "lost" comes behind "held"

        def lost(lock):
            (held.append if not held else lambda _: say(
                name, "lost", lock.lost))(lock)

        if "on_wanted" in keys:
            keys["on_wanted"] = lambda _, waiters: say(name, "wanted", waiters)
        if kind == "detached":
            made = await self.client.detached(*names, **keys)
        else:
            made = getattr(self.client, kind)(*names, on_lost=lost, **keys)
            self.locks[name] = made
            await made.acquire()
        self.locks[name] = made
        say(name, "held", ",".join(map(str, made.fences)))
        if held:
            say(name, "lost", made.lost)
        held.append(None)

    async def do_unlock(self, name, *words):
        await self.locks[name].release(**arguments(words)[1])
        say(name, "released")

    async def do_cancel(self, name):
        for command in ("lock", "await"):
            if f"{command} {name}" in self.tasks:
                self.tasks[f"{command} {name}"].cancel()

    async def do_check(self, name):
        say(name, *checked(self.locks[name]))

    async def do_left(self, name):
        say(name, "left", round(self.locks[name].left() * 1000))

    async def do_renew(self, name, *words):
        await self.locks[name].renew(arguments(words)[1]["lease"])
        say(name, "renewed")

    async def do_note(self, name, *words):
        await self.locks[name].note(*arguments(words)[0])
        say(name, "noted")

    async def do_adopt(self, name, lock, fence):
        self.locks[name] = self.client.adopt(decode(lock), int(fence))
        say(name, "adopted")

    async def do_await(self, name, *words):
        names, keys = arguments(words)
        say(name, *freed(await self.client.await_free(names[0], **keys)))

    async def do_watch(self, name, *words):
        names, keys = arguments(words)
        group = keys.get("members")
        watch = self.client.members(names[0]) if group \
            else self.client.watch(names[0])
        self.watches[name] = watch
        async for news in watch:
            say(name, *(members(news) if group else holder(news)))
        say(name, "over")

    async def do_unwatch(self, name):
        self.watches[name].close()

    async def do_fork(self, name):
        in_a_child(name, self.locks[name])

    async def do_close(self):
        await self.client.close()
        say("closed")


if __name__ == "__main__":
    if "--aio" in sys.argv:
        asyncio.run(AioDriver().run())
    else:
        Driver().run()
