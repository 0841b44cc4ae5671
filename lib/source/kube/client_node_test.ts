/**
 * Behaviour of client-node that kproxy must not have: the reasons of `docs/dependencies.md`, "Parts of client-node". Where one of
 * these tests fails with a new release, its reason is gone.
 *
 * @module
 */
import { request } from "node:https";
import { assertEquals, assertRejects } from "@std/assert";
import { ListWatch } from "@kubernetes/client-node/dist/cache.js";
import { KubeConfig } from "@kubernetes/client-node/dist/config.js";
import { newClusters, newUsers } from "@kubernetes/client-node/dist/config_types.js";
import { ExecAuth } from "@kubernetes/client-node/dist/exec_auth.js";
import { OpenIDConnectAuth } from "@kubernetes/client-node/dist/oidc_auth.js";
import type { KubernetesListObject, KubernetesObject } from "@kubernetes/client-node/dist/types.js";
import { Watch } from "@kubernetes/client-node/dist/watch.js";
import { ConnectProxy } from "../../../tests/support/connect_proxy.ts";
import { FakeIssuer } from "../../../tests/support/fake_issuer.ts";
import { SocksProxy } from "../../../tests/support/socks_proxy.ts";
import { LOCAL_PAIR, TEST_CA } from "../../../tests/support/test_certificates.ts";

Deno.test("its reader of kubeconfigs reads a token file once, and not under kubeadm's name", async () => {
  const path = await Deno.makeTempFile({ prefix: "kproxy-token-" });
  try {
    await Deno.writeTextFile(path, "one");
    const [user] = newUsers([{ name: "u", user: { "token-file": path } }]);
    await Deno.writeTextFile(path, "two");
    assertEquals(user?.token, "one");
    const [ofKubeadm] = newUsers([{ name: "u", user: { tokenFile: path } }]);
    assertEquals([ofKubeadm?.token, ofKubeadm?.authProvider], [undefined, undefined]);
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("its reader of kubeconfigs checks no values, and knows one field of impersonation", () => {
  const insecure = { server: "https://h", "insecure-skip-tls-verify": "yes" };
  const [cluster] = newClusters([{ name: "c", cluster: insecure }]);
  assertEquals(cluster?.skipTLSVerify, false);
  const [user] = newUsers([{ name: "u", user: { token: 5123, as: "root", "as-groups": ["a"] } }]);
  assertEquals<unknown>([user?.token, user?.impersonateUser], [5123, "root"]);
  assertEquals(JSON.stringify(user).includes('["a"]'), false);
});

// Its HTTP client keeps the connection for later.
Deno.test("its watch drops a line that cannot be read, without a word", {
  sanitizeOps: false,
  sanitizeResources: false,
}, async () => {
  const line = (name: string) => `{"type":"ADDED","object":{"metadata":{"name":"${name}"}}}\n`;
  const body = `${line("a")}{"type":"ADDED","obj\n${line("b")}`;
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    () => new Response(body),
  );
  const config = {
    getCurrentCluster: () => ({ name: "c", server: `http://127.0.0.1:${server.addr.port}` }),
    applySecurityAuthentication: () => Promise.resolve(),
  } as unknown as KubeConfig;
  const seen: string[] = [];
  const { promise: ended, resolve } = Promise.withResolvers<unknown>();
  const event = (type: string, object: { metadata: { name: string } }) =>
    void seen.push(`${type} ${object.metadata.name}`);
  await new Watch(config).watch("/api/v1/services", {}, event, resolve);
  assertEquals([await ended, seen], [null, ["ADDED a", "ADDED b"]]);
});

/** Runs an informer whose lists and watches answer with these in turn; yields its events, in words. */
async function informed(
  list: () => Promise<KubernetesListObject<KubernetesObject>>,
  watchError: unknown,
): Promise<string[]> {
  const story: string[] = [];
  const watch = {
    watch: (_path: string, _query: unknown, _event: unknown, done: (error: unknown) => Promise<void>) => {
      story.push("watch");
      return done(watchError).then(() => new AbortController());
    },
  } as unknown as Watch;
  const informer = new ListWatch("/api/v1/services", watch, () => {
    story.push("list");
    return list();
  }, false);
  informer.on("error", (error) => story.push(`error: ${error.message}`));
  await informer.start();
  return story;
}

Deno.test("its informer ends with a list that fails, and with a watch that is refused", async () => {
  const refused = Object.assign(new Error("Too Many Requests"), { statusCode: 429 });
  assertEquals(await informed(() => Promise.reject(refused), null), ["list", "error: Too Many Requests"]);
  const empty = { metadata: { resourceVersion: "7" }, items: [] };
  assertEquals(await informed(() => Promise.resolve(empty), refused), [
    "list",
    "watch",
    "error: Too Many Requests",
  ]);
});

Deno.test("its exec plugins are not given the cluster, and have no end", async () => {
  const auth = new ExecAuth();
  const calls: unknown[][] = [];
  // Its way to start programs, by which its own tests replace it.
  Object.assign(auth, {
    execFn: (...call: unknown[]) => {
      calls.push(call);
      throw new Error("not started");
    },
  });
  const exec = { command: "login", args: ["now"], provideClusterInfo: true };
  const user = { name: "u", exec } as unknown as Parameters<ExecAuth["applyAuthentication"]>[0];
  await assertRejects(() => auth.applyAuthentication(user, {}), Error, "not started");
  // Neither an environment nor a time nor a signal.
  assertEquals(calls, [["login", ["now"], {}]]);
});

Deno.test("its client of an issuer sends no request: it gives a text where openid-client wants a URL", {
  sanitizeOps: false,
  sanitizeResources: false,
}, async () => {
  await using issuer = new FakeIssuer();
  for (const authority of [{}, { "idp-certificate-authority-data": btoa(TEST_CA) }]) {
    const config = {
      "idp-issuer-url": issuer.url,
      "client-id": "kproxy",
      "id-token": issuer.idToken(-1),
      "refresh-token": issuer.refreshToken,
      ...authority,
    };
    const user = { name: "u", authProvider: { name: "oidc", config } };
    const asking = () => new OpenIDConnectAuth().applyAuthentication(user, { headers: {} });
    await assertRejects(asking, TypeError, '"server" must be an instance of URL');
  }
  assertEquals(issuer.asked, 0);
});

Deno.test("its agents know no https proxy by address, and leave no names to a socks proxy", {
  sanitizeOps: false,
  sanitizeResources: false,
}, async () => {
  await using secure = new ConnectProxy(new Map(), LOCAL_PAIR);
  await using socks = new SocksProxy(new Map());
  const names: string[] = [];
  const through = (proxyUrl: string): Promise<unknown> => {
    const config = new KubeConfig() as unknown as { createAgent(cluster: unknown, options: unknown): never };
    const agent = config.createAgent({ server: "https://api.test", proxyUrl }, { ca: TEST_CA });
    return new Promise((resolve, reject) => {
      const lookup = (name: string, _options: unknown, done: (error: Error) => void): void => {
        names.push(name);
        done(new Error("asked for here"));
      };
      request({ host: "api.test", port: 6443, path: "/", agent, lookup } as never, resolve)
        .on("error", reject).end();
    });
  };
  await assertRejects(async () => await through(secure.url), TypeError, "must not be an IP address");
  await assertRejects(async () => await through(socks.url), Error, "asked for here");
  assertEquals([names, secure.seen, socks.seen], [["api.test"], [], []]);
});
