/**
 * Checks whether another service proxy is at work on the node: by its tables, chains, devices, or its metrics.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import { localHost, splitHostPort } from "../../model/ip.ts";
import type { Link } from "../../netfilter/ip_batch.ts";
import type { BaseChain } from "../../netfilter/nft_listing.ts";
import { beginningOf, httpGet, NoConnectionError, StrangeAnswerError } from "../../serve/http_get.ts";
import { few } from "../../text/words.ts";
import type { KernelChain } from "./foreign_rules.ts";
import { type Doubt, failure, type Finding, ok, warnings } from "./report.ts";

const CHECK = "other proxies";

/** Who answers where a proxy has its metrics. */
export type MetricsOwner = "kproxy" | "kube-proxy" | "nothing" | "another program";

/** For an answer to begin, and for each piece of it. */
const PIECE_LIMIT_MS = 1_500;
/** Those of a large node take a proxy a second or two. */
const WHOLE_LIMIT_MS = 4_000;
/** Its beginning is enough: what answers may send without an end. */
const BEGINNING_BYTES = 64 * 1024;

/** @param address `IP:port` as configured; an unspecified IP is asked on loopback */
export async function readMetricsOwner(address: string): Promise<MetricsOwner> {
  if (address === "") return "nothing";
  const [bound, port] = splitHostPort(address);
  const limits = { limitMs: PIECE_LIMIT_MS, wholeMs: WHOLE_LIMIT_MS, maxBytes: 2 * BEGINNING_BYTES };
  const question = { host: localHost(bound), port, path: "/metrics", ...limits };
  let text: string;
  try {
    text = await httpGet(question, (reply) => beginningOf(reply, BEGINNING_BYTES));
  } catch (error) {
    if (error instanceof NoConnectionError) return "nothing";
    // What takes the connection has the port, even if it never answers.
    if (error instanceof StrangeAnswerError) return "another program";
    throw error;
  }
  // Both have the metrics of kube-proxy; those of Go's runtime, which come early, only kube-proxy has.
  if (/^(# (HELP|TYPE) )?go_/m.test(text)) return "kube-proxy";
  return /^(# (HELP|TYPE) )?k(ube)?proxy_/m.test(text) ? "kproxy" : "another program";
}

/** The signs of other proxies; those that could not be looked at are left out. */
export interface ProxySigns {
  readonly owner?: MetricsOwner | undefined;
  readonly metricsAddress: string;
  /** Which mode's rules are no sign of others here. */
  readonly mode: ProxyMode;
  readonly baseChains?: readonly BaseChain[] | undefined;
  readonly prerouting?: readonly KernelChain[] | undefined;
  readonly links?: readonly Link[] | undefined;
}

/** A proxy that takes Services, and what gives it away. */
interface KnownProxy {
  readonly name: string;
  readonly table?: RegExp;
  /** Targets of rules in PREROUTING of nat. */
  readonly chain?: RegExp;
  readonly device?: RegExp;
  readonly mend: string;
  /** Rules of this mode look the same for kproxy and kube-proxy. */
  readonly mode?: ProxyMode;
}

const KNOWN: readonly KnownProxy[] = [
  {
    name: "kube-proxy (mode nftables)",
    table: /^kube-proxy$/,
    mend: "end kube-proxy on this node, then: kproxy cleanup --only=nftables --of=kube-proxy",
  },
  {
    name: "a proxy in mode userspace, kube-proxy or a kproxy of another configuration,",
    // Only mode userspace has these.
    chain: /^KUBE-PORTALS-/,
    mend: "end it on this node, then: kproxy cleanup --only=userspace",
    mode: "userspace",
  },
  {
    name: "Cilium",
    table: /^cilium/i,
    chain: /^(OLD_)?CILIUM_/,
    device: /^cilium_(host|net)$/,
    mend: "set kubeProxyReplacement=false in Cilium, or do without kproxy here",
  },
  {
    name: "kube-router",
    table: /^kube-router/,
    chain: /^KUBE-ROUTER-/,
    device: /^kube-dummy-if$/,
    mend: "start kube-router with --run-service-proxy=false, and once with --cleanup-config",
  },
  {
    name: "Calico's eBPF data plane",
    device: /^bpf(in|out)\.cali$/,
    mend: "set bpfEnabled=false in Calico's FelixConfiguration, or do without kproxy here",
  },
];

export function checkOtherProxies(signs: ProxySigns): readonly Finding[] {
  const { owner, metricsAddress } = signs;
  const findings = [
    ...owner !== "kube-proxy" ? [] : [failure(
      CHECK,
      `kube-proxy runs on this node: its metrics answer at ${metricsAddress}`,
      "keep it off this node, e.g.: kubectl -n kube-system patch daemonset kube-proxy -p " +
        `'{"spec":{"template":{"spec":{"nodeSelector":{"kproxy.io/replaced":"false"}}}}}'`,
    )],
    ...warnings(CHECK, null, [
      owner === "another program" && [
        `something that is no proxy of Kubernetes answers at ${metricsAddress}, where metrics are to be served`,
        "give kproxy another address: --metrics-bind-address",
      ],
      owner === "nothing" && metricsAddress !== "" && hasRules(signs) && [
        `rules of a service proxy are in force, and none answers at ${metricsAddress}: they stay as they are, whatever changes`,
        "start kproxy, or look why it ended",
      ],
      ...KNOWN.map((proxy): Doubt => {
        const found = signsOf(proxy, signs);
        return found.length > 0 && proxy.mode !== signs.mode &&
          [`${proxy.name} was or is here: ${few(found)}`, proxy.mend];
      }),
    ]),
  ];
  if (findings.length > 0) return findings;
  return [ok(CHECK, owner === "kproxy" ? "none; kproxy runs" : "none shows")];
}

/** True if packets are led to rules with the names that kproxy and kube-proxy use. */
function hasRules({ baseChains = [], prerouting = [] }: ProxySigns): boolean {
  return baseChains.some(({ table }) => table === "kproxy") ||
    prerouting.flatMap(({ lines }) => lines).some((line) =>
      / -j KUBE-(?:SERVICES|PORTALS-CONTAINER)\b/.test(line)
    );
}

function signsOf(
  { table, chain, device }: KnownProxy,
  { baseChains = [], prerouting = [], links = [] }: ProxySigns,
): readonly string[] {
  const tables = baseChains.filter((one) => table?.test(one.table) === true)
    .map((one) => `table ${one.family} ${one.table}`);
  const chains = prerouting.flatMap(({ lines }) => lines).map((line) => / -[jg] (\S+)/.exec(line)?.[1] ?? "")
    .filter((target) => chain?.test(target) === true).map((target) => `chain ${target}`);
  const devices = links.filter((link) => device?.test(link.device) === true)
    .map((link) => `device ${link.device}`);
  return [...new Set([...tables, ...chains, ...devices])];
}
