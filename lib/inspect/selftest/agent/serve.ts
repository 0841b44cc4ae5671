/**
 * Answers everybody inside a namespace: with its own address and the one that it is asked from.
 *
 * @module
 */
import { createSocket } from "node:dgram";
import { joinHostPort, parseIp } from "../../../model/ip.ts";
import { READY_LINE, type ServeJob, type ServerWish } from "./jobs.ts";

/** How often it looks whether anybody is left who reads what it says. */
const PULSE_MS = 1_000;

/** Resolves when its time is over, or when nobody is left to serve for. */
export async function serve({ servers, lifeMs }: ServeJob): Promise<void> {
  await Promise.all(servers.map((server) => server.protocol === "tcp" ? serveTcp(server) : serveUdp(server)));
  const endMs = performance.now() + lifeMs;
  const encoder = new TextEncoder();
  for (let text = `${READY_LINE}\n`; performance.now() < endMs; text = "\n") {
    try {
      await Deno.stdout.write(encoder.encode(text));
    } catch (error) {
      // Whoever started it is gone.
      if (error instanceof Deno.errors.BrokenPipe) return;
      throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, PULSE_MS));
  }
}

function answer({ ip, port }: ServerWish, client: string): string {
  return `${joinHostPort(ip, port)} ${parseIp(client)?.text ?? client}\n`;
}

function serveTcp(server: ServerWish): void {
  const listener = Deno.listen({ hostname: server.ip, port: server.port });
  void (async () => {
    for await (const connection of listener) {
      void connection.write(new TextEncoder().encode(answer(server, connection.remoteAddr.hostname)))
        // A client that is gone needs no answer.
        .catch((error) => void error)
        .finally(() => connection.close());
    }
  })();
}

function serveUdp(server: ServerWish): Promise<void> {
  const socket = createSocket(server.ip.includes(":") ? "udp6" : "udp4");
  socket.on("message", (_, from) => socket.send(answer(server, from.address), from.port, from.address));
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.bind(server.port, server.ip, resolve);
  });
}
