/**
 * Mode ipvs as it is measured: in the user-mode Linux, because most kernels that tests run on have no IPVS.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { type BenchMode, type ClusterSizeInKernel, makeKubeletHint } from "./mode.ts";
import type { RecordedRun } from "./recorded_programs.ts";

const DEVICE = "kube-ipvs0";
/** Words that only text for IPv6 has: sets, addresses, servers. */
const OF_IPV6 = /KUBE-6-|family inet6|\/128 |\[[\da-f]*:[\da-f:]+\]:/;

/** Mode ipvs. */
export const IPVS_MODE: BenchMode = {
  proxyMode: "ipvs",
  title: "ipvs",
  prepare: (netns) => makeKubeletHint(netns, "legacy"),
  fullSync,
  transactions: (runs) => runs.length,
  asOneTransaction: null,
  // An endpoint that leaves is looked at after a second, and deleted if it has no connections.
  aftermathMs: 2_000,
  openWatch: null,
  isAnswering: true,
  readRules,
  endpointIps: async (netns) => {
    const servers = (await netns.run(["ipvsadm", "-Sn"])).matchAll(/^-a .* -r ([\d.]+):\d+ .*-w ([\d]+)/gm);
    // One on its way out has no weight.
    return new Set(Array.from(servers).filter(([, , weight]) => weight !== "0").map(([, ip = ""]) => ip));
  },
  countProgrammed,
};

/** The device, sets, rules, servers and addresses; not what only tries whether the node has what is needed. */
function fullSync(start: readonly RecordedRun[]): readonly RecordedRun[] {
  const runs = withSetsAtOnce(start.flatMap(withoutIpv6Sets)).filter(
    ({ argv: [name = "", ...args], stdin }) => {
      if (stdin.includes("KPROXY-PROBE") || OF_IPV6.test(stdin)) return false;
      switch (programOf(name)) {
        case "ip":
          return args.join(" ") === `link add ${DEVICE} type dummy` || stdin !== "";
        case "iptables-restore":
          return stdin.includes("KUBE-SERVICES");
        case "ipset":
        case "ipvsadm":
          return stdin !== "";
        default:
          return false;
      }
    },
  );
  const written = ["ip", "ipset", "iptables-restore", "ipvsadm"];
  const missing = written.filter((name) => !runs.some(({ argv: [own = ""] }) => programOf(own) === name));
  if (missing.length > 0) throw new Error(`kproxy wrote nothing with ${missing.join(", ")}`);
  return runs;
}

/** Without the variant that may be in its name. */
function programOf(name: string): string {
  return name.replace(/-(nft|legacy)/, "");
}

/** Where the mode begins, one program makes the sets of both families. */
function withoutIpv6Sets({ argv, stdin }: RecordedRun): readonly RecordedRun[] {
  if (argv[0] !== "ipset" || stdin === "") return [{ argv, stdin }];
  const lines = stdin.split("\n").filter((line) => line !== "" && !OF_IPV6.test(line));
  return lines.length === 0 ? [] : [{ argv, stdin: `${lines.join("\n")}\n` }];
}

/** kproxy makes sets when it tries whether the kernel has them; the bare program makes and fills them in one run. */
function withSetsAtOnce(runs: readonly RecordedRun[]): readonly RecordedRun[] {
  const isMaking = ({ argv, stdin }: RecordedRun): boolean =>
    argv[0] === "ipset" && stdin !== "" && !stdin.includes("KPROXY-PROBE") &&
    !/^(?!create )/m.test(stdin.trimEnd());
  const made = runs.filter(isMaking).map(({ stdin }) => stdin).join("");
  const filled = runs.find(({ argv, stdin }) => argv[0] === "ipset" && /^add KUBE-/m.test(stdin));
  return runs.filter((run) => !isMaking(run)).map((run) =>
    run === filled ? { ...run, stdin: made + run.stdin } : run
  );
}

async function readRules(netns: Netns): Promise<string> {
  const addresses = await netns.run(["ip", "-4", "-o", "address", "show", "dev", DEVICE]);
  const rules = (await netns.run(["iptables-save"])).replaceAll(/ \[\d+:\d+\]/g, "").replaceAll(
    /^#.*$/gm,
    "",
  );
  const sets = (await netns.run(["ipset", "save"])).split("\n")
    // Both families' sets are in one list; how they are spread over their buckets is chance.
    .filter((line) => !line.includes("KUBE-6-")).map((line) => line.replace(/ initval \S+/, ""));
  const lines = [await netns.run(["ipvsadm", "-Sn"]), addresses.replaceAll(/^\d+: /gm, ""), rules];
  return [...lines.join("\n").split("\n"), ...sets].map((line) => line.trim()).filter((line) => line !== "")
    .sort().join("\n");
}

/** A Service counts if its address, its entries and its server are there. */
async function countProgrammed(netns: Netns): Promise<ClusterSizeInKernel> {
  const count = async (argv: readonly string[], pattern: RegExp): Promise<number> =>
    (await netns.run(argv)).match(pattern)?.length ?? 0;
  const services = await Promise.all([
    count(["ipvsadm", "-Sn"], /^-A /gm),
    count(["ip", "-4", "-o", "address", "show", "dev", DEVICE], /inet /g),
    count(["ipset", "save", "KUBE-CLUSTER-IP"], /^add /gm),
    count(["ipset", "save", "KUBE-IPVS-IPS"], /^add /gm),
  ]);
  return { services: Math.min(...services), endpoints: await count(["ipvsadm", "-Sn"], /^-a /gm) };
}
