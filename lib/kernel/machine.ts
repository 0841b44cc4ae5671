/**
 * The machine as the runtime shows it: kernel, processors, interfaces, whether a port is in use, and the name of its Node.
 *
 * @module
 */
import type { DeviceAddress } from "../netfilter/ip_batch.ts";
import type { IpFamily } from "../model/objects.ts";
import type { KubeProxyConfiguration } from "../config/types.ts";
import { ConfigError } from "../errors.ts";

/** What `uname -r` prints, e.g. `6.1.0-28-amd64`; null where the runtime may not ask (`--allow-sys=osRelease`). */
export function kernelRelease(): string | null {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "osRelease" });
  return state === "granted" ? Deno.osRelease() : null;
}

/**
 * The CPUs of the machine. Where the runtime may not ask (`--allow-sys=cpus`), those this process may use: fewer if it is pinned
 * or has a CPU limit, which says nothing about how many connections the node must track.
 */
export async function cpuCount(): Promise<number> {
  const allowed = Deno.permissions.querySync({ name: "sys", kind: "cpus" }).state === "granted";
  return Math.max(allowed ? await countMachine() : 0, navigator.hardwareConcurrency, 1);
}

async function countMachine(): Promise<number> {
  // Takes milliseconds to load, in which a start can wait for programs.
  const { cpus } = await import("node:os");
  return cpus().length;
}

/** Addresses of all interfaces of the node, both families. */
export function interfaceIps(): readonly string[] {
  return Deno.networkInterfaces().map(({ address }) => address);
}

/**
 * As {@linkcode interfaceIps}, with the interfaces; their scopes are unknown. Those of the device of Services are among them on
 * some kernels.
 */
export function interfaceAddresses(): readonly DeviceAddress[] {
  return Deno.networkInterfaces().map(({ name, family, address, cidr }) => ({
    device: name,
    family,
    address,
    prefixLength: Number(cidr.slice(cidr.indexOf("/") + 1)),
    scope: "",
  }));
}

/** The unspecified address of each family, which stands for all. */
export const EVERYWHERE: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/**
 * Whether a port of this network namespace is in use: binding it for a moment shows that it is free. No packet is sent. Null: unknown, as
 * for want of rights.
 */
export async function isPortTaken(
  family: IpFamily,
  protocol: "tcp" | "udp",
  port: number,
): Promise<boolean | null> {
  const code = protocol === "tcp" ? tcpRefusal(family, port) : await udpRefusal(family, port);
  return code === "" ? false : code === "EADDRINUSE" ? true : null;
}

/** Error code of binding the port; `""`: it can be had. */
function tcpRefusal(family: IpFamily, port: number): string {
  try {
    Deno.listen({ hostname: EVERYWHERE[family], port }).close();
    return "";
  } catch (error) {
    if (error instanceof Deno.errors.AddrInUse) return "EADDRINUSE";
    if (error instanceof Error) return error.name;
    throw error;
  }
}

async function udpRefusal(family: IpFamily, port: number): Promise<string> {
  const { createSocket } = await import("node:dgram");
  const socket = createSocket({ type: family === "IPv4" ? "udp4" : "udp6", ipv6Only: family === "IPv6" });
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.name));
  socket.bind({ port, address: EVERYWHERE[family], exclusive: true }, () => resolve(""));
  const refusal = await promise;
  await new Promise<void>((closed) => socket.close(() => closed()));
  return refusal;
}

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
