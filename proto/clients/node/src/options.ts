/** The arguments of the calls, and their checks. */

import type { ConnectionOptions } from "node:tls";

import { UsageError, type Keys } from "./errors.js";
import type { LockParts } from "./holds.js";
import type { Lock } from "./lock.js";
import { textOf, type Text } from "./wire.js";

const NAMES_MAX = 16;
const TIME_MAX_MS = 365 * 86_400_000;

/** One name, or several: all are granted together, or none. */
export type Names = Text | readonly Text[];

/** What serves metrics and traces. A hook must not wait for the broker. */
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
export function checkTime(key: string, ms: number | undefined): void {
  if (ms !== undefined && !(typeof ms === "number" && ms >= 0 &&
                            ms <= TIME_MAX_MS)) {
    throw new UsageError(`${key}: ${ms}; use milliseconds, from 0`);
  }
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
  const list = (typeof names === "string" || names instanceof Uint8Array
    ? [names] : [...names]).map(textOf);
  if (list.length < 1 || list.length > NAMES_MAX || list.includes("")) {
    throw new UsageError(`1 to ${NAMES_MAX} names, none of them empty`);
  }
  checkKeys(options, LOCK_KEYS);
  const { signal, onLost, onWanted, ...parts } = options;
  for (const key of ["wait", "lease", "delay"] as const) {
    checkTime(key, parts[key]);
  }
  if (parts.owner?.startsWith("~")) {
    throw new UsageError(
      `owner: '${parts.owner}'; it must not begin with '~'`);
  }
  return { names: list, signal, onLost, onWanted,
    parts: { ...parts, ...more, wanted: onWanted !== undefined } };
}
