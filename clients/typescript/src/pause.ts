/** Keeps callers from a server that has not answered in time. */

/** How long a pause lasts. */
const PAUSE_MS = 2000;

export class Pause {
  #endMs: number | undefined;

  begin(): void {
    this.#endMs = performance.now() + PAUSE_MS;
  }

  end(): void {
    this.#endMs = undefined;
  }

  /** Whether a caller has to leave the server alone. After a pause this lets one caller through, while it goes on for the
   * others. */
  holds(): boolean {
    if (this.#endMs === undefined) return false;
    if (performance.now() < this.#endMs) return true;
    this.begin();
    return false;
  }
}
