// The programs of proto/clients/examples/node, as they stand.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { devBroker } from "./broker.mjs";

const run = promisify(execFile);

/** The lines that an example prints, with N for each fence and time. */
async function example(t, name) {
  const { address } = await devBroker(t);
  const program = fileURLToPath(
    new URL(`../../examples/node/${name}`, import.meta.url));
  const { stdout } = await run(process.execPath,
    [program, "--broker", address]);
  return stdout.trim().replace(/\d{3,}/g, "N").split("\n");
}

test("the late write of a stopped holder is refused", async (t) => {
  assert.deepEqual(await example(t, "stock.mjs"), [
    "first has the lock, with fence N",
    "first is stopped",
    "second has the lock, with fence N",
    "second has taken 3, and 7 are left",
    "first goes on",
    "first is refused: its fence is stale",
    "first has lost the lock: session",
    "the stock is 7"]);
});

test("two processes stay below the limit of an API", async (t) => {
  assert.deepEqual(await example(t, "api.mjs"),
    ["served 16, refused 0, in N ms"]);
});
