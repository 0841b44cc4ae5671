/**
 * Lays the values of flags over a configuration.
 *
 * @module
 */
import { ConfigError, formatProblem, type Problem } from "../errors.ts";
import { joinHostPort } from "../model/ip.ts";
import { applyModeDefaults, withPort } from "./defaults.ts";
import { type Field, FIELDS, withFields } from "./fields.ts";
import type { KindName, KindValues, VmoduleItem } from "./kinds.ts";
import type { FieldValue } from "./setting.ts";
import { HEALTHZ_PORT, type KubeProxyConfiguration, METRICS_PORT, type ProxyMode } from "./types.ts";
import { configWarnings, findProblems } from "./validate.ts";

/** A flag's value as the command line reads it. */
export type FlagValue = KindValues[KindName];

export interface OverlayOptions {
  /** The configuration comes from `--config`, so that most flags do not count. */
  readonly fromFile?: boolean;
}

export interface OverlaidConfig {
  /** Complete and valid. */
  readonly config: KubeProxyConfiguration;
  readonly warnings: readonly string[];
}

/** Flags that count beside a file. */
const HONOURED_WITH_FILE_REGEXP = /^(hostnameOverride|logging\..*|kproxy\..*)$/;
const FIELDS_BY_FLAG: ReadonlyMap<string, Field> = new Map(
  FIELDS.flatMap((field) => field.flag === undefined ? [] : [[field.flag, field] as const]),
);
const FLAGS_BY_PATH: ReadonlyMap<string, string> = new Map(
  [...FIELDS_BY_FLAG].map(([flag, { path }]) => [path, flag] as const),
);
/** Flags of the ports of servers, and where those are that have no port. */
const PORT_FLAGS = [
  ["healthz-port", "healthzBindAddress", HEALTHZ_PORT],
  ["metrics-port", "metricsBindAddress", METRICS_PORT],
] as const;
/** Flags without a field of their own. */
const OTHER_FLAGS: readonly string[] = [...PORT_FLAGS.map(([flag]) => flag), "conntrack-max"];

/** True if the flag that sets this field counts although the configuration comes from `--config`. */
export function countsBesideFile(path: string): boolean {
  return HONOURED_WITH_FILE_REGEXP.test(path);
}

/** Sections with the periods of a mode. */
type PacedSection = "iptables" | "ipvs" | "nftables";

/**
 * The configuration with the given flags (by name, without dashes; only those given) over it. Flags that set no field
 * are passed over.
 *
 * @throws {ConfigError} with every rule that the result breaks, by the flag's name where a flag gave the value or is missing
 */
export function applyFlagValues(
  config: KubeProxyConfiguration,
  values: ReadonlyMap<string, FlagValue>,
  options: OverlayOptions = {},
): OverlaidConfig {
  const overlay = new Overlay(config, values);
  if (options.fromFile) overlay.besideFile();
  else overlay.withoutFile();
  const result = applyModeDefaults(withFields(config, overlay.changes));
  const named = (problem: Problem): Problem => overlay.named(problem, options);
  const problems = [...overlay.problems, ...findProblems(result).map(named)];
  if (problems.length > 0) throw new ConfigError(problems);
  // Warnings of a file were reported when it was read.
  const settings = options.fromFile ? [] : configWarnings(result).map(named);
  return {
    config: result,
    warnings: [...overlay.warnings, ...settings].map((warning) => formatProblem(warning)),
  };
}

class Overlay {
  readonly changes = new Map<string, FieldValue>();
  readonly problems: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly #flagOf = new Map<string, string>();

  constructor(readonly config: KubeProxyConfiguration, readonly values: ReadonlyMap<string, FlagValue>) {}

  besideFile(): void {
    for (const [flag, value] of this.values) {
      const field = FIELDS_BY_FLAG.get(flag);
      if (field !== undefined && countsBesideFile(field.path)) {
        this.#setField(field, flag, value);
      } else if (field !== undefined || OTHER_FLAGS.includes(flag)) {
        this.warnings.push({ path: `--${flag}`, message: "ignored because --config is given" });
      }
    }
    this.#modeThatListens();
    const items = this.changes.get("logging.vmodule");
    if (items !== undefined) {
      const merged = [...items as VmoduleItem[], ...this.config.logging.vmodule];
      this.changes.set("logging.vmodule", merged);
    }
  }

  withoutFile(): void {
    for (const [flag, value] of this.values) {
      const field = FIELDS_BY_FLAG.get(flag);
      if (field !== undefined) this.#setField(field, flag, value);
    }
    for (const portFlag of PORT_FLAGS) this.#address(portFlag);
    if (!this.changes.has("mode")) this.#modeThatListens();
    this.#byMode();
    const max = this.values.get("conntrack-max");
    if (typeof max === "number" && max !== 0) {
      // The same limit without the field that newer versions dropped.
      this.#set("conntrack.maxPerCore", "conntrack-max", 1);
      this.#set("conntrack.min", "conntrack-max", max);
    }
  }

  /** The problem with flags' names in place of fields', where a flag gave the value, or nothing but a flag could have. */
  named({ path, message }: Problem, { fromFile = false }: OverlayOptions): Problem {
    const nameOf = (field: string): string => {
      const flag = this.#flagOf.get(field) ?? (fromFile ? undefined : FLAGS_BY_PATH.get(field));
      return flag === undefined ? field : `--${flag}`;
    };
    const field = path.replace(/\[.*$/, "").replace(/^featureGates\..*$/, "featureGates");
    const name = nameOf(field);
    // The message may name another field.
    return { path: name === field ? path : name, message: message.replace(/\b\w+(\.\w+)+\b/g, nameOf) };
  }

  #set(path: string, flag: string, value: FieldValue): void {
    this.changes.set(path, value);
    this.#flagOf.set(path, flag);
  }

  #setField({ path, kind, zeroIsUnset }: Field, flag: string, value: FlagValue): void {
    if (path === "hostnameOverride") return this.#hostnameOverride(String(value));
    // As in a file: what the API does not distinguish from "not given" is the default. Durations are not among these, so
    // that a period of 0 given by a flag counts (or is refused).
    const isZero = value === "" || (value === 0 && kind !== "duration" && kind !== "nanoseconds");
    if (!zeroIsUnset || !isZero) this.#set(path, flag, value);
  }

  #hostnameOverride(given: string): void {
    const name = given.trim().toLowerCase();
    if (name !== "") return this.#set("hostnameOverride", "hostname-override", name);
    if (given !== "") {
      this.problems.push({ path: "--hostname-override", message: "empty hostname-override is invalid" });
    }
  }

  /** Applies a port flag: 0 switches the server off; others are added to the given or the default address. */
  #address([flag, path, usualPort]: typeof PORT_FLAGS[number]): void {
    const port = this.values.get(flag) as number | undefined;
    const given = this.changes.get(path);
    if (port === 0) this.#set(path, flag, "");
    else if (typeof given === "string") this.changes.set(path, withPort(given, port ?? usualPort));
    else if (port !== undefined) {
      const host = this.config[path].replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
      this.#set(path, flag, joinHostPort(host, port));
    }
  }

  /** `--userspace-listen` chooses mode userspace: no other opens Services on addresses of the node. */
  #modeThatListens(): void {
    const addresses = this.changes.get("kproxy.userspaceListen");
    if (Array.isArray(addresses) && addresses.length > 0) this.#set("mode", "userspace-listen", "userspace");
  }

  /** There are no flags for nftables: those of iptables count in every mode but ipvs. */
  #byMode(): void {
    const mode = (this.changes.get("mode") ?? this.config.mode) as ProxyMode;
    const fallback = this.changes.get("kproxy.proxyModeFallback") ?? this.config.kproxy.proxyModeFallback;
    const sections = sectionsOf(mode, fallback === true);
    const likeIptables = sections.filter((section) => section !== "ipvs");
    for (const name of ["syncPeriod", "minSyncPeriod"] as const) {
      this.#feed(`iptables.${name}`, likeIptables.map((section) => `${section}.${name}`));
      this.#feed(`ipvs.${name}`, sections.includes("ipvs") ? [`ipvs.${name}`] : []);
    }
    this.#feed("iptables.masqueradeAll", masqueradingSections(sections).map((s) => `${s}.masqueradeAll`));
    if (mode === "ipvs" && !this.changes.has("ipvs.minSyncPeriod")) {
      this.changes.set("ipvs.minSyncPeriod", 1_000);
    }
  }

  /** Moves the value that a flag gave for a field to the fields it means in this mode. */
  #feed(path: string, targets: readonly string[]): void {
    const value = this.changes.get(path);
    const flag = this.#flagOf.get(path);
    if (value === undefined || flag === undefined) return;
    this.changes.delete(path);
    this.#flagOf.delete(path);
    for (const target of targets) this.#set(target, flag, value);
    if (targets.length === 0) {
      this.warnings.push({ path: `--${flag}`, message: "has no effect in this proxy mode" });
    }
  }
}

/** The sections whose mode this configuration may come to run. */
function sectionsOf(mode: ProxyMode, fallback: boolean): readonly PacedSection[] {
  const own: readonly PacedSection[] = mode === "auto"
    ? ["iptables", "nftables"]
    : mode === "ipvs" || mode === "nftables"
    ? [mode]
    : ["iptables"];
  return fallback && !own.includes("iptables") ? [...own, "iptables"] : own;
}

/** Sections by which rules are masqueraded: mode IPVS uses that of iptables. */
function masqueradingSections(sections: readonly PacedSection[]): readonly PacedSection[] {
  return [...new Set(sections.map((section) => section === "ipvs" ? "iptables" : section))];
}
