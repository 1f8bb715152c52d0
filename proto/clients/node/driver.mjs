// The driver for the conformance suite: see ../conformance/README.md.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import * as holdfast from "./dist/esm/index.js";
import { decode, encode } from "./dist/esm/wire.js";

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const TIMES = new Set(["wait", "lease", "delay", "keep", "heartbeat"]);
const NUMBERS = new Set(["limit", "permits"]);
const FLAGS = new Set(["tree", "detached", "members", "wanted"]);

let client;
const locks = new Map();
const watches = new Map();
const waits = new Map();

/** A duration of the wire, in milliseconds. */
function duration(text) {
  const [, number, unit] = /^(\d+)(\D*)$/.exec(text);
  return Number(number) * UNITS[unit || "ms"];
}

/** [names, keys] of the words of a command. */
function parse(words) {
  const names = [];
  const keys = {};
  for (const word of words) {
    const [key, ...rest] = word.split("=");
    const value = decode(rest.join("="));
    if (rest.length === 0) names.push(decode(word));
    else if (TIMES.has(key)) keys[key] = duration(value);
    else if (NUMBERS.has(key)) keys[key] = Number(value);
    else if (FLAGS.has(key)) keys[key] = value === "1";
    else keys[key] = value;
  }
  return [names, keys];
}

/** One result. */
function say(...words) {
  process.stdout.write(words.join(" ") + "\n");
}

/** The words of an error. */
function failed(error) {
  if (error?.name === "AbortError") return ["err", "CANCELLED"];
  if (error instanceof holdfast.DeadlockError) {
    const names = error.cycle.map((name) =>
      encode(name).replaceAll(",", "%2C"));
    return ["err", error.code, `cycle=${names.join(",")}`];
  }
  if (error instanceof holdfast.HoldfastError) return ["err", error.code];
  throw error;
}

/** The words of check(). */
function checked(lock) {
  try {
    lock.check();
  } catch (error) {
    return ["lost", error.why ?? "released"];
  }
  return ["good"];
}

/** The words of a holder, and of a list of members. */
function holder(news) {
  if (news === null) return ["free"];
  return ["held", news.fence,
    ...(news.note ? [`note=${encode(news.note)}`] : [])];
}

function members(news) {
  return ["members", ...news.map((one) =>
    one.note ? `${one.fence}=${encode(one.note)}` : one.fence)];
}

/** The signal that `cancel` aborts. */
function signalOf(id) {
  const controller = new AbortController();
  waits.set(id, controller);
  return controller.signal;
}

/** Takes a lock by the call that `keys` ask for. */
function take(id, names, { mode, wanted, detached, ...keys }) {
  if (detached) {
    return client.detached(names[0], { ...keys, ...(mode ? { mode } : {}) });
  }
  if (wanted) keys.onWanted = (_, waiters) => say(id, "wanted", waiters);
  if (mode === "upgradable") return client.upgradable(names[0], keys);
  if (mode === "shared") return client.shared(names, keys);
  return keys.limit ? client.semaphore(names, keys) : client.lock(names, keys);
}

const commands = {
  async connect(addresses, ...words) {
    const [, { ca, cert, key, server_name: servername, ...keys }] =
      parse(words);
    const file = (path) => path && readFileSync(path);
    client = await holdfast.connect({
      addresses, ...keys, onMove: () => say("moved"),
      ...(ca ? { tls: { ca: file(ca), cert: file(cert), key: file(key),
        ...(servername ? { servername } : {}) } } : {}) });
    say("connected");
  },

  async lock(id, ...words) {
    const [names, keys] = parse(words);
    const lock = await take(id, names, { ...keys, signal: signalOf(id) });
    locks.set(id, lock);
    say(id, "held", lock.fences.join(","));
    const { signal } = lock;
    const lost = () => {
      if (signal.reason instanceof holdfast.LockLostError) {
        say(id, "lost", signal.reason.why);
      }
    };
    if (signal?.aborted) lost();
    else signal?.addEventListener("abort", lost);
  },

  async unlock(id, ...words) {
    const [, keys] = parse(words);
    await locks.get(id).release(keys);
    say(id, "released");
  },

  cancel(id) {
    waits.get(id).abort();
  },

  check(id) {
    say(id, ...checked(locks.get(id)));
  },

  left(id) {
    say(id, "left", Math.round(locks.get(id).left()));
  },

  async renew(id, ...words) {
    await locks.get(id).renew(parse(words)[1].lease);
    say(id, "renewed");
  },

  async note(id, ...words) {
    await locks.get(id).note(...parse(words)[0]);
    say(id, "noted");
  },

  adopt(id, name, fence) {
    locks.set(id, client.adopt(decode(name), Number(fence)));
    say(id, "adopted");
  },

  async await(id, ...words) {
    const [[name], keys] = parse(words);
    const { fence, note } = await client.awaitFree(name,
      { ...keys, signal: signalOf(id) });
    say(id, "free", ...(fence ? [`fence=${fence}`] : []),
      ...(note ? [`note=${encode(note)}`] : []));
  },

  async watch(id, ...words) {
    const [[name], keys] = parse(words);
    const watch = keys.members ? client.members(name) : client.watch(name);
    watches.set(id, watch);
    for await (const news of watch) {
      say(id, ...(keys.members ? members(news) : holder(news)));
    }
    say(id, "over");
  },

  unwatch(id) {
    watches.get(id).close();
  },

  async close() {
    await client.close();
    say("closed");
  },
};

async function carryOut([command, ...words]) {
  const id = command === "connect" || command === "close" ? [] :
    words.slice(0, 1);
  if (!Object.hasOwn(commands, command)) {
    say(...id, "unsupported");
    return;
  }
  if (client === undefined && command !== "connect") {
    say(...id, "err", "GONE"); // connect has failed
    return;
  }
  try {
    await commands[command](...words);
  } catch (error) {
    say(...id, ...failed(error));
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(" ").filter((word) => word !== "");
  if (words.length > 0) void carryOut(words);
}
await client?.close();
