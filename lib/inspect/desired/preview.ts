/**
 * What a node would do with objects: its rules as text, and packets' paths through them. Reads nothing but its input.
 *
 * @module
 */
import { applyModeDefaults, defaultConfig } from "../../config/defaults.ts";
import { parseConfig } from "../../config/parse.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import type { UnservedDestination } from "../../model/destination_claims.ts";
import { type ApiObject, FAMILIES, type IpFamily, type NamespacedName } from "../../model/objects.ts";
import type { ProxyState } from "../../model/state.ts";
import { type Flow, formatFlow } from "../../sim/flow.ts";
import type { RulesetSnapshot } from "../../sim/ruleset_snapshot.ts";
import * as iptables from "../modes/iptables.ts";
import * as ipvs from "../modes/ipvs.ts";
import * as nftables from "../modes/nftables.ts";
import { destinationOfName, packetText, readDestination } from "../trace/packet.ts";
import { type Trace, traceWanted } from "../trace/trace.ts";
import {
  type DesiredInput,
  type RenderedMode,
  renderedModeOf,
  stateOf,
  stateOfObjects,
  UNKNOWN_MACHINE,
} from "./desired.ts";

/** Options of a preview. */
export interface PreviewOptions {
  /** Name of the node: its endpoints are local; zone, addresses and pod networks are its Node's, if that is among the objects. */
  readonly nodeName: string;
  /** Text of a `KubeProxyConfiguration`, YAML or JSON. @default {kproxy's defaults} */
  readonly configuration?: string;
  /** Proxy mode, instead of the configured one. */
  readonly mode?: RenderedMode;
}

/** Simulated path of one packet. */
export interface PacketTrace {
  /** The packet that was walked, e.g. `10.244.0.5@cni0 → 10.96.0.1:80/tcp`. */
  readonly packet: string;
  /** `namespace/name` of the destination's Service; null: none. */
  readonly service: NamespacedName | null;
  /** Outcome, e.g. `10.244.0.11:8080 (1/2) | 10.244.0.12:8080 (1/2), masquerade no`, `dropped`, `rejected`. */
  readonly outcome: string;
  /** The outcome as data, with the rules on the packet's path. */
  readonly flow: Flow;
  /** Further notes, in sentences: assumptions, and why endpoints are not used. */
  readonly notes: readonly string[];
}

/** Preview of a node's rules. */
export interface NodePreview {
  /** Mode of the rules. */
  readonly mode: RenderedMode;
  /** Families in which Services have ports, IPv4 first. */
  readonly families: readonly IpFamily[];
  /**
   * Warnings about the configuration, and parts of objects that are left out, each in a sentence; those of a family's rules
   * appear once the rules were rendered or a packet was traced.
   */
  readonly problems: readonly string[];
  /** Addresses and node ports of Services that are not served, because another Service owns them. */
  readonly unserved: readonly UnservedDestination[];
  /** State that the rules are made from. */
  state(family: IpFamily): ProxyState;
  /** Rules as text that the mode's tools load, always in the same order. */
  render(family: IpFamily): string;
  /**
   * Traces a packet; arguments are those of `kproxy trace`.
   *
   * @param from an address, `ADDRESS@INTERFACE`, an interface, `local` (the node itself) or `world` (a client outside of the cluster)
   * @param to `IP:PORT`, `[IPv6]:PORT`, `NAMESPACE/NAME[:PORT]` or `NAME.NAMESPACE.svc[:PORT]`, then `/udp` or `/sctp` if it is not TCP
   * @throws {UsageError} if an argument is invalid
   */
  trace(from: string, to: string): PacketTrace;
}

/** Modes whose rules follow from the objects alone. */
const MODES = { iptables, ipvs, nftables } as const;

/**
 * Previews what a node would do with these objects.
 *
 * @throws {ConfigError} with every problem of the configuration
 * @throws {UnsupportedError} for mode userspace, whose rules depend on the running proxy
 */
export function previewNode(objects: readonly ApiObject[], options: PreviewOptions): NodePreview {
  const { config: configured, warnings } = configurationOf(options);
  const mode = renderedModeOf(configured, "Previewing");
  const config = applyModeDefaults({ ...configured, mode });
  const problems = new Set(warnings);
  const preview = previewOf(objects, {
    ...options,
    config,
    mode,
    warn: (sentence) => problems.add(sentence),
  });
  return {
    ...preview,
    get problems() {
      return [...problems];
    },
  };
}

/** A preview by a complete configuration; `warn` receives warnings, one sentence each. */
export function previewOf(
  objects: readonly ApiObject[],
  { nodeName, config, mode, warn }: {
    readonly nodeName: string;
    readonly config: KubeProxyConfiguration;
    readonly mode: RenderedMode;
    readonly warn: (sentence: string) => void;
  },
): Omit<NodePreview, "problems"> {
  const desired = stateOfObjects(objects, nodeName, warn, config);
  const input: DesiredInput = { ...desired, config, machine: UNKNOWN_MACHINE, warn };
  const rules = new Map<IpFamily, RulesetSnapshot>();
  const rulesOf = (family: IpFamily): RulesetSnapshot => {
    const made = rules.get(family) ?? MODES[mode].rules(input, family);
    rules.set(family, made);
    return made;
  };
  return {
    mode,
    families: FAMILIES.filter((family) => stateOf(desired, family).services.size > 0),
    unserved: desired.unserved,
    state: (family) => stateOf(desired, family),
    render: (family) => MODES[mode].render(input, family),
    trace: (from, to) => {
      const destination = readDestination(destinationOfName(to), desired.states, from);
      const wanted = {
        from: "objects",
        mode,
        state: desired,
        rules: rulesOf(destination.family),
        quarantined: null,
      };
      return packetTrace(traceWanted(from, destination, { config, addresses: null, desired: wanted }));
    },
  };
}

function configurationOf(
  { configuration, mode }: PreviewOptions,
): { readonly config: KubeProxyConfiguration; readonly warnings: readonly string[] } {
  const parsed = configuration === undefined
    ? { config: defaultConfig(), warnings: [] }
    : parseConfig(configuration);
  return mode === undefined ? parsed : { ...parsed, config: { ...parsed.config, mode } };
}

function packetTrace({ packet, service, desired, findings, notes }: Trace): PacketTrace {
  const flow = desired?.flow ?? { outcomes: [], problems: [] };
  return {
    packet: packetText(packet),
    service: service?.port.namespacedName ?? null,
    outcome: formatFlow(flow),
    flow,
    notes: [...findings, ...notes],
  };
}
