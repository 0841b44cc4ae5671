import { assert, assertEquals } from "@std/assert";
import { eventually } from "../../../tests/support/until.ts";
import { type MetricsOwner, readMetricsOwner } from "./other_proxies.ts";

const METRICS = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";

/** Who answers there, what is sent, and whether the connection is ended then. */
const OWNERS: readonly (readonly [who: string, sent: string, isEnded: boolean, owner: MetricsOwner])[] = [
  ["kube-proxy", `${METRICS}# HELP go_gc_duration_seconds A summary\ngo_x 1\n`, true, "kube-proxy"],
  ["kproxy", `${METRICS}# HELP kproxy_x X\nkproxy_x 1\n`, true, "kproxy"],
  ["a web server", "HTTP/1.1 404 Not Found\r\n\r\n<html>", true, "another program"],
  ["a server of another protocol", "SSH-2.0-OpenSSH_9.6\r\n\r\n", true, "another program"],
  ["one that hangs up", "", true, "another program"],
  ["one that says nothing", "", false, "another program"],
  ["metrics without an end", METRICS + "go_x 1\n".repeat(30_000), false, "kube-proxy"],
];

for (const [who, sent, isEnded, owner] of OWNERS) {
  // The limits are the question's own; where the machine stands still for as long, it is asked again.
  const ask = async (): Promise<void> => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const serving = (async () => {
      const connection = await listener.accept();
      await connection.read(new Uint8Array(1_000));
      const writer = connection.writable.getWriter();
      // The reader may have gone, having seen enough.
      const sending = Promise.allSettled([writer.write(new TextEncoder().encode(sent))]);
      return { connection, sending };
    })();
    const startMs = performance.now();
    const asking = readMetricsOwner(`127.0.0.1:${(listener.addr as Deno.NetAddr).port}`);
    const { connection, sending } = await serving;
    if (isEnded) {
      await sending;
      connection.close();
    }
    const told = await asking;
    const tookMs = performance.now() - startMs;
    await sending;
    if (!isEnded) connection.close();
    assertEquals(told, owner);
    assert(tookMs < 4_500, `${tookMs} ms`);
  };
  Deno.test(`${who} at the metrics' address is reported, soon`, () => eventually(ask, { limitMs: 60_000 }));
}

Deno.test("where no process listens, nothing answers", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  assertEquals(await readMetricsOwner(`127.0.0.1:${port}`), "nothing");
  assertEquals(await readMetricsOwner(`0.0.0.0:${port}`), "nothing");
  assertEquals(await readMetricsOwner(""), "nothing");
});
