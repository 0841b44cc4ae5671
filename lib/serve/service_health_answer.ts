/**
 * What one Service's health check node port answers.
 *
 * @module
 */
import type { NamespacedName } from "../model/objects.ts";
import { jsonAnswer } from "./answers.ts";

/**
 * 200 if this node has ready endpoints of the Service and the proxy is healthy, else 503.
 *
 * @param localEndpoints ready endpoints on this node, by IP
 */
export function serviceHealthAnswer(
  service: NamespacedName,
  localEndpoints: number,
  serviceProxyHealthy: boolean,
): Response {
  const slash = service.indexOf("/");
  const [namespace, name] = [service.slice(0, slash), service.slice(slash + 1)];
  const body = { service: { namespace, name }, localEndpoints, serviceProxyHealthy };
  return jsonAnswer(JSON.stringify(body, null, "\t"), {
    status: localEndpoints !== 0 && serviceProxyHealthy ? 200 : 503,
    headers: { "x-load-balancing-endpoint-weight": String(localEndpoints) },
  });
}
