/** The guard's options. */

import { defined, type Word } from "./creation.js";
import type { Key } from "./items.js";
import type { NearCache } from "./near.js";
import { feedKeys } from "./rows.js";
import type { Telemetry } from "./telemetry.js";

/** The options of a guard. Times are seconds, or milliseconds if the name ends in Ms. `RANGES` lists the ranges. */
export interface GuardOptions {
  /** The time to live of a cached row: 60. */
  ttl?: number | undefined;
  /** The time to live of a cached absence: 10. */
  absentTtl?: number | undefined;
  /** How long one caller may load a row while others wait: 3000. */
  leaseMs?: number | undefined;
  /** How long a caller waits for another caller's load: 3000. With 0 it queries the database at once. */
  waitMs?: number | undefined;
  /** How many times a caller waits before it queries the database: 3. */
  attempts?: number | undefined;
  /** How long a value stays cached after its `ttl`: 0. One caller refreshes such a value; in the meantime, others get the old
   * value, and every caller gets it if the load fails. The row is then not loaded again until a back-off ends; callers without
   * an old value get LoadFailed. */
  failSafe?: number | undefined;
  /** If a load takes longer and an old value is cached, the old value is returned, and the load continues in the background. */
  softTimeout?: number | undefined;
  /** Values are renewed before they expire, earlier if loads take longer. This scales how early: 1. 0 turns early renewal off. */
  beta?: number | undefined;
  /** Keeps values in this process as well. */
  near?: NearCache | undefined;
  /** For a table that is followed by `bloomgate follow`. Writers then need no guard: `changed`, `announce`, `confirm` and
   * `forget` send nothing. A row is reported absent only while the follower's heartbeat exists, and callers wait for rows with
   * a write in flight. */
  feed?: boolean | undefined;
  /** With `feed`: limits the age of an answer while the follower's heartbeat is missing, at least `leaseMs`. With 0, the default, a
   * value is served for its `ttl`. */
  freshMs?: number | undefined;
  /** How long `confirm` is repeated: 30. */
  patience?: number | undefined;
  /** The prefix of cache keys: by default `{filter}:`. */
  prefix?: Key | undefined;
  /** Filters that are being filled, to which each id is announced first. */
  announceTo?: readonly Key[] | undefined;
  /** How many replicas must acknowledge a change (WAIT): 0. */
  replicas?: number | undefined;
  /** The time limit for replicas, or the disk, to acknowledge a change: 1000. */
  replicasTimeoutMs?: number | undefined;
  /** The time limit of a command: by default the client's, or 1000. A command that waits in the server extends it by `waitMs`
   * or `replicasTimeoutMs`. */
  timeoutMs?: number | undefined;
  /** The maximum number of connections of this guard that wait in the server at a time: 16. They are opened on demand, and
   * closed after a second of inactivity. */
  waitingConnections?: number | undefined;
  /** Whether the append-only file on disk must contain a change (WAITAOF). */
  aof?: boolean | undefined;
  /** Records loads and the events of `Guard.counts`, for metrics and traces. */
  telemetry?: Telemetry | undefined;
  /** Receives warnings, at most one of each kind per minute. The default is `console.warn`. */
  warn?: ((message: string) => void) | undefined;
}

/** The options, without undefined as a value. */
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
  /** `failSafe` in milliseconds. */
  readonly failSafeMs: number;
}

/** Every option with its default. */
const DEFAULTS = {
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
const RANGES = {
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

/** The options that must be integers. */
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

/** Converts a time to live, which must be finite: it limits how long readers get an old row after a writer has died. */
export function milliseconds(name: "ttl" | "absentTtl", seconds: number): number {
  checkRange(name, seconds);
  return Math.max(1, Math.round(seconds * 1000));
}

/** Returns those options of a guard's fetches that differ from the server's defaults, as arguments. */
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
