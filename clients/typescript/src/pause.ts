/** Diverts callers from a server that has not answered in time, or that refuses a guard's commands. */

/** How long a pause lasts. */
const PAUSE_MS = 2000;

export class Pause {
  #endMs: number | undefined;
  #isRefused = false;

  /** Begins a pause, which the next answer ends. */
  begin(): void {
    this.#endMs = performance.now() + PAUSE_MS;
  }

  /** Begins a pause that is not ended by an answer: the server answers, but refuses the commands. */
  refuse(): void {
    this.begin();
    this.#isRefused = true;
  }

  end(): void {
    if (!this.#isRefused) this.#endMs = undefined;
  }

  get isOn(): boolean {
    return this.#endMs !== undefined && performance.now() < this.#endMs;
  }

  /** Whether a caller must not contact the server. After a pause, one caller probes the server; the rest stay paused. */
  holds(): boolean {
    if (this.#endMs === undefined) return false;
    if (performance.now() < this.#endMs) return true;
    this.#isRefused = false;
    this.begin();
    return false;
  }
}
