/**
 * The errors of the client: one class for each way that a caller reacts.
 *
 * `code` is the code of the wire, such as BUSY, or one of the client's own:
 * CLOSED, GONE, PROTOCOL, TLS and USAGE. `retry` says that the same call may
 * succeed later (PROTOCOL.md 2).
 */

export type Keys = ReadonlyMap<string, string>;

/** What an error knows beside its text. */
export interface ErrorDetails {
  code?: string;
  retry?: boolean;
  /** Those of the ERR line. */
  keys?: Keys;
  /** Of LockLostError. */
  why?: string;
}

const NO_KEYS: Keys = new Map();

/** Any error of a broker, a connection or a call. */
export class HoldfastError extends Error {
  readonly code: string;
  readonly retry: boolean;
  readonly keys: Keys;

  constructor(code: string, text = "", retry = false, keys = NO_KEYS) {
    super(text ? `${code}: ${text}` : code);
    this.name = new.target.name;
    this.code = code;
    this.retry = retry;
    this.keys = keys;
  }
}

/** A constructor with the defaults of a class. */
function of(code: string, retry = false) {
  return class extends HoldfastError {
    constructor(text = "", details: ErrorDetails = {}) {
      super(details.code ?? code, text, details.retry ?? retry, details.keys);
    }
  };
}

/** Another client holds the lock, and `wait` was 0. */
export class BusyError extends of("BUSY", true) {}

/** The lock was held until `wait` was over. */
export class TimedOutError extends of("TIMEOUT", true) {}

/** The broker cancelled the wait. A signal's own reason is not this error. */
export class CancelledError extends of("CANCELLED", true) {}

/** The wait was part of a deadlock: release what is held, begin again. */
export class DeadlockError extends of("DEADLOCK", true) {
  /** The names of the locks. An empty last one: there are more. */
  get cycle(): string[] {
    // A comma or % within a name has an encoding of its own (6.6).
    return (this.keys.get("cycle") ?? "").split(",").map((name) =>
      name.replaceAll("%2C", ",").replaceAll("%25", "%"));
  }
}

/** The hold has ended, and the client did not ask for it. */
export class LockLostError extends of("LOST") {
  /** The `reason=` of LOST, or `deadline`, `session`, `closed`. */
  readonly why: string;

  constructor(text = "", details: ErrorDetails = {}) {
    super(text, details);
    this.why = details.why ?? this.keys.get("reason") ?? "gone";
  }
}

/** There is no such hold. */
export class NotHeldError extends of("NOTHELD") {}

/** The request does not fit what is held: another kind, another limit. */
export class ConflictError extends of("CONFLICT") {}

/** The broker refuses the user, or the user lacks a right. */
export class DeniedError extends of("DENIED") {}

/**
 * No answer now: Redis or all brokers are away, or a limit is reached. After
 * INDOUBT and GONE the outcome is unknown, and nothing is held.
 */
export class UnavailableError extends of("UNAVAILABLE", true) {
  /** Milliseconds before which a new try is in vain; 0: not known. */
  get after(): number {
    return Number(this.keys.get("after_ms") ?? 0) || 0;
  }
}

/** The peer has sent something that is not the protocol. */
export class ProtocolError extends of("PROTOCOL") {}

/** The arguments of a call are wrong. */
export class UsageError extends of("USAGE") {}

/** The client was closed. */
export class ClosedError extends of("CLOSED") {}

/** No broker is reachable, or the session ended before the answer. */
export function gone(text: string): UnavailableError {
  return new UnavailableError(text, { code: "GONE" });
}

/** The handshake failed, or the certificate is not trusted. */
export function tlsFailed(text: string): UnavailableError {
  return new UnavailableError(text, { code: "TLS", retry: false });
}

const CLASSES = new Map<string, new (
  text?: string, details?: ErrorDetails) => HoldfastError>([
  ["BUSY", BusyError], ["TIMEOUT", TimedOutError],
  ["CANCELLED", CancelledError], ["DEADLOCK", DeadlockError],
  ["LOST", LockLostError], ["NOTHELD", NotHeldError],
  ["STALE", NotHeldError], ["CONFLICT", ConflictError],
  ["AUTH", DeniedError], ["DENIED", DeniedError],
  ["UNAVAILABLE", UnavailableError], ["INDOUBT", UnavailableError],
  ["DRAINING", UnavailableError], ["LIMIT", UnavailableError],
  ["BADREQ", UsageError], ["TOOLONG", UsageError],
]);

/** The error of an ERR. An unknown code counts by its retry= (2). */
export function ofCode(code: string, keys: Keys, text: string): HoldfastError {
  const retry = keys.get("retry") === "1";
  const found = CLASSES.get(code);
  return found === undefined
    ? new HoldfastError(code || "PROTOCOL", text, retry, keys)
    : new found(text, { code, retry, keys });
}
