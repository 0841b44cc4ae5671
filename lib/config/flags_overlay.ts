/**
 * Lays the values of flags over a configuration.
 *
 * @module
 */
import { ConfigError, formatProblem, type Problem } from "../errors.ts";
import { joinHostPort } from "../model/ip.ts";
import { applyModeDefaults, withPort } from "./defaults.ts";
import { FIELDS } from "./fields.ts";
import { withFields } from "./paths.ts";
import { type FieldSpec, type FieldValue, HEALTHZ_PORT, METRICS_PORT, type VmoduleItem } from "./schema.ts";
import type { KubeProxyConfiguration, ProxyMode } from "./types.ts";
import { configWarnings, findProblems } from "./validate.ts";

/** A flag's value as the command line reads it: durations in milliseconds, lists split. */
export type FlagValue =
  | string
  | number
  | boolean
  | readonly string[]
  | Readonly<Record<string, boolean>>
  | readonly Readonly<VmoduleItem>[];

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
const FIELDS_BY_FLAG: ReadonlyMap<string, FieldSpec> = new Map(
  FIELDS.flatMap((spec) => spec.flag === undefined ? [] : [[spec.flag, spec] as const]),
);
const FLAGS_BY_PATH: ReadonlyMap<string, string> = new Map(
  FIELDS.flatMap(({ path, flag }) => flag === undefined ? [] : [[path, flag] as const]),
);
/** Flags without a field of their own. */
const OTHER_FLAGS: readonly string[] = ["healthz-port", "metrics-port", "conntrack-max"];

/** True if the flag that sets this field counts although the configuration comes from `--config`. */
export function countsBesideFile(path: string): boolean {
  return HONOURED_WITH_FILE_REGEXP.test(path);
}

interface PortFlag {
  readonly flag: string;
  readonly path: "healthzBindAddress" | "metricsBindAddress";
  readonly addressFlag: string;
  readonly port: number;
}

const PORT_FLAGS: readonly PortFlag[] = [
  {
    flag: "healthz-port",
    path: "healthzBindAddress",
    addressFlag: "healthz-bind-address",
    port: HEALTHZ_PORT,
  },
  {
    flag: "metrics-port",
    path: "metricsBindAddress",
    addressFlag: "metrics-bind-address",
    port: METRICS_PORT,
  },
];

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
  // Those of a file were told when it was read.
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
      const spec = FIELDS_BY_FLAG.get(flag);
      if (spec !== undefined && countsBesideFile(spec.path)) {
        this.#setField(spec, flag, value);
      } else if (spec !== undefined || OTHER_FLAGS.includes(flag)) {
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
      const spec = FIELDS_BY_FLAG.get(flag);
      if (spec !== undefined) this.#setField(spec, flag, value);
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
    // Another field that has a part in it.
    return { path: name === field ? path : name, message: message.replace(/\b\w+(\.\w+)+\b/g, nameOf) };
  }

  #set(path: string, flag: string, value: FieldValue): void {
    this.changes.set(path, value);
    this.#flagOf.set(path, flag);
  }

  #setField(spec: FieldSpec, flag: string, value: FlagValue): void {
    if (!fits(spec, value)) {
      throw new TypeError(`Flag --${flag} must give a ${spec.kind}, not ${typeof value}`);
    }
    if (spec.path === "hostnameOverride") return this.#hostnameOverride(String(value));
    // As in a file: what the API cannot tell from "not given" is the default. Durations are not among these, so
    // that a period of 0 given by a flag counts (or is refused).
    const isDefault = spec.zeroIsUnset &&
      (value === "" || (value === 0 && !spec.kind.startsWith("duration")));
    if (!isDefault) this.#set(spec.path, flag, structuredClone(value) as FieldValue);
  }

  #hostnameOverride(given: string): void {
    const name = given.trim().toLowerCase();
    if (name !== "") return this.#set("hostnameOverride", "hostname-override", name);
    if (given !== "") {
      this.problems.push({ path: "--hostname-override", message: "empty hostname-override is invalid" });
    }
  }

  /** A port of 0 switches the server off; another one goes to an address that has none, or to the default address. */
  #address({ flag, path, addressFlag, port: defaultPort }: PortFlag): void {
    const port = this.values.get(flag);
    if (port !== undefined && typeof port !== "number") {
      throw new TypeError(`Flag --${flag} must give a number`);
    }
    const given = this.changes.get(path);
    if (port === 0) this.#set(path, flag, "");
    else if (typeof given === "string") this.#set(path, addressFlag, withPort(given, port ?? defaultPort));
    else if (port !== undefined) {
      const host = this.config[path].replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
      this.#set(path, flag, joinHostPort(host, port));
    }
  }

  /** No other mode opens Services on addresses of the node. */
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

/** IPVS mode masquerades by what the section of iptables says. */
function masqueradingSections(sections: readonly PacedSection[]): readonly PacedSection[] {
  return [...new Set(sections.map((section) => section === "ipvs" ? "iptables" : section))];
}

function fits({ kind }: FieldSpec, value: FlagValue): boolean {
  switch (kind) {
    case "string":
    case "quantity":
      return typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "strings":
    case "vmodule":
      return Array.isArray(value);
    case "featureGates":
      return typeof value === "object" && !Array.isArray(value);
    case "int32":
    case "uint32":
    case "float32":
    case "duration":
    case "durationOrNanoseconds":
      return typeof value === "number";
  }
}
