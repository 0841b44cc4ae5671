/**
 * API objects (JSON, or YAML already read) → the proxy's own objects: checked, defaulted, and stripped of everything the
 * proxy never reads. Nothing of the raw object is kept but texts.
 *
 * @module
 */
import type {
  DiscoveryV1EndpointPort,
  V1Endpoint,
  V1EndpointHints,
  V1EndpointSlice,
  V1Node,
  V1NodeSpec,
  V1NodeStatus,
  V1ObjectMeta,
  V1Service,
  V1ServiceCIDR,
} from "@kubernetes/client-node";
import { closestWord } from "../../config/suggest.ts";
import { parseCidr, parseIp } from "../../model/ip.ts";
import type {
  ApiObject,
  EndpointSlice,
  IpFamily,
  NodeObject,
  ServiceCidr,
  SliceEndpoint,
  SlicePort,
} from "../../model/objects.ts";
import type { Rejection } from "../source.ts";
import type { Raw, RawKubernetesObject, RawList, ReadModels, WatchedModels } from "./api_json.ts";
import {
  asObject,
  booleanAt,
  checkNoSpecialUse,
  choiceAt,
  DecodeError,
  decodeList,
  type DecodeOptions,
  firstTextAt,
  inside,
  integerAt,
  isAbsent,
  lastChangeTriggerTimeMs,
  nameOf,
  NO_TEXTS,
  notAmong,
  objectAt,
  portAt,
  portNameAt,
  protocolAt,
  refusedEndpointUse,
  requiredName,
  sharedTextAt,
  textAt,
  textsAt,
} from "./decode_values.ts";
import { decodeService } from "./decode_service.ts";
import { decodeEndpoints } from "./v1_endpoints.ts";
import { quote } from "../../text/quote.ts";

export { decodeEndpoints, DecodeError, type DecodeOptions, decodeService };

const ADDRESS_TYPES = ["IPv4", "IPv6", "FQDN"] as const;
const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
const HEADLESS_LABEL = "service.kubernetes.io/headless";
const PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name";

/**
 * Decodes a discovery.k8s.io/v1 EndpointSlice.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeEndpointSlice(raw: unknown, options: DecodeOptions = {}): EndpointSlice {
  const manifest = options.manifest === true;
  const object = asObject<V1EndpointSlice>(raw);
  const { metadata, namespace, name } = nameOf(object, "subdomain", options);
  const addressType = choiceAt(object, "addressType", ADDRESS_TYPES, "FQDN");
  if (isAbsent(object.addressType) || object.addressType === "") {
    throw new DecodeError("addressType", "is required");
  }
  const serviceName = inside("metadata", () => decodeServiceNameLabel(metadata, manifest));
  return {
    kind: "EndpointSlice",
    namespace,
    name,
    addressType,
    serviceName,
    ports: decodeList(object, "ports", manifest ? decodeWrittenSlicePort : decodeSlicePort),
    endpoints: decodeList(object, "endpoints", endpointDecoder(addressType, manifest)),
    lastChangeTriggerTimeMs: inside("metadata", () => lastChangeTriggerTimeMs(metadata)),
  };
}

function decodeServiceNameLabel(metadata: Raw<V1ObjectMeta>, required: boolean): string {
  const value = labelAt(objectAt(metadata, "labels"), SERVICE_NAME_LABEL);
  if (value === "" && required) {
    throw new DecodeError(`labels["${SERVICE_NAME_LABEL}"]`, "is required: it names the Service");
  }
  return value;
}

type RawLabels = Raw<NonNullable<V1ObjectMeta["labels"]>>;

function labelAt(labels: RawLabels, key: string): string {
  const value = labels[key];
  if (typeof value === "string") return value;
  if (isAbsent(value)) return "";
  throw new DecodeError(`labels[${quote(key)}]`, `must be a string, found ${quote(value)}`);
}

function decodeSlicePort(raw: Raw<DiscoveryV1EndpointPort>): SlicePort {
  // The API server lets any number through; kube-proxy skips 0 like an absent one.
  const port = integerAt(raw, "port", 0, 65535, 0);
  return { name: portNameAt(raw), port: port === 0 ? null : port, protocol: protocolAt(raw, "protocol") };
}

function decodeWrittenSlicePort(raw: Raw<DiscoveryV1EndpointPort>): SlicePort {
  const port = portAt(raw, "port");
  const { name, protocol } = decodeSlicePort(raw);
  return { name: name ?? "", port, protocol };
}

/** Reads the endpoints of slices of one address type. */
function endpointDecoder(
  type: typeof ADDRESS_TYPES[number],
  manifest: boolean,
): (raw: Raw<V1Endpoint>) => SliceEndpoint {
  if (type === "FQDN") return (raw) => decodeSliceEndpoint(raw);
  const check = (text: string): void => {
    checkFamily(text, type);
    if (manifest) checkNoSpecialUse(text, refusedEndpointUse);
  };
  return (raw) => decodeSliceEndpoint(raw, check);
}

function checkFamily(text: string, family: IpFamily): void {
  if (parseIp(text)?.family === family) return;
  throw new DecodeError("", `must be an ${family} address, found ${quote(text)}`);
}

function decodeSliceEndpoint(
  raw: Raw<V1Endpoint>,
  check?: (text: string) => void,
): SliceEndpoint {
  // A consumer of slices uses the first address only, as Kubernetes documents; the others must be right all the same.
  const address = firstTextAt(raw, "addresses", check);
  if (address === undefined) throw new DecodeError("addresses", "must list at least one address");
  const conditions = objectAt(raw, "conditions");
  const hints = objectAt(raw, "hints");
  const { ready, serving, terminating } = inside("conditions", () => ({
    ready: booleanAt(conditions, "ready", true),
    serving: booleanAt(conditions, "serving", true),
    terminating: booleanAt(conditions, "terminating", false),
  }));
  const hinted = !isAbsent(raw.hints);
  return {
    address,
    nodeName: sharedTextAt(raw, "nodeName"),
    ready,
    serving,
    terminating,
    zoneHints: hinted ? inside("hints", () => hintNames(hints, "forZones")) : NO_TEXTS,
    nodeHints: hinted ? inside("hints", () => hintNames(hints, "forNodes")) : NO_TEXTS,
  };
}

function hintNames(hints: Raw<V1EndpointHints>, key: "forZones" | "forNodes"): readonly string[] {
  const names = decodeList(hints, key, (raw) => sharedTextAt(raw, "name"));
  return names.length === 0 ? NO_TEXTS : names;
}

/**
 * Decodes a v1 Node.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeNode(raw: unknown): NodeObject {
  const object = asObject<V1Node>(raw);
  const metadata = objectAt(object, "metadata");
  const spec = objectAt(object, "spec");
  const status = objectAt(object, "status");
  return {
    kind: "Node",
    name: requiredName(metadata, "name", "subdomain"),
    labels: inside("metadata", () => copyLabels(objectAt(metadata, "labels"))),
    podCIDRs: inside("spec", () => decodePodCidrs(spec)),
    addresses: inside("status", () => decodeNodeAddresses(status)),
    taintKeys: inside("spec", () => decodeList(spec, "taints", (taint) => textAt(taint, "key"))),
    deleting: !isAbsent(metadata.deletionTimestamp),
  };
}

function copyLabels(labels: RawLabels): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.keys(labels).map((key) => [key, labelAt(labels, key)]));
}

function decodePodCidrs(spec: Raw<V1NodeSpec>): readonly string[] {
  const check = (text: string): void => {
    if (parseCidr(text) === null) {
      throw new DecodeError("", `must be a network such as 10.0.0.0/8, found ${quote(text)}`);
    }
  };
  const podCIDRs = textsAt(spec, "podCIDRs", check);
  if (podCIDRs.length > 0) return podCIDRs;
  const podCIDR = textAt(spec, "podCIDR");
  if (podCIDR === "") return podCIDRs;
  inside("podCIDR", () => check(podCIDR));
  return [podCIDR];
}

function decodeNodeAddresses(status: Raw<V1NodeStatus>): NodeObject["addresses"] {
  return decodeList(status, "addresses", (raw) => ({
    type: textAt(raw, "type"),
    address: textAt(raw, "address"),
  }));
}

/**
 * Decodes a networking.k8s.io/v1 ServiceCIDR.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeServiceCidr(raw: unknown): ServiceCidr {
  const object = asObject<V1ServiceCIDR>(raw);
  const name = requiredName(objectAt(object, "metadata"), "name", "subdomain");
  const check = (text: string): void => {
    const cidr = parseCidr(text);
    if (cidr === null) {
      throw new DecodeError("", `must be a network such as 10.96.0.0/16, found ${quote(text)}`);
    }
    // Packets to unallocated addresses in it are dropped: here that would be all packets.
    if (cidr.prefixLength === 0) throw new DecodeError("", `must not be all addresses, found ${quote(text)}`);
  };
  const cidrs = inside("spec", () => textsAt(objectAt(object, "spec"), "cidrs", check));
  return { kind: "ServiceCIDR", name, cidrs: cidrs.map((cidr) => parseCidr(cidr)?.text ?? cidr) };
}

/**
 * Reason why kube-proxy's selectors exclude this raw object: a Service of another proxy, a headless Service, a slice or Endpoints
 * of a headless Service; null if they do not. For sources without a server that applies the selectors.
 */
export function exclusionOf(raw: RawKubernetesObject, kind: string): string | null {
  const labels = objectAt(objectAt(raw, "metadata"), "labels");
  if (kind !== "Service") return HEADLESS_LABEL in labels ? "belongs to a headless Service" : null;
  if (PROXY_NAME_LABEL in labels) {
    return `is left to another proxy by its label ${PROXY_NAME_LABEL}: ${String(labels[PROXY_NAME_LABEL])}`;
  }
  return objectAt(raw as Raw<V1Service>, "spec").clusterIP === "None"
    ? "is headless: it has no cluster IP, and DNS answers with its endpoints"
    : null;
}

/** One object out of a document, with its place in it. */
export interface RawItem {
  readonly raw: unknown;
  /** `""`, or `items[3]` in a list. */
  readonly path: string;
  /** Kind and version the item has by itself or, in `ServiceList` and the like, from the list. */
  readonly kind: unknown;
  readonly apiVersion: unknown;
}

const KINDS: Readonly<Record<keyof ReadModels, { apiVersion: string; decode: Decoder }>> = {
  Service: { apiVersion: "v1", decode: (raw, options) => [decodeService(raw, options)] },
  EndpointSlice: {
    apiVersion: "discovery.k8s.io/v1",
    decode: (raw, options) => [decodeEndpointSlice(raw, options)],
  },
  Endpoints: { apiVersion: "v1", decode: decodeEndpoints },
  Node: { apiVersion: "v1", decode: (raw) => [decodeNode(raw)] },
  ServiceCIDR: { apiVersion: "networking.k8s.io/v1", decode: (raw) => [decodeServiceCidr(raw)] },
};
type Decoder = (raw: unknown, options: DecodeOptions) => ApiObject[];

/** The `apiVersion` of a kind. */
export function apiVersionOf(kind: keyof ReadModels): string {
  return KINDS[kind].apiVersion;
}

/**
 * Decodes an object whose kind is known.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeKind(kind: keyof WatchedModels, raw: unknown): ApiObject {
  const [object] = KINDS[kind].decode(raw, {});
  return object!;
}

const KIND_NAMES: readonly string[] = Object.keys(KINDS);
const ALL_KIND_NAMES: readonly string[] = [...KIND_NAMES, ...KIND_NAMES.map((kind) => `${kind}List`), "List"];
const MAX_LIST_DEPTH = 8;

/** Yields the objects of a document: itself, or the items of its list, however deep. */
export function* itemsOf(raw: unknown, path = "", depth = 0): Generator<RawItem> {
  const { kind, apiVersion } = (typeof raw === "object" && raw !== null ? raw : {}) as RawList;
  const isList = typeof kind === "string" && kind.endsWith("List") && ALL_KIND_NAMES.includes(kind);
  const items = isList ? (raw as RawList).items : undefined;
  if (!isList || depth === MAX_LIST_DEPTH || !(Array.isArray(items) || isAbsent(items))) {
    yield { raw, path, kind, apiVersion };
    return;
  }
  const itemKind = kind.slice(0, -"List".length);
  for (const [index, item] of (items ?? []).entries()) {
    const itemPath = `${path === "" ? "" : `${path}.`}items[${index}]`;
    for (const found of itemsOf(item, itemPath, depth + 1)) {
      const inherits = itemKind !== "" && found.raw === item && found.kind === undefined;
      yield inherits ? { ...found, kind: itemKind, apiVersion: found.apiVersion ?? apiVersion } : found;
    }
  }
}

const OWN_VERSION = /^(v\d|(discovery|networking)\.k8s\.io\/)/;

/**
 * Kind of an item that the proxy does not read (a Deployment, a ConfigMap); undefined if it is a kind that the proxy
 * reads, is nearly written like one, or is missing.
 */
export function foreignKind({ kind, apiVersion }: Pick<RawItem, "kind" | "apiVersion">): string | undefined {
  if (typeof kind !== "string" || !/^[A-Z][A-Za-z0-9]*$/.test(kind)) return undefined;
  const lowerCase = kind.toLowerCase();
  if (ALL_KIND_NAMES.some((name) => name.toLowerCase() === lowerCase)) return undefined;
  // A Role is two letters away from a Node, but its API group has nothing for the proxy.
  if (typeof apiVersion === "string" && !OWN_VERSION.test(apiVersion)) return kind;
  const isList = lowerCase.endsWith("list");
  const meant = isList
    ? closestWord(kind.slice(0, -"List".length), KIND_NAMES)
    : closestWord(kind, ALL_KIND_NAMES);
  return meant === undefined ? kind : undefined;
}

/**
 * Decodes one item of {@linkcode itemsOf}. An Endpoints object gives a slice per family.
 *
 * @throws {DecodeError} with the path inside the document
 */
export function decodeItem(item: RawItem, options: DecodeOptions = {}): ApiObject[] {
  return inside(item.path, () => {
    asObject(item.raw);
    if (isAbsent(item.kind)) throw new DecodeError("kind", "is required");
    const known = typeof item.kind === "string" && Object.hasOwn(KINDS, item.kind)
      ? KINDS[item.kind as keyof ReadModels]
      : undefined;
    if (known === undefined) {
      if (typeof item.kind === "string" && ALL_KIND_NAMES.includes(item.kind)) {
        throw new DecodeError("items", "must be a list of objects");
      }
      throw notAmong("kind", ALL_KIND_NAMES, item.kind, `${KIND_NAMES.join(", ")} or a list of them`);
    }
    if (isAbsent(item.apiVersion)) throw new DecodeError("apiVersion", `is required (${known.apiVersion})`);
    if (item.apiVersion !== known.apiVersion) {
      throw notAmong("apiVersion", [known.apiVersion], item.apiVersion);
    }
    return known.decode(item.raw, options);
  });
}

/** `Service shop/web`, as far as the raw object has them; on one line whatever is in it. */
export function describeItem({ raw, kind }: Pick<RawItem, "raw" | "kind">): string {
  const { name, namespace } = rawNameOf(raw);
  const subject = typeof kind === "string" && kind !== "" ? word(kind) : "object";
  if (typeof name !== "string" || name === "") return `${subject} without a name`;
  return `${subject} ${word(typeof namespace === "string" ? `${namespace}/${name}` : name)}`;
}

/** Name and namespace of an unchecked value: it may be no object, and they may be no texts. */
export function rawNameOf(raw: unknown): Pick<Raw<V1ObjectMeta>, "name" | "namespace"> {
  const { metadata } = Object(raw) as RawKubernetesObject;
  const { name, namespace } = Object(metadata) as Raw<V1ObjectMeta>;
  return { name, namespace };
}

function word(text: string): string {
  return /^[!-~]{1,320}$/.test(text) ? text : quote(text);
}

/**
 * Decodes a document: an object or a list of them. Objects that cannot be read are rejected one by one; the others
 * are kept. `where` is only quoted in the rejections.
 */
export function decodeObject(
  raw: unknown,
  where: string,
  options: DecodeOptions = {},
): { objects: ApiObject[]; rejections: Rejection[] } {
  const objects: ApiObject[] = [];
  const rejections: Rejection[] = [];
  for (const item of itemsOf(raw)) {
    try {
      objects.push(...decodeItem(item, options));
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      rejections.push({ where, object: describeItem(item), message: error.message });
    }
  }
  return { objects, rejections };
}
