/** What the core keeps: options, holds, calls, watches; and its events. */

import type { HoldfastError, Keys } from "./errors.js";
import { duration, encode } from "./wire.js";

export const FOREVER = Infinity;

/** Of a session. Times are in milliseconds. */
export interface Options {
  name?: string | undefined;
  user?: string | undefined;
  secret?: string | undefined;
  /** How long the session outlives its connection; 0: it does not. */
  keep: number;
  /** The broker asks for a sign of life at this pace; 0: never. */
  heartbeat: number;
  /** Whether a wait tells its place: the event "queued". */
  progress: boolean;
  /** Whether there are several addresses to move between. */
  several: boolean;
}

/** Who is told about a hold: a lock of the user. */
export interface User {
  granted(holds: Hold[]): void;
  toldLost(): void;
  toldWanted(waiters: number): void;
}

/** One lock that was granted. The core alone writes to it. */
export class Hold {
  /** The deadline by the last answer, on the clock of the client. */
  told = 0;
  /** RENEWs without an answer: each may have set its end already. */
  readonly renewals = new Set<Call>();
  /** Why it was lost; null: it was not. */
  lost: string | null = null;
  /** The client has sent its last UNLOCK. */
  released = false;
  /** Calls of LOCK that were granted, less those of UNLOCK. */
  entries = 0;
  upgrade = false;
  wanted = false;
  /** A hold with lease= has a deadline of its own (6.5). */
  leased = false;
  /** Its lease is longer than its ttl_ms: only HELD moves the deadline. */
  outlasts = false;
  /** The present connection has not claimed it yet. */
  unclaimed = false;
  /** The call that is answered once the hold is confirmed. */
  confirming: Call | null = null;
  /** The engine's: the objects that are told of its loss. */
  readonly users = new Set<User>();

  constructor(readonly name: string, readonly owner: string,
    readonly fence: number) {}

  /** Nothing is believed beyond it (6.5). */
  get deadline(): number {
    let least = this.told;
    for (const call of this.renewals) least = Math.min(least, call.end);
    return least;
  }

  /** What is left of it for an entry that has ended while others go on. */
  ended(): Hold {
    if (this.released || this.lost !== null) return this;
    const hold = new Hold(this.name, this.owner, this.fence);
    hold.released = true;
    return hold;
  }

  /** Milliseconds for which it can be relied on; 0: not any more. */
  left(now: number): number {
    if (this.lost !== null || this.released) return 0;
    return Math.max(0, this.deadline - now);
  }
}

/** What a new call may say besides its verb and its names. */
export interface CallParts {
  words?: string;
  wait?: number | undefined;
  owner?: string;
  hold?: Hold;
  /** It is the core's own: nobody waits for its answer. */
  own?: boolean;
  /** After a move it is sent again; the default. */
  repeats?: boolean;
}

/** A request, from its call to its final reply. */
export class Call {
  words: string;
  readonly wait: number | undefined;
  readonly owner: string;
  readonly hold: Hold | null;
  watch: Watch | null = null;
  own: boolean;
  repeats: boolean;
  asked = 0;
  sent = 0;
  tag = "";
  /** It was sent on an earlier connection too. */
  again = false;
  /** It is not sent before. */
  after = 0;
  /** Its caller has given it up. */
  dropped = false;
  done = false;
  error: HoldfastError | null = null;
  keys: Keys = new Map();
  holds: Hold[] = [];
  wanted = false;
  leased = false;
  detached = false;
  /** The lease of a RENEW. */
  lease = 0;
  /** The end of the hold by its first sending, if it is a RENEW. */
  end = FOREVER;
  /** The least ttl of its ITEMs. */
  least = FOREVER;
  /** The engine's: who waits, and who takes its holds. */
  waiter: (() => void) | null = null;
  user: User | null = null;

  constructor(readonly verb: string, readonly names: readonly string[] = [],
    parts: CallParts = {}) {
    this.words = parts.words ?? "";
    this.wait = parts.wait;
    this.owner = parts.owner ?? "";
    this.hold = parts.hold ?? null;
    this.own = parts.own ?? false;
    this.repeats = parts.repeats ?? true;
  }

  /** The request, with what is left of its wait (profile C). */
  line(now: number): string {
    const words = [this.tag, this.verb, ...this.names.map(encode)];
    if (this.words) words.push(this.words);
    if (this.wait !== undefined) {
      words.push("wait=" + duration(Math.max(0, this.asked + this.wait - now)));
    }
    return words.join(" ") + "\n";
  }
}

/** The holder of a watched lock, or a member of a watched group. */
export interface Member {
  /** Of the lock. */
  readonly name: string;
  readonly fence: number;
  readonly note: string;
  /** The name of its client. */
  readonly client: string;
  readonly owner: string;
  readonly session: string;
  readonly permits: number;
  readonly holders: number;
  readonly detached: boolean;
}

/** News of a watch: the holder, null if the lock is free, or members. */
export type News = Member | null | Member[];

/** A watched lock. It goes on at the next connection, until unwatch(). */
export class Watch {
  readonly all = new Map<number, Member>();
  listing = false;
  /** The last news as JSON; "": none were told yet. */
  last = "";
  /** A broker has answered OK. */
  begun = false;
  over = false;
  error: HoldfastError | null = null;
  /** The engine's. */
  user: { tell(news: News): void; tellOver(): void } | null = null;

  constructor(readonly name: string, readonly members: boolean) {}
}

export type Event =
  /** A call is done. */
  | { kind: "answered"; call: Call }
  /** A LOCK waits; keys of QUEUED: position, holder, note, age_ms. */
  | { kind: "queued"; call: Call; keys: Keys }
  /** A hold was lost: hold.lost says why. */
  | { kind: "lost"; hold: Hold }
  /** Others wait for a hold. */
  | { kind: "wanted"; hold: Hold; waiters: number }
  | { kind: "seen"; watch: Watch; news: News }
  /** A watch has ended; watch.error says why. */
  | { kind: "watchOver"; watch: Watch }
  /** The session goes on at another connection. */
  | { kind: "moved" };
