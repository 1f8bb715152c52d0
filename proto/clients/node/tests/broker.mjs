// Brokers and clients that end with their test.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { connect } from "../dist/esm/index.js";

/** The program under test: $HOLDFASTD, or the one of this tree. */
const DAEMON = process.env.HOLDFASTD ?? fileURLToPath(
  new URL("../../../../build/holdfastd", import.meta.url));

export const QUICK = 300; // ms: a heartbeat whose deadline is 0.9 s

/** A child process, ended with the test. */
export function start(t, command, ...words) {
  const child = spawn(command, words, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGCONT");
    child.kill("SIGTERM");
    await once(child, "exit");
  });
  return child;
}

/** A broker with a Redis of its own: {address, child}. */
export async function devBroker(t) {
  const child = start(t, DAEMON, "--dev=0");
  for await (const line of createInterface({ input: child.stdout })) {
    const [, address] = /listening on (127\.0\.0\.1:\d+)/.exec(line) ?? [];
    if (address !== undefined) return { address, child };
  }
  throw new Error("holdfastd --dev does not listen");
}

export function folder(t) {
  const path = mkdtempSync(join(tmpdir(), "holdfast-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

export async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until something listens there. */
async function reachable(port) {
  for (let tries = 0; tries < 2000; tries++) {
    const socket = net.connect(port, "127.0.0.1");
    try {
      await once(socket, "connect");
      return;
    } catch {
      await sleep(5); // a server that starts
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`nothing listens at ${port}`);
}

/** Brokers before one Redis: [{address, child}, ...]. `keys` are YAML. */
export async function brokers(t, count, keys = "") {
  const port = await freePort();
  const path = folder(t);
  start(t, "redis-server", "--port", String(port), "--bind", "127.0.0.1",
    "--dir", path, "--save", "", "--maxmemory-policy", "noeviction",
    "--logfile", "/dev/null");
  await reachable(port);
  const found = [];
  for (let n = 0; n < count; n++) {
    const own = await freePort();
    const file = join(path, `${n}.yaml`);
    writeFileSync(file, `listen: {tcp: ["127.0.0.1:${own}"]}
admin: {http: ""}
redis: {topology: single, nodes: ["127.0.0.1:${port}"], settle: 0s}
log: {level: error}
${keys}`);
    const child = start(t, DAEMON, "-c", file);
    await reachable(own);
    found.push({ address: `127.0.0.1:${own}`, child });
  }
  return found;
}

/** A client of these brokers. */
export async function client(t, given, options = {}) {
  const list = [given].flat();
  const hf = await connect({ addresses: list.map((one) => one.address),
    ...options });
  t.after(() => hf.close());
  return hf;
}

/** A promise with its resolve(). */
export function promised() {
  let resolve;
  const promise = new Promise((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
