import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { BusyError, connect, LockLostError, NotHeldError, TimedOutError,
  UnavailableError, UsageError } from "../dist/esm/index.js";
import { client, devBroker, freePort, promised, QUICK } from "./broker.mjs";

const broker = { rest: [] };
test.before(async () => {
  const all = { after: (end) => broker.rest.push(end) };
  Object.assign(broker, await devBroker(all));
});
test.after(async () => {
  for (const end of broker.rest) await end();
});

test("using() holds the lock, and gives it back", async (t) => {
  const hf = await client(t, broker);
  const other = await client(t, broker);
  const options = { wait: 5000 };
  const result = await hf.using("using", options, async (signal, lock) => {
    assert.equal(signal.aborted, false);
    assert.ok(Number.isSafeInteger(lock.fence) && lock.fence > 0);
    lock.check();
    await assert.rejects(other.lock("using", { wait: 0 }), BusyError);
    await assert.rejects(other.lock("using", { wait: 50 }), TimedOutError);
    return lock.fence;
  });
  await other.using("using", { wait: 0 }, (_, lock) =>
    assert.ok(lock.fence > result));
  await assert.rejects(hf.using("using", () => {
    throw new RangeError("of the body");
  }), RangeError);
  await other.using("using", { wait: 0 }, () => {});
});

test("locks of one client exclude each other", async (t) => {
  const hf = await client(t, broker);
  let inside = 0;
  let last = 0;
  await Promise.all(Array.from({ length: 100 }, () =>
    hf.using("many", async (_, lock) => {
      assert.equal(++inside, 1);
      assert.ok(lock.fence > last);
      last = lock.fence;
      await sleep(0);
      inside--;
    })));
});

test("a named owner enters twice", async (t) => {
  const hf = await client(t, broker);
  const one = await hf.lock("twice", { owner: "o" });
  const two = await hf.lock("twice", { owner: "o", wait: 0 });
  assert.equal(one.fence, two.fence);
  await one.release();
  two.check();
  await assert.rejects(hf.lock("twice", { wait: 0 }), BusyError);
  await two.release();
  await assert.rejects(two.release(), NotHeldError);
  assert.throws(() => two.check(), NotHeldError);
});

test("a released lock is over, though its owner has another entry",
  async (t) => {
    const hf = await client(t, broker);
    const one = await hf.lock(["entry", "other"], { owner: "o" });
    const two = await hf.lock("entry", { owner: "o" });
    const [part] = one;
    part.check();
    await one.release();
    for (const over of [one, part]) {
      assert.throws(() => over.check(), NotHeldError);
      assert.deepEqual([over.held, over.left(), over.lost], [false, 0, null]);
      assert.equal(over.fence, two.fence);
    }
    for (const call of [() => one.renew(1000), () => one.note("n"),
      () => one.give(1), () => one.upgrade()]) {
      await assert.rejects(call, NotHeldError, String(call));
    }
    two.check();
    await two.release();
  });

test("a released lock hears of no loss", async (t) => {
  const hf = await client(t, broker);
  const one = await hf.lock("entered", { owner: "o", lease: 300 });
  const two = await hf.lock("entered", { owner: "o" });
  await one.release();
  await once(two.signal, "abort");
  assert.equal(one.signal.aborted, false);
});

test("a disposed lock is given back", async (t) => {
  const hf = await client(t, broker);
  const lock = await hf.lock("dispose");
  await lock[Symbol.asyncDispose]();
  await lock[Symbol.asyncDispose]();
  const again = await hf.lock("dispose", { wait: 0 });
  await again.release({ delay: 1000 });
  await assert.rejects(hf.lock("dispose", { wait: 0 }), BusyError);
  await (await hf.lock("dispose")).release();
});

test("a signal ends a wait, and gives back what comes late", async (t) => {
  const hf = await client(t, broker);
  const held = await hf.lock("signal");
  await assert.rejects(hf.lock("signal", { signal: AbortSignal.timeout(50) }),
    { name: "TimeoutError" });
  const reason = new Error("why");
  await assert.rejects(hf.lock("signal", { signal: AbortSignal.abort(reason) }),
    reason);
  const controller = new AbortController();
  const wait = hf.lock("signal", { signal: controller.signal });
  const released = held.release();
  controller.abort(reason);
  await assert.rejects(wait, reason);
  await released;
  await (await hf.lock("signal", { wait: 2000 })).release();
});

test("several names are granted together", async (t) => {
  const hf = await client(t, broker);
  const lock = await hf.lock(["from", "to"]);
  const [a, b] = lock;
  assert.deepEqual([a.name, b.name], ["from", "to"]);
  assert.deepEqual([a.fence, b.fence], lock.fences);
  await assert.rejects(hf.lock(["to", "else"], { wait: 0 }), BusyError);
  await lock.release();
  await hf.using(["to", "else"], { wait: 0 }, () => {});
});

test("shared, upgradable, semaphore and tree", async (t) => {
  const hf = await client(t, broker);
  const readers = await Promise.all([hf.shared("kind"), hf.shared("kind")]);
  const upgradable = await hf.upgradable("kind");
  await assert.rejects(upgradable.upgrade({ wait: 0 }), BusyError);
  const upgrade = upgradable.upgrade();
  for (const reader of readers) await reader.release();
  const writer = await upgrade;
  assert.ok(writer.fence > upgradable.fence);
  await assert.rejects(hf.shared("kind", { wait: 0 }), BusyError);
  await writer.release();
  await (await hf.shared("kind", { wait: 0 })).release();
  await upgradable.release();

  const most = await hf.semaphore("api", { limit: 3, permits: 3 });
  await assert.rejects(hf.semaphore("api", { limit: 3, wait: 0 }), BusyError);
  await most.give(2);
  const one = await hf.semaphore("api", { limit: 3, permits: 2, wait: 0 });
  await hf.resize("api", 4);
  await (await hf.semaphore("api", { limit: 4, wait: 0 })).release();
  await one.release();
  await most.release();

  const part = await hf.lock("shop/17", { tree: true });
  await assert.rejects(hf.lock("shop", { tree: true, wait: 0 }), BusyError);
  await hf.using("shop/18", { tree: true, wait: 0 }, () => {});
  await part.release();
});

test("a lease ends, and is renewed", async (t) => {
  const lost = promised();
  const hf = await client(t, broker, { onLost: lost.resolve });
  const lock = await hf.lock("lease", { lease: 1000 });
  await lock.renew(1500);
  assert.ok(lock.left() > 0 && lock.left() <= 1500, String(lock.left()));
  const { signal } = lock;
  assert.equal(await lost.promise, lock);
  assert.ok(signal.aborted && signal.reason instanceof LockLostError);
  assert.ok(["expired", "deadline"].includes(signal.reason.why));
  assert.throws(() => lock.check(), LockLostError);
  await assert.rejects(lock.release(), LockLostError);
});

test("a loss ends using()", async (t) => {
  const hf = await client(t, broker);
  for (const body of [
    (signal) => sleep(60_000, undefined, { signal }),
    () => sleep(500),
  ]) {
    await assert.rejects(hf.using("loss", { lease: 200 }, body), LockLostError);
  }
});

test("a loss that no timer has noticed ends using()", async (t) => {
  const hf = await client(t, broker);
  await assert.rejects(hf.using("unnoticed", { lease: 100 }, () => {
    const end = performance.now() + 150;
    while (performance.now() < end); // the event loop stands still
    throw new DOMException("of the body", "AbortError");
  }), LockLostError);
});

test("detached holds outlive their client", async (t) => {
  const hf = await connect(broker.address);
  const { fence } = await hf.detached("batch", { lease: 60_000, note: "n" });
  await hf.close();
  const other = await client(t, broker);
  await assert.rejects(other.lock("batch", { wait: 0 }), BusyError);
  const held = other.adopt("batch", fence);
  await held.renew(30_000);
  await held.release();
  await assert.rejects(held.release(), NotHeldError);
  await other.using("batch", { wait: 0 }, () => {});
});

test("await free takes nothing", async (t) => {
  const hf = await client(t, broker);
  const lock = await hf.lock("free", { note: "n" });
  await assert.rejects(hf.awaitFree("free", { wait: 0 }), BusyError);
  const watch = hf.watch("free");
  assert.equal((await watch.next()).value.note, "n"); // the broker saw it
  const free = hf.awaitFree("free", { wait: 5000 });
  await lock.release();
  assert.deepEqual(await free, { fence: lock.fence, note: "n" });
});

test("a watch tells holders, and ends", async (t) => {
  const hf = await client(t, broker);
  const watch = hf.watch("watched");
  assert.deepEqual(await watch.next(), { done: false, value: null });
  const lock = await hf.lock("watched", { note: "one" });
  const { value } = await watch.next();
  assert.deepEqual([value.fence, value.note], [lock.fence, "one"]);
  await lock.note("two");
  assert.equal((await watch.next()).value.note, "two");
  await lock.release();
  for await (const news of watch) {
    assert.equal(news, null);
    break;
  }
  assert.equal((await watch.next()).done, true);
  const stop = new AbortController();
  const other = hf.watch("watched", { signal: stop.signal });
  await other.next();
  const next = other.next();
  stop.abort(new Error("enough"));
  await assert.rejects(next, /enough/);
});

test("members are all holders", async (t) => {
  const hf = await client(t, broker);
  const groups = hf.members("group");
  assert.deepEqual((await groups.next()).value, []);
  const one = await hf.shared("group", { note: "1" });
  assert.deepEqual((await groups.next()).value.map((m) => m.note), ["1"]);
  const two = await hf.shared("group", { note: "2" });
  assert.deepEqual((await groups.next()).value.map((m) => m.fence),
    [one.fence, two.fence]);
  await one.release();
  assert.deepEqual((await groups.next()).value.map((m) => m.note), ["2"]);
  groups.close();
});

test("a leader leads again after a loss", async (t) => {
  const hf = await client(t, broker);
  let times = 0;
  const result = await hf.lead("leader", { lease: 200 }, async (signal) => {
    if (++times >= 2) return "done";
    await sleep(10_000, undefined, { signal });
  });
  assert.equal(result, "done");
  assert.ok(times >= 2);
});

test("a leader's work ends with an error of its own", async (t) => {
  const hf = await client(t, broker);
  let times = 0;
  const other = await hf.lock("of work", { lease: 100 });
  await once(other.signal, "abort");
  for (const error of [() => other.check(),
    () => { throw new UnavailableError("work", { code: "GONE" }); }]) {
    await assert.rejects(hf.lead("leader", {}, () => {
      times++;
      error();
    }));
  }
  assert.equal(times, 2);
});

test("hooks and waiters are told", async (t) => {
  const told = [];
  const waits = promised();
  const wanted = promised();
  const hf = await client(t, broker, {
    onWait: (lock, keys) => waits.resolve([lock.name, keys.get("position")]),
    onGrant: (lock, waited) => told.push([lock.name, waited >= 0]),
  });
  const lock = await hf.lock("hooks", {
    onWanted: (one, waiters) => wanted.resolve([one.name, waiters]) });
  const next = hf.lock("hooks");
  assert.deepEqual(await waits.promise, ["hooks", "1"]);
  assert.deepEqual(await wanted.promise, ["hooks", 1]);
  await lock.release();
  await (await next).release();
  assert.deepEqual(told, [["hooks", true], ["hooks", true]]);
});

test("hooks that fail harm no lock", async (t) => {
  for (const kind of ["throws", "rejects"]) {
    const calls = { onWait: promised(), onWanted: promised() };
    const warned = promised();
    const told = new Set(); // a first lock may have to wait for Redis
    const { mock } = t.mock.method(process, "emitWarning", (text, type) => {
      told.add(/of (\w+)/.exec(text)[1]);
      assert.equal(type, "HoldfastWarning");
      if (told.size === 5) warned.resolve();
    });
    const hook = (name) => () => {
      calls[name]?.resolve();
      const error = new Error(`of ${name}`);
      if (kind === "rejects") return Promise.reject(error);
      throw error;
    };
    const hf = await client(t, broker, { onWait: hook("onWait"),
      onGrant: hook("onGrant"), onLost: hook("onLost") });
    const lock = await hf.lock("hook", { onWanted: hook("onWanted") });
    lock.check();
    const next = hf.lock("hook", { lease: 300, onLost: hook("ownLost") });
    await Promise.all([calls.onWait.promise, calls.onWanted.promise]);
    await lock.release();
    await once((await next).signal, "abort");
    await warned.promise;
    mock.restore();
    assert.deepEqual([...told].sort(),
      ["onGrant", "onLost", "onWait", "onWanted", "ownLost"]);
  }
});

test("close() gives all back and ends all waits", async (t) => {
  const hf = await connect(broker.address);
  const other = await client(t, broker);
  const lock = await hf.lock("close");
  const wait = assert.rejects(hf.lock("close"), { code: "CLOSED" });
  const watch = hf.watch("close");
  await watch.next();
  const news = assert.rejects(watch.next(), { code: "CLOSED" });
  const { signal } = lock;
  await hf.close();
  await wait;
  await news;
  assert.equal(signal.reason.code, "CLOSED");
  assert.throws(() => lock.check(), LockLostError);
  await other.using("close", { wait: 5000 }, () => {});
  await assert.rejects(hf.lock("close"), { code: "CLOSED" });
  await hf.close();
});

test("a stopped broker is noticed by the deadline", async (t) => {
  const own = await devBroker(t);
  const hf = await client(t, own, { heartbeat: QUICK });
  const lock = await hf.lock("a");
  own.child.kill("SIGSTOP");
  const begin = performance.now();
  await once(lock.signal, "abort");
  const took = performance.now() - begin;
  assert.ok(took < 3 * QUICK + 2000, `${took} ms`);
  assert.equal(lock.signal.reason.why, "deadline");
  assert.equal(lock.held, false);
  own.child.kill("SIGCONT");
  await (await hf.lock("a", { wait: 10_000 })).release();
});

test("one signal serves many waits", async (t) => {
  const warnings = [];
  const warn = (warning) => warnings.push(warning.name);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const hf = await client(t, broker);
  const lock = await hf.lock("shared signal");
  const { signal } = lock;
  const stop = new AbortController();
  const waits = Array.from({ length: 50 }, () => {
    signal.addEventListener("abort", () => {});
    return assert.rejects(hf.lock("shared signal", { signal: stop.signal }),
      { name: "AbortError" });
  });
  stop.abort();
  await Promise.all(waits);
  await lock.release();
  assert.deepEqual(warnings, []);
});

test("arguments are checked", async (t) => {
  const hf = await client(t, broker);
  const wrong = [
    () => hf.lock(""), () => hf.lock([]), () => hf.lock("a", { wait: -1 }),
    () => hf.lock("a", { wait: NaN }), () => hf.lock("a", { timeout: 1 }),
    () => hf.lock(Array(17).fill("a")), () => connect({ kept: 1 }),
    () => connect("a:0"), () => connect("[::1"), () => connect(""),
    () => connect({ user: "u" }), () => connect({ keep: "1" }),
    () => connect({ onLost: 1 }), () => hf.lock("a", { onWanted: "f" }),
    () => hf.lock("a", { lease: 0 }), () => hf.adopt("a", 1).renew(),
    () => hf.adopt("a", "1"), () => hf.adopt("a", NaN),
  ];
  for (const call of wrong) {
    await assert.rejects(async () => call(), UsageError, String(call));
  }
});

test("what has no bytes is refused at the call", async (t) => {
  const own = await devBroker(t);
  const hf = await client(t, own, { keep: 5000 });
  const lock = await hf.lock("texts");
  own.child.kill("SIGTERM"); // what comes now waits for the next broker
  await once(own.child, "exit");
  const address = broker.address;
  const calls = {
    lock: (text) => hf.lock(["a", text]),
    shared: (text) => hf.shared(text),
    upgradable: (text) => hf.upgradable(text),
    semaphore: (text) => hf.semaphore(text, { limit: 1 }),
    using: (text) => hf.using(text, () => {}),
    lead: (text) => hf.lead(text, {}, () => {}),
    resize: (text) => hf.resize(text, 1),
    detached: (text) => hf.detached(text, { lease: 1000 }),
    adopt: (text) => hf.adopt(text, 1),
    awaitFree: (text) => hf.awaitFree(text),
    watch: (text) => hf.watch(text),
    members: (text) => hf.members(text),
    owner: (text) => hf.lock("a", { owner: text }),
    note: (text) => hf.lock("a", { note: text }),
    "lock.note": (text) => lock.note(text),
    name: (text) => connect({ addresses: address, name: text }),
    user: (text) => connect({ addresses: address, user: text, secret: "s" }),
    secret: (text) => connect({ addresses: address, user: "u", secret: text }),
  };
  for (const [name, call] of Object.entries(calls)) {
    for (const text of ["\ud800", "a\udfff", 7, null]) {
      await assert.rejects(async () => call(text), UsageError,
        `${name} ${JSON.stringify(text)}`);
    }
  }
});

test("no broker is a clear error", async () => {
  const begin = performance.now();
  await assert.rejects(connect(`127.0.0.1:${await freePort()}`), (error) => {
    assert.ok(error instanceof UnavailableError);
    assert.deepEqual([error.code, error.retry], ["GONE", true]);
    return true;
  });
  assert.ok(performance.now() - begin < 10_000);
});
