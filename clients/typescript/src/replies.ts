/** The replies of BF.INFO, BF.STATS and BF.PLAN as objects. In RESP2 they are flat arrays of names and values with numbers as
 * text, and in RESP3 maps. The objects are the same for both. */

import type { Reply } from "./connection.js";

/** A filter's capacity and contents. */
export interface Info {
  readonly capacity: number;
  /** Counts the filter's fields and bits. */
  readonly sizeBytes: number;
  readonly layers: number;
  readonly items: number;
  /** null if the filter does not grow. */
  readonly expansion: number | null;
}

/** One layer of a filter. */
export interface Layer {
  readonly capacity: number;
  readonly sizeBytes: number;
  readonly hashes: number;
  /** null in a plan. */
  readonly items: number | null;
  /** The share of the layer's bits that are set; null in a plan. */
  readonly fill: number | null;
}

/** One bucket of a filter that forgets; the server lists the oldest first. */
export interface Bucket {
  readonly slot: number;
  readonly items: number;
  /** Milliseconds since 1970; null in a filter with ROLLING. */
  readonly beginMs: number | null;
  readonly endMs: number | null;
}

/** A filter's kind and fill. */
export interface Stats {
  readonly kind: string;
  readonly layout: string;
  readonly hash: string;
  readonly errorRate: number;
  /** The estimated share of absent items that are found. */
  readonly errorRateNow: number;
  readonly items: number;
  readonly itemsEstimated: number;
  readonly capacity: number;
  readonly sizeBytes: number;
  readonly pendingBytes: number;
  readonly layers: readonly Layer[];
  readonly itemsDeleted: number | null;
  readonly roomForDeleted: number | null;
  /** The window in seconds. */
  readonly windowS: number | null;
  readonly sliding: boolean;
  readonly buckets: readonly Bucket[];
}

/** The size of a filter that does not exist yet. */
export interface Plan {
  readonly kind: string;
  readonly layout: string;
  readonly hash: string;
  readonly errorRate: number;
  readonly capacity: number;
  readonly sizeBytes: number;
  readonly bitsPerItem: number;
  readonly layers: readonly Layer[];
}

/** Returns a string of a reply as text. */
export function text(value: Reply | undefined): string {
  return Buffer.isBuffer(value) ? value.toString() : String(value);
}

/** Returns a number of a reply, which RESP2 sends as text in some places. */
export function number(value: Reply | undefined): number {
  const result = typeof value === "number" ? value : Number(text(value));
  if (Number.isNaN(result)) throw new TypeError(`the server has sent ${text(value)} in place of a number`);
  return result;
}

function optional(value: Reply | undefined): number | null {
  return value === undefined || value === null ? null : number(value);
}

export function array(value: Reply | undefined): readonly Reply[] {
  if (Array.isArray(value)) return value;
  throw new TypeError(`the server has sent ${text(value)} in place of an array`);
}

/** Converts a flat array, or a map, to a map by name. */
function fields(reply: Reply): Map<string, Reply> {
  const found = new Map<string, Reply>();
  if (Array.isArray(reply)) {
    for (let index = 0; index + 1 < reply.length; index += 2) found.set(text(reply[index]), reply[index + 1] ?? null);
  } else {
    const pairs: Iterable<[Reply, Reply]> = reply instanceof Map ? reply : Object.entries(reply ?? {});
    for (const [name, value] of pairs) found.set(text(name), value);
  }
  return found;
}

/** Converts an array of 1 and 0. An error in it, which can only be the last element, becomes null. */
export function booleans(reply: Reply): (boolean | null)[] {
  return array(reply).map((answer) => (answer instanceof Error ? null : Boolean(answer)));
}

export function parseInfo(reply: Reply): Info {
  const found = fields(reply);
  return {
    capacity: number(found.get("Capacity")),
    sizeBytes: number(found.get("Size")),
    layers: number(found.get("Number of filters")),
    items: number(found.get("Number of items inserted")),
    expansion: optional(found.get("Expansion rate")),
  };
}

function parseLayer(reply: Reply): Layer {
  const found = fields(reply);
  return {
    capacity: number(found.get("Capacity")),
    sizeBytes: number(found.get("Size")),
    hashes: number(found.get("Hashes")),
    items: optional(found.get("Number of items inserted")),
    fill: optional(found.get("Fill")),
  };
}

function parseBucket(reply: Reply): Bucket {
  const found = fields(reply);
  return {
    slot: number(found.get("Slot")),
    items: number(found.get("Number of items inserted")),
    beginMs: optional(found.get("Begin")),
    endMs: optional(found.get("End")),
  };
}

export function parseStats(reply: Reply): Stats {
  const found = fields(reply);
  return {
    kind: text(found.get("Kind")),
    layout: text(found.get("Layout")),
    hash: text(found.get("Hash")),
    errorRate: number(found.get("Error rate")),
    errorRateNow: number(found.get("Error rate now")),
    items: number(found.get("Number of items inserted")),
    itemsEstimated: number(found.get("Number of items estimated")),
    capacity: number(found.get("Capacity")),
    sizeBytes: number(found.get("Size")),
    pendingBytes: number(found.get("Size of pending adds")),
    layers: array(found.get("Layers")).map(parseLayer),
    itemsDeleted: optional(found.get("Number of items deleted")),
    roomForDeleted: optional(found.get("Room for items deleted")),
    windowS: optional(found.get("Window")),
    sliding: Boolean(found.get("Sliding") ?? false),
    buckets: array(found.get("Buckets") ?? []).map(parseBucket),
  };
}

export function parsePlan(reply: Reply): Plan {
  const found = fields(reply);
  return {
    kind: text(found.get("Kind")),
    layout: text(found.get("Layout")),
    hash: text(found.get("Hash")),
    errorRate: number(found.get("Error rate")),
    capacity: number(found.get("Capacity")),
    sizeBytes: number(found.get("Size")),
    bitsPerItem: number(found.get("Bits per item")),
    layers: array(found.get("Layers")).map(parseLayer),
  };
}
