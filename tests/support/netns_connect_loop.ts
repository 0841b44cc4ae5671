/**
 * Run as a program inside a namespace: `server IP PORT` answers every connection with one byte; `client IP PORT` makes
 * 100 new connections a second until standard input ends, then prints how many failed or took longer than 200 ms.
 *
 * @module
 */

const LIMIT_MS = 200;
const INTERVAL_MS = 10;

/** What the client prints. */
export interface ConnectReport {
  readonly connections: number;
  readonly failures: readonly string[];
}

async function serve(hostname: string, port: number): Promise<void> {
  const listener = Deno.listen({ hostname, port });
  await Deno.stdout.write(new TextEncoder().encode("ready\n"));
  for await (const connection of listener) {
    void connection.write(new Uint8Array([1])).catch(() => 0).finally(() => connection.close());
  }
}

async function connectOnce(hostname: string, port: number): Promise<string | null> {
  const start = performance.now();
  try {
    const connection = await Deno.connect({ hostname, port, signal: AbortSignal.timeout(1_000) });
    const read = await connection.read(new Uint8Array(1));
    connection.close();
    const tookMs = performance.now() - start;
    if (read !== 1) return "no reply";
    return tookMs > LIMIT_MS ? `took ${Math.round(tookMs)} ms` : null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

async function connectUntilEnd(hostname: string, port: number): Promise<void> {
  let ended = false;
  const end = Deno.stdin.read(new Uint8Array(1)).then(() => {
    ended = true;
  });
  const running: Promise<string | null>[] = [];
  while (!ended) {
    running.push(connectOnce(hostname, port));
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
  await end;
  const results = await Promise.all(running);
  const report: ConnectReport = {
    connections: results.length,
    failures: results.filter((result) => result !== null),
  };
  await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(report) + "\n"));
}

if (import.meta.main) {
  const [role, hostname = "", port = ""] = Deno.args;
  await (role === "server" ? serve(hostname, Number(port)) : connectUntilEnd(hostname, Number(port)));
}
