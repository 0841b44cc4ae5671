import { assertEquals } from "@std/assert";
import { systemClock } from "../../kernel/clock.ts";
import { IdleLimit, readText } from "./response.ts";
import { masterAccess } from "./api_access.ts";
import { impersonationHeaders, KubeClient } from "./kube_client.ts";
import type { Impersonation } from "./kubeconfig.ts";

const EVERYTHING: Impersonation = {
  user: "jürgen",
  uid: "u-1",
  groups: ["system:nodes", "a, b"],
  extra: { scopes: ["view", "list"], "example.org/Team 100%": ["nét"], none: [] },
};

Deno.test("whom a request is made as, in headers", { permissions: "none" }, () => {
  assertEquals(impersonationHeaders(EVERYTHING), {
    "impersonate-user": ["j\u00c3\u00bcrgen"],
    "impersonate-uid": ["u-1"],
    "impersonate-group": ["system:nodes", "a, b"],
    "impersonate-extra-scopes": ["view", "list"],
    "impersonate-extra-example.org%2FTeam%20100%25": ["n\u00c3\u00a9t"],
  });
  const { user } = EVERYTHING;
  assertEquals(impersonationHeaders({ user, uid: "", groups: [], extra: {} }), {
    "impersonate-user": ["j\u00c3\u00bcrgen"],
  });
});

/** They are not verified. */
const CERTIFICATE = {
  cert: `-----BEGIN CERTIFICATE-----
MIIBgzCCASmgAwIBAgIUYGT//3AWbeaDd+R8ti3Kt9L3VBMwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLa3Byb3h5LXRlc3QwIBcNMjYxMTIyMTYwMzA2WhgPMjEyNjEw
MjkxNjAzMDZaMBYxFDASBgNVBAMMC2twcm94eS10ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEEKahLhGYgsYzjZ8AShJdKk6kLo8urLusX1BoNnMWe5HH3srZ
q2wbUryPRap2G3Gtdl3lceuYHwlDKKoZWfq5oaNTMFEwHQYDVR0OBBYEFATcBb0R
XUz6chSYfPoV36hCFQ9rMB8GA1UdIwQYMBaAFATcBb0RXUz6chSYfPoV36hCFQ9r
MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgVccvRvDRukIJmTFr
OJsX3hvzylPfPYBF5GdeJPNf5i4CIQCQqalEL/rxA52XQc4B/ZFKcvDLIk17Na/9
3a7TFTz/cQ==
-----END CERTIFICATE-----
`,
  key: `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxgDkgq05EksB2/AS
2eZ2JBwmTc+NvvpWZFOaEo/PexChRANCAAQQpqEuEZiCxjONnwBKEl0qTqQujy6s
u6xfUGg2cxZ7kcfeytmrbBtSvI9FqnYbca12XeVx65gfCUMoqhlZ+rmh
-----END PRIVATE KEY-----
`,
};

/** Takes one request and answers it; the request's lines, as they came. */
class RawServer implements AsyncDisposable {
  readonly #listener: Deno.Listener;
  readonly url: string;
  readonly lines: Promise<string[]>;

  constructor(scheme: "http" | "https") {
    const address = { hostname: "127.0.0.1", port: 0 };
    this.#listener = scheme === "http"
      ? Deno.listen(address)
      : Deno.listenTls({ ...address, ...CERTIFICATE });
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
  // Over unverified TLS requests go another way than over plain TCP.
  const access = { ...masterAccess(server.url), insecureSkipTlsVerify: true, impersonation };
  const client = new KubeClient({ access, qps: -1, burst: 1, userAgent: "test", clock: systemClock });
  using limit = new IdleLimit(30_000, server.url, new AbortController().signal, systemClock);
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

Deno.test("a request without anybody to be carries no such header", async () => {
  assertEquals(await sent("http", null), []);
});
