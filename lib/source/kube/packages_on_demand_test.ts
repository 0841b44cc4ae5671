/**
 * Packages that few kubeconfigs need, in a program of its own: loaded on demand, working under kproxy's permissions.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { ConnectProxy } from "../../../tests/support/connect_proxy.ts";
import { FakeIssuer } from "../../../tests/support/fake_issuer.ts";
import { startKubeChild } from "../../../tests/support/kube_child.ts";
import { kubeconfigText } from "../../../tests/support/kubeconfig_text.ts";
import { ListWatchServer } from "../../../tests/support/list_watch_server.ts";
import { rawService } from "../../../tests/support/raw_objects.ts";
import { SocksProxy } from "../../../tests/support/socks_proxy.ts";
import { API_PAIR, TEST_CA } from "../../../tests/support/test_certificates.ts";
import { TlsFront } from "../../../tests/support/tls_front.ts";
import { withFolder } from "../../../tests/support/temp_files.ts";

const WEB = /"add","Service default\/web"/;
const ROOT = new URL("../../../", import.meta.url);
/** Packages that are loaded on demand only. */
const ON_DEMAND = ["openid-client", "socks"];

type Fields = Readonly<Record<string, unknown>>;

async function kubeconfigIn(folder: string, cluster: Fields, user: Fields): Promise<string> {
  const path = `${folder}/kubeconfig-${crypto.randomUUID()}`;
  await Deno.writeTextFile(path, kubeconfigText({ cluster, user }));
  return path;
}

/** Flags by which each package that is loaded on demand is a trap. */
async function trapsIn(folder: string): Promise<string[]> {
  const { imports } = JSON.parse(await Deno.readTextFile(new URL("deno.json", ROOT))) as {
    imports: Record<string, string>;
  };
  const known = Object.entries(imports).flatMap(([name, target]) => [
    [name, target],
    [`${name}/`, `${target.replace(":", ":/")}/`],
  ]);
  const traps = ON_DEMAND.map((name) => [name, "./trap.ts"]);
  await Deno.writeTextFile(`${folder}/trap.ts`, 'throw new Error("the trap was loaded");\n');
  const path = `${folder}/import_map.json`;
  await Deno.writeTextFile(path, JSON.stringify({ imports: Object.fromEntries([...known, ...traps]) }));
  return [`--import-map=${path}`, "--no-lock"];
}

function oidcUser(issuer: FakeIssuer): Fields {
  const config = {
    "idp-issuer-url": issuer.url,
    "client-id": "kproxy",
    "idp-certificate-authority-data": btoa(TEST_CA),
    "id-token": issuer.idToken(-1),
    "refresh-token": "refresh-1",
  };
  return { "auth-provider": { name: "oidc", config } };
}

Deno.test("nothing of openid-client or socks is loaded unless a kubeconfig asks for it", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  const { port } = new URL(server.url);
  await using front = await TlsFront.start(Number(port), API_PAIR);
  await using plain = new ConnectProxy(new Map([["api.test:6443", front.port]]));
  await using socks = new SocksProxy(
    new Map([["api.test:6443", front.port], [`127.0.0.1:${port}`, Number(port)]]),
  );
  await using issuer = new FakeIssuer();
  const api = { server: "https://api.test:6443", "insecure-skip-tls-verify": true };
  await withFolder(async (folder) => {
    const flags = await trapsIn(folder);
    const cases: readonly (readonly [Fields, Fields, RegExp])[] = [
      [{ server: server.url }, { token: "t" }, WEB],
      [{ ...api, "proxy-url": plain.url }, { username: "u", password: "p" }, WEB],
      // Where kproxy does not make the TLS connection itself, the runtime speaks SOCKS.
      [{ server: server.url, "proxy-url": socks.url }, {}, WEB],
      [{ ...api, "proxy-url": socks.url }, {}, /the trap was loaded/],
      [{ server: server.url }, oidcUser(issuer), /the trap was loaded/],
    ];
    for (const [cluster, user, pattern] of cases) {
      await using child = startKubeChild({ kubeconfig: await kubeconfigIn(folder, cluster, user), flags });
      await child.until(pattern);
    }
  });
});

Deno.test("under kproxy's permissions: OpenID Connect and a SOCKS proxy; what is not granted is named with its flag", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  await using front = await TlsFront.start(Number(new URL(server.url).port), API_PAIR);
  await using socks = new SocksProxy(new Map([["api.test:6443", front.port]]));
  await using issuer = new FakeIssuer();
  issuer.manners = "keeps";
  await withFolder(async (folder) => {
    const cluster = {
      server: "https://api.test:6443",
      "tls-server-name": "kubernetes.default",
      "certificate-authority-data": btoa(TEST_CA),
      "proxy-url": socks.url,
    };
    const kubeconfig = await kubeconfigIn(folder, cluster, oidcUser(issuer));
    {
      await using child = startKubeChild({ kubeconfig });
      await child.until(WEB);
      assertEquals(child.log().includes(issuer.idToken(0).split(".")[0]!), false);
    }
    const { host } = new URL(issuer.url);
    {
      await using child = startKubeChild({ kubeconfig, flags: [`--deny-net=${host}`] });
      await child.until(
        new RegExp(
          `ConfigError: .*user "u" of ${kubeconfig}: kproxy may not connect to the issuer; it needs --allow-net=${host} `,
        ),
      );
    }
    const proxy = new URL(socks.url).host;
    await using child = startKubeChild({ kubeconfig, flags: [`--deny-net=${proxy}`] });
    await child.until(new RegExp(`Proxy socks5://${proxy}: .*--allow-net`));
  });
});

Deno.test("under kproxy's permissions: a credential plugin at its path is granted beside kproxy's programs, and sees its environment", async () => {
  await using server = new ListWatchServer();
  server.put(rawService("web"));
  server.accepted = new Set(["Bearer from-plugin"]);
  await withFolder(async (folder) => {
    const command = `${folder}/login`;
    const wanted =
      '[ "$OWN" = kept ] && [ "$GIVEN" = this ] && [ -n "$PATH" ] && [ -n "$KUBERNETES_EXEC_INFO" ]';
    const apiVersion = "client.authentication.k8s.io/v1";
    const credential = { kind: "ExecCredential", apiVersion, status: { token: "from-plugin" } };
    await Deno.writeTextFile(command, `#!/bin/sh\n${wanted} && echo '${JSON.stringify(credential)}'\n`);
    await Deno.chmod(command, 0o755);
    const exec = { apiVersion, command: "./login", env: [{ name: "GIVEN", value: "this" }] };
    const kubeconfig = await kubeconfigIn(folder, { server: server.url }, { exec });
    const env = { OWN: "kept" };
    {
      await using refused = startKubeChild({ kubeconfig, env });
      await refused.until(new RegExp(`ConfigError: .*it needs a grant of its own: --allow-run=${command}`));
    }
    await using granted = startKubeChild({ kubeconfig, env, flags: [`--allow-run=${command}`] });
    await granted.until(WEB);
  });
});
