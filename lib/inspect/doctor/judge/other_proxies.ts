/**
 * Judges whether another service proxy is at work on the node: by its tables, chains, devices, or its metrics.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import type { BaseChain } from "../../../netfilter/nft_listing.ts";
import type { Link } from "../../../netfilter/ip_batch.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import type { KernelChain } from "../read/variant.ts";
import { few } from "../../../text/words.ts";

const CHECK = "other proxies";

/** Who answers where a proxy has its metrics. */
export type MetricsOwner = "kproxy" | "kube-proxy" | "nobody" | "somebody else";

/** The signs of other proxies; those that could not be looked at are left out. */
export interface ProxySigns {
  readonly owner?: MetricsOwner | undefined;
  /** Where that was asked. */
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
  readonly table: RegExp | null;
  /** Targets of rules in PREROUTING of nat. */
  readonly chain: RegExp | null;
  readonly device: RegExp | null;
  readonly mend: string;
  /** Rules of this mode look the same whoever wrote them. */
  readonly mode?: ProxyMode;
}

/** Chains that only mode userspace has. */
const PORTALS = /^KUBE-PORTALS-/;

const KNOWN: readonly KnownProxy[] = [
  {
    name: "kube-proxy (mode nftables)",
    table: /^kube-proxy$/,
    chain: null,
    device: null,
    mend: "end kube-proxy on this node, then: kproxy cleanup --only=nftables --of=kube-proxy",
  },
  {
    name: "a proxy in mode userspace, kube-proxy or a kproxy of another configuration,",
    table: null,
    chain: PORTALS,
    device: null,
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
    table: null,
    chain: null,
    device: /^bpf(in|out)\.cali$/,
    mend: "set bpfEnabled=false in Calico's FelixConfiguration, or do without kproxy here",
  },
];

/** One finding for each proxy that shows. */
export function judgeOtherProxies(signs: ProxySigns): readonly Finding[] {
  const findings: Finding[] = [];
  if (signs.owner === "kube-proxy") {
    findings.push(
      failure(
        CHECK,
        `kube-proxy runs on this node: its metrics answer at ${signs.metricsAddress}`,
        "keep it off this node, e.g.: kubectl -n kube-system patch daemonset kube-proxy -p " +
          `'{"spec":{"template":{"spec":{"nodeSelector":{"kproxy.io/replaced":"false"}}}}}'`,
      ),
    );
  }
  if (signs.owner === "somebody else") {
    findings.push(
      warning(
        CHECK,
        `something that is no proxy of Kubernetes answers at ${signs.metricsAddress}, where metrics are to be served`,
        "give kproxy another address: --metrics-bind-address",
      ),
    );
  }
  if (signs.owner === "nobody" && signs.metricsAddress !== "" && hasRules(signs)) {
    findings.push(
      warning(
        CHECK,
        `rules of a service proxy are in force, and none answers at ${signs.metricsAddress}: they stay as they are, whatever changes`,
        "start kproxy, or look why it ended",
      ),
    );
  }
  for (const proxy of KNOWN) {
    const found = signsOf(proxy, signs);
    if (found.length > 0 && proxy.mode !== signs.mode) {
      findings.push(warning(CHECK, `${proxy.name} was or is here: ${few(found)}`, proxy.mend));
    }
  }
  if (findings.length > 0) return findings;
  return [ok(CHECK, signs.owner === "kproxy" ? "none; kproxy runs" : "none shows")];
}

/** True if packets are led to rules with the names that kproxy and kube-proxy use. */
function hasRules({ baseChains, prerouting }: ProxySigns): boolean {
  return (baseChains ?? []).some(({ table }) => table === "kproxy") ||
    (prerouting ?? []).flatMap(({ lines }) => lines).some((line) =>
      / -j KUBE-(?:SERVICES|PORTALS-CONTAINER)\b/.test(line)
    );
}

function signsOf({ table, chain, device }: KnownProxy, signs: ProxySigns): readonly string[] {
  const tables = new Set(
    (signs.baseChains ?? []).filter((one) => table?.test(one.table) === true).map((one) =>
      `table ${one.family} ${one.table}`
    ),
  );
  const chains = new Set(
    (signs.prerouting ?? []).flatMap(({ lines }) => lines).flatMap((line) => {
      const target = / -[jg] (\S+)/.exec(line)?.[1] ?? "";
      return chain?.test(target) === true ? [`chain ${target}`] : [];
    }),
  );
  const devices = (signs.links ?? []).filter((link) => device?.test(link.device) === true)
    .map((link) => `device ${link.device}`);
  return [...tables, ...chains, ...devices];
}
