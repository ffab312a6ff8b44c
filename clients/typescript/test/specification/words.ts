/** The JSON of the cases: items, the words of commands, and replies, as values and as bytes of a connection.
 * clients/specification/README.md has the format. */

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A case that this runner does not understand. */
export class SpecificationError extends Error {}

/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export type JsonObject = { [name: string]: Json };

export type Step = JsonObject;

export interface Case {
  name: string;
  servers: string[];
  needs?: string[];
  client?: { connections?: number; timeout_ms?: number };
  filter?: JsonObject;
  guard?: JsonObject;
  sharded?: JsonObject;
  setup?: string[][];
  steps: Step[];
}

const MEMBERS = ["name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps"];
const NEEDS = ["cancel", "turns", "timeout", "pool", "share", "pause", "fatal", "resp2", "resp3"];
const SERVERS = ["scripted", "real", "cluster"];

export function known(what: string, names: Iterable<string>, allowed: readonly string[]): void {
  const unknown = [...names].filter((name) => !allowed.includes(name));
  if (unknown.length > 0) throw new SpecificationError(`${what}: unknown: ${unknown.join(", ")}`);
}

/** The file that has options in place of cases. */
export const OPTIONS = "options.json";

/** Reads the cases of all files. */
export function readCases(folder: string): Case[] {
  const cases: Case[] = [];
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".json") && name !== OPTIONS)) {
    const content = JSON.parse(readFileSync(join(folder, file), "utf8")) as { about: string; cases: Case[] };
    known(file, Object.keys(content), ["about", "cases"]);
    for (const one of content.cases) {
      known(`${file}, ${one.name}`, Object.keys(one), MEMBERS);
      known(`${file}, ${one.name}, needs`, one.needs ?? [], NEEDS);
      known(`${file}, ${one.name}, servers`, one.servers, SERVERS);
      known(`${file}, ${one.name}, client`, Object.keys(one.client ?? {}), ["connections", "timeout_ms"]);
      if (cases.some((other) => other.name === one.name)) throw new SpecificationError(`two cases have the name ${one.name}`);
      cases.push(one);
    }
  }
  if (cases.length === 0) throw new SpecificationError(`there are no cases in ${folder}`);
  return cases;
}

function token(name: string): string {
  return createHash("sha256").update(name).digest("hex").slice(0, 32);
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unknownValue(what: string, value: Json): never {
  throw new SpecificationError(`unknown ${what} ${JSON.stringify(value)}`);
}

/** Returns an item, an id or a value that a case names. */
export function oneItem(item: Json): unknown {
  if (!isObject(item)) return item;
  const [[name, value] = ["", null], ...rest] = Object.entries(item);
  if (rest.length === 0) {
    if (name === "hex") return Buffer.from(String(value), "hex");
    if (name === "integer") return BigInt(String(value));
    if (name === "boolean" || name === "float") return value;
    if (name === "null") return null;
  }
  return unknownValue("item", item);
}

/** Returns items. A text is one item where a batch is expected, which a client refuses. */
export function itemList(items: Json): unknown[] {
  if (typeof items === "string") return items as unknown as unknown[];
  if (Array.isArray(items)) return items.map(oneItem);
  const inner = isObject(items) ? items["items"] : undefined;
  if (isObject(inner)) {
    const { numbers, filled, times, ...rest } = inner;
    if (Object.keys(rest).length === 0) {
      if (Array.isArray(numbers)) {
        const [first, end] = numbers.map(Number) as [number, number];
        return Array.from({ length: end - first }, (_, index) => first + index);
      }
      if (filled !== undefined && times !== undefined) return new Array(Number(times)).fill("a".repeat(Number(filled)));
    }
  }
  return unknownValue("items", items);
}

function wordMatches(expected: Json, word: Buffer): boolean {
  if (typeof expected === "string") return word.equals(Buffer.from(expected));
  if (isObject(expected)) {
    const { hex, token: name, from, to } = expected;
    if (hex !== undefined) return word.equals(Buffer.from(String(hex), "hex"));
    if (name !== undefined) return word.toString() === token(String(name));
    if (from !== undefined && to !== undefined) {
      return /^\d+$/.test(word.toString()) && Number(from) <= Number(word) && Number(word) <= Number(to);
    }
  }
  return unknownValue("word", expected);
}

/** Returns the words that a word of an expected command stands for. */
function expanded(word: Json): Json[] {
  if (isObject(word) && "items" in word) return itemList(word).map(String);
  if (isObject(word) && "pairs" in word) {
    const items = itemList({ items: word["pairs"] ?? null });
    return items.flatMap((item) => [String(item), `${word["prefix"]}${item}`]);
  }
  return [word];
}

export function commandMatches(expected: Json, words: readonly Buffer[]): boolean {
  const spread = (expected as Json[]).flatMap(expanded);
  if (spread.length !== words.length) return false;
  const [command, ...rest] = spread;
  if (String(words[0]).toUpperCase() !== String(command).toUpperCase()) return false;
  return rest.every((word, index) => wordMatches(word, words[index + 1] ?? Buffer.alloc(0)));
}

/** Returns the bytes of a reply on a connection that speaks the protocol. */
export function encode(reply: Json | Buffer, protocol: number): Buffer {
  if (reply === null) return Buffer.from(protocol === 2 ? "$-1\r\n" : "_\r\n");
  if (typeof reply === "boolean") return Buffer.from(protocol === 2 ? `:${Number(reply)}\r\n` : `#${reply ? "t" : "f"}\r\n`);
  if (typeof reply === "number") return Buffer.from(`:${reply}\r\n`);
  if (typeof reply === "string") return encode(Buffer.from(reply), protocol);
  if (Buffer.isBuffer(reply)) return Buffer.concat([Buffer.from(`$${reply.length}\r\n`), reply, Buffer.from("\r\n")]);
  if (Array.isArray(reply)) {
    return Buffer.concat([Buffer.from(`*${reply.length}\r\n`), ...reply.map((one) => encode(one, protocol))]);
  }
  const { hex, token: name, ok, error, repeat, times, wire } = reply;
  if (hex !== undefined) return encode(Buffer.from(String(hex), "hex"), protocol);
  if (name !== undefined) return encode(token(String(name)), protocol);
  if (ok !== undefined) return Buffer.from(`+${ok}\r\n`);
  if (error !== undefined) return Buffer.from(`-${error}\r\n`);
  if (repeat !== undefined) return encode(new Array<Json>(Number(times)).fill(repeat), protocol);
  if (wire !== undefined) return Buffer.from(String(wire), "latin1");
  return unknownValue("reply", reply);
}
