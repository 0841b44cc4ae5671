/**
 * Kubeconfigs for tests, in JSON, which is YAML, too.
 *
 * @module
 */

/** Parts of a kubeconfig; others have defaults. */
export interface KubeconfigParts {
  /** Its only cluster, `c`. @default {https://10.0.0.1:6443} */
  readonly cluster?: unknown;
  /** Its only user, `u`. @default {with a token} */
  readonly user?: unknown;
  /** Further fields of the file, which replace the defaults. */
  readonly [field: string]: unknown;
}

/** A kubeconfig with one cluster, context and user. */
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
