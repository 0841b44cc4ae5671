/**
 * Thread of a {@linkcode LabGateway}: it listens in one namespace and connects in another.
 *
 * @module
 */
import { enterNetns, PROCESS_NETNS } from "./lab_sockets.ts";

/** The part of a worker's global scope that this module uses. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<{ netns: string; port: number }>) => void) | null;
  postMessage(message: { error?: string }): void;
}
const scope = globalThis as unknown as WorkerScope;

async function pass(from: Deno.Conn, to: Deno.Conn): Promise<void> {
  try {
    await from.readable.pipeTo(to.writable);
  } catch (error) {
    // Either end may close at any time, as tests do to both.
    if (!(error instanceof Error)) throw error;
  }
}

async function forward(connection: Deno.Conn, port: number): Promise<void> {
  try {
    const server = await Deno.connect({ hostname: "127.0.0.1", port });
    await Promise.all([pass(connection, server), pass(server, connection)]);
  } catch (error) {
    if (!(error instanceof Deno.errors.ConnectionRefused)) throw error;
    connection.close();
  }
}

scope.onmessage = async ({ data: { netns, port } }) => {
  try {
    enterNetns(netns);
    // A socket stays in the namespace in which it was created, wherever the thread goes later.
    const listener = Deno.listen({ hostname: "127.0.0.1", port });
    enterNetns(PROCESS_NETNS);
    scope.postMessage({});
    for await (const connection of listener) void forward(connection, port);
  } catch (error) {
    scope.postMessage({ error: String(error) });
  }
};
