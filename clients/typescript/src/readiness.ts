/** Whether a client with automatic reconnection is connected. */

import { Disconnected } from "./errors.js";

interface Emitter {
  // biome-ignore lint/suspicious/noExplicitAny: node's EventEmitter has these types.
  on(event: string, listener: (...args: any[]) => void): unknown;
}

/** Follows the events of one client, which are the same in node-redis and ioredis. A command that finds no connection waits for
 * the current attempt to connect. After a failed attempt, commands are refused until there is a connection: the client itself
 * would queue them for as long as the server is unreachable. */
export class Readiness {
  #isTrying = false;
  #isDown = false;
  #waiting: (() => void)[] = [];

  constructor(client: Emitter) {
    client.on("ready", () => this.#settle(false));
    client.on("reconnecting", () => {
      this.#isTrying = true;
    });
    client.on("error", () => {
      // The lost connection itself also emits an error.
      if (this.#isTrying) this.#settle(true);
    });
    client.on("end", () => this.#settle(false));
  }

  /** Waits until the client has a connection, or has ended. Throws Disconnected if it could not make one. */
  async wait(): Promise<void> {
    if (!this.#isDown) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#isDown) throw new Disconnected("there is no connection to the server");
  }

  #settle(isDown: boolean): void {
    this.#isDown = isDown;
    if (!isDown) this.#isTrying = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
