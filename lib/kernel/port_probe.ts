/**
 * Whether a port of this network namespace is in use: binding it for a moment shows that it is free. No packet is sent.
 *
 * @module
 */
import { createSocket } from "node:dgram";
import type { IpFamily } from "../model/objects.ts";

/** The addresses that stand for all. */
export const EVERYWHERE: Readonly<Record<IpFamily, string>> = { IPv4: "0.0.0.0", IPv6: "::" };

/** Null: unknown, as for want of rights. */
export async function isPortTaken(
  family: IpFamily,
  protocol: "tcp" | "udp",
  port: number,
): Promise<boolean | null> {
  const code = protocol === "tcp" ? tcpRefusal(family, port) : await udpRefusal(family, port);
  return code === "" ? false : code === "EADDRINUSE" ? true : null;
}

/** `""`: the port can be had. */
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
  const socket = createSocket({ type: family === "IPv4" ? "udp4" : "udp6", ipv6Only: family === "IPv6" });
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.name));
  socket.bind({ port, address: EVERYWHERE[family], exclusive: true }, () => resolve(""));
  const refusal = await promise;
  await new Promise<void>((closed) => socket.close(() => closed()));
  return refusal;
}
