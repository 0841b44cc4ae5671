/**
 * Everything the doctor reads of a node, side by side, each by itself.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { EndableExec } from "../../kernel/endable_exec.ts";
import type { Exec } from "../../kernel/exec.ts";
import { readDeviceSettings } from "../../kernel/ip_address.ts";
import { kernelRelease } from "../../kernel/kernel_release.ts";
import { Nft } from "../../kernel/nft.ts";
import { readXtablesLock, type XtablesLock } from "../../kernel/xtables_lock.ts";
import { nodeIps } from "../../model/node.ts";
import { parseIp } from "../../model/ip.ts";
import type { BaseChain } from "../../netfilter/nft_listing.ts";
import { usesApiServer } from "../../node/source.ts";
import { neededRights } from "./api_rights.ts";
import { type Fact, readFact } from "./fact.ts";
import type { MetricsOwner } from "./judge/other_proxies.ts";
import type { RightsFact } from "./judge/rights.ts";
import type { ProgramFact } from "./programs.ts";
import { type ApiFacts, readApi } from "./read/api.ts";
import { readForeignEnds } from "./read/foreign_end.ts";
import { type Leftovers, readLeftovers } from "./read/leftovers.ts";
import { type LinksFact, readLinksFact } from "./read/links.ts";
import { readMetricsOwner } from "./read/metrics_owner.ts";
import { type ModeFact, readMode } from "./read/mode.ts";
import { readPrograms } from "./read/programs.ts";
import { readRights } from "./read/rights.ts";
import { readSettings, type Settings } from "./read/settings.ts";
import {
  askVariantAhead,
  type KernelChains,
  readKernelChains,
  readVariant,
  type VariantFact,
} from "./read/variant.ts";
import { ProgramRuns, type ProgramTrouble } from "./program_runs.ts";
import { SharingExec } from "./sharing_exec.ts";

/** What is known of a node, and why the rest is not. */
export interface DoctorFacts {
  readonly programs: ReadonlyMap<string, Fact<ProgramFact>>;
  /** Programs that hang, were killed, or print what is none of their outputs. */
  readonly troubles: readonly ProgramTrouble[];
  readonly mode: Fact<ModeFact>;
  /** Of the mode to move to; null without one. */
  readonly otherMode: Fact<ModeFact> | null;
  readonly variant: Fact<VariantFact | null>;
  /** Null where iptables does not work. */
  readonly kernelChains: Fact<KernelChains | null>;
  readonly baseChains: Fact<readonly BaseChain[]>;
  /** Places of rules of others that end packets between pods. */
  readonly foreignEnds: Fact<readonly string[]>;
  readonly leftovers: Fact<Leftovers>;
  readonly settings: Fact<Settings>;
  readonly deviceSettings: Fact<ReadonlyMap<string, string>>;
  readonly lock: Fact<XtablesLock>;
  readonly rights: Fact<RightsFact>;
  readonly links: Fact<LinksFact>;
  readonly metricsOwner: Fact<MetricsOwner>;
  /** Null where all objects come from files. */
  readonly api: Fact<ApiFacts> | null;
  /** Canonical; null where the runtime does not tell. */
  readonly ownIps: readonly string[] | null;
  readonly release: string | null;
  /** True if kproxy itself runs in a pod. */
  readonly inContainer: boolean;
}

/** What reading is given. */
export interface ReadFactsOptions {
  readonly exec: Exec;
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  readonly nodeName: string;
  /** Why the API server is not asked; absent: it is, if there is one. */
  readonly apiUnasked?: string | undefined;
  /** The configuration with the mode to move to; null without one. */
  readonly otherConfig: KubeProxyConfiguration | null;
  /** Every reader has so long. @default {6000} */
  readonly limitMs?: number;
  /** As in {@linkcode ProgramRuns}. */
  readonly slowMs?: number;
  /** Path of the lock. */
  readonly lockPath?: string;
}

/** Above what a large node needs for its slowest list, and such that the whole ends within 10 s. */
export const FACTS_LIMIT_MS = 6_000;
/** What is made of several parts has so much longer than each of them. */
export const LATE_MS = 300;
/** Programs that were told to end are waited for so long: those that do not listen are killed by then. */
const END_MS = 2_500;

/** Reads everything; never rejects, and takes no longer than the limit and the end of programs that hang. */
export async function readFacts(options: ReadFactsOptions): Promise<DoctorFacts> {
  const { config, master, limitMs = FACTS_LIMIT_MS } = options;
  const running = new ProgramRuns(options.exec, options.slowMs);
  const programs = new EndableExec(running);
  const exec = new SharingExec(programs);
  const { signal } = programs;
  const late = new AbortController();
  const timers = [
    setTimeout(() => {
      running.noteHanging(limitMs);
      programs.end();
    }, limitMs),
    setTimeout(() => late.abort(), limitMs + LATE_MS),
  ];
  const fact = <T>(read: () => Promise<T>): Promise<Fact<T>> => readFact(read, { signal, limitMs });
  const { primaryFamily } = nodeIps(null, config.bindAddress);
  const ownIps = interfaceIps();
  // First, because it has the longest row of questions.
  const mode = fact(() => readMode(exec, config));
  askVariantAhead(exec);
  const variant = fact(() => readVariant(exec, primaryFamily));
  const baseChains = fact(() => new Nft(exec).baseChains());
  try {
    const facts = {
      programs: readPrograms(exec, { signal, limitMs }),
      mode,
      otherMode: options.otherConfig === null
        ? Promise.resolve(null)
        : fact(() => readMode(exec, options.otherConfig ?? config)),
      variant,
      kernelChains: fact(async () => {
        const found = await variant;
        if ("unread" in found) throw new Error(`the variant of iptables is not known: ${found.unread}`);
        return found.value === null ? null : await readKernelChains(exec, found.value.chosen.variant);
      }),
      baseChains,
      foreignEnds: fact(async () => {
        const chains = await baseChains;
        return "unread" in chains ? [] : await readForeignEnds(exec, config, chains.value);
      }),
      leftovers: fact(async () => await readLeftovers(exec, { config, mode: await mode })),
      settings: fact(() => readSettings(exec, config)),
      deviceSettings: fact(() => readDeviceSettings(exec)),
      lock: fact(() => readXtablesLock(options.lockPath)),
      rights: fact(readRights),
      links: fact(() => readLinksFact(exec)),
      metricsOwner: fact(() => readMetricsOwner(config.metricsBindAddress)),
      // Its parts end by the limit, each by itself; the whole is ended a little later, if something else of it hangs.
      api: options.apiUnasked !== undefined || !usesApiServer(config, master)
        ? Promise.resolve(null)
        : readFact(
          () => askApi(options, { ownIps: ownIps ?? [], exec: programs }, { signal, limitMs }),
          { signal: late.signal, limitMs },
        ),
    };
    const read = await allOf(facts);
    const { troubles } = running;
    return { ...read, troubles, ownIps, release: kernelRelease(), inContainer: isInPod() };
  } finally {
    for (const timer of timers) clearTimeout(timer);
    if (signal.aborted) await running.ended(END_MS);
  }
}

function askApi(
  { config, master, nodeName }: ReadFactsOptions,
  machine: { readonly ownIps: readonly string[]; readonly exec: Exec },
  limit: Parameters<typeof readApi>[1],
): ReturnType<typeof readApi> {
  const { endpointsSource, serving: { delegatedAuthentication: asksWhoClientsAre } } = config.kproxy;
  const rights = neededRights({ mode: config.mode, endpointsSource, nodeName, asksWhoClientsAre });
  return readApi({ config, master, nodeName, rights, ...machine }, limit);
}

type Awaiting<T> = { readonly [Key in keyof T]: Promise<T[Key]> };

async function allOf<T extends object>(promises: Awaiting<T>): Promise<T> {
  const entries = await Promise.all(
    Object.entries(promises).map(async ([key, promise]) =>
      [key, await (promise as Promise<unknown>)] as const
    ),
  );
  // The keys are those of the promises, and the values what each of them resolved to.
  return Object.fromEntries(entries) as T;
}

function interfaceIps(): readonly string[] | null {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "networkInterfaces" });
  if (state !== "granted") return null;
  return Deno.networkInterfaces().map(({ address }) =>
    parseIp(address.split("%", 1)[0] ?? "")?.text ?? address
  );
}

function isInPod(): boolean {
  const { state } = Deno.permissions.querySync({ name: "env", variable: "KUBERNETES_SERVICE_HOST" });
  return state === "granted" && (Deno.env.get("KUBERNETES_SERVICE_HOST") ?? "") !== "";
}
