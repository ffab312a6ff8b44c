/** The guard's options. */

import type { Key } from "./items.js";
import type { NearCache } from "./near.js";
import { feedKeys } from "./rows.js";
import type { Telemetry } from "./telemetry.js";
import { defined, type Word } from "./words.js";

/** How a guard reads, waits and writes. Times are seconds, except those whose names end in Ms. `RANGES` has what is accepted. */
export interface GuardOptions {
  /** The time to live of a cached row: 60. */
  ttl?: number | undefined;
  /** The time to live of the knowledge that there is no row: 10. */
  absentTtl?: number | undefined;
  /** How long one caller may take to load a row while the others wait: 3000. */
  leaseMs?: number | undefined;
  /** How long a caller waits for another one that loads the row: 3000. With 0 it asks the database at once. */
  waitMs?: number | undefined;
  /** How often a caller waits for that long before it asks the database itself: 3. */
  attempts?: number | undefined;
  /** How long a value stays in the cache after its `ttl`: 0. One caller refreshes such a value; the others get it meanwhile, and
   * everybody gets it where the load fails. Then nobody asks the database for the row before a back-off has passed; callers
   * without an old value get LoadFailed. */
  failSafe?: number | undefined;
  /** If a load takes longer and there is an old value, that is served, and the load continues in the background. */
  softTimeout?: number | undefined;
  /** Multiplies how long before its end a value is renewed: 1. 0 turns early renewal off. The server takes the average of the
   * times that loads take. */
  beta?: number | undefined;
  /** Keeps values in this process as well. */
  near?: NearCache | undefined;
  /** For a table that `bloomgate follow` follows. The writers need no guard then: `changed`, `announce`, `confirm` and `forget`
   * send nothing. No row is absent unless the follower's heartbeat exists, and a row with a write in flight is waited for. */
  feed?: boolean | undefined;
  /** With `feed`: how old an answer may be while the follower's heartbeat is missing, at least `leaseMs`. By default, 0, there is no
   * limit: a value is served for its `ttl`. */
  freshMs?: number | undefined;
  /** How long `confirm` is repeated: 30. */
  patience?: number | undefined;
  /** What precedes an id in the name of its cache key: by default `{filter}:`. */
  prefix?: Key | undefined;
  /** Filters that are being filled, to which each id is announced first. */
  announceTo?: readonly Key[] | undefined;
  /** How many replicas must have a change before it counts (WAIT): 0. */
  replicas?: number | undefined;
  /** How long the replicas, or the disk, may take: 1000. */
  replicasTimeoutMs?: number | undefined;
  /** How long a command may take: that of `connect`, or 1000. Where a command waits in the server, by `waitMs` or
   * `replicasTimeoutMs`, it may take that much longer. */
  timeoutMs?: number | undefined;
  /** How many connections of this guard may wait inside the server at a time: 16. They are opened when they are needed, and
   * closed a second later. */
  waitingConnections?: number | undefined;
  /** Whether a change must be in the append-only file on disk before it counts (WAITAOF). */
  aof?: boolean | undefined;
  /** Records the events of `Guard.counts` and the loads, for metrics and traces. */
  telemetry?: Telemetry | undefined;
  /** Is called with each warning, at most once a minute for each kind of trouble. By default warnings go to `console.warn`. */
  warn?: ((message: string) => void) | undefined;
}

/** The options that are given. */
type Defined = { [Name in keyof GuardOptions]: Exclude<GuardOptions[Name], undefined> };

/** The options with their defaults, checked. */
export interface CheckedOptions
  extends Omit<Required<Defined>, "near" | "prefix" | "softTimeout" | "telemetry" | "timeoutMs" | "warn"> {
  readonly near: NearCache | undefined;
  readonly prefix: Key | undefined;
  readonly softTimeout: number | undefined;
  readonly telemetry: Telemetry | undefined;
  readonly timeoutMs: number | undefined;
  readonly warn: ((message: string) => void) | undefined;
  /** How long a value stays in the cache after it was fresh. */
  readonly failSafeMs: number;
}

/** Every option with its default. */
export const DEFAULTS = {
  // scripts/generate-options writes these lines.
  ttl: 60,
  absentTtl: 10,
  leaseMs: 3000,
  waitMs: 3000,
  attempts: 3,
  failSafe: 0,
  softTimeout: undefined,
  beta: 1,
  near: undefined,
  feed: false,
  freshMs: 0,
  patience: 30,
  prefix: undefined,
  announceTo: [],
  replicas: 0,
  replicasTimeoutMs: 1000,
  aof: false,
  timeoutMs: undefined,
  waitingConnections: 16,
  telemetry: undefined,
  warn: undefined,
} satisfies Required<GuardOptions>;

/** The least and the most of every option that is a number. */
export const RANGES = {
  // scripts/generate-options writes these lines.
  ttl: [0.001, 1_000_000_000],
  absentTtl: [0.001, 1_000_000_000],
  leaseMs: [1, 3_600_000],
  waitMs: [0, 86_400_000],
  attempts: [1, 1000],
  failSafe: [0, 1_000_000_000],
  softTimeout: [0, 86_400],
  beta: [0, 1000],
  freshMs: [0, 3_600_000],
  patience: [0, 86_400],
  replicas: [0, 1000],
  replicasTimeoutMs: [1, 86_400_000],
  waitingConnections: [1, 10_000],
} as const satisfies { [Name in keyof GuardOptions]: readonly [number, number] };

/** The options that are no times in seconds, and no factors. */
const WHOLE: readonly string[] = [
  "leaseMs",
  "waitMs",
  "freshMs",
  "attempts",
  "replicas",
  "replicasTimeoutMs",
  "waitingConnections",
];

export function checkOptions(options: GuardOptions): CheckedOptions {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(DEFAULTS, name))
      throw new TypeError(`there is no option "${name}": ${Object.keys(DEFAULTS).join(", ")}`);
  }
  const chosen = { ...DEFAULTS, ...(defined(options) as Defined) };
  for (const name of Object.keys(RANGES) as (keyof typeof RANGES)[]) {
    const value = chosen[name];
    if (value !== undefined) checkRange(name, value);
  }
  if (chosen.feed && (chosen.announceTo.length > 0 || chosen.replicas || chosen.aof)) {
    throw new RangeError("with feed the follower announces changes: announceTo, replicas and aof have no effect");
  }
  const { freshMs, leaseMs, feed } = chosen;
  if (freshMs > 0 && !feed) throw new RangeError("freshMs needs feed: there is no heartbeat without it");
  if (freshMs > 0 && freshMs < leaseMs) {
    throw new RangeError(
      `freshMs is at least leaseMs, ${leaseMs}, not ${freshMs}: a slow load would serve only its own caller`,
    );
  }
  return { ...chosen, failSafeMs: Math.round(chosen.failSafe * 1000) };
}

function checkRange(name: keyof typeof RANGES, value: number): void {
  const [least, most] = RANGES[name];
  const isWhole = WHOLE.includes(name);
  if (value >= least && value <= most && (!isWhole || Number.isInteger(value))) return;
  throw new RangeError(`${name} is ${isWhole ? "a whole number " : ""}from ${least} to ${most}, not ${value}`);
}

/** Converts a time to live. It has to end: it bounds how long readers get an old row after a writer has died. */
export function milliseconds(name: "ttl" | "absentTtl", seconds: number): number {
  checkRange(name, seconds);
  return Math.max(1, Math.round(seconds * 1000));
}

/** Returns the options of a guard's fetches as words: those that differ from the server's defaults. */
export function fetchWords(filter: Word, options: CheckedOptions): Word[] {
  const { leaseMs, failSafeMs, beta, feed, freshMs } = options;
  const words: Word[] = [];
  if (leaseMs !== DEFAULTS.leaseMs) words.push("LEASE", String(leaseMs));
  if (failSafeMs > 0) words.push("STALE", String(failSafeMs));
  const renew = Math.round(beta * 100);
  if (renew > 0) words.push("RENEW", String(renew));
  if (feed) {
    const [heartbeat, inFlight] = feedKeys(filter);
    words.push("WHILE", heartbeat, "UNLESS", inFlight);
  }
  if (freshMs > 0) words.push("FRESH", String(freshMs));
  return words;
}
