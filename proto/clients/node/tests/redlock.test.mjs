// What node-redlock's own tests ask of it, asked of its interface here.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { BusyError, connect, LockLostError } from "../dist/esm/index.js";
import Redlock, { ExecutionError, Lock, ResourceLockedError }
  from "../dist/esm/redlock.js";
import { client, devBroker } from "./broker.mjs";

const SHORT = { retryCount: 2, retryDelay: 20, retryJitter: 10 };

const broker = { rest: [] };
test.before(async () => {
  const all = { after: (end) => broker.rest.push(end) };
  Object.assign(broker, await devBroker(all));
});
test.after(async () => {
  for (const end of broker.rest) await end();
});

/** A Redlock, and another client that sees what it holds. */
async function pair(t) {
  const redlock = new Redlock([await client(t, broker)], SHORT);
  const other = await client(t, broker);
  const busy = (name) =>
    assert.rejects(other.lock(name, { wait: 0 }), BusyError, name);
  const free = (name) => other.using(name, { wait: 0 }, () => {});
  return { redlock, busy, free };
}

/** Its ExecutionError, whose vote is of that class. */
async function fails(promise, kind) {
  const error = await promise.then(() => assert.fail("no error"),
    (reason) => reason);
  assert.ok(error instanceof ExecutionError, String(error));
  for (const attempt of error.attempts) {
    const { membershipSize, quorumSize, votesFor, votesAgainst } =
      await attempt;
    assert.deepEqual([membershipSize, quorumSize, votesFor.size], [1, 1, 0]);
    for (const vote of votesAgainst.values()) assert.ok(vote instanceof kind);
    assert.equal(votesAgainst.size, 1);
  }
  return error;
}

test("refuses a duration that is no integer", async (t) => {
  const { redlock } = await pair(t);
  const message = "Duration must be an integer value in milliseconds.";
  const lock = await redlock.acquire(["whole"], 5000);
  await assert.rejects(redlock.acquire(["float"], 1.5), { message });
  await assert.rejects(lock.extend(1.5), { message });
  await assert.rejects(redlock.using(["float"], 1.5, async () => {}),
    { message });
});

test("acquires, extends and releases one or several", async (t) => {
  const { redlock, busy, free } = await pair(t);
  for (const resources of [["a"], ["a1", "a2"], ["a3", "a3"]]) {
    const duration = 3000;
    let lock = await redlock.acquire(resources, duration);
    assert.ok(lock instanceof Lock && lock.redlock === redlock);
    assert.deepEqual(lock.resources, resources);
    assert.equal(lock.value.split(",")[0], String(lock.fence));
    for (const name of resources) await busy(name);
    const { value, expiration } = lock;
    assert.ok(expiration > Date.now() &&
      expiration <= Date.now() + duration, `${expiration}`);
    const before = lock;
    lock = await lock.extend(2 * duration);
    assert.equal(lock.value, value);
    assert.ok(lock.expiration > expiration + duration / 2);
    assert.equal(before.expiration, 0);
    await assert.rejects(before.extend(duration), /already-expired/);
    const { attempts, start } = await lock.release();
    assert.deepEqual([...(await attempts[0]).votesFor], [...redlock.clients]);
    assert.ok(start <= Date.now());
    assert.equal(lock.expiration, 0);
    for (const name of resources) await free(name);
    await fails(lock.release(), Error);
  }
});

test("fails when no broker can be reached", async (t) => {
  const own = await devBroker(t);
  const hf = await connect(own.address);
  t.after(() => hf.close());
  const redlock = new Redlock([hf], SHORT);
  own.child.kill("SIGTERM");
  await once(own.child, "exit");
  const error = await fails(redlock.acquire(["b"], 5000), Error);
  assert.equal(error.cause.code, "GONE");
});

test("locks expire, and then neither extend nor release", async (t) => {
  const { redlock, free } = await pair(t);
  const lock = await redlock.acquire(["d"], 200);
  const next = await redlock.acquire(["d"], 5000, { retryCount: -1 });
  assert.equal(lock.expiration, 0);
  await assert.rejects(lock.extend(200), /already-expired/);
  await fails(lock.release(), LockLostError);
  assert.ok(next.fence > lock.fence);
  await next.release();
  await free("d");
});

test("locks exclude each other, also where they overlap", async (t) => {
  const { redlock, free } = await pair(t);
  const told = [];
  redlock.on("error", (error) => told.push(error.constructor));
  const lock = await redlock.acquire(["c1", "c2"], 5000);
  const begin = performance.now();
  await fails(redlock.acquire(["c1"], 5000), ResourceLockedError);
  assert.ok(performance.now() - begin >= 38, "two retries of 20 ms");
  await fails(redlock.acquire(["c2", "c3"], 5000, { retryCount: 0 }),
    ResourceLockedError);
  assert.deepEqual(told, [ResourceLockedError, ResourceLockedError]);
  await free("c3");
  await lock.release();
  await free(["c1", "c2", "c3"]);
});

test("using() holds for longer than the duration", async (t) => {
  const { redlock, busy, free } = await pair(t);
  const result = await redlock.using(["x", "y"], 100, SHORT,
    async (signal, lock) => {
      await sleep(300);
      await busy("x");
      await busy("y");
      assert.deepEqual([signal.aborted, signal.error], [false, undefined]);
      lock.check();
      return lock.fence;
    });
  assert.ok(result > 0);
  await free(["x", "y"]);
  await assert.rejects(redlock.using(["x"], 100, async () => {
    throw new RangeError("of the routine");
  }), RangeError);
  await free("x");
  await assert.rejects(redlock.using(["x"], 100, {}), /not a function/);
});

test("using() is exclusive", async (t) => {
  const { redlock } = await pair(t);
  let inside = 0;
  const work = async (_, lock) => {
    assert.equal(++inside, 1);
    await sleep(30);
    inside--;
    return lock.fence;
  };
  const fences = await Promise.all(Array.from({ length: 5 }, () =>
    redlock.using(["z"], 5000, { retryCount: 500 }, work)));
  assert.equal(new Set(fences).size, 5);
});

test("using() is told of a loss", async (t) => {
  const own = await devBroker(t);
  const hf = await client(t, own);
  const redlock = new Redlock(new Set([hf]), SHORT);
  let told;
  await fails(redlock.using(["lost"], 5000, async (signal) => {
    own.child.kill("SIGTERM");
    await once(signal, "abort");
    told = signal.error;
    throw told;
  }), LockLostError);
  assert.ok(told instanceof LockLostError);
});

test("it takes one client, and closes it", async (t) => {
  const hf = await client(t, broker);
  const other = await client(t, broker);
  for (const clients of [[], [hf, other]]) {
    assert.throws(() => new Redlock(clients), /one client/);
  }
  const redlock = new Redlock([hf]);
  assert.equal(redlock.settings.retryCount, 10);
  await assert.rejects(redlock.acquire([], 5000), { code: "USAGE" });
  await redlock.quit();
  const error = await fails(redlock.acquire(["q"], 5000), Error);
  assert.equal(error.cause.code, "CLOSED");
  const { default: Required } = createRequire(import.meta.url)(
    "../dist/cjs/redlock.js");
  const required = new Required([other], SHORT); // a client of the other build
  const lock = await required.acquire(["q"], 5000);
  await assert.rejects(required.acquire(["q"], 5000),
    { name: "ExecutionError" });
  await lock.release();
});
