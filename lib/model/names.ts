/**
 * The identities by which Services, their ports and their endpoints are found, and the order they are listed in.
 *
 * @module
 */
import type { NamespacedName, Protocol } from "./objects.ts";
import type { ServicePortKey } from "./state.ts";

/** `namespace/name`: the key of a Service in change tracking and health checks. */
export function namespacedName(namespace: string, name: string): NamespacedName {
  return `${namespace}/${name}`;
}

/** Splits `namespace/name` at its first slash. */
export function splitNamespacedName(
  text: NamespacedName,
): { readonly namespace: string; readonly name: string } {
  const slash = text.indexOf("/");
  return { namespace: text.slice(0, Math.max(slash, 0)), name: text.slice(slash + 1) };
}

/** `namespace/name:port`, or `namespace/name` for an unnamed port: how rule comments, logs and chain hashes name a port. */
export function servicePortText(service: NamespacedName, portName: string): string {
  return portName === "" ? service : `${service}:${portName}`;
}

/**
 * Key that matches endpoints with ServicePorts: the text of {@link servicePortText}, `/` and the protocol. Two ports of
 * one Service may share a name if their protocols differ.
 */
export function servicePortKey(
  service: NamespacedName,
  portName: string,
  protocol: Protocol,
): ServicePortKey {
  return `${servicePortText(service, portName)}/${protocol}`;
}

/** Orders texts by their bytes, as kube-proxy does, independent of any locale. */
export function compareBytes(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
