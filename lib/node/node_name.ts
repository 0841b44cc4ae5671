/**
 * The name of the own Node.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError } from "../errors.ts";

/**
 * `hostnameOverride`, or the host name, trimmed and in lower case as Node names are.
 *
 * @throws {ConfigError} if both are blank
 */
export function nodeName(
  config: KubeProxyConfiguration,
  hostname: () => string = Deno.hostname,
): string {
  const name = (config.hostnameOverride.trim() || hostname().trim()).toLowerCase();
  if (name === "") {
    throw new ConfigError([{
      path: "hostnameOverride",
      message: "must name the node, the host has no name",
    }]);
  }
  return name;
}
