/** Warnings of a component that keeps working without its server: once a minute, not once per request. */

const EVERY_MS = 60_000;

export class Warnings {
  readonly #warn: (message: string) => void;
  readonly #last = new Map<string, number>();

  constructor(warn: ((message: string) => void) | undefined) {
    // biome-ignore lint/suspicious/noConsole: this is where warnings go unless the caller handles them.
    this.#warn = warn ?? ((message) => console.warn(`bloomgate: ${message}`));
  }

  /** Warns of each kind of problem at most once a minute. */
  about(what: string, error?: Error): void {
    const now = performance.now();
    const last = this.#last.get(what);
    if (last !== undefined && now - last < EVERY_MS) return;
    this.#last.set(what, now);
    try {
      this.#warn(error === undefined ? what : `${what}: ${error.name}: ${error.message}`);
    } catch {
      // A failure to warn must not fail the call.
    }
  }
}
