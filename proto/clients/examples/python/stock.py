#!/usr/bin/env python3
"""Two shops take from one stock, and a paused one writes too late.

The first shop is stopped (SIGSTOP) while it holds the lock. The broker gives
the lock to the second shop, which writes. Then the first shop goes on, and
writes with its old fence: SQL and Redis refuse it. The example starts a
private redis-server for the stock.
"""

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile

import holdfast

TAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "../../../../lua/resource/take.lua")
SQL = """UPDATE stock SET amount = amount - 1, fence = :fence
         WHERE item = '4711' AND fence <= :fence AND amount >= 1"""


def redis(folder, *words):
    return subprocess.run(
        ["redis-cli", "-s", os.path.join(folder, "redis"), *words],
        check=True, capture_output=True, text=True).stdout.strip()


def take(folder, fence):
    """Takes one from the stock in SQL, and from the one in Redis."""
    with sqlite3.connect(os.path.join(folder, "stock.db")) as database:
        taken = database.execute(SQL, {"fence": fence}).rowcount
    print("SQL", "takes one" if taken else "refuses the fence")
    rest = redis(folder, "--eval", TAKE, "{4711}:stock", "{4711}:fence", ",",
                 str(fence), "1")
    print("Redis", "refuses the fence" if rest == "-2" else "takes one")


def shop(broker, folder):
    try:
        with holdfast.connect(broker, heartbeat=0.5) as hf, \
                hf.lock("stock/4711", wait=20) as lock:
            print("holds the lock", flush=True)
            sys.stdin.readline()  # here it may be paused for any time
            take(folder, lock.fence)
    except holdfast.LockLost as error:
        print("has lost the lock:", error.why)


def show(broker, folder):
    store = subprocess.Popen(
        ["redis-server", "--port", "0", "--save", "", "--unixsocket",
         os.path.join(folder, "redis")], stdout=subprocess.PIPE, text=True)
    shops = []
    try:
        for line in store.stdout:
            if "eady to accept connections" in line:
                break
        redis(folder, "set", "{4711}:stock", "10")
        with sqlite3.connect(os.path.join(folder, "stock.db")) as database:
            database.execute("CREATE TABLE stock (item, amount, fence)")
            database.execute("INSERT INTO stock VALUES ('4711', 10, 0)")
        for _ in range(2):
            shops.append(subprocess.Popen(
                [sys.executable, __file__, "--broker", broker, "--shop",
                 folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True))
            print(f"shop {len(shops)}", shops[-1].stdout.readline().strip())
            if len(shops) == 1:
                print("shop 1 is paused", flush=True)
                shops[0].send_signal(signal.SIGSTOP)
        for number in (2, 1):
            shops[number - 1].send_signal(signal.SIGCONT)
            for line in shops[number - 1].communicate("\n")[0].splitlines():
                print(f"shop {number}: {line}", flush=True)
        print("left in Redis:", redis(folder, "get", "{4711}:stock"))
    finally:
        for child in (*shops, store):
            child.kill()
            child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:4653")
    parser.add_argument("--shop", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.shop:
        shop(options.broker, options.shop)
    else:
        with tempfile.TemporaryDirectory() as place:
            show(options.broker, place)
