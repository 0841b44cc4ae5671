/**
 * Answers what the status page asks about Services and packets, from what the running proxy holds in memory. Rules are those that
 * are wanted, made for the few Services that matter; no program is started.
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

/** Rules for more endpoints than that take longer to make than the event loop may be held. */
const MOST_ENDPOINTS = 300;

/** See {@linkcode Questions}. */
export const QUESTIONS: Questions = {
  service: answerService,
  trace: answerTrace,
};

/** What `kproxy service get -o json` prints, and for each port what is wanted for it; null: that was not made. */
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
  // The kernel was not read.
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

/** Null: of a mode whose rules cannot be looked at. */
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
  // A running kproxy knows its own Node only.
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

/** Canonical. */
function deviceAddresses({ addresses }: Held): readonly DeviceAddress[] {
  return addresses.map((one) => ({ ...one, address: parseIp(one.address)?.text ?? one.address }));
}

/** Lets everything else go on. */
function untilNextTurn(): Promise<void> {
  return systemClock.sleep(0);
}

/** The state as if there were only these Services. How many endpoints there are in all stays: rules depend on it. */
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

/** Of all ports. */
function countEndpoints({ endpoints }: ProxyState): number {
  let count = 0;
  for (const ports of endpoints.values()) {
    for (const list of ports.values()) count += list.length;
  }
  return count;
}

/** Services that packets to this destination, or to another port of its address, may be meant for. */
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
