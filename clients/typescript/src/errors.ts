/** Errors of this package. Other errors are the client library's: lost connections, missing permissions. */

import { type Key, keyText } from "./items.js";

/** The base class of this package's errors. */
export class BloomgateError extends Error {
  /** The answers of a failed batch: true, false, or null for an item whose answer is unknown. */
  answers: (boolean | null)[] = [];

  override get name(): string {
    return this.constructor.name;
  }
}

/** The server lacks a command of bloomgate: the module is missing or too old, or another module provides BF.*. */
export class ModuleMissing extends BloomgateError {}

/** The key does not exist. */
export class FilterMissing extends BloomgateError {}

/** The key exists already. */
export class FilterExists extends BloomgateError {}

/** A NONSCALING filter has reached its capacity. Items before the first null in `answers` were added. */
export class FilterFull extends BloomgateError {}

/** The filter is still being loaded: the last `BF.LOADCHUNK` has not arrived yet. */
export class FilterLoading extends BloomgateError {}

/** The server did not answer in time, or a write did not reach the required number of replicas, or the disk, in time. */
export class TimeoutError extends BloomgateError {}

/** The client has lost its connection and has not reconnected yet. */
export class Disconnected extends BloomgateError {}

/** The last load of a row failed, and no value is cached: the row is not loaded again until the back-off ends. */
export class LoadFailed extends BloomgateError {
  readonly id: Uint8Array;

  constructor(id: Uint8Array) {
    super(`the row ${keyText(id)} has no cached value, and its last load failed`);
    this.id = id;
  }
}

/** A write was committed, but its confirmation was not acknowledged in time. Readers may get the old rows for up to a lease and a
 * time to live. `ids` are the ids of the rows; `Guard.confirm(...ids)` tries again. */
export class Unconfirmed extends BloomgateError {
  readonly ids: readonly Uint8Array[];
  /** The error that the transaction inside `Guard.changed` threw, if any. */
  transactionError: unknown;

  constructor(ids: readonly Uint8Array[], options?: ErrorOptions) {
    super(`the change of ${ids.length} row(s) could not be confirmed`, options);
    this.ids = ids;
  }
}

/** Converts an error of the client library to this package's error, with the former as its cause. Returns other errors
 * unchanged. */
export function named(error: Error, key: Key): Error {
  const text = error.message.replace(/^ERR /, "");
  const options = { cause: error };
  if (text.includes("non scaling filter is full")) return new FilterFull(`${keyText(key)}: the filter is full`, options);
  if (text.includes("filter is still being loaded")) {
    return new FilterLoading(`${keyText(key)}: the filter is still being loaded`, options);
  }
  if (text === "not found") return new FilterMissing(`${keyText(key)}: there is no such filter`, options);
  if (text === "item exists") return new FilterExists(`${keyText(key)}: there is a filter already`, options);
  return error;
}

/** Whether the server has sent this error, rather than the client library. */
export function isReply(error: Error): boolean {
  for (let kind: unknown = error.constructor; typeof kind === "function"; kind = Object.getPrototypeOf(kind)) {
    // The base classes of ioredis and of node-redis.
    if (kind.name === "ReplyError" || kind.name === "ErrorReply") return true;
  }
  return false;
}

/** Whether the server is not an active primary. A new connection to its address may reach another server. */
export function isNoPrimary(error: Error): boolean {
  return isReply(error) && /^(READONLY|MASTERDOWN|LOADING) /.test(error.message);
}

/** Returns a thrown value as an Error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
