/** Held locks, as the user sees them. */

import { setMaxListeners } from "node:events";

import "./dispose.js";
import * as errors from "./errors.js";
import type { Engine } from "./engine.js";
import type { Hold } from "./model.js";
import { clock } from "./net.js";
import { callHook, checkLease, checkText, checkTime, termsOf, type Hooks,
  type LockOptions, type Terms } from "./options.js";

const RELEASE_MS = 10_000; // for the answer to UNLOCK; the hold is over before

/** What a lock needs of its client. @internal */
export interface Client {
  readonly engine: Engine;
  readonly hooks: Hooks;
  take(terms: Terms): Promise<Lock>;
}

/** Held locks: what can be said of them without asking anybody. */
export class View {
  /** @internal */
  protected holds: Hold[];
  private parts: View[] = [];

  /** @internal */
  constructor(holds: Hold[]) {
    this.holds = holds;
  }

  /** One for each name: `const [a, b] = await hf.lock(["a", "b"])`. */
  [Symbol.iterator](): Iterator<View> {
    if (this.parts.length === 0) {
      this.parts = this.holds.map((hold) => new View([hold]));
    }
    return this.parts.values();
  }

  /** The first name. */
  get name(): string {
    return this.first.name;
  }

  /**
   * The number of the grant, larger than all before and below 2^53: give it to
   * what the lock protects.
   */
  get fence(): number {
    return this.first.fence;
  }

  /** That of each name. */
  get fences(): number[] {
    return this.holds.map((hold) => hold.fence);
  }

  /** Why it was lost, also by its deadline; null: it was not. */
  get lost(): string | null {
    const now = clock();
    for (const hold of this.holds) {
      if (hold.lost !== null) return hold.lost;
      if (hold.deadline && !hold.released && !hold.left(now)) return "deadline";
    }
    return null;
  }

  /** Whether it can be relied on now. */
  get held(): boolean {
    return this.left() > 0;
  }

  /** Milliseconds for which it can be relied on without further word. */
  left(): number {
    const now = clock();
    if (this.holds.length === 0) return 0;
    return Math.min(...this.holds.map((hold) => hold.left(now)));
  }

  /** Throws LockLostError if it cannot be relied on any more. */
  check(): void {
    const why = this.lost;
    if (why !== null) throw this.lossBy(why);
    if (!this.held) {
      throw new errors.NotHeldError("the lock was released, or is not granted");
    }
  }

  /** @internal */
  protected lossBy(why: string): errors.LockLostError {
    return new errors.LockLostError(`${this.name}: ${why}`, { why });
  }

  /** @internal It was released. Its owner may have other entries. */
  protected leave(): void {
    this.holds = this.holds.map((hold) => hold.ended());
    for (const part of this.parts) part.leave();
  }

  /** @internal */
  protected get first(): Hold {
    const [hold] = this.holds;
    if (hold === undefined) {
      throw new errors.NotHeldError("the lock is not granted yet");
    }
    return hold;
  }
}

/** A lock of one or several names. `await using`, or release(), ends it. */
export class Lock extends View {
  private readonly client: Client;
  private readonly terms: Terms;
  private taken = false;
  private loss: errors.HoldfastError | null = null;
  private thrown = false;
  private controller: AbortController | null = null;

  /** @internal */
  constructor(client: Client, terms: Terms) {
    super([]);
    this.client = client;
    this.terms = terms;
  }

  override get name(): string {
    return this.terms.names[0] as string;
  }

  /**
   * Aborted with a LockLostError when the lock is lost: by the broker's word,
   * by its deadline, or by the end of the session.
   */
  get signal(): AbortSignal {
    if (this.controller === null) {
      this.controller = new AbortController();
      setMaxListeners(0, this.controller.signal);
      if (this.loss !== null) this.controller.abort(this.loss);
    }
    return this.controller.signal;
  }

  override check(): void {
    try {
      super.check();
    } catch (error) {
      this.thrown ||= error instanceof errors.LockLostError;
      throw error;
    }
  }

  /**
   * Gives it back; `delay`: nobody is granted it for that many milliseconds.
   * LockLostError: it was lost before.
   */
  async release(options: { delay?: number } = {}): Promise<void> {
    checkTime("delay", options.delay);
    this.mustBeTaken();
    this.taken = false;
    for (const hold of this.holds) hold.users.delete(this);
    const { core } = this.client.engine;
    const calls = this.holds.map((hold) => core.unlock(hold, options.delay));
    this.leave();
    await this.client.engine.ask(calls, { limit: RELEASE_MS });
  }

  /**
   * The end of `await using`. LockLostError: the lock was lost, and check() has
   * not said so before.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.taken) return;
    try {
      await this.release();
    } catch (error) {
      // The hold is over, and the broker goes on with its release.
      if (error instanceof errors.HoldfastError && error.retry) return;
      if (this.thrown && error instanceof errors.LockLostError) return;
      throw error;
    }
  }

  /** A new end: `lease` milliseconds from now. */
  async renew(lease: number): Promise<void> {
    checkLease(lease);
    this.mustBeTaken();
    const { core } = this.client.engine;
    await this.client.engine.ask(this.holds.map((hold) =>
      core.renew(hold, lease)));
  }

  /** Another note, which others see; none without one. */
  async note(note = ""): Promise<void> {
    checkText("note", note);
    this.mustBeTaken();
    const { core } = this.client.engine;
    await this.client.engine.ask(this.holds.map((hold) =>
      core.note(hold, note)));
  }

  /** Gives some permits of a semaphore back, and keeps the others. */
  async give(permits: number): Promise<void> {
    this.mustBeTaken();
    const { core } = this.client.engine;
    await this.client.engine.ask(this.holds.map((hold) =>
      core.part(hold, permits)));
  }

  /** The exclusive lock above an upgradable one; release it first. */
  async upgrade(options: LockOptions = {}): Promise<Lock> {
    this.mustBeTaken();
    return this.client.take(termsOf(this.terms.names, options,
      { owner: this.first.owner }));
  }

  private mustBeTaken(): void {
    if (!this.taken) {
      throw new errors.NotHeldError(
        `${this.name}: this object does not hold it`);
    }
  }

  /** @internal The OK has come. */
  granted(holds: Hold[]): void {
    this.holds = holds;
    this.taken = true;
    for (const hold of holds) hold.users.add(this);
  }

  /** @internal One of the names is lost. */
  toldLost(): void {
    if (this.loss !== null) return;
    this.end(this.lossError());
    callHook(() => this.terms.onLost?.(this));
    callHook(() => this.client.hooks.onLost?.(this));
  }

  /** @internal Why it was lost, also before its signal tells so. */
  lossError(): errors.HoldfastError {
    return this.loss ?? this.lossBy(this.lost ?? "gone");
  }

  /** @internal The signal ends: by a loss, or since the client was closed. */
  end(error: errors.HoldfastError): void {
    this.loss ??= error;
    this.controller?.abort(this.loss);
  }

  /** @internal Others wait for it. */
  toldWanted(waiters: number): void {
    callHook(() => this.terms.onWanted?.(this, waiters));
  }
}

/** A hold that outlives this client: its fence is all it takes. */
export class Detached extends View {
  private readonly client: Client;

  /** @internal */
  constructor(client: Client, hold: Hold) {
    super([hold]);
    this.client = client;
  }

  /** A new end: `lease` milliseconds from now, 24 h at most. */
  async renew(lease: number): Promise<void> {
    checkLease(lease);
    const { engine } = this.client;
    await engine.ask([engine.core.detached("RENEW", this.first, lease)]);
  }

  /** Gives it back. NotHeldError: it has ended. */
  async release(): Promise<void> {
    const { engine } = this.client;
    await engine.ask([engine.core.detached("UNLOCK", this.first)]);
  }
}
