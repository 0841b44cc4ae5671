/**
 * Reads a `KubeProxyConfiguration` from YAML or JSON text.
 *
 * @module
 */
import { ConfigError, formatProblem, type Problem } from "../errors.ts";
import { type Decoded, decodeDocument } from "./decode.ts";
import { applyDefaults } from "./defaults.ts";
import { isGateEnabled } from "./feature_gates.ts";
import { closestWord } from "./suggest.ts";
import { CONFIG_API_VERSION, CONFIG_KIND, type KubeProxyConfiguration } from "./types.ts";
import { configWarnings, type Finding, findProblems } from "./validate.ts";
import { YamlReader } from "./yaml_reader.ts";

export interface ParseOptions {
  /** Path of the file, for messages. */
  readonly file?: string;
  /** Unknown fields, repeated fields and names in the wrong case are warnings, as in kube-proxy. */
  readonly lenient?: boolean;
  /** Takes the place of `kproxy.proxyModeFallback`, which decides whether an unknown mode is wrong. */
  readonly proxyModeFallback?: boolean;
}

export interface ParsedConfig {
  /** Complete and valid. */
  readonly config: KubeProxyConfiguration;
  /** Warnings, such as of ignored settings, each with file and line. */
  readonly warnings: readonly string[];
}

/**
 * The configuration a file stands for. Only the first document of several counts.
 *
 * @throws {ConfigError} with every problem of the text, in the order of its lines
 */
export function parseConfig(text: string, options: ParseOptions = {}): ParsedConfig {
  const { file, lenient = false, proxyModeFallback } = options;
  const reader = new YamlReader(text);
  if (reader.problems.length > 0) throw new ConfigError(reader.problems, file);
  const envelope = checkEnvelope(reader);
  if (envelope.fatal) throw new ConfigError(envelope.problems, file);

  const decoded = decodeDocument(reader, lenient);
  const config = applyDefaults(decoded.values);
  if (proxyModeFallback !== undefined) config.kproxy.proxyModeFallback = proxyModeFallback;
  const warnings: Problem[] = [...decoded.warnings, ...configWarnings(config), ...dropSplitStreams(config)];
  const problems = [
    ...envelope.problems,
    ...decoded.problems,
    ...findProblems(config).filter((finding) => !stemsFromFailure(finding, decoded.failed)),
  ];
  if (problems.length > 0) throw new ConfigError(byLine(problems, decoded), file);
  if (reader.secondDocumentLine !== undefined) {
    const message = "only the first document is used, this one is ignored";
    warnings.push({ path: "", message, line: reader.secondDocumentLine });
  }
  return { config, warnings: byLine(warnings, decoded).map((warning) => formatProblem(warning, file)) };
}

/** Checks apiVersion and kind. `fatal`: this is another document, so its fields are not worth reading. */
function checkEnvelope(reader: YamlReader): { problems: Problem[]; fatal: boolean } {
  const wantedText = `wanted apiVersion: ${CONFIG_API_VERSION} and kind: ${CONFIG_KIND}`;
  if (reader.scalar(reader.root) === null) {
    return { problems: [{ path: "", message: `the file is empty, ${wantedText}`, line: 1 }], fatal: true };
  }
  const entries = reader.entries(reader.root);
  if (entries === undefined) {
    const message = `found ${reader.describe(reader.root)}, ${wantedText}`;
    return { problems: [{ path: "", message, line: reader.lineOf(reader.root) }], fatal: true };
  }
  const problems: Problem[] = [];
  let fatal = false;
  for (const [name, wanted] of [["apiVersion", CONFIG_API_VERSION], ["kind", CONFIG_KIND]] as const) {
    const entry = entries.find((candidate) => candidate.name === name);
    const found = entry === undefined ? null : reader.scalar(entry.value);
    if (found === wanted) continue;
    if (entry === undefined || found === null || found === "") {
      const other = entries.find((candidate) => candidate.name.toLowerCase() === name.toLowerCase());
      const hint = other === undefined || other.name === name ? "" : `, found ${JSON.stringify(other.name)}`;
      problems.push({ path: name, message: `missing, wanted ${wanted}${hint}`, line: entry?.line ?? 1 });
      continue;
    }
    fatal = true;
    const message = `wanted ${wanted}, found ${reader.describe(entry.value)}${envelopeHint(found, wanted)}`;
    problems.push({ path: name, message, line: entry.line });
  }
  return { problems, fatal };
}

function envelopeHint(found: unknown, wanted: string): string {
  if (found === "ConfigMap") return ": kubeadm keeps the configuration in the ConfigMap under config.conf";
  if (typeof found !== "string" || wanted !== CONFIG_API_VERSION) return "";
  if (found.startsWith("kubeproxy.config.k8s.io/")) return ": no other version is known";
  return closestWord(found, [wanted]) === undefined ? "" : ": misspelt";
}

/**
 * Switches split streams off where their gate is off, which kube-proxy does without a word for those of a file, and
 * reports it.
 */
function dropSplitStreams(config: KubeProxyConfiguration): Problem[] {
  if (isGateEnabled(config.featureGates, "LoggingAlphaOptions")) return [];
  return (["text", "json"] as const).filter((format) => config.logging.options[format].splitStream).map(
    (format) => {
      config.logging.options[format].splitStream = false;
      const message = "ignored: the feature gate LoggingAlphaOptions is disabled";
      return { path: `logging.options.${format}.splitStream`, message };
    },
  );
}

/** True if a rule was broken only because a field that could not be read has its default instead. */
function stemsFromFailure(finding: Finding, failed: ReadonlySet<string>): boolean {
  return [finding.path, ...finding.related ?? []].some((path) =>
    [...failed].some((failure) =>
      path === failure || path.startsWith(`${failure}.`) || path.startsWith(`${failure}[`)
    )
  );
}

function byLine(problems: readonly Finding[], { lines }: Decoded): Problem[] {
  const placed = problems.map((problem) => {
    const { path, message } = problem;
    const line = problem.line ??
      [path, ...problem.related ?? []].map((place) => lines.get(place)).find(isKnown);
    return line === undefined ? { path, message } : { path, message, line };
  });
  return placed.sort((a, b) =>
    (a.line ?? 0) - (b.line ?? 0) || a.path.localeCompare(b.path, "en", { numeric: true })
  );
}

function isKnown(line: number | undefined): boolean {
  return line !== undefined;
}
