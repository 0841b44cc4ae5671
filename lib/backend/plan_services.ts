/**
 * Planning of Services, as far as all modes share it.
 *
 * @module
 */
import { cidrContains, type Ip, parseCidr } from "../model/ip.ts";
import type { LocalDetector } from "../model/node.ts";
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Changed, Endpoint, ProxyState, ServicePort, ServicePortKey } from "../model/state.ts";

/** Plans the rules of one Service with at least one port; null if it is to be left out. */
export type PlanService<Rules> = (
  ports: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  name: NamespacedName,
) => Rules | null;

/**
 * Plans the changed Services (all for `"all"`), by default in the order of their names. One that is gone, or has no port of this family, is
 * null. One step per Service, so that other work has its turn: there are thousands, or one that is as large.
 *
 * @param family of the options of the plan
 * @throws {RangeError} if the state is of another family
 */
export function* planServicesInSteps<Rules>(
  state: ProxyState,
  changed: Changed,
  family: IpFamily,
  planService: PlanService<Rules>,
  order: (names: readonly NamespacedName[]) => readonly NamespacedName[] = (names) => names.toSorted(),
): Steps<Map<NamespacedName, Rules | null>> {
  if (state.family !== family) {
    throw new RangeError(`State and options must be of one family: got ${state.family} and ${family}`);
  }
  const services = new Map<NamespacedName, Rules | null>();
  for (const name of order([...changed === "all" ? state.services.keys() : changed])) {
    const ports = state.services.get(name);
    services.set(
      name,
      ports === undefined || ports.length === 0 ? null : planService(ports, state.endpoints.get(name), name),
    );
    yield;
  }
  return services;
}

/** The iptables match of packets from pods of this node or cluster; null if nothing distinguishes them. */
export function podMatch(detector: LocalDetector): string | null {
  switch (detector.kind) {
    case "none":
      return null;
    case "cidr":
      return `-s ${detector.cidr}`;
    case "interface":
      return `-i ${detector.name}`;
    case "interfacePrefix":
      return `-i ${detector.prefix}+`;
  }
}

/**
 * True if one of the source ranges of a Service lets the node itself in.
 *
 * @param nodeIp the node's own address; null if it has none of this family
 * @throws {RangeError} if a range is not a CIDR
 */
export function letsNodeIn({ text, loadBalancerSourceRanges }: ServicePort, nodeIp: Ip | null): boolean {
  const ranges = loadBalancerSourceRanges.map((range) => {
    const cidr = parseCidr(range);
    if (cidr !== null) return cidr;
    throw new RangeError(`Source range of Service port "${text}" must be a CIDR: got "${range}"`);
  });
  return nodeIp !== null && ranges.some((cidr) => cidrContains(cidr, nodeIp));
}

/** Work that pauses between steps. */
export type Steps<T> = Generator<void, T, void>;

/** Runs all steps at once. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
