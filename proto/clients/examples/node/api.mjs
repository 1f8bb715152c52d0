// An API serves five calls in half a second, and refuses others. Two processes
// call it. They share a semaphore of five permits, so it refuses none of them.

import { fork } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { connect } from "../../node/dist/esm/index.js"; // "holdfast"

const LIMIT = 5;
const WINDOW_MS = 500;
const CALLS = 8; // of each process

const { values: { broker, url } } = parseArgs({ options: {
  broker: { type: "string", default: "127.0.0.1:4653" },
  url: { type: "string" } } });

/** The API: 429 if there were LIMIT calls in the last WINDOW_MS. */
function serve(counts) {
  const times = [];
  return http.createServer((_, response) => {
    const now = performance.now();
    const refused = times.filter((at) => at > now - WINDOW_MS).length >= LIMIT;
    if (!refused) times.push(now);
    counts[refused ? "refused" : "served"]++;
    response.writeHead(refused ? 429 : 200).end();
  });
}

/** One call. Its permit is free again WINDOW_MS after the answer. */
async function call(hf) {
  const permit = await hf.semaphore("api", { limit: LIMIT });
  const { status } = await fetch(url, { signal: permit.signal });
  if (status !== 200) console.log(`the API says ${status}`);
  await sleep(WINDOW_MS + 10); // a timer may be early by a millisecond
  await permit.release();
}

async function main() {
  const counts = { served: 0, refused: 0 };
  const server = serve(counts).listen(0, "127.0.0.1");
  await once(server, "listening");
  const begin = performance.now();
  await Promise.all([1, 2].map(async () => {
    const child = fork(fileURLToPath(import.meta.url), ["--broker", broker,
      "--url", `http://127.0.0.1:${server.address().port}`]);
    await once(child, "exit");
  }));
  server.close();
  server.closeAllConnections();
  const took = Math.round(performance.now() - begin);
  console.log(`served ${counts.served}, refused ${counts.refused}, ` +
    `in ${took} ms`);
  process.exitCode = counts.served === 2 * CALLS && !counts.refused ? 0 : 1;
}

if (url === undefined) {
  await main();
} else {
  const hf = await connect(broker);
  await Promise.all(Array.from({ length: CALLS }, () => call(hf)));
  await hf.close();
  process.disconnect();
}
