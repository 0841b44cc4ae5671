/**
 * The kproxy that runs on this node, as other commands query it.
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

/** Why no kproxy can be asked. */
export type NotRunningReason =
  /** Nothing listens on the socket. */
  | "nothing"
  /** The configuration names no socket. */
  | "no address"
  /** Another program, no service proxy, listens on the socket. */
  | "another program"
  /** The listener does not answer in time: another program, or a kproxy on a stalled node. */
  | "silent"
  /** A kproxy with `statusApi: false`. */
  | "not told"
  /** A kproxy with another version of these documents. */
  | "another version"
  /** This user has no access to the socket. */
  | "refused"
  /** Another user could have created the socket. */
  | "unsafe";

/** No kproxy can be asked; the message says why. */
export class NotRunningError extends Error {
  override readonly name = "NotRunningError";

  constructor(readonly reason: NotRunningReason, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

export interface HeldObjects {
  readonly node: string;
  /** Source of the objects, e.g. `https://10.0.0.1:6443`. */
  readonly source: string;
  readonly objects: readonly ApiObject[];
  /** Objects that this release cannot read, although the running one could. */
  readonly rejections: readonly Rejection[];
}

export interface RunningConfiguration extends Omit<ConfigDocument, "config"> {
  readonly config: KubeProxyConfiguration;
}

export interface AskOptions {
  /**
   * Time until an answer begins, and between its pieces, in milliseconds; a whole document may take five times as long, all
   * objects sixty times. @default {5000}
   */
  readonly limitMs?: number;
}

/** A kproxy answers within milliseconds, unless the node has no processor to spare for it. */
const LIMIT_MS = 5_000;
const MAX_DOCUMENT_BYTES = 16 * 1024 * 1024;
/** Limit of all objects; 1,000,000 endpoints are 100 MB. */
const MAX_OBJECTS_BYTES = 1024 * 1024 * 1024;
/** Limit of nested JSON levels. No document has ten, and printing one recurses, for which the stack is a limit. */
const MAX_DEPTH = 100;
/** Factor of the limit for a whole answer. */
const DOCUMENT_PATIENCE = 5;
const OBJECTS_PATIENCE = 60;

/** The kproxy behind a socket; each query opens one connection. */
export class RunningKproxy {
  readonly address: string;
  readonly #limitMs: number;

  /**
   * @param socket `kproxy.socket`
   * @throws {NotRunningError} if the path is blank
   */
  constructor(socket: string, { limitMs = LIMIT_MS }: AskOptions = {}) {
    const noSocket = "kproxy cannot be asked: the configuration has no socket (kproxy.socket)";
    if (socket === "") throw new NotRunningError("no address", noSocket);
    this.address = socket;
    this.#limitMs = limitMs;
  }

  /**
   * False: kproxy runs as a user that is neither root nor this one. It may report its state, but not name files that this process
   * reads or programs that it starts, as a kubeconfig does.
   *
   * @throws {NotRunningError}
   */
  get isTrusted(): boolean {
    return this.#find().isTrusted;
  }

  /** The status document. @throws {NotRunningError} */
  async status(): Promise<StatusDocument> {
    return await this.#document(STATUS_PATH, "Status", STATUS);
  }

  /** Proxy ports of userspace mode. @throws {NotRunningError} */
  async portals(): Promise<PortalsDocument> {
    return await this.#document(PORTALS_PATH, "Portals", PORTALS);
  }

  /** The configuration in use. @throws {NotRunningError} */
  async config(): Promise<RunningConfiguration> {
    const document = await this.#document(CONFIG_PATH, "Config", CONFIG);
    return { ...document, config: this.#configurationOf(document) };
  }

  /** Adds an audit entry to kproxy's log: what was done to the node. @throws {NotRunningError} */
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
      // In a file, a blank address is the default: it cannot say that there is no such server.
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
   * The objects that kproxy holds now.
   *
   * @param selection Services to return, with their endpoints, Nodes and ServiceCIDRs. @default {all}
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

  /** Finds the socket anew for each query: the one of a moment ago may have been another program's. */
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

  /** The error for an answer without the page. */
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

/** Removes older copies: an object that moved meanwhile is there twice; the later one is newer. */
function latest(objects: readonly ApiObject[]): readonly ApiObject[] {
  const byIdentity = new Map(objects.map((object) => [identityOf(object), object]));
  return byIdentity.size === objects.length ? objects : [...byIdentity.values()];
}

/** True if JSON is nested deeper than `most`. Looks at each character once, also in text that never ends. */
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

/** Queries the kproxy behind the socket; a NotRunningError is returned, not thrown. */
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

/** Reasons that mean that none runs, which is nothing to report. */
const NONE: ReadonlySet<NotRunningReason> = new Set(["nothing", "no address"]);

/** Asks the kproxy for its objects; a text says why there is none. `report`: which other program answers. */
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
      // Names of modes without their planners, which would make every start longer.
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

/** Asks the running kproxy for its proxy ports of userspace mode; a text says why they are unknown. */
export async function askPortals(config: KubeProxyConfiguration): Promise<KnownPortals | string> {
  const answer = await answerOf(config, async (running) => {
    const { mode, portals, iptables } = await running.portals();
    if (mode !== "userspace") return `the kproxy on ${running.address} runs mode ${mode}`;
    return { where: `kproxy on ${running.address}`, portals, iptables };
  });
  return answer instanceof NotRunningError ? answer.message : answer;
}

export interface RunningSettings {
  /** Name of the kproxy, e.g. `kproxy on /run/kproxy/kproxy.sock`. */
  readonly where: string;
  /** As in {@linkcode RunningKproxy}. */
  readonly isTrusted: boolean;
  /** Address of the API server on its command line; `""` if not given. */
  readonly master: string;
  /** Configuration, with the mode in use. */
  readonly config: KubeProxyConfiguration;
  readonly nodeName: string;
  /** Destinations of Services that are not served; null: an older release does not report them. */
  readonly unserved: NonNullable<StatusDocument["unserved"]> | null;
}

/** Settings of the running kproxy; null if none runs, or `statusApi` is false. */
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
