/**
 * Validates a complete configuration: each field by the check of its entry in the schema, and the rules between fields.
 *
 * @module
 */
import type { Problem } from "../errors.ts";
import type { Check, Fault } from "./checks.ts";
import { formatDuration } from "./value_texts.ts";
import { type AskedGate, checkFeatureGates, isGateEnabled } from "./feature_gates.ts";
import { type Field, fieldOf, FIELDS, getField } from "./fields.ts";
import { isZeroQuantity, KINDS } from "./kinds.ts";
import type { FieldValue } from "./setting.ts";
import { closestWord } from "./suggest.ts";
import {
  type KubeProxyConfiguration,
  PROXY_MODES,
  type ServingConfig,
  UDP_IDLE_TIMEOUT_MS,
} from "./types.ts";

/** A problem and the other fields that have a part in it. */
export interface Finding extends Problem {
  readonly related?: readonly string[];
}

/** Everything that is wrong with a configuration, with the fields that have a part in it; empty if it can be used. */
export function findProblems(config: KubeProxyConfiguration): Finding[] {
  return [
    ...checkGates(config),
    ...FIELDS.flatMap((field) => checkField(field, config)),
    ...PACED.flatMap((section) => checkPeriods(section, config)),
    ...checkLogging(config),
    ...checkServing(config),
  ];
}

/** Warnings about settings that have no effect although they were given. */
export function configWarnings(config: KubeProxyConfiguration): Problem[] {
  const warnings: Problem[] = checkFeatureGates(config.featureGates).warnings.map(({ gate, message }) => ({
    path: `featureGates.${gate}`,
    message,
  }));
  const { mode, portRange, udpIdleTimeout, kproxy: { proxyModeFallback, userspaceListen } } = config;
  if (!PROXY_MODES.includes(mode) && proxyModeFallback) {
    const message = `there is no mode ${JSON.stringify(mode)}, iptables takes its place`;
    warnings.push({ path: "mode", message });
  }
  if (mode !== "userspace" && !proxyModeFallback) {
    const message = "it has no effect: only mode userspace listens on ports of the host";
    if (portRange !== "") warnings.push({ path: "portRange", message });
    if (udpIdleTimeout !== UDP_IDLE_TIMEOUT_MS) warnings.push({ path: "udpIdleTimeout", message });
    if (userspaceListen.length > 0) warnings.push({ path: "kproxy.userspaceListen", message });
  }
  if (config.iptables.snatNodeInternalIP === true) {
    warnings.push({ path: "iptables.snatNodeInternalIP", message: "not supported: it has no effect" });
  }
  return warnings;
}

function checkField(field: Field, config: KubeProxyConfiguration): Finding[] {
  const value = getField(config, field.path);
  if (value === null || field.when?.(config) === false) return [];
  // The schema links each check to the values of its kind; the table of fields has lost that.
  const check = (field.check ?? (() => [])) as Check<FieldValue>;
  return [...checkChoice(field, value), ...check(value)].map(({ at = "", value: part, detail }) => ({
    ...invalidValue(field.path + at, part ?? shownValue(field, value), detail),
    // An item whose own line is not known stands on that of the item around it, or of the list.
    related: [field.path + at.replace(/\].*$/, "]"), field.path, ...field.related ?? []],
  }));
}

function checkChoice({ values, default: usual }: Field, value: FieldValue): readonly Fault[] {
  if (values === undefined || typeof value !== "string" || values.includes(value)) return [];
  const nearest = closestWord(value, values);
  const hint = nearest === undefined ? "" : `; did you mean ${JSON.stringify(nearest)}?`;
  return [{ detail: `must be ${values.join(", ")} or blank (blank means ${usual})${hint}` }];
}

function shownValue({ kind }: Field, value: FieldValue): unknown {
  return typeof value === "number" && KINDS[kind].word === "DURATION" ? formatDuration(value) : value;
}

function invalidValue(path: string, value: unknown, detail: string): Problem {
  return { path, message: `Invalid value: ${JSON.stringify(value)}: ${detail}` };
}

function checkGates(config: KubeProxyConfiguration): Finding[] {
  return checkFeatureGates(config.featureGates).errors.map(({ gate, message }) => ({
    path: `featureGates.${gate}`,
    message,
    related: ["featureGates"],
  }));
}

const PACED = ["iptables", "ipvs", "nftables"] as const;

function checkPeriods(section: typeof PACED[number], config: KubeProxyConfiguration): Finding[] {
  const [path, minPath] = [`${section}.syncPeriod`, `${section}.minSyncPeriod`];
  const { syncPeriod, minSyncPeriod } = config[section];
  const counts = fieldOf(path)?.when?.(config);
  if (!counts || syncPeriod >= minSyncPeriod) return [];
  const least = JSON.stringify(formatDuration(minSyncPeriod));
  const detail = `must be greater than or equal to ${minPath}, which is ${least}`;
  return [{ ...invalidValue(path, formatDuration(syncPeriod), detail), related: [minPath] }];
}

function checkLogging({ logging, featureGates }: KubeProxyConfiguration): Finding[] {
  const findings: Finding[] = [];
  const gated = (path: string, gate: AskedGate) => {
    if (isGateEnabled(featureGates, gate)) return;
    const message = `Forbidden: it needs the feature gate ${gate}, which is disabled`;
    findings.push({ path: `logging.${path}`, message, related: [`featureGates.${gate}`, "featureGates"] });
  };
  if (logging.format === "json") {
    gated("format", "LoggingBetaOptions");
    if (logging.vmodule.length > 0) {
      const message = 'Forbidden: only works together with format "text"';
      findings.push({ path: "logging.vmodule", message, related: ["logging.format"] });
    }
  }
  for (const format of ["text", "json"] as const) {
    const { splitStream, infoBufferSize } = logging.options[format];
    if (splitStream) gated(`options.${format}.splitStream`, "LoggingAlphaOptions");
    if (!isZeroQuantity(infoBufferSize)) gated(`options.${format}.infoBufferSize`, "LoggingAlphaOptions");
  }
  return findings;
}

/** Settings that need TLS: a token, or the proof of a certificate, is nothing to be sent in the clear. */
const NEED_TLS = ["clientCAFile", "bearerTokenFile", "delegatedAuthentication", "healthz"] as const;

/** Checks `kproxy.serving`; the contents of its files are checked where they are read. */
function checkServing({ kproxy: { serving } }: KubeProxyConfiguration): Finding[] {
  const findings: Finding[] = [];
  const path = (name: keyof ServingConfig): string => `kproxy.serving.${name}`;
  const wrong = (name: keyof ServingConfig, detail: string, other: keyof ServingConfig) =>
    findings.push({ ...invalidValue(path(name), serving[name], detail), related: [path(other)] });
  const { tlsCertFile, tlsPrivateKeyFile, bearerTokenFile, delegatedAuthentication } = serving;
  if ((tlsCertFile === "") !== (tlsPrivateKeyFile === "")) {
    const [missing, given] = tlsCertFile === ""
      ? ["tlsCertFile", "tlsPrivateKeyFile"] as const
      : ["tlsPrivateKeyFile", "tlsCertFile"] as const;
    wrong(missing, `must name a file, as ${path(given)} does`, given);
  }
  for (const name of tlsCertFile === "" ? NEED_TLS : []) {
    if (serving[name] === "" || serving[name] === false) continue;
    wrong(name, `needs TLS: ${path("tlsCertFile")} must name a file`, "tlsCertFile");
  }
  if (bearerTokenFile !== "" && delegatedAuthentication) {
    const detail = `must be false where ${path("bearerTokenFile")} says which tokens count`;
    wrong("delegatedAuthentication", detail, "bearerTokenFile");
  }
  return findings;
}
