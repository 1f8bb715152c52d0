/**
 * The interface of node-redlock 5, with locks of Holdfast.
 *
 *     import Redlock from "holdfast/redlock";
 *
 *     const redlock = new Redlock([await connect("broker-1,broker-2")]);
 *
 * Waiters stand in the broker's queue. The settings for retries only limit how
 * long a wait lasts. The broker renews the locks of using(): neither
 * `driftFactor` nor `automaticExtensionThreshold` has an effect.
 */

import { EventEmitter } from "node:events";

import type { Holdfast } from "./client.js";
import type { HoldfastError } from "./errors.js";
import type { Lock as Held } from "./lock.js";

/** Times are in milliseconds. */
export interface Settings {
  readonly driftFactor: number;
  /** A wait lasts `retryCount * retryDelay`; -1: without a limit. */
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  readonly automaticExtensionThreshold: number;
}

/** The votes for an operation: there is one voter. */
export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<Holdfast>;
  readonly votesAgainst: Map<Holdfast, Error>;
}

export interface ExecutionResult {
  attempts: readonly Promise<ExecutionStats>[];
  /** By Date.now(). */
  start: number;
}

/** `error` is the reason of the abort. */
export type RedlockAbortSignal = AbortSignal & { error?: Error };

/** Another lock has one of the resources. Event "error" tells it. */
export class ResourceLockedError extends Error {
  override name = "ResourceLockedError";
}

/** The operation has failed. `cause` is the error of Holdfast, if any. */
export class ExecutionError extends Error {
  override name = "ExecutionError";

  constructor(message: string,
    readonly attempts: readonly Promise<ExecutionStats>[],
    options?: ErrorOptions) {
    super(message, options);
  }
}

/** Resources that acquire() has locked. `held` is the lock of Holdfast. */
export class Lock {
  private over = false;

  /** @internal */
  constructor(readonly redlock: Redlock, readonly resources: string[],
    readonly attempts: readonly Promise<ExecutionStats>[],
    readonly held: Held) {}

  /** The fences, which no other lock of the resources has. */
  get value(): string {
    return this.held.fences.join(",");
  }

  /** The fence of the first resource: see `lock.fence` of Holdfast. */
  get fence(): number {
    return this.held.fence;
  }

  /**
   * How long it can be relied on without further word of the broker, by
   * Date.now(); 0: not any more. Each word moves it on, up to the duration.
   */
  get expiration(): number {
    const left = this.over ? 0 : this.held.left();
    return left > 0 ? Date.now() + left : 0;
  }

  /** ExecutionError: it had expired. */
  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** A lock that lasts `duration` from now. It replaces this one. */
  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }

  /** @internal */
  replace(attempts: ExecutionResult["attempts"]): Lock {
    this.over = true;
    return new Lock(this.redlock, this.resources, attempts, this.held);
  }
}

const DEFAULTS: Settings = { driftFactor: 0.01, retryCount: 10,
  retryDelay: 200, retryJitter: 100, automaticExtensionThreshold: 500 };
const FAILED = "The operation was unable to achieve a quorum during its " +
  "retry window.";

function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) {
    throw new Error("Duration must be an integer value in milliseconds.");
  }
}

/** Locks of one client. Errors of all operations are events "error" too. */
export default class Redlock extends EventEmitter {
  readonly clients: Set<Holdfast>;
  readonly settings: Settings;
  private readonly client: Holdfast;

  constructor(clients: Iterable<Holdfast>, settings: Partial<Settings> = {}) {
    super();
    this.on("error", () => {}); // without a listener Node would throw it
    this.clients = new Set(clients);
    this.settings = { ...DEFAULTS, ...settings };
    const [client, ...others] = this.clients;
    if (client === undefined || others.length > 0) {
      throw new Error("Redlock must be instantiated with one client: " +
        "give connect() the addresses of all brokers.");
    }
    this.client = client;
  }

  /** Closes the client. */
  async quit(): Promise<void> {
    await this.client.close();
  }

  /** Locks all resources, or none, for `duration`. */
  async acquire(resources: string[], duration: number,
    settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration);
    const [held, { attempts }] = await this.lock(resources, settings, duration);
    return new Lock(this, resources, attempts, held);
  }

  async release(lock: Lock, _settings?: Partial<Settings>):
  Promise<ExecutionResult> {
    return (await this.execute(() => lock.held.release()))[1];
  }

  async extend(existing: Lock, duration: number,
    _settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration);
    if (existing.expiration === 0) {
      throw new ExecutionError("Cannot extend an already-expired lock.", []);
    }
    const [, { attempts }] = await this.execute(() =>
      existing.held.renew(duration));
    return existing.replace(attempts);
  }

  /**
   * Runs the routine with the resources locked. The broker renews the lock as
   * long as the client lives: `duration` has no effect. The second argument of
   * the routine is the lock of Holdfast, with its fence.
   */
  using<T>(resources: string[], duration: number, settings: Partial<Settings>,
    routine: (signal: RedlockAbortSignal, lock: Held) => Promise<T>):
  Promise<T>;
  using<T>(resources: string[], duration: number,
    routine: (signal: RedlockAbortSignal, lock: Held) => Promise<T>):
  Promise<T>;
  async using<T>(resources: string[], duration: number, ...rest: unknown[]):
  Promise<T> {
    checkDuration(duration);
    const routine = rest.at(-1);
    if (typeof routine !== "function") {
      throw new Error("INVARIANT: routine is not a function.");
    }
    const [held] = await this.lock(resources,
      rest.length > 1 ? rest[0] as Partial<Settings> : undefined);
    const signal: RedlockAbortSignal = held.signal;
    const fails = () => {
      signal.error = signal.reason;
    };
    signal.addEventListener("abort", fails);
    if (signal.aborted) fails();
    try {
      return await routine(signal, held);
    } finally {
      await this.execute(() => held[Symbol.asyncDispose]());
    }
  }

  private lock(resources: string[], settings?: Partial<Settings>,
    lease?: number): Promise<[Held, ExecutionResult]> {
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    const wait = retryCount === -1 || retryCount === Infinity ? undefined
      : retryCount * retryDelay;
    return this.execute(() =>
      this.client.lock([...new Set([resources].flat())], { lease, wait }));
  }

  /** What the operation gives, or the ExecutionError. */
  private async execute<R>(operation: () => Promise<R>):
  Promise<[R, ExecutionResult]> {
    const start = Date.now();
    const votes: ExecutionStats = { membershipSize: 1, quorumSize: 1,
      votesFor: new Set(), votesAgainst: new Map() };
    const attempts = [Promise.resolve(votes)];
    try {
      const result = await operation();
      votes.votesFor.add(this.client);
      return [result, { attempts, start }];
    } catch (cause) {
      const error = cause as HoldfastError;
      if (error.code === "USAGE") throw error; // a defect of the program
      const vote = ["BUSY", "TIMEOUT"].includes(error.code)
        ? new ResourceLockedError(error.message, { cause }) : error;
      votes.votesAgainst.set(this.client, vote);
      this.emit("error", vote);
      throw new ExecutionError(FAILED, attempts, { cause });
    }
  }
}
