/**
 * A small list/watch server over plain HTTP that keeps objects in memory and misbehaves on demand. It covers the API server
 * source where the real server cannot be built, and faults that the real one has no switch for.
 *
 * @module
 */
import {
  answerBytes,
  type ApiWire,
  bookmarkOf,
  LISTS,
  PLURALS,
  statusOf,
  statusText,
  wireFor,
} from "./api_wire.ts";
import { type HttpConnection, type HttpRequest, serveConnections } from "./http_connection.ts";
import { joined } from "./kube_protobuf.ts";
import { listenSteadily } from "./steady_ports.ts";

/** A raw API object. */
export interface RawApiObject {
  readonly kind: string;
  readonly apiVersion?: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

/** Fault of one request, instead of a good answer. */
export type Fault =
  /** Answers with this status, text and headers. */
  | {
    readonly status: number;
    readonly text?: string;
    readonly retryAfter?: number;
    readonly type?: string;
    readonly location?: string;
  }
  /** Answers with these bytes, in this encoding. */
  | {
    readonly status: number;
    readonly bytes: Uint8Array;
    readonly encoding?: string;
    readonly type?: string;
  }
  /** Closes the connection before, or after so many bytes of, the answer's body. */
  | { readonly cutAfterBytes: number }
  /** Never answers. */
  | { readonly hang: true }
  /** Answers well, so much later. */
  | { readonly delayMs: number }
  /** Answers well, once this resolves. */
  | { readonly after: Promise<void> };

interface Planned {
  readonly matches: (request: ApiRequest) => boolean;
  readonly fault: Fault;
}

/** A request as the server saw it. */
export interface ApiRequest {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly watch: boolean;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

interface Watcher {
  readonly plural: string;
  readonly matches: Selects;
  readonly connection: HttpConnection;
  readonly wire: ApiWire;
}

interface Change {
  readonly version: number;
  readonly plural: string;
  readonly old: RawApiObject | undefined;
  readonly current: RawApiObject | undefined;
}

/** The server; see the module. */
export class ListWatchServer implements AsyncDisposable {
  readonly url: string;
  /** Every request so far. */
  readonly requests: ApiRequest[] = [];
  /** Plurals answered with 404. */
  readonly missing = new Set<string>();
  /** Plurals answered with 403. */
  readonly forbidden = new Set<string>();
  /** Rights that access reviews deny, as `list services`. */
  readonly denied = new Set<string>();
  /** The server's clock, in milliseconds since the epoch; null: answers have no date. */
  clockMs: number | null = null;
  /** Accepted Authorization headers; undefined: any. */
  accepted: Set<string> | undefined;
  /** True: watches may begin with a list. Otherwise they are refused, and not recorded as requests. */
  streamsLists = false;
  /** False: such a watch never marks the end of its list, as servers do that do not know the feature. */
  endsLists = true;
  /** True: answers are in protobuf for clients that prefer it. */
  hasProtobuf = false;
  /** True: field selectors other than metadata.name get status 400. */
  refuseFields = false;
  readonly #listener: Deno.TcpListener;
  readonly #served: Promise<void>;
  readonly #connections = new Set<HttpConnection>();
  readonly #objects = new Map<string, RawApiObject>();
  readonly #changes: Change[] = [];
  readonly #watchers = new Set<Watcher>();
  readonly #planned: Planned[] = [];
  readonly #snapshots = new Map<string, RawApiObject[]>();
  readonly #timers = new Set<ReturnType<typeof setTimeout>>();
  #version = 100;
  #compacted = 0;

  /** Listens on 127.0.0.1, on `port` or on one that no other process will get when this server is closed. */
  constructor(port?: number) {
    this.#listener = port === undefined ? listenSteadily() : Deno.listen({ hostname: "127.0.0.1", port });
    this.url = `http://127.0.0.1:${this.#listener.addr.port}`;
    this.#served = serveConnections(
      this.#listener,
      this.#connections,
      (request, connection) => this.#answer(request, connection),
    );
  }

  /** Resource version of the newest change. */
  get version(): string {
    return String(this.#version);
  }

  /** Adds or replaces an object and sends it to the watches. */
  put(object: RawApiObject): void {
    const version = ++this.#version;
    const metadata = { ...object.metadata, resourceVersion: String(version) };
    this.#change(keyOf(object), version, { ...object, metadata });
  }

  /** Removes an object and sends that to the watches. */
  remove(object: RawApiObject): void {
    this.#change(keyOf(object), ++this.#version, undefined);
  }

  /** Drops all history: older watches and continue tokens get 410. */
  compact(): void {
    this.#compacted = this.#version;
    this.#changes.length = 0;
    this.#snapshots.clear();
  }

  /** Plants a fault for the next matching request. */
  plan(matches: (request: ApiRequest) => boolean, fault: Fault): void {
    this.#planned.push({ matches, fault });
  }

  /** Cancels the planned faults. */
  unplan(): void {
    this.#planned.length = 0;
  }

  /** Number of open watches, of one plural or all. */
  watches(plural?: string): number {
    return [...this.#watchers].filter((watcher) => plural === undefined || watcher.plural === plural).length;
  }

  /** Sends text or bytes to all open watches, as they are. */
  send(said: string | Uint8Array, plural?: string): void {
    const bytes = typeof said === "string" ? new TextEncoder().encode(said) : said;
    for (const watcher of this.#watchers) {
      if (plural === undefined || watcher.plural === plural) watcher.connection.bytes(bytes);
    }
  }

  /** Sends a bookmark to all open watches. */
  bookmark(): void {
    const metadata = { resourceVersion: String(++this.#version) };
    for (const { connection, wire, plural } of this.#watchers) {
      connection.bytes(wire.event("BOOKMARK", bookmarkOf(plural, metadata)));
    }
  }

  /** Ends all open watches: cleanly as after `timeoutSeconds`, or by breaking the connection. */
  endWatches(how: "cleanly" | "broken"): void {
    for (const watcher of this.#watchers) {
      this.#watchers.delete(watcher);
      if (how === "cleanly") watcher.connection.end();
      else watcher.connection.close();
    }
  }

  /** Keeps all open watches open without ever sending on them, like half-open connections. */
  silenceWatches(): void {
    this.#watchers.clear();
  }

  /** Breaks all connections. */
  closeConnections(): void {
    for (const connection of this.#connections) connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#listener.close();
    this.closeConnections();
    await this.#served;
  }

  #change(key: string, version: number, current: RawApiObject | undefined): void {
    const old = this.#objects.get(key);
    if (current === undefined) this.#objects.delete(key);
    else this.#objects.set(key, current);
    const change: Change = { version, plural: key.split(" ", 1)[0] ?? "", old, current };
    this.#changes.push(change);
    for (const watcher of this.#watchers) {
      if (watcher.plural === change.plural) watcher.connection.bytes(eventBytes(change, watcher));
    }
  }

  #answer({ target, headers, body }: HttpRequest, connection: HttpConnection): void {
    const url = new URL(target, this.url);
    const request: ApiRequest = {
      path: url.pathname,
      query: url.searchParams,
      watch: ["1", "true"].includes(url.searchParams.get("watch") ?? ""),
      headers,
      body,
    };
    if (!this.streamsLists && request.query.has("sendInitialEvents")) {
      const message =
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
      return connection.answer(422, statusText(422, message));
    }
    this.requests.push(request);
    const planned = this.#planned.findIndex(({ matches }) => matches(request));
    const fault = planned < 0 ? undefined : this.#planned.splice(planned, 1)[0]?.fault;
    if (fault === undefined) return this.#answerWell(request, connection);
    if ("hang" in fault) return;
    if ("after" in fault) return void fault.after.then(() => this.#answerWell(request, connection));
    if ("delayMs" in fault) {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        this.#answerWell(request, connection);
      }, fault.delayMs);
      this.#timers.add(timer);
      return;
    }
    if ("bytes" in fault) {
      const { status, bytes, encoding, type } = fault;
      connection.begin(status, {
        ...(encoding === undefined ? {} : { "content-encoding": encoding }),
        ...(type === undefined ? {} : { "content-type": type }),
      });
      connection.bytes(bytes);
      return connection.end();
    }
    if ("status" in fault) {
      const { status, text = statusText(status, "planned"), retryAfter, type, location } = fault;
      return connection.answer(status, text, {
        ...(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }),
        ...(type === undefined ? {} : { "content-type": type }),
        ...(location === undefined ? {} : { location }),
      });
    }
    connection.cutAfter(fault.cutAfterBytes);
    this.#answerWell(request, connection);
  }

  #answerWell(request: ApiRequest, connection: HttpConnection): void {
    const { path, query } = request;
    const plural = path.split("/").at(-1) ?? "";
    const wire = wireFor(request.headers.get("accept") ?? "", this.hasProtobuf);
    const refuse = (status: number, message: string): void =>
      answerBytes(connection, status, wire.contentType, wire.status(statusOf(status, message)));
    if (this.accepted !== undefined && !this.accepted.has(request.headers.get("authorization") ?? "")) {
      return refuse(401, "Unauthorized");
    }
    if (path === "/version") {
      const date = this.clockMs === null ? {} : { date: new Date(this.clockMs).toUTCString() };
      return connection.answer(200, JSON.stringify({ gitVersion: "v1.33.1" }), date);
    }
    if (plural === "selfsubjectaccessreviews") return this.#review(request, connection);
    if (!(plural in LISTS) || this.missing.has(plural)) {
      return refuse(404, "the server could not find it");
    }
    if (this.forbidden.has(plural)) return refuse(403, `cannot list resource ${plural}`);
    const fields = query.get("fieldSelector") ?? "";
    if (this.refuseFields && fields !== "" && !fields.startsWith("metadata.name=")) {
      return refuse(400, `"${fields}" is not a known field selector`);
    }
    const matches = selector(query.get("labelSelector") ?? "", fields);
    if (request.watch) {
      const watcher = { plural, matches, connection, wire };
      if (query.has("sendInitialEvents")) return this.#streamList(watcher);
      return this.#watch(watcher, Number(query.get("resourceVersion")));
    }
    this.#list(plural, matches, query, connection, wire);
  }

  #review({ body }: ApiRequest, connection: HttpConnection): void {
    const { spec: { resourceAttributes: { verb, resource } } } = JSON.parse(body);
    const status = { allowed: !this.denied.has(`${verb} ${resource}`) };
    connection.answer(201, JSON.stringify({ kind: "SelfSubjectAccessReview", status }));
  }

  #list(
    plural: string,
    matches: Selects,
    query: URLSearchParams,
    connection: HttpConnection,
    wire: ApiWire,
  ): void {
    const limit = Number(query.get("limit")) || Infinity;
    const [version = String(this.#version), offset = "0"] = query.get("continue")?.split(":") ?? [];
    const key = `${plural}:${version}`;
    const isNext = query.has("continue");
    if (isNext && !this.#snapshots.has(key)) {
      return connection.answer(410, statusText(410, "The provided continue parameter is too old"));
    }
    const all = this.#snapshots.get(key) ?? this.#selected(plural, matches);
    const start = Number(offset);
    const items = all.slice(start, start + limit);
    const more = start + limit < all.length;
    if (more) this.#snapshots.set(key, all);
    const metadata = {
      resourceVersion: version,
      ...(more ? { continue: `${version}:${start + limit}` } : {}),
    };
    const { kind = "", apiVersion = "" } = LISTS[plural] ?? {};
    answerBytes(connection, 200, wire.contentType, wire.list({ kind, apiVersion, metadata, items }));
  }

  #selected(plural: string, matches: Selects): RawApiObject[] {
    return [...this.#objects].filter(([name, object]) => name.startsWith(`${plural} `) && matches(object))
      .map(([, object]) => object);
  }

  /** Sends all objects as events, then a bookmark, then changes. */
  #streamList(watcher: Watcher): void {
    const { connection, plural, matches, wire } = watcher;
    connection.begin(200, { "content-type": wire.watchContentType });
    const annotations = this.endsLists ? { "k8s.io/initial-events-end": "true" } : {};
    const metadata = { resourceVersion: String(this.#version), annotations };
    const events = this.#selected(plural, matches).map((object) => wire.event("ADDED", object));
    connection.bytes(joined([...events, wire.event("BOOKMARK", bookmarkOf(plural, metadata))]));
    this.#add(watcher);
  }

  #watch(watcher: Watcher, from: number): void {
    const { connection, plural, wire } = watcher;
    connection.begin(200, { "content-type": wire.watchContentType });
    if (from < this.#compacted) {
      connection.bytes(wire.event("ERROR", statusOf(410, `too old resource version: ${from}`)));
      return connection.end();
    }
    const missed = this.#changes.filter((change) => change.plural === plural && change.version > from);
    connection.bytes(joined(missed.map((change) => eventBytes(change, watcher))));
    this.#add(watcher);
  }

  #add(watcher: Watcher): void {
    this.#watchers.add(watcher);
    watcher.connection.onClose = () => this.#watchers.delete(watcher);
  }
}

function keyOf({ kind, metadata }: RawApiObject): string {
  const plural = PLURALS[kind];
  if (plural === undefined) throw new TypeError(`No resource for kind ${kind}`);
  return `${plural} ${metadata.namespace ?? ""}/${metadata.name}`;
}

/** Event of a change as a watch's selector shows it; empty if it shows none. */
function eventBytes({ old, current, version }: Change, { matches, wire }: Watcher): Uint8Array {
  const was = matches(old);
  const is = matches(current);
  if (!was && !is) return new Uint8Array(0);
  const type = is ? (was ? "MODIFIED" : "ADDED") : "DELETED";
  // As on real servers, an object that is no longer selected is sent in its old form.
  const base = is ? current : old;
  return wire.event(type, { ...base, metadata: { ...base?.metadata, resourceVersion: String(version) } });
}

/** True for objects that the selector selects. */
export type Selects = (object: RawApiObject | undefined) => boolean;

/** Understands `!label`, `label=x`, `metadata.name=x` and `spec.clusterIP!=x`, and several of them. */
export function selector(labels: string, fields: string): Selects {
  const terms = (text: string): string[] => text.split(",").filter((term) => term !== "");
  const ofLabels = terms(labels).map((term) => {
    const [, not, label = "", value] = /^(!?)([\w./-]+)(?:=(.*))?$/.exec(term) ?? [];
    if (not === undefined || (not === "!") !== (value === undefined)) {
      throw new TypeError(`Label selector "${term}" is not understood`);
    }
    return { label, value };
  });
  const ofFields = terms(fields).map((term) => {
    const [, field = "", operator, value] = /^([\w.]+)(!?=)(.*)$/.exec(term) ?? [];
    return { field, operator, value };
  });
  return (object) => {
    if (object === undefined) return false;
    const { labels: own = {} } = object.metadata;
    if (!ofLabels.every(({ label, value }) => own[label] === value)) return false;
    return ofFields.every(({ field, operator, value }) => {
      const found = field.split(".").reduce<unknown>(
        (place, key) => (place as Record<string, unknown> | undefined)?.[key],
        object,
      );
      return ((found ?? "") === value) === (operator === "=");
    });
  };
}
