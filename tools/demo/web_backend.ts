/**
 * One backend of the demo: `web_backend.ts NAME IP PORT` answers HTTP requests with its name until standard input ends or
 * SIGTERM comes. Then it finishes what it has begun.
 *
 * @module
 */

const [name = "", hostname = "", port = ""] = Deno.args;
const server = Deno.serve({
  hostname,
  port: Number(port),
  onListen: () => Deno.stdout.writeSync(new TextEncoder().encode("ready\n")),
}, () => new Response(`${name}\n`));

const orders = Deno.stdin.readable.getReader();
const end = (): void => void orders.cancel();
Deno.addSignalListener("SIGTERM", end);
// Nobody writes; the end comes when the demo is gone, however it went.
while (!(await orders.read()).done) continue;
Deno.removeSignalListener("SIGTERM", end);
await server.shutdown();
