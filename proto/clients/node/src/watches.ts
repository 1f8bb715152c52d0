/**
 * Watched locks and groups (PROTOCOL.md, WATCH).
 *
 * A watch goes on at each next connection, also in a new session. Its news are
 * the present state: after a move, only a changed state is news.
 */

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import { Holds } from "./holds.js";
import { Call, Watch, type Member } from "./model.js";
import type { Line } from "./wire.js";

function memberOf(line: Line): Member {
  const { keys } = line;
  const word = (key: string) => keys.get(key) ?? "";
  const number = (key: string) => keys.has(key) ? line.number(key) : 1;
  return {
    name: line.argument, fence: line.number("fence"), note: word("note"),
    client: word("name"), owner: word("owner"), session: word("session"),
    permits: number("permits"), holders: number("holders"),
    detached: keys.has("detached"),
  };
}

/** The watches of the client: one for a name. */
export class Watches extends Holds {
  /** WATCH. call.watch tells its news by "seen", at each broker. */
  watch(name: string, members = false): Call {
    const call = new Call("WATCH", [name],
      { words: members ? "members=1" : "" });
    if (this.watches.has(name)) {
      this.finish(call, new errors.ConflictError("this client watches it"));
      return call;
    }
    call.watch = new Watch(name, members);
    this.watches.set(name, call.watch);
    return this.submit(call);
  }

  /** UNWATCH. No news come after it. */
  unwatch(watch: Watch): void {
    if (this.watches.get(watch.name) !== watch) return;
    this.watches.delete(watch.name);
    watch.over = true;
    if (this.link === "open") {
      this.submit(new Call("UNWATCH", [watch.name],
        { own: true, repeats: false }));
    }
  }

  protected rewatch(watch: Watch, now: number): void {
    const call = new Call("WATCH", [watch.name], { own: true, repeats: false,
      words: watch.members ? "members=1" : "" });
    call.watch = watch;
    call.again = true;
    this.send(call, now);
  }

  protected onWatch(call: Call, _line: Line,
    error: HoldfastError | null): void {
    const watch = call.watch as Watch;
    if (error !== null && !watch.over) {
      if (call.own && error.retry) {
        this.later(call);
        return;
      }
      this.endWatch(watch, error);
    }
    if (error === null) watch.begun = true;
    this.finish(call, error);
  }

  protected endWatch(watch: Watch, error: HoldfastError): void {
    if (this.watches.get(watch.name) === watch) {
      this.watches.delete(watch.name);
    }
    watch.over = true;
    watch.error = error;
    this.happened.push({ kind: "watchOver", watch });
  }

  protected onNews(line: Line): void {
    const watch = this.watches.get(line.argument);
    if (watch === undefined || watch.members) return;
    const news = line.word === "FREE" ? null : memberOf(line);
    const text = JSON.stringify(news);
    if (text === watch.last) return;
    watch.last = text;
    this.happened.push({ kind: "seen", watch, news });
  }

  protected onMember(line: Line): void {
    const watch = this.watches.get(line.argument);
    if (watch === undefined || !watch.members) return;
    if (line.word === "MEMBERS") {
      watch.listing = line.keys.has("begin");
      if (watch.listing) watch.all.clear(); // an earlier list is void
    } else if (line.word === "LEFT") {
      watch.all.delete(line.number("fence"));
    } else {
      watch.all.set(line.number("fence"), memberOf(line));
    }
    if (watch.listing) return;
    const news = [...watch.all.values()].sort((a, b) => a.fence - b.fence);
    this.happened.push({ kind: "seen", watch, news });
  }
}
