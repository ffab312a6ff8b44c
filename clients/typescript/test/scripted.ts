/** A server whose replies a test provides. It answers the client libraries' own commands by itself. */

import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { eventually } from "./server.js";

const AUTOMATIC: { [command: string]: string } = {
  HELLO: "%1\r\n$5\r\nproto\r\n:3\r\n",
  CLIENT: "+OK\r\n",
  COMMAND: "*0\r\n",
  INFO: "$13\r\nrole:master\r\n\r\n",
  PING: "+PONG\r\n",
};

/** Answers a received command with the bytes of a reply. */
export type Answer = (reply: string) => void;

export class ScriptedServer {
  readonly #listener = createServer((socket) => this.#serve(socket));
  readonly #sockets: Socket[] = [];
  readonly #arrived: Answer[] = [];
  answersNothing = false;

  async start(): Promise<number> {
    this.#listener.listen(0, "127.0.0.1");
    await once(this.#listener, "listening");
    return (this.#listener.address() as AddressInfo).port;
  }

  #serve(socket: Socket): void {
    this.#sockets.push(socket);
    socket.on("error", () => {});
    let received = "";
    socket.on("data", (data) => {
      received += data.toString("latin1");
      for (let words = take(); words !== undefined && !this.answersNothing; words = take()) {
        const reply = AUTOMATIC[String(words[0]).toUpperCase()];
        if (reply === undefined) this.#arrived.push((reply) => socket.write(reply));
        else socket.write(reply);
      }
    });
    /** Removes a command from the received bytes, if one is complete. */
    const take = () => {
      const [head = "", ...lines] = received.split("\r\n");
      const ends = 2 * Number(head.slice(1));
      if (head === "" || lines.length <= ends) return undefined;
      received = lines.slice(ends).join("\r\n");
      return lines.slice(0, ends).filter((_, index) => index % 2 === 1);
    };
  }

  /** Returns the next command of all connections. */
  next(): Promise<Answer> {
    return eventually("a command", () => this.#arrived.shift());
  }

  close(): void {
    this.#listener.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
