/**
 * What a field of `KubeProxyConfiguration` is. Decoding, defaults, writing and the documentation follow from one
 * table of them, in `fields.ts`.
 *
 * @module
 */

import type { DetectLocalMode, EndpointsSource, ProxyMode, TlsVersion } from "./types.ts";

export type FieldKind =
  | "string"
  | "boolean"
  | "int32"
  | "uint32"
  | "float32"
  /** Go duration text; milliseconds inside. */
  | "duration"
  /** Go duration text, or a whole number of nanoseconds. */
  | "durationOrNanoseconds"
  /** Kubernetes quantity, e.g. `64Ki`; text inside. */
  | "quantity"
  | "strings"
  /** Map of gate name to boolean. */
  | "featureGates"
  /** List of `{filePattern, verbosity}`. */
  | "vmodule";

export interface VmoduleItem {
  filePattern: string;
  verbosity: number;
}

export type FieldValue =
  | string
  | number
  | boolean
  | null
  | string[]
  | Record<string, boolean>
  | VmoduleItem[];

export interface FieldSpec {
  /** Path in the file, e.g. `conntrack.maxPerCore`. */
  readonly path: string;
  readonly kind: FieldKind;
  /** Value if the field is absent or null, in the form the configuration holds it. */
  readonly default: FieldValue;
  /** What it does in kproxy, for the documentation. */
  readonly meaning: string;
  /** Zero and blank mean "not set" too (the API has no pointer there). */
  readonly zeroIsUnset?: true;
  /** Flag of the same meaning, without dashes. */
  readonly flag?: string;
  /** Left out when written while it has its default. */
  readonly omitDefault?: true;
  /** The values it may have, blank aside. */
  readonly allowed?: readonly string[];
  /** Accepted and written back, but changes nothing on Linux or in kproxy. */
  readonly unused?: true;
}

export const PROXY_MODES: readonly ProxyMode[] = ["iptables", "ipvs", "nftables", "userspace", "auto"];
export const DETECT_LOCAL_MODES: readonly DetectLocalMode[] = [
  "ClusterCIDR",
  "NodeCIDR",
  "BridgeInterface",
  "InterfaceNamePrefix",
];
export const ENDPOINTS_SOURCES: readonly EndpointsSource[] = ["auto", "slices", "endpoints"];
export const TLS_VERSIONS: readonly TlsVersion[] = ["VersionTLS12", "VersionTLS13"];

/** Of mode userspace. Source: kube-proxy 1.25. */
export const UDP_IDLE_TIMEOUT_MS = 250;
export const HEALTHZ_PORT = 10256;
export const METRICS_PORT = 10249;

/** A field of earlier versions: accepted with one warning, never "unknown". */
export interface ObsoleteField {
  readonly path: string;
  /** What became of it. */
  readonly note: string;
  /** Its value is used for this field, if that one is not given. */
  readonly renamedTo?: string;
}

export const OBSOLETE_FIELDS: readonly ObsoleteField[] = [
  { path: "udpTimeoutMilliseconds", note: "udpIdleTimeout has taken its place" },
  {
    path: "resourceContainer",
    note: "newer versions do not move themselves into a cgroup",
  },
  {
    path: "conntrack.max",
    note: "it is read as conntrack.maxPerCore: 1 and conntrack.min of that value, which gives the same limit",
  },
  { path: "clientConnection.kubeConfigFile", note: "", renamedTo: "clientConnection.kubeconfig" },
  { path: "clientConnection.kubeconfigFile", note: "", renamedTo: "clientConnection.kubeconfig" },
];

type Extras = Omit<FieldSpec, "path" | "kind" | "default" | "meaning">;

/** An entry of the table. */
export function field(
  path: string,
  kind: FieldKind,
  defaultValue: FieldValue,
  meaning: string,
  extras: Extras = {},
): FieldSpec {
  return { path, kind, default: defaultValue, meaning, ...extras };
}
