// The examples of the README, as they stand: compiled and run.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { devBroker, folder } from "./broker.mjs";

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const ADDRESSES = '["broker-1:4653", "broker-2:4653"]';

const WORLD = `
import type { Lock } from "holdfast";

export const written: [string, number][] = [];
export const worked: string[] = [];
export async function write(name: string,
  options: { fence: number; signal?: AbortSignal }): Promise<void> {
  options.signal?.throwIfAborted();
  written.push([name, options.fence]);
}
export async function work(_: AbortSignal, lock: Lock): Promise<void> {
  worked.push(lock.name);
}
process.on("exit", () => console.log(JSON.stringify({ written, worked })));
`;

test("examples", async (t) => {
  const { address } = await devBroker(t);
  const text = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const blocks = [...text.matchAll(/^```ts\n(.*?)^```$/gms)];
  assert.equal(blocks.length, 4);
  const code = blocks.map((block) => block[1]).join("\n");
  assert.ok(code.includes(ADDRESSES));
  const path = folder(t);
  mkdirSync(join(path, "node_modules"));
  symlinkSync(PACKAGE, join(path, "node_modules", "holdfast"));
  symlinkSync(join(PACKAGE, "node_modules", "@types"),
    join(path, "node_modules", "@types"));
  writeFileSync(join(path, "package.json"), '{"type": "module"}');
  writeFileSync(join(path, "world.ts"), WORLD);
  writeFileSync(join(path, "example.ts"), 'import { work, write } from ' +
    `"./world.js";\n${code.replace(ADDRESSES, JSON.stringify([address]))}`);
  await run(join(PACKAGE, "node_modules", ".bin", "tsc"), ["--strict",
    "--module", "nodenext", "--target", "es2022", "--lib",
    "es2023,esnext.disposable", "--types", "node", "example.ts", "world.ts"],
  { cwd: path }).catch((error) => assert.fail(error.stdout));
  const { stdout } = await run(process.execPath, ["example.js"], { cwd: path });
  const lines = stdout.trim().split("\n");
  const { written, worked } = JSON.parse(lines.at(-1));
  assert.deepEqual(written.map((one) => one[0]),
    ["stock/4711", "stock/4711", "from", "to", "report", "from"]);
  assert.ok(written[1][1] > written[0][1]);
  assert.deepEqual(worked, ["shop/17", "leader/shop"]);
  assert.deepEqual(lines.slice(0, -1), ["0"]);
});
