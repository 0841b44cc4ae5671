import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import { newClusters, newContexts, newUsers } from "@kubernetes/client-node/dist/config_types.js";
import { parse } from "@std/yaml";
import { ConfigError } from "../../errors.ts";
import { loadKubeconfig, parseKubeconfig } from "./kubeconfig.ts";

const YAML = { permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] } };
const PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

/** A kubeconfig of one cluster, context and user, with these fields in place of the usual ones. */
function kubeconfig(
  { cluster = { server: "https://10.0.0.1:6443" }, user = { token: "t0ken" }, ...rest }: {
    cluster?: unknown;
    user?: unknown;
    [key: string]: unknown;
  } = {},
): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "default",
    clusters: [{ name: "c", cluster }],
    contexts: [{ name: "default", context: { cluster: "c", user: "u", namespace: "x" } }],
    users: [{ name: "u", user }],
    ...rest,
  });
}

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
  for (const [user, identity] of cases) assertEquals(read(kubeconfig({ user })).identity, identity as never);
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
  const access = read(kubeconfig({ cluster, user }));
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
    assertEquals(read(kubeconfig({ cluster }), master).server, server, name);
  }
});

Deno.test("the current context chooses among several, and a context may have no user", YAML, () => {
  const access = read(kubeconfig({
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

Deno.test("what is wrong is named by file and field, without showing secrets", YAML, () => {
  const exec = { apiVersion: "client.authentication.k8s.io/v1", command: "x" };
  const cases: readonly [string, string][] = [
    ["{", "Flow map"],
    ["", "must be an object, found nothing"],
    ["[]", "must be an object, found []"],
    ["eyJzZWNyZXQ.secret", "must be a kubeconfig, found other text"],
    [kubeconfig({ "current-context": "" }), "current-context: is required"],
    [kubeconfig({ "current-context": 7 }), "current-context: must be a string, found 7"],
    [kubeconfig({ "current-context": "x" }), 'current-context: names "x", which is not among contexts'],
    [kubeconfig({ contexts: {} }), "contexts: must be a list, found {}"],
    [kubeconfig({ contexts: [{ name: "default" }] }), "contexts[default].context.cluster: is required"],
    [
      kubeconfig({ contexts: [{ name: "default", context: { cluster: "z" } }] }),
      'contexts[default].context.cluster: names "z", which is not among clusters',
    ],
    [
      kubeconfig({ contexts: [{ name: "default", context: { cluster: "c", user: "z" } }] }),
      'contexts[default].context.user: names "z", which is not among users',
    ],
    [kubeconfig({ clusters: [5] }), "clusters[0]: must be an object, found 5"],
    [kubeconfig({ cluster: {} }), "clusters[c].cluster.server: is required"],
    [kubeconfig({ cluster: { server: 5 } }), "clusters[c].cluster.server: must be a string, found 5"],
    [
      kubeconfig({ cluster: { server: "ftp://h" } }),
      "clusters[c].cluster.server: must be an http or https URL",
    ],
    [kubeconfig({ cluster: { server: "https://u:secret@h" } }), "clusters[c].cluster.server: must not carry"],
    [
      kubeconfig({ cluster: { server: "https://h", "insecure-skip-tls-verify": "yes" } }),
      'clusters[c].cluster.insecure-skip-tls-verify: must be true or false, found "yes"',
    ],
    [
      kubeconfig({
        cluster: { server: "https://h", "insecure-skip-tls-verify": true, "certificate-authority": "x" },
      }),
      "clusters[c].cluster.insecure-skip-tls-verify: cannot be combined with certificate-authority",
    ],
    [
      kubeconfig({ cluster: { server: "https://h", "certificate-authority-data": "@@" } }),
      "clusters[c].cluster.certificate-authority-data: must be base64",
    ],
    [
      kubeconfig({ cluster: { server: "https://h", "proxy-url": "x" } }),
      "clusters[c].cluster.proxy-url: must be",
    ],
    [kubeconfig({ user: { token: 5123 } }), "users[u].user.token: must be a string"],
    [kubeconfig({ user: { token: "se cret" } }), "users[u].user.token: must be of visible ASCII"],
    [kubeconfig({ user: { username: "u", token: "secret" } }), "users[u].user.username: cannot be combined"],
    [kubeconfig({ user: { "client-certificate": "c" } }), "users[u].user.client-key: is required beside"],
    [kubeconfig({ user: { "client-key": "k" } }), "users[u].user.client-certificate: is required beside"],
    [kubeconfig({ user: { "client-key-data": 5 } }), "users[u].user.client-key-data: must be a string"],
    [kubeconfig({ user: { "as-groups": ["a"] } }), "users[u].user.as: is required beside as-uid"],
    [kubeconfig({ user: { as: "", "as-uid": "1" } }), "users[u].user.as: is required beside as-uid"],
    [kubeconfig({ user: { as: 5 } }), "users[u].user.as: must be a string, found 5"],
    [kubeconfig({ user: { as: "a\nb" } }), "users[u].user.as: must not contain control characters"],
    [
      kubeconfig({ user: { as: "a", "as-groups": ["b", "c\r\nx: y"] } }),
      "users[u].user.as-groups[1]: must not contain control characters",
    ],
    [
      kubeconfig({ user: { as: "a", "as-user-extra": { scopes: "view" } } }),
      'users[u].user.as-user-extra.scopes: must be a list, found "view"',
    ],
    [
      kubeconfig({ user: { as: "a", "as-user-extra": { scopes: ["view", 5] } } }),
      "users[u].user.as-user-extra.scopes[1]: must be a string, found 5",
    ],
    [
      kubeconfig({ user: { exec: { ...exec, interactiveMode: "Always" } } }),
      "users[u].user.exec.interactiveMode: must not be Always",
    ],
    [
      kubeconfig({ user: { exec: { ...exec, interactiveMode: "never" } } }),
      'users[u].user.exec.interactiveMode: must be Never, IfAvailable or Always, found "never" (did you mean Never?)',
    ],
    [
      kubeconfig({ cluster: { server: "https://h", extensions: [7] }, user: { exec } }),
      "clusters[c].cluster.extensions[0]: must be an object, found 7",
    ],
    ...([
      [{ name: "gcp" }, 'name: must be oidc, found "gcp"'],
      [{ name: "oidc" }, "config.idp-issuer-url: is required"],
      [
        { name: "oidc", config: { "idp-issuer-url": "http://i" } },
        "config.idp-issuer-url: must be an https URL",
      ],
      [
        { name: "oidc", config: { "idp-issuer-url": "https://i" } },
        "config.refresh-token: is required where",
      ],
      [
        { name: "oidc", config: { "idp-issuer-url": "https://i", "id-token": "a" } },
        "config.client-id: is required",
      ],
      [
        { name: "oidc", config: { "idp-issuer-url": "https://i", "client-id": "c", "id-token": "s e" } },
        "config.id-token: must be of visible ASCII characters",
      ],
      [
        { name: "oidc", config: { "idp-issuer-url": "https://i", "refresh-token": 5123 } },
        "config.refresh-token: must be a string",
      ],
    ] as const).map(([provider, message]): [string, string] => [
      kubeconfig({ user: { "auth-provider": provider } }),
      `users[u].user.auth-provider.${message}`,
    ]),
    [
      kubeconfig({
        user: {
          "auth-provider": {
            name: "oidc",
            config: { "idp-issuer-url": "https://i", "client-id": "c", "refresh-token": "r" },
          },
          exec,
        },
      }),
      "users[u].user.auth-provider: cannot be combined with exec",
    ],
    [kubeconfig({ user: { exec: "x" } }), 'users[u].user.exec: must be an object, found "x"'],
    [kubeconfig({ user: { exec: { ...exec, command: "" } } }), "users[u].user.exec.command: is required"],
    [kubeconfig({ user: { exec: { ...exec, apiVersion: "v1" } } }), "users[u].user.exec.apiVersion: must be"],
    [
      kubeconfig({ user: { exec: { ...exec, args: [1] } } }),
      "users[u].user.exec.args[0]: must be a string, found 1",
    ],
    [
      kubeconfig({ user: { exec: { ...exec, env: [{ value: "x" }] } } }),
      "users[u].user.exec.env[0].name: is required",
    ],
  ];
  for (const [text, message] of cases) {
    const error = assertThrows(() => read(text), ConfigError, message);
    assertMatch(error.message, /^\/etc\/k\/config:(1:)? /);
    for (const secret of ["secret", "se cret", "5123"]) {
      assertEquals(error.message.includes(secret), false, error.message);
    }
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
  const { identity } = read(kubeconfig({ cluster, user }));
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
  assertEquals(read(kubeconfig({ user })).impersonation, {
    user: "system:kube-proxy",
    uid: "u-1",
    groups: ["system:nodes", "a, b"],
    extra: { scopes: ["view", "list"], "example.org/team": ["net"] },
  });
  assertEquals(read(kubeconfig({ user: { token: "t", as: "", "as-groups": [] } })).impersonation, null);
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
  const text = kubeconfig({
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
    read(kubeconfig({ cluster: { server: "https://10.0.0.1:6443", ...cluster } })).asksForCompression;
  assertEquals(asked({}), false);
  assertEquals(asked({ "disable-compression": true }), false);
  assertEquals(asked({ "disable-compression": false }), true);
  assertThrows(() => asked({ "disable-compression": "no" }), ConfigError, "disable-compression");
});
