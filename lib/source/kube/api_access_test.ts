import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { kubeconfigText } from "../../../tests/support/kubeconfig_text.ts";
import { ConfigError } from "../../errors.ts";
import { apiAccess, inClusterAccess, masterAccess, proxyFromEnvironment } from "./api_access.ts";

const env = (values: Readonly<Record<string, string>> = {}) => ({ get: (name: string) => values[name] });

Deno.test("neither kubeconfig nor master: the pod's service account", async () => {
  const pod = { KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "443" };
  const access = await apiAccess({ kubeconfig: "", master: "", env: env(pod) });
  const folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  assertEquals(access, {
    server: "https://10.96.0.1",
    insecureSkipTlsVerify: false,
    tlsServerName: "",
    proxyUrl: "",
    bypassProxy: false,
    asksForCompression: false,
    certificateAuthority: { kind: "file", path: `${folder}/ca.crt` },
    clientCertificate: null,
    identity: { kind: "tokenFile", path: `${folder}/token` },
    impersonation: null,
    origin: "in-cluster service account",
    names: null,
  });
  const six = inClusterAccess(env({ KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "6443" }));
  assertEquals(six.server, "https://[fd00::1]:6443");
  for (const broken of [{}, { KUBERNETES_SERVICE_HOST: "h" }, { KUBERNETES_SERVICE_PORT: "1" }]) {
    assertThrows(() => inClusterAccess(env(broken)), ConfigError, "clientConnection.kubeconfig: is empty");
  }
});

Deno.test("a master alone: anonymous; a master beside a kubeconfig: its server replaced", async () => {
  const alone = await apiAccess({ kubeconfig: "", master: "10.0.0.1:8080", env: env() });
  assertEquals([alone.server, alone.identity.kind], ["http://10.0.0.1:8080", "anonymous"]);
  assertThrows(() => masterAccess("unix:///x"), ConfigError, "--master: must be an http or https URL");
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(path, kubeconfigText());
    const both = await apiAccess({ kubeconfig: path, master: "https://10.0.0.2", env: env() });
    assertEquals([both.server, both.identity.kind, both.origin], ["https://10.0.0.2", "token", path]);
  } finally {
    await Deno.remove(path);
  }
});

const NO_PROXY = { HTTPS_PROXY: "" };

Deno.test("the environment's proxy, by Go's rules", { permissions: "none" }, () => {
  const server = "https://api.example.com:6443";
  const proxy = { HTTPS_PROXY: "http://p:3128" };
  const cases: readonly [string, Readonly<Record<string, string>>, string][] = [
    [server, NO_PROXY, ""],
    [server, proxy, "http://p:3128"],
    [server, { https_proxy: "http://p:3128" }, "http://p:3128"],
    [server, { HTTPS_PROXY: "p:3128" }, "http://p:3128"],
    [server, { HTTPS_PROXY: "socks5://p:1080" }, "socks5://p:1080"],
    ["http://h:8080", NO_PROXY, ""],
    ["http://h:8080", { HTTP_PROXY: "http://p:3128" }, "http://p:3128"],
    ["https://127.0.0.1:6443", proxy, ""],
    ["https://127.9.9.9:6443", proxy, ""],
    ["https://[::1]:6443", proxy, ""],
    ["https://localhost:6443", proxy, ""],
    [server, { ...proxy, NO_PROXY: "*" }, ""],
    [server, { ...proxy, NO_PROXY: "example.com" }, ""],
    [server, { ...proxy, no_proxy: "x, .example.com" }, ""],
    [server, { ...proxy, NO_PROXY: "*.example.com" }, ""],
    [server, { ...proxy, NO_PROXY: "API.example.com:6443" }, ""],
    [server, { ...proxy, NO_PROXY: "api.example.com:443" }, "http://p:3128"],
    [server, { ...proxy, NO_PROXY: "ample.com,.api.example.com,," }, "http://p:3128"],
    ["https://example.com", { ...proxy, NO_PROXY: ".example.com" }, "http://p:3128"],
    ["https://10.0.0.1:6443", { ...proxy, NO_PROXY: "10.0.0.0/8" }, ""],
    ["https://10.0.0.1:6443", { ...proxy, NO_PROXY: "10.0.0.1" }, ""],
    ["https://10.0.0.1", { ...proxy, NO_PROXY: "10.0.0.1:443" }, ""],
    [
      "https://10.0.0.1:6443",
      { ...proxy, NO_PROXY: "11.0.0.0/8,10.0.0.2,10.0.0.1:80,0.0.1" },
      "http://p:3128",
    ],
    ["https://[fd00::1]:6443", { ...proxy, NO_PROXY: "fd00::/8" }, ""],
    ["https://[fd00::1]:6443", { ...proxy, NO_PROXY: "fd00:0::1" }, ""],
    ["https://[fd00::1]:6443", { ...proxy, NO_PROXY: "[fd00::1]:6443" }, ""],
    ["https://[fd00::1]:6443", { ...proxy, NO_PROXY: "[fd00::1]:1,fd00::2,10.0.0.0/8" }, "http://p:3128"],
  ];
  for (const [url, values, expected] of cases) {
    const { proxyUrl, bypassProxy } = proxyFromEnvironment(url, env(values));
    const name = `${url} ${JSON.stringify(values)}`;
    assertEquals(proxyUrl, expected, name);
    assertEquals(bypassProxy, expected === "" && values !== NO_PROXY, name);
  }
});

Deno.test("a proxy in the environment that is none is refused without showing it", async () => {
  const values = env({ HTTPS_PROXY: "ftp://user:secret@p" });
  const error = await assertRejects(
    () => apiAccess({ kubeconfig: "", master: "https://h", env: values }),
    ConfigError,
    "HTTPS_PROXY: must be an http, https or socks5 URL",
  );
  assertEquals(error.message.includes("secret"), false);
});
