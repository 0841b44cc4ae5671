/**
 * Flags of older kube-proxy releases. Each still works, or is read, checked and reported as without effect, so that
 * no old command line fails.
 *
 * @module
 */
import { CONFIGURED, type Flag, type FlagNote, type FlagType } from "./flag.ts";

const DEPRECATED_IN = [...CONFIGURED, "cleanup"] as const;

function obsolete<const Name extends string, const Type extends FlagType>(
  name: Name,
  type: Type,
  doc: string,
  reason: string,
): Flag & { readonly name: Name; readonly type: Type; readonly note: FlagNote } {
  return {
    name,
    type,
    default: "",
    group: "Deprecated",
    commands: DEPRECATED_IN,
    doc,
    note: { state: "obsolete", text: `it has no effect: ${reason}` },
  };
}

const TO_STDERR = "kproxy logs to standard error";
const NO_CLOUD = "kproxy pulls no images";
const LINUX_ONLY = "it belongs to kube-proxy on Windows";
const UNUSED_LIBRARY = "kube-proxy never used it either";

export const DEPRECATED_FLAGS = [
  obsolete("add-dir-header", "bool", "klog: put the folder of the source file into log lines", TO_STDERR),
  obsolete("alsologtostderr", "bool", "klog: log to standard error as well as to files", TO_STDERR),
  obsolete("azure-container-registry-config", "string", "Credentials of a container registry", NO_CLOUD),
  obsolete("boot-id-file", "string", "Files to read the boot ID from", UNUSED_LIBRARY),
  {
    name: "cleanup-iptables",
    type: "bool",
    default: "false",
    group: "Deprecated",
    commands: ["run"],
    doc: "Old name of --cleanup",
    note: { state: "deprecated", text: "use --cleanup instead" },
  },
  {
    name: "conntrack-max",
    type: "int",
    default: "0",
    group: "Deprecated",
    commands: CONFIGURED,
    doc:
      "Tracked connections in all, over --conntrack-max-per-core and --conntrack-min; 0 leaves those in force",
    note: { state: "deprecated", text: "use --conntrack-max-per-core and --conntrack-min instead" },
  },
  obsolete("enable-dsr", "bool", "Direct server return", LINUX_ONLY),
  obsolete("forward-healthcheck-vip", "bool", "Forward health checks of a VIP", LINUX_ONLY),
  obsolete("google-json-key", "string", "Service account key of a container registry", NO_CLOUD),
  {
    name: "healthz-port",
    type: "int",
    default: "10256",
    group: "Deprecated",
    commands: CONFIGURED,
    doc: "Port of the health server if --healthz-bind-address has none, 0 to switch it off",
    note: { state: "deprecated", text: "use --healthz-bind-address instead" },
  },
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
  {
    name: "metrics-port",
    type: "int",
    default: "10249",
    group: "Deprecated",
    commands: CONFIGURED,
    doc: "Port of the metrics server if --metrics-bind-address has none, 0 to switch it off",
    note: { state: "deprecated", text: "use --metrics-bind-address instead" },
  },
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
  {
    name: "windows-service",
    type: "bool",
    default: "false",
    group: "Deprecated",
    commands: DEPRECATED_IN,
    doc: "Run as a Windows service",
    field: "windowsRunAsService",
    note: { state: "obsolete", text: `it has no effect: ${LINUX_ONLY}` },
  },
] as const satisfies readonly Flag[];
