/**
 * The schema of kproxy's own section of the configuration, `kproxy`. It is written only as far as it differs from its defaults: kube-proxy's strict
 * reading would refuse it.
 *
 * @module
 */
import * as check from "./checks.ts";
import { bool, CONFIG_FILES, DAY, duration, list, MINUTE, paths, text, under, UNSET } from "./setting.ts";
import { TLS_VERSIONS } from "./types.ts";

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
  proxyModeFallback: bool(
    false,
    "A mode that cannot run here, or is unknown, gives way to iptables, then userspace, as in kube-proxy once",
    rules("proxy-mode-fallback"),
  ),
  snapshot: text(
    "",
    "File that keeps the API server's objects, served at a start before it answers; blank: none",
    { ...objects("snapshot"), only: ["run", "write-config"], files: [], check: check.absoluteFile },
  ),
  snapshotMaxAge: duration(7 * DAY, "An older snapshot is not served at a start; 0: at any age", {
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
    "Mode userspace opens the Services on this address of the node, or each on one of its own of a network such as `127.0.0.0/8`, " +
      "without any rule; one for each IP family; empty: by rules",
    {
      ...rules("userspace-listen"),
      flagDoc:
        "Open the Services on this address of the node, or each on one of its own of a network such as 127.0.0.0/8, without any rule or right; one for each IP family; chooses mode userspace",
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
      "The node's own addresses may be among both, as k3s' load balancer needs; not given: only if neither list is",
    ),
  },
  trafficCounters: bool(
    false,
    "Packets and bytes are counted for each Service port, as metrics (mode nftables)",
    rules("traffic-counters"),
  ),
  socket: text(
    "/run/kproxy/kproxy.sock",
    "Unix socket on which root, and the user that kproxy runs as, may ask and set it; its directory is nobody else's; blank: none",
    { ...servers("socket"), also: ["status", "sysdump", "cleanup"], check: check.socketPath },
  ),
  statusApi: bool(
    true,
    "The socket tells commands how kproxy fares, its configuration and its objects (`/kproxy/v1/…`)",
    servers("status-api"),
  ),
  statusPage: bool(
    false,
    "The metrics server shows browsers, over loopback, a page of the same and more (`/kproxy/`)",
    servers("status-page"),
  ),
  /** Metrics over TLS, named as other components of Kubernetes name their flags. Without a certificate it is plain HTTP. */
  serving: {
    tlsCertFile: text(
      "",
      "The metrics server speaks TLS, with this certificate (and those it follows from), PEM; blank: plain HTTP",
    ),
    tlsPrivateKeyFile: text("", "Key of that certificate, PEM"),
    tlsMinVersion: text("VersionTLS12", "Oldest version of TLS that is spoken", {
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
      "The health server speaks TLS, too; it asks nobody for a certificate or token, as kubelets have none",
    ),
  },
} as const;
