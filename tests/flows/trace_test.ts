/**
 * Every flow case in every mode, as `kproxy trace` walks it: through the rules that its configuration and objects stand for, and
 * through those same rules as the tools would print them on a node with a firewall of its own.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { configForMode, defaultConfig } from "../../lib/config/defaults.ts";
import type { ExternalIpPolicyConfig, KubeProxyConfiguration } from "../../lib/config/types.ts";
import {
  type DesiredInput,
  desiredRules,
  type DesiredState,
  RULES_MODES,
  type RulesMode,
  stateOfObjects,
} from "../../lib/inspect/desired/desired.ts";
import { liveOfTexts, type LiveRules, type LiveText } from "../../lib/inspect/live/live.ts";
import { type Trace, tracePacket } from "../../lib/inspect/trace/trace.ts";
import { type ApiObject, FAMILIES, type IpFamily, type NodeObject } from "../../lib/model/objects.ts";
import type { DeviceAddress } from "../../lib/netfilter/ip_batch.ts";
import { createSetLine } from "../../lib/netfilter/ipset.ts";
import type { IptablesRuleset } from "../../lib/netfilter/iptables_save.ts";
import { type Flow, formatFlow, type Packet, parsePacket } from "../../lib/sim/flow.ts";
import type { RulesetSnapshot } from "../../lib/sim/ruleset_snapshot.ts";
import { type AffinityMemory, rememberOutcome } from "../../lib/sim/packet_walk.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { assignedPortals } from "../support/assigned_ports.ts";
import { formatIpvsTable, renderIptablesSave } from "../support/saved_texts.ts";
import { type FlowCase, flowOf, type FlowOptions, optionsOf } from "./flow_case.ts";
import { FLOW_CASES } from "./flow_cases.ts";
import { PODS_ON_A_BRIDGE } from "./userspace_backend.ts";

function configOf(mode: RulesMode, options: FlowOptions): KubeProxyConfiguration {
  const config = configForMode({ ...defaultConfig(), nodePortAddresses: null }, mode);
  const { masqueradeAll, masqueradeBit } = options;
  return {
    ...config,
    detectLocalMode: options.detectLocalMode,
    clusterCIDR: options.clusterCIDR,
    detectLocal: {
      bridgeInterface: options.bridgeInterface,
      interfaceNamePrefix: options.interfaceNamePrefix,
    },
    nodePortAddresses: options.nodePortAddresses === null ? null : [...options.nodePortAddresses],
    iptables: {
      ...config.iptables,
      masqueradeAll,
      masqueradeBit,
      localhostNodePorts: options.localhostNodePorts,
    },
    nftables: { ...config.nftables, masqueradeAll, masqueradeBit },
    kproxy: {
      ...config.kproxy,
      externalIPPolicy: structuredClone(options.externalIPPolicy) as ExternalIpPolicyConfig,
    },
  };
}

function decoded(flowCase: FlowCase): readonly ApiObject[] {
  return flowCase.objects.flatMap((json) => decodeObject(json, "flow case").objects);
}

function devices({ interfaceIps }: FlowOptions): readonly DeviceAddress[] {
  return interfaceIps.map((address) => ({
    device: "eth0",
    family: address.includes(":") ? "IPv6" : "IPv4",
    address,
    prefixLength: 24,
    scope: "global",
  }));
}

function inputOf(mode: RulesMode, flowCase: FlowCase): DesiredInput {
  const options = optionsOf(flowCase);
  const node: NodeObject = {
    kind: "Node",
    name: options.nodeName,
    labels: { "topology.kubernetes.io/zone": options.zone },
    addresses: FAMILIES.map((family) => ({ type: "InternalIP", address: options.nodeIps[family] })),
    podCIDRs: [],
    taintKeys: [],
    deleting: false,
  };
  const config = configOf(mode, options);
  const state = stateOfObjects([...decoded(flowCase), node], options.nodeName, () => {}, config);
  const input: DesiredInput = {
    ...state,
    serviceCidrs: options.serviceCidrs,
    config,
    machine: { addresses: devices(options), tcpBeLiberal: options.tcpBeLiberal, nfacct: false },
    warn: () => {},
  };
  return mode === "userspace" ? { ...input, portals: assignedPortals(input) } : input;
}

function closed(tables: IptablesRuleset, { policies }: FlowOptions): IptablesRuleset {
  const filter = new Map(tables.get("filter"));
  for (const chain of ["INPUT", "FORWARD"] as const) {
    const known = filter.get(chain);
    filter.set(chain, { rules: [], ...known, policy: policies[chain] });
  }
  return new Map([...tables, ["filter", filter]]);
}

/** As `nft list ruleset` prints it. */
function printedTables({ nftables }: RulesetSnapshot): string {
  return nftables.map(({ name, chains, containers }) => {
    const blocks = [
      ...[...containers].map(([name, { kind, type, timeoutSeconds, elements }]) => {
        const list = [...elements].map(([key, value]) => value === "" ? key : `${key} : ${value}`);
        return [
          `\t${kind} ${name} {`,
          `\t\t${type}`,
          ...(timeoutSeconds === undefined
            ? []
            : [`\t\tflags dynamic,timeout`, `\t\ttimeout ${timeoutSeconds}s`]),
          ...(list.length === 0 ? [] : [`\t\telements = { ${list.join(",\n\t\t\t     ")} }`]),
          "\t}\n",
        ].join("\n");
      }),
      ...[...chains.values()].map(({ name, hook, rules }) =>
        [
          `\tchain ${name} {`,
          ...(hook === undefined ? [] : [`\t\t${hook}`]),
          ...rules.map((text) => `\t\t${text}`),
          "\t}\n",
        ].join("\n")
      ),
    ];
    return `table ${name} {\n${blocks.join("\n")}}\n`;
  }).join("");
}

/** What the tools would print on the node of the case. */
function textsOf(held: RulesetSnapshot, options: FlowOptions): readonly LiveText[] {
  const { family, iptables, ipvs, sets } = held;
  const texts: LiveText[] = iptables.map(({ tables }) => ({
    name: "iptables-save",
    family,
    text: renderIptablesSave(closed(tables, options)),
  }));
  if (held.nftables.length > 0) {
    const word = family === "IPv4" ? "ip" : "ip6";
    const chains = (["INPUT", "FORWARD"] as const).map((chain) =>
      `\tchain ${chain} {\n\t\ttype filter hook ${chain.toLowerCase()} priority filter; policy ${
        options.policies[chain].toLowerCase()
      };\n\t}\n`
    );
    texts.push({ name: "nft", text: `table ${word} host {\n${chains.join("\n")}}\n${printedTables(held)}` });
  }
  if (ipvs !== null) texts.push({ name: "ipvsadm", text: formatIpvsTable(ipvs.servers), kind: "ipvsadm" });
  const lines = [...sets.values()].flatMap(({ name, definition, entries }) => [
    ...(definition === null ? [] : [createSetLine(definition)]),
    ...[...entries].map((entry) => `add ${name} ${entry}`),
  ]);
  if (lines.length > 0) texts.push({ name: "ipset", text: `${lines.join("\n")}\n`, kind: "ipset" });
  return texts;
}

interface Side {
  readonly desired: RulesetSnapshot;
  readonly live: LiveRules;
}

async function sideOf(
  mode: RulesMode,
  flowCase: FlowCase,
  input: DesiredInput,
  family: IpFamily,
): Promise<Side> {
  const desired = await desiredRules(mode, input, family);
  const facts = { from: "the kernel", bound: desired.ipvs?.bound ?? null, problems: [] };
  const live = liveOfTexts(textsOf(desired, optionsOf(flowCase)), facts).get(family);
  if (live === undefined) throw new RangeError(family);
  assertEquals(live.problems, []);
  // A running kproxy tells where its ports lead.
  return { desired, live: desired.portals === undefined ? live : { ...live, portals: desired.portals } };
}

class CaseRun {
  readonly #mode: RulesMode;
  readonly #case: FlowCase;
  readonly #input: DesiredInput;
  readonly #sides = new Map<IpFamily, Side>();
  #affinity: AffinityMemory = new Map();

  constructor(mode: RulesMode, flowCase: FlowCase) {
    this.#mode = mode;
    this.#case = flowCase;
    this.#input = inputOf(mode, flowCase);
  }

  async trace(packet: Packet, nowSeconds: number): Promise<Trace> {
    const family: IpFamily = packet.source.includes(":") ? "IPv6" : "IPv4";
    const side = this.#sides.get(family) ?? await sideOf(this.#mode, this.#case, this.#input, family);
    this.#sides.set(family, side);
    const state: DesiredState = this.#input;
    return tracePacket({
      family,
      packet,
      hostState: {
        nodeAddresses: optionsOf(this.#case).interfaceIps,
        affinity: this.#affinity,
        nowSeconds,
        ...(this.#mode === "userspace" ? PODS_ON_A_BRIDGE : {}),
      },
      desired: { from: "files", mode: this.#mode, state, rules: side.desired, quarantined: null },
      live: side.live,
      findings: [],
      notes: [],
    });
  }

  take(packet: Packet, flow: Flow, takes: string, nowSeconds: number): void {
    const outcome = flow.outcomes.find(({ translatedTo }) => translatedTo === takes);
    if (outcome === undefined) throw new RangeError(`"${takes}" is not possible`);
    this.#affinity = rememberOutcome(this.#affinity, packet, outcome, nowSeconds);
  }
}

async function differences(mode: RulesMode, flowCase: FlowCase): Promise<string[]> {
  const { policies } = optionsOf(flowCase);
  const isOpen = policies.INPUT === "ACCEPT" && policies.FORWARD === "ACCEPT";
  const run = new CaseRun(mode, flowCase);
  const found: string[] = [];
  for (const flow of flowCase.flows) {
    const step = typeof flow === "string" ? { flow } : flow;
    const { packet: text, wanted } = flowOf(step, mode);
    const packet = parsePacket(text);
    const { desired, live, difference } = await run.trace(packet, step.atSeconds ?? 0);
    const sides = [["live", live] as const, ...(isOpen ? [["desired", desired] as const] : [])];
    for (const [name, side] of sides) {
      const end = side === null ? "" : formatFlow(side.flow);
      if (end !== wanted) found.push(`${text}\n  wanted ⇒ ${wanted}\n  ${name} ⇒ ${end}`);
      if (side !== null && side.flow.problems.length > 0) {
        found.push(`${text}: ${side.flow.problems.join("; ")}`);
      }
    }
    if (isOpen && difference !== null) found.push(`${text}: ${JSON.stringify(difference)}`);
    if (step.takes !== undefined && live !== null) {
      run.take(packet, live.flow, step.takes, step.atSeconds ?? 0);
    }
  }
  return found;
}

for (const mode of RULES_MODES) {
  for (const flowCase of FLOW_CASES) {
    Deno.test(`traced in ${mode}: ${flowCase.name}`, { permissions: "none" }, async () => {
      const found = await differences(mode, flowCase);
      assertEquals(found.length, 0, found.join("\n"));
    });
  }
}
