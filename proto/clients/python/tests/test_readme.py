"""The examples of the README, as they stand."""

import asyncio
import os
import re
import textwrap
import threading
import unittest

import fixture
import rig
from fixture import holdfast

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
ADDRESSES = '"broker-1:4653,broker-2:4653"'


class Database:
    def __init__(self):
        self.fences = []

    def execute(self, _statement, values):
        self.fences += values


class ReadmeTest(fixture.Case):
    def test_examples(self):
        broker = self.broker()
        with open(os.path.join(rig.FOLDER, "README.md"),
                  encoding="utf-8") as file:
            blocks = BLOCK.findall(file.read())
        self.assertEqual(len(blocks), 4)
        called = []

        async def write(**keys):
            called.append(keys)

        def note(*values, **keys):
            called.append(values or keys)
            return True

        world = {name: note for name in ("move", "read", "call", "work")}
        world.update(db=Database(), write=note)
        for block in blocks:
            code = block.replace(ADDRESSES, repr(broker.address))
            if "async with" in code:
                space = {**world, "write": write}
                exec("async def main():\n" + textwrap.indent(code, "    "),
                     space)
                asyncio.run(space["main"]())
            else:
                exec(code, world)
        self.addCleanup(world["hf"].close)
        self.assertEqual(len(world["db"].fences), 2)
        before = len(called)
        world["nightly"]("monday")
        self.assertGreaterEqual(before, 6)
        self.assertEqual(len(called), before + 1)
        self.assertEqual(world["workers"], [])
        self.assertEqual(threading.active_count() > 1, True)
        self.assertIs(type(world["hf"]), holdfast.Holdfast)


if __name__ == "__main__":
    unittest.main()
