/**
 * Kubernetes Events: what an operator who looks at the cluster, not at the node's log, must hear of.
 *
 * @module
 */
import type { EventJson } from "../source/decode/api_json.ts";
import type { Logger } from "./log.ts";
import type { UnservedDestination } from "../model/destination_claims.ts";
import { splitNamespacedName } from "../model/names.ts";
import type { NamespacedName } from "../model/objects.ts";

/** The object an Event is about. Nodes have no namespace. */
export type EventSubject =
  | Named<Pick<Reference, "kind" | "name">, "Node">
  | Named<Pick<Reference, "kind" | "name" | "namespace">, "Service">;

type Reference = NonNullable<EventJson["regarding"]>;
type Named<Fields, Kind extends string> = Required<Fields> & { readonly kind: Kind };

/** An Event; this file has all of them. */
export interface ProxyEvent
  extends Required<Pick<EventJson, "type" | "reason" | "action" | "note" | "regarding">> {
  readonly type: "Normal" | "Warning";
  /** Why, in one CamelCase word that people can search for. */
  readonly reason: string;
  /** Action of the proxy, likewise in one word. */
  readonly action: string;
  /** Text for people; may be empty. */
  readonly note: string;
  readonly regarding: EventSubject;
}

/** Records Events. */
export interface EventRecorder {
  /** Never throws and never waits. */
  record(event: ProxyEvent): void;
}

/** Writes Events to the log: all there is to do without an API server. */
export class LogEvents implements EventRecorder {
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  record(event: ProxyEvent): void {
    if (event.type === "Warning") this.#log.warn("Event", eventValues(event));
    else this.#log.info("Event", eventValues(event));
  }
}

/** An Event as the values of a log line. */
export function eventValues(
  { type, reason, note, regarding }: ProxyEvent,
): Record<string, string | undefined> {
  return { type, reason, regarding: subjectText(regarding), note: note === "" ? undefined : note };
}

/** `Node node-a` or `Service shop/web`. */
export function subjectText(subject: EventSubject): string {
  return subject.kind === "Node" ? `Node ${subject.name}` : `Service ${subject.namespace}/${subject.name}`;
}

const START = "StartKubeProxy";

function aboutNode(node: string, reason: string, action: string, note: string): ProxyEvent {
  return { type: "Warning", reason, action, note, regarding: { kind: "Node", name: node } };
}

function aboutService(service: NamespacedName, reason: string, action: string, note: string): ProxyEvent {
  const regarding = { kind: "Service", ...splitNamespacedName(service) } as const;
  return { type: "Warning", reason, action, note, regarding };
}

/** The proxy server starts, also after a changed configuration. */
export function startingEvent(node: string): ProxyEvent {
  return { ...aboutNode(node, "Starting", START, ""), type: "Normal" };
}

/** The health server cannot listen, and retries. Names the proxy at its address, if one answers. */
export function healthServerFailedEvent(node: string, problem: string): ProxyEvent {
  return aboutNode(node, "FailedToStartProxierHealthcheck", START, problem);
}

/** The metrics server cannot listen, and retries. Names the proxy at its address, if one answers. */
export function metricsServerFailedEvent(node: string, problem: string): ProxyEvent {
  return aboutNode(node, "FailedToStartMetricServer", START, problem);
}

/** A health check node port cannot be opened. */
export function serviceHealthFailedEvent(
  node: string,
  { service, port, message }: {
    readonly service: NamespacedName;
    readonly port: number;
    readonly message: string;
  },
): ProxyEvent {
  const note = `node ${node} failed to start healthcheck "${service}" on port ${port}: ${message}`;
  return aboutService(service, "FailedToStartServiceHealthcheck", "Listen", note);
}

/** Kernel settings of connection tracking have other values than configured, and cannot be written. */
export function sysctlsRefusedEvent(
  node: string,
  refused: readonly {
    readonly name: string;
    readonly wanted: number | string;
    readonly found: string | null;
    readonly problem: string;
  }[],
): ProxyEvent {
  const settings = refused.map(({ name, wanted, found, problem }) =>
    `${name} is ${found ?? "unknown"} instead of ${wanted} (${problem.replace(/^sysctl: /, "").trim()})`
  ).join("; ");
  const readOnly = "/proc/sys or /sys is read-only: cannot modify conntrack limits, problems may arise later";
  return aboutNode(node, "readOnlySysFS", START, `${readOnly}: ${settings}`);
}

/** The configured mode cannot run here, and another mode runs. */
export function modeFallbackEvent(
  node: string,
  { wanted, used, why }: { readonly wanted: string; readonly used: string; readonly why: string },
): ProxyEvent {
  const note = `cannot run mode ${wanted}, running mode ${used}: ${why}`;
  return aboutNode(node, "ProxyModeFallback", START, note);
}

/** The cluster uses an IP family that the node cannot serve. */
export function familyNotServedEvent(
  node: string,
  { family, use, reason }: { readonly family: string; readonly use: string; readonly reason: string },
): ProxyEvent {
  const note = `cannot serve ${family}, although ${use}: ${reason}`;
  return aboutNode(node, "IPFamilyNotServed", START, note);
}

/** A changed configuration is wrong; the previous one stays in force. */
export function configRefusedEvent(node: string, problem: string): ProxyEvent {
  const note = `the changed configuration is refused, the former one stays in force: ${problem}`;
  return aboutNode(node, "ConfigRefused", "ReloadConfig", note);
}

/** A Service is too large, or the kernel refuses rules, endpoints or addresses of it; everything else is in force. */
export function serviceQuarantinedEvent(
  node: string,
  { service, problem }: { readonly service: NamespacedName; readonly problem: string },
): ProxyEvent {
  const note = `node ${node} does not serve all of ${service}, because a part of it is refused: ${problem}`;
  return aboutService(service, "ServiceQuarantined", "Sync", note);
}

/** A Service asks for an address or node port of another Service, or one that no Service may have. */
export function destinationRefusedEvent(
  node: string,
  { service, destination, reason }: UnservedDestination,
): ProxyEvent {
  const note = `node ${node} does not serve ${destination} of ${service}: ${reason}`;
  return aboutService(service, "DestinationRefused", "Sync", note);
}

/** An endpoint of a Service has an address that no pod has, and gets no traffic. */
export function endpointUnreachableEvent(
  node: string,
  { service, endpoint, reason }: {
    readonly service: NamespacedName;
    readonly endpoint: string;
    readonly reason: string;
  },
): ProxyEvent {
  const note = `node ${node} leads no traffic of ${service} to ${endpoint}: ${reason}`;
  return aboutService(service, "EndpointUnreachable", "Sync", note);
}

/** Another service proxy runs on the node: kube-proxy's tables of mode nftables came back. */
export function otherProxyEvent(node: string, tables: readonly string[]): ProxyEvent {
  const note = `another service proxy writes rules on this node: tables ${tables.join(", ")} came back`;
  return aboutNode(node, "OtherProxy", "Sync", note);
}
