/**
 * The kproxy that runs on this node, as other commands ask it.
 *
 * @module
 */
import { parseConfig } from "../../config/parse.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { ConfigError } from "../../errors.ts";
import { isLoopback, joinHostPort, localHost, parseIp, splitHostPort } from "../../model/ip.ts";
import type { ApiObject } from "../../model/objects.ts";
import {
  httpGet,
  type HttpQuestion,
  type HttpReply,
  LateAnswerError,
  NoConnectionError,
  StrangeAnswerError,
  textOf,
} from "../../serve/http_get.ts";
import { type ObjectSelection, selectionQuery } from "../../serve/status/select_objects.ts";
import {
  API_VERSION,
  CONFIG_PATH,
  type ConfigDocument,
  OBJECTS_PATH,
  PORTALS_PATH,
  type PortalsDocument,
  STATUS_PATH,
  type StatusDocument,
} from "../../serve/status/status_document.ts";
import { SnapshotError, SnapshotReader } from "../../source/decode/snapshot_text.ts";
import { identityOf } from "../../source/events.ts";
import type { Rejection } from "../../source/source.ts";
import { CONFIG_SHAPE, PORTALS_SHAPE, type Shape, shapeProblem, STATUS_SHAPE } from "./document_shape.ts";

/** Why nothing can be asked. */
export type NotRunningReason =
  /** Nothing listens there. */
  | "nothing"
  /** The configuration has no address to ask at, or one that is not answered at. */
  | "no address"
  /** Something listens there that is no service proxy. */
  | "another program"
  /** Something listens there that does not answer in time: another program, or a kproxy on a node that stands still. */
  | "silent"
  /** A proxy without these pages: kube-proxy, an older kproxy, or one with `statusApi: false`. */
  | "another proxy"
  /** A kproxy that speaks another version of these documents. */
  | "another version"
  /** kproxy refuses to tell. */
  | "refused";

/** No kproxy can be asked; the message says what is at the address instead. */
export class NotRunningError extends Error {
  override readonly name = "NotRunningError";

  constructor(readonly reason: NotRunningReason, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** What a running kproxy holds. */
export interface HeldObjects {
  /** Name of its own Node. */
  readonly node: string;
  /** Where it has them from, e.g. `https://10.0.0.1:6443`. */
  readonly source: string;
  readonly objects: readonly ApiObject[];
  /** Those that this release cannot read, although that one could. */
  readonly rejections: readonly Rejection[];
}

/** The configuration of a running kproxy. */
export interface RunningConfiguration extends Omit<ConfigDocument, "config"> {
  /** Complete. */
  readonly config: KubeProxyConfiguration;
}

/** How to ask. */
export interface AskOptions {
  /**
   * For an answer to begin, and for each further piece of it, in milliseconds; a whole document may take five times as long, all
   * objects sixty times. @default {5000}
   */
  readonly limitMs?: number;
}

/** A kproxy answers within milliseconds, but on a node that has no processor for it. */
const LIMIT_MS = 5_000;
const MAX_DOCUMENT_BYTES = 16 * 1024 * 1024;
/** 1,000,000 endpoints are 100 MB. */
const MAX_OBJECTS_BYTES = 1024 * 1024 * 1024;
/** How many times the limit a whole answer may take. */
const DOCUMENT_PATIENCE = 5;
const OBJECTS_PATIENCE = 60;
const MODE_REGEXP = /^(iptables|ipvs|nftables|userspace|kernelspace)\s*$/;

/** A kproxy at an address; each question is one connection. */
export class RunningKproxy {
  /** `127.0.0.1:10249` */
  readonly address: string;
  readonly #host: string;
  readonly #port: number;
  readonly #limitMs: number;

  /**
   * @param metricsBindAddress as configured: `IP:port`; of a wildcard, its loopback address is asked
   * @throws {NotRunningError} if nobody can be asked there
   * @throws {TypeError} if it is something else
   */
  constructor(metricsBindAddress: string, { limitMs = LIMIT_MS }: AskOptions = {}) {
    if (metricsBindAddress === "") {
      throw new NotRunningError(
        "no address",
        "kproxy cannot be asked: the configuration has no metrics server (metricsBindAddress)",
      );
    }
    const [host, port] = splitHostPort(metricsBindAddress);
    this.#host = loopbackHost(host, metricsBindAddress);
    this.#port = port;
    this.#limitMs = limitMs;
    this.address = joinHostPort(this.#host, port);
  }

  /** How it fares. @throws {NotRunningError} */
  async status(): Promise<StatusDocument> {
    return await this.#document(STATUS_PATH, "Status", STATUS_SHAPE) as StatusDocument;
  }

  /** What it listens on for Services. @throws {NotRunningError} */
  async portals(): Promise<PortalsDocument> {
    return await this.#document(PORTALS_PATH, "Portals", PORTALS_SHAPE) as PortalsDocument;
  }

  /** What it is configured to. @throws {NotRunningError} */
  async config(): Promise<RunningConfiguration> {
    const document = await this.#document(CONFIG_PATH, "Config", CONFIG_SHAPE) as ConfigDocument;
    return { ...document, config: this.#configurationOf(document) };
  }

  #configurationOf({ config: written }: ConfigDocument): KubeProxyConfiguration {
    try {
      const { config } = parseConfig(JSON.stringify(written), { lenient: true });
      // A file cannot say that there is no such server: there, a blank address is the default.
      for (const address of ["healthzBindAddress", "metricsBindAddress"] as const) {
        if (written[address] === "") config[address] = "";
      }
      return config;
    } catch (cause) {
      if (!(cause instanceof ConfigError)) throw cause;
      throw this.#otherVersion(`its configuration cannot be read: ${cause.message}`, cause);
    }
  }

  /**
   * The objects that it holds now.
   *
   * @param selection the Services that are wanted, with their endpoints, Nodes and ServiceCIDRs. @default {all}
   * @throws {NotRunningError}
   */
  async objects(selection: ObjectSelection = {}): Promise<HeldObjects> {
    return await this.#ask(OBJECTS_PATH + selectionQuery(selection), MAX_OBJECTS_BYTES, async (reply) => {
      if (reply.status !== 200) throw await this.#problemOf(reply);
      const reader = new SnapshotReader(null, `${this.address}${OBJECTS_PATH}`);
      try {
        for await (const piece of reply.body) reader.take(piece);
        const { node, server, objects, rejections } = reader.end();
        return { node, source: server, objects: latest(objects), rejections };
      } catch (error) {
        if (!(error instanceof SnapshotError)) throw error;
        throw this.#otherProgram(`its answer ${error.message}`, error);
      }
    });
  }

  #document(path: string, kind: string, shape: Shape): Promise<unknown> {
    return this.#ask(path, MAX_DOCUMENT_BYTES, async (reply) => {
      if (reply.status !== 200) throw await this.#problemOf(reply);
      const document = jsonOf(await textOf(reply)) as { apiVersion?: unknown; kind?: unknown } | null;
      if (document?.kind === kind && document.apiVersion === API_VERSION) {
        const problem = shapeProblem(document, shape);
        if (problem === null) return document;
        throw this.#otherVersion(`its ${kind} document has another shape at ${problem}`);
      }
      if (document?.kind === kind && String(document.apiVersion).startsWith("kproxy/")) {
        throw this.#otherVersion(`it speaks ${document.apiVersion}, this one ${API_VERSION}`);
      }
      throw this.#otherProgram();
    });
  }

  async #ask<Result>(
    path: string,
    maxBytes: number,
    take: (reply: HttpReply) => Promise<Result>,
  ): Promise<Result> {
    try {
      return await httpGet(this.#question(path, maxBytes), take);
    } catch (error) {
      if (error instanceof NoConnectionError) {
        throw new NotRunningError("nothing", `no kproxy answers on ${this.address}: ${error.message}`, {
          cause: error,
        });
      }
      if (error instanceof LateAnswerError) {
        throw new NotRunningError(
          "silent",
          `whoever listens on ${this.address} cannot be asked: ${error.message}`,
          { cause: error },
        );
      }
      if (error instanceof StrangeAnswerError) throw this.#otherProgram(error.message, error);
      throw error;
    }
  }

  #question(path: string, maxBytes: number): HttpQuestion {
    const limitMs = this.#limitMs;
    const wholeMs = limitMs * (maxBytes === MAX_OBJECTS_BYTES ? OBJECTS_PATIENCE : DOCUMENT_PATIENCE);
    return { host: this.#host, port: this.#port, path, limitMs, wholeMs, maxBytes };
  }

  /** Who it is that has no such page, or does not give it to us. */
  async #problemOf(reply: HttpReply): Promise<NotRunningError> {
    const text = await textOf(reply);
    if (reply.status === 403 && text.startsWith("403 forbidden: ")) {
      const why = text.slice("403 forbidden: ".length).trim();
      return new NotRunningError("refused", `the kproxy on ${this.address} does not answer: ${why}`);
    }
    const mode = await this.#askMode();
    if (mode === null) return this.#otherProgram(`it answers with status ${reply.status}`);
    return new NotRunningError(
      "another proxy",
      `a service proxy in mode ${mode} answers on ${this.address}, but not these questions: it is kube-proxy, an older ` +
        "kproxy, or one with kproxy.statusApi: false",
    );
  }

  async #askMode(): Promise<string | null> {
    try {
      const text = await httpGet(this.#question("/proxyMode", 4096), textOf);
      return MODE_REGEXP.exec(text)?.[1] ?? null;
    } catch (error) {
      if (error instanceof NoConnectionError || error instanceof StrangeAnswerError) return null;
      throw error;
    }
  }

  #otherVersion(what: string, cause?: unknown): NotRunningError {
    const message = `the kproxy on ${this.address} is of another release: ${what}`;
    return new NotRunningError("another version", message, { cause });
  }

  #otherProgram(what?: string, cause?: unknown): NotRunningError {
    const why = what === undefined ? "" : `: ${what}`;
    return new NotRunningError("another program", `another program listens on ${this.address}${why}`, {
      cause,
    });
  }
}

function loopbackHost(host: string, configured: string): string {
  const asked = localHost(host);
  const ip = parseIp(asked);
  if (ip !== null && isLoopback(ip)) return asked;
  throw new NotRunningError(
    "no address",
    `kproxy cannot be asked: it answers over loopback only, and its metrics server listens on ${configured}`,
  );
}

/** Of an object that changed its place while it was told, the newest is the last. */
function latest(objects: readonly ApiObject[]): readonly ApiObject[] {
  const byIdentity = new Map(objects.map((object) => [identityOf(object), object]));
  return byIdentity.size === objects.length ? objects : [...byIdentity.values()];
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
