"""Locks for asyncio, at a real broker."""

import asyncio
import unittest

import fixture
from fixture import QUICK, aio, holdfast


class AioTest(fixture.BrokerCase):
    def run_with(self, work, **options):
        return self.run_async(work, self.broker_, **options)

    async def waits(self):
        """Until the broker has a hold and a wait."""
        while self.broker_.metric("tickets") < 2:
            await asyncio.sleep(0.005)

    def break_(self, name):
        self.client(self.broker_).ok(f"BREAK {name}")

    def test_lock(self):
        async def work(hf):
            async with hf.lock("a", wait=5) as lock:
                lock.check()
                with self.assertRaises(holdfast.Busy):
                    await hf.lock("a", wait=0).acquire()
                await lock.renew(60)
                await lock.note("n")
            async with hf.lock("x", "y") as (one, two):
                self.assertEqual((one.name, two.name), ("x", "y"))
            async with hf.shared("s"), hf.shared("s"):
                pass
            for _ in range(50):
                async with hf.lock("a", wait=5, confirm=False):
                    pass
            async with hf.semaphore("p", limit=3, permits=2) as lock:
                await lock.give(1)
                await hf.resize("p", 4)
            async with hf.upgradable("u") as reader:
                async with reader.upgrade():
                    pass
            held = await hf.detached("d", lease=60)
            await held.renew(30)
            await hf.adopt("d", held.fence).release()
            self.assertEqual((await hf.await_free("d")).fence, held.fence)
        self.run_with(work)

    def test_many_tasks(self):
        inside = []

        async def work(hf):
            async def one(name):
                async with hf.lock(name):
                    inside.append(name)
                    self.assertLessEqual(inside.count(name), 1)
                    await asyncio.sleep(0)
                    inside.remove(name)
            await asyncio.gather(*[one(f"t/{task % 7}")
                                   for task in range(300)])
        self.run_with(work)

    def test_body_is_cancelled_when_the_lock_is_lost(self):
        async def work(hf):
            reached = False
            with self.assertRaises(holdfast.LockLost) as caught:
                async with hf.lock("a"):
                    await asyncio.to_thread(self.break_, "a") \
                        if hasattr(asyncio, "to_thread") else None
                    await asyncio.sleep(10)
                    reached = True
            self.assertEqual(caught.exception.why, "broken")
            self.assertFalse(reached)
            await asyncio.sleep(0)  # the task goes on
            with self.assertRaises(holdfast.LockLost):  # at its very end
                async with hf.lock("a") as lock:
                    lock.told_lost()
                    lock._holds[0].lost = "gone"
            await asyncio.sleep(0.01)
        self.run_with(work)

    def test_body_is_cancelled_by_the_deadline(self):
        async def work(hf):
            with self.assertRaises(holdfast.LockLost) as caught:
                async with hf.lock("a"):
                    self.broker_.process.pause()
                    await asyncio.sleep(10)
            self.assertEqual(caught.exception.why, "deadline")
            self.broker_.process.resume()
        self.run_with(work, heartbeat=QUICK)

    def test_cancelled_from_outside(self):
        async def work(hf):
            entered = asyncio.Event()

            async def body():
                async with hf.lock("a"):
                    entered.set()
                    await asyncio.sleep(10)

            task = asyncio.ensure_future(body())
            await entered.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            async with hf.lock("a", wait=1):  # it was given back
                waiter = asyncio.ensure_future(hf.lock("a").acquire())
                await self.waits()
                waiter.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiter
            async with hf.lock("a", wait=1):
                pass
        self.run_with(work)

    def test_time_out_of_the_language(self):
        async def work(hf):
            async with hf.lock("a"):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(hf.lock("a").acquire(), 0.1)
            async with hf.lock("a", wait=1):
                pass
        self.run_with(work)

    def test_watch_members_and_lead(self):
        async def work(hf):
            seen = []

            async def follow():
                async for leader in hf.watch("leader"):
                    seen.append(leader and leader.note)
                    if seen[-3:] == [None, "me", None]:
                        return
            following = asyncio.ensure_future(follow())
            while not seen:
                await asyncio.sleep(0.01)

            async def rule(lock):
                while seen[-1] != "me":
                    await asyncio.sleep(0.01)
                return lock.fence
            self.assertGreater(await hf.lead("leader", rule, note="me"), 0)
            await asyncio.wait_for(following, 5)
            async with hf.members("g") as members:
                self.assertEqual(await members.__anext__(), [])
                async with hf.shared("g"):
                    self.assertEqual(len(await members.__anext__()), 1)
        self.run_with(work)

    def test_lead_again_after_a_loss(self):
        async def work(hf):
            terms = []

            async def rule(lock):
                terms.append(lock.fence)
                if len(terms) == 1:
                    await asyncio.get_running_loop().run_in_executor(
                        None, self.break_, "leader")
                    await asyncio.sleep(10)
                return "done"
            self.assertEqual(await hf.lead("leader", rule), "done")
            self.assertEqual(len(terms), 2)
        self.run_with(work)

    def test_lead_ends_by_the_loss_of_another_lock(self):
        async def work(hf):
            terms = []

            async def rule(lock):
                terms.append(lock.fence)
                async with hf.lock("other"):
                    await asyncio.get_running_loop().run_in_executor(
                        None, self.break_, "other")
                    await asyncio.sleep(10)
            with self.assertRaisesRegex(holdfast.LockLost, "'other'"):
                await hf.lead("leader", rule)
            self.assertEqual(len(terms), 1)
        self.run_with(work)

    def test_decorator(self):
        async def work(hf):
            @hf.locked("job-{day}", wait=0, skip=True)
            async def job(day):
                self.assertIsNone(await job(day))
                return day
            self.assertEqual(await job("mon"), "mon")
        self.run_with(work)

    def test_kept_session_moves(self):
        async def work(hf):
            async with hf.lock("a") as lock:
                await asyncio.get_running_loop().run_in_executor(
                    None, lambda: self.broker_.restart(kill=True))
                while lock.left() < 3:
                    await asyncio.sleep(0.01)
            self.assertEqual(self.moves, 1)
        self.moves = 0

        def moved():
            self.moves += 1
        self.run_with(work, keep=20, on_move=moved)

    def test_close_ends_waits(self):
        async def work(hf):
            lock = await hf.lock("a").acquire()
            waiter = asyncio.ensure_future(hf.lock("a").acquire())
            lost = asyncio.ensure_future(lock.wait_lost())
            await self.waits()
            await hf.close()
            await asyncio.wait_for(lost, 1)
            with self.assertRaises(holdfast.Closed):
                await waiter
        self.run_with(work)
        self.assertFalse(self.taken(self.broker_, "a"))

    def test_no_broker(self):
        async def work():
            with self.assertRaisesRegex(
                    holdfast.Unavailable, f"127.0.0.1:{port.number}: "):
                await aio.connect(f"127.0.0.1:{port.number}")
        port = self.port()
        asyncio.run(work())


if __name__ == "__main__":
    unittest.main()
