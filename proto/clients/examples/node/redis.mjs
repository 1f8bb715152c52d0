// A Redis of this program alone, and the least that speaks to it. A program of
// yours has its Redis, and a library for it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** Starts redis-server. {path, stop()}; `path` is its Unix socket. */
export async function startRedis() {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-example-"));
  const path = join(folder, "redis.sock");
  const server = spawn("redis-server", ["--port", "0", "--unixsocket", path,
    "--dir", folder, "--save", ""], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(server, "exit");
  for await (const line of createInterface({ input: server.stdout })) {
    if (line.includes("eady to accept")) break;
  }
  server.stdout.resume();
  return { path, async stop() {
    server.kill();
    await ended;
    rmSync(folder, { recursive: true });
  } };
}

/** One command, with a connection of its own. */
export async function redis(path, ...words) {
  const socket = net.connect(path).setEncoding("utf8");
  socket.end(`*${words.length}\r\n` + words.map((word) =>
    `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`).join(""));
  let reply = "";
  for await (const part of socket) reply += part;
  if (reply.startsWith("-")) throw new Error(reply.trim());
  return reply.startsWith("$") ? reply.split("\r\n")[1]
    : reply.slice(1).trim();
}
