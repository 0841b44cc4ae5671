import { assert, assertEquals, assertRejects } from "@std/assert";
import { ConnectProxy } from "../../../tests/support/connect_proxy.ts";
import { listsOf, putWeb, startKubeSource, watching } from "../../../tests/support/kube_fixture.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService } from "../../../tests/support/raw_objects.ts";
import { SocksProxy } from "../../../tests/support/socks_proxy.ts";
import {
  API_PAIR,
  LOCAL_PAIR,
  NODE_PAIR,
  OTHER_CA,
  TEST_CA,
} from "../../../tests/support/test_certificates.ts";
import { TlsFront } from "../../../tests/support/tls_front.ts";
import { until } from "../../../tests/support/until.ts";
import { masterAccess } from "./api_access.ts";
import { openTunnel, TlsTransport, type TunnelOptions } from "./tls_transport.ts";
import type { ClusterAccess } from "./kubeconfig.ts";

/** A name that only proxies know. */
const TARGET = "api.test:6443";
const REQUEST = {
  credentials: {
    certificateAuthority: TEST_CA,
    clientCertificate: { certificate: NODE_PAIR.cert, key: NODE_PAIR.key },
    authorization: null,
  },
  method: "GET",
  path: "/api/v1/services?limit=1",
  headers: {},
};
const NEVER = new AbortController().signal;

type AnyProxy = ConnectProxy | SocksProxy;

/** Ways to the server; the function makes a proxy that leads `TARGET` to `port`. */
const WAYS: readonly (readonly [string, (port: number) => AnyProxy])[] = [
  ["an http proxy", (port) => new ConnectProxy(new Map([[TARGET, port]]))],
  ["an https proxy", (port) => new ConnectProxy(new Map([[TARGET, port]]), LOCAL_PAIR)],
  ["a socks5 proxy", (port) => new SocksProxy(new Map([[TARGET, port]]))],
];

const VERIFIED = { certificateAuthority: { kind: "text", pem: TEST_CA } } as const;
const NODE = {
  certificate: { kind: "text", pem: NODE_PAIR.cert },
  key: { kind: "text", pem: NODE_PAIR.key },
} as const;

/** TLS settings of a cluster, each with the server name that is then asked for. */
const CLUSTERS: readonly (readonly [string, Partial<ClusterAccess>, string])[] = [
  ["its certificate authority", VERIFIED, "api.test"],
  ["tls-server-name", { ...VERIFIED, tlsServerName: "kubernetes.default" }, "kubernetes.default"],
  ["insecure-skip-tls-verify", { insecureSkipTlsVerify: true }, "api.test"],
];

function accessBy(proxyUrl: string, fields: Partial<ClusterAccess>): ClusterAccess {
  return { ...masterAccess(`https://${TARGET}`), proxyUrl, clientCertificate: NODE, ...fields };
}

/** The package `socks` keeps a timer for 30 s after each connection, used or not; that nothing else stays is asked of the proxy. */
function sanitized(way: string): { readonly sanitizeOps: boolean; readonly sanitizeResources: boolean } {
  const isClean = way !== "a socks5 proxy";
  return { sanitizeOps: isClean, sanitizeResources: isClean };
}

/** The proxy's URL with a user and a password that need escapes. */
function withLogin(url: string): string {
  return url.replace("://", "://n%40de:p%3Ass@");
}

for (const [way, proxyOn] of WAYS) {
  for (const [what, fields, name] of CLUSTERS) {
    Deno.test(
      `through ${way}, with ${what}: list, watch, cut, 410, Retry-After, end`,
      sanitized(way),
      async () => {
        await using server = new ListWatchServer();
        putWeb(server);
        await using front = await TlsFront.start(Number(new URL(server.url).port), API_PAIR, { asks: true });
        await using proxy = proxyOn(front.port);
        {
          const access = accessBy(withLogin(proxy.url), fields);
          await using source = startKubeSource(server, { access });
          const { recorder } = source;
          await recorder.until(() => recorder.names("Service").length === 1, "the list");
          await watching(server);
          server.put(rawService("two"));
          await recorder.until(() => recorder.names("Service").length === 2, "an event of the watch");

          const lists = listsOf(server, "services");
          server.endWatches("broken");
          server.put(rawService("three"));
          await recorder.until(() => recorder.names("Service").length === 3, "what came after the cut");
          assertEquals(listsOf(server, "services"), lists, "a cut needs no new list");

          await watching(server);
          server.plan(({ path, watch }) => watch && path.endsWith("/services"), {
            status: 429,
            retryAfter: 1,
          });
          const refusedMs = Date.now();
          server.endWatches("cleanly");
          await until(() => server.watches("services") === 1, "a watch after Retry-After");
          assert(Date.now() - refusedMs >= 1000, "Retry-After was not heeded");

          server.put(rawService("four"));
          await recorder.until(() => recorder.names("Service").length === 4, "an event after that");
          server.silenceWatches();
          server.put(rawService("five"));
          server.compact();
          server.closeConnections();
          await recorder.until(() => recorder.names("Service").length === 5, "what came after 410");
          assert(listsOf(server, "services") > lists, "410 is answered by a new list");
          recorder.assertSound();
        }
        // No process stays behind at the proxy.
        await until(() => proxy.open === 0, "all connections to the proxy are closed");
        assertEquals(new Set(front.clients), new Set(["node"]));
        assertEquals(new Set(front.names), new Set([name]));
        const asked = way === "a socks5 proxy" ? `name ${TARGET}` : `CONNECT ${TARGET}`;
        assertEquals(new Set(proxy.seen), new Set([asked]));
        if (proxy instanceof ConnectProxy) assertEquals(proxy.logins[0], `Basic ${btoa("n@de:p:ss")}`);
      },
    );
  }
}

for (const [way, proxyOn] of WAYS) {
  Deno.test(`${way} that is silent is left when nobody waits any more`, sanitized(way), async () => {
    await using proxy = proxyOn(9);
    proxy.manners = "silent";
    const transport = new TlsTransport(accessBy(proxy.url, CLUSTERS[1]![1]));
    const end = new AbortController();
    const sending = transport.send(REQUEST, end.signal);
    await until(() => proxy.open === 1, "a connection to the proxy");
    end.abort(new Error("waited long enough"));
    await assertRejects(() => sending, Error, "waited long enough");
    await until(() => proxy.open === 0, "the connection to the proxy is closed");
    await assertRejects(() => transport.send(REQUEST, end.signal), Error, "waited long enough");
  });

  Deno.test(
    `through ${way}: another server than the one wanted is refused, and nothing stays`,
    sanitized(way),
    async () => {
      await using server = new ListWatchServer();
      await using front = await TlsFront.start(Number(new URL(server.url).port), API_PAIR);
      await using proxy = proxyOn(front.port);
      // The proxy's own certificate is of a name that the cluster's is not.
      const other = { ...VERIFIED, tlsServerName: "other.test" };
      const stranger = { credentials: { ...REQUEST.credentials, certificateAuthority: OTHER_CA } };
      for (
        const [access, request] of [[other, {}], [
          CLUSTERS[1]![1],
          way === "an https proxy" ? null : stranger,
        ]] as const
      ) {
        if (request === null) continue;
        const transport = new TlsTransport(accessBy(proxy.url, access));
        await assertCertificateRefused(transport.send({ ...REQUEST, ...request }, NEVER));
        await until(() => proxy.open === 0, "the connection to the proxy is closed");
      }
      assertEquals(server.requests, []);
    },
  );
}

/** Rejects, because of a certificate. */
async function assertCertificateRefused(sending: Promise<unknown>): Promise<void> {
  const error = await assertRejects(() => sending, Error);
  assert(/certificate/i.test(error.message), error.message);
}

/** The message of a tunnel that cannot be had. */
async function failure(proxyUrl: string, fields: Partial<TunnelOptions> = {}): Promise<string> {
  const options = {
    proxyUrl,
    host: "api.test",
    port: 6443,
    certificateAuthority: TEST_CA,
    insecureSkipTlsVerify: false,
    ...fields,
  };
  return (await assertRejects(() => openTunnel(options, NEVER), Error)).message;
}

Deno.test(
  "a proxy that does not lead to the server is named with the reason, never with its password",
  sanitized("a socks5 proxy"),
  async () => {
    await using plain = new ConnectProxy(new Map());
    await using secure = new ConnectProxy(new Map(), LOCAL_PAIR);
    await using socks = new SocksProxy(new Map());
    const messages: string[] = [];
    const told = async (proxyUrl: string, pattern: RegExp, fields = {}): Promise<void> => {
      const message = await failure(proxyUrl, fields);
      const { host, protocol } = new URL(proxyUrl);
      assert(message.startsWith(`Proxy ${protocol}//${host}: `), message);
      assert(pattern.test(message), message);
      messages.push(message);
    };
    const wrong = withLogin("://").replace("://", "");
    const as = (url: string): string => url.replace("://", `://${wrong}`);
    await told(as(plain.url), /answers CONNECT api.test:6443 with status 502$/);
    await told(plain.url, /answers CONNECT \[fd00::1\]:6443 with status 502$/, { host: "fd00::1" });
    plain.manners = 407;
    await told(as(plain.url), /with status 407$/);
    await told(as(secure.url), /with status 502$/);
    await told(secure.url, /certificate/i, { certificateAuthority: null });
    await told(secure.url, /certificate/i, { certificateAuthority: OTHER_CA });
    // As by client-go.
    await told(secure.url, /with status 502$/, { certificateAuthority: null, insecureSkipTlsVerify: true });
    await told(as(socks.url), /HostUnreachable/);
    await told(socks.url, /HostUnreachable/, { host: "fd00::1" });
    await told(socks.url, /HostUnreachable/, { host: "10.0.0.1" });
    assertEquals(socks.seen, ["name api.test:6443", "IPv6 [fd00:0:0:0:0:0:0:1]:6443", "IPv4 10.0.0.1:6443"]);
    socks.manners = { reply: 2 };
    await told(socks.url, /NotAllowed/);
    socks.login = "n@de:other";
    await told(socks.url, /./);
    await told(as(socks.url), /Authentication failed/i);
    assertEquals(socks.logins, ["n@de:p:ss"]);
    socks.manners = "garbage";
    await told(as(socks.url), /./);
    for (const [url, scheme] of [[plain.url, "http"], [plain.url, "https"], [socks.url, "socks5"]] as const) {
      const { port } = new URL(url);
      await told(`${scheme}://127.0.0.1:${port === "1" ? 2 : 1}`, /ECONNREFUSED|refused/i);
    }
    for (const message of messages) assertEquals(/p:ss|p%3Ass|n@de/.test(message), false, message);
    for (const proxy of [plain, secure, socks]) {
      await until(() => proxy.open === 0, "nothing stays");
    }
  },
);
