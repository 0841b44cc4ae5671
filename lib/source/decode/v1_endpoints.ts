/**
 * v1 Endpoints, the older form of EndpointSlices, read as such; and the rule which of the two counts for a Service.
 *
 * @module
 */
import type {
  CoreV1EndpointPort,
  V1EndpointAddress,
  V1Endpoints,
  V1EndpointSubset,
} from "@kubernetes/client-node";
import { parseIp } from "../../model/ip.ts";
import {
  type EndpointSlice,
  FAMILIES,
  type IpFamily,
  type NamespacedName,
  type SliceEndpoint,
  type SlicePort,
} from "../../model/objects.ts";
import { tight } from "../../text/kept.ts";
import { sameObject, type SourceEvent } from "../source.ts";
import type { Raw } from "./api_json.ts";
import {
  asObject,
  checkName,
  checkNoSpecialUse,
  DecodeError,
  decodeList,
  type DecodeOptions,
  inside,
  lastChangeTriggerTimeMs,
  listAt,
  nameOf,
  NO_TEXTS,
  portAt,
  protocolAt,
  refusedEndpointUse,
  sharedTextAt,
  textAt,
} from "./decode_values.ts";
import { quote } from "../../text/quote.ts";

/**
 * Yields the slices that a v1 Endpoints object stands for: one per family; if subsets differ in ports, one per family and
 * subset. The first of a family is named `endpoints/<name>/<family>`, later ones have `/<subset number>` after it.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeEndpoints(raw: unknown, options: DecodeOptions = {}): EndpointSlice[] {
  const object = asObject<V1Endpoints>(raw);
  const { metadata, namespace, name } = nameOf(object, "subdomain", options);
  const address = options.manifest === true ? decodeWrittenAddress : decodeAddress;
  const subsets = decodeList(object, "subsets", (subset) => decodeSubset(subset, address));
  const triggerTimeMs = lastChangeTriggerTimeMs(metadata);
  const slices: EndpointSlice[] = [];
  for (const family of FAMILIES) {
    let first = true;
    for (const [index, subset] of subsets.entries()) {
      const endpoints = subset[family];
      if (endpoints.length === 0) continue;
      const plainName = `endpoints/${name}/${family}`;
      slices.push({
        kind: "EndpointSlice",
        namespace,
        name: first ? plainName : `${plainName}/${index}`,
        addressType: family,
        serviceName: name,
        ports: subset.ports,
        endpoints: tight(endpoints),
        lastChangeTriggerTimeMs: triggerTimeMs,
      });
      first = false;
    }
  }
  return slices;
}

type Subset = Readonly<Record<IpFamily, readonly SliceEndpoint[]>> & { readonly ports: readonly SlicePort[] };

function decodeSubset(
  raw: Raw<V1EndpointSubset>,
  address: (raw: Raw<V1EndpointAddress>) => SubsetAddress,
): Subset {
  const ports = decodeList(raw, "ports", decodePort);
  if (ports.length > 1) requireNames(ports);
  const byFamily: Record<IpFamily, SliceEndpoint[]> = { IPv4: [], IPv6: [] };
  for (const [key, ready] of [["addresses", true], ["notReadyAddresses", false]] as const) {
    if (listAt(raw, key).length === 0) continue;
    for (const { family, ip, nodeName } of decodeList(raw, key, address)) {
      byFamily[family].push({
        address: ip,
        nodeName,
        ready,
        serving: ready,
        terminating: false,
        zoneHints: NO_TEXTS,
        nodeHints: NO_TEXTS,
      });
    }
  }
  return { ...byFamily, ports };
}

function requireNames(ports: readonly SlicePort[]): void {
  const unnamed = ports.findIndex((port) => port.name === "");
  if (unnamed >= 0) throw new DecodeError(`ports[${unnamed}].name`, "is required if there are several ports");
}

function decodePort(raw: Raw<CoreV1EndpointPort>): SlicePort {
  const name = textAt(raw, "name");
  if (name !== "") checkName(name, "label", "name");
  return { name, port: portAt(raw, "port"), protocol: protocolAt(raw, "protocol") };
}

interface SubsetAddress {
  readonly family: IpFamily;
  readonly ip: string;
  readonly nodeName: string;
}

function decodeWrittenAddress(raw: Raw<V1EndpointAddress>): SubsetAddress {
  const address = decodeAddress(raw);
  inside("ip", () => checkNoSpecialUse(address.ip, refusedEndpointUse));
  return address;
}

function decodeAddress(raw: Raw<V1EndpointAddress>): SubsetAddress {
  const ip = textAt(raw, "ip");
  const family = parseIp(ip)?.family;
  if (family === undefined) throw new DecodeError("ip", `must be an IP address, found ${quote(raw.ip)}`);
  return { family, ip, nodeName: sharedTextAt(raw, "nodeName") };
}

interface ServiceSlices {
  /** By slice name. */
  readonly slices: Map<string, EndpointSlice>;
  endpoints: readonly EndpointSlice[];
}

/**
 * Decides, per Service, whether its EndpointSlices or its v1 Endpoints count: the slices do as soon as there is one of a family the
 * proxy knows. Yields the events of the slices that count, in an order that never leaves a Service without endpoints in between
 * (additions first).
 *
 * A source feeds it each object's current state; slices without a Service pass.
 */
export class EndpointsMerger {
  readonly #services = new Map<NamespacedName, ServiceSlices>();

  /** A slice was added, changed (`old` is its former state) or, without `current`, removed. */
  slice(old: EndpointSlice | undefined, current: EndpointSlice | undefined): SourceEvent[] {
    const oldKey = old === undefined ? undefined : serviceKey(old);
    const key = current === undefined ? oldKey : serviceKey(current);
    if (key === undefined) return [];
    if (oldKey === undefined || oldKey === key) {
      return this.#change(key, (record) => replaceSlice(record, old, current));
    }
    // The slice went over to another Service: to those behind us it is one update, whatever else that uncovers or hides.
    const left = this.#change(oldKey, (record) => replaceSlice(record, old, undefined));
    const entered = this.#change(key, (record) => replaceSlice(record, undefined, current));
    return joinMove([...entered, ...left], old, current);
  }

  /** The slices that the Endpoints object `key` now stands for; none if it was removed. */
  endpoints(key: NamespacedName, current: readonly EndpointSlice[]): SourceEvent[] {
    return this.#change(key, (record) => {
      record.endpoints = current;
    });
  }

  /** Whether a slice that this was fed with is one of those that count. */
  isUsed(slice: EndpointSlice): boolean {
    if (!slice.name.startsWith("endpoints/")) return true;
    const record = this.#services.get(serviceKey(slice));
    return record === undefined || effective(record).includes(slice);
  }

  #change(key: NamespacedName, edit: (record: ServiceSlices) => void): SourceEvent[] {
    const record = this.#services.get(key) ?? { slices: new Map(), endpoints: [] };
    const before = effective(record);
    edit(record);
    if (record.slices.size === 0 && record.endpoints.length === 0) this.#services.delete(key);
    else this.#services.set(key, record);
    return [...diffSlices(before, effective(record))];
  }
}

function serviceKey(slice: EndpointSlice): NamespacedName {
  return `${slice.namespace}/${slice.serviceName}`;
}

function replaceSlice(
  record: ServiceSlices,
  old: EndpointSlice | undefined,
  current: EndpointSlice | undefined,
): void {
  if (current !== undefined) record.slices.set(current.name, current);
  else if (old !== undefined) record.slices.delete(old.name);
}

function effective(record: ServiceSlices): readonly EndpointSlice[] {
  const slices = [...record.slices.values()];
  const covered = slices.some((slice) => slice.addressType !== "FQDN");
  return covered ? slices : [...slices, ...record.endpoints];
}

function joinMove(
  events: readonly SourceEvent[],
  old: EndpointSlice | undefined,
  current: EndpointSlice | undefined,
): SourceEvent[] {
  if (old === undefined || current === undefined) return [...events];
  const others = events.filter((event) =>
    !(event.type === "add" && event.object === current) && !(event.type === "delete" && event.old === old)
  );
  return [{ type: "update", old, object: current }, ...others];
}

/** Additions and updates first, then deletions. */
function* diffSlices(
  before: readonly EndpointSlice[],
  after: readonly EndpointSlice[],
): Generator<SourceEvent> {
  const left = new Map(before.map((slice) => [slice.name, slice]));
  for (const object of after) {
    const old = left.get(object.name);
    left.delete(object.name);
    if (old === undefined) yield { type: "add", object };
    else if (old !== object && !sameObject(old, object)) yield { type: "update", old, object };
  }
  for (const old of left.values()) yield { type: "delete", old };
}
