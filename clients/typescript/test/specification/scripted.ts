/** A server that answers as a case says. */

import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { settledBy } from "../../src/promises.js";
import { PATIENCE_MS } from "../server.js";
import { encode, type Json } from "./words.js";

/** Commands of client libraries, which no case mentions. */
const AUTOMATIC = ["HELLO", "AUTH", "CLIENT", "SELECT", "READONLY", "COMMAND", "PING", "QUIT", "INFO"];

const INFO = "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

/** A command that has arrived. */
export class Arrival {
  readonly connection: Connection;
  readonly words: readonly Buffer[];
  reply: Buffer | undefined;

  constructor(connection: Connection, words: readonly Buffer[]) {
    this.connection = connection;
    this.words = words;
  }

  get waits(): boolean {
    const [command, ...rest] = this.words.map((word) => word.toString().toUpperCase());
    return command === "BF.FETCH" && rest.slice(3).includes("WAIT");
  }

  toString(): string {
    const shown = this.words.slice(0, 40).map((word) => word.subarray(0, 100).toString());
    return `\`${shown.join(" ")}\``;
  }
}

/** One connection of the client. Replies are sent in the order of the commands. */
export class Connection {
  readonly #server: ScriptedServer;
  readonly #socket: Socket;
  readonly #unanswered: Arrival[] = [];
  #received = Buffer.alloc(0);
  protocol = 2;

  constructor(server: ScriptedServer, socket: Socket) {
    this.#server = server;
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("data", (data) => this.#read(data));
  }

  #read(data: Buffer): void {
    this.#received = Buffer.concat([this.#received, data]);
    for (let words = this.#next(); words !== undefined; words = this.#next()) {
      const arrival = new Arrival(this, words);
      const earlier = this.#unanswered.find((one) => one.waits);
      if (earlier !== undefined) this.#server.violations.push(`${arrival} came behind the unanswered ${earlier}`);
      this.#unanswered.push(arrival);
      const command = String(words[0]).toUpperCase();
      if (this.#server.answersNothing) continue;
      if (AUTOMATIC.includes(command)) this.answer(arrival, this.#automatic(command, words));
      else this.#server.arrive(arrival);
    }
  }

  /** Takes a command off the bytes that were received, if one is complete. */
  #next(): Buffer[] | undefined {
    let at = 0;
    const line = () => {
      const end = this.#received.indexOf("\r\n", at);
      if (end < 0) return undefined;
      const text = this.#received.toString("latin1", at, end);
      at = end + 2;
      return Number(text.slice(1));
    };
    const count = line();
    if (count === undefined) return undefined;
    const words: Buffer[] = [];
    while (words.length < count) {
      const length = line();
      if (length === undefined || this.#received.length < at + length + 2) return undefined;
      words.push(this.#received.subarray(at, at + length));
      at += length + 2;
    }
    this.#received = this.#received.subarray(at);
    return words;
  }

  #automatic(command: string, words: readonly Buffer[]): Buffer {
    const ok = Buffer.from("+OK\r\n");
    if (command === "HELLO") {
      if (words[1] !== undefined) this.protocol = Number(words[1]);
      const fields: Json[] = ["server", "redis", "version", "7.0.15", "proto", this.protocol, "id", 1, "mode", "standalone"];
      fields.push("role", "master", "modules", []);
      const head = this.protocol === 2 ? `*${fields.length}\r\n` : `%${fields.length / 2}\r\n`;
      return Buffer.concat([Buffer.from(head), ...fields.map((field) => encode(field, this.protocol))]);
    }
    if (command === "INFO") return encode(INFO, this.protocol);
    if (command === "COMMAND") return encode([], this.protocol);
    if (command === "PING") return Buffer.from("+PONG\r\n");
    const subcommand = String(words[1]).toUpperCase();
    if (command === "CLIENT" && subcommand === "MAINT_NOTIFICATIONS") return Buffer.from("-ERR unknown subcommand\r\n");
    if (command === "CLIENT" && subcommand === "ID") return Buffer.from(":1\r\n");
    return ok;
  }

  answer(arrival: Arrival, reply: Buffer): void {
    arrival.reply = reply;
    while (this.#unanswered[0]?.reply !== undefined) this.#socket.write(this.#unanswered.shift()?.reply ?? "");
  }

  close(): void {
    this.#socket.destroy();
  }
}

export class ScriptedServer {
  readonly #listener = createServer((socket) => this.#connections.push(new Connection(this, socket)));
  readonly #connections: Connection[] = [];
  readonly #arrived: Arrival[] = [];
  #wake = () => {};
  answersNothing = false;
  /** What is wrong with commands that have arrived, whatever the case expects. */
  readonly violations: string[] = [];

  async start(): Promise<number> {
    this.#listener.listen(0, "127.0.0.1");
    await once(this.#listener, "listening");
    return (this.#listener.address() as AddressInfo).port;
  }

  arrive(arrival: Arrival): void {
    this.#arrived.push(arrival);
    this.#wake();
  }

  /** Takes the next command from the queue, which has those of all connections in the order of their arrival. */
  async next(wanted: Json): Promise<Arrival> {
    for (;;) {
      const arrival = this.#arrived.shift();
      if (arrival !== undefined) return arrival;
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      await settledBy(woken, PATIENCE_MS, undefined).catch(() => {
        throw new Error(`no command arrived, expected ${JSON.stringify(wanted)}`);
      });
    }
  }

  /** Returns the first command that nobody has taken. */
  get unexpected(): Arrival | undefined {
    return this.#arrived[0];
  }

  answer(arrival: Arrival, reply: Json): void {
    if (typeof reply === "object" && reply !== null && "close" in reply) arrival.connection.close();
    else arrival.connection.answer(arrival, encode(reply, arrival.connection.protocol));
  }

  close(): void {
    this.#listener.close();
    for (const connection of this.#connections) connection.close();
  }
}
