import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import * as net from "node:net";
import { test } from "node:test";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { BusyError, connect, DeadlockError, DeniedError, UnavailableError }
  from "../dist/esm/index.js";
import { brokers, client, devBroker, folder, freePort, promised, QUICK }
  from "./broker.mjs";

/** The broker of them that serves a client: the one that others do not. */
async function serving(hf, list) {
  const watched = await hf.lock("serving", { note: "here" });
  for (const broker of list) {
    const socket = net.connect(Number(broker.address.split(":")[1]));
    socket.write("1 LOCKS prefix=serving\n2 QUIT\n");
    let text = "";
    for await (const data of socket) text += data;
    if (text.includes("name=serving")) {
      await watched.release();
      return broker;
    }
  }
  throw new Error("no broker serves the client");
}

test("a kept session goes on at another broker", async (t) => {
  const list = await brokers(t, 2);
  const moved = promised();
  const hf = await client(t, list, { keep: 20_000, onMove: moved.resolve });
  const other = await client(t, list, { keep: 20_000 });
  const broker = await serving(hf, list);
  const lock = await hf.lock("a", { note: "n" });
  const next = hf.lock("a");
  broker.child.kill("SIGKILL");
  await moved.promise;
  lock.check();
  assert.equal(lock.signal.aborted, false);
  await lock.note("there");
  await assert.rejects(other.lock("a", { wait: 0 }), BusyError);
  await lock.release();
  const later = await next;
  assert.ok(later.fence > lock.fence);
  await later.release();
});

test("a drain is not told", async (t) => {
  const list = await brokers(t, 2);
  const moved = promised();
  const hf = await client(t, list, { keep: 20_000, onMove: moved.resolve });
  const broker = await serving(hf, list);
  const lock = await hf.lock("a");
  broker.child.kill("SIGTERM");
  for (let n = 0; n < 50; n++) await hf.using("b", () => {});
  await moved.promise;
  await lock.release();
});

test("without keep a lock ends with its broker", async (t) => {
  const [broker] = await brokers(t, 1);
  const hf = await client(t, broker);
  const lock = await hf.lock("a");
  const wait = assert.rejects(hf.lock("a"), (error) => {
    assert.ok(error instanceof UnavailableError);
    assert.deepEqual([error.code, error.retry], ["GONE", true]);
    return true;
  });
  const { signal } = lock;
  broker.child.kill("SIGKILL");
  await wait;
  assert.equal(signal.reason.why, "session");
  await assert.rejects(hf.lock("a"), UnavailableError);
});

const HOLDER = `
import { connect } from ${JSON.stringify(
  new URL("../dist/esm/index.js", import.meta.url).href)};
const hf = await connect(process.argv[1]);
console.log((await hf.lock("a")).fence);
`;

test("the lock of a killed process is free at once", async (t) => {
  const broker = await devBroker(t);
  const child = spawn(process.execPath,
    ["--input-type=module", "-e", HOLDER, broker.address]);
  t.after(() => child.kill("SIGKILL"));
  const [fence] = await once(createInterface({ input: child.stdout }), "line");
  const hf = await client(t, broker);
  await assert.rejects(hf.lock("a", { wait: 0 }), BusyError);
  child.kill("SIGKILL");
  await hf.using("a", { wait: 5000 }, (_, lock) =>
    assert.ok(lock.fence > Number(fence)));
});

test("the lock of a stopped process is free after its heartbeats",
  async (t) => {
    const broker = await devBroker(t);
    const child = spawn(process.execPath, ["--input-type=module", "-e",
      HOLDER.replace("process.argv[1]",
        `{ addresses: process.argv[1], heartbeat: ${QUICK} }`),
      broker.address]);
    t.after(() => child.kill("SIGKILL"));
    await once(createInterface({ input: child.stdout }), "line");
    child.kill("SIGSTOP");
    const hf = await client(t, broker);
    await (await hf.lock("a", { wait: 5000 })).release();
  });

test("owners in a cycle are a deadlock", async (t) => {
  const hf = await client(t, await devBroker(t));
  await hf.lock("one", { owner: "x" });
  const two = await hf.lock("two,%", { owner: "y" });
  const wait = hf.lock("two,%", { owner: "x", wait: 20_000 });
  await assert.rejects(hf.lock("one", { owner: "y" }), (error) => {
    assert.ok(error instanceof DeadlockError);
    assert.deepEqual(error.cycle.sort(), ["one", "two,%"]);
    return true;
  });
  await two.release();
  await (await wait).release();
});

test("a user logs in", async (t) => {
  const path = join(folder(t), "users");
  const salt = "salt".repeat(4);
  const digest = createHash("sha256").update(`${salt}secret`).digest("hex");
  const hex = Buffer.from(salt).toString("hex");
  writeFileSync(path, `shop secret=sha256$${hex}$${digest} lock=*\n`,
    { mode: 0o600 });
  const [broker] = await brokers(t, 1, `auth: {users_file: "${path}"}\n`);
  const hf = await client(t, broker, { user: "shop", secret: "secret" });
  await hf.using("a", () => {});
  await assert.rejects(connect(broker.address), DeniedError);
  await assert.rejects(connect({ addresses: broker.address, user: "shop",
    secret: "wrong" }), { code: "AUTH" });
});

/** A peer that sends `text` again and again to whoever connects. */
async function peer(t, text) {
  const port = await freePort();
  const data = Buffer.from(text.repeat(Math.ceil(65536 / text.length)));
  const server = net.createServer((socket) => {
    socket.on("error", () => {});
    const send = () => {
      while (socket.writable && socket.write(data));
    };
    socket.on("drain", send);
    send();
  }).listen(port, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `127.0.0.1:${port}`;
}

test("garbage is an error, and takes bounded memory", async (t) => {
  const before = process.memoryUsage().rss;
  for (const data of ["HTTP/1.1 400 Bad Request\r\n\r\n", "\0\xff\n",
    "x".repeat(100_000), "* HELLO proto=2\n", "1 OK\n"]) {
    const address = await peer(t, data);
    await assert.rejects(connect({ addresses: address, timeout: 2000 }),
      { code: "PROTOCOL" }, data.slice(0, 20));
  }
  const grown = process.memoryUsage().rss - before;
  assert.ok(grown < 64 * 1024 * 1024, `${grown} bytes`);
});
