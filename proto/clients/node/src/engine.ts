/** The connection and the timer of a core. */

import { setMaxListeners } from "node:events";
import type { Socket } from "node:net";
import { TLSSocket, type ConnectionOptions } from "node:tls";

import * as errors from "./errors.js";
import type { HoldfastError } from "./errors.js";
import { connected, Core } from "./core.js";
import { FOREVER, type Call, type Event, type Options } from "./model.js";
import { clock, connect, Places, type Address } from "./net.js";

const CONNECT_MS = 3000; // for a look-up, a connection, and its handshake
const CLOSE_MS = 2000; // for the answer to QUIT
const TIMER_MS = 2 ** 30; // the longest of Node is 2^31 - 1
const UNSENT_BYTES = 64 * 1024 * 1024; // of a broker that does not read

/** How a caller waits. */
export interface Waiting {
  /** Without answers after that many milliseconds: GONE. */
  limit?: number;
  /** Ends the wait, with its reason. */
  signal?: AbortSignal | undefined;
}

/** A core with a connection. */
export class Engine {
  readonly core: Core;
  private readonly places: Places;
  private socket: Socket | null = null;
  private stopDialing: (() => void) | null = null;
  private timer: NodeJS.Timeout | null = null;
  private timerAt = FOREVER;
  private untold: Event[] = [];
  private telling = false;

  /** `act` is for events other than "answered". */
  constructor(addresses: Address[], options: Options,
    private readonly tls: ConnectionOptions | undefined,
    private readonly act: (event: Event) => void) {
    this.core = new Core(options, clock);
    this.places = new Places(addresses);
  }

  /** Gives all locks back. Calls that wait get CLOSED. */
  async close(): Promise<void> {
    const quits = this.core.link === "open";
    this.core.close();
    this.settle();
    this.stopDialing?.();
    const { socket } = this;
    if (socket !== null && quits) {
      await new Promise<void>((resolve) => {
        const late = setTimeout(resolve, CLOSE_MS);
        socket.once("close", () => {
          clearTimeout(late);
          resolve();
        });
      });
    }
    this.socket?.destroy();
    if (this.timer !== null) clearTimeout(this.timer);
  }

  /**
   * Waits for the answers to calls. Rejects with the first error, or with the
   * reason of the signal: what comes late is given back then.
   */
  async ask(calls: Call[], { limit, signal }: Waiting = {}): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    let stop: (() => void) | undefined;
    const answers = calls.map((call) => new Promise<void>((resolve) => {
      call.waiter = resolve;
    }));
    const late = new Promise<never>((_, reject) => {
      stop = () => reject(signal?.reason);
      if (limit !== undefined) {
        timer = setTimeout(() => reject(errors.gone("no broker answers")),
          limit);
      }
    });
    late.catch(() => {});
    this.settle();
    if (signal) setMaxListeners(0, signal); // many calls may share it
    signal?.addEventListener("abort", stop as () => void);
    if (signal?.aborted) stop?.();
    try {
      await Promise.race([late, Promise.all(answers)]);
    } catch (error) {
      for (const call of calls) this.giveUp(call);
      this.settle();
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop as () => void);
    }
    for (const call of calls) if (call.error !== null) throw call.error;
  }

  /** Nobody waits any more. A lock that it took is given back. */
  private giveUp(call: Call): void {
    if (call.verb === "LOCK" && call.done && call.error === null) {
      for (const hold of call.holds) {
        if (call.detached) this.core.detached("UNLOCK", hold).own = true;
        else this.core.unlock(hold).own = true;
      }
    } else if (["LOCK", "AWAIT", "WATCH", ""].includes(call.verb)) {
      this.core.abandon(call);
    }
    call.own = true; // others go on without a caller
  }

  /** After each use of the core: sends, connects, tells, sets the timer. */
  settle(): void {
    const { core } = this;
    const data = core.take();
    if (this.socket !== null) {
      if (data) this.socket.write(data, "latin1");
      if (this.socket.writableLength > UNSENT_BYTES) {
        core.lost("the broker does not read");
      }
      if (!connected(core.link) && core.link !== "closed") this.hangUp();
    }
    if (core.link === "pause" && clock() >= core.dialAt) this.dial();
    this.untold.push(...core.events());
    if (!this.telling) this.tellAll();
    const due = core.due();
    if (due >= this.timerAt) return;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timerAt = due;
    const pause = Math.ceil(Math.max(0, due - clock()));
    this.timer = setTimeout(() => {
      this.timer = null;
      // The sockets have their turn first: an answer that has come counts.
      setImmediate(() => this.tick());
    }, Math.min(pause, TIMER_MS));
  }

  private tick(): void {
    this.timerAt = FOREVER;
    this.core.tick();
    this.settle();
  }

  /** In their order, also when a hook makes further calls. */
  private tellAll(): void {
    this.telling = true;
    for (let event = this.untold.shift(); event; event = this.untold.shift()) {
      this.tell(event);
    }
    this.telling = false;
  }

  private tell(event: Event): void {
    if (event.kind !== "answered") {
      this.act(event);
      return;
    }
    const { call } = event;
    if (call.error === null) call.user?.granted(call.holds);
    call.waiter?.(); // LOST may be the next line
  }

  /** Tries one place. */
  private dial(): void {
    const { core, places } = this;
    let over = false;
    let socket: Socket | undefined;
    const end = () => {
      over = true;
      clearTimeout(timer);
      this.stopDialing = null;
    };
    const fail = (error: HoldfastError) => {
      if (over) return;
      end();
      socket?.destroy();
      core.failed(error, places.more);
      this.settle();
    };
    const timer = setTimeout(() => fail(errors.gone("no answer in time")),
      CONNECT_MS);
    this.stopDialing = () => {
      end();
      socket?.destroy();
    };
    core.dialing();
    places.next(core.more).then((place) => {
      if (over) return;
      socket = connect(place, this.tls);
      this.await(socket, fail, () => {
        if (!over) this.made(socket as Socket);
        end();
      });
    }).catch((error: Error) => fail(errors.gone(error.message)));
  }

  private await(socket: Socket, fail: (error: HoldfastError) => void,
    made: () => void): void {
    const secure = socket instanceof TLSSocket;
    let shaking = false;
    socket.once("connect", () => {
      shaking = secure;
    });
    socket.once(secure ? "secureConnect" : "connect", made);
    socket.on("error", (error) => fail(shaking
      ? errors.tlsFailed(error.message) : errors.gone(error.message)));
    socket.once("close", () => fail(errors.gone("the connection has ended")));
  }

  /** There is a connection. */
  private made(socket: Socket): void {
    this.socket = socket;
    const ended = (reason: string, secure = false) => {
      if (socket !== this.socket) return;
      this.socket = null;
      socket.destroy();
      this.core.lost(reason, secure);
      this.settle();
    };
    socket.on("data", (data: Buffer) => {
      if (socket !== this.socket) return;
      this.core.receive(data);
      this.settle();
    });
    socket.on("error", (error: NodeJS.ErrnoException) =>
      ended(error.message, /^ERR_(SSL|TLS)/.test(error.code ?? "")));
    socket.on("end", () => ended("the broker has closed the connection"));
    socket.on("close", () => ended("the connection has ended"));
    this.core.connected(this.places.more);
    this.settle();
  }

  private hangUp(): void {
    const { socket } = this;
    this.socket = null;
    socket?.destroy();
  }
}
