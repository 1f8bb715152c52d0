import assert from "node:assert/strict";
import { test } from "node:test";

import { UsageError } from "../dist/esm/errors.js";
import { addressesOf, clock, Places } from "../dist/esm/net.js";

test("the clock counts sleep, and never goes back", (t) => {
  const real = Date.now;
  t.after(() => {
    Date.now = real;
  });
  const before = clock();
  Date.now = () => real() + 60_000; // the machine slept
  const after = clock();
  assert.ok(after - before > 59_900 && after - before < 61_000);
  Date.now = () => real() - 60_000; // somebody set the wall clock back
  const back = clock();
  assert.ok(back >= after && back - after < 1000);
  Date.now = real;
  assert.ok(clock() - back > 59_900); // and forward: sooner is safe
});

test("the clock does not run fast by many calls", () => {
  const begin = performance.now();
  const before = clock();
  for (let n = 0; n < 100_000; n++) clock();
  const error = clock() - before - (performance.now() - begin);
  assert.ok(Math.abs(error) < 50, `${error} ms`);
});

test("addresses", () => {
  assert.deepEqual(addressesOf("a, b:1,[::1]:2,[fe80::1],/run/x", false), [
    { host: "a", port: 4653 }, { host: "b", port: 1 },
    { host: "::1", port: 2 }, { host: "fe80::1", port: 4653 },
    { host: "/run/x", port: 0 }]);
  assert.deepEqual(addressesOf("a", true), [{ host: "a", port: 4655 }]);
  for (const bad of ["", "a:", "a:0", "a:65536", ":1", "a,", "::1", "a:b"]) {
    assert.throws(() => addressesOf(bad, false), UsageError, bad);
  }
  assert.throws(() => addressesOf("/run/x", true), UsageError);
});

test("a round tries each address, and each number of a name", async () => {
  const places = new Places(addressesOf("127.0.0.1:1,127.0.0.2:2", false));
  const seen = [];
  for (let n = 0; n < 4; n++) {
    const { ip, port } = await places.next(places.more);
    seen.push(`${ip}:${port}`);
  }
  assert.deepEqual(seen.slice(0, 2).sort(), ["127.0.0.1:1", "127.0.0.2:2"]);
  assert.deepEqual(seen.slice(2), seen.slice(0, 2));
  const local = new Places(addressesOf("localhost:3", false));
  const found = new Set();
  do found.add((await local.next(local.more)).ip); while (local.more);
  assert.ok(found.has("127.0.0.1") || found.has("::1"));
});
