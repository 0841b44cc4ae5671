/**
 * What a child inside a namespace is asked to do, and what it answers. Each child has one job, as JSON on its standard input.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import type { IpFamily } from "../../../model/objects.ts";
import type { ObjectJson } from "../../../source/decode/api_json.ts";
import type { Attempt } from "../judge.ts";

/** A server at an address. */
export interface ServerWish {
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
}

/** Answers everybody, until it is ended or its time is over. */
export interface ServeJob {
  readonly job: "serve";
  readonly servers: readonly ServerWish[];
  /** It ends by itself after this many milliseconds, should nobody be left to end it. */
  readonly lifeMs: number;
}

/** What `serve` prints once all servers listen. */
export const READY_LINE = "ready";

export interface Question {
  readonly id: string;
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
  readonly count: number;
  /** For one answer. */
  readonly limitMs: number;
}

/** Asks, one question beside the other; of one question one connection after the other, up to the first without an answer. */
export interface AskJob {
  readonly job: "ask";
  readonly questions: readonly Question[];
}

/** What `ask` prints. */
export interface AskAnswer {
  readonly attempts: Readonly<Record<string, readonly Attempt[]>>;
}

/** Gets the node ready for a mode and writes the rules of these objects. */
export interface ApplyJob {
  readonly job: "apply";
  readonly mode: ProxyMode;
  readonly families: readonly IpFamily[];
  readonly objects: readonly ObjectJson[];
}

/** What `apply` prints. */
export interface ApplyAnswer {
  /** The one that runs; null: none does. */
  readonly mode: string | null;
  /** The families whose rules are in the kernel. */
  readonly served: readonly IpFamily[];
  /** What went wrong, in sentences, each with its family if it is of one. */
  readonly failures: readonly { readonly family: IpFamily | null; readonly message: string }[];
  /** Families that this mode cannot serve here. */
  readonly refused: readonly { readonly family: IpFamily; readonly reason: string }[];
}

export type Job = ServeJob | AskJob | ApplyJob;
