/** Metrics and spans of a guard. */

/** What a guard tells about itself. `bloomgate/opentelemetry` has one that records it with OpenTelemetry. The names of the
 * attributes, and the words of the events, are the same in every language. */
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

/** Counts the events of one guard. Makes the attributes of each event once. */
export class Events {
  readonly #telemetry: Telemetry;
  readonly #filter: string;
  readonly #attributes = new Map<string, EventAttributes>();

  constructor(telemetry: Telemetry, filter: string) {
    this.#telemetry = telemetry;
    this.#filter = filter;
  }

  count(event: string, number: number): void {
    let attributes = this.#attributes.get(event);
    if (attributes === undefined) {
      attributes = { "bloomgate.filter": this.#filter, "bloomgate.event": event };
      this.#attributes.set(event, attributes);
    }
    this.#telemetry.count(number, attributes);
  }

  load<T>(rows: number, load: () => Promise<T>): Promise<T> {
    return this.#telemetry.load({ "bloomgate.filter": this.#filter, "bloomgate.rows": rows }, load);
  }
}
