import { assertEquals } from "@std/assert";
import { ConnectProxy } from "../support/connect_proxy.ts";
import { KAPI, Kapi, KAPI_TOKEN } from "../support/kapi.ts";
import { startKubeChild } from "../support/kube_child.ts";
import { kubeconfigText } from "../support/kubeconfig_text.ts";
import { ListWatchServer } from "../support/list_watch_server.ts";
import { rawService } from "../support/raw_objects.ts";
import { e2eTest } from "../support/skip.ts";

const WEB = /"add","Service default\/web"/;

function portOf(url: string): number {
  return Number(new URL(url).port);
}

/** A kubeconfig file, removed afterwards. */
async function withKubeconfig(
  cluster: Readonly<Record<string, unknown>>,
  user: Readonly<Record<string, unknown>>,
  work: (path: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/kubeconfig`;
  try {
    await Deno.writeTextFile(path, kubeconfigText({ cluster, user }));
    await work(path);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("under kproxy's permissions: HTTP_PROXY leads to a server by http, with its password", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  await using proxy = new ConnectProxy(new Map([["api.test:8080", portOf(server.url)]]));
  const HTTP_PROXY = proxy.url.replace("http://", "http://user:pass@");
  await using child = startKubeChild({ master: "http://api.test:8080", env: { HTTP_PROXY } });
  await child.until(WEB);
  assertEquals(proxy.seen[0]?.startsWith("GET http://api.test:8080/api"), true, proxy.seen[0]);
  assertEquals(proxy.logins[0], `Basic ${btoa("user:pass")}`);
});

Deno.test("under kproxy's permissions: no proxy for addresses of the machine itself, nor for those of NO_PROXY", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  await using proxy = new ConnectProxy(new Map());
  for (const master of [server.url, server.url.replace("127.0.0.1", "localhost")]) {
    await using child = startKubeChild({ master, env: { HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url } });
    await child.until(WEB);
  }
  assertEquals(proxy.seen, []);
});

Deno.test("under kproxy's permissions: a kubeconfig's proxy counts before the environment's", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  await using proxy = new ConnectProxy(new Map([["api.test:8080", portOf(server.url)]]));
  const cluster = { server: "http://api.test:8080", "proxy-url": proxy.url };
  await withKubeconfig(cluster, {}, async (kubeconfig) => {
    await using child = startKubeChild({ kubeconfig, env: { HTTP_PROXY: "http://127.0.0.1:9" } });
    await child.until(WEB);
  });
});

Deno.test("a credential plugin is refused with the reason; with the right to start it, it is used", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  server.accepted = new Set(["Bearer from-plugin"]);
  const credential = {
    kind: "ExecCredential",
    apiVersion: "client.authentication.k8s.io/v1",
    status: { token: "from-plugin" },
  };
  const exec = {
    apiVersion: credential.apiVersion,
    command: "sh",
    args: ["-c", 'test -n "$KUBERNETES_EXEC_INFO" && test -n "$PATH" && echo "$CREDENTIAL"'],
    env: [{ name: "CREDENTIAL", value: JSON.stringify(credential) }],
  };
  await withKubeconfig({ server: server.url }, { exec }, async (kubeconfig) => {
    await using refused = startKubeChild({ kubeconfig });
    await refused.until(/ConfigError: .*Credential plugin "sh" of .*not among the programs kproxy may start/);
    // Beside the list of kproxy's own.
    await using allowed = startKubeChild({ kubeconfig, flags: ["--allow-run=sh"] });
    await allowed.until(WEB);
    assertEquals(allowed.log().includes("from-plugin"), false);
  });
});

Deno.test("without kubeconfig and master, outside of a pod: says what to give", async () => {
  await using child = startKubeChild({});
  await child.until(
    /clientConnection.kubeconfig: is empty, so in-cluster access is used, but KUBERNETES_SERVICE_HOST/,
  );
});

Deno.test("a certificate that cannot be read ends the start with its name", async () => {
  const cluster = { server: "https://127.0.0.1:4", "certificate-authority": "/nowhere/ca.crt" };
  await withKubeconfig(cluster, {}, async (kubeconfig) => {
    await using child = startKubeChild({ kubeconfig });
    await child.until(/ConfigError: .*kubeconfig: Cannot read \/nowhere\/ca.crt/);
  });
  const broken = { server: "https://127.0.0.1:4", "certificate-authority-data": btoa("no PEM") };
  await withKubeconfig(broken, {}, async (kubeconfig) => {
    await using child = startKubeChild({ kubeconfig });
    await child.until(
      /ConfigError: .*kubeconfig: certificate-authority-data holds no certificate in PEM form/,
    );
  });
});

e2eTest(
  "under kproxy's permissions: HTTPS_PROXY leads to kapi, verified or not",
  KAPI,
  async () => {
    await using kapi = await Kapi.start();
    await kapi.put(rawService("web"));
    const name = "kubernetes.default.svc:6443";
    const user = { token: KAPI_TOKEN };
    const ca = { "certificate-authority": kapi.ca };
    for (
      const cluster of [ca, { "insecure-skip-tls-verify": true }, { ...ca, "tls-server-name": "kubernetes" }]
    ) {
      await using proxy = new ConnectProxy(new Map([[name, kapi.port]]));
      await withKubeconfig({ server: `https://${name}`, ...cluster }, user, async (kubeconfig) => {
        await using child = startKubeChild({ kubeconfig, env: { HTTPS_PROXY: proxy.url } });
        await child.until(WEB);
      });
      assertEquals(new Set(proxy.seen), new Set([`CONNECT ${name}`]));
    }
    // To the machine itself without it.
    await using proxy = new ConnectProxy(new Map());
    await withKubeconfig({ server: kapi.url, ...ca }, user, async (kubeconfig) => {
      await using child = startKubeChild({ kubeconfig, env: { HTTPS_PROXY: proxy.url } });
      await child.until(WEB);
    });
    assertEquals(proxy.seen, []);
  },
);
