/**
 * How to reach the API server: from a kubeconfig, from inside a pod, or from `--master` alone.
 *
 * Stands on client-node's parsing of clusters, contexts and users; adds what that leaves out: kubeadm's `tokenFile`, paths
 * relative to the kubeconfig, and errors that name file and field.
 *
 * @module
 */
import {
  type Cluster,
  newClusters,
  newContexts,
  newUsers,
  type User,
} from "@kubernetes/client-node/dist/config_types.js";
import { dirname, isAbsolute, join } from "node:path";
import { parse } from "yaml";
import { ConfigError } from "../errors.ts";

/** PEM text, or a file that holds it and may be replaced while we run. */
export type Pem = { readonly kind: "text"; readonly pem: string } | {
  readonly kind: "file";
  readonly path: string;
};

/** Who we are to the API server. */
export type Identity =
  | { readonly kind: "anonymous" }
  | { readonly kind: "token"; readonly token: string }
  /** The file is read again at least every minute. */
  | { readonly kind: "tokenFile"; readonly path: string }
  | { readonly kind: "basic"; readonly username: string; readonly password: string }
  | { readonly kind: "exec"; readonly user: User };

/** One API server and how to talk to it. */
export interface ClusterAccess {
  /** `https://host:port`, without a slash at the end. */
  readonly server: string;
  readonly insecureSkipTlsVerify: boolean;
  /** Name to verify the certificate against; `""` for the server's host. */
  readonly tlsServerName: string;
  /** `""`: the environment decides. */
  readonly proxyUrl: string;
  readonly certificateAuthority: Pem | null;
  readonly clientCertificate: { readonly certificate: Pem; readonly key: Pem } | null;
  readonly identity: Identity;
  /** File or place this came from, for messages. */
  readonly origin: string;
}

/** What in-cluster access reads. */
export interface InClusterEnvironment {
  readonly host: string | undefined;
  readonly port: string | undefined;
}

const SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * Loads the access of the current context. `master`, unless empty, replaces the server.
 *
 * @throws {ConfigError} if the file cannot be read or a field is missing or wrong
 */
export async function loadKubeconfig(path: string, master = ""): Promise<ClusterAccess> {
  let text: string;
  try {
    text = await Deno.readTextFile(path);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new ConfigError([{ path: "", message: `cannot be read: ${reason}` }], path, { cause });
  }
  return parseKubeconfig(text, path, master);
}

/**
 * Reads a kubeconfig's text; `path` is its file, for relative paths and messages.
 *
 * @throws {ConfigError} if it does not parse or a field is missing or wrong
 */
export function parseKubeconfig(text: string, path: string, master = ""): ClusterAccess {
  const fail = (field: string, message: string, cause?: unknown): never => {
    throw new ConfigError([{ path: field, message }], path, cause === undefined ? {} : { cause });
  };
  const raw = parseMapping(text, fail);
  const entries = readEntries(raw, fail);

  const contextName = raw["current-context"];
  if (typeof contextName !== "string" || contextName === "") {
    return fail("current-context", "is required: it names the context to use");
  }
  const context = entries.contexts.find((entry) => entry.name === contextName);
  if (context === undefined) {
    return fail("current-context", `names "${contextName}", which is not among contexts`);
  }
  const cluster = entries.clusters.find((entry) => entry.name === context.cluster);
  if (cluster === undefined) {
    return fail(
      `contexts[${contextName}].context.cluster`,
      `names "${context.cluster}", which is not among clusters`,
    );
  }
  const user = entries.users.find((entry) => entry.name === context.user);
  if (user === undefined && context.user !== undefined && context.user !== "") {
    return fail(`contexts[${contextName}].context.user`, `names "${context.user}", which is not among users`);
  }
  return accessOf(cluster, user, rawUser(raw, context.user), { path, master, fail });
}

/**
 * The access a pod is given: server from the environment, token and certificate authority from the service account's folder.
 *
 * @throws {ConfigError} outside of a pod
 */
export function inClusterAccess(environment: InClusterEnvironment, master = ""): ClusterAccess {
  const { host, port } = environment;
  if (master === "" && (!host || !port)) {
    throw new ConfigError([{
      path: "clientConnection.kubeconfig",
      message:
        "is empty, so in-cluster access is used, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not " +
        "set; outside of a pod give a kubeconfig, --master or --manifests",
    }]);
  }
  const literal = host?.includes(":") ? `[${host}]` : host;
  return {
    server: master === "" ? `https://${literal}:${port}` : serverUrl(master),
    insecureSkipTlsVerify: false,
    tlsServerName: "",
    proxyUrl: "",
    certificateAuthority: { kind: "file", path: `${SERVICE_ACCOUNT_DIR}/ca.crt` },
    clientCertificate: null,
    identity: { kind: "tokenFile", path: `${SERVICE_ACCOUNT_DIR}/token` },
    origin: "in-cluster service account",
  };
}

/**
 * Anonymous access to a server given by URL alone.
 *
 * @throws {ConfigError} if it is not an http or https URL
 */
export function masterAccess(master: string): ClusterAccess {
  return {
    server: serverUrl(master),
    insecureSkipTlsVerify: false,
    tlsServerName: "",
    proxyUrl: "",
    certificateAuthority: null,
    clientCertificate: null,
    identity: { kind: "anonymous" },
    origin: "--master",
  };
}

type Fail = (field: string, message: string, cause?: unknown) => never;

function parseMapping(text: string, fail: Fail): Record<string, unknown> {
  let raw: unknown;
  try {
    raw = parse(text);
  } catch (cause) {
    return fail("", cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) {
    return fail("", "must be a mapping with clusters, contexts, users and current-context");
  }
  return raw as Record<string, unknown>;
}

function readEntries(raw: Record<string, unknown>, fail: Fail) {
  try {
    return {
      clusters: newClusters(raw["clusters"]),
      contexts: newContexts(raw["contexts"]),
      // Without the file's token: client-node would read it once, we read it again and again.
      users: newUsers(withoutTokenFiles(raw["users"])),
    };
  } catch (cause) {
    const [field = "", ...rest] = (cause instanceof Error ? cause.message : String(cause)).split(" ");
    return fail(field, rest.join(" "), cause);
  }
}

function withoutTokenFiles(users: unknown): unknown {
  if (!Array.isArray(users)) return users;
  return users.map((entry) => {
    const user = entry?.user;
    if (typeof user !== "object" || user === null) return entry;
    const { ["token-file"]: _tokenFile, ...rest } = user;
    return { ...entry, user: rest };
  });
}

function rawUser(raw: Record<string, unknown>, name: string | undefined): Record<string, unknown> {
  const users = Array.isArray(raw["users"]) ? raw["users"] : [];
  return users.find((entry) => entry?.name === name)?.user ?? {};
}

interface AccessContext {
  readonly path: string;
  readonly master: string;
  readonly fail: Fail;
}

function accessOf(
  cluster: Cluster,
  user: User | undefined,
  raw: Record<string, unknown>,
  { path, master, fail }: AccessContext,
): ClusterAccess {
  const clusterField = `clusters[${cluster.name}].cluster`;
  const userField = `users[${user?.name ?? ""}].user`;
  const pemOf = (field: string, inline: string | undefined, file: string | undefined): Pem | null => {
    if (inline) {
      return {
        kind: "text",
        pem: decodeBase64(inline, (message) => fail(`${field}-data`, message)),
      };
    }
    return file ? { kind: "file", path: resolve(path, file) } : null;
  };
  const certificate = pemOf(`${userField}.client-certificate`, user?.certData, user?.certFile);
  const key = pemOf(`${userField}.client-key`, user?.keyData, user?.keyFile);
  if (certificate !== null && key === null) {
    fail(`${userField}.client-key`, "is required beside client-certificate");
  }
  if (key !== null && certificate === null) {
    fail(`${userField}.client-certificate`, "is required beside client-key");
  }

  const server = master === "" ? cluster.server : master;
  if (!/^https?:\/\//.test(server)) {
    fail(
      master === "" ? `${clusterField}.server` : "--master",
      `must be an http or https URL, found "${server}"`,
    );
  }
  return {
    server: server.replace(/\/+$/, ""),
    insecureSkipTlsVerify: cluster.skipTLSVerify === true,
    tlsServerName: cluster.tlsServerName ?? "",
    proxyUrl: cluster.proxyUrl ?? "",
    certificateAuthority: pemOf(`${clusterField}.certificate-authority`, cluster.caData, cluster.caFile),
    clientCertificate: certificate === null || key === null ? null : { certificate, key },
    identity: identityOf(user, raw, path),
    origin: path,
  };
}

function identityOf(user: User | undefined, raw: Record<string, unknown>, path: string): Identity {
  // kubeadm writes tokenFile; the order of precedence is client-go's: a file before a literal token.
  const tokenFile = raw["tokenFile"] ?? raw["token-file"];
  if (typeof tokenFile === "string" && tokenFile !== "") {
    return { kind: "tokenFile", path: resolve(path, tokenFile) };
  }
  if (user?.token) return { kind: "token", token: user.token };
  if (user?.username) return { kind: "basic", username: user.username, password: user.password ?? "" };
  if (user?.exec) return { kind: "exec", user };
  return { kind: "anonymous" };
}

function resolve(kubeconfig: string, file: string): string {
  return isAbsolute(file) ? file : join(dirname(kubeconfig), file);
}

function decodeBase64(text: string, fail: (message: string) => never): string {
  try {
    return atob(text.replace(/\s+/g, ""));
  } catch {
    return fail("must be base64");
  }
}

function serverUrl(master: string): string {
  if (!/^https?:\/\//.test(master)) {
    throw new ConfigError([{ path: "--master", message: `must be an http or https URL, found "${master}"` }]);
  }
  return master.replace(/\/+$/, "");
}
