/**
 * The fields of kproxy's own section of the configuration.
 *
 * @module
 */
import { ENDPOINTS_SOURCES, field, type FieldSpec, TLS_VERSIONS } from "./schema.ts";

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/** In the order in which they are written. */
export const OWN_FIELDS: readonly FieldSpec[] = [
  field(
    "kproxy.manifests",
    "strings",
    [],
    "files and folders to read objects from, `-` for standard input; empty: the API server",
    { flag: "manifests", omitDefault: true },
  ),
  field("kproxy.endpointsSource", "string", "auto", "which objects give the endpoints", {
    zeroIsUnset: true,
    flag: "endpoints-source",
    omitDefault: true,
    allowed: ENDPOINTS_SOURCES,
  }),
  field(
    "kproxy.proxyModeFallback",
    "boolean",
    false,
    "a mode that cannot run here, or is unknown, gives way to iptables, then userspace",
    { flag: "proxy-mode-fallback", omitDefault: true },
  ),
  field(
    "kproxy.snapshot",
    "string",
    "",
    "file that keeps the API server's objects, served at a start before it answers; blank: none",
    { flag: "snapshot", omitDefault: true },
  ),
  field(
    "kproxy.snapshotMaxAge",
    "duration",
    7 * DAY,
    "an older snapshot is not served at a start; 0: at any age",
    { flag: "snapshot-max-age", omitDefault: true },
  ),
  field(
    "kproxy.ipvsTerminationDeadline",
    "duration",
    15 * MINUTE,
    "how long a leaving real server of IPVS keeps its connections; 0: as long as they last",
    { flag: "ipvs-termination-deadline", omitDefault: true },
  ),
  field(
    "kproxy.userspaceListen",
    "strings",
    [],
    "mode userspace opens the Services on these addresses or networks of the node, without any rule; empty: by rules",
    { flag: "userspace-listen", omitDefault: true },
  ),
  field(
    "kproxy.externalIPPolicy.externalIPs",
    "strings",
    null,
    "networks from which `externalIPs` of Services are served; `[]`: none; not given: any",
    { omitDefault: true },
  ),
  field(
    "kproxy.externalIPPolicy.loadBalancerIPs",
    "strings",
    null,
    "networks from which load balancer IPs of Services are served; `[]`: none; not given: any",
    { omitDefault: true },
  ),
  field(
    "kproxy.externalIPPolicy.nodeAddresses",
    "boolean",
    null,
    "the node's own addresses may be among both, as k3s' load balancer needs; not given: only if neither list is",
    { omitDefault: true },
  ),
  field(
    "kproxy.trafficCounters",
    "boolean",
    false,
    "packets and bytes are counted for each Service port (mode nftables)",
    { flag: "traffic-counters", omitDefault: true },
  ),
  field(
    "kproxy.socket",
    "string",
    "/run/kproxy/kproxy.sock",
    "Unix socket on which root, and the user that kproxy runs as, may ask and set it; its directory is nobody else's; blank: none",
    { flag: "socket", omitDefault: true },
  ),
  field(
    "kproxy.statusApi",
    "boolean",
    true,
    "the socket tells commands how kproxy fares, its configuration and its objects (`/kproxy/v1/…`)",
    { flag: "status-api", omitDefault: true },
  ),
  field(
    "kproxy.statusPage",
    "boolean",
    false,
    "the metrics server shows browsers, over loopback, a page of the same and more (`/kproxy/`)",
    { flag: "status-page", omitDefault: true },
  ),
  field(
    "kproxy.serving.tlsCertFile",
    "string",
    "",
    "the metrics server speaks TLS, with this certificate (and those it follows from), PEM; blank: plain HTTP",
    { omitDefault: true },
  ),
  field("kproxy.serving.tlsPrivateKeyFile", "string", "", "key of that certificate, PEM", {
    omitDefault: true,
  }),
  field("kproxy.serving.tlsMinVersion", "string", "VersionTLS12", "oldest version of TLS that is spoken", {
    zeroIsUnset: true,
    omitDefault: true,
    allowed: TLS_VERSIONS,
  }),
  field(
    "kproxy.serving.clientCAFile",
    "string",
    "",
    "clients of the metrics server need a certificate of one of these authorities, PEM",
    { omitDefault: true },
  ),
  field(
    "kproxy.serving.bearerTokenFile",
    "string",
    "",
    "requests to the metrics server need one of these tokens, one a line",
    { omitDefault: true },
  ),
  field(
    "kproxy.serving.delegatedAuthentication",
    "boolean",
    false,
    "requests to the metrics server need a token that the API server lets `get` the path (TokenReview, SubjectAccessReview)",
    { omitDefault: true },
  ),
  field(
    "kproxy.serving.healthz",
    "boolean",
    false,
    "the health server speaks TLS, too; it asks nobody for a certificate or token, as kubelets have none",
    { omitDefault: true },
  ),
];
