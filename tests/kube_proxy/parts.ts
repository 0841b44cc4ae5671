/**
 * The parts of `try_kube_proxy`, each with what it says.
 *
 * @module
 */
import type { PartName } from "../../tools/kube_proxy_record.ts";
import type { KubeProxyMode } from "../support/kube_proxy/kube_proxy.ts";
import { comparePackets, type PacketDifference } from "./compare_packets.ts";
import { compareRecorded, compareRules, type RuleComparison } from "./compare_rules.ts";
import { compareFlows } from "./flows.ts";
import { onceMoreIfExcused } from "../support/skip.ts";
import { ProxyPair } from "./pair.ts";
import { cleanUp, takeOver, type TakeoverFigures, WAYS } from "./takeovers.ts";
import { drawWorld } from "./worlds.ts";

/** What a part is run with. */
export interface PartOptions {
  readonly program: string;
  readonly mode: KubeProxyMode;
  readonly worlds: number;
  /** Of the first world; the next one has the next seed. */
  readonly seed: number;
}

/** What came of a part. */
export interface PartOutcome {
  /** For people, without what is wrong. */
  readonly words: string;
  readonly problems: readonly string[];
  /** For the record. */
  readonly figures: unknown;
}

const RULE_SERVICES = 40;
const PACKET_WORLD = { services: 6, packets: 80 } as const;
/** Lines of a problem that has many. */
const SHOWN = 12;
/** In the user-mode Linux, where every start of a program keeps all loops waiting: only lost packets show a failure there. */
const UML_PACE = { perSecond: 20, limitMs: 10_000 };
const UML_PATIENCE = 6;

/** Runs a part; null if it has nothing to do in this mode. */
export function runPart(part: PartName, options: PartOptions): Promise<PartOutcome | null> {
  return PART_RUNS[part](options);
}

const PART_RUNS: Readonly<Record<PartName, (options: PartOptions) => Promise<PartOutcome | null>>> = {
  rules,
  packets,
  flows,
  recorded,
  takeover,
  cleanup,
};

function clusters({ worlds }: PartOptions): string {
  return worlds === 1 ? "1 cluster" : `${worlds} clusters`;
}

function seedsOf({ worlds, seed }: PartOptions): number[] {
  return Array.from({ length: worlds }, (_, at) => seed + at);
}

function ruleProblems(
  where: string,
  { onlyKubeProxy, onlyKproxy }: RuleComparison,
  other = "kproxy",
): string[] {
  const all = [
    ...onlyKubeProxy.map((line) => `${where}: only of kube-proxy: ${line}`),
    ...onlyKproxy.map((line) => `${where}: only of ${other}: ${line}`),
  ];
  return all.length <= SHOWN
    ? all
    : [...all.slice(0, SHOWN), `${where}: and ${all.length - SHOWN} lines more`];
}

async function rules(options: PartOptions): Promise<PartOutcome | null> {
  const { program, mode } = options;
  if (mode === "nftables") return null;
  const problems: string[] = [];
  let lines = 0;
  for (const seed of seedsOf(options)) {
    const { objects } = drawWorld(seed, { services: RULE_SERVICES, packets: 0 });
    await using pair = await ProxyPair.create(program, mode, objects);
    const compared = await compareRules(pair);
    lines += compared.lines;
    problems.push(...ruleProblems(`world ${seed}`, compared));
  }
  const figures = { worlds: options.worlds, services: RULE_SERVICES * options.worlds, lines };
  const words = `${clusters(options)}, ${figures.services} Services: ${lines} lines compared`;
  return { words, problems, figures };
}

function packetProblem(seed: number, { packet, kubeProxy, kproxy }: PacketDifference): string {
  return `world ${seed}: ${packet}\n  kube-proxy ⇒ ${kubeProxy.join(" | ")}\n  kproxy     ⇒ ${
    kproxy.join(" | ")
  }`;
}

async function packets(options: PartOptions): Promise<PartOutcome> {
  const { program, mode } = options;
  const problems: string[] = [];
  let count = 0;
  for (const seed of seedsOf(options)) {
    const world = drawWorld(seed, PACKET_WORLD);
    await using pair = await ProxyPair.create(program, mode, world.objects);
    const compared = await comparePackets(pair, world, mode === "ipvs" ? UML_PATIENCE : 1);
    count += compared.packets;
    problems.push(...compared.differences.map((difference) => packetProblem(seed, difference)));
  }
  const figures = { worlds: options.worlds, packets: count, different: problems.length };
  return {
    words: `${clusters(options)}, ${count} packets, ${problems.length} differ`,
    problems,
    figures,
  };
}

async function flows({ program, mode }: PartOptions): Promise<PartOutcome | null> {
  if (mode === "ipvs") return null;
  const { cases, declared, differences } = await compareFlows(program, mode);
  return {
    words: `${cases} cases, ${declared.length} differ as declared`,
    problems: differences,
    figures: { cases, declared: declared.length, different: differences.length },
  };
}

async function recorded({ program, mode }: PartOptions): Promise<PartOutcome | null> {
  const compared = await compareRecorded(program, mode);
  if (compared === null) return null;
  return {
    words: `${compared.lines} lines compared`,
    problems: ruleProblems("recorded", compared, "the record"),
    figures: { lines: compared.lines },
  };
}

function takeoverWords({ from, to, connections, failed, longestGapMs }: TakeoverFigures): string {
  return `${from} → ${to}: ${failed} of ${connections} connections failed, longest gap ${longestGapMs} ms`;
}

async function takeover({ mode }: PartOptions): Promise<PartOutcome> {
  const pace = mode === "ipvs" ? UML_PACE : undefined;
  const steps = await onceMoreIfExcused(`takeover, mode ${mode}`, () => takeOver(WAYS[mode], pace));
  return {
    words: steps.map(takeoverWords).join("\n  "),
    problems: steps.flatMap(({ problem, from, to }) =>
      problem === undefined ? [] : `${from} → ${to}: ${problem}`
    ),
    figures: steps.map(({ problem: _, ...step }) => step),
  };
}

async function cleanup({ program, mode, seed }: PartOptions): Promise<PartOutcome> {
  const all = await cleanUp(program, mode, seed);
  const figures = all.map(({ left, ...one }) => ({ ...one, left: left.length }));
  const words = all.map(({ of, by, code, lines, left }) => {
    const isFirewall = left.length > 0 && left.every((line) => line.includes("KUBE-FIREWALL"));
    const whose = isFirewall ? ", all of `KUBE-FIREWALL`" : "";
    const ended = code === 0 ? "" : `, ended with status ${code}`;
    return `\`${by}\` left ${left.length} of ${lines} lines of ${of}${whose}${ended}`;
  });
  return {
    words: words.join("\n  "),
    // What kube-proxy leaves of kproxy is a figure: it knows nothing of tables "kproxy".
    problems: all.flatMap(({ of, left }) => of === "kube-proxy" ? left : []),
    figures,
  };
}
