import { assertEquals } from "@std/assert";
import { LOCAL_PAIR } from "../../../tests/support/test_certificates.ts";
import { systemClock } from "../../kernel/clock.ts";
import { IdleLimit, readText } from "./response.ts";
import { masterAccess } from "./api_access.ts";
import { KubeClient } from "./kube_client.ts";
import type { Impersonation } from "./kubeconfig.ts";

const EVERYTHING: Impersonation = {
  user: "jürgen",
  uid: "u-1",
  groups: ["system:nodes", "a, b"],
  extra: { scopes: ["view", "list"], "example.org/Team 100%": ["nét"], none: [] },
};

/** Takes one request and answers it; the request's lines, as they came. */
class RawServer implements AsyncDisposable {
  readonly #listener: Deno.Listener;
  readonly url: string;
  readonly lines: Promise<string[]>;

  constructor(scheme: "http" | "https") {
    const address = { hostname: "127.0.0.1", port: 0 };
    this.#listener = scheme === "http" ? Deno.listen(address) : Deno.listenTls({ ...address, ...LOCAL_PAIR });
    this.url = `${scheme}://127.0.0.1:${(this.#listener.addr as Deno.NetAddr).port}`;
    this.lines = this.#take();
  }

  async #take(): Promise<string[]> {
    using connection = await this.#listener.accept();
    let text = "";
    const buffer = new Uint8Array(4096);
    while (!text.includes("\r\n\r\n")) {
      const length = await connection.read(buffer);
      if (length === null) break;
      text += new TextDecoder().decode(buffer.subarray(0, length));
    }
    const answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    await connection.write(new TextEncoder().encode(answer));
    return text.split("\r\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    await this.lines;
  }
}

/** The lines of impersonation that a request of such access has on the wire. */
async function sent(scheme: "http" | "https", impersonation: Impersonation | null): Promise<string[]> {
  await using server = new RawServer(scheme);
  // Requests over unverified TLS have another transport than those over plain TCP.
  const access = { ...masterAccess(server.url), insecureSkipTlsVerify: true, impersonation };
  const client = new KubeClient({ access, qps: -1, burst: 1, userAgent: "test", clock: systemClock });
  using limit = new IdleLimit({ idleMs: 30_000 }, server.url, new AbortController().signal, systemClock);
  assertEquals(await readText(await client.get("/api", limit.signal), limit), "{}");
  client.close();
  return (await server.lines)
    .filter((line) => /^impersonate-/i.test(line))
    .map((line) => line.replace(/^[^:]*/, (name) => name.toLowerCase()))
    .sort();
}

for (const scheme of ["http", "https"] as const) {
  Deno.test(`every group has a header of its own on the wire, and names are UTF-8: ${scheme}`, async () => {
    assertEquals(await sent(scheme, EVERYTHING), [
      "impersonate-extra-example.org%2fteam%20100%25: nét",
      "impersonate-extra-scopes: list",
      "impersonate-extra-scopes: view",
      "impersonate-group: a, b",
      "impersonate-group: system:nodes",
      "impersonate-uid: u-1",
      "impersonate-user: jürgen",
    ]);
  });
}

Deno.test("a request carries no header of impersonation that is not asked for", async () => {
  assertEquals(await sent("http", null), []);
  assertEquals(await sent("http", { user: "x", uid: "", groups: [], extra: {} }), ["impersonate-user: x"]);
});
