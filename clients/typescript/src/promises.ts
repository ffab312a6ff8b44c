/** Waits for promises with a time limit, and with a signal that ends the wait. */

import { setMaxListeners } from "node:events";
import { TimeoutError } from "./errors.js";

/** Allows any number of listeners on one signal, such as a request's signal. Node would warn of a leak from the eleventh
 * listener on. */
export function allowListeners(signal: AbortSignal | undefined): void {
  if (signal !== undefined) setMaxListeners(0, signal);
}

/** Resolves or rejects as the promise does. Rejects with the signal's reason once it aborts, and with undefined after `ms`
 * milliseconds. The promise itself continues. */
export function settledBy<T>(promise: Promise<T>, ms: number | undefined, signal: AbortSignal | undefined): Promise<T> {
  if (ms === undefined && signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const cleanUp = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
    const abort = () => {
      cleanUp();
      reject(signal?.reason);
    };
    const timer =
      ms === undefined
        ? undefined
        : setTimeout(
            () => {
              cleanUp();
              reject(undefined);
            },
            Math.min(ms, 0x7fffffff),
          );
    promise.then(
      (value) => {
        cleanUp();
        resolve(value);
      },
      (error) => {
        cleanUp();
        reject(error);
      },
    );
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort);
  });
}

/** Waits until the promise has settled, or some milliseconds have passed. Returns whether it has settled. Rejects only if the
 * signal aborts. */
export async function settles(
  promise: Promise<unknown>,
  ms: number | undefined,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const settled = promise.then(
    () => true,
    () => true,
  );
  try {
    return await settledBy(settled, ms, signal);
  } catch (error) {
    if (signal?.aborted) throw error;
    return false;
  }
}

/** Waits until a new client is connected. Closes it and throws TimeoutError if this takes longer than `ms`. */
export async function connectedBy(connecting: Promise<unknown>, ms: number, close: () => void): Promise<void> {
  try {
    await settledBy(connecting, ms, undefined);
  } catch (error) {
    if (error !== undefined) throw error;
    close();
    throw new TimeoutError("the server has accepted no connection in time");
  }
}

/** Pauses. Rejects if the signal aborts. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await settles(new Promise(() => {}), ms, signal);
}
