/**
 * From a Service to its ports in one IP family.
 *
 * @module
 */
import { AddressPolicy, type PolicyField } from "./address_policy.ts";
import { type Ip, isLoopback, parseCidr, parseIp, specialUse } from "./ip.ts";
import { ipvsAnnotations, NO_IPVS_ANNOTATIONS } from "./ipvs_annotations.ts";
import { namespacedName, servicePortKey, servicePortText } from "./names.ts";
import type { IpFamily, LoadBalancerIngress, Service } from "./objects.ts";
import { tight } from "../text/kept.ts";
import { own, type Sentence, sentence } from "../text/quote.ts";
import type { ServicePort } from "./state.ts";

/** Receives one readable line about a part of an object that the proxy leaves out. */
export type Report = (problem: string) => void;

/**
 * Receives each address that a Service may not have, e.g. `external IP 127.0.0.1`, and why.
 */
export type ReportInvalid = (destination: string, reason: string) => void;

const ignore: Report = () => {};
const EVERY_ADDRESS_POLICY = new AddressPolicy();

/** Receives a problem of one object: a sentence that quotes the object's own text. */
export type ReportProblem = (problem: Sentence) => void;

/** Most problems reported of one object per update: an object may have as many as fit into it. */
const MOST_PROBLEMS = 6;

/** Reports the problems of one object: the first few, and that there are more. `object` is e.g. `Service shop/web`. */
export function problemReporter(object: string, report: Report): ReportProblem {
  let count = 0;
  return (problem) => {
    count++;
    if (count <= MOST_PROBLEMS) report(`${object}: ${problem}`);
    else if (count === MOST_PROBLEMS + 1) report(`${object}: there are more problems, not listed here`);
  };
}

/**
 * Decides which ports a Service has in `family`, in spec order; none if the proxy has nothing to do for it (headless,
 * ExternalName, no cluster IP of the family).
 *
 * Source: kube-proxy 1.36 ServicePortMap; differs: a cluster IP that does not parse, or is not of the family that
 * `ipFamilies` claims, or is a loopback address, leaves the Service out; external and load-balancer IPs that `addresses` refuses
 * are left out.
 */
export function servicePorts(
  service: Service,
  family: IpFamily,
  report: Report = ignore,
  invalid: ReportInvalid = ignore,
  addresses: AddressPolicy = EVERY_ADDRESS_POLICY,
): readonly ServicePort[] {
  if (service.clusterIP === "" || service.clusterIP === "None" || service.type === "ExternalName") return [];
  const name = namespacedName(service.namespace, service.name);
  const reportProblem = problemReporter(`Service ${name}`, report);
  const clusterIP = clusterIPFor(service, family, invalid);
  if (clusterIP === null) return [];

  const externalPolicyLocal = service.externalTrafficPolicy === "Local" && isExternalType(service);
  const shared = {
    namespacedName: name,
    clusterIP,
    createdAtSeconds: service.createdAtSeconds,
    externalIPs: addressesOf(service.externalIPs, family, EXTERNAL_IPS, {
      addresses,
      reportProblem,
      invalid,
    }),
    loadBalancerVIPs: addressesOf(
      service.loadBalancerIngress.filter(isVip).map((ingress) => ingress.ip),
      family,
      LOAD_BALANCER_IPS,
      { addresses, reportProblem, invalid },
    ),
    loadBalancerSourceRanges: sourceRangesOf(service.loadBalancerSourceRanges, family, reportProblem),
    stickyMaxAgeSeconds: service.sessionAffinity === "ClientIP" ? service.affinityTimeoutSeconds : 0,
    externalPolicyLocal,
    internalPolicyLocal: service.internalTrafficPolicy === "Local",
    healthCheckNodePort: healthCheckNodePortOf(service, externalPolicyLocal, reportProblem),
    ipvs: service.annotations === undefined
      ? NO_IPVS_ANNOTATIONS
      : ipvsAnnotations(service.annotations, reportProblem),
  };

  const ports = service.ports.map((port): ServicePort => ({
    // First: V8 copies into an empty object several times as fast.
    ...shared,
    key: servicePortKey(name, port.name, port.protocol),
    text: servicePortText(name, port.name),
    portName: port.name,
    protocol: port.protocol,
    port: port.port,
    nodePort: port.nodePort,
  }));
  return ports.length < 2 ? ports : withoutDuplicates(ports, reportProblem);
}

/** The last port of each key, at the position of the first. */
function withoutDuplicates(
  ports: readonly ServicePort[],
  reportProblem: ReportProblem,
): readonly ServicePort[] {
  const byKey = new Map<string, ServicePort>();
  for (const port of ports) {
    const { key, portName, protocol } = port;
    if (byKey.has(key)) {
      reportProblem(
        sentence`spec.ports has several ports named ${portName} with protocol ${
          own(protocol)
        }; the last is used`,
      );
    }
    byKey.set(key, port);
  }
  return tight([...byKey.values()]);
}

/** True if something outside the cluster IP leads to the port: a node port, a load-balancer VIP or an external IP. */
export function isExternallyAccessible(port: ServicePort): boolean {
  return port.nodePort !== 0 || port.loadBalancerVIPs.length > 0 || port.externalIPs.length > 0;
}

/**
 * True if some traffic may go to any endpoint of the cluster. An externally accessible port always has such traffic: pods
 * and the node itself reach external addresses as though the policy were Cluster.
 */
export function usesClusterEndpoints(port: ServicePort): boolean {
  return !port.internalPolicyLocal || isExternallyAccessible(port);
}

/** True if some traffic may go only to endpoints on this node. */
export function usesLocalEndpoints(port: ServicePort): boolean {
  return port.internalPolicyLocal || (port.externalPolicyLocal && isExternallyAccessible(port));
}

/** True if planners write the same rules for both, and both have the same rank; the order of ports and addresses counts. */
export function sameServicePorts(left: readonly ServicePort[], right: readonly ServicePort[]): boolean {
  return left.length === right.length &&
    left.every((port, index) => {
      const other = right[index];
      if (other === undefined || !sameOwnFacts(port, other)) return false;
      // The ports of a Service share their lists: a thousand of each are compared once.
      const [before, otherBefore] = [left[index - 1], right[index - 1]];
      const isSame = (list: AddressList): boolean =>
        port[list] === before?.[list] && other[list] === otherBefore?.[list] ||
        sameTexts(port[list], other[list]);
      return isSame("externalIPs") && isSame("loadBalancerVIPs") && isSame("loadBalancerSourceRanges");
    });
}

type AddressList = "externalIPs" | "loadBalancerVIPs" | "loadBalancerSourceRanges";

function sameOwnFacts(left: ServicePort, right: ServicePort): boolean {
  return left.key === right.key &&
    left.createdAtSeconds === right.createdAtSeconds &&
    left.clusterIP === right.clusterIP &&
    left.port === right.port &&
    left.nodePort === right.nodePort &&
    left.stickyMaxAgeSeconds === right.stickyMaxAgeSeconds &&
    left.externalPolicyLocal === right.externalPolicyLocal &&
    left.internalPolicyLocal === right.internalPolicyLocal &&
    left.healthCheckNodePort === right.healthCheckNodePort &&
    left.ipvs.scheduler === right.ipvs.scheduler &&
    left.ipvs.graceful === right.ipvs.graceful;
}

/** True if both lists hold the same texts in the same order. */
export function sameTexts(left: readonly string[], right: readonly string[]): boolean {
  return left === right ||
    (left.length === right.length && left.every((text, index) => text === right[index]));
}

/** The cluster IP; null without one, or if it is a loopback address, which would take the node's own traffic. */
function clusterIPFor(service: Service, family: IpFamily, invalid: ReportInvalid): string | null {
  const ip = writtenClusterIP(service, family);
  if (ip === null || !isLoopback(ip)) return ip?.text ?? null;
  invalid(`cluster IP ${ip.text}`, `it is ${specialUse(ip)}`);
  return null;
}

function writtenClusterIP({ ipFamilies, clusterIP, clusterIPs }: Service, family: IpFamily): Ip | null {
  const index = ipFamilies.indexOf(family);
  // API servers older than 1.20 knew one address and no families.
  const text = ipFamilies.length === 0 ? clusterIP : index < 0 ? "" : clusterIPs[index] ?? "";
  const ip = parseIp(text);
  return ip?.family === family ? ip : null;
}

function isExternalType(service: Service): boolean {
  return service.type === "LoadBalancer" || service.type === "NodePort" || service.externalIPs.length > 0;
}

function isVip(ingress: LoadBalancerIngress): boolean {
  return ingress.ipMode === "VIP";
}

interface AddressKind {
  readonly field: string;
  readonly what: string;
  readonly judgedBy: PolicyField;
}

const EXTERNAL_IPS: AddressKind = {
  field: "spec.externalIPs",
  what: "external IP",
  judgedBy: "externalIPs",
};
const LOAD_BALANCER_IPS: AddressKind = {
  field: "status.loadBalancer.ingress",
  what: "load-balancer IP",
  judgedBy: "loadBalancerIPs",
};

interface AddressChecks {
  readonly addresses: AddressPolicy;
  readonly reportProblem: ReportProblem;
  readonly invalid: ReportInvalid;
}

function addressesOf(
  texts: readonly string[],
  family: IpFamily,
  { field, what, judgedBy }: AddressKind,
  { addresses, reportProblem, invalid }: AddressChecks,
): readonly string[] {
  const kept: string[] = [];
  for (const text of texts) {
    if (text.trim() === "") continue;
    const ip = parseIp(text);
    if (ip === null) {
      reportProblem(sentence`${own(field)} has ${text}, which is not an IP address; it is skipped`);
    }
    if (ip?.family !== family) continue;
    const refusal = addresses.refusal(ip, judgedBy);
    if (refusal === null) kept.push(ip.text);
    else invalid(`${what} ${ip.text}`, refusal);
  }
  return tight(kept);
}

function sourceRangesOf(
  texts: readonly string[],
  family: IpFamily,
  reportProblem: ReportProblem,
): readonly string[] {
  const kept: string[] = [];
  let everything = false;
  for (const text of texts) {
    // The API's validation trims, but stores what was written.
    const trimmed = text.trim();
    if (trimmed === "") continue;
    const cidr = parseCidr(trimmed);
    if (cidr === null) {
      reportProblem(sentence`spec.loadBalancerSourceRanges has ${text}, which is not a CIDR; it is skipped`);
      continue;
    }
    if (cidr.family !== family) continue;
    if (cidr.prefixLength === 0) everything = true;
    kept.push(cidr.text);
  }
  return tight(everything ? [] : kept);
}

function healthCheckNodePortOf(
  service: Service,
  externalPolicyLocal: boolean,
  reportProblem: ReportProblem,
): number {
  if (service.type !== "LoadBalancer" || !externalPolicyLocal) return 0;
  if (service.healthCheckNodePort === 0) {
    reportProblem(
      sentence`spec.healthCheckNodePort is not set, so load balancers cannot ask for local endpoints`,
    );
  }
  return service.healthCheckNodePort;
}
