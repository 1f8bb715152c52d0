/** The client: its calls make requests of a core, and wait for the answers. */

import { setTimeout as sleep } from "node:timers/promises";

import "./dispose.js";
import * as errors from "./errors.js";
import { Engine } from "./engine.js";
import { Detached, Lock } from "./lock.js";
import { Hold, type Event, type Member } from "./model.js";
import { addressesOf } from "./net.js";
import { callHook, checkHooks, checkKeys, checkText, checkTime, nameOf, termsOf,
  type ConnectOptions, type DetachedOptions, type Hooks, type LockOptions,
  type Names, type SemaphoreOptions, type Terms } from "./options.js";
import { Watching } from "./watching.js";
import { numberOf, type Text } from "./wire.js";

const LEAD_PAUSE_MS = 1000; // before another try to lead without a broker
const TIMEOUT_MS = 15_000;
const HOOKS = ["onWait", "onGrant", "onLost", "onMove"];
const CONNECT_KEYS = new Set(["addresses", "name", "keep", "heartbeat", "user",
  "secret", "tls", "timeout", "signal", ...HOOKS]);

/** What awaitFree() tells of the last grant; 0 and "": not known. */
export interface Freed {
  readonly fence: number;
  readonly note: string;
}

/** What is done under a lock. The signal is `lock.signal`. */
export type Work<R> = (signal: AbortSignal, lock: Lock) => Promise<R> | R;

/**
 * A client: any number of locks over one connection.
 *
 * It reconnects by itself. Without `keep` the end of a connection is the end of
 * its locks; with it they move to the next broker.
 */
export class Holdfast {
  /** @internal */
  readonly engine: Engine;
  /** @internal */
  readonly hooks: Hooks;

  /** @internal */
  constructor(options: ConnectOptions) {
    checkKeys(options, CONNECT_KEYS);
    checkHooks(options, ...HOOKS);
    const { addresses = "127.0.0.1", keep = 0, heartbeat = 2000 } = options;
    checkTime("keep", keep);
    checkTime("heartbeat", heartbeat);
    checkTime("timeout", options.timeout);
    const { name, user, secret } = options;
    for (const [key, text] of Object.entries({ name, user, secret })) {
      checkText(key, text);
    }
    if ((user === undefined) !== (secret === undefined)) {
      throw new errors.UsageError("user and secret go together");
    }
    const tls = options.tls === true ? {} : options.tls || undefined;
    const places = addressesOf(typeof addresses === "string" ? addresses
      : addresses.join(","), tls !== undefined);
    this.hooks = options;
    this.engine = new Engine(places, { name, user, secret, keep, heartbeat,
      progress: options.onWait !== undefined,
      several: places.length > 1 }, tls, (event) => this.act(event));
  }

  /** Gives all locks back. Calls that wait get ClosedError. */
  async close(): Promise<void> {
    const locks = new Set([...this.engine.core.holds.values()].flatMap(
      (hold) => [...hold.users]));
    const closed = this.engine.close();
    for (const lock of locks) {
      (lock as Lock).end(new errors.ClosedError("the client was closed"));
    }
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // --- locks

  /**
   * Waits for an exclusive lock of all names. BusyError, TimedOutError,
   * DeadlockError, UnavailableError, or the reason of the signal.
   */
  async lock(names: Names, options: LockOptions = {}): Promise<Lock> {
    return this.take(termsOf(names, options));
  }

  /** A lock that its holders share. */
  async shared(names: Names, options: LockOptions = {}): Promise<Lock> {
    return this.take(termsOf(names, options, { mode: "shared" }));
  }

  /** A lock beside shared ones, which may upgrade(). */
  async upgradable(name: Text, options: LockOptions = {}): Promise<Lock> {
    return this.take(termsOf(name, options, { mode: "upgradable" }));
  }

  /** Permits of a semaphore. */
  async semaphore(names: Names, options: SemaphoreOptions): Promise<Lock> {
    const { limit, permits = 1, ...others } = options;
    return this.take(termsOf(names, others, { limit, permits }));
  }

  /**
   * Runs work(signal, lock) under the lock, and gives it back. Rejects with
   * LockLostError if the lock was lost meanwhile.
   */
  using<R>(names: Names, work: Work<R>): Promise<R>;
  using<R>(names: Names, options: LockOptions, work: Work<R>): Promise<R>;
  async using<R>(names: Names, ...rest: [Work<R>] | [LockOptions, Work<R>]):
  Promise<R> {
    const work = rest.at(-1) as Work<R>;
    const options = rest.length > 1 ? rest[0] as LockOptions : {};
    return this.run(await this.lock(names, options), work);
  }

  private async run<R>(lock: Lock, work: Work<R>): Promise<R> {
    let result: R;
    try {
      result = await work(lock.signal, lock);
    } catch (error) {
      // What the body has thrown counts, unless the loss made it stop.
      const stopped = (error as Error | undefined)?.name === "AbortError" &&
        lock.lost !== null;
      const reason = stopped ? lock.lossError() : error;
      await lock[Symbol.asyncDispose]().catch(() => {});
      throw reason;
    }
    await lock[Symbol.asyncDispose]();
    return result;
  }

  /** @internal */
  async take(terms: Terms): Promise<Lock> {
    terms.signal?.throwIfAborted();
    const begin = performance.now();
    const { engine } = this;
    const lock = new Lock(this, terms);
    const call = engine.core.lock(terms.names, terms.parts);
    call.user = lock;
    await engine.ask([call], { signal: terms.signal });
    const waited = performance.now() - begin;
    callHook(() => this.hooks.onGrant?.(lock, waited));
    return lock;
  }

  /** Another limit for a semaphore that is held or waited for. */
  async resize(name: Text, limit: number): Promise<void> {
    await this.engine.ask([this.engine.core.resize(nameOf(name), limit)]);
  }

  /** Takes a lock that outlives this client, for `lease` milliseconds. */
  async detached(name: Text, options: DetachedOptions): Promise<Detached> {
    const { mode, limit, permits, ...others } = options;
    const terms = termsOf(name, others, { detached: true, limit, permits,
      mode: mode === "exclusive" ? undefined : mode });
    terms.signal?.throwIfAborted();
    const call = this.engine.core.lock(terms.names, terms.parts);
    await this.engine.ask([call], { signal: terms.signal });
    return new Detached(this, call.holds[0] as Hold);
  }

  /** A detached hold that another program took. */
  adopt(name: Text, fence: number): Detached {
    if (!(Number.isSafeInteger(fence) && fence > 0)) {
      throw new errors.UsageError(`fence: ${fence}; use that of the grant`);
    }
    return new Detached(this, new Hold(nameOf(name), "", fence));
  }

  /** Waits until nobody holds the lock, and takes nothing. */
  async awaitFree(name: Text, options: Pick<LockOptions, "wait" | "signal"> =
  {}): Promise<Freed> {
    checkTime("wait", options.wait);
    options.signal?.throwIfAborted();
    const call = this.engine.core.awaitFree(nameOf(name), options.wait);
    await this.engine.ask([call], { signal: options.signal });
    return { fence: numberOf(call.keys.get("fence") ?? "0", "fence="),
      note: call.keys.get("note") ?? "" };
  }

  // --- others' locks

  /** Who holds a lock: now, and after each change. null: nobody. */
  watch(name: Text, options: { signal?: AbortSignal } = {}):
  Watching<Member | null> {
    return new Watching(this.engine, nameOf(name), false, options.signal);
  }

  /** All holders of a lock, by their fences: now, and after each change. */
  members(name: Text, options: { signal?: AbortSignal } = {}):
  Watching<Member[]> {
    return new Watching(this.engine, nameOf(name), true, options.signal);
  }

  /**
   * Runs work(signal, lock) as the leader, again after each loss, and resolves
   * to what it returns. `note` tells others who leads.
   */
  async lead<R>(name: Text, options: LockOptions, work: Work<R>): Promise<R> {
    for (;;) {
      let lock: Lock | undefined;
      let done = false;
      try {
        return await this.using(name, options, async (signal, own) => {
          lock = own;
          const result = await work(signal, own);
          done = true;
          return result;
        });
      } catch (error) {
        // Of another lock it is the end of the work, like any error.
        if (error instanceof errors.LockLostError && (done ||
          lock === undefined || (lock as Lock).lost !== null)) continue;
        if (lock !== undefined || !(error instanceof
          errors.UnavailableError && error.retry)) throw error;
        const { signal } = options;
        await sleep(error.after || LEAD_PAUSE_MS, undefined,
          signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
      }
    }
  }

  // --- events

  private act(event: Event): void {
    switch (event.kind) {
      case "lost":
        for (const user of [...event.hold.users]) user.toldLost();
        break;
      case "wanted":
        for (const user of event.hold.users) user.toldWanted(event.waiters);
        break;
      case "seen":
        event.watch.user?.tell(event.news);
        break;
      case "watchOver":
        event.watch.user?.tellOver();
        break;
      case "queued":
        if (event.call.user !== null) {
          const { call, keys } = event;
          callHook(() => this.hooks.onWait?.(call.user as Lock, keys));
        }
        break;
      case "moved":
        callHook(() => this.hooks.onMove?.());
    }
  }
}

/**
 * Connects to a broker. UnavailableError: none answers in `timeout`.
 *
 *     const hf = await connect({ addresses: "a:4653,b:4653", keep: 30_000 });
 */
export async function connect(options: ConnectOptions | string = {}):
Promise<Holdfast> {
  const given = typeof options === "string" ? { addresses: options } : options;
  const { timeout = TIMEOUT_MS, signal } = given;
  signal?.throwIfAborted();
  const client = new Holdfast(given);
  try {
    await client.engine.ask([client.engine.core.ready()],
      { limit: timeout, signal });
  } catch (error) {
    await client.close();
    throw error;
  }
  return client;
}
