import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { newClusters, newContexts, newUsers } from "@kubernetes/client-node/dist/config_types.js";
import { parse } from "@std/yaml";
import { ConfigError } from "../../errors.ts";
import { loadKubeconfig, parseKubeconfig } from "./kubeconfig.ts";
import { kubeconfigText } from "../../../tests/support/kubeconfig_text.ts";

const YAML = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };
const PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

const read = (text: string, master = "") => parseKubeconfig(text, "/etc/k/config", master);

Deno.test("a kubeconfig as kubeadm mounts it for kube-proxy", YAML, () => {
  const access = read(`
apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: https://172.18.0.2:6443/
  name: default
contexts:
- context: {cluster: default, namespace: default, user: default}
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
`);
  assertEquals(access, {
    server: "https://172.18.0.2:6443",
    insecureSkipTlsVerify: false,
    tlsServerName: "",
    proxyUrl: "",
    bypassProxy: false,
    asksForCompression: false,
    certificateAuthority: { kind: "file", path: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt" },
    clientCertificate: null,
    identity: { kind: "tokenFile", path: "/var/run/secrets/kubernetes.io/serviceaccount/token" },
    impersonation: null,
    origin: "/etc/k/config",
    names: { cluster: "default", user: "default" },
  });
});

Deno.test("who we are to the server", YAML, () => {
  const plugin = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "./bin/login",
    args: ["--now"],
    env: [{ name: "REGION", value: "x" }],
    provideClusterInfo: true,
  };
  const cases: readonly [unknown, unknown][] = [
    [{}, { kind: "anonymous" }],
    [{ token: "abc" }, { kind: "token", token: "abc" }],
    [{ token: "abc", tokenFile: "t" }, { kind: "tokenFile", path: "/etc/k/t" }],
    [{ "token-file": "/t" }, { kind: "tokenFile", path: "/t" }],
    [{ username: "u", password: "p" }, { kind: "basic", username: "u", password: "p" }],
    [{ username: "u" }, { kind: "basic", username: "u", password: "" }],
    [{ exec: plugin }, {
      kind: "plugin",
      plugin: {
        ...plugin,
        command: "/etc/k/bin/login",
        env: { REGION: "x" },
        clusterConfig: null,
        installHint: "",
      },
    }],
    [{ exec: { apiVersion: "client.authentication.k8s.io/v1beta1", command: "aws" } }, {
      kind: "plugin",
      plugin: {
        apiVersion: "client.authentication.k8s.io/v1beta1",
        command: "aws",
        args: [],
        env: {},
        provideClusterInfo: false,
        clusterConfig: null,
        installHint: "",
      },
    }],
  ];
  for (const [user, identity] of cases) {
    assertEquals(read(kubeconfigText({ user })).identity, identity as never);
  }
});

Deno.test("certificates come as text or as files beside the kubeconfig, text counting first", YAML, () => {
  const cluster = {
    server: "https://h",
    "certificate-authority": "ignored",
    "certificate-authority-data": btoa(PEM),
    "tls-server-name": "kubernetes",
    "proxy-url": "http://proxy:3128",
  };
  const user = { "client-certificate": "pki/c.crt", "client-key-data": btoa("KEY") };
  const access = read(kubeconfigText({ cluster, user }));
  assertEquals(access.certificateAuthority, { kind: "text", pem: PEM });
  assertEquals(access.clientCertificate, {
    certificate: { kind: "file", path: "/etc/k/pki/c.crt" },
    key: { kind: "text", pem: "KEY" },
  });
  assertEquals([access.tlsServerName, access.proxyUrl], ["kubernetes", "http://proxy:3128"]);
});

Deno.test("servers", YAML, () => {
  const cases: readonly [string, Record<string, unknown>, string, string][] = [
    ["a URL", { server: "https://h:6443" }, "", "https://h:6443"],
    ["with a path", { server: "https://h/k8s/clusters/c-1/" }, "", "https://h/k8s/clusters/c-1"],
    ["IPv6", { server: "https://[fd00::1]:6443" }, "", "https://[fd00::1]:6443"],
    ["without a scheme", { server: "h:8080" }, "", "http://h:8080"],
    [
      "without a scheme, but with TLS",
      { server: "h:6443", "insecure-skip-tls-verify": true },
      "",
      "https://h:6443",
    ],
    ["replaced by the master", { server: "https://h:6443" }, "https://m:7443", "https://m:7443"],
    [
      "replaced by a bare master",
      { server: "https://h", "certificate-authority": "ca" },
      "m:7443",
      "https://m:7443",
    ],
  ];
  for (const [name, cluster, master, server] of cases) {
    assertEquals(read(kubeconfigText({ cluster }), master).server, server, name);
  }
});

Deno.test("the current context chooses among several, and a context may have no user", YAML, () => {
  const access = read(kubeconfigText({
    "current-context": "two",
    clusters: [{ name: "a", cluster: { server: "https://a" } }, {
      name: "b",
      cluster: { server: "https://b" },
    }],
    contexts: [{ name: "one", context: { cluster: "a" } }, { name: "two", context: { cluster: "b" } }],
    users: null,
  }));
  assertEquals([access.server, access.identity], ["https://b", { kind: "anonymous" }]);
});

Deno.test("a structure beyond all bounds, or a file too long, is refused", async () => {
  const error = assertThrows(() => read(`clusters:\n  ${"- ".repeat(1_000_000)}`), ConfigError);
  assertEquals(error.message, "/etc/k/config:2: nested more than 200 levels deep");
  const path = await Deno.makeTempFile({ prefix: "kproxy-kubeconfig-" });
  try {
    await Deno.truncate(path, 2 ** 33);
    await assertRejects(
      () => loadKubeconfig(path),
      ConfigError,
      "cannot be read: it has more than 4194304 bytes",
    );
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("what a plugin is for people and clusters", YAML, () => {
  const plugin = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "login",
    interactiveMode: "Never",
  };
  const cluster = {
    server: "https://h",
    extensions: [
      { name: "other", extension: { audience: "wrong" } },
      { name: "client.authentication.k8s.io/exec", extension: { audience: "first" } },
      { name: "client.authentication.k8s.io/exec", extension: { audience: "prod", nested: [{ x: 1 }] } },
    ],
  };
  const user = { exec: { ...plugin, installHint: " Get it\n  from https://example.org/login \n" } };
  const { identity } = read(kubeconfigText({ cluster, user }));
  assert(identity.kind === "plugin");
  assertEquals(identity.plugin.clusterConfig, { audience: "prod", nested: [{ x: 1 }] });
  assertEquals(identity.plugin.installHint, "Get it from https://example.org/login");
});

Deno.test("whom a user is to be", YAML, () => {
  const user = {
    token: "t",
    as: "system:kube-proxy",
    "as-uid": "u-1",
    "as-groups": ["system:nodes", "a, b"],
    "as-user-extra": { scopes: ["view", "list"], "example.org/team": ["net"], none: null },
  };
  assertEquals(read(kubeconfigText({ user })).impersonation, {
    user: "system:kube-proxy",
    uid: "u-1",
    groups: ["system:nodes", "a, b"],
    extra: { scopes: ["view", "list"], "example.org/team": ["net"] },
  });
  assertEquals(read(kubeconfigText({ user: { token: "t", as: "", "as-groups": [] } })).impersonation, null);
});

Deno.test("a kubeconfig that is not there is said to be so", async () => {
  try {
    await loadKubeconfig("/nowhere/config");
    throw new Error("loaded");
  } catch (error) {
    assertEquals(
      error instanceof ConfigError && error.message.startsWith("/nowhere/config: cannot be read: "),
      true,
    );
  }
});

Deno.test("fields that client-node knows are read as it reads them", YAML, () => {
  const text = kubeconfigText({
    cluster: {
      server: "https://h:6443/",
      "certificate-authority-data": btoa(PEM),
      "tls-server-name": "n",
      "proxy-url": "http://p:1",
    },
    user: { token: "abc", "client-certificate": "/c", "client-key": "/k" },
  });
  const raw = parse(text) as Record<string, unknown>;
  const [cluster] = newClusters(raw.clusters);
  const [user] = newUsers(raw.users);
  const [context] = newContexts(raw.contexts);
  const access = read(text);
  assertEquals([context?.cluster, context?.user], ["c", "u"]);
  assertEquals(
    [access.server, access.tlsServerName, access.proxyUrl, access.insecureSkipTlsVerify],
    [cluster?.server, cluster?.tlsServerName, cluster?.proxyUrl, cluster?.skipTLSVerify] as never,
  );
  assertEquals(access.certificateAuthority, { kind: "text", pem: atob(cluster?.caData ?? "") });
  assertEquals(access.clientCertificate, {
    certificate: { kind: "file", path: user?.certFile ?? "" },
    key: { kind: "file", path: user?.keyFile ?? "" },
  });
  assertEquals(access.identity, { kind: "token", token: user?.token ?? "" });
});

Deno.test("packed answers are wanted only where disable-compression says so", YAML, () => {
  const asked = (cluster: Record<string, unknown>): boolean =>
    read(kubeconfigText({ cluster: { server: "https://10.0.0.1:6443", ...cluster } })).asksForCompression;
  assertEquals(asked({}), false);
  assertEquals(asked({ "disable-compression": true }), false);
  assertEquals(asked({ "disable-compression": false }), true);
  assertThrows(() => asked({ "disable-compression": "no" }), ConfigError, "disable-compression");
});
