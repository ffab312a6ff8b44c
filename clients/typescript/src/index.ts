/** Bloom filters in a server with the module bloomgate, and a cache guard in front of a database.
 * @module bloomgate */

export type { Client } from "./ask.js";
export { Bytes, type Codec, Json } from "./codec.js";
export type { Changed, ChangeReports, Connection, Reply } from "./connection.js";
export type { CreationOptions, InsertOptions, Word } from "./creation.js";
export {
  BloomgateError,
  Disconnected,
  FilterExists,
  FilterFull,
  FilterLoading,
  FilterMissing,
  LoadFailed,
  ModuleMissing,
  TimeoutError,
  Unconfirmed,
} from "./errors.js";
export { type FillOptions, fillFilter } from "./filling.js";
export { Filter, type FilterOptions, type Items, plan } from "./filter.js";
export { type GetOptions, Guard, type Load, type Loaders, type LoadMany, type ReadArguments } from "./guard.js";
export type { GuardOptions } from "./guard-options.js";
export type { IoredisClient } from "./ioredis.js";
export type { Item, Key } from "./items.js";
export { NearCache } from "./near.js";
export type { NodeRedisClient } from "./node-redis.js";
export type { Bucket, Info, Layer, Plan, Stats } from "./replies.js";
export type { Counts, EventAttributes, LoadAttributes, Telemetry } from "./telemetry.js";
