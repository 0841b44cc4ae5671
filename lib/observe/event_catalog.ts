/**
 * Every Event there is. Those of kube-proxy keep its words; the last ones are kproxy's own.
 *
 * @module
 */
import { splitNamespacedName } from "../model/names.ts";
import type { NamespacedName } from "../model/objects.ts";
import type { EventSubject, ProxyEvent } from "./events.ts";

const START = "StartKubeProxy";

function nodeSubject(name: string): EventSubject {
  return { kind: "Node", name };
}

function serviceSubject(service: NamespacedName): EventSubject {
  return { kind: "Service", ...splitNamespacedName(service) };
}

/** The proxy server starts, also after a changed configuration. */
export function startingEvent(node: string): ProxyEvent {
  return { type: "Normal", reason: "Starting", action: START, note: "", regarding: nodeSubject(node) };
}

/** The health server cannot listen, and retries. Names the proxy at its address, if one answers. */
export function healthServerFailedEvent(node: string, problem: string): ProxyEvent {
  return startWarning(node, "FailedToStartProxierHealthcheck", problem);
}

/** The metrics server cannot listen, and retries. Names the proxy at its address, if one answers. */
export function metricsServerFailedEvent(node: string, problem: string): ProxyEvent {
  return startWarning(node, "FailedToStartMetricServer", problem);
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
  return {
    type: "Warning",
    reason: "FailedToStartServiceHealthcheck",
    action: "Listen",
    note: `node ${node} failed to start healthcheck "${service}" on port ${port}: ${message}`,
    regarding: serviceSubject(service),
  };
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
  );
  return startWarning(
    node,
    "readOnlySysFS",
    `/proc/sys or /sys is read-only: cannot modify conntrack limits, problems may arise later: ${
      settings.join("; ")
    }`,
  );
}

/** The configured mode cannot run here, and another mode runs. */
export function modeFallbackEvent(
  node: string,
  { wanted, used, why }: { readonly wanted: string; readonly used: string; readonly why: string },
): ProxyEvent {
  return startWarning(node, "ProxyModeFallback", `cannot run mode ${wanted}, running mode ${used}: ${why}`);
}

/** The cluster uses an IP family that the node cannot serve. */
export function familyNotServedEvent(
  node: string,
  { family, use, reason }: { readonly family: string; readonly use: string; readonly reason: string },
): ProxyEvent {
  return startWarning(node, "IPFamilyNotServed", `cannot serve ${family}, although ${use}: ${reason}`);
}

/** A changed configuration is wrong; the previous one stays in force. */
export function configRefusedEvent(node: string, problem: string): ProxyEvent {
  return {
    type: "Warning",
    reason: "ConfigRefused",
    action: "ReloadConfig",
    note: `the changed configuration is refused, the former one stays in force: ${problem}`,
    regarding: nodeSubject(node),
  };
}

/** A Service is too large, or the kernel refuses rules, endpoints or addresses of it; everything else is in force. */
export function serviceQuarantinedEvent(
  node: string,
  { service, problem }: { readonly service: NamespacedName; readonly problem: string },
): ProxyEvent {
  return {
    type: "Warning",
    reason: "ServiceQuarantined",
    action: "Sync",
    note: `node ${node} does not serve all of ${service}, because a part of it is refused: ${problem}`,
    regarding: serviceSubject(service),
  };
}

/** A Service asks for an address or node port of another Service, or one that no Service may have. */
export function destinationRefusedEvent(
  node: string,
  { service, destination, reason }: {
    readonly service: NamespacedName;
    readonly destination: string;
    readonly reason: string;
  },
): ProxyEvent {
  return {
    type: "Warning",
    reason: "DestinationRefused",
    action: "Sync",
    note: `node ${node} does not serve ${destination} of ${service}: ${reason}`,
    regarding: serviceSubject(service),
  };
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
  return {
    type: "Warning",
    reason: "EndpointUnreachable",
    action: "Sync",
    note: `node ${node} leads no traffic of ${service} to ${endpoint}: ${reason}`,
    regarding: serviceSubject(service),
  };
}

/** Another service proxy runs on the node: kube-proxy's tables of mode nftables came back. */
export function otherProxyEvent(node: string, tables: readonly string[]): ProxyEvent {
  return {
    type: "Warning",
    reason: "OtherProxy",
    action: "Sync",
    note: `another service proxy writes rules on this node: tables ${tables.join(", ")} came back`,
    regarding: nodeSubject(node),
  };
}

function startWarning(node: string, reason: string, note: string): ProxyEvent {
  return { type: "Warning", reason, action: START, note, regarding: nodeSubject(node) };
}
