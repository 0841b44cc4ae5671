/**
 * One backend of the demo: `web_backend.ts NAME IP PORT` answers HTTP requests with its name until standard input ends.
 *
 * @module
 */

const [name = "", hostname = "", port = ""] = Deno.args;
const server = Deno.serve({
  hostname,
  port: Number(port),
  onListen: () => Deno.stdout.writeSync(new TextEncoder().encode("ready\n")),
}, () => new Response(`${name}\n`, { headers: { connection: "close" } }));

// Nobody writes; the end comes when the demo is gone, however it went.
for await (const _chunk of Deno.stdin.readable) continue;
await server.shutdown();
