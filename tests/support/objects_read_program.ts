/**
 * Serves as many Services as its one argument says, reads all objects as another program would, and prints, as JSON, the
 * cost: number of bytes, growth of heap and resident memory, and the longest turn of the event loop in CPU time.
 *
 * @module
 */
import process from "node:process";
import { connectTo, manyObjects, serving } from "./status_server.ts";

const MB = 1_000_000;

async function measure(count: number): Promise<void> {
  const objects = manyObjects(count);
  await serving(async ({ socket }) => {
    // Once before, so that all code for it is loaded and compiled.
    await drain(socket);
    collect();
    const before = Deno.memoryUsage();
    let highest = before;
    let longestTurnMs = 0;
    let last = cpuMs();
    const timer = setInterval(() => {
      const now = cpuMs();
      longestTurnMs = Math.max(longestTurnMs, now - last);
      last = now;
      const usage = Deno.memoryUsage();
      const { rss, heapTotal } = highest;
      highest = { ...usage, rss: Math.max(rss, usage.rss), heapTotal: Math.max(heapTotal, usage.heapTotal) };
    }, 0);
    const bytes = await drain(socket);
    clearInterval(timer);
    const heapMb = (highest.heapTotal - before.heapTotal) / MB;
    const residentMb = (highest.rss - before.rss) / MB;
    const found = JSON.stringify({ bytes, heapMb, residentMb, longestTurnMs });
    await Deno.stdout.write(new TextEncoder().encode(found));
  }, { objects });
}

function collect(): void {
  (globalThis as { gc?: () => void }).gc?.();
}

/** CPU time in milliseconds; other programs do not lengthen it. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

/** Reads all objects, and drops them. */
async function drain(socket: string): Promise<number> {
  using connection = await connectTo(socket);
  const request = `GET /kproxy/v1/objects HTTP/1.0\r\nHost: localhost\r\n\r\n`;
  await connection.write(new TextEncoder().encode(request));
  const buffer = new Uint8Array(256 * 1024);
  let total = 0;
  for (let count = await connection.read(buffer); count !== null; count = await connection.read(buffer)) {
    total += count;
  }
  return total;
}

if (import.meta.main) await measure(Number(Deno.args[0]));
