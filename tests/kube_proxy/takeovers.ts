/**
 * From kube-proxy to kproxy and back under connect loops, and what either command leaves when it cleans up.
 *
 * @module
 */
import { writeErrorLine } from "../../tools/output.ts";
import { kproxy as runKproxy } from "../cli/kproxy.ts";
import type { KubeProxyMode } from "../support/kube_proxy/kube_proxy.ts";
import { ProxyPair } from "./pair.ts";
import type { LoopPace } from "../support/connect_loop.ts";
import type { Netns } from "../support/netns.ts";
import { type Step, SwitchLab, type Takeover } from "../support/switch_lab.ts";
import { drawWorld } from "./worlds.ts";

/** What clients noticed of one step. */
export interface TakeoverFigures {
  readonly from: string;
  readonly to: string;
  readonly connections: number;
  readonly failed: number;
  /** The longest time in which a client that connects without end was not answered. */
  readonly longestGapMs: number;
  /** Why the step is not as it should be: connections that failed, rules that were left. */
  readonly problem?: string;
}

/** The ways of one mode, or of modes that this kernel has side by side. */
export const WAYS: Readonly<Record<KubeProxyMode, readonly [Takeover, ...Step[]]>> = {
  iptables: [
    { to: "iptables", by: "kube-proxy" },
    { to: "iptables", by: "kproxy" },
    { to: "iptables", by: "kube-proxy" },
  ],
  nftables: [
    { to: "nftables", by: "kube-proxy" },
    { to: "nftables", by: "kproxy" },
    { to: "nftables", by: "kube-proxy" },
    { to: "iptables", by: "kproxy" },
    { to: "iptables", by: "kube-proxy" },
    { to: "nftables", by: "kproxy" },
    { to: "iptables", by: "kube-proxy" },
  ],
  ipvs: [
    { to: "ipvs", by: "kube-proxy" },
    { to: "ipvs", by: "kproxy" },
    { to: "ipvs", by: "kube-proxy" },
  ],
};

/** Makes the steps; ends at the first one that is not as it should be. */
export async function takeOver(
  [first, ...steps]: readonly [Takeover, ...Step[]],
  pace?: LoopPace,
): Promise<TakeoverFigures[]> {
  const all: TakeoverFigures[] = [];
  await using lab = await SwitchLab.create(first, pace);
  let from: Step = first;
  for (const step of steps) {
    const before = await lab.figures();
    const problem = await lab.make(step).then(() => undefined, (error: Error) => error.message);
    const { connections, failed, longestGapMs } = await lab.figures();
    all.push({
      from: `${from.by} ${from.to}`,
      to: `${step.by} ${step.to}`,
      connections: connections - before.connections,
      failed: failed - before.failed,
      longestGapMs,
      ...(problem === undefined ? {} : { problem }),
    });
    if (problem !== undefined) return all;
    from = step;
  }
  await lab.end();
  return all;
}

/** What is left of a proxy's own: chains, rules, sets, tables, virtual servers, devices. */
async function leftovers(netns: Netns): Promise<string[]> {
  const lines: string[] = [];
  for (
    const [command, own] of [
      ["iptables-save", /KUBE-/],
      ["ip6tables-save", /KUBE-/],
      ["nft list tables", /kube-proxy|kproxy/],
      ["ipset save", /KUBE-/],
      ["ipvsadm -Sn", /^-/],
      ["ip -o link", /kube-ipvs0/],
    ] as const
  ) {
    // A kernel without tables, sets or servers has none.
    const { stdout } = await netns.exec.run(command.split(" "));
    lines.push(...stdout.split("\n").filter((line) => own.test(line)).map((line) => `${command}: ${line}`));
  }
  return lines;
}

/** What a command that cleans up left. */
export interface CleanupFigures {
  readonly of: string;
  readonly by: string;
  /** The exit status. */
  readonly code: number;
  /** Lines before, and those that are left. */
  readonly lines: number;
  readonly left: readonly string[];
}

/** Has kproxy clean up after kube-proxy, and kube-proxy after kproxy. */
export async function cleanUp(program: string, mode: KubeProxyMode, seed: number): Promise<CleanupFigures[]> {
  const pair = await ProxyPair.create(program, mode, drawWorld(seed, { services: 20, packets: 0 }).objects);
  const [theirs, ours] = [pair.theirs.node.netns, pair.ours.node.netns];
  try {
    await pair.endProxies();
    const before = [(await leftovers(theirs)).length, (await leftovers(ours)).length];
    const { code, out, err } = await runKproxy(["cleanup"], { netns: theirs.name });
    if (code !== 0) throw new Error(`kproxy cleanup ended with ${code}: ${out}${err}`);
    const argv = [program, "--cleanup"];
    const byKubeProxy = await ours.exec.run(argv);
    if (byKubeProxy.code !== 0) {
      writeErrorLine(`${argv.join(" ")} ended with status ${byKubeProxy.code}: ${byKubeProxy.stderr}`);
    }
    return [
      { of: "kube-proxy", by: "kproxy cleanup", code, lines: before[0]!, left: await leftovers(theirs) },
      {
        of: "kproxy",
        by: "kube-proxy --cleanup",
        // In mode ipvs it is 1, as after kube-proxy itself: chains of nat refer to those that it deletes first.
        code: byKubeProxy.code,
        lines: before[1]!,
        left: await leftovers(ours),
      },
    ];
  } finally {
    await pair[Symbol.asyncDispose]();
  }
}
