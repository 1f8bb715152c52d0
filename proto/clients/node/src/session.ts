/**
 * The session: greeting, HELLO, BYE, and its moves from broker to broker.
 *
 * Of a connection that has ended, nothing counts beyond `keep` after the
 * sending of the last request that it has answered. On the next one each hold
 * is claimed first; then unanswered requests are sent again (PROTOCOL.md,
 * profile C). The end of a session without `keep` is the end of its holds and
 * calls.
 */

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import { Call, FOREVER, type Hold } from "./model.js";
import { Watches } from "./watches.js";
import { duration, encode, Lines, type Line } from "./wire.js";

export const GREETING_MS = 5000; // for the greeting, and the answer to HELLO
const AUTH_MS = 12_000; // the answer to AUTH takes up to 8 s
const PAUSE_MS = [50, 2000] as const; // between rounds of all addresses
const STEADY_MS = 500; // a connection of that age ends the growth of pauses
const MOVE_MS = 5000; // all clients leave a draining broker in that time
const MOVE_SOON_MS = 200; // the same, if a request waits for it

/** BYE with one of these, and without keep=1, ends a kept session. */
const FINAL = new Set(["killed", "quit", "resumed", "protocol", "auth"]);

/** One session after the other. */
export class Session extends Watches {
  protected onGreeting(line: Line): void {
    if (this.link !== "greeting") return;
    const proto = line.keys.get("proto");
    if (proto !== "1") {
      throw new errors.ProtocolError(
        `the broker speaks another protocol: proto=${proto}`);
    }
    const { user, secret } = this.options;
    this.link = "hello";
    if (user !== undefined) {
      // Other replies may overtake the one to AUTH, so it comes alone.
      const now = this.clock();
      this.by = now + AUTH_MS;
      this.send(new Call("AUTH", [user, secret ?? ""],
        { own: true, repeats: false }), now);
    } else if (line.keys.has("auth")) {
      this.refuse(new errors.DeniedError("the broker requires a user",
        { code: "AUTH" }));
    } else {
      this.sayHello();
    }
  }

  private sayHello(): void {
    const now = this.clock();
    const { name, heartbeat, keep } = this.options;
    this.by = now + GREETING_MS;
    const words = [];
    if (name !== undefined) words.push("name=" + encode(name));
    if (heartbeat) words.push("heartbeat=" + duration(heartbeat));
    if (keep) words.push("keep=" + duration(keep));
    this.gen += 1; // each try is larger, also one without an answer
    if (this.session !== null) {
      words.push(`resume=${encode(this.session)} gen=${this.gen}`);
    }
    this.send(new Call("HELLO", [],
      { words: words.join(" "), own: true, repeats: false }), now);
  }

  protected onAuth(_call: Call, _line: Line,
    error: HoldfastError | null): void {
    if (error !== null) this.refuse(error);
    else this.sayHello();
  }

  /** This broker does not serve us; another one may know the session. */
  private refuse(error: HoldfastError): void {
    if (this.session === null) {
      this.more = false;
      for (const watch of [...this.watches.values()]) {
        this.endWatch(watch, error);
      }
    }
    this.drop(error);
  }

  protected onHello(_call: Call, line: Line,
    error: HoldfastError | null): void {
    if (error !== null) {
      this.drop(errors.gone(`the broker refuses HELLO: ${error.message}`));
      return;
    }
    const now = this.clock();
    const moved = this.session !== null;
    this.keep = line.keys.has("keep_ms") ? line.number("keep_ms") : 0;
    this.session = this.keep ? line.keys.get("session") ?? null : null;
    if (line.keys.has("silence_ms")) this.ttl = line.number("silence_ms");
    this.pingAt = FOREVER; // it was set by what came before this
    this.link = "open";
    this.by = this.moveAt = this.awayAt = FOREVER;
    this.opened = now;
    if (moved) this.happened.push({ kind: "moved" });
    for (const hold of [...this.holds.values()]) { // first of all (step 4)
      this.claim(hold, now);
    }
    for (const watch of this.watches.values()) {
      if (watch.begun) this.rewatch(watch, now);
    }
    this.flush();
  }

  protected onBye(line: Line): void {
    const keep = line.keys.get("keep");
    const final = keep === "0" ||
      (keep === undefined && FINAL.has(line.argument));
    if (final && this.link !== "greeting") this.session = null;
    const text = `the broker says BYE ${line.argument}`;
    this.drop(line.argument === "protocol" ? new errors.ProtocolError(text)
      : errors.gone(text));
  }

  protected onPing(line: Line): void {
    this.out.push(`PONG ${encode(line.argument)}\n`);
  }

  protected onDrain(line: Line): void {
    if (this.session === null) return;
    this.move(Math.min(line.number("grace_ms") / 4, MOVE_MS));
  }

  /** Leaves a draining broker, at a random time: not all at once. */
  private move(within: number): void {
    if (!this.options.several) return;
    this.moveAt = Math.min(this.moveAt,
      this.clock() + this.between(0, within));
  }

  /** A kept session does not tell its caller that a broker drains. */
  protected waitsForAnotherBroker(call: Call): boolean {
    if (this.session === null || !call.repeats || call.dropped) return false;
    call.again = true;
    call.after = FOREVER; // until the next broker
    this.parked.push(call);
    this.move(MOVE_SOON_MS);
    return true;
  }

  /** The connection has ended, or there was none. */
  protected drop(error: HoldfastError): void {
    const now = this.clock();
    const wasOpen = this.link === "open";
    this.link = "idle";
    const calls = [...this.calls.values()];
    this.calls.clear();
    this.out = [];
    this.lines = new Lines();
    this.ping = null;
    this.pingAt = this.by = this.moveAt = this.retryAt = FOREVER;
    const steady = wasOpen && now >= this.opened + STEADY_MS;
    this.more &&= !wasOpen;
    if (!this.more) this.rounds = steady ? 0 : this.rounds + 1;
    this.parkAgain(calls, error);
    if (this.session !== null) {
      if (wasOpen) this.away(now);
    } else if (wasOpen || this.awayAt < FOREVER) {
      this.endSession(error);
    } else if (!this.more) {
      this.fail(error);
    }
    this.dialAt = this.more ? now : now + this.roundPause();
    if (this.parked.length || this.watches.size || this.session !== null) {
      this.link = "pause";
    }
  }

  private roundPause(): number {
    const [least, most] = PAUSE_MS;
    if (this.rounds === 0) return this.between(0, least);
    const pause = Math.min(most, least * 2 ** Math.min(this.rounds, 10));
    return this.between(pause / 2, pause);
  }

  /**
   * The broker may have seen the end of the connection right after the last
   * answer: it keeps the session from then on (step 2).
   */
  private away(now: number): void {
    if (this.awayAt === FOREVER) this.awayAt = now;
    for (const hold of this.holds.values()) {
      hold.told = Math.min(hold.told, this.proven + this.keep);
      this.soonest = Math.min(this.soonest, hold.deadline);
      hold.unclaimed = this.settling = true;
    }
  }

  /** What the lost connection has not answered is sent again. */
  private parkAgain(calls: Call[], error: HoldfastError): void {
    const again = [];
    for (const call of calls) {
      call.again = true;
      if (call.repeats && !call.dropped) again.push(call);
      else this.finish(call, error);
    }
    for (const call of this.parked) call.after = 0;
    this.parked = [...again,
      ...this.parked.filter((call) => call.verb !== "CLAIM")];
  }

  protected endSession(error: HoldfastError): void {
    this.session = null;
    this.gen = 0;
    this.awayAt = FOREVER;
    this.settling = false;
    const holds = [...this.holds.values()];
    this.holds.clear();
    for (const hold of holds) this.lose(hold, "session");
    this.soonest = FOREVER;
    this.fail(error);
  }

  private claim(hold: Hold, now: number): void {
    const call = this.about("CLAIM", hold);
    call.own = true;
    call.repeats = false;
    if (hold.entries > 1) call.words += ` count=${hold.entries}`;
    if (hold.wanted) call.words += " wanted=1";
    if (hold.upgrade) call.words += " upgrade=1";
    this.send(call, now);
  }

  protected onClaim(call: Call, line: Line,
    error: HoldfastError | null): void {
    const hold = call.hold as Hold;
    if (error === null) {
      const ttl = line.number("ttl_ms");
      hold.unclaimed = false;
      this.date(hold, call.sent, ttl);
      this.pingBy(call.sent + this.pause(ttl));
      if (hold.confirming !== null) this.confirm(hold.confirming);
    } else if (error.code === "DRAINING") {
      this.move(MOVE_SOON_MS); // the next broker is asked
      return;
    } else if (error instanceof errors.LockLostError ||
               error instanceof errors.NotHeldError) {
      hold.unclaimed = false;
      this.settle(hold);
    } else { // it is not known yet: again, until the deadline (step 4)
      this.later(call);
      return;
    }
    this.settling = [...this.holds.values()].some((one) => one.unclaimed);
    this.flush();
  }

  /**
   * The hold is gone, and so are the calls about it. An UNLOCK that was on its
   * way has been carried out (step 5).
   */
  private settle(hold: Hold): void {
    const inTime = hold.released && this.clock() < hold.deadline;
    this.lose(hold, "gone");
    this.forget(hold);
    const calls = this.parked.filter((call) => call.hold === hold);
    this.parked = this.parked.filter((call) => call.hold !== hold);
    for (const call of calls) {
      const givenBack = call.verb === "UNLOCK" && call.again && inTime;
      this.finish(call, givenBack ? null : this.lossOf(hold));
    }
  }
}
