/**
 * v1 Services, decoded.
 *
 * @module
 */
import type {
  V1LoadBalancerIngress,
  V1ObjectMeta,
  V1Service,
  V1ServicePort,
  V1ServiceSpec,
  V1ServiceStatus,
} from "@kubernetes/client-node";
import { GRACEFUL_ANNOTATION, SCHEDULER_ANNOTATION } from "../../model/ipvs_annotations.ts";
import { parseCidr, parseIp, specialUse } from "../../model/ip.ts";
import {
  FAMILIES,
  type IpFamily,
  type LoadBalancerIngress,
  type Service,
  type ServicePortSpec,
  type TrafficPolicy,
} from "../../model/objects.ts";
import { tight } from "../../text/kept.ts";
import type { Raw } from "./api_json.ts";
import {
  asObject,
  checkNoSpecialUse,
  choiceAt,
  DecodeError,
  decodeList,
  type DecodeOptions,
  inside,
  integerAt,
  listAt,
  nameOf,
  notAmong,
  objectAt,
  portAt,
  portNameAt,
  protocolAt,
  textAt,
  textsAt,
} from "./decode_values.ts";
import { quote } from "../../text/quote.ts";

const SERVICE_TYPES: readonly Service["type"][] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
const POLICIES: readonly TrafficPolicy[] = ["Cluster", "Local"];
const AFFINITIES: readonly Service["sessionAffinity"][] = ["None", "ClientIP"];
const DEFAULT_AFFINITY_TIMEOUT_SECONDS = 10800;
const MAX_AFFINITY_TIMEOUT_SECONDS = 86400;
/** Beginning of an RFC 3339 time: `Date.parse` also reads other texts. */
const TIMESTAMP_REGEXP = /^\d{4}-\d\d-\d\dT/;

/**
 * Decodes a v1 Service.
 *
 * @throws {DecodeError} naming the first field that cannot be read
 */
export function decodeService(raw: unknown, options: DecodeOptions = {}): Service {
  const object = asObject<V1Service>(raw);
  const { metadata, namespace, name } = nameOf(object, "label", options);
  const spec = objectAt(object, "spec");
  const fields = inside("spec", () => decodeServiceSpec(spec));
  if (options.manifest === true) inside("spec", () => checkWrittenService(fields));
  return {
    kind: "Service",
    namespace,
    name,
    uid: inside("metadata", () => textAt(metadata, "uid")),
    createdAtSeconds: inside("metadata", () => createdAtSeconds(metadata)),
    ...annotationsOf(metadata),
    ...fields,
    loadBalancerIngress: inside("status", () => decodeIngress(objectAt(object, "status"), options)),
  };
}

type ServiceSpec = Omit<
  Service,
  "kind" | "namespace" | "name" | "uid" | "createdAtSeconds" | "annotations" | "loadBalancerIngress"
>;

function createdAtSeconds(metadata: Raw<V1ObjectMeta>): number | null {
  const text = textAt(metadata, "creationTimestamp");
  const ms = TIMESTAMP_REGEXP.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(ms) ? null : Math.floor(ms / 1000);
}

/** Only annotations that the proxy reads: others may be long, and change without any effect on it. */
function annotationsOf(metadata: Raw<V1ObjectMeta>): Pick<Service, "annotations"> {
  const all = inside("metadata", () => objectAt(metadata, "annotations"));
  const read = [SCHEDULER_ANNOTATION, GRACEFUL_ANNOTATION].filter((name) => name in all);
  if (read.length === 0) return {};
  const text = (name: string): string =>
    inside("metadata", () => inside("annotations", () => textAt(all, name)));
  return { annotations: Object.fromEntries(read.map((name) => [name, text(name)])) };
}

function decodeServiceSpec(spec: Raw<V1ServiceSpec>): ServiceSpec {
  const clusterIPs = textsAt(spec, "clusterIPs", checkClusterIP);
  const clusterIP = textAt(spec, "clusterIP", clusterIPs[0]);
  if (clusterIP !== "") inside("clusterIP", () => checkClusterIP(clusterIP));
  const allIPs = clusterIPs.length === 0 && clusterIP !== "" ? [clusterIP] : clusterIPs;
  if (allIPs.length > 0 && allIPs[0] !== clusterIP) {
    throw new DecodeError(
      "clusterIPs[0]",
      `must be clusterIP, ${quote(clusterIP)}, found ${quote(allIPs[0])}`,
    );
  }
  const sessionAffinity = choiceAt(spec, "sessionAffinity", AFFINITIES, "None");
  return {
    type: choiceAt(spec, "type", SERVICE_TYPES, "ClusterIP"),
    // The same string as in `clusterIPs`, so that it is stored once.
    clusterIP: allIPs[0] ?? clusterIP,
    clusterIPs: allIPs,
    ipFamilies: decodeFamilies(spec, allIPs),
    ports: decodeList(spec, "ports", decodeServicePort),
    externalIPs: textsAt(spec, "externalIPs"),
    loadBalancerSourceRanges: textsAt(spec, "loadBalancerSourceRanges"),
    sessionAffinity,
    affinityTimeoutSeconds: inside("sessionAffinityConfig", () => affinityTimeoutSeconds(spec)),
    externalTrafficPolicy: choiceAt(spec, "externalTrafficPolicy", POLICIES, "Cluster"),
    internalTrafficPolicy: choiceAt(spec, "internalTrafficPolicy", POLICIES, "Cluster"),
    healthCheckNodePort: integerAt(spec, "healthCheckNodePort", 0, 65535, 0),
  };
}

function checkClusterIP(text: string): void {
  if (text === "None" || parseIp(text) !== null) return;
  throw new DecodeError("", `must be an IP address or None, found ${quote(text)}`);
}

/** Family lists of single-stack Services, shared by all of them. */
const ONE_FAMILY: Readonly<Record<IpFamily, readonly IpFamily[]>> = {
  IPv4: Object.freeze<IpFamily[]>(["IPv4"]),
  IPv6: Object.freeze<IpFamily[]>(["IPv6"]),
};

/** The families as written; without any, those of several cluster IPs (a single one's family is read from its text later). */
function decodeFamilies(spec: Raw<V1ServiceSpec>, clusterIPs: readonly string[]): readonly IpFamily[] {
  const written = listAt(spec, "ipFamilies");
  if (written.length === 0) {
    if (clusterIPs.length < 2) return [];
    return tight(clusterIPs.map((ip) => parseIp(ip)?.family).filter((family) => family !== undefined));
  }
  const families = written.map((value, index) => {
    const family = FAMILIES.find((known) => known === value);
    if (family === undefined) throw notAmong(`ipFamilies[${index}]`, FAMILIES, value);
    const ip = clusterIPs[index];
    const found = ip === undefined ? undefined : parseIp(ip)?.family;
    if (found !== undefined && found !== family) {
      throw new DecodeError(`clusterIPs[${index}]`, `must be ${family} as in ipFamilies, found ${quote(ip)}`);
    }
    return family;
  });
  const [family] = families;
  return family !== undefined && families.length === 1 ? ONE_FAMILY[family] : families;
}

function affinityTimeoutSeconds(spec: Raw<V1ServiceSpec>): number {
  const clientIP = objectAt(objectAt(spec, "sessionAffinityConfig"), "clientIP");
  return inside("clientIP", () =>
    integerAt(
      clientIP,
      "timeoutSeconds",
      1,
      MAX_AFFINITY_TIMEOUT_SECONDS,
      DEFAULT_AFFINITY_TIMEOUT_SECONDS,
    ));
}

function decodeServicePort(raw: Raw<V1ServicePort>): ServicePortSpec {
  return {
    name: portNameAt(raw) ?? "",
    protocol: protocolAt(raw, "protocol"),
    port: portAt(raw, "port"),
    nodePort: integerAt(raw, "nodePort", 0, 65535, 0),
  };
}

function decodeIngress(status: Raw<V1ServiceStatus>, options: DecodeOptions): readonly LoadBalancerIngress[] {
  const decode = (raw: Raw<V1LoadBalancerIngress>): LoadBalancerIngress => {
    const ip = textAt(raw, "ip");
    if (options.manifest === true && ip !== "") inside("ip", () => checkIp(ip));
    return { ip, ipMode: textAt(raw, "ipMode", "VIP") };
  };
  return inside("loadBalancer", () => {
    const entries = decodeList(objectAt(status, "loadBalancer"), "ingress", decode);
    return tight(entries.filter((entry) => entry.ip !== ""));
  });
}

function checkIp(text: string): void {
  if (parseIp(text) === null) throw new DecodeError("", `must be an IP address, found ${quote(text)}`);
}

/** Refuses Services that an API server would refuse: nothing else checks a file before it becomes rules. */
function checkWrittenService(spec: ServiceSpec): void {
  if (spec.type === "ExternalName") return;
  if (spec.clusterIP === "") {
    throw new DecodeError("clusterIP", "is required in a file, where nothing allocates one (None: headless)");
  }
  for (const [index, text] of spec.clusterIPs.entries()) {
    inside(index === 0 ? "clusterIP" : `clusterIPs[${index}]`, () => checkNoSpecialUse(text, specialUse));
  }
  for (const [index, text] of spec.externalIPs.entries()) {
    inside(`externalIPs[${index}]`, () => checkIp(text));
  }
  for (const [index, text] of spec.loadBalancerSourceRanges.entries()) {
    if (parseCidr(text.trim()) !== null) continue;
    throw new DecodeError(
      `loadBalancerSourceRanges[${index}]`,
      `must be a network such as 10.0.0.0/8, found ${quote(text)}`,
    );
  }
  if (spec.clusterIP !== "None") checkWrittenPorts(spec);
}

function checkWrittenPorts({ ports, type }: ServiceSpec): void {
  if (ports.length === 0) throw new DecodeError("ports", "must list at least one port");
  const names = new Map<string, number>();
  const numbers = new Map<string, number>();
  for (const [index, port] of ports.entries()) {
    if (port.name === "" && ports.length > 1) {
      throw new DecodeError(`ports[${index}].name`, "is required if there are several ports");
    }
    if (port.nodePort !== 0 && type === "ClusterIP") {
      throw new DecodeError(`ports[${index}].nodePort`, "must not be set if the type is ClusterIP");
    }
    checkUnique(names, port.name, index, "name", port.name);
    checkUnique(numbers, `${port.port}/${port.protocol}`, index, "port", `${port.port}/${port.protocol}`);
  }
}

function checkUnique(
  seen: Map<string, number>,
  key: string,
  index: number,
  field: string,
  found: string,
): void {
  const first = seen.get(key);
  if (first !== undefined) {
    throw new DecodeError(`ports[${index}].${field}`, `${found} is already used by ports[${first}]`);
  }
  seen.set(key, index);
}
