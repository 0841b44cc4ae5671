/**
 * Flags without a field of the configuration: they say what a command does, or are there for old command lines.
 *
 * @module
 */
import type { KindName } from "../../config/kinds.ts";
import { type CommandName, COMMANDS, CONFIG_FILES, type FlagGroup } from "../../config/setting.ts";
import { CLEANUP_MODES, CLEANUP_PROXIES } from "../../config/types.ts";
import { CONFIGURED, type Flag, obsoleteNote } from "./flag.ts";

type Named<Name extends string, Kind extends KindName> = Flag & { readonly name: Name; readonly kind: Kind };
type Options = Partial<
  Pick<Flag, "short" | "default" | "values" | "valuesIn" | "withoutIt" | "files" | "note">
>;

function flagsIn(group: FlagGroup) {
  return <const Name extends string, const Kind extends KindName>(
    name: Name,
    kind: Kind,
    commands: readonly CommandName[],
    doc: string,
    options: Options = {},
  ): Named<Name, Kind> => ({
    name,
    kind,
    default: kind === "bool" ? "false" : "",
    group,
    commands,
    doc,
    ...options,
  });
}

const program = flagsIn("Program");
const inspecting = flagsIn("Inspection");
const deprecated = flagsIn("Deprecated");

function obsolete<const Name extends string, const Kind extends KindName>(
  name: Name,
  kind: Kind,
  doc: string,
  reason: string,
): Named<Name, Kind> {
  return deprecated(name, kind, [...CONFIGURED, "cleanup"], doc, { default: "", note: obsoleteNote(reason) });
}

function instead(text: string): Options {
  return { note: { state: "deprecated", text: `use ${text} instead` } };
}

const WITH_CONFIG = [...CONFIGURED, "cleanup", "status", "selftest", "sysdump"] as const;
const READING = ["trace", "explain", "service", "check", "diff"] as const;

const TO_STDERR = "kproxy logs to standard error";
const NO_CLOUD = "kproxy pulls no images";
const LINUX_ONLY = "it belongs to kube-proxy on Windows";
const UNUSED_LIBRARY = "kube-proxy never used it either";

export const PROGRAM_FLAGS = [
  program(
    "cleanup",
    "bool",
    ["run"],
    "Remove what proxies left on this node and exit, as the command cleanup does",
  ),
  program(
    "cleanup-ipvs",
    "bool",
    ["run", "cleanup"],
    "Also remove what IPVS mode left, in cleanup and at a start in another mode",
    { default: "true" },
  ),
  program(
    "config",
    "string",
    WITH_CONFIG,
    "Read the configuration from this file (KubeProxyConfiguration v1alpha1, YAML or JSON)",
    { files: CONFIG_FILES },
  ),
  program(
    "config-lenient",
    "bool",
    WITH_CONFIG,
    "Accept unknown and duplicate fields in the file of --config with a warning, for old files",
  ),
  program(
    "allow-insecure-files",
    "bool",
    WITH_CONFIG,
    "As root, accept a configuration, kubeconfig, manifests and credentials that other users can write",
  ),
  program(
    "config-reload",
    "string",
    ["run"],
    "When the file of --config changes: use it without a gap, or exit with status 1 as kube-proxy does",
    { default: "live", values: ["live", "exit"] },
  ),
  program("dry-run", "bool", ["cleanup"], "Print what would be removed and remove nothing"),
  program(
    "family",
    "string",
    ["render"],
    "Print the rules of this IP family; without it those of the families that have Services",
    { values: ["ipv4", "ipv6", "both"] },
  ),
  program(
    "flush-ipvs",
    "bool",
    ["cleanup"],
    "Remove all IPVS virtual servers, also those that no proxy of Kubernetes made",
  ),
  program("help", "bool", COMMANDS, "Print help on the command and exit", { short: "h" }),
  program(
    "init-only",
    "bool",
    ["run"],
    "Do only the part of the start that needs full privileges, then exit",
  ),
  program(
    "of",
    "string",
    ["cleanup"],
    "Remove what this proxy left only; nothing in modes iptables and ipvs, where both proxies use the same " +
      "names",
    { values: CLEANUP_PROXIES, withoutIt: "everything goes" },
  ),
  program("only", "list", ["cleanup"], "Remove what this mode left only; may be repeated", {
    default: "[]",
    values: CLEANUP_MODES,
    withoutIt: "everything goes",
  }),
  program(
    "output",
    "string",
    [
      "write-config",
      "trace",
      "explain",
      "service",
      "check",
      "diff",
      "status",
      "doctor",
      "selftest",
      "version",
    ],
    "Output format; default: the first one",
    { short: "o", values: ["text", "json"], valuesIn: { "write-config": ["yaml", "json"] } },
  ),
  program(
    "version",
    "version",
    COMMANDS,
    "Print the version and exit; --version=raw prints it with all its parts",
    { default: "false", values: ["true", "raw"] },
  ),
  program(
    "write-config-to",
    "string",
    ["run", "write-config"],
    "Write the effective configuration to this file and exit",
    { files: CONFIG_FILES },
  ),

  inspecting("interval", "duration", ["status"], "With --watch: time between two answers", { default: "2s" }),
  inspecting(
    "live-from",
    "paths",
    READING,
    "Read live rules from a file with the output of iptables-save, nft list ruleset, ipvsadm -Sn or ipset save; may be repeated",
    { default: "[]", files: [] },
  ),
  inspecting(
    "migrate-to",
    "string",
    ["doctor"],
    "Check whether this node can run that mode, and list the Services that would behave differently",
    { values: ["iptables", "ipvs", "nftables"] },
  ),
  inspecting("no-desired", "bool", ["trace", "explain"], "Use the live rules only; needs no objects"),
  inspecting(
    "no-live",
    "bool",
    ["trace", "explain", "service"],
    "Use the objects and the desired rules only; needs no root",
  ),
  inspecting(
    "repair",
    "bool",
    ["check", "diff"],
    "Rewrite the rules of damaged IP families, as kproxy run does at its start, and compare again; foreign rules stay",
  ),
  inspecting(
    "time-limit",
    "duration",
    ["selftest"],
    "Stop after this time, and remove everything that was made",
    {
      default: "1m0s",
    },
  ),
  inspecting(
    "watch",
    "bool",
    ["status"],
    "Repeat, and redraw the answer in place; without a terminal, print one after the other",
    { short: "w" },
  ),

  flagsIn("API server and node")(
    "master",
    "string",
    CONFIGURED,
    "URL of the API server, instead of the kubeconfig's; also honoured with --config",
  ),

  obsolete("add-dir-header", "bool", "klog: put the folder of the source file into log lines", TO_STDERR),
  obsolete("alsologtostderr", "bool", "klog: log to standard error as well as to files", TO_STDERR),
  obsolete("azure-container-registry-config", "string", "Credentials of a container registry", NO_CLOUD),
  obsolete("boot-id-file", "string", "Files to read the boot ID from", UNUSED_LIBRARY),
  deprecated("cleanup-iptables", "bool", ["run"], "Old name of --cleanup", instead("--cleanup")),
  deprecated(
    "conntrack-max",
    "int",
    CONFIGURED,
    "Tracked connections in all, over --conntrack-max-per-core and --conntrack-min; 0 leaves those in force",
    { default: "0", ...instead("--conntrack-max-per-core and --conntrack-min") },
  ),
  obsolete("enable-dsr", "bool", "Direct server return", LINUX_ONLY),
  obsolete("forward-healthcheck-vip", "bool", "Forward health checks of a VIP", LINUX_ONLY),
  obsolete("google-json-key", "string", "Service account key of a container registry", NO_CLOUD),
  deprecated(
    "healthz-port",
    "int",
    CONFIGURED,
    "Port of the health server if --healthz-bind-address has none, 0 to switch it off",
    { default: "10256", ...instead("--healthz-bind-address") },
  ),
  obsolete(
    "log-backtrace-at",
    "string",
    "klog: print a stack trace at file:line",
    "kproxy prints no stack traces",
  ),
  obsolete("log-dir", "string", "klog: folder of log files", TO_STDERR),
  obsolete("log-file", "string", "klog: log file", TO_STDERR),
  obsolete("log-file-max-size", "int", "klog: size of a log file in megabytes", TO_STDERR),
  obsolete("logtostderr", "bool", "klog: log to standard error instead of files", TO_STDERR),
  obsolete("machine-id-file", "string", "Files to read the machine ID from", UNUSED_LIBRARY),
  deprecated(
    "metrics-port",
    "int",
    CONFIGURED,
    "Port of the metrics server if --metrics-bind-address has none, 0 to switch it off",
    { default: "10249", ...instead("--metrics-bind-address") },
  ),
  obsolete("network-name", "string", "Name of the HNS network", LINUX_ONLY),
  obsolete("one-output", "bool", "klog: write a line to the file of its own severity only", TO_STDERR),
  obsolete(
    "resource-container",
    "string",
    "Run in this container",
    "processes are placed by their supervisor",
  ),
  obsolete("root-hnsendpoint-name", "string", "Name of the HNS endpoint", LINUX_ONLY),
  obsolete("skip-headers", "bool", "klog: leave out the header of log lines", TO_STDERR),
  obsolete("skip-log-headers", "bool", "klog: leave out the header of log files", TO_STDERR),
  obsolete("source-vip", "string", "Source IP of the HNS endpoint", LINUX_ONLY),
  obsolete("stderrthreshold", "string", "klog: severity from which lines go to standard error", TO_STDERR),
] as const;
