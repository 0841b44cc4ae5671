/**
 * Answers the status page's questions about Services and packets, from the running proxy's state in memory. Rules are the
 * desired ones, made for the few Services that matter; no program is started.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { systemClock } from "../../kernel/clock.ts";
import { parseIp } from "../../model/ip.ts";
import { eachUnserved } from "../../model/destination_claims.ts";
import { FAMILIES, type NamespacedName } from "../../model/objects.ts";
import type { ProxyState, ServicePort } from "../../model/state.ts";
import type { DeviceAddress } from "../../netfilter/ip_batch.ts";
import type { Held, Questions } from "../../serve/page/page_document.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import { desiredRules, type DesiredState, knownNodeAddresses, RULES_MODES } from "../desired/desired.ts";
import { serviceDocument, type ServiceView, serviceView } from "../service/service_view.ts";
import { destinationOfName, readDestination } from "../trace/packet.ts";
import { type TraceDocument, traceDocument } from "../trace/trace_report.ts";
import { traceWanted } from "../trace/trace.ts";

/** Limit of endpoints: making rules for more takes longer than the event loop may be blocked. */
const MOST_ENDPOINTS = 300;

/** Implementation of {@linkcode Questions}. */
export const QUESTIONS: Questions = {
  service: answerService,
  trace: answerTrace,
};

/** Document of `kproxy service get -o json`, with the desired rules of each port; null: they were not made. */
export type ServiceDocument = NonNullable<Awaited<ReturnType<typeof answerService>>>;

async function answerService(held: Held, name: NamespacedName) {
  const views: ServiceView[] = [];
  for (const state of FAMILIES.flatMap((family) => held.states.get(family) ?? [])) {
    if (!state.services.has(name)) continue;
    const part = partOfState(state, [name]);
    const isSmall = countEndpoints(part) <= MOST_ENDPOINTS;
    const rules = isSmall && !held.quarantined.has(name) ? await rulesOf(held, part) : null;
    const { quarantined } = held;
    views.push(
      ...serviceView({
        state: part,
        name,
        live: rules,
        nodeAddresses: knownNodeAddresses(held.node, deviceAddresses(held), held.config),
        quarantined,
        objects: [],
      }),
    );
    await untilNextTurn();
  }
  const unserved = [...eachUnserved(held.unserved.filter(([service]) => service === name))];
  if (views.length === 0 && unserved.length === 0) return null;
  // The kernel was not read: no live rules.
  const document = serviceDocument(name, views.map((view) => ({ ...view, parts: null })), unserved);
  return { ...document, wanted: views.map(({ parts }) => parts) };
}

async function answerTrace(held: Held, from: string, to: string): Promise<TraceDocument> {
  const destination = readDestination(destinationOfName(to), held.states, from);
  const { family, ip, port } = destination;
  const state = held.states.get(family);
  if (state === undefined) throw new UsageError(`There are no rules for ${family} here`);
  const part = partOfState(state, servicesAt(state, ip, port));
  const count = countEndpoints(part);
  if (count > MOST_ENDPOINTS) {
    throw new UsageError(
      `A running kproxy looks through ${MOST_ENDPOINTS} endpoints for a page, and these are ${count}: ` +
        `kproxy trace ${from} ${to} looks through all`,
    );
  }
  const rules = await rulesOf(held, part);
  if (rules === null) throw new UsageError(`The rules of mode ${held.mode} cannot be walked through`);
  await untilNextTurn();
  const { config, mode, quarantined } = held;
  const trace = traceWanted(from, destination, {
    config,
    addresses: deviceAddresses(held),
    desired: {
      from: "the rules that kproxy wants",
      mode,
      state: desiredState(held, part),
      rules,
      quarantined,
    },
  });
  await untilNextTurn();
  return traceDocument(trace);
}

/** Desired rules; null: the mode's rules cannot be inspected. */
async function rulesOf(held: Held, part: ProxyState): Promise<RulesetSnapshot | null> {
  const mode = RULES_MODES.find((one) => one === held.mode);
  if (mode === undefined) return null;
  const machine = { addresses: deviceAddresses(held), tcpBeLiberal: null, nfacct: false };
  const { config, portals } = held;
  if (mode === "userspace" && portals === null) return null;
  const input = { ...desiredState(held, part), config, machine, warn: () => {} };
  return await desiredRules(mode, portals === null ? input : { ...input, portals }, part.family);
}

function desiredState({ nodeName, node, serviceCidrs, unserved }: Held, part: ProxyState): DesiredState {
  // A running kproxy has no Node but its own.
  return {
    nodeName,
    node,
    otherNodes: [],
    states: new Map([[part.family, part]]),
    serviceCidrs,
    unserved: [...eachUnserved(unserved)],
    objects: [],
  };
}

/** Canonical addresses of devices. */
function deviceAddresses({ addresses }: Held): readonly DeviceAddress[] {
  return addresses.map((one) => ({ ...one, address: parseIp(one.address)?.text ?? one.address }));
}

/** Yields to other work of the event loop. */
function untilNextTurn(): Promise<void> {
  return systemClock.sleep(0);
}

/** The state reduced to these Services. The total of endpoints stays: rules depend on it. */
function partOfState(state: ProxyState, names: readonly NamespacedName[]): ProxyState {
  const { services, endpoints, family, node, endpointCount, tooLarge } = state;
  const none = new Map<string, never>();
  return {
    family,
    node,
    services: new Map(names.map((name) => [name, services.get(name) ?? []])),
    endpoints: new Map(names.map((name) => [name, endpoints.get(name) ?? none])),
    endpointCount,
    tooLarge,
  };
}

/** Number of endpoints. */
function countEndpoints({ endpoints }: ProxyState): number {
  let count = 0;
  for (const ports of endpoints.values()) {
    for (const list of ports.values()) count += list.length;
  }
  return count;
}

/** Services with this address, on any port, or with this node port. */
function servicesAt({ services }: ProxyState, ip: string, port: number): readonly NamespacedName[] {
  const names: NamespacedName[] = [];
  for (const [name, ports] of services) {
    if (ports.some((one) => isAt(one, ip, port))) names.push(name);
  }
  return names;
}

function isAt(one: ServicePort, ip: string, port: number): boolean {
  if (one.clusterIP === ip || one.externalIPs.includes(ip) || one.loadBalancerVIPs.includes(ip)) return true;
  return port !== 0 && (one.nodePort === port || one.healthCheckNodePort === port);
}
