/**
 * The rules a complete configuration must keep, all of them, in kube-proxy's order.
 *
 * @module
 */
import type { Problem } from "../errors.ts";
import { hostCidr, parseCidr, parseIp } from "../model/ip.ts";
import { formatDuration } from "./duration.ts";
import { checkFeatureGates } from "./feature_gates.ts";
import { type Finding, invalidValue } from "./finding.ts";
import { parsePortRange } from "./port_range.ts";
import { DETECT_LOCAL_MODES, ENDPOINTS_SOURCES, PROXY_MODES, UDP_IDLE_TIMEOUT_MS } from "./schema.ts";
import { closestWord } from "./suggest.ts";
import type { KubeProxyConfiguration } from "./types.ts";
import { checkLogging } from "./validate_logging.ts";
import { checkModes } from "./validate_modes.ts";
import { checkServing } from "./validate_serving.ts";

/** Minor version of Kubernetes that kproxy is measured by. */
const KUBERNETES_MINOR = 36;

const NODE_PORT_WORDS: readonly string[] = ["primary", "localhost", "all"];
/** Below it the file would be written again and again. */
const LEAST_SNAPSHOT_AGE_MS = 60_000;
const DUAL_STACK_TEXT = "must be either a single CIDR or dual-stack pair of CIDRs " +
  "(e.g. [10.100.0.0/16, fde4:8dba:82e1::/48])";
const CIDR_BLOCK_TEXT = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";

type Rule = (config: KubeProxyConfiguration) => Finding[];

const RULES: readonly Rule[] = [
  checkGates,
  checkModes,
  checkConntrack,
  checkOomScoreAdj,
  checkMode,
  checkClientConnection,
  checkConfigSyncPeriod,
  checkAddresses,
  checkNodePortAddresses,
  checkHiddenMetrics,
  checkDetectLocal,
  checkLogging,
  checkUserspace,
  checkUserspaceListen,
  checkExternalIpPolicy,
  checkOwnFields,
  checkServing,
];

/** Everything that is wrong with a configuration, with the fields that have a part in it; empty if it can be used. */
export function findProblems(config: KubeProxyConfiguration): Finding[] {
  return RULES.flatMap((rule) => rule(config));
}

/** What has no effect although it was asked for. */
export function configWarnings(config: KubeProxyConfiguration): Problem[] {
  const warnings: Problem[] = checkFeatureGates(config.featureGates).warnings.map(({ gate, message }) => ({
    path: `featureGates.${gate}`,
    message,
  }));
  if (!PROXY_MODES.includes(config.mode) && config.kproxy.proxyModeFallback) {
    const message = `there is no mode ${JSON.stringify(config.mode)}, iptables takes its place`;
    warnings.push({ path: "mode", message });
  }
  if (!mayUseUserspace(config)) {
    const message = "it has no effect: only mode userspace listens on ports of the host";
    if (config.portRange !== "") warnings.push({ path: "portRange", message });
    if (config.udpIdleTimeout !== UDP_IDLE_TIMEOUT_MS) warnings.push({ path: "udpIdleTimeout", message });
    if (config.kproxy.userspaceListen.length > 0) warnings.push({ path: "kproxy.userspaceListen", message });
  }
  if (config.iptables.snatNodeInternalIP === true) {
    warnings.push({ path: "iptables.snatNodeInternalIP", message: "not supported: it has no effect" });
  }
  return warnings;
}

function checkGates(config: KubeProxyConfiguration): Finding[] {
  return checkFeatureGates(config.featureGates).errors.map(({ gate, message }) => ({
    path: `featureGates.${gate}`,
    message,
    related: ["featureGates"],
  }));
}

function checkConntrack({ conntrack }: KubeProxyConfiguration): Finding[] {
  const counts = (["maxPerCore", "min"] as const).filter((name) => conntrack[name] < 0)
    .map((name) => invalidValue(`conntrack.${name}`, conntrack[name], "must be greater than or equal to 0"));
  const timeouts =
    (["tcpEstablishedTimeout", "tcpCloseWaitTimeout", "udpTimeout", "udpStreamTimeout"] as const)
      .filter((name) => conntrack[name] < 0)
      .map((name) => {
        const text = formatDuration(conntrack[name]);
        return invalidValue(`conntrack.${name}`, text, "must be greater than or equal to 0");
      });
  return [...counts, ...timeouts];
}

function checkOomScoreAdj({ oomScoreAdj }: KubeProxyConfiguration): Finding[] {
  if (oomScoreAdj >= -1000 && oomScoreAdj <= 1000) return [];
  return [invalidValue("oomScoreAdj", oomScoreAdj, "must be within the range [-1000, 1000]")];
}

function checkMode({ mode, kproxy }: KubeProxyConfiguration): Finding[] {
  if (PROXY_MODES.includes(mode) || kproxy.proxyModeFallback) return [];
  const nearest = closestWord(mode, PROXY_MODES);
  const hint = nearest === undefined ? "" : `; did you mean ${JSON.stringify(nearest)}?`;
  const names = PROXY_MODES.join(", ");
  return [invalidValue("mode", mode, `must be ${names} or blank (blank means iptables)${hint}`)];
}

function mayUseUserspace({ mode, kproxy }: KubeProxyConfiguration): boolean {
  return mode === "userspace" || kproxy.proxyModeFallback;
}

/** Where another mode runs, kube-proxy takes any text for a range, and any timeout. */
function checkUserspace(config: KubeProxyConfiguration): Finding[] {
  if (!mayUseUserspace(config)) return [];
  const findings: Finding[] = [];
  if (config.udpIdleTimeout <= 0) {
    const text = formatDuration(config.udpIdleTimeout);
    findings.push(invalidValue("udpIdleTimeout", text, "must be greater than 0"));
  }
  try {
    parsePortRange(config.portRange);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    const detail = "must be a valid port range (e.g. 30000-31000)";
    findings.push(invalidValue("portRange", config.portRange, detail, ["mode"]));
  }
  return findings;
}

function checkUserspaceListen({ kproxy: { userspaceListen } }: KubeProxyConfiguration): Finding[] {
  const path = "kproxy.userspaceListen";
  const families = new Set<string>();
  const findings: Finding[] = [];
  for (const [index, text] of userspaceListen.entries()) {
    const family = (parseIp(text) ?? parseCidr(text))?.family;
    const problem = family === undefined
      ? "must be an address or a network of this node (e.g. 127.0.0.1 or 127.0.0.0/8)"
      : families.has(family)
      ? `must be the only one of ${family}`
      : null;
    if (family !== undefined) families.add(family);
    if (problem !== null) findings.push(invalidValue(`${path}[${index}]`, text, problem, [path]));
  }
  return findings;
}

/** Every address of the list counts, so one that is not meant (`10.0.0.5/8`) is an error and not rounded. */
function checkExternalIpPolicy({ kproxy: { externalIPPolicy } }: KubeProxyConfiguration): Finding[] {
  return (["externalIPs", "loadBalancerIPs"] as const).flatMap((name) => {
    const path = `kproxy.externalIPPolicy.${name}`;
    return (externalIPPolicy[name] ?? []).flatMap((text, index) => {
      const problem = networkProblem(text);
      return problem === null ? [] : [invalidValue(`${path}[${index}]`, text, problem, [path])];
    });
  });
}

function networkProblem(text: string): string | null {
  const ip = parseIp(text);
  if (ip !== null) return `must be a network in CIDR form: ${hostCidr(ip).text} for this address alone`;
  const cidr = parseCidr(text);
  if (cidr === null) return "must be a network in CIDR form (e.g. 203.0.113.0/24 or fd00:5::/64)";
  const isNetwork =
    parseIp(text.slice(0, text.lastIndexOf("/")))?.text === cidr.text.slice(0, cidr.text.lastIndexOf("/"));
  return isNetwork ? null : `must have no bits set behind its prefix: ${cidr.text}`;
}

function checkClientConnection({ clientConnection }: KubeProxyConfiguration): Finding[] {
  if (clientConnection.burst >= 0) return [];
  return [
    invalidValue("clientConnection.burst", clientConnection.burst, "must be greater than or equal to 0"),
  ];
}

function checkConfigSyncPeriod({ configSyncPeriod }: KubeProxyConfiguration): Finding[] {
  if (configSyncPeriod > 0) return [];
  return [invalidValue("configSyncPeriod", formatDuration(configSyncPeriod), "must be greater than 0")];
}

function checkAddresses(config: KubeProxyConfiguration): Finding[] {
  const findings: Finding[] = [];
  if (parseIp(config.bindAddress) === null) {
    const detail = "not a valid textual representation of an IP address";
    findings.push(invalidValue("bindAddress", config.bindAddress, detail));
  }
  for (const path of ["healthzBindAddress", "metricsBindAddress"] as const) {
    // Blank: switched off by --healthz-port=0 or --metrics-port=0.
    if (config[path] !== "") findings.push(...checkHostPort(path, config[path]));
  }
  return findings;
}

function checkHostPort(path: string, address: string): Finding[] {
  const [, host, port] = /^(?:\[([^\[\]]*)\]|[^:\[\]]*):([^:\[\]]*)$/.exec(address)
    ? splitAtLastColon(address)
    : [];
  if (host === undefined || port === undefined) return [invalidValue(path, address, "must be IP:port")];
  const findings: Finding[] = [];
  if (parseIp(host) === null) findings.push(invalidValue(path, host, "must be a valid IP"));
  const number = /^\d{1,5}$/.test(port) ? Number(port) : 0;
  if (number < 1 || number > 65_535) findings.push(invalidValue(path, port, "must be a valid port"));
  return findings;
}

function splitAtLastColon(address: string): [string, string, string] {
  const colon = address.lastIndexOf(":");
  return [address, address.slice(0, colon).replace(/^\[(.*)\]$/, "$1"), address.slice(colon + 1)];
}

function checkNodePortAddresses({ nodePortAddresses }: KubeProxyConfiguration): Finding[] {
  return (nodePortAddresses ?? []).flatMap((entry, index) => {
    if (NODE_PORT_WORDS.includes(entry) || parseCidr(entry) !== null) return [];
    const detail = "must be a valid CIDR, primary, localhost or all";
    return [invalidValue(`nodePortAddresses[${index}]`, entry, detail, ["nodePortAddresses"])];
  });
}

function checkHiddenMetrics({ showHiddenMetricsForVersion: version }: KubeProxyConfiguration): Finding[] {
  const previous = `1.${KUBERNETES_MINOR - 1}`;
  if (version === "" || version === previous) return [];
  const detail = `must be omitted or ${JSON.stringify(previous)}, the previous minor version`;
  return [invalidValue("showHiddenMetricsForVersion", version, detail)];
}

function checkDetectLocal(config: KubeProxyConfiguration): Finding[] {
  const { detectLocalMode: mode, detectLocal } = config;
  switch (mode) {
    case "ClusterCIDR":
      return checkClusterCidr(config.clusterCIDR);
    case "NodeCIDR":
      return [];
    case "BridgeInterface":
      return checkInterfaceName("detectLocal.bridgeInterface", detectLocal.bridgeInterface, 15);
    case "InterfaceNamePrefix":
      // One character is left for the "+" that iptables writes after a prefix.
      return checkInterfaceName("detectLocal.interfaceNamePrefix", detectLocal.interfaceNamePrefix, 14);
    default: {
      const supported = [...DETECT_LOCAL_MODES, ""].map((name) => JSON.stringify(name)).join(", ");
      const nearest = closestWord(mode, DETECT_LOCAL_MODES);
      const hint = nearest === undefined ? "" : `; did you mean ${JSON.stringify(nearest)}?`;
      const message = `Unsupported value: ${JSON.stringify(mode)}: supported values: ${supported}${hint}`;
      return [{ path: "detectLocalMode", message }];
    }
  }
}

/** What the kernel takes as the name of an interface, less quotes, which end words of a rule's text. */
function checkInterfaceName(path: string, value: string, most: number): Finding[] {
  if (value === "") return [invalidValue(path, value, "must not be empty", ["detectLocalMode"])];
  const findings: Finding[] = [];
  if (new TextEncoder().encode(value).length > most) {
    findings.push(invalidValue(path, value, `must be ${most} characters long at most`));
  }
  // deno-lint-ignore no-control-regex
  if (/[\s\x00-\x1f\x7f/"'`\\]/.test(value)) {
    const detail = "must be the name of an interface, without blanks, slashes, quotes and control characters";
    findings.push(invalidValue(path, value, detail));
  }
  return findings;
}

function checkClusterCidr(clusterCIDR: string): Finding[] {
  if (clusterCIDR === "") return [];
  const path = "clusterCIDR";
  const items = clusterCIDR.split(",");
  const cidrs = items.map(parseCidr);
  const findings = items.filter((_, index) => cidrs[index] === null)
    .map((item) => invalidValue(path, item, CIDR_BLOCK_TEXT));
  const families = cidrs.flatMap((cidr) => cidr === null ? [] : [cidr.family]);
  const sameFamilyPair = items.length === 2 && families.length === 2 && families[0] === families[1];
  if (items.length > 2 || sameFamilyPair) findings.unshift(invalidValue(path, items, DUAL_STACK_TEXT));
  return findings;
}

/** The kernel takes 107 bytes, of which the name that a socket has before it is ready takes some more. */
const MAX_SOCKET_PATH = 96;
const SOCKET_PATH = /^(?:\/(?!\.{1,2}(?:\/|$))[^/]+){2,}$/;

function checkOwnFields({ kproxy }: KubeProxyConfiguration): Finding[] {
  const findings = kproxy.manifests.flatMap((path, index) =>
    path.trim() === ""
      ? [
        invalidValue(`kproxy.manifests[${index}]`, path, "must name a file or a folder", [
          "kproxy.manifests",
        ]),
      ]
      : []
  );
  if (!ENDPOINTS_SOURCES.includes(kproxy.endpointsSource)) {
    const detail = `must be ${ENDPOINTS_SOURCES.join(", ")} or blank`;
    findings.push(invalidValue("kproxy.endpointsSource", kproxy.endpointsSource, detail));
  }
  // Any other path depends on where the program was started, and the next start must find the file.
  if (kproxy.snapshot !== "" && !/^\/.*[^/]$/.test(kproxy.snapshot)) {
    const detail = "must be the absolute path of a file, or blank for none";
    findings.push(invalidValue("kproxy.snapshot", kproxy.snapshot, detail));
  }
  if (kproxy.socket !== "" && !(SOCKET_PATH.test(kproxy.socket) && kproxy.socket.length <= MAX_SOCKET_PATH)) {
    const detail =
      `must be an absolute path below a folder, without . and .., of at most ${MAX_SOCKET_PATH} characters, or blank`;
    findings.push(invalidValue("kproxy.socket", kproxy.socket, detail));
  }
  if (kproxy.snapshotMaxAge !== 0 && kproxy.snapshotMaxAge < LEAST_SNAPSHOT_AGE_MS) {
    const text = formatDuration(kproxy.snapshotMaxAge);
    findings.push(invalidValue("kproxy.snapshotMaxAge", text, "must be 0, for no limit, or at least 1m"));
  }
  if (kproxy.ipvsTerminationDeadline < 0) {
    const text = formatDuration(kproxy.ipvsTerminationDeadline);
    findings.push(
      invalidValue("kproxy.ipvsTerminationDeadline", text, "must be greater than or equal to 0"),
    );
  }
  return findings;
}
