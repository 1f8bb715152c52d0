/**
 * Requests and their final replies: the lowest part of the core.
 *
 * A call is parked until a broker serves the session, or until an earlier call
 * about the same hold is answered. Sent, it has a tag that is never used again.
 * The parts of the core are one object: Calls, Holds, Watches, Session, Core.
 * Each part knows those before it in this list.
 */

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import { Call, FOREVER, type Event, type Hold, type Options, type Watch }
  from "./model.js";
import { encode, Lines, type Line } from "./wire.js";

export const SILENCE_MS = 10_000; // of a broker that does not answer a PING
const PING_LEAST_MS = 50;
const RETRY_MS = [100, 300] as const; // before an own request is sent again

/** The connection, as core.ts explains. */
export type Link =
  "idle" | "pause" | "dialing" | "greeting" | "hello" | "open" | "closed";

/** A hold among all of a session. */
export function keyOf(name: string, owner: string, fence: number): string {
  return `${fence} ${encode(owner)} ${name}`;
}

/** The state of a client, and the way of a request. */
export class Calls {
  link: Link = "idle";
  dialAt = 0;
  readonly holds = new Map<string, Hold>();
  /** The next connection is of the same round of all addresses. */
  more = false;

  protected out: string[] = [];
  protected happened: Event[] = [];
  protected lines = new Lines();
  protected tags = 0;
  protected owners = 0;
  protected readonly calls = new Map<string, Call>(); // sent, by tag
  protected parked: Call[] = []; // not sent, in their order
  protected readonly watches = new Map<string, Watch>();
  // the session
  protected session: string | null = null; // its ID, if it is kept
  protected keep = 0; // as the broker has agreed
  protected gen = 0;
  protected awayAt = FOREVER; // when it lost its connection
  protected settling = false; // holds are to be claimed
  // the connection
  protected rounds = 0; // failed ones
  protected opened = 0; // when it began to serve
  protected by = FOREVER; // greeting and HELLO must have come
  protected moveAt = FOREVER;
  protected retryAt = FOREVER; // the first parked call that is due
  // deadlines
  protected soonest = FOREVER; // no deadline is sooner
  protected proven = 0; // the last sending of an answered request
  protected ttl = SILENCE_MS; // as last told, or silence_ms of HELLO
  protected ping: Call | null = null;
  protected pingAt = FOREVER;

  /** `chance` is a random number below 1. */
  constructor(readonly options: Options, readonly clock: () => number,
    private readonly chance: () => number = Math.random) {}

  protected about(verb: string, hold: Hold): Call {
    const owner = hold.owner ? " owner=" + encode(hold.owner) : "";
    return new Call(verb, [hold.name], {
      words: `fence=${hold.fence}${owner}`, owner: hold.owner, hold });
  }

  protected submit(call: Call): Call {
    const now = call.asked = this.clock();
    if (this.link === "closed") {
      this.finish(call, new errors.ClosedError());
    } else if (call.hold !== null && call.hold.lost !== null && !call.own) {
      this.finish(call, this.lossOf(call.hold));
    } else if (this.link === "open" && !this.blocked(call, now)) {
      this.send(call, now);
    } else {
      this.parked.push(call);
      if (this.link === "idle") this.link = "pause";
    }
    return call;
  }

  protected lossOf(hold: Hold): errors.LockLostError {
    const why = hold.lost ?? "gone";
    return new errors.LockLostError(`${hold.name}: ${why}`, { why });
  }

  /**
   * An unclaimed hold comes first: a LOCK would take it for its own first one
   * (profile C, 4).
   */
  protected blocked(call: Call, now: number): boolean {
    if (call.after > now) return true;
    if (call.verb === "CLAIM") return false;
    if (call.hold !== null) return call.hold.unclaimed;
    return this.settling && call.verb === "LOCK" &&
      [...this.holds.values()].some((hold) => hold.unclaimed &&
        hold.owner === call.owner && call.names.includes(hold.name));
  }

  protected send(call: Call, now: number): void {
    if (!call.verb) { // ready()
      this.finish(call);
      return;
    }
    call.tag = String(++this.tags);
    call.sent = now;
    this.calls.set(call.tag, call);
    this.out.push(call.line(now));
    if (this.pingAt === FOREVER && this.ping === null) {
      this.pingAt = now + this.pause(this.ttl);
    }
  }

  /** Sends what was parked, in its order. */
  protected flush(): void {
    const now = this.clock();
    const calls = this.parked;
    this.parked = [];
    this.retryAt = FOREVER;
    for (const call of calls) {
      if (!this.blocked(call, now)) {
        this.send(call, now);
        continue;
      }
      this.parked.push(call);
      if (call.after > now) this.retryAt = Math.min(this.retryAt, call.after);
    }
  }

  /** Sends it again after a pause. */
  protected later(call: Call): void {
    call.again = true;
    call.after = this.clock() + this.between(...RETRY_MS);
    this.retryAt = Math.min(this.retryAt, call.after);
    this.parked.push(call);
  }

  protected between(least: number, most: number): number {
    return least + (most - least) * this.chance();
  }

  /**
   * Between two PINGs: a third of the ttl, and of what a kept session may rely
   * on after the end of its connection.
   */
  protected pause(ttl: number): number {
    const least = this.session === null ? ttl : Math.min(ttl, this.keep);
    return Math.max(least / 3, PING_LEAST_MS);
  }

  protected pingBy(at: number): void {
    this.pingAt = Math.min(this.pingAt, at);
  }

  protected finish(call: Call, error: HoldfastError | null = null): void {
    if (call.done) return;
    call.done = true;
    call.error = error;
    if (call.hold?.renewals.delete(call)) { // it may have set its end
      call.hold.told = Math.min(call.hold.told, call.end);
    }
    if (error !== null && call.watch !== null && !call.watch.begun) {
      this.watches.delete(call.watch.name);
    }
    if (!call.own && !call.dropped) {
      this.happened.push({ kind: "answered", call });
    }
  }

  /** No call gets an answer any more. */
  protected fail(error: HoldfastError): void {
    const calls = [...this.calls.values(), ...this.parked];
    this.calls.clear();
    this.parked = [];
    this.retryAt = FOREVER;
    for (const call of calls) this.finish(call, error);
  }

  /** A reply that changes nothing here. */
  protected onOther(call: Call, _line: Line,
    error: HoldfastError | null): void {
    const carriedOut = call.again && call.verb === "UNLOCK" &&
      error?.code === "NOTHELD"; // the first one was
    this.finish(call, carriedOut ? null : error);
  }
}
