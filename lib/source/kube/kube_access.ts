/**
 * Which API server to talk to, and how: kubeconfig, in-cluster, or `--master` alone.
 *
 * @module
 */
import { ConfigError } from "../../errors.ts";
import { DecodeError } from "../decode/decode_values.ts";
import { type Environment, proxyFromEnvironment } from "./kube_proxy_url.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { serverUrl } from "./server_url.ts";

/** What the configuration says about the API server. */
export interface ApiAccessOptions {
  /** `clientConnection.kubeconfig`; `""` for none. */
  readonly kubeconfig: string;
  /** `--master`; `""` for none. */
  readonly master: string;
  readonly env: Environment;
}

const SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * Chooses as kube-proxy does: without kubeconfig and master the service account of the pod, a kubeconfig with its server
 * replaced by the master, or the master alone and no credentials. The environment's proxy counts unless the kubeconfig names one.
 *
 * @throws {ConfigError} if what is chosen is missing or wrong
 */
export async function apiAccess({ kubeconfig, master, env }: ApiAccessOptions): Promise<ClusterAccess> {
  const access = kubeconfig !== ""
    // Only a kubeconfig needs the reader of YAML, which takes longer to load than everything else here.
    ? await (await import("./kubeconfig.ts")).loadKubeconfig(kubeconfig, master)
    : master !== ""
    ? masterAccess(master)
    : inClusterAccess(env);
  if (access.proxyUrl !== "") return access;
  return { ...access, ...asConfigError(() => proxyFromEnvironment(access.server, env)) };
}

/**
 * The access a pod is given: server from the environment, token and certificate authority from the service account's folder.
 *
 * @throws {ConfigError} outside of a pod
 */
export function inClusterAccess(env: Environment, folder: string = SERVICE_ACCOUNT_FOLDER): ClusterAccess {
  const host = env.get("KUBERNETES_SERVICE_HOST") ?? "";
  const port = env.get("KUBERNETES_SERVICE_PORT") ?? "";
  if (host === "" || port === "") {
    throw new ConfigError([{
      path: "clientConnection.kubeconfig",
      message:
        "is empty, so in-cluster access is used, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not " +
        "set; outside of a pod give a kubeconfig, --master or --manifests",
    }]);
  }
  const literal = host.includes(":") ? `[${host}]` : host;
  return {
    ...bareAccess(asConfigError(() => serverUrl(`https://${literal}:${port}`, "KUBERNETES_SERVICE_HOST"))),
    certificateAuthority: { kind: "file", path: `${folder}/ca.crt` },
    identity: { kind: "tokenFile", path: `${folder}/token` },
    origin: "in-cluster service account",
  };
}

/**
 * Anonymous access to a server given by URL alone.
 *
 * @throws {ConfigError} if it is not an http or https URL
 */
export function masterAccess(master: string): ClusterAccess {
  return bareAccess(asConfigError(() => serverUrl(master, "--master")));
}

function bareAccess(server: string): ClusterAccess {
  return {
    server,
    insecureSkipTlsVerify: false,
    tlsServerName: "",
    proxyUrl: "",
    bypassProxy: false,
    asksForCompression: false,
    certificateAuthority: null,
    clientCertificate: null,
    identity: { kind: "anonymous" },
    impersonation: null,
    origin: "--master",
    names: null,
  };
}

function asConfigError<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    if (!(cause instanceof TypeError)) throw cause;
    const { path, reason } = cause instanceof DecodeError ? cause : { path: "", reason: cause.message };
    throw new ConfigError([{ path, message: reason }], undefined, { cause });
  }
}
