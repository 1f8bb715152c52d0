// The package: built, installed into a folder, required, imported and typed.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { devBroker, folder } from "./broker.mjs";

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL("..", import.meta.url));

const USE = `
await hf.using("package", async (signal, lock) => {
  console.log(typeof lock[Symbol.asyncDispose], lock.fence > 0, signal.aborted);
});
await hf.close();
`;
const TYPED = `
import { connect, LockLostError, type Member } from "holdfast";
import Redlock, { type Lock as RedlockLock } from "holdfast/redlock";

export async function cron(redlock: Redlock): Promise<number> {
  const lock: RedlockLock = await redlock.acquire(["a"], 5000);
  await (await lock.extend(5000)).release();
  return redlock.using(["a", "b"], 5000, { retryCount: 5 }, async (signal) => {
    if (signal.error !== undefined) throw signal.error;
    return 1;
  });
}

export async function use(): Promise<number> {
  const hf = await connect({ addresses: ["a:4653"], keep: 30_000 });
  const fence = await hf.using("a", { wait: 5000 }, async (signal, lock) => {
    await fetch("http://x", { signal, headers: { f: String(lock.fence) } });
    return lock.fence;
  });
  await using lock = await hf.lock(["a", "b"], { note: "n" });
  for await (const leader of hf.watch("leader")) {
    const member: Member | null = leader;
    if (member === null) break;
  }
  if (lock.signal.reason instanceof LockLostError) return 0;
  return fence;
}
`;
const WRONG = `
import { connect } from "holdfast";
await connect({ kept: 5 });
`;

test("npm pack, and what is installed from it", async (t) => {
  const path = folder(t);
  await run("python3", [join(PACKAGE, "../packages.py"), "node"]);
  const built = join(PACKAGE, "../../../build/clients/node");
  const filename = join(built, readdirSync(built)[0]);
  const { stdout } = await run("tar", ["-tzf", filename]);
  const names = stdout.replaceAll(/^package\//gm, "").trim().split("\n");
  for (const name of ["LICENSE", "README.md", "package.json", "src/core.ts",
    "dist/esm/index.js", "dist/esm/index.d.ts", "dist/esm/package.json",
    "dist/cjs/index.js", "dist/cjs/index.d.ts", "dist/cjs/package.json"]) {
    assert.ok(names.includes(name), name);
  }
  assert.ok(!names.some((name) => /test|driver/.test(name)), names.join(" "));
  writeFileSync(join(path, "package.json"), '{"private": true}');
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund",
    filename], { cwd: path });
  const listed = await run("npm", ["ls", "--all", "--parseable"],
    { cwd: path });
  assert.equal(listed.stdout.trim().split("\n").length, 2); // it needs nothing

  const { address } = await devBroker(t);
  const kinds = {
    "use.mjs": 'import { connect } from "holdfast";\n' +
      `const hf = await connect("${address}");${USE}`,
    "use.cjs": '(async () => { const { connect } = require("holdfast");\n' +
      `const hf = await connect("${address}");${USE} })();`,
  };
  for (const [name, text] of Object.entries(kinds)) {
    writeFileSync(join(path, name), text);
    const used = await run(process.execPath, [name], { cwd: path });
    assert.equal(used.stdout, "function true false\n", name);
  }
  const redlock = await run(process.execPath, ["-p",
    'require("holdfast/redlock").default.name'], { cwd: path });
  assert.equal(redlock.stdout, "Redlock\n");
  await checkTypes(path);
});

/** What a user's tsc says of the installed package. */
async function checkTypes(path) {
  const tsc = join(PACKAGE, "node_modules", ".bin", "tsc");
  const types = join(PACKAGE, "node_modules", "@types");
  for (const [name, text, good] of [["typed.mts", TYPED, true],
    ["typed.cts", TYPED.replaceAll("await using", "const"), true],
    ["wrong.mts", WRONG, false]]) {
    writeFileSync(join(path, name), text);
    const options = ["--noEmit", "--strict", "--module", "nodenext", "--target",
      "es2022", "--lib", "es2023,esnext.disposable", "--typeRoots", types,
      "--types", "node", name];
    const wrong = await run(tsc, options, { cwd: path }).then(() => "",
      (error) => error.stdout);
    assert.equal(wrong === "", good, `${name}: ${wrong}`);
  }
}
