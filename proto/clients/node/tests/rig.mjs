// A core with a clock of the test's own, and a broker that the test plays.

import { Core } from "../dist/esm/core.js";

export const GREETING =
  "* HELLO proto=1 server=x session=ab12 max_line=4096 lease_ms=30000";

/** `says()` gives lines to the core, `sent()` takes what it has sent. */
export class Rig {
  now = 1_000_000;

  constructor(options = {}) {
    this.options = { keep: 0, heartbeat: 2000, progress: false,
      several: false, ...options };
    this.core = new Core(this.options, () => this.now, () => 0.5);
  }

  says(...lines) {
    this.core.receive(Buffer.from(lines.map((line) => line + "\n").join("")));
    return this;
  }

  sent() {
    return this.core.take().split("\n").slice(0, -1);
  }

  /** The events of one kind. */
  seen(kind) {
    return this.core.events().filter((event) => event.kind === kind);
  }

  /** The connection that the core waits for. */
  dial() {
    if (this.core.link !== "pause") throw new Error(this.core.link);
    this.now = Math.max(this.now, this.core.dialAt);
    this.core.dialing();
    this.core.connected(false);
    return this;
  }

  /** The greeting, and the answer to HELLO; what was sent behind it. */
  greet() {
    this.says(GREETING);
    const [tag] = this.sent().at(-1).split(" ");
    const kept = this.options.keep ? ` keep_ms=${this.options.keep}` : "";
    this.says(`${tag} OK session=ab12 proto=1${kept} silence_ms=6000`);
    return this.sent();
  }

  /** A connection that serves. */
  open() {
    this.core.ready();
    this.dial().greet();
    this.core.events();
    return this;
  }

  /** Time passes, with each tick that is due. */
  pass(ms) {
    const end = this.now + ms;
    while (this.core.due() <= end) {
      this.now = Math.max(this.now, this.core.due());
      if (this.core.link === "pause" && this.now >= this.core.dialAt) {
        return this;
      }
      this.core.tick();
    }
    this.now = end;
    return this;
  }

  /** A LOCK and its OK; the hold. */
  grant(name = "a", parts = {}, ttl = 6000) {
    const call = this.core.lock([name], parts);
    const [tag] = this.sent()[0].split(" ");
    this.says(`${tag} OK fence=7 ttl_ms=${ttl} count=1 renewed=1`);
    return call.holds[0];
  }

  /** The connection ends, and the next one resumes; what it is sent. */
  move() {
    this.core.lost("test");
    return this.dial().greet();
  }
}
