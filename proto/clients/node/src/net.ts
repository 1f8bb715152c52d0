/** Addresses, connections and the clock. */

import { lookup } from "node:dns/promises";
import * as net from "node:net";
import { performance } from "node:perf_hooks";
import * as tls from "node:tls";

import { UsageError } from "./errors.js";

const PORT = 4653;
const TLS_PORT = 4655;
const STEP_MS = 50; // a smaller one of the wall clock is no sleep

let behind: number | undefined; // the wall clock less that of Node
let slept = 0;

/**
 * Milliseconds of a clock that never goes back. That of Node stands still while
 * the machine sleeps; the wall clock tells that it did (PROTOCOL.md 6.5).
 */
export function clock(): number {
  const now = performance.now();
  const offset = Date.now() - now;
  behind ??= offset;
  if (offset > behind + STEP_MS) slept += offset - behind;
  if (offset > behind + STEP_MS || offset < behind) behind = offset;
  return now + slept;
}

/** A host and a port, or the path of a Unix socket and port 0. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** What a socket connects to; TLS verifies `host`. */
export interface Endpoint extends Address {
  readonly ip: string;
}

/** `HOST[:PORT]`, `[V6]:PORT` or `/PATH`, with commas between several. */
export function addressesOf(text: string, secure: boolean): Address[] {
  return text.split(",").map((part) => {
    const item = part.trim();
    if (item.startsWith("/") && !secure) return { host: item, port: 0 };
    const found = /^(?:\[([^\]]+)\]|([^:[\]/]+))(?::([0-9]{1,5}))?$/.exec(item);
    const host = found?.[1] ?? found?.[2];
    const port = Number(found?.[3] ?? (secure ? TLS_PORT : PORT));
    if (host === undefined || port < 1 || port > 65535) {
      throw new UsageError(
        `no address${secure ? " for TLS" : ""}: '${item}'; use HOST:PORT`);
    }
    return { host, port };
  });
}

/**
 * What to try next. A round tries each address, from a random one on, and each
 * number of its name. The next round begins behind the last one.
 */
export class Places {
  private addresses: Address[];
  private round: (Address | Endpoint)[] = [];

  constructor(addresses: Address[]) {
    const start = Math.floor(Math.random() * addresses.length);
    this.addresses = [...addresses.slice(start), ...addresses.slice(0, start)];
  }

  /** Whether this round goes on. */
  get more(): boolean {
    return this.round.length > 0;
  }

  /** The next place. Errors are those of the name's look-up. */
  async next(more: boolean): Promise<Endpoint> {
    if (!more || this.round.length === 0) this.round = [...this.addresses];
    const place = this.round.shift() as Address | Endpoint;
    if ("ip" in place) return place;
    this.addresses = this.addresses.filter((one) => one !== place);
    this.addresses.push(place);
    if (place.port === 0) return { ...place, ip: "" };
    const found = await lookup(place.host, { all: true, verbatim: true });
    const ips = [...new Set(found.map((one) => one.address))];
    const [first, ...others] = ips.map((ip) => ({ ...place, ip }));
    this.round.unshift(...others);
    return first as Endpoint;
  }
}

/** A socket that connects. Nagle is off, since lines are short. */
export function connect(place: Endpoint,
  options: tls.ConnectionOptions | undefined): net.Socket {
  if (place.port === 0) return net.connect({ path: place.host });
  const keys = { host: place.ip, port: place.port, noDelay: true,
    keepAlive: true };
  if (options === undefined) return net.connect(keys);
  const name = options.servername ?? place.host;
  return tls.connect({
    checkServerIdentity: (_, certificate) =>
      tls.checkServerIdentity(name, certificate),
    ...options, ...keys, servername: net.isIP(name) ? "" : name });
}
