/**
 * Holdfast: locks from a broker.
 *
 *     import { connect } from "holdfast";
 *
 *     const hf = await connect("broker-1:4653,broker-2:4653");
 *     await hf.using("stock/4711", { wait: 5000 }, async (signal, lock) => {
 *       await write({ signal, fence: lock.fence });
 *     });
 */

export { connect, type Freed, type Holdfast, type Work } from "./client.js";
export { BusyError, CancelledError, ClosedError, ConflictError, DeadlockError,
  DeniedError, HoldfastError, LockLostError, NotHeldError, ProtocolError,
  TimedOutError, UnavailableError, UsageError, type Keys } from "./errors.js";
export type { Detached, Lock, View } from "./lock.js";
export type { Member } from "./model.js";
export type { ConnectOptions, DetachedOptions, Hooks, LockOptions, Names,
  SemaphoreOptions } from "./options.js";
export type { Watching } from "./watching.js";
export type { Text } from "./wire.js";
