/**
 * The schema of kproxy's own section of the configuration, `kproxy`. It is written only as far as it differs from its defaults: kube-proxy's strict
 * reading would refuse it.
 *
 * @module
 */
import * as check from "./checks.ts";
import { bool, CONFIG_FILES, DAY, duration, list, MINUTE, paths, text, under, UNSET } from "./setting.ts";
import { ENDPOINTS_SOURCES, TLS_VERSIONS } from "./types.ts";

const ipvs = under("IPVS");
const objects = under("Objects");
const rules = under("Mode and rules");
const servers = under("Servers");

export const KPROXY = {
  manifests: paths(
    [],
    "Files and folders to read objects from, `-` for standard input; empty: the API server",
    { ...objects("manifests"), files: CONFIG_FILES, check: check.each(check.notBlank) },
  ),
  endpointsSource: text("auto", "Which objects give the endpoints; `auto` prefers EndpointSlices", {
    ...objects("endpoints-source"),
    ...UNSET,
    values: ENDPOINTS_SOURCES,
  }),
  proxyModeFallback: bool(
    false,
    "Fall back from a mode that cannot run here, or is unknown, to iptables, then userspace, as old kube-proxy",
    rules("proxy-mode-fallback"),
  ),
  snapshot: text(
    "",
    "File that keeps the API server's objects, served at a start before it answers; blank: none",
    { ...objects("snapshot"), only: ["run", "write-config"], files: [], check: check.absoluteFile },
  ),
  snapshotMaxAge: duration(7 * DAY, "Maximum age of a snapshot that is served at a start; 0: no limit", {
    ...objects("snapshot-max-age"),
    only: ["run", "write-config"],
    check: check.snapshotAge,
  }),
  ipvsTerminationDeadline: duration(
    15 * MINUTE,
    "How long a leaving real server of IPVS keeps its connections; 0: as long as they last",
    { ...ipvs("ipvs-termination-deadline"), check: check.notNegative },
  ),
  userspaceListen: list(
    [],
    "Mode userspace: open the Services on this address of the node, or each on its own address of a network such as `127.0.0.0/8`, " +
      "without rules; one for each IP family; empty: with rules",
    {
      ...rules("userspace-listen"),
      flagDoc:
        "Open the Services on this address of the node, or each on its own address of a network such as 127.0.0.0/8, without rules and rights; one for each IP family; chooses mode userspace",
      only: ["run", "write-config"],
      check: check.listenAddresses,
    },
  ),
  /** Which external IPs and load-balancer IPs Services may have. Nothing given: any, as with kube-proxy. */
  externalIPPolicy: {
    externalIPs: list(
      null,
      "Networks from which `externalIPs` of Services are served; `[]`: none; not given: any",
      { check: check.each(check.network) },
    ),
    loadBalancerIPs: list(
      null,
      "Networks from which load balancer IPs of Services are served; `[]`: none; not given: any",
      { check: check.each(check.network) },
    ),
    nodeAddresses: bool(
      null,
      "Whether the node's own addresses are served, as k3s' load balancer needs; not given: only without both lists",
    ),
  },
  trafficCounters: bool(
    false,
    "Packets and bytes are counted for each Service port, as metrics (mode nftables)",
    rules("traffic-counters"),
  ),
  socket: text(
    "/run/kproxy/kproxy.sock",
    "Unix socket for root and kproxy's user, in a directory that only they can enter; blank: none",
    { ...servers("socket"), also: ["status", "sysdump", "cleanup"], check: check.socketPath },
  ),
  statusApi: bool(
    true,
    "Serve status, configuration and objects on the socket (`/kproxy/v1/…`)",
    servers("status-api"),
  ),
  statusPage: bool(
    false,
    "Serve a status page for browsers on the metrics server, over loopback only (`/kproxy/`)",
    servers("status-page"),
  ),
  /** Metrics over TLS, named as other components of Kubernetes name their flags. Without a certificate it is plain HTTP. */
  serving: {
    tlsCertFile: text(
      "",
      "The metrics server speaks TLS with this certificate chain, PEM; blank: plain HTTP",
    ),
    tlsPrivateKeyFile: text("", "Key of that certificate, PEM"),
    tlsMinVersion: text("VersionTLS12", "Oldest TLS version", {
      ...UNSET,
      values: TLS_VERSIONS,
    }),
    clientCAFile: text(
      "",
      "Clients of the metrics server need a certificate of one of these authorities, PEM",
    ),
    bearerTokenFile: text("", "Requests to the metrics server need one of these tokens, one a line"),
    delegatedAuthentication: bool(
      false,
      "Requests to the metrics server need a token that the API server lets `get` the path (TokenReview, SubjectAccessReview)",
    ),
    healthz: bool(
      false,
      "The health server speaks TLS, too, without client certificates or tokens, because kubelets have none",
    ),
  },
} as const;
