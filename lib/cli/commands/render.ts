/**
 * `kproxy render`: the rules that the objects in files stand for, as text, without touching the machine.
 *
 * @module
 */
import { planIptables } from "../../backend/iptables/plan/plan.ts";
import { planLines, renderOperations } from "../../backend/iptables/plan/render.ts";
import { configuredIptables } from "../../backend/iptables/plan/settings.ts";
import { planIpvs } from "../../backend/ipvs/plan/plan.ts";
import { renderPlan as renderIpvsPlan } from "../../backend/ipvs/diff/render.ts";
import { configuredIpvs, nodePortIps } from "../../backend/ipvs/plan/settings.ts";
import { planNftables } from "../../backend/nftables/plan/plan.ts";
import { renderPlan } from "../../backend/nftables/diff/render.ts";
import { configuredNftables, networksOfFamily } from "../../backend/nftables/plan/settings.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { UnsupportedError, UsageError } from "../../errors.ts";
import { ChangeTracker } from "../../model/change_tracker.ts";
import { isLoopback, parseIp } from "../../model/ip.ts";
import { matchingNodeIps, nodeZone } from "../../model/node.ts";
import type { ApiObject, IpFamily, NodeObject } from "../../model/objects.ts";
import { serviceNetworks } from "../../model/service_cidrs.ts";
import type { NodeFacts, ProxyState } from "../../model/state.ts";
import type { Table } from "../../netfilter/iptables_jumps.ts";
import { readManifests } from "../../source/files/files.ts";
import { effectiveConfiguration } from "../flags/configuration.ts";
import type { Io } from "../io.ts";
import { nodeName } from "../../node/node_name.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";

const FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];
const TABLES: readonly Table[] = ["filter", "nat"];
const LOOPBACK_IPS: readonly string[] = ["127.0.0.1", "::1"];

/** What the objects say, before any mode turns it into rules. */
interface Rendered {
  readonly config: KubeProxyConfiguration;
  readonly node: NodeObject | null;
  readonly states: ReadonlyMap<IpFamily, ProxyState>;
  /** Networks of ServiceCIDRs. */
  readonly serviceCidrs: readonly string[];
}

/** How one mode is rendered. */
interface RenderedMode {
  /** What loads the text. */
  readonly tool: Readonly<Record<IpFamily, string>>;
  readonly render: (rendered: Rendered, family: IpFamily, warn: (text: string) => void) => string;
}

const IPTABLES: RenderedMode = {
  tool: { IPv4: "iptables-restore --noflush", IPv6: "ip6tables-restore --noflush" },
  render: renderIptables,
};
const IPVS: RenderedMode = {
  tool: { IPv4: "the programs named", IPv6: "the programs named (ip6tables-restore)" },
  render: renderIpvs,
};
const NFTABLES: RenderedMode = { tool: { IPv4: "nft -f -", IPv6: "nft -f -" }, render: renderNftables };

/**
 * Prints the rules of the families asked for. Without `--family` those of the families that have Services.
 *
 * @returns 0; 1 if objects were refused and the rules are those of the others; 2 if nothing could be read
 */
export async function renderCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const { config, warnings } = await effectiveConfiguration(flags);
  const said = new Set<string>();
  const warn = (sentence: string): void => {
    if (!said.has(sentence)) io.err(`Warning: ${sentence}\n`);
    said.add(sentence);
  };
  warnings.forEach(warn);
  const mode = renderedMode(config);
  const { objects, problems, foreign } = await readObjects(config);
  for (const { path, kind, count } of foreign) {
    io.err(`Note: ${path}: ${count === 1 ? "1 object" : `${count} objects`} of kind ${kind} not read\n`);
  }
  for (const { where, object, message } of problems) {
    const isFile = where.startsWith(object);
    io.err(`Error: ${where}: ${isFile ? "" : `${object}: `}${message}\n`);
  }
  if (objects.length === 0 && problems.length > 0) return 2;

  const name = nodeName(config);
  const node = objects.find((object) => object.kind === "Node" && object.name === name);
  const known = node?.kind === "Node" ? node : null;
  const states = foldObjects(objects, { name, zone: nodeZone(known) }, warn);
  const serviceCidrs = serviceNetworks(objects.filter((object) => object.kind === "ServiceCIDR"));
  const rendered: Rendered = { config, node: known, states, serviceCidrs };
  const families = wantedFamilies(flags, states);
  for (const family of families) {
    if (families.length > 1) await io.out(`# ${family}: what follows is for ${mode.tool[family]}\n`);
    await io.out(mode.render(rendered, family, warn));
  }
  return problems.length > 0 ? 1 : 0;
}

/** Which mode `auto` means is only known on the node: its rules are printed as iptables mode has them. */
function renderedMode({ mode }: KubeProxyConfiguration): RenderedMode {
  if (mode === "nftables") return NFTABLES;
  if (mode === "ipvs") return IPVS;
  if (mode === "iptables" || mode === "auto") return IPTABLES;
  throw new UnsupportedError("kproxy render", "proxy mode iptables, nftables or ipvs", mode, {
    message: `Rendering proxy mode ${mode} is not in this release; it has: iptables, nftables, ipvs`,
  });
}

async function readObjects(config: KubeProxyConfiguration): ReturnType<typeof readManifests> {
  const { manifests, endpointsSource } = config.kproxy;
  if (manifests.length === 0) {
    throw new UsageError("Nothing to render: name files or folders with --manifests=PATH");
  }
  try {
    return await readManifests(manifests, { endpointsSource });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound || error instanceof TypeError) {
      throw new UsageError(error.message, { cause: error });
    }
    throw error;
  }
}

function foldObjects(
  objects: readonly ApiObject[],
  node: NodeFacts,
  report: (problem: string) => void,
): ReadonlyMap<IpFamily, ProxyState> {
  return new Map(FAMILIES.map((family) => {
    const tracker = new ChangeTracker({ family, node, report });
    for (const object of objects) {
      if (object.kind === "Service") tracker.updateService(undefined, object);
      if (object.kind === "EndpointSlice") tracker.updateEndpointSlice(object, false);
    }
    return [family, tracker.checkout().state];
  }));
}

function wantedFamilies(flags: ParsedFlags, states: ReadonlyMap<IpFamily, ProxyState>): readonly IpFamily[] {
  switch (flags.get("family")) {
    case "ipv4":
      return ["IPv4"];
    case "ipv6":
      return ["IPv6"];
    case "both":
      return FAMILIES;
    default: {
      const used = FAMILIES.filter((family) => (states.get(family)?.services.size ?? 0) > 0);
      return used.length > 0 ? used : ["IPv4"];
    }
  }
}

/** The table of one family, complete. */
function renderNftables(
  { config, node, states, serviceCidrs }: Rendered,
  family: IpFamily,
  warn: (text: string) => void,
): string {
  const { options, problem } = configuredNftables(config, family, node);
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  return renderPlan(planNftables(stateOf(states, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, ownAddresses(node, options.nodeIp)),
    serviceCidrs: networksOfFamily(serviceCidrs, family),
    objectComments: true,
  }));
}

/** Sets, rules, virtual servers and addresses of one family, each under the program that reads them. */
function renderIpvs(
  { config, node, states }: Rendered,
  family: IpFamily,
  warn: (text: string) => void,
): string {
  const { options, problem } = configuredIpvs(config, family, node);
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  const own = ownAddresses(node, options.nodeIp).map(parseIp)
    .filter((ip) => ip?.family === family && !isLoopback(ip)).map((ip) => ip?.text ?? "");
  const hostIps = [...new Set(own)].sort();
  const plan = planIpvs(stateOf(states, family), "all", {
    ...options,
    hostIps,
    nodePortIps: nodePortIps(options.nodePortAddresses, hostIps),
    randomFully: true,
    // The machine this runs on says nothing about the node's kernel.
    schedulers: [],
  });
  return renderIpvsPlan(plan);
}

function stateOf(states: Rendered["states"], family: IpFamily): ProxyState {
  const state = states.get(family);
  if (state === undefined) throw new RangeError(`No state of family ${family}`);
  return state;
}

/** The interfaces of the machine this runs on say nothing about the node. */
function ownAddresses(node: NodeObject | null, nodeIp: string): readonly string[] {
  return [...(node?.addresses ?? []).map(({ address }) => address), nodeIp, ...LOOPBACK_IPS];
}

/** Own chains and rules of each table, then the jumps that lead to them from the kernel's chains. */
function renderIptables(
  { config, node, states }: Rendered,
  family: IpFamily,
  warn: (text: string) => void,
): string {
  const { options, problem } = configuredIptables(config, family, node);
  if (problem?.kind === "wrongFamily") warn(`${family}: ${problem.message}`);
  const plan = planIptables(stateOf(states, family), "all", {
    ...options,
    nodePortIps: matchingNodeIps(options.nodePortAddresses, ownAddresses(node, options.nodeIp)),
    randomFully: true,
    // On the node the sysctl decides, which the same setting makes kproxy write.
    dropInvalid: !config.conntrack.tcpBeLiberal,
  });
  return renderOperations({
    transactions: TABLES.map((table) => {
      // A chain that is only made sure of, and not filled, belongs to the kubelet: to name it would empty it.
      const jumps = plan.base.jumps.filter((jump) =>
        jump.table === table && plan.base.chains[table].includes(jump.target)
      );
      return {
        table,
        lines: [...planLines(plan, table), ...jumps.map(({ chain, args }) => `-I ${chain} ${args}`)],
      };
    }),
  });
}
