/**
 * Kubeconfigs of tests: JSON, which is YAML, too.
 *
 * @module
 */

/** What they are made of; what is not given is as in a kubeconfig of one's own. */
export interface KubeconfigParts {
  /** The one cluster, `c`. @default {https://10.0.0.1:6443} */
  readonly cluster?: unknown;
  /** The one user, `u`. @default {with a token} */
  readonly user?: unknown;
  /** In place of whole fields of the file. */
  readonly [field: string]: unknown;
}

/** A kubeconfig of one cluster, context and user. */
export function kubeconfigText(
  { cluster = { server: "https://10.0.0.1:6443" }, user = { token: "t0ken" }, ...rest }: KubeconfigParts = {},
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
