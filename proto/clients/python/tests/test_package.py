"""The wheel and the sdist: built, installed from, typed, complete."""

import glob
import os
import subprocess
import sys
import tarfile
import unittest
import venv
import zipfile

import rig
import fixture

FRAMEWORKS = {"celery", "django", "django_cache", "redis_lock"}
USE = """
import sys, holdfast, holdfast.aio
with holdfast.connect(sys.argv[1]) as hf, hf.lock("package") as lock:
    print(holdfast.__file__, lock.fence)
"""
TYPED = """
import holdfast
from holdfast import aio

def use(hf: holdfast.Holdfast) -> int:
    with hf.lock("a", wait=5) as lock:
        return lock.fence

async def use_aio(hf: aio.Holdfast) -> float:
    async with hf.lock("a", lease=1.5) as lock:
        return lock.left()
"""
WRONG = """
import holdfast
holdfast.connect(kept=5)
"""


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          timeout=100, **options).stdout


class PackageTest(fixture.Case):
    """hatchling and mypy come from the package index, unless it cannot be
    reached: then the test is skipped."""

    test_timeout = 180

    def environment(self, *packages):
        folder = os.path.join(self.folder(), "venv")
        venv.create(folder, with_pip=True)
        python = os.path.join(folder, "bin", "python")
        if packages:
            try:
                run(python, "-m", "pip", "-q", "install", *packages)
            except subprocess.CalledProcessError as error:
                raise fixture.no_index(error.stderr) from None
        return python

    def test_wheel_and_sdist(self):
        tools = self.environment("mypy")
        folder = self.folder()
        run(sys.executable, os.path.join(rig.FOLDER, "..", "packages.py"),
            "python")
        built = os.path.join(rig.FOLDER, "../../../build/clients/python")
        wheel, = glob.glob(os.path.join(built, "*.whl"))
        sdist, = glob.glob(os.path.join(built, "*.tar.gz"))
        modules = set(os.listdir(os.path.join(rig.FOLDER, "src/holdfast")))
        modules.discard("__pycache__")
        with zipfile.ZipFile(wheel) as file:
            names = file.namelist()
        self.assertLessEqual({f"holdfast/{name}" for name in modules},
                             set(names))
        self.assertTrue(any(name.endswith("LICENSE") for name in names))
        with tarfile.open(sdist) as file:
            inside = {name.partition("/")[2] for name in file.getnames()}
        self.assertLessEqual({"README.md", "LICENSE", "pyproject.toml",
                              "src/holdfast/py.typed", "tests/run.py"}, inside)
        broker = self.broker()
        for package in (wheel, sdist):
            with self.subTest(os.path.basename(package)):
                python = self.environment() if package == wheel else \
                    self.environment("hatchling")
                run(python, "-m", "pip", "-q", "install", "--no-index",
                    "--no-build-isolation", package)
                place, fence = run(python, "-c", USE, broker.address,
                                   cwd=folder).split()
                self.assertIn("site-packages", place)
                self.assertGreater(int(fence), 0)
        self.check_types(tools, wheel)

    def check_types(self, python, wheel):
        """The types, as a user's mypy sees them in the installed package."""
        run(python, "-m", "pip", "-q", "install", "--no-index", wheel)
        path = os.path.join(self.folder(), "use.py")
        for text, good in ((TYPED, True), (WRONG, False)):
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            status = subprocess.run(
                [python, "-m", "mypy", "--strict", path], check=False,
                capture_output=True, text=True, timeout=100)
            self.assertEqual(status.returncode == 0, good, status.stdout)
        own = subprocess.run(
            [python, "-m", "mypy"], check=False, cwd=rig.FOLDER,
            capture_output=True, text=True, timeout=100)
        self.assertEqual(own.returncode, 0, own.stdout)

    def test_nothing_is_needed_at_run_time(self):
        # Each module is imported without site-packages.
        src = os.path.join(rig.FOLDER, "src")
        modules = [name[:-3] for name in os.listdir(
            os.path.join(src, "holdfast")) if name.endswith(".py")]
        modules = sorted({*modules} - FRAMEWORKS)
        for name in modules:
            run(sys.executable, "-I", "-S", "-W", "error", "-c",
                f"import sys; sys.path.insert(0, {src!r}); "
                f"import holdfast.{name}")


if __name__ == "__main__":
    unittest.main()
