/**
 * The shapes of what the status page asks for beside the status, and where it asks. They belong to the page of the same release;
 * programs ask for what `status_document` describes.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../../model/objects.ts";
import type { API_VERSION } from "../status/status_document.ts";

/** The page, and the folder of the files it is made of. */
export const PAGE_PATH = "/kproxy/";
export const FILES_PATH = "/kproxy/page/";

/** What the page asks for. */
export const SERVICES_PATH = "/kproxy/v1/services";
export const SERVICE_PATH = "/kproxy/v1/service";
export const TRACE_PATH = "/kproxy/v1/trace";
export const CHANGES_PATH = "/kproxy/v1/changes";

/** By which addresses a Service is reached, the farthest of them. */
export type ServiceKind = "cluster IP" | "external IP" | "node port" | "load balancer";

/** A Service in the list. */
export type ServiceRow = readonly [
  service: NamespacedName,
  kind: ServiceKind,
  /** Cluster IPs first. */
  addresses: readonly string[],
  /** `http 80/TCP, 53/UDP :30053`. */
  ports: string,
  /** How many endpoints get traffic on this node, and how many there are: of the port and family with the fewest in use. */
  used: number,
  total: number,
  /** `""`: none. */
  problem: string,
];

/** What {@linkcode SERVICES_PATH} answers: all Services, or with `?since=CURSOR` those that were changed. */
export interface ServicesDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "ServiceRows";
  /** What to ask for next time. */
  readonly cursor: string;
  /** False: `rows` and `gone` change the previous answer. */
  readonly full: boolean;
  /** In no order. */
  readonly rows: readonly ServiceRow[];
  readonly gone: readonly NamespacedName[];
}

/** What {@linkcode CHANGES_PATH} answers: the last of them, oldest first, with `?since=ID` those that are newer. */
export interface ChangesDocument {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "Changes";
  /** Another one for each proxy server, whose ids begin anew. */
  readonly run: string;
  readonly changes: readonly RuleChange[];
}

/** A sync that wrote something, or failed. */
export interface RuleChange {
  readonly id: number;
  /** Milliseconds since the epoch, at its end. */
  readonly timeMs: number;
  readonly family: IpFamily;
  readonly kind: "full" | "partial";
  readonly durationMs: number;
  /** How many Services it looked at. */
  readonly changed: number;
  /** Some of them; none of a full one. */
  readonly services: readonly NamespacedName[];
  /** Rules, elements or servers written, per table or kind. */
  readonly written: Readonly<Record<string, number>>;
  /** `""`: it succeeded. */
  readonly error: string;
}

/** What {@linkcode SERVICE_PATH} answers with `?name=NAMESPACE/NAME`: as `kproxy service get -o json`, and what is wanted for it. */
export interface ServiceDocument {
  readonly name: NamespacedName;
  readonly ports: readonly PortDocument[];
  /** For each port, the rules, elements and servers that kproxy wants; null: they were not made. */
  readonly wanted: readonly (readonly WantedPart[] | null)[];
  /** What it asks for and does not get. */
  readonly unserved: readonly { readonly destination: string; readonly reason: string }[];
}

/** One port of one family. */
export interface PortDocument {
  readonly family: IpFamily;
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly clusterIP: string;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  readonly sourceRanges: readonly string[];
  /** 0: none. */
  readonly nodePort: number;
  readonly healthCheckNodePort: number;
  readonly internalTrafficPolicy: string;
  readonly externalTrafficPolicy: string;
  /** 0: none. */
  readonly affinitySeconds: number;
  readonly topology: string;
  readonly notes: readonly string[];
  readonly endpoints: readonly EndpointDocument[];
  /** Why the kernel refuses its rules; null: it does not. */
  readonly refusal: string | null;
}

/** One endpoint, and what it is used for. */
export interface EndpointDocument {
  readonly address: string;
  readonly onThisNode: boolean;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  /** Under each policy; null: the port has none. */
  readonly cluster: { readonly used: boolean; readonly reason: string } | null;
  readonly local: { readonly used: boolean; readonly reason: string } | null;
}

/** One rule, element or server. */
export interface WantedPart {
  readonly place: string;
  readonly text: string;
}

/** What {@linkcode TRACE_PATH} answers with `?from=SRC&to=DST`: as `kproxy trace --no-live -o json`. */
export interface TraceDocument {
  readonly packet: {
    readonly family: IpFamily;
    readonly source: string;
    /** `""`: a process on the node sends it. */
    readonly interface: string;
    readonly destination: string;
    readonly port: number;
    readonly protocol: string;
  };
  readonly service: {
    readonly name: NamespacedName;
    readonly portName: string;
    readonly port: number;
    readonly protocol: string;
    readonly reachedBy: string;
    readonly policy: "cluster" | "local";
    readonly endpoints: readonly EndpointDocument[];
  } | null;
  readonly desired: {
    readonly modes: readonly string[];
    /** What becomes of it, in a line. */
    readonly end: string;
    readonly outcomes: readonly OutcomeDocument[];
  } | null;
  readonly findings: readonly string[];
  readonly notes: readonly string[];
}

/** One of the things that may happen to a packet. */
export interface OutcomeDocument {
  /** `1`, `1/3`. */
  readonly probability: string;
  readonly verdict: "accept" | "drop" | "reject";
  readonly rejectWith: string;
  /** `ip:port`; `""`: its destination stays. */
  readonly translatedTo: string;
  readonly toNode: boolean;
  readonly masquerade: boolean;
  readonly steps: readonly StepDocument[];
}

/** A rule on its way. */
export interface StepDocument {
  readonly hook: string;
  readonly table: string;
  readonly chain: string;
  /** 0: the policy of the chain. */
  readonly number: number;
  readonly rule: string;
  /** What it does. */
  readonly words: string;
}
