/** The arguments of the calls, and their checks. */

import type { ConnectionOptions } from "node:tls";
import { inspect } from "node:util";

import { UsageError, type Keys } from "./errors.js";
import type { LockParts } from "./holds.js";
import type { Lock } from "./lock.js";
import { encode, textOf, type Text } from "./wire.js";

const NAMES_MAX = 16;
const TIME_MAX_MS = 365 * 86_400_000;

/** One name, or several: all are granted together, or none. */
export type Names = Text | readonly Text[];

/**
 * What serves metrics and traces. A hook must not wait for the broker. An error
 * of a hook, or of its promise, harms no lock: it is a HoldfastWarning of the
 * process.
 */
export interface Hooks {
  /** With what the broker tells of a wait. */
  onWait?: (lock: Lock, keys: Keys) => void;
  /** With the time that the lock waited, in milliseconds. */
  onGrant?: (lock: Lock, waited: number) => void;
  onLost?: (lock: Lock) => void;
  /** After a move to another connection. */
  onMove?: () => void;
}

/** Of connect(). Times are in milliseconds. */
export interface ConnectOptions extends Hooks {
  /** `HOST[:PORT]`, `[V6]:PORT` or `/PATH`; several, also with commas. */
  addresses?: string | readonly string[];
  /** Of the client, for people. */
  name?: string;
  /**
   * How long its locks outlive a connection: they move to the next broker, or
   * to the same one after its restart. 0, the default: they end.
   */
  keep?: number;
  /**
   * 2000 by default: a client that hangs, or is cut off, is noticed after three
   * heartbeats. 0: never, or by TCP after about 11 s.
   */
  heartbeat?: number;
  /** For a broker with users. */
  user?: string;
  secret?: string;
  /** TLS: true, or what tls.connect() takes: ca, cert, key, servername. */
  tls?: boolean | ConnectionOptions;
  /** For the first connection; 15000 by default. */
  timeout?: number;
  /** Ends the wait for the first connection. */
  signal?: AbortSignal;
}

/** Of lock() and its like. Times are in milliseconds. */
export interface LockOptions {
  /** How long to wait for it; 0: not at all; by default there is no limit. */
  wait?: number | undefined;
  /** How long it lasts; by default until it is released. */
  lease?: number | undefined;
  /**
   * Who holds it. An owner may take a lock twice. The default is an owner for
   * each lock(), so that concurrent tasks exclude each other.
   */
  owner?: string | undefined;
  /** For others who look, and for those who watch(). */
  note?: string | undefined;
  /** How long nobody gets it, if this client dies. */
  delay?: number | undefined;
  /** The name is a path: it excludes those above and below it. */
  tree?: boolean | undefined;
  /** Ends the wait. A lock that comes late is given back. */
  signal?: AbortSignal | undefined;
  /** Called when the lock is lost. */
  onLost?: ((lock: Lock) => void) | undefined;
  /** Called with the number of waiters, when others wait. */
  onWanted?: ((lock: Lock, waiters: number) => void) | undefined;
}

/** Of semaphore(). */
export interface SemaphoreOptions extends LockOptions {
  /** How many permits there are. */
  limit: number;
  /** How many of them to take; 1 by default. */
  permits?: number;
}

/** Of detached(). */
export interface DetachedOptions
  extends Pick<LockOptions, "wait" | "note" | "delay" | "owner" | "signal"> {
  /** How long it lasts, 24 h at most. */
  lease: number;
  mode?: "exclusive" | "shared";
  limit?: number;
  permits?: number;
}

const LOCK_KEYS = new Set(["wait", "lease", "owner", "note", "delay", "tree",
  "signal", "onLost", "onWanted"]);

/** Of one LOCK: its names, and the arguments of Core.lock(). */
export interface Terms extends Pick<LockOptions,
  "signal" | "onLost" | "onWanted"> {
  readonly names: string[];
  readonly parts: LockParts;
}

/** UsageError: no number of milliseconds of the protocol. */
export function checkTime(key: string, ms: number | undefined,
  least = 0): void {
  if (ms !== undefined && !(typeof ms === "number" && ms >= least &&
                            ms <= TIME_MAX_MS)) {
    throw new UsageError(
      `${key}: ${inspect(ms)}; use milliseconds, from ${least}`);
  }
}

/** The lease of a RENEW. UsageError: it is none. */
export function checkLease(lease: number): void {
  checkTime("lease", lease ?? NaN, 1);
}

/** UsageError: nothing that has bytes on the wire. */
export function checkText(key: string, text: unknown): void {
  if (text === undefined) return;
  if (typeof text !== "string") {
    throw new UsageError(`${key}: ${inspect(text)}; use a string`);
  }
  encode(text);
}

/** A name as a string. UsageError: it is none. */
export function nameOf(name: Text): string {
  const text = name instanceof Uint8Array ? textOf(name) : name;
  checkText("name", text ?? null);
  if (text === "") throw new UsageError("a name must not be empty");
  return text;
}

/** UsageError: no function. */
export function checkHooks(hooks: object, ...keys: string[]): void {
  for (const [key, hook] of Object.entries(hooks)) {
    if (keys.includes(key) && hook !== undefined &&
        typeof hook !== "function") {
      throw new UsageError(`${key}: ${inspect(hook)}; use a function`);
    }
  }
}

/** Calls a hook, whose error, or that of its promise, is a warning. */
export function callHook(hook: () => unknown): void {
  new Promise((resolve) => resolve(hook())).catch((error) =>
    process.emitWarning(`a hook has failed: ${inspect(error)}`,
      "HoldfastWarning"));
}

/** UsageError: a key that the call does not know. */
export function checkKeys(given: object, known: ReadonlySet<string>): void {
  for (const key of Object.keys(given)) {
    if (!known.has(key)) {
      throw new UsageError(
        `no option '${key}'; there are ${[...known].join(", ")}`);
    }
  }
}

/** Checks what the broker would refuse without a word that helps. */
export function termsOf(names: Names, options: LockOptions,
  more: LockParts = {}): Terms {
  const list = (Array.isArray(names) ? names : [names]).map(nameOf);
  if (list.length < 1 || list.length > NAMES_MAX) {
    throw new UsageError(`${list.length} names; use 1 to ${NAMES_MAX}`);
  }
  checkKeys(options, LOCK_KEYS);
  checkHooks(options, "onLost", "onWanted");
  const { signal, onLost, onWanted, ...parts } = options;
  checkTime("wait", parts.wait);
  checkTime("delay", parts.delay);
  checkTime("lease", parts.lease, 1);
  checkText("owner", parts.owner);
  checkText("note", parts.note);
  if (parts.owner?.startsWith("~")) {
    throw new UsageError(
      `owner: '${parts.owner}'; it must not begin with '~'`);
  }
  return { names: list, signal, onLost, onWanted,
    parts: { ...parts, ...more, wanted: onWanted !== undefined } };
}
