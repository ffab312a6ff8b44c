/** Metrics, spans and warnings of a guard. */

/** Receives a guard's metrics and spans; `bloomgate/opentelemetry` exports them to OpenTelemetry. Attributes and events have the same
 * names in every language. */
export interface Telemetry {
  /** Adds to the number of events. */
  count(events: number, attributes: EventAttributes): void;
  /** Calls a function that loads rows, and returns its result. */
  load<T>(attributes: LoadAttributes, load: () => Promise<T>): Promise<T>;
}

export interface EventAttributes {
  /** The name of the guard's filter. */
  readonly "bloomgate.filter": string;
  /** The name of the event in `Counts`. */
  readonly "bloomgate.event": string;
}

export interface LoadAttributes {
  /** The name of the guard's filter. */
  readonly "bloomgate.filter": string;
  /** How many rows are loaded. */
  readonly "bloomgate.rows": number;
}

/** The events of a guard, with a count for each. The names are the same in every language, and are suitable for metrics. */
export interface Counts {
  /** Answers of BF.FETCH, one for each row. */
  absent: number;
  hit: number;
  stale: number;
  load: number;
  wait: number;
  failed: number;
  /** Loaded rows that were cached. */
  filled: number;
  /** Loaded rows that were not cached, because the row changed or another caller filled it during the load. */
  lease_lost: number;
  /** Rows whose `load` threw. */
  load_failed: number;
  /** Old values that were served because a `load` threw. */
  stale_served: number;
  /** Old values that were served because a `load` took too long. */
  soft_timeout: number;
  /** Rows that were read from the database without a lease: the server failed, or another caller took too long. */
  unguarded: number;
  /** Rows served by the near cache. */
  near_hit: number;
  /** Answers and errors that waiting callers got from another caller of this process. */
  shared: number;
  /** Cached values that the codec could not decode. */
  undecodable: number;
  /** Commands that the server refused or did not answer. */
  errors: number;
}

/** Counts the events of one guard. Creates the attributes of each event once. */
export class Events {
  readonly counts: Counts = {
    ...{ absent: 0, hit: 0, stale: 0, load: 0, wait: 0, failed: 0, filled: 0, lease_lost: 0, load_failed: 0 },
    ...{ stale_served: 0, soft_timeout: 0, unguarded: 0, near_hit: 0, shared: 0, undecodable: 0, errors: 0 },
  };
  readonly #telemetry: Telemetry | undefined;
  readonly #filter: string;
  readonly #attributes = new Map<string, EventAttributes>();

  constructor(telemetry: Telemetry | undefined, filter: string) {
    this.#telemetry = telemetry;
    this.#filter = filter;
  }

  count(event: keyof Counts, number = 1): void {
    this.counts[event] += number;
    if (this.#telemetry === undefined) return;
    let attributes = this.#attributes.get(event);
    if (attributes === undefined) {
      attributes = { "bloomgate.filter": this.#filter, "bloomgate.event": event };
      this.#attributes.set(event, attributes);
    }
    try {
      this.#telemetry.count(number, attributes);
    } catch {
      // A failure to record a metric must not fail the call.
    }
  }

  load<T>(rows: number, load: () => Promise<T>): Promise<T> {
    if (this.#telemetry === undefined) return load();
    return this.#telemetry.load({ "bloomgate.filter": this.#filter, "bloomgate.rows": rows }, load);
  }
}

const WARN_INTERVAL_MS = 60_000;

export class Warnings {
  readonly #warn: (message: string) => void;
  readonly #last = new Map<string, number>();

  constructor(warn: ((message: string) => void) | undefined) {
    // biome-ignore lint/suspicious/noConsole: this is where warnings go unless the caller handles them.
    this.#warn = warn ?? ((message) => console.warn(`bloomgate: ${message}`));
  }

  /** Warns of each kind of problem at most once a minute. */
  warn(problem: string, error?: Error): void {
    const now = performance.now();
    const last = this.#last.get(problem);
    if (last !== undefined && now - last < WARN_INTERVAL_MS) return;
    this.#last.set(problem, now);
    try {
      this.#warn(error === undefined ? problem : `${problem}: ${error.name}: ${error.message}`);
    } catch {
      // A failure to warn must not fail the call.
    }
  }
}
