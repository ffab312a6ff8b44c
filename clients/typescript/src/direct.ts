/** Loads without a lease: the server does not answer, or no other caller has filled the row in time. */

import { settles } from "./promises.js";

/** After this time another caller loads the row, too: a query that never ends must not block its row for ever. */
const LOST_MS = 60_000;

/** Loads rows by their ids. */
type Load<T> = (ids: readonly string[]) => Promise<ReadonlyMap<string, T>>;

/** A load that runs. */
interface Running<T> {
  readonly ids: ReadonlySet<string>;
  readonly begun: number;
  readonly rows: Promise<ReadonlyMap<string, T>>;
  isCancelled: boolean;
}

/** The loads without a lease of one guard: at most one runs for each row. Callers that arrive during it share the next
 * one, which begins when the first has ended. */
export class DirectLoads<T> {
  readonly #running = new Map<string, Running<T>>();
  #clock = 0;

  /** Returns the time at which a call begins. */
  now(): number {
    return ++this.#clock;
  }

  /** Loads rows for a call that began at a time. It shares the rows of loads that began later, and the error of any load that it
   * waits for, unless the caller of that load was aborted. `load` is called for the rows that no other call loads. */
  async load(ids: readonly string[], begun: number, load: Load<T>, signal: AbortSignal | undefined): Promise<Map<string, T>> {
    const found = new Map<string, T>();
    for (let left = ids; left.length > 0; left = left.filter((id) => !found.has(id))) {
      const free = left.filter((id) => !this.#running.has(id));
      const own = free.length > 0 ? this.#begin(free, load, signal) : undefined;
      for (const one of new Set(left.map((id) => this.#running.get(id) as Running<T>))) {
        const isSettled = await settles(one.rows, one === own ? undefined : LOST_MS, signal);
        if (!isSettled) this.#remove(one);
        if (!isSettled || one.isCancelled) continue;
        const rows = await one.rows;
        if (one.begun < begun) continue;
        for (const id of left) {
          if (one.ids.has(id)) found.set(id, rows.get(id) as T);
        }
      }
    }
    return found;
  }

  #begin(ids: readonly string[], load: Load<T>, signal: AbortSignal | undefined): Running<T> {
    const run = async () => {
      try {
        return await load(ids);
      } catch (error) {
        one.isCancelled = signal?.aborted ?? false;
        throw error;
      } finally {
        this.#remove(one);
      }
    };
    // In a later microtask, when `one` is there.
    const one: Running<T> = { ids: new Set(ids), begun: this.now(), rows: Promise.resolve().then(run), isCancelled: false };
    one.rows.catch(() => {});
    for (const id of ids) this.#running.set(id, one);
    return one;
  }

  #remove(one: Running<T>): void {
    for (const id of one.ids) {
      if (this.#running.get(id) === one) this.#running.delete(id);
    }
  }
}
