/**
 * A client without I/O: bytes and time in, bytes and events out.
 *
 * engine.ts owns the socket and does as `link` says:
 *
 *     idle       nothing; a request makes it "pause"
 *     pause      no socket until dialAt; then dialing(), and connect
 *     dialing    connected() or failed()
 *     greeting   the peer has not greeted; then AUTH and HELLO are sent
 *     hello      they are not answered
 *     open       requests go out
 *     closed     nothing more; what take() gives is still sent
 *
 * In greeting, hello and open bytes go both ways; in any other state there is
 * no socket. After each call the engine sends take(), acts on events(), and
 * calls tick() at due(). It reads before it calls tick(): an answer that has
 * come counts.
 */

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import type { Link } from "./calls.js";
import { Call, FOREVER, type Event } from "./model.js";
import { GREETING_MS, Session } from "./session.js";
import type { Line } from "./wire.js";

const PARKED_MS = 5000; // a call waits for a broker that much beyond its wait

/** Whether bytes go both ways. */
export function connected(link: Link): boolean {
  return link === "greeting" || link === "hello" || link === "open";
}

/** When a call that no broker can be asked gives up. */
function limitOf(call: Call): number {
  return call.wait === undefined ? FOREVER
    : call.asked + call.wait + PARKED_MS;
}

/** All of it: what the engine and its users call. */
export class Core extends Session {
  /** Done when a broker serves the session. */
  ready(): Call {
    return this.submit(new Call(""));
  }

  /** RESIZE, of a semaphore. */
  resize(name: string, limit: number): Call {
    return this.submit(new Call("RESIZE", [name],
      { words: `limit=${limit}` }));
  }

  /** AWAIT. call.keys has fence and note. */
  awaitFree(name: string, wait?: number): Call {
    return this.submit(new Call("AWAIT", [name], { wait }));
  }

  /** Its caller does not wait any more. A late grant is given back. */
  abandon(call: Call): void {
    if (call.done || call.dropped) return;
    call.dropped = true;
    if (call.watch !== null) this.unwatch(call.watch);
    const at = this.parked.indexOf(call);
    if (at >= 0) {
      this.parked.splice(at, 1);
    } else if ((call.verb === "LOCK" || call.verb === "AWAIT") &&
               this.calls.has(call.tag)) {
      this.submit(new Call("CANCEL", [call.tag],
        { own: true, repeats: false }));
    }
    for (const hold of call.holds) { // it waits for its confirmation
      this.giveBack(hold);
    }
  }

  /** QUIT gives back all holds. Later calls get CLOSED. */
  close(): void {
    if (this.link === "closed") return;
    if (this.link === "open") this.out.push("0 QUIT\n");
    else this.out = [];
    this.link = "closed";
    for (const hold of this.holds.values()) hold.lost ??= "closed";
    this.fail(new errors.ClosedError());
    for (const watch of [...this.watches.values()]) {
      this.endWatch(watch, new errors.ClosedError());
    }
  }

  /** The engine begins to connect. */
  dialing(): void {
    this.link = "dialing";
    this.dialAt = FOREVER;
  }

  /** There is a connection. `more`: this round has other addresses. */
  connected(more: boolean): void {
    if (this.link !== "dialing") return;
    this.link = "greeting";
    this.more = more;
    this.by = this.clock() + GREETING_MS;
  }

  /** There is none. */
  failed(error: HoldfastError, more: boolean): void {
    if (this.link !== "dialing") return;
    this.more = more;
    this.drop(error);
  }

  /**
   * The connection has ended. `tls`: by an error of TLS, which counts as one
   * of the handshake until the peer has greeted.
   */
  lost(reason: string, tls = false): void {
    if (!connected(this.link)) return;
    this.drop(tls && this.link === "greeting" ? errors.tlsFailed(reason)
      : errors.gone(reason));
  }

  /** Bytes of the broker. Garbage ends the connection. */
  receive(data: Uint8Array): void {
    try {
      for (const line of this.lines.feed(data)) {
        if (!connected(this.link)) return;
        this.takeLine(line);
      }
    } catch (error) {
      if (!(error instanceof errors.ProtocolError)) throw error;
      this.drop(error);
    }
  }

  /** Bytes to send. */
  take(): string {
    const data = this.out.join("");
    this.out = [];
    return data;
  }

  /** What has happened since the last call. */
  events(): Event[] {
    const events = this.happened;
    this.happened = [];
    return events;
  }

  /** When tick() must be called. */
  due(): number {
    if (this.link === "closed") return FOREVER;
    let due = Math.min(this.soonest, this.retryAt, this.by, this.moveAt,
      this.awayAt + this.keep);
    if (this.link === "pause") {
      due = Math.min(due, this.dialAt);
    } else if (this.ping !== null) {
      due = Math.min(due, this.ping.sent + this.silence());
    } else {
      due = Math.min(due, this.pingAt);
    }
    for (const call of this.parked) due = Math.min(due, limitOf(call));
    return due;
  }

  /** Acts on the time that has passed. */
  tick(): void {
    const now = this.clock();
    if (this.link === "closed") return;
    if (now >= this.soonest) this.expire(now);
    if (this.link === "open") {
      this.tickOpen(now);
    } else if (now >= this.awayAt + this.keep) {
      this.endSession(errors.gone("no broker has taken the session"));
    } else if (now >= this.by) {
      this.drop(errors.gone("the broker does not greet"));
    }
    const over = this.parked.filter((call) => now >= limitOf(call));
    if (over.length === 0) return;
    this.parked = this.parked.filter((call) => !over.includes(call));
    for (const call of over) {
      this.finish(call, errors.gone("no broker can be asked"));
    }
  }

  private tickOpen(now: number): void {
    if (this.ping !== null) {
      if (now >= this.ping.sent + this.silence()) {
        this.drop(errors.gone("the broker is silent"));
        return;
      }
    } else if (now >= this.pingAt) {
      this.ask(now);
    }
    if (now >= this.moveAt) {
      this.drop(errors.gone("the broker drains"));
      this.dialAt = now;
    } else if (now >= this.retryAt) {
      this.flush();
    }
  }

  private takeLine(line: Line): void {
    if (line.tag === "*") {
      this.takeEvent(line);
      return;
    }
    if (this.link === "greeting") {
      throw new errors.ProtocolError("the peer is not a Holdfast broker");
    }
    const call = this.calls.get(line.tag);
    if (call === undefined) return; // nothing is outstanding by it (6.1)
    if (line.word === "OK" || line.word === "ERR") {
      this.proven = Math.max(this.proven, call.sent);
      call.keys = line.keys;
      const error = line.word === "OK" ? null
        : errors.ofCode(line.argument, line.keys, line.text);
      if (error?.code !== "DRAINING" || !this.waitsForAnotherBroker(call)) {
        this.takeReply(call, line, error);
      }
      if (this.calls.get(line.tag) === call) this.calls.delete(line.tag);
    } else if (line.word === "ITEM" && call.verb === "HELD") {
      this.onItem(call, line);
    } else if (line.word === "QUEUED" && !call.dropped) {
      this.happened.push({ kind: "queued", call, keys: line.keys });
    }
  }

  private takeReply(call: Call, line: Line,
    error: HoldfastError | null): void {
    switch (call.verb) {
      case "AUTH": return this.onAuth(call, line, error);
      case "HELLO": return this.onHello(call, line, error);
      case "CLAIM": return this.onClaim(call, line, error);
      case "LOCK": return this.onLock(call, line, error);
      case "UNLOCK": return this.onUnlock(call, line, error);
      case "RENEW": return this.onRenew(call, line, error);
      case "PING":
      case "HELD": return this.onPingAnswer(call, line);
      case "WATCH": return this.onWatch(call, line, error);
      default: return this.onOther(call, line, error);
    }
  }

  private takeEvent(line: Line): void {
    switch (line.word) {
      case "HELLO": return this.onGreeting(line);
      case "BYE": return this.onBye(line);
      case "DRAIN": return this.onDrain(line);
      case "PING": return this.onPing(line);
      case "LOST": return this.onLost(line);
      case "WANTED": return this.onWanted(line);
      case "HELD":
      case "FREE": return this.onNews(line);
      case "MEMBERS":
      case "JOINED":
      case "CHANGED":
      case "LEFT": return this.onMember(line);
    }
  }
}
