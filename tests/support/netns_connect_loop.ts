/**
 * Run as a program inside a namespace: `server IP PORT` answers every connection with one byte; `client IP PORT` makes
 * 100 new connections a second until standard input ends. It prints a dot for each that begins, and at last, in a line of its own,
 * how many failed or lost a packet on the way.
 *
 * @module
 */

/** A lost SYN is sent again after a second; a machine that is busy is rarely late by that much. */
const LIMIT_MS = 900;
const PATIENCE_MS = 3_000;
const INTERVAL_MS = 10;

const encoder = new TextEncoder();

/** What the client prints at last. */
export interface ConnectReport {
  readonly connections: number;
  readonly failures: readonly string[];
}

async function serve(hostname: string, port: number): Promise<void> {
  const listener = Deno.listen({ hostname, port });
  await Deno.stdout.write(encoder.encode("ready\n"));
  for await (const connection of listener) {
    void connection.write(new Uint8Array([1])).catch(() => 0).finally(() => connection.close());
  }
}

async function connectOnce(hostname: string, port: number): Promise<string | null> {
  const start = performance.now();
  try {
    const connection = await Deno.connect({ hostname, port, signal: AbortSignal.timeout(PATIENCE_MS) });
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
    Deno.stdout.writeSync(encoder.encode("."));
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
  await end;
  const results = await Promise.all(running);
  const report: ConnectReport = {
    connections: results.length,
    failures: results.filter((result) => result !== null),
  };
  await Deno.stdout.write(encoder.encode(`\n${JSON.stringify(report)}\n`));
}

if (import.meta.main) {
  const [role, hostname = "", port = ""] = Deno.args;
  await (role === "server" ? serve(hostname, Number(port)) : connectUntilEnd(hostname, Number(port)));
}
