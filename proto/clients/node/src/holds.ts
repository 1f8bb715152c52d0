/**
 * Locks: requests about them, their answers, their loss, their deadlines.
 *
 * A deadline counts from the sending of the request that was answered. Nothing
 * but an answer moves it on. One timer sends PING at a third of what was told,
 * and notices the deadlines that pass (PROTOCOL.md 6.5).
 */

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import { Calls, keyOf, SILENCE_MS } from "./calls.js";
import { Call, FOREVER, Hold } from "./model.js";
import { duration, encode, numberOf, type Line } from "./wire.js";

const DRIFT = 0.99; // clocks do not run alike: 1 % of each ttl_ms is not used
const LEASE_SLACK_MS = 2; // a lease ends that much sooner for its client
/** After these replies it is not known what the broker has done (section 2). */
const DOUBTS = ["UNAVAILABLE", "INDOUBT", "INTERNAL"];
const KEPT_SILENCE_MS = [1000, 5000] as const; // another broker may do better

/** Of a LOCK. Times are in milliseconds. */
export interface LockParts {
  owner?: string | undefined;
  wait?: number | undefined;
  lease?: number | undefined;
  delay?: number | undefined;
  mode?: string | undefined;
  limit?: number | undefined;
  permits?: number | undefined;
  note?: string | undefined;
  wanted?: boolean | undefined;
  detached?: boolean | undefined;
  tree?: boolean | undefined;
}

/** The locks of the session. */
export class Holds extends Calls {
  /**
   * LOCK. Without `owner` it has an owner of its own: two tasks of one session
   * exclude each other (profile B).
   */
  lock(names: readonly string[], parts: LockParts = {}): Call {
    // No named owner begins so: it would enter another task's hold.
    const owner = parts.owner ?? `~${++this.owners}`;
    const words = ["owner=" + encode(owner)];
    for (const key of ["lease", "delay"] as const) {
      const ms = parts[key];
      if (ms !== undefined) words.push(`${key}=${duration(ms)}`);
    }
    for (const key of ["mode", "limit", "permits", "note"] as const) {
      const value = parts[key];
      if (value !== undefined) words.push(`${key}=${encode(String(value))}`);
    }
    for (const key of ["wanted", "detached", "tree"] as const) {
      if (parts[key]) words.push(`${key}=1`);
    }
    if (this.options.progress) words.push("progress=1");
    // The OK of a detached LOCK may be lost: sent again, it would wait for its
    // own first hold (3.4).
    const call = new Call("LOCK", names, { words: words.join(" "), owner,
      wait: parts.wait, repeats: !parts.detached });
    call.wanted = parts.wanted === true;
    call.detached = parts.detached === true;
    call.leased = parts.lease !== undefined;
    return this.submit(call);
  }

  /** UNLOCK, always with the fence. The hold is over from now on. */
  unlock(hold: Hold, delay?: number): Call {
    const call = this.about("UNLOCK", hold);
    if (delay !== undefined) call.words += " delay=" + duration(delay);
    if (hold.lost === null && !hold.released) {
      hold.entries -= 1;
      hold.released = hold.entries === 0;
    }
    return this.submit(call);
  }

  /** RENEW. From now on PING tells nothing of the hold (6.5). */
  renew(hold: Hold, lease: number): Call {
    const call = this.about("RENEW", hold);
    call.words += " lease=" + duration(lease);
    call.lease = lease;
    hold.leased = hold.outlasts = true; // as far as is known
    return this.submit(call);
  }

  /** NOTE; the empty note is none. */
  note(hold: Hold, note: string): Call {
    const call = this.about("NOTE", hold);
    if (note) call.words += " note=" + encode(note);
    return this.submit(call);
  }

  /** UNLOCK of some permits. Sent twice, it would give back twice. */
  part(hold: Hold, permits: number): Call {
    const call = this.about("UNLOCK", hold);
    call.repeats = false;
    call.words += ` permits=${permits}`;
    return this.submit(call);
  }

  /** UNLOCK or RENEW of a detached hold, whoever took it. */
  detached(verb: string, hold: Hold, lease?: number): Call {
    const call = new Call(verb, [hold.name], { hold,
      words: `fence=${hold.fence} detached=1` });
    call.detached = true;
    if (lease !== undefined) {
      call.words += " lease=" + duration(lease);
      call.lease = lease;
    }
    return this.submit(call);
  }

  protected override send(call: Call, now: number): void {
    super.send(call, now);
    if (call.verb !== "RENEW") return;
    const hold = call.hold as Hold;
    call.end = Math.min(call.end, now + call.lease * DRIFT - LEASE_SLACK_MS);
    hold.renewals.add(call);
    this.soonest = Math.min(this.soonest, call.end);
  }

  protected onLock(call: Call, line: Line, error: HoldfastError | null): void {
    if (error !== null) {
      this.finish(call, error);
      return;
    }
    const fences = (line.keys.get("fence") ?? "").split(",").map((fence) =>
      numberOf(fence, "fence= of a LOCK"));
    if (fences.length !== call.names.length) {
      throw new errors.ProtocolError("the OK of a LOCK without its fences");
    }
    const ttl = line.number("ttl_ms");
    // The OK of a wait: counted from the last request that was answered before
    // it, if that was sent later (6.5).
    const base = Math.max(call.sent, this.proven);
    call.holds = call.names.map((name, at) =>
      this.enter(call, name, fences[at] as number, line));
    for (const hold of call.holds) this.date(hold, base, ttl);
    if (call.dropped) {
      for (const hold of call.holds) this.giveBack(hold, call.detached);
    } else if (call.detached) {
      this.finish(call);
    } else if (this.clock() <= base + ttl / 2) {
      this.pingBy(base + this.pause(ttl));
      this.finish(call);
    } else { // too old to begin with it: the answer to a PING comes first
      this.pingAt = 0;
      for (const hold of call.holds) hold.confirming = call;
    }
  }

  private enter(call: Call, name: string, fence: number, line: Line): Hold {
    const key = keyOf(name, call.owner, fence);
    let hold = this.holds.get(key);
    if (hold === undefined || hold.lost !== null || hold.released) {
      hold = new Hold(name, call.owner, fence);
      hold.leased = call.leased;
      hold.upgrade = line.keys.has("upgrade");
      if (!call.detached) this.holds.set(key, hold);
    }
    hold.outlasts = line.keys.has("lease_ms") &&
      line.number("lease_ms") > line.number("ttl_ms");
    hold.wanted ||= call.wanted;
    hold.entries += 1;
    return hold;
  }

  protected onUnlock(call: Call, line: Line,
    error: HoldfastError | null): void {
    const hold = call.hold as Hold;
    if (call.detached) {
      hold.released ||= error === null;
      this.onOther(call, line, error);
      return;
    }
    if (error?.code === "LIMIT") {
      this.later(call); // nothing was done
      return;
    }
    if (error?.code === "INDOUBT" && hold.released) {
      error = null; // the broker goes on with the release (profile B)
    }
    if (hold.lost !== null && (error instanceof errors.NotHeldError ||
                               error instanceof errors.LockLostError)) {
      error = this.lossOf(hold);
    }
    this.finish(call, error);
    const count = line.word === "OK" ? line.number("count") : 0;
    if (line.word === "OK" && count === 0) {
      hold.released = true; // all its permits, maybe
    }
    if (!hold.released && hold.lost === null) return;
    if (count > 0 && !this.beside(hold)) {
      this.giveBack(hold); // a LOCK that was sent again was counted twice
    } else {
      this.forget(hold);
    }
  }

  /** Whether it has an upgrade, or is one. `count` is then of both. */
  private beside(hold: Hold): boolean {
    return [...this.holds.values()].some((other) => other !== hold &&
      other.name === hold.name && other.owner === hold.owner);
  }

  /** A hold that nobody uses, and that the broker may still renew. */
  protected giveBack(hold: Hold, detached = false): void {
    hold.entries = 0;
    hold.confirming = null;
    hold.released = true;
    if (detached) {
      this.detached("UNLOCK", hold).own = true;
      return;
    }
    const call = this.about("UNLOCK", hold);
    call.own = true;
    this.submit(call);
  }

  protected forget(hold: Hold): void {
    const key = keyOf(hold.name, hold.owner, hold.fence);
    if (this.holds.get(key) === hold) this.holds.delete(key);
  }

  protected onRenew(call: Call, line: Line, error: HoldfastError | null): void {
    const hold = call.hold as Hold;
    const refused = error !== null && !call.again &&
      !DOUBTS.includes(error.code);
    if (error === null || refused) hold.renewals.delete(call);
    if (error === null) {
      const ttl = line.number("ttl_ms");
      hold.outlasts = line.number("lease_ms") > ttl;
      this.date(hold, call.sent, ttl);
      this.pingBy(call.sent + this.pause(ttl));
    }
    this.finish(call, error);
  }

  protected onLost(line: Line): void {
    // Name, owner and fence: another owner's, or an earlier hold of the same
    // lock, is not ours.
    const hold = this.holds.get(keyOf(line.argument,
      line.keys.get("owner") ?? "", line.number("fence")));
    if (hold === undefined) return;
    this.lose(hold, line.keys.get("reason") ?? "gone");
    this.forget(hold);
  }

  protected onWanted(line: Line): void {
    const owner = line.keys.get("owner") ?? "";
    const waiters = line.number("waiters");
    for (const hold of this.holds.values()) {
      if (hold.wanted && hold.name === line.argument && hold.owner === owner) {
        this.happened.push({ kind: "wanted", hold, waiters });
      }
    }
  }

  protected silence(): number {
    if (this.session === null) return SILENCE_MS;
    const [least, most] = KEPT_SILENCE_MS;
    return Math.min(Math.max(this.ttl / 4, least), most);
  }

  /** The latest answer counts, even where it is sooner. */
  protected date(hold: Hold, base: number, ttl: number): void {
    hold.told = base + ttl * DRIFT;
    this.soonest = Math.min(this.soonest, hold.deadline);
  }

  /** PING, while something depends on its answer; HELD beside leases. */
  protected ask(now: number): void {
    this.pingAt = FOREVER;
    if (this.holds.size === 0 && this.calls.size === 0) return;
    const leases = [...this.holds.values()].some((hold) => hold.leased &&
      hold.lost === null && (hold.outlasts || hold.confirming !== null));
    this.ping = new Call(leases ? "HELD" : "PING", [],
      { own: true, repeats: false });
    this.send(this.ping, now);
  }

  protected onItem(call: Call, line: Line): void {
    const hold = this.holds.get(keyOf(line.keys.get("name") ?? "",
      line.keys.get("owner") ?? "", line.number("fence")));
    if (hold === undefined || hold.unclaimed) return;
    const ttl = line.number("ttl_ms");
    if (line.keys.has("lease_ms")) {
      hold.outlasts = line.number("lease_ms") > ttl;
    }
    call.least = Math.min(call.least, ttl);
    this.date(hold, call.sent, ttl);
  }

  protected onPingAnswer(call: Call, line: Line): void {
    if (call !== this.ping) return;
    this.ping = null;
    let ttl = call.least;
    if (line.keys.has("ttl_ms")) {
      ttl = line.number("ttl_ms");
      for (const hold of this.holds.values()) {
        // It covers neither leases nor holds that are not claimed.
        if (!hold.leased && !hold.unclaimed) this.date(hold, call.sent, ttl);
      }
    }
    if (ttl < FOREVER) this.ttl = ttl;
    this.pingAt = call.sent + this.pause(this.ttl);
    for (const hold of [...this.holds.values()]) {
      if (hold.confirming !== null && !hold.unclaimed) {
        this.confirm(hold.confirming);
      }
    }
  }

  /** A grant that came late is told, once its deadline is known. */
  protected confirm(call: Call): void {
    const now = this.clock();
    if (call.holds.some((hold) => hold.unclaimed)) return;
    if (call.holds.some((hold) => now >= hold.deadline)) {
      this.pingAt = now;
      return;
    }
    for (const hold of call.holds) hold.confirming = null;
    this.finish(call);
  }

  /**
   * Deadlines that have passed. The broker may still renew such a hold: it is
   * given back (profile B).
   */
  protected expire(now: number): void {
    this.soonest = FOREVER;
    for (const hold of [...this.holds.values()]) {
      if (hold.lost !== null || hold.released ||
          (hold.confirming !== null && this.link === "open")) {
        continue;
      }
      if (now < hold.deadline) {
        this.soonest = Math.min(this.soonest, hold.deadline);
      } else {
        this.lose(hold, "deadline");
        this.giveBack(hold);
      }
    }
  }

  protected lose(hold: Hold, why: string): void {
    if (hold.lost !== null) return;
    hold.lost = why;
    const call = hold.confirming;
    if (call === null) {
      if (!hold.released) this.happened.push({ kind: "lost", hold });
      return;
    }
    hold.confirming = null; // nobody was told that it is held
    this.finish(call, why === "session"
      ? errors.gone("the session has ended") : this.lossOf(hold));
    for (const other of call.holds) {
      if (other !== hold && other.confirming === call) this.giveBack(other);
    }
  }
}
