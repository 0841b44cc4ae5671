/**
 * The kproxy that runs on this node, as other commands ask it.
 *
 * @module
 */
import { parseConfig } from "../../config/parse.ts";
import { CLEANUP_MODES, type KubeProxyConfiguration, PROXY_MODES } from "../../config/types.ts";
import { ConfigError } from "../../errors.ts";
import { findOwnSocket, type OwnSocket, UnsafePathError } from "../../kernel/own_socket.ts";
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
  AUDIT_PATH,
  CONFIG,
  CONFIG_PATH,
  type ConfigDocument,
  OBJECTS_PATH,
  PORTALS,
  PORTALS_PATH,
  type PortalsDocument,
  STATUS,
  STATUS_PATH,
  type StatusDocument,
} from "../../serve/status/status_document.ts";
import { SnapshotError, SnapshotReader } from "../../source/snapshot/snapshot_format.ts";
import { identityOf, type Rejection } from "../../source/source.ts";
import type { KnownPortals } from "../live/portals.ts";
import type { ListedObjects } from "../objects.ts";
import type { Shape } from "../../text/shape.ts";

/** Why nothing can be asked. */
export type NotRunningReason =
  /** Nothing listens there. */
  | "nothing"
  /** The configuration has no socket to ask on. */
  | "no address"
  /** Something listens there that is no service proxy. */
  | "another program"
  /** Something listens there that does not answer in time: another program, or a kproxy on a node that stands still. */
  | "silent"
  /** A kproxy with `statusApi: false`. */
  | "not told"
  /** A kproxy that speaks another version of these documents. */
  | "another version"
  /** This user may not ask. */
  | "refused"
  /** Another user could have put the socket there. */
  | "unsafe";

/** No kproxy can be asked; the message says what is at the address instead. */
export class NotRunningError extends Error {
  override readonly name = "NotRunningError";

  constructor(readonly reason: NotRunningReason, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

export interface HeldObjects {
  readonly node: string;
  /** Where it has them from, e.g. `https://10.0.0.1:6443`. */
  readonly source: string;
  readonly objects: readonly ApiObject[];
  /** Those that this release cannot read, although that one could. */
  readonly rejections: readonly Rejection[];
}

export interface RunningConfiguration extends Omit<ConfigDocument, "config"> {
  readonly config: KubeProxyConfiguration;
}

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
/** Levels of JSON. No document has ten, and what prints one goes down its levels, for which the stack is a limit. */
const MAX_DEPTH = 100;
/** How many times the limit a whole answer may take. */
const DOCUMENT_PATIENCE = 5;
const OBJECTS_PATIENCE = 60;

/** The kproxy behind a socket; each question is one connection. */
export class RunningKproxy {
  readonly address: string;
  readonly #limitMs: number;

  /**
   * @param socket `kproxy.socket`
   * @throws {NotRunningError} if it is blank
   */
  constructor(socket: string, { limitMs = LIMIT_MS }: AskOptions = {}) {
    const noSocket = "kproxy cannot be asked: the configuration has no socket (kproxy.socket)";
    if (socket === "") throw new NotRunningError("no address", noSocket);
    this.address = socket;
    this.#limitMs = limitMs;
  }

  /**
   * False: it runs as a user that is neither root nor this one. It may report its state, but not name what this process reads or
   * starts, such as a kubeconfig.
   *
   * @throws {NotRunningError}
   */
  get isTrusted(): boolean {
    return this.#find().isTrusted;
  }

  /** How it fares. @throws {NotRunningError} */
  async status(): Promise<StatusDocument> {
    return await this.#document(STATUS_PATH, "Status", STATUS);
  }

  /** What it listens on for Services. @throws {NotRunningError} */
  async portals(): Promise<PortalsDocument> {
    return await this.#document(PORTALS_PATH, "Portals", PORTALS);
  }

  /** What it is configured to. @throws {NotRunningError} */
  async config(): Promise<RunningConfiguration> {
    const document = await this.#document(CONFIG_PATH, "Config", CONFIG);
    return { ...document, config: this.#configurationOf(document) };
  }

  /** Adds what was done to the node to its log. @throws {NotRunningError} */
  async audit(deed: { readonly action: string; readonly uid: string; readonly what: string }): Promise<void> {
    const path = `${AUDIT_PATH}?${new URLSearchParams(deed)}`;
    await this.#ask(path, MAX_DOCUMENT_BYTES, (reply) => {
      if (reply.status !== 200) throw this.#problemOf(reply);
      return Promise.resolve();
    }, "POST");
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
      if (reply.status !== 200) throw this.#problemOf(reply);
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

  #document<Document>(path: string, kind: string, shape: Shape<Document>): Promise<Document> {
    return this.#ask(path, MAX_DOCUMENT_BYTES, async (reply) => {
      if (reply.status !== 200) throw this.#problemOf(reply);
      const document = this.#jsonOf(await textOf(reply)) as { apiVersion?: unknown; kind?: unknown } | null;
      if (document?.kind === kind && document.apiVersion === API_VERSION) {
        const problem = shape.problem(document, "");
        if (problem === null) return document as Document;
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
    method: HttpQuestion["method"] = "GET",
  ): Promise<Result> {
    const limitMs = this.#limitMs;
    const wholeMs = limitMs * (maxBytes === MAX_OBJECTS_BYTES ? OBJECTS_PATIENCE : DOCUMENT_PATIENCE);
    const { path: socket } = this.#find();
    try {
      return await httpGet({ socket, method, path, limitMs, wholeMs, maxBytes }, take);
    } catch (error) {
      if (error instanceof NoConnectionError) throw this.#notThere(error.cause);
      if (error instanceof LateAnswerError) {
        const message = `the kproxy on ${this.address} cannot be asked: ${error.message}`;
        throw new NotRunningError("silent", message, { cause: error });
      }
      if (error instanceof StrangeAnswerError) throw this.#otherProgram(error.message, error);
      throw error;
    }
  }

  /** Looked for anew with each question: what was there a moment ago may have been another one's. */
  #find(): OwnSocket {
    try {
      return findOwnSocket(this.address);
    } catch (error) {
      throw this.#notThere(error);
    }
  }

  #notThere(cause: unknown): NotRunningError {
    const { address } = this;
    const { NotFound, PermissionDenied } = Deno.errors;
    if (cause instanceof UnsafePathError) {
      return new NotRunningError("unsafe", `kproxy is not asked on ${address}: ${cause.message}`, { cause });
    }
    if (cause instanceof PermissionDenied) {
      const who = "ask as root, or as the user that it runs as";
      return new NotRunningError("refused", `this user may not ask kproxy on ${address}: ${who}`, { cause });
    }
    const why = cause instanceof NotFound
      ? `no kproxy runs here, or one of an older release: ${address} is not there`
      : `no kproxy answers on ${address}: ${cause instanceof Error ? cause.message : String(cause)}`;
    return new NotRunningError("nothing", why, { cause });
  }

  /** Who it is that has no such page. */
  #problemOf({ status }: HttpReply): NotRunningError {
    if (status !== 404) return this.#otherProgram(`it answers with status ${status}`);
    const message = `the kproxy on ${this.address} does not tell: it has kproxy.statusApi: false`;
    return new NotRunningError("not told", message);
  }

  #jsonOf(text: string): unknown {
    if (isDeeperThan(MAX_DEPTH, text)) {
      throw this.#otherVersion(`its answer is nested more than ${MAX_DEPTH} deep`);
    }
    try {
      return JSON.parse(text);
    } catch (error) {
      if (error instanceof SyntaxError) return null;
      throw error;
    }
  }

  #otherVersion(what: string, cause?: unknown): NotRunningError {
    const message = `the kproxy on ${this.address} is of another release: ${what}`;
    return new NotRunningError("another version", message, { cause });
  }

  #otherProgram(what?: string, cause?: unknown): NotRunningError {
    const message = `another program listens on ${this.address}${what === undefined ? "" : `: ${what}`}`;
    return new NotRunningError("another program", message, { cause });
  }
}

/** An object that moved while the objects were sent is there twice; the later one is newer. */
function latest(objects: readonly ApiObject[]): readonly ApiObject[] {
  const byIdentity = new Map(objects.map((object) => [identityOf(object), object]));
  return byIdentity.size === objects.length ? objects : [...byIdentity.values()];
}

/** True if lists and objects are in one another more often than that. Each character is looked at once, also in text that has no end. */
function isDeeperThan(most: number, text: string): boolean {
  let [depth, isInText] = [0, false];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') isInText = !isInText;
    else if (isInText && character === "\\") at++;
    else if (!isInText && (character === "[" || character === "{")) depth++;
    else if (!isInText && (character === "]" || character === "}")) depth--;
    if (depth > most) return true;
  }
  return false;
}

/** Asks the kproxy behind the socket; what keeps it from answering is returned, not thrown. */
export async function answerOf<Answer>(
  { kproxy: { socket } }: Pick<KubeProxyConfiguration, "kproxy">,
  ask: (running: RunningKproxy) => Promise<Answer>,
): Promise<Answer | NotRunningError> {
  try {
    return await ask(new RunningKproxy(socket));
  } catch (error) {
    if (error instanceof NotRunningError) return error;
    throw error;
  }
}

/** There is none, which is nothing to report. */
const NONE: ReadonlySet<NotRunningReason> = new Set(["nothing", "no address"]);

/** Asks it for its objects; says why if there is none. `report` receives which other program answers there. */
export async function askRunning(
  config: KubeProxyConfiguration,
  selection: ObjectSelection,
  report: (problem: string) => void,
): Promise<ListedObjects | string> {
  const answer = await answerOf(config, async (running): Promise<ListedObjects> => {
    const [status, { config }, held] = await Promise.all([
      running.status(),
      running.config(),
      running.objects(selection),
    ]);
    return {
      from: `kproxy on ${running.address}`,
      // Loading the modes' planners only for their names would make every start longer.
      mode: CLEANUP_MODES.find((mode) => mode === status.mode.used) ?? null,
      config,
      nodeName: held.node,
      objects: held.objects,
      rejected: [...status.source.refused.objects, ...held.rejections],
      excluded: [],
      quarantined: new Map(status.quarantine.services.map(({ service, problem }) => [service, problem])),
    };
  });
  if (!(answer instanceof NotRunningError)) return answer;
  // If another program answers there, the API server is asked next.
  if (!NONE.has(answer.reason)) report(`${answer.message}; objects are not taken from it`);
  return answer.message;
}

/** Asks it for the ports that it listens on in mode userspace; says why if they are not known. */
export async function askPortals(config: KubeProxyConfiguration): Promise<KnownPortals | string> {
  const answer = await answerOf(config, async (running) => {
    const { mode, portals, iptables } = await running.portals();
    if (mode !== "userspace") return `the kproxy on ${running.address} runs mode ${mode}`;
    return { where: `kproxy on ${running.address}`, portals, iptables };
  });
  return answer instanceof NotRunningError ? answer.message : answer;
}

export interface RunningSettings {
  /** In words, e.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
  /** As in {@linkcode RunningKproxy}. */
  readonly isTrusted: boolean;
  /** Address of the API server as its command line gives it; `""` if it does not. */
  readonly master: string;
  /** In the mode that is in use. */
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** What Services ask for and do not get; null: an older release does not report it. */
  readonly unserved: NonNullable<StatusDocument["unserved"]> | null;
}

/** Asks it; null if none runs, or `statusApi` is false. */
export async function runningSettings(
  config: Pick<KubeProxyConfiguration, "kproxy">,
): Promise<RunningSettings | null> {
  const answer = await answerOf(config, async (running): Promise<RunningSettings> => {
    const [status, { config, master }] = await Promise.all([running.status(), running.config()]);
    const mode = PROXY_MODES.find((one) => one === status.mode.used) ?? config.mode;
    return {
      where: `kproxy on ${running.address}`,
      isTrusted: running.isTrusted,
      master,
      config: { ...config, mode },
      nodeName: status.node.name,
      unserved: status.unserved ?? null,
    };
  });
  return answer instanceof NotRunningError ? null : answer;
}
