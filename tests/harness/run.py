#!/usr/bin/env python3
"""`make run`: a private three-master Redis Cluster and holdfastd before it.

The ports are free ones, the data is under build/run/. INT, TERM, HUP, the end
of holdfastd or of this process end all of it. The exit status is that of
holdfastd, or 71 if an address is taken.
"""

import argparse
import fcntl
import os
import select
import shutil
import signal
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import broker, ports, processes  # noqa: E402
from harness.client import Client  # noqa: E402
from harness.redis_server import RedisCluster, have_redis  # noqa: E402

EXIT_ADDRESS = 71
EXIT_OTHER = 70
STOP_SECONDS = 20.0
REDIS_PORT = 6379  # where the package of the distribution starts one


class Asked(BaseException):
    """A signal asks us to end."""


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=4653)
    parser.add_argument("--admin-port", type=int, default=4654)
    parser.add_argument("--folder", default=os.path.join(
        broker.TREE, "build", "run"))
    return parser.parse_args()


def say(text):
    print(text, flush=True)


def take_signals():
    """The first signal raises Asked; later ones find the end under way."""
    def on_signal(number, _frame):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise Asked(number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if each != signal.SIGHUP or \
                signal.getsignal(each) != signal.SIG_IGN:  # nohup
            signal.signal(each, on_signal)
    if os.environ.get("MAKELEVEL"):
        processes.die_with_parent(signal.SIGTERM)  # make was killed


def taken_addresses(options):
    return [f"127.0.0.1:{port}" for port in (options.port, options.admin_port)
            if not ports.can_listen("127.0.0.1", port)]


def own_folder(folder):
    """An emptied folder's lock, to be kept open; None: in use."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    lock = open(f"{folder}.lock", "w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return lock


def write_config(options, cluster):
    path = os.path.join(options.folder, "holdfast.yaml")
    Path(path).write_text(broker.to_yaml(
        {"listen": {"tcp": [f"127.0.0.1:{options.port}"]},
         "admin": {"http": f"127.0.0.1:{options.admin_port}"}, "redis": {
             "topology": "cluster", "nodes": cluster.addresses,
             "key_prefix": "holdfast", "safety": "fenced", "settle": "0s"},
         "lease": {"default": "30s"},}), encoding="utf-8")
    return path


def greets(options):
    try:
        with Client(f"127.0.0.1:{options.port}", timeout=0.5):
            return True
    except (OSError, AssertionError):
        return False


def introduce(options, config, cluster):
    nodes = ", ".join(cluster.addresses)
    redis = f"redis-cli -c -p {cluster.addresses[0].rpartition(':')[2]}"
    say(f"""
Holdfast is at 127.0.0.1:{options.port}, its Redis Cluster at {nodes}
({os.path.relpath(config)} and the data beside it). In another terminal:
  nc 127.0.0.1 {options.port}              and type: LOCK a, SHOW a, HELP
  build/holdfast run job -- date    runs a program under the lock "job"
  {redis:<32}  asks this Redis
  curl http://127.0.0.1:{options.admin_port}/metrics
Ctrl-C ends all of it.
""")
    if not ports.can_listen("127.0.0.1", REDIS_PORT):
        say(f"""
Another server listens on 127.0.0.1:{REDIS_PORT}, and is not used here.
Debian's package redis-server starts a Redis of its own there when it is
installed. To stop it: sudo systemctl disable --now redis-server
""")


def wait_for_daemon(process, options, config, cluster):
    """Until holdfastd ends; introduces it once it greets."""
    ended = os.pidfd_open(process.pid)
    told = False
    try:
        while process.running:
            if not told and greets(options):
                introduce(options, config, cluster)
                told = True
            select.select([ended], [], [], None if told else 0.02)
    finally:
        os.close(ended)
    return process.returncode


def run(options):
    say("Starting a Redis Cluster of three masters ...")
    with RedisCluster(folder=os.path.join(options.folder, "redis")) as cluster:
        config = write_config(options, cluster)
        process = processes.Process([broker.broker_path(), "-c", config])
        try:
            status = wait_for_daemon(process, options, config, cluster)
            say(f"holdfastd ended by itself, status {status}.")
        except Asked:
            say("Ending ...")
            status = process.stop(STOP_SECONDS)
        finally:
            process.kill()
    return status if status >= 0 else 128 - status


def main():
    options = parse()
    options.folder = os.path.abspath(options.folder)
    for path, there in ((broker.broker_path(),
                         os.access(broker.broker_path(), os.X_OK)),
                        ("redis-server", have_redis())):
        if not there:
            say(f"{path} is missing: run `make deps` and `make` first.")
            return EXIT_OTHER
    taken = taken_addresses(options)
    if taken:
        say(f"{' and '.join(taken)}: something listens there already "
            "(another `make run`?). Nothing was started.")
        return EXIT_ADDRESS
    lock = own_folder(options.folder)
    if lock is None:
        say(f"Another run uses {options.folder}. Nothing was started.")
        return EXIT_ADDRESS
    try:
        take_signals()
        status = run(options)
    except Asked:
        status = 0
    if status == 0:  # else the logs of Redis may tell why
        shutil.rmtree(options.folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
