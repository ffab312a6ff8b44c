/** Where the callers of one process wait for a row that another caller loads.
 *
 * A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies a connection, and gets the lease if the loading caller
 * gives up. So at most one caller per row waits there; the others wait in the process until that caller is done. They cost no
 * connections. */

/** The flights of one row: how many are active, and those that wait in the process, in the order in which they came. */
interface FlightsOfRow {
  active: number;
  readonly waiting: Flight[];
}

/** One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it. */
export class Flight {
  readonly id: string;
  /** Is set once the row is known to be cached or absent, or the server to have failed: then nobody has to wait any longer. */
  hasNews = false;
  /** Is set where the row's load failed and nobody may repeat it yet; the waiting flights of the row get it, too. */
  error: Error | undefined;
  isActive = true;
  wake: (() => void) | undefined;

  constructor(id: string) {
    this.id = id;
  }
}

/** The rows that callers of this process fetch and load now. While flights of a row wait, another one is active. */
export class Flights {
  readonly #rows = new Map<string, FlightsOfRow>();

  /** Begins an active flight. */
  begin(id: string): Flight {
    let row = this.#rows.get(id);
    if (row === undefined) {
      row = { active: 0, waiting: [] };
      this.#rows.set(id, row);
    }
    row.active++;
    return new Flight(id);
  }

  /** Ends a flight. If it has news or an error, all waiting flights of the row go on, otherwise the first of them. */
  end(flight: Flight): void {
    const row = this.#rows.get(flight.id);
    if (row === undefined) return;
    if (flight.isActive) {
      flight.isActive = false;
      row.active--;
    } else {
      remove(row.waiting, flight);
    }
    // A flight is active as soon as it is woken, though its caller may be aborted before it notices: then the end of the flight
    // wakes the next one.
    const count = flight.hasNews || flight.error ? row.waiting.length : 1;
    for (const woken of row.waiting.splice(0, count)) {
      woken.isActive = true;
      woken.error = flight.error;
      row.active++;
      woken.wake?.();
    }
    if (row.active === 0) this.#rows.delete(flight.id);
  }

  /** Makes an active flight wait until the returned promise resolves. If it is the only active one of its row, it stays active,
   * and nothing is returned. */
  beginWait(flight: Flight): Promise<void> | undefined {
    const row = this.#rows.get(flight.id);
    if (row === undefined || row.active === 1) return undefined;
    flight.isActive = false;
    row.active--;
    row.waiting.push(flight);
    return new Promise((resolve) => {
      flight.wake = resolve;
    });
  }

  /** Makes a flight active again that was woken, or that has waited for long enough. */
  endWait(flight: Flight): void {
    const row = this.#rows.get(flight.id);
    if (row === undefined || flight.isActive) return;
    remove(row.waiting, flight);
    flight.isActive = true;
    row.active++;
  }
}

function remove(flights: Flight[], flight: Flight): void {
  const index = flights.indexOf(flight);
  if (index >= 0) flights.splice(index, 1);
}
