/**
 * Run as a program inside a namespace: `server PORT` answers every connection with one byte; `client IP PORT` makes a new connection every
 * 10 ms until standard input ends, and prints how long each took, in milliseconds, as a JSON list.
 *
 * @module
 */

const INTERVAL_MS = 10;
const encoder = new TextEncoder();

async function serve(port: number): Promise<void> {
  const listener = Deno.listen({ hostname: "0.0.0.0", port });
  await Deno.stdout.write(encoder.encode("ready\n"));
  for await (const connection of listener) {
    void connection.write(new Uint8Array([1])).catch(() => 0).finally(() => connection.close());
  }
}

/** @throws {Error} if there is no answer: a run with one that is lost has no figures */
async function connectOnce(hostname: string, port: number): Promise<number> {
  const start = performance.now();
  using connection = await Deno.connect({ hostname, port });
  if (await connection.read(new Uint8Array(1)) !== 1) throw new Error(`${hostname}:${port} says nothing`);
  return performance.now() - start;
}

async function connectUntilEnd(hostname: string, port: number): Promise<void> {
  let isOver = false;
  const end = Deno.stdin.read(new Uint8Array(1)).then(() => {
    isOver = true;
  });
  const running: Promise<number>[] = [];
  while (!isOver) {
    running.push(connectOnce(hostname, port));
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
  }
  await end;
  await Deno.stdout.write(encoder.encode(`${JSON.stringify(await Promise.all(running))}\n`));
}

if (import.meta.main) {
  const [role, ...rest] = Deno.args;
  if (role === "server") await serve(Number(rest[0]));
  else await connectUntilEnd(rest[0] ?? "", Number(rest[1]));
}
