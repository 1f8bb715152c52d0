"""Django and Celery, with their examples."""

import importlib
import os
import sys
import unittest

import fixture
import rig
from fixture import holdfast

PYTHON = fixture.frameworks()
import celery  # noqa: E402
import django  # noqa: E402
from django import conf  # noqa: E402

from holdfast.celery import HoldfastTask, held  # noqa: E402

WORKER = """
import os
from celery import Celery
from holdfast.celery import HoldfastTask, held
app = Celery("tasks", broker=os.environ["REDIS"], backend=os.environ["REDIS"])
app.conf.holdfast = {"addresses": os.environ["BROKER"]}

@app.task(base=HoldfastTask, bind=True, lock="job-{0}", lock_busy="skip")
def skips(self, name):
    return held().fence

@app.task(base=HoldfastTask, bind=True, lock="job-{name}", max_retries=None,
          default_retry_delay=0.1)
def retries(self, name):
    return self.request.retries
"""


class FrameworkTest(fixture.Case):
    test_timeout = 120  # a worker starts slowly on a busy machine

    @classmethod
    def setUpClass(cls):
        cls.redis_ = fixture.shared_redis()
        cls.broker_ = fixture.Broker(cls.redis_).start()
        cls.addClassCleanup(cls.broker_.close)
        cls.broker_.wait_redis()

    def example(self, heading, number=0):
        return fixture.example(heading, self.broker_, number).replace(
            "127.0.0.1:6379", self.redis_.address)

    def test_django(self):
        told, works = [], []
        space = {}
        exec(self.example("Django"), space)
        conf.settings.configure(HOLDFAST=space["HOLDFAST"],
                                CACHES=space["CACHES"])
        django.setup()
        world = {"work": lambda: works.append(self.taken(self.broker_,
                                                         ":1:stock")),
                 "write": lambda fence: told.append(fence)}
        exec(self.example("Django", 1), world)
        self.assertEqual(works, [True])
        self.assertGreater(told[0], 0)
        world["nightly"]("mon")
        with world["lock"]("nightly-tue"):
            world["nightly"]("tue")  # it is skipped
        self.assertEqual(len(works), 2)

    def test_celery_in_one_process(self):
        fences = []
        world = {"write": lambda fence: fences.append(fence)}
        exec(self.example("Celery"), world)
        app, count = world["app"], world["count"]
        app.conf.task_always_eager = True
        count("a")
        count.delay("b").get()
        self.assertLess(fences[0], fences[1])
        runs = []

        @app.task(base=HoldfastTask, lock="lost", lock_lost="retry",
                  max_retries=1)
        def loses():
            runs.append(held().fence)
            self.client(self.broker_).ok("BREAK lost")
            held().wait_lost()

        self.assertIsInstance(loses.apply().result, holdfast.LockLost)
        self.assertEqual(len(runs), 2)
        with self.connect(self.broker_).lock("stock-a"):
            with self.assertRaises(holdfast.Busy):
                count("a")
            count.lock_busy = "skip"
            self.assertIsNone(count.delay("a").get())

    def test_celery_usage(self):
        app = celery.Celery("usage")
        app.conf.task_always_eager = True

        def task(**options):
            @app.task(base=HoldfastTask, lock="x", **options)
            def works():
                self.fail("it has no lock")
            return works

        with self.assertRaisesRegex(holdfast.UsageError, "use retry, skip"):
            task(name="odd", lock_busy="never").apply()
        with self.assertRaisesRegex(holdfast.UsageError, "app.conf.holdfast"):
            task(name="unset").apply(throw=True)
        with self.assertRaisesRegex(holdfast.UsageError, "no task runs"):
            held()

    def test_celery_worker(self):
        folder = self.folder()
        with open(os.path.join(folder, "tasks.py"), "w",
                  encoding="ascii") as file:
            file.write(WORKER)
        url = f"redis://{self.redis_.address}/3"
        os.environ.update(REDIS=url, BROKER=self.broker_.address)
        sys.path.insert(0, folder)
        self.addCleanup(sys.path.remove, folder)
        tasks = importlib.import_module("tasks")
        path = os.pathsep.join((folder, os.path.join(rig.FOLDER, "src")))
        worker = self.process(
            [PYTHON, "-m", "celery", "-A", "tasks", "worker", "-c", "2",
             "--without-mingle", "--without-gossip", "-l", "warning"],
            cwd=folder, env={**os.environ, "PYTHONPATH": path})
        self.assertGreater(tasks.skips.delay("a").get(timeout=40), 0)
        with self.connect(self.broker_).lock("job-b"):
            self.assertIsNone(tasks.skips.delay("b").get(timeout=20))
            later = tasks.retries.delay(name="b")
            self.wait_until(lambda: later.state == "RETRY", 20)
        self.assertGreater(later.get(timeout=20), 0)
        worker.stop()


if __name__ == "__main__":
    unittest.main()
