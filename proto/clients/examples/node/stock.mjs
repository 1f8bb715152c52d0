// Two processes take from a stock in Redis. The first one is stopped while it
// holds the lock, for longer than the lock lasts. Its late write is refused.

import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { connect } from "../../node/dist/esm/index.js"; // "holdfast"
import { redis, startRedis } from "./redis.mjs";

// The script compares the fence and takes, in one step.
const TAKE = readFileSync(
  new URL("../../../../lua/resource/take.lua", import.meta.url), "utf8");
const STALE = -2;

const { values: { broker, worker, path } } = parseArgs({ options: {
  broker: { type: "string", default: "127.0.0.1:4653" },
  worker: { type: "string" }, path: { type: "string" } } });

/** Takes 3 of the stock. `pause` is over when the process goes on. */
async function take(name, pause) {
  // Without heartbeats of 0.5 s the lock of a stopped process lasts longer.
  const hf = await connect({ addresses: broker, heartbeat: 500 });
  await hf.using("stock/4711", async (signal, lock) => {
    console.log(`${name} has the lock, with fence ${lock.fence}`);
    lock.check(); // it is held now, and maybe not at the write
    await pause();
    const left = Number(await redis(path, "EVAL", TAKE, 2, "{4711}:stock",
      "{4711}:fence", lock.fence, 3));
    console.log(left === STALE ? `${name} is refused: its fence is stale`
      : `${name} has taken 3, and ${left} are left`);
  }).catch((error) => console.log(`${name} has lost the lock: ${error.why}`));
  await hf.close();
}

/** A process that does take(). */
function start(name, socket) {
  const child = fork(fileURLToPath(import.meta.url),
    ["--worker", name, "--broker", broker, "--path", socket]);
  return { child, ended: once(child, "exit") };
}

async function main() {
  const server = await startRedis();
  await redis(server.path, "SET", "{4711}:stock", 10);
  const first = start("first", server.path);
  try {
    await once(first.child, "message");
    first.child.kill("SIGSTOP");
    console.log("first is stopped");
    const second = start("second", server.path);
    await once(second.child, "message");
    second.child.send("go");
    await second.ended;
    console.log("first goes on");
    first.child.kill("SIGCONT");
    first.child.send("go");
    await first.ended;
    const left = await redis(server.path, "GET", "{4711}:stock");
    console.log(`the stock is ${left}`);
    process.exitCode = left === "7" ? 0 : 1;
  } finally {
    first.child.kill("SIGKILL");
    await server.stop();
  }
}

if (worker === undefined) {
  await main();
} else {
  await take(worker, async () => {
    process.send("holding");
    await once(process, "message");
  });
  process.disconnect();
}
