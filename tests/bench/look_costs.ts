/**
 * What the programs of a look at the rules of mode iptables take: `deno run -A tests/bench/look_costs.ts [--services 100,300,1000]
 * [--variant nft|legacy]`. Needs root; works in network namespaces of its own.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { writeLine } from "../../tools/output.ts";
import type { Netns } from "../support/netns.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import { KproxyProcess } from "./kproxy_process.ts";
import { iptablesMode, type Variant } from "./mode_iptables.ts";
import { programsMs } from "./programs_time.ts";

const ENDPOINTS = 10;
const RUNS = 10;
const START_TIMEOUT_MS = 900_000;
const LISTED_CHAINS = 500;

/** Mean of {@linkcode RUNS} runs; entering the namespace is part of it, a millisecond or two. */
async function meanMs(netns: Netns, argv: readonly string[], stdin?: string): Promise<number> {
  const beforeMs = await programsMs();
  for (let run = 0; run < RUNS; run++) await netns.run(argv, stdin === undefined ? {} : { stdin });
  return (await programsMs() - beforeMs) / RUNS;
}

/** Writes the rules as kproxy does, which then ends. */
async function writeRules(netns: Netns, services: number, folder: string): Promise<void> {
  await using api = await FakeApi.start(
    netns,
    { services, endpoints: ENDPOINTS },
    `${folder}/${services}.sock`,
  );
  await using kproxy = new KproxyProcess(netns, { master: api.url, mode: "iptables" });
  await kproxy.allServed(START_TIMEOUT_MS);
  await kproxy.stop();
}

function listing(table: string, chains: readonly string[]): string {
  return [`*${table}`, ...chains.map((chain) => `-S ${chain}`), "COMMIT", ""].join("\n");
}

async function costs(netns: Netns, variant: Variant): Promise<readonly number[]> {
  const save = `iptables-${variant}-save`;
  const restore = [`iptables-${variant}-restore`, "--noflush"];
  const saved = await netns.run([save, "-t", "nat"]);
  const own = [...saved.matchAll(/^:(KUBE-(?:SVC|SEP|EXT)-\S+)/gm)].map(([, chain]) => chain!);
  const shared = listing("nat", ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"]) +
    listing("filter", ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD"]);
  return [
    await meanMs(netns, [save]),
    await meanMs(netns, restore, shared),
    await meanMs(netns, restore, shared + listing("nat", own.slice(0, LISTED_CHAINS))),
  ];
}

if (import.meta.main) {
  const args = parseArgs(Deno.args, {
    string: ["services", "variant"],
    default: { services: "100,300,1000", variant: "nft" },
  });
  const { variant } = args;
  if (variant !== "nft" && variant !== "legacy") {
    throw new RangeError(`--variant must be nft or legacy: got ${variant}`);
  }
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-" });
  writeLine(
    `CPU time of the programs in ms, mean of ${RUNS}, ${variant}, load ${
      Deno.loadavg().map((one) => one.toFixed(1)).join(" ")
    }`,
  );
  try {
    for (const services of args.services!.split(",").map(Number)) {
      const [save, shared, listed] = await inBenchNetns(iptablesMode(variant), async (netns) => {
        await writeRules(netns, services, folder);
        return await costs(netns, variant);
      });
      writeLine(
        `${services} × ${ENDPOINTS}: iptables-save ${save}; shared chains, -S ${shared}; and ${LISTED_CHAINS} chains of Services ${listed}`,
      );
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
