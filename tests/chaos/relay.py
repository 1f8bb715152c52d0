#!/usr/bin/env python3
"""A relay that is slow, stutters or swallows, as it is told.

    relay.py HOST PORT=HOST:PORT...

Each PORT is listened on and passed on to what stands behind the `=`. Orders
are lines of JSON on stdin, {"port": P, "delay": [lo, hi] in s, "hold": "",
"up", "down" or "both", "crumbs": bool}; each replaces the one before. Held
bytes are passed on when the order ends, as TCP does after a cut. An end of one
side is passed on in its order, never made up. Ends with stdin.
"""

import asyncio
import json
import random
import sys
import time

CHUNKS_MAX = 1000


class Pipe:
    """How one port treats its connections now."""

    def __init__(self):
        self.delay = (0.0, 0.0)
        self.hold = ""
        self.crumbs = False
        self.changed = asyncio.Event()

    def order(self, order):
        self.delay = order.get("delay", (0.0, 0.0))
        self.hold = order.get("hold", "")
        self.crumbs = order.get("crumbs", False)
        self.changed.set()
        self.changed = asyncio.Event()

    async def wait(self, way, due):
        """Until bytes read then may go on their way."""
        while self.hold in (way, "both"):
            await self.changed.wait()
        left = due - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)


async def fill(reader, queue, pipe):
    while True:
        try:
            data = await reader.read(65536)
        except OSError:
            data = b""
        await queue.put((time.monotonic() + random.uniform(*pipe.delay), data))
        if not data:
            return


async def drain(queue, writer, pipe, way):
    while True:
        due, data = await queue.get()
        await pipe.wait(way, due)
        if not data:
            break
        try:
            if pipe.crumbs:
                for at in range(0, len(data), 7):
                    writer.write(data[at:at + 7])
                    await writer.drain()
                    await asyncio.sleep(0.0005)
            else:
                writer.write(data)
                await writer.drain()
        except OSError:
            break
    # Where this side ends so does the other: no half-open ends here.
    writer.close()


async def pass_on(reader, writer, pipe, host, port):
    try:
        there = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    up, down = asyncio.Queue(CHUNKS_MAX), asyncio.Queue(CHUNKS_MAX)
    await asyncio.gather(
        fill(reader, up, pipe), drain(up, there[1], pipe, "up"),
        fill(there[0], down, pipe), drain(down, writer, pipe, "down"))


async def main():
    host, pipes = sys.argv[1], {}
    for word in sys.argv[2:]:
        port, _, target = word.partition("=")
        there, _, behind = target.rpartition(":")
        pipe = pipes[int(port)] = Pipe()
        await asyncio.start_server(
            lambda r, w, pipe=pipe, there=there, behind=int(behind):
            pass_on(r, w, pipe, there, behind), host, int(port))
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print("ready", flush=True)
    while line := await orders.readline():
        order = json.loads(line)
        pipes[order["port"]].order(order)


if __name__ == "__main__":
    asyncio.run(main())
