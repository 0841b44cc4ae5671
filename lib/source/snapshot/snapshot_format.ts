/**
 * The form of a snapshot file: a header line, an object a line, and the checksum of all that.
 *
 * ```
 * {"kproxySnapshot":1,"savedAt":"2026-11-21T17:00:00.000Z","node":"n1","server":"https://10.0.0.1:6443"}
 * {"kind":"Node",…}
 * {"kind":"Service",…}
 * {"sha256":"…"}
 * ```
 *
 * @module
 */
import { createHash } from "node:crypto";
import type { ApiObject, EndpointSlice, NodeObject, Service, SliceEndpoint } from "../../model/objects.ts";
import { LineCutter } from "../../text/lines.ts";
import { decodeKind, describeItem } from "../decode/decode.ts";
import { asObject, DecodeError, notAmong } from "../decode/decode_values.ts";
import type { Rejection } from "../source.ts";
import { isRecord } from "../../text/record.ts";
import { quote } from "../../text/quote.ts";
import type { V1Endpoint, V1EndpointSlice, V1Node, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import type { JsonPart } from "../decode/api_json.ts";
import { isoTime } from "../../text/words.ts";

/** Header of a snapshot. */
export interface SnapshotHeader {
  /** Time of writing, in milliseconds since the epoch. */
  readonly savedAtMs: number;
  /** Name of the own Node. */
  readonly node: string;
  /** Name of the objects' source: the URL of an API server. */
  readonly server: string;
}

/** Node and server that a snapshot must be of. */
export type SnapshotOwner = Pick<SnapshotHeader, "node" | "server">;

/** A snapshot that was read whole. */
export interface Snapshot extends SnapshotHeader {
  readonly objects: readonly ApiObject[];
  /** Objects that cannot be read although the file is intact: another release wrote them. */
  readonly rejections: readonly Rejection[];
}

/** A file that cannot serve as a snapshot; the message says why and continues "the file …". */
export class SnapshotError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "SnapshotError";
  }
}

const FORM = 1;
/** About as much as is made, and written, at once: neither may hold up the loop. */
const PIECE_CHARACTERS = 64 * 1024;
const MAX_HEADER_BYTES = 4096;
const LINE_END = Uint8Array.of(10);

/** Yields the file in pieces. The objects are looked at as the pieces are taken. */
export function* snapshotPieces(
  { savedAtMs, node, server }: SnapshotHeader,
  objects: Iterable<ApiObject>,
): Generator<Uint8Array<ArrayBuffer>> {
  const hash = createHash("sha256");
  const encoder = new TextEncoder();
  const savedAt = isoTime(savedAtMs);
  let text = `${JSON.stringify({ kproxySnapshot: FORM, savedAt, node, server })}\n`;
  for (const object of objects) {
    text += `${JSON.stringify(encodeSnapshotObject(object))}\n`;
    if (text.length < PIECE_CHARACTERS) continue;
    const piece = encoder.encode(text);
    hash.update(piece);
    yield piece;
    text = "";
  }
  hash.update(text);
  yield encoder.encode(`${text}${JSON.stringify({ sha256: hash.digest("hex") })}\n`);
}

/** Reads a snapshot in whatever pieces it comes. */
export class SnapshotReader {
  readonly #owner: SnapshotOwner | null;
  readonly #where: string;
  readonly #hash = createHash("sha256");
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  readonly #objects: ApiObject[] = [];
  readonly #rejections: Rejection[] = [];
  readonly #cutter = new LineCutter((bytes, start, end) => this.#takeLine(bytes.subarray(start, end)));
  #lines = 0;
  #header: SnapshotHeader | undefined;
  #isComplete = false;

  /**
   * @param owner null: a snapshot of any node and server is taken
   * @param where only quoted in the rejections
   */
  constructor(owner: SnapshotOwner | null, where: string) {
    this.#owner = owner;
    this.#where = where;
  }

  /** Takes the next piece. @throws {SnapshotError} if this is no snapshot for the owner */
  take(piece: Uint8Array): void {
    this.#cutter.write(piece);
    if (this.#header === undefined && this.#cutter.openBytes > MAX_HEADER_BYTES) throw notOurs();
  }

  /** The whole snapshot. @throws {SnapshotError} if the file ended too early */
  end(): Snapshot {
    if (this.#header === undefined) {
      throw this.#cutter.openBytes === 0 ? new SnapshotError("is empty") : notOurs();
    }
    if (!this.#isComplete || this.#cutter.openBytes > 0) {
      throw new SnapshotError("is not complete: its end is missing");
    }
    return { ...this.#header, objects: this.#objects, rejections: this.#rejections };
  }

  #takeLine(line: Uint8Array): void {
    if (this.#isComplete) throw new SnapshotError("goes on after its end");
    this.#lines++;
    const raw = this.#parse(line);
    if (this.#header === undefined) {
      this.#header = headerOf(raw, this.#owner);
    } else if (isRecord(raw) && "sha256" in raw) {
      if (raw["sha256"] !== this.#hash.digest("hex")) {
        throw new SnapshotError("is damaged: its checksum is wrong");
      }
      this.#isComplete = true;
      return;
    } else {
      this.#takeObject(raw);
    }
    this.#hash.update(line).update(LINE_END);
  }

  #parse(line: Uint8Array): unknown {
    try {
      return JSON.parse(this.#decoder.decode(line));
    } catch (cause) {
      if (this.#header === undefined) throw notOurs();
      throw new SnapshotError(`is damaged: line ${this.#lines} cannot be read`, { cause });
    }
  }

  #takeObject(raw: unknown): void {
    try {
      this.#objects.push(decodeSnapshotObject(raw));
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      const object = describeItem({ raw, kind: isRecord(raw) ? raw["kind"] : undefined });
      this.#rejections.push({ where: `${this.#where}:${this.#lines}`, object, message: error.message });
    }
  }
}

function notOurs(): SnapshotError {
  return new SnapshotError("is no snapshot of kproxy");
}

function headerOf(raw: unknown, wanted: SnapshotOwner | null): SnapshotHeader {
  if (!isRecord(raw) || typeof raw["kproxySnapshot"] !== "number") throw notOurs();
  const { kproxySnapshot: form, savedAt, node, server } = raw;
  if (form !== FORM) {
    const age = form > FORM ? "a newer" : "an older";
    throw new SnapshotError(`was written by ${age} release: it has form ${form}, this release reads ${FORM}`);
  }
  const savedAtMs = typeof savedAt === "string" ? Date.parse(savedAt) : NaN;
  if (Number.isNaN(savedAtMs)) throw new SnapshotError("does not say when it was written");
  if (typeof node !== "string" || typeof server !== "string") {
    throw new SnapshotError("does not say whose it is");
  }
  const owner = wanted ?? { node, server };
  if (node !== owner.node) {
    throw new SnapshotError(`is of another node: ${quote(node)}, this one is ${quote(owner.node)}`);
  }
  if (server !== owner.server) {
    throw new SnapshotError(`is of another API server: ${quote(server)}, this one is ${quote(owner.server)}`);
  }
  return { savedAtMs, node: owner.node, server: owner.server };
}

const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
const KINDS = ["Service", "EndpointSlice", "Node", "ServiceCIDR"] as const;

/** Fields of an API object that a snapshot keeps. */
type SnapshotObject =
  | JsonPart<V1Service>
  | JsonPart<V1EndpointSlice>
  | JsonPart<V1Node>
  | JsonPart<V1ServiceCIDR>;

/** API object that {@linkcode decodeSnapshotObject} reads as the same object, once it is JSON, without undefined fields. */
export function encodeSnapshotObject(object: ApiObject): SnapshotObject {
  switch (object.kind) {
    case "Service":
      return encodeService(object);
    case "EndpointSlice":
      return encodeSlice(object);
    case "Node":
      return encodeNode(object);
    case "ServiceCIDR":
      return { kind: object.kind, metadata: { name: object.name }, spec: { cidrs: object.cidrs } };
  }
}

/**
 * Reads what {@linkcode encodeSnapshotObject} made.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeSnapshotObject(raw: unknown): ApiObject {
  const { kind } = asObject<V1EndpointSlice>(raw);
  const known = KINDS.find((one) => one === kind);
  if (known === undefined) throw notAmong("kind", KINDS, kind);
  return decodeKind(known, raw);
}

function encodeService(
  {
    kind,
    namespace,
    name,
    uid,
    createdAtSeconds,
    annotations,
    affinityTimeoutSeconds,
    loadBalancerIngress,
    ...spec
  }: Service,
): JsonPart<V1Service> {
  return {
    kind,
    metadata: {
      namespace,
      name,
      uid: uid === "" ? undefined : uid,
      creationTimestamp: createdAtSeconds === null ? undefined : isoTime(createdAtSeconds * 1000),
      annotations,
    },
    spec: { ...spec, sessionAffinityConfig: { clientIP: { timeoutSeconds: affinityTimeoutSeconds } } },
    status: loadBalancerIngress.length === 0 ? undefined : { loadBalancer: { ingress: loadBalancerIngress } },
  };
}

function encodeSlice(
  { kind, namespace, name, addressType, serviceName, ports, endpoints, lastChangeTriggerTimeMs: timeMs }:
    EndpointSlice,
): JsonPart<V1EndpointSlice> {
  const annotations = timeMs === null ? {} : { [TRIGGER_TIME_ANNOTATION]: isoTime(timeMs) };
  const labels = { "kubernetes.io/service-name": serviceName };
  return {
    kind,
    metadata: { namespace, name, labels, annotations },
    addressType,
    ports,
    endpoints: endpoints.map(encodeEndpoint),
  };
}

/** Leaves default values out: there may be 100,000 endpoints and more. */
function encodeEndpoint(endpoint: SliceEndpoint): JsonPart<V1Endpoint> {
  const { address, nodeName, ready, serving, terminating, zoneHints, nodeHints } = endpoint;
  const isPlain = ready && serving && !terminating;
  const isHinted = zoneHints.length > 0 || nodeHints.length > 0;
  return {
    addresses: [address],
    nodeName: nodeName === "" ? undefined : nodeName,
    conditions: isPlain ? undefined : { ready, serving, terminating },
    hints: isHinted ? { forZones: namesOnly(zoneHints), forNodes: namesOnly(nodeHints) } : undefined,
  };
}

function namesOnly(names: readonly string[]): readonly { readonly name: string }[] {
  return names.map((name) => ({ name }));
}

function encodeNode(
  { kind, name, labels, podCIDRs, addresses, taintKeys, deleting }: NodeObject,
): JsonPart<V1Node> {
  return {
    kind,
    metadata: { name, labels, deletionTimestamp: deleting ? isoTime(0) : undefined },
    spec: { podCIDRs, taints: taintKeys.map((key) => ({ key })) },
    status: { addresses },
  };
}
