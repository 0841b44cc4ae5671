/** Faults of a kubeconfig, and their messages. */
import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { kubeconfigText } from "../../../tests/support/kubeconfig_text.ts";
import { ConfigError } from "../../errors.ts";
import { parseKubeconfig } from "./kubeconfig.ts";

const EXEC = { apiVersion: "client.authentication.k8s.io/v1", command: "x" };

const FAULTS: readonly (readonly [text: string, message: string])[] = [
  ["{", "Flow map"],
  ["", "must be an object, found nothing"],
  ["[]", "must be an object, found []"],
  ["eyJzZWNyZXQ.secret", "must be a kubeconfig, found other text"],
  [kubeconfigText({ "current-context": "" }), "current-context: is required"],
  [kubeconfigText({ "current-context": 7 }), "current-context: must be a string, found 7"],
  [kubeconfigText({ "current-context": "x" }), 'current-context: names "x", which is not among contexts'],
  [kubeconfigText({ contexts: {} }), "contexts: must be a list, found {}"],
  [kubeconfigText({ contexts: [{ name: "default" }] }), "contexts[default].context.cluster: is required"],
  [
    kubeconfigText({ contexts: [{ name: "default", context: { cluster: "z" } }] }),
    'contexts[default].context.cluster: names "z", which is not among clusters',
  ],
  [
    kubeconfigText({ contexts: [{ name: "default", context: { cluster: "c", user: "z" } }] }),
    'contexts[default].context.user: names "z", which is not among users',
  ],
  [kubeconfigText({ clusters: [5] }), "clusters[0]: must be an object, found 5"],
  [kubeconfigText({ cluster: {} }), "clusters[c].cluster.server: is required"],
  [kubeconfigText({ cluster: { server: 5 } }), "clusters[c].cluster.server: must be a string, found 5"],
  [
    kubeconfigText({ cluster: { server: "ftp://h" } }),
    "clusters[c].cluster.server: must be an http or https URL",
  ],
  [
    kubeconfigText({ cluster: { server: "https://u:secret@h" } }),
    "clusters[c].cluster.server: must not carry",
  ],
  [
    kubeconfigText({ cluster: { server: "https://h", "insecure-skip-tls-verify": "yes" } }),
    'clusters[c].cluster.insecure-skip-tls-verify: must be true or false, found "yes"',
  ],
  [
    kubeconfigText({
      cluster: { server: "https://h", "insecure-skip-tls-verify": true, "certificate-authority": "x" },
    }),
    "clusters[c].cluster.insecure-skip-tls-verify: cannot be combined with certificate-authority",
  ],
  [
    kubeconfigText({ cluster: { server: "https://h", "certificate-authority-data": "@@" } }),
    "clusters[c].cluster.certificate-authority-data: must be base64",
  ],
  [
    kubeconfigText({ cluster: { server: "https://h", "proxy-url": "x" } }),
    "clusters[c].cluster.proxy-url: must be",
  ],
  [kubeconfigText({ user: { token: 5123 } }), "users[u].user.token: must be a string"],
  [kubeconfigText({ user: { token: "se cret" } }), "users[u].user.token: must be of visible ASCII"],
  [
    kubeconfigText({ user: { username: "u", token: "secret" } }),
    "users[u].user.username: cannot be combined",
  ],
  [kubeconfigText({ user: { "client-certificate": "c" } }), "users[u].user.client-key: is required beside"],
  [kubeconfigText({ user: { "client-key": "k" } }), "users[u].user.client-certificate: is required beside"],
  [kubeconfigText({ user: { "client-key-data": 5 } }), "users[u].user.client-key-data: must be a string"],
  [kubeconfigText({ user: { "as-groups": ["a"] } }), "users[u].user.as: is required beside as-uid"],
  [kubeconfigText({ user: { as: "", "as-uid": "1" } }), "users[u].user.as: is required beside as-uid"],
  [kubeconfigText({ user: { as: 5 } }), "users[u].user.as: must be a string, found 5"],
  [kubeconfigText({ user: { as: "a\nb" } }), "users[u].user.as: must not contain control characters"],
  [
    kubeconfigText({ user: { as: "a", "as-groups": ["b", "c\r\nx: y"] } }),
    "users[u].user.as-groups[1]: must not contain control characters",
  ],
  [
    kubeconfigText({ user: { as: "a", "as-user-extra": { scopes: "view" } } }),
    'users[u].user.as-user-extra.scopes: must be a list, found "view"',
  ],
  [
    kubeconfigText({ user: { as: "a", "as-user-extra": { scopes: ["view", 5] } } }),
    "users[u].user.as-user-extra.scopes[1]: must be a string, found 5",
  ],
  [
    kubeconfigText({ user: { exec: { ...EXEC, interactiveMode: "Always" } } }),
    "users[u].user.exec.interactiveMode: must not be Always",
  ],
  [
    kubeconfigText({ user: { exec: { ...EXEC, interactiveMode: "never" } } }),
    'users[u].user.exec.interactiveMode: must be Never, IfAvailable or Always, found "never" (did you mean Never?)',
  ],
  [
    kubeconfigText({ cluster: { server: "https://h", extensions: [7] }, user: { exec: EXEC } }),
    "clusters[c].cluster.extensions[0]: must be an object, found 7",
  ],
  [
    kubeconfigText({
      user: {
        "auth-provider": {
          name: "oidc",
          config: { "idp-issuer-url": "https://i", "client-id": "c", "refresh-token": "r" },
        },
        exec: EXEC,
      },
    }),
    "users[u].user.auth-provider: cannot be combined with exec",
  ],
  [kubeconfigText({ user: { exec: "x" } }), 'users[u].user.exec: must be an object, found "x"'],
  [kubeconfigText({ user: { exec: { ...EXEC, command: "" } } }), "users[u].user.exec.command: is required"],
  [
    kubeconfigText({ user: { exec: { ...EXEC, apiVersion: "v1" } } }),
    "users[u].user.exec.apiVersion: must be",
  ],
  [
    kubeconfigText({ user: { exec: { ...EXEC, args: [1] } } }),
    "users[u].user.exec.args[0]: must be a string, found 1",
  ],
  [
    kubeconfigText({ user: { exec: { ...EXEC, env: [{ value: "x" }] } } }),
    "users[u].user.exec.env[0].name: is required",
  ],
];

/** Faults of the user's `auth-provider`. */
const PROVIDER_FAULTS: readonly (readonly [provider: unknown, message: string])[] = [
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
];

function assertRefused(text: string, message: string): void {
  const error = assertThrows(() => parseKubeconfig(text, "/etc/k/config", ""), ConfigError, message);
  assertMatch(error.message, /^\/etc\/k\/config:(1:)? /);
  for (const secret of ["secret", "se cret", "5123"]) {
    assertEquals(error.message.includes(secret), false, error.message);
  }
}

Deno.test("what is wrong is named by file and field, without showing secrets", {
  permissions: { env: ["LOG_TOKENS", "LOG_STREAM"] },
}, () => {
  for (const [text, message] of FAULTS) assertRefused(text, message);
  for (const [provider, message] of PROVIDER_FAULTS) {
    assertRefused(
      kubeconfigText({ user: { "auth-provider": provider } }),
      `users[u].user.auth-provider.${message}`,
    );
  }
});
