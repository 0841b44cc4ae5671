/**
 * Rules about `logging`.
 *
 * @module
 */
import { formatDuration } from "./duration.ts";
import { type AskedGate, isGateEnabled } from "./feature_gates.ts";
import { isZeroQuantity } from "./quantity.ts";
import type { KubeProxyConfiguration, LoggingConfig } from "./types.ts";
import { type Finding, invalidValue } from "./finding.ts";

const MOST_VERBOSE = 2 ** 31 - 1;

/** What is wrong with `logging`. */
export function checkLogging(config: KubeProxyConfiguration): Finding[] {
  const { logging, featureGates } = config;
  const findings: Finding[] = [];
  if (logging.format !== "text" && logging.format !== "json") {
    const detail = "Unsupported log format, must be text, json or blank";
    findings.push(invalidValue("logging.format", logging.format, detail));
  } else if (logging.format === "json" && !isGateEnabled(featureGates, "LoggingBetaOptions")) {
    const message = 'Forbidden: format "json" needs the feature gate LoggingBetaOptions, which is disabled';
    findings.push({ path: "logging.format", message, related: gateFields("LoggingBetaOptions") });
  }
  if (logging.flushFrequency <= 0) {
    const text = formatDuration(logging.flushFrequency);
    findings.push(invalidValue("logging.flushFrequency", text, "Must be greater than zero"));
  }
  if (logging.verbosity > MOST_VERBOSE) {
    findings.push(invalidValue("logging.verbosity", logging.verbosity, `Must be <= ${MOST_VERBOSE}`));
  }
  findings.push(...checkVmodule(logging));
  if (!isGateEnabled(featureGates, "LoggingAlphaOptions")) findings.push(...checkAlphaOptions(logging));
  return findings;
}

function checkVmodule({ format, vmodule }: LoggingConfig): Finding[] {
  if (vmodule.length === 0) return [];
  if (format === "json") {
    const message = 'Forbidden: only works together with format "text"';
    return [{ path: "logging.vmodule", message, related: ["logging.format"] }];
  }
  return vmodule.flatMap(({ filePattern, verbosity }, index) => {
    const findings: Finding[] = [];
    const path = `logging.vmodule[${index}]`;
    const related = [path, "logging.vmodule"];
    if (filePattern === "") {
      findings.push({
        path: `${path}.filePattern`,
        message: "Required value: File pattern must not be empty",
        related,
      });
    } else if (/[=,]/.test(filePattern)) {
      const detail = "File pattern must not contain equal sign or comma";
      findings.push(invalidValue(`${path}.filePattern`, filePattern, detail, related));
    }
    if (verbosity > MOST_VERBOSE) {
      findings.push(invalidValue(`${path}.verbosity`, verbosity, `Must be <= ${MOST_VERBOSE}`, related));
    }
    return findings;
  });
}

function checkAlphaOptions({ options }: LoggingConfig): Finding[] {
  const message = "Forbidden: Feature LoggingAlphaOptions is disabled";
  const related = gateFields("LoggingAlphaOptions");
  return (["text", "json"] as const).flatMap((format) => {
    const { splitStream, infoBufferSize } = options[format];
    const path = `logging.options.${format}`;
    return [
      ...(splitStream ? [{ path: `${path}.splitStream`, message, related }] : []),
      ...(isZeroQuantity(infoBufferSize) ? [] : [{ path: `${path}.infoBufferSize`, message, related }]),
    ];
  });
}

function gateFields(gate: AskedGate): string[] {
  return [`featureGates.${gate}`, "featureGates"];
}
