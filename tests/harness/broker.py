"""A holdfastd of one's own: its configuration, its life, its last words.

The program is $HOLDFASTD, or build/holdfastd. An unexpected end, or a
sanitizer's report, fails the test: stop(), kill() and close() raise
BrokerFailure.
"""

import contextlib
import copy
import json
import os
import re
import signal
import time
import unittest
import urllib.error
import urllib.request
import weakref

from . import ports
from .client import Client
from .processes import Process, wait_until
from .redis_server import RedisCluster, RedisServer, Server
from .sentinels import Sentinels

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
SANITIZER_TEXTS = ("ERROR: AddressSanitizer", "runtime error:",
                   "LeakSanitizer", "ThreadSanitizer", "MemorySanitizer")
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*$")
_live = weakref.WeakSet()


class BrokerFailure(AssertionError):
    """The daemon did what no daemon of ours may do."""


def broker_path():
    """The program under test."""
    return os.environ.get("HOLDFASTD") or os.path.join(
        TREE, "build", "holdfastd")


def live_brokers():
    """Brokers not yet closed, for what a failed test prints."""
    return list(_live)


def _scalar(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    text = str(value)
    return text if _PLAIN.match(text) else json.dumps(text)


def to_yaml(config, depth=0):
    """Nested dicts, lists of scalars and scalars, as YAML."""
    lines = []
    for key, value in config.items():
        pad = "  " * depth
        if isinstance(value, dict):
            lines.append(f"{pad}{key}:\n{to_yaml(value, depth + 1)}")
        elif isinstance(value, (list, tuple)):
            inner = ", ".join(json.dumps(item) if isinstance(item, (str, dict))
                              else _scalar(item) for item in value)
            lines.append(f"{pad}{key}: [{inner}]\n")
        else:
            lines.append(f"{pad}{key}: {_scalar(value)}\n")
    return "".join(lines)


def merge(config, overrides):
    """`overrides`, nested or {"a.b": 1}, over `config`; None removes."""
    result = copy.deepcopy(config)
    for path, value in overrides.items():
        *parents, last = path.split(".")
        place = result
        for name in parents:
            place = place.setdefault(name, {})
        if isinstance(value, dict) and isinstance(place.get(last), dict):
            place[last] = merge(place[last], value)
        elif value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def redis_part(redis):
    """The `redis:` section for a server, cluster, Sentinels or addresses."""
    if isinstance(redis, Sentinels):
        return {"topology": "sentinel", "nodes": redis.addresses}
    if isinstance(redis, RedisCluster):
        return {"topology": "cluster", "nodes": redis.addresses}
    if isinstance(redis, RedisServer):
        return {"topology": "single", "nodes": [redis.address]}
    return {"topology": "single", "nodes": list(redis)}


class Broker(Server):
    """One holdfastd on a free port of 127.0.0.1.

    redis      a RedisServer, a RedisCluster or a list of addresses
    overrides  of the configuration, as merge() takes them
    config     the whole configuration, or YAML text, instead of the two
    pass_fds   descriptors that it inherits
    """

    def __init__(self, redis=(), overrides=None, config=None, folder=None,
                 env=None, program=None, pass_fds=()):
        super().__init__("127.0.0.1", folder)
        self._admin_port = ports.reserve()
        self.program = program or broker_path()
        self.env = env or {}
        self.pass_fds = pass_fds
        self._log_start = 0
        if config is None:
            config = merge({
                "listen": {"tcp": [f"127.0.0.1:{self.port}"]},
                "admin": {"http": f"127.0.0.1:{self._admin_port.number}"},
                "redis": {**redis_part(redis), "settle": "0s"},
            }, overrides or {})
        self.config = config

    @property
    def admin_address(self):
        return f"127.0.0.1:{self._admin_port.number}"

    @property
    def unix_path(self):
        """A path for `listen.unix`, short enough for a socket."""
        return os.path.join(self.dir, "s")

    @property
    def config_path(self):
        return os.path.join(self.dir, "holdfast.yaml")

    def write_config(self):
        with open(self.config_path, "w", encoding="utf-8") as file:
            file.write(self.config if isinstance(self.config, str)
                       else to_yaml(self.config))
        return self.config_path

    # life

    def spawn(self, *arguments):
        """Starts it without waiting; arguments default to -c FILE. The test is
        skipped if it is not built."""
        if not os.access(self.program, os.X_OK):
            raise unittest.SkipTest(f"{self.program} is not built")
        path = self.write_config()
        log_path = os.path.join(self.dir, "holdfastd.log")
        with contextlib.suppress(OSError):
            self._log_start = os.path.getsize(log_path)
        env = {**os.environ, **self.env}
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        self.process = Process(
            [self.program, *(arguments or ("-c", path))], log_path=log_path,
            env=env, name=f"holdfastd {self.port}", pass_fds=self.pass_fds)
        _live.add(self)
        return self

    def start(self, timeout=15.0):
        """Starts it and waits until it greets."""
        self.spawn()
        return self.wait_ready(timeout)

    def wait_ready(self, timeout=15.0):
        wait_until(self._greets, timeout, f"{self.process.name} greets")
        return self

    def wait_redis(self, timeout=15.0):
        """Waits until it can ask Redis, which comes after its greeting."""
        wait_until(self.asks, timeout, f"{self.process.name} can ask Redis")
        return self

    def asks(self):
        """Whether Redis answers it, settled or not, if only with a refusal."""
        status, text = self.http("/readyz")
        return status == 200 or any(f"not ready: {reason}:" in text for reason
                                    in ("settling", "replicas_too_few"))

    def _greets(self):
        if not self.process.running:
            raise BrokerFailure(
                f"{self.process.name} ended at start with status "
                f"{self.process.returncode}:\n{self.process.log_tail()}")
        try:
            with self.client(timeout=1.0):
                return True
        except (OSError, AssertionError):
            return False

    def run_to_exit(self, *arguments, timeout=10.0):
        """Starts it where it must end by itself; (status, output)."""
        self.spawn(*arguments)
        status = self.process.wait(timeout)
        self.process.asked_to_end = True
        self._check_log()
        return status, self.log()

    def stop(self, timeout=20.0):
        """SIGTERM; its exit status."""
        self._check_alive()
        status = self.process.stop(timeout)
        self._check_log()
        if status < 0:
            raise BrokerFailure(
                f"{self.process.name} ended by signal {-status} when asked "
                f"to stop (KILL: not within {timeout:g} s)")
        return status

    def terminate(self):
        """SIGTERM, without waiting: wait_exit() tells how it went."""
        self._check_alive()
        self.process.asked_to_end = True
        self.process.popen.terminate()

    def wait_exit(self, timeout=20.0):
        """The exit status of one that is ending."""
        self.process.asked_to_end = True
        status = self.process.wait(timeout)
        self._check_log()
        return status

    def kill(self):
        """SIGKILL."""
        self._check_alive()
        self.process.kill()
        self._check_log()

    def restart(self, kill=False):
        self.kill() if kill else self.stop()
        return self.start()

    def reload(self, overrides=None):
        """SIGHUP, with these merged into its file; what it logged of it."""
        self.change(overrides or {})
        return self.hang_up()

    def change(self, overrides):
        """These are merged into its file."""
        if overrides:
            self.config = merge(self.config, overrides)
        self.write_config()

    def hang_up(self):
        """SIGHUP, and it has been met; what it logged since."""
        before, start = self._reloads(), len(self.log())
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self._reloads() > before, 10.0,
                   f"{self.process.name} reads its configuration again")
        return self.log()[start:]

    def _reloads(self):
        metrics = self.metrics()
        return sum(metrics[f'holdfast_reloads_total{{result="{result}"}}']
                   for result in ("ok", "failed"))

    def close(self):
        """Ends it if it runs, looks at its last words, cleans up."""
        _live.discard(self)
        try:
            if self.process is not None:
                self._check_alive()
                self.process.stop(20.0)
                self._check_log()
        finally:
            super().close()
            self._admin_port.release()

    def __enter__(self):
        if self.running:
            return self
        try:
            return self.start()
        except BaseException:
            self.process.asked_to_end = True  # said by what is raised
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

    def _check_alive(self):
        if not self.process.running and not self.process.asked_to_end:
            self.process.asked_to_end = True  # said once
            raise BrokerFailure(
                f"{self.process.name} ended by itself with status "
                f"{self.process.returncode}:\n{self.process.log_tail()}")

    def _check_log(self):
        for text in SANITIZER_TEXTS:
            place = self.log().find(text)
            if place >= 0:
                raise BrokerFailure(f"{self.process.name} printed:\n"
                                    f"{self.log()[max(0, place - 200):]}")

    # questions

    def log(self):
        """The output of the present process."""
        if self.process is None:
            return ""
        with open(self.process.log_path, "rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def wait_log(self, text, timeout=10.0):
        wait_until(lambda: text in self.log(), timeout,
                   f"'{text}' in the log of {self.process.name}")

    def client(self, **options):
        """A new Client, the caller's to close."""
        listen = self.config["listen"] if isinstance(self.config, dict) else {}
        address = self.address
        if isinstance(self.config, dict) and not listen.get("tcp"):
            address = listen["unix"][0]
        return Client(address, **options)

    def http(self, path, timeout=10.0):
        """(status, body) of a GET on the admin port."""
        try:
            with urllib.request.urlopen(
                    f"http://{self.admin_address}{path}",
                    timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """/metrics as {"name{labels}": float}."""
        status, body = self.http("/metrics")
        if status != 200:
            raise BrokerFailure(f"/metrics answered {status}")
        return {name: float(value) for name, _, value in
                (line.rpartition(" ") for line in body.splitlines()
                 if line and not line.startswith("#"))}

    def metric(self, name):
        """One of them, by its name without `holdfast_`."""
        return self.metrics()[f"holdfast_{name}"]

    def wait_metric(self, name, at_least, timeout=10.0):
        return wait_until(lambda: self.metrics().get(name, 0) >= at_least,
                          timeout, f"{name} >= {at_least}", step=0.02)

    def cpu_us(self):
        """Microseconds of CPU that it has used."""
        with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1000

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def timed(function, *arguments, **options):
    """(seconds, value) of a call."""
    begin = time.monotonic()
    value = function(*arguments, **options)
    return time.monotonic() - begin, value
