/**
 * v1 Endpoints, the older form of EndpointSlices, read as such. Which of the two counts for a Service is decided in
 * `lib/model/endpoint_slices.ts`.
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
  type SliceEndpoint,
  type SlicePort,
} from "../../model/objects.ts";
import { tight } from "../../text/kept.ts";
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
