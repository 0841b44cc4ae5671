/**
 * Run as a program inside a namespace: `server IP PORT` answers every connection with one byte; `client IP PORT` makes
 * 100 new connections a second until standard input ends. It prints a dot for each that begins, and at last, in a line of its own,
 * how many failed, and how many of the SYNs in this namespace were lost on the way: the kernel tells it, however late a busy machine is.
 *
 * @module
 */
/** How long each connection is waited for, unless a fourth word says so: a lost SYN is sent again after a second, and then ever later. */
const PATIENCE_MS = 30_000;
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

async function connectOnce(hostname: string, port: number, patienceMs: number): Promise<string | null> {
  try {
    const connection = await Deno.connect({ hostname, port, signal: AbortSignal.timeout(patienceMs) });
    const read = await connection.read(new Uint8Array(1));
    connection.close();
    return read === 1 ? null : "no reply";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** How many SYNs the kernel sent again in this namespace, but for those that a server had no time for. */
async function lostSyns(): Promise<number> {
  // A line of names, and one of values.
  const [names = [], values = []] = (await Deno.readTextFile("/proc/net/netstat")).split("\n")
    .filter((line) => line.startsWith("TcpExt:")).map((line) => line.split(" "));
  const counters = new Map(names.map((name, at) => [name, Number(values[at])]));
  const counter = (name: string): number => counters.get(name) ?? NaN;
  return counter("TCPSynRetrans") - counter("ListenDrops");
}

async function connectUntilEnd(hostname: string, port: number, patienceMs: number): Promise<void> {
  const before = await lostSyns();
  let ended = false;
  const end = Deno.stdin.read(new Uint8Array(1)).then(() => {
    ended = true;
  });
  const running: Promise<string | null>[] = [];
  while (!ended) {
    running.push(connectOnce(hostname, port, patienceMs));
    Deno.stdout.writeSync(encoder.encode("."));
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
  await end;
  const results = await Promise.all(running);
  const lost = await lostSyns() - before;
  if (lost > 0) results.push(`${lost} SYNs were lost`);
  const report: ConnectReport = {
    connections: running.length,
    failures: results.filter((result) => result !== null),
  };
  await Deno.stdout.write(encoder.encode(`\n${JSON.stringify(report)}\n`));
}

if (import.meta.main) {
  const [role, hostname = "", port = "", patienceMs = PATIENCE_MS] = Deno.args;
  if (role === "server") await serve(hostname, Number(port));
  else await connectUntilEnd(hostname, Number(port), Number(patienceMs));
}
