/**
 * `kproxy doctor`: what of this node keeps Services from working, and how to mend it.
 *
 * @module
 */
import { configForMode } from "../../config/defaults.ts";
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { ExecError, UsageError } from "../../errors.ts";
import { judgeNodeFacts, modeHere } from "../../inspect/doctor/doctor.ts";
import { readFact, unread } from "../../inspect/doctor/fact.ts";
import { FACTS_LIMIT_MS, LATE_MS, readFacts, type ReadFactsOptions } from "../../inspect/doctor/facts.ts";
import { type Finding, ok, warning } from "../../inspect/doctor/finding.ts";
import { judgeMigration, type Migration } from "../../inspect/doctor/migrate/migration.ts";
import {
  type FoundServices,
  readServices,
  type ServicesQuestion,
} from "../../inspect/doctor/migrate/services.ts";
import { MIGRATION_MODES, type MigrationMode } from "../../inspect/doctor/migrate/traits.ts";
import {
  type DoctorReport,
  doctorReport,
  migrationLines,
  rejectedText,
  reportRows,
  reportSummary,
} from "../../inspect/doctor/report.ts";
import { examineManifests } from "../../inspect/doctor/manifests.ts";
import { judgeUnserved, type UnservedDestinations } from "../../inspect/doctor/judge/unserved.ts";
import { runningSettings } from "../../inspect/running/running_settings.ts";
import { parseBaseChains } from "../../netfilter/nft_listing.ts";
import { cpuCount } from "../../kernel/cpu.ts";
import { systemExec } from "../../kernel/exec.ts";
import { nodeName } from "../../node/node_name.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import type { Io } from "../io.ts";
import { alignColumns } from "../terminal/columns.ts";
import { namesMode, namesSource } from "./looking.ts";
import { runDoubts } from "../flags/input_doubts.ts";
import { tellFound, toldConfiguration } from "./telling.ts";

/** Looks and tells; 1 if there is a failure. */
export async function doctorCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const migrateTo = migrationMode(flags);
  const { config, ...told } = await toldConfiguration(flags, io);
  const doubts = await runDoubts(flags, { config, ...told });
  const report = await examine({
    exec: systemExec,
    config,
    master: flags.get("master") ?? "",
    nodeName: nodeName(config),
    ...await settingsHere(flags, config),
    migrateTo,
    isSourceNamed: namesSource(flags),
    doubts,
  });
  await tellFound(form, { document: () => report, lines: () => reportLines(report) }, io);
  return report.result === "failure" ? 1 : 0;
}

/**
 * Those of the kproxy that runs here: to judge its node by the defaults would call its own rules another mode's. Nothing where the
 * flags say which mode to judge by, or none runs.
 */
async function settingsHere(
  flags: ParsedFlags,
  told: KubeProxyConfiguration,
): Promise<
  Partial<
    Pick<ExamineOptions, "config" | "master" | "nodeName" | "runs" | "unserved" | "servicesBy" | "apiUnasked">
  >
> {
  if (namesMode(flags)) return {};
  const running = await runningSettings(told);
  if (running === null) return await settingsLeft(told);
  const { where, config: { kproxy, ...config }, nodeName, isTrusted, master, unserved } = running;
  const { manifests } = told.kproxy;
  // Who names an API server asks whether that one can be reached. Files and programs that give credentials are read and started with
  // the rights of this user, so that only this user, or root, may name them.
  const isNamed = namesSource(flags);
  const { clientConnection } = isNamed || !isTrusted ? told : config;
  const apiUnasked =
    `${where} runs as another user, who may name neither credentials nor manifests for this one`;
  return {
    ...(isNamed || !isTrusted ? {} : { master }),
    ...(isNamed || isTrusted ? {} : { apiUnasked }),
    config: {
      ...config,
      clientConnection,
      kproxy: isTrusted && manifests.length === 0 ? kproxy : { ...kproxy, manifests },
    },
    nodeName: told.hostnameOverride === "" ? nodeName : told.hostnameOverride,
    servicesBy: told,
    ...(unserved === null ? {} : { unserved }),
    runs: `${where} runs in mode ${config.mode}: this node is judged by its configuration`,
  };
}

const TABLES_LIMIT_MS = 1_500;

/** By the mode whose rules a kproxy that has ended left in force: by the default they would be another mode's. */
async function settingsLeft(
  told: KubeProxyConfiguration,
): Promise<Partial<Pick<ExamineOptions, "config" | "runs">>> {
  try {
    const { stdout } = await systemExec.run(["nft", "-y", "list", "chains"], { timeoutMs: TABLES_LIMIT_MS });
    if (!parseBaseChains(stdout).some(({ table }) => table === "kproxy")) return {};
  } catch (error) {
    // What is wrong with the program is a finding of its own.
    if (error instanceof ExecError) return {};
    throw error;
  }
  return {
    config: configForMode(told, "nftables"),
    runs: "none answers, and rules of its mode nftables are in force: this node is judged by that mode",
  };
}

function migrationMode(flags: ParsedFlags): MigrationMode | null {
  const text = flags.get("migrate-to");
  if (text === undefined) return null;
  const mode = MIGRATION_MODES.find((one) => one === text);
  // The list of flags lets nothing else through but a blank, as of a variable that is not set.
  if (mode === undefined) throw new UsageError(`Name a mode: --migrate-to=${MIGRATION_MODES.join("|")}`);
  return mode;
}

/** What an examination is given. */
export interface ExamineOptions extends Omit<ReadFactsOptions, "otherConfig"> {
  readonly migrateTo: MigrationMode | null;
  /** What is doubtful in the files and the server that the command line and the configuration name. */
  readonly doubts?: readonly string[];
  /** What is told of a kproxy that runs here; none without. */
  readonly runs?: string;
  /** What Services do not get of the kproxy that runs here; none without. */
  readonly unserved?: UnservedDestinations;
  /** What says where Services are, if another configuration does. */
  readonly servicesBy?: KubeProxyConfiguration;
  /** True: the command line names the API server, so that Services are not asked of a running kproxy. */
  readonly isSourceNamed: boolean;
}

/** Looks at the node; never rejects because of what it finds. */
export async function examine(options: ExamineOptions): Promise<DoctorReport> {
  const { config, nodeName, migrateTo } = options;
  const otherConfig = migrateTo === null ? null : configForMode(config, migrateTo);
  const [facts, services, manifests] = await Promise.all([
    readFacts({ ...options, otherConfig }),
    migrateTo === null ? null : servicesOf(options),
    examineManifests(config, options.unserved === undefined ? nodeName : null),
  ]);
  const mode = modeHere(facts, config);
  const findings = judgeNodeFacts(facts, { config, nodeName, cpuCount: await cpuCount(), migrateTo });
  const comparison = services === null || migrateTo === null
    ? null
    : compare(services, mode, migrateTo, config);
  return doctorReport({
    node: nodeName,
    mode,
    findings: [
      ...options.runs === undefined ? [] : [ok("kproxy", options.runs)],
      ...(options.doubts ?? []).map((doubt) =>
        warning("files", doubt, "see docs/sources.md, Who may write them")
      ),
      ...options.apiUnasked === undefined ? [] : [
        warning(
          "API server",
          options.apiUnasked,
          "name it with --config=FILE or --kubeconfig=FILE, or ask as that user",
        ),
      ],
      ...findings,
      ...(options.unserved === undefined ? [] : judgeUnserved(options.unserved)),
      ...manifests,
      ...comparison?.findings ?? [],
    ],
    migration: comparison?.migration ?? null,
  });
}

/** The Services, or why there are none. */
async function servicesOf(options: ExamineOptions): Promise<FoundServices | { readonly unread: string }> {
  const limitMs = options.limitMs ?? FACTS_LIMIT_MS;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), limitMs + LATE_MS);
  try {
    const fact = await readFact(
      () => servicesOrUsage({ ...options, config: options.servicesBy ?? options.config, limitMs }),
      {
        signal: late.signal,
        limitMs,
      },
    );
    if ("unread" in fact) return fact;
    if (fact.value instanceof UsageError) throw fact.value;
    return fact.value;
  } finally {
    clearTimeout(timer);
  }
}

/** Wrong use is no fact about the node, so it must not become one. */
async function servicesOrUsage(question: ServicesQuestion): Promise<FoundServices | UsageError> {
  try {
    return await readServices(question);
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
}

interface Comparison {
  readonly findings: readonly Finding[];
  readonly migration: Migration | null;
}

function compare(
  services: FoundServices | { readonly unread: string },
  mode: string,
  to: MigrationMode,
  config: KubeProxyConfiguration,
): Comparison {
  const check = `move to mode ${to}`;
  if ("unread" in services) return { findings: [unread(check, services.unread)], migration: null };
  const { from: objectsFrom, states, rejected } = services;
  // Where `auto` finds none that works, iptables is what a node has run so far.
  const from = MIGRATION_MODES.find((one) => one === mode) ?? "iptables";
  const findings = rejected.length === 0
    ? []
    : [warning(check, rejectedText(rejected), "mend these objects, they are not served either")];
  return { findings, migration: judgeMigration({ from, to, config, states, objectsFrom }) };
}

function reportLines(report: DoctorReport): readonly string[] {
  const { migration } = report;
  const lines = [...alignColumns(reportRows(report)), "", reportSummary(report)];
  return migration === null ? lines : [...lines, "", ...migrationLines(migration)];
}
