/**
 * Which API server to talk to, and how: kubeconfig, in-cluster, or `--master` alone.
 *
 * @module
 */
import { ConfigError } from "../../errors.ts";
import { type Logger, silentLogger } from "../../observe/log.ts";
import type { Source } from "../source.ts";
import { DecodeError } from "../decode/decode_values.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { cidrContains, parseCidr, parseIp } from "../../model/ip.ts";

/** Options of {@linkcode apiAccess}, from the configuration. */
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

/** Variables of the environment, such as `Deno.env`. */
export interface Environment {
  /** The value of a variable; undefined if it is not set. */
  get(name: string): string | undefined;
}

/**
 * The proxy to use for `server`. Addresses of the machine itself never go through one.
 *
 * @throws {TypeError} if the variable does not hold a proxy's URL
 */
export function proxyFromEnvironment(
  server: string,
  env: Environment,
): Pick<ClusterAccess, "proxyUrl" | "bypassProxy"> {
  const url = new URL(server);
  const name = url.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const value = (env.get(name) || env.get(name.toLowerCase()) || "").trim();
  if (value === "") return { proxyUrl: "", bypassProxy: false };
  const host = url.hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "").toLowerCase();
  const port = url.port || (url.protocol === "https:" ? "443" : "80");
  const exceptions = env.get("NO_PROXY") || env.get("no_proxy") || "";
  if (isLocal(host) || isExcepted(host, port, exceptions)) return { proxyUrl: "", bypassProxy: true };
  const proxyUrl = /^[a-z][a-z0-9+.-]*:\/\//i.test(value) ? value : `http://${value}`;
  if (!["http:", "https:", "socks5:"].includes(URL.parse(proxyUrl)?.protocol ?? "")) {
    // The value may hold a password, so it is not shown.
    throw new TypeError(`${name}: must be an http, https or socks5 URL`);
  }
  return { proxyUrl, bypassProxy: false };
}

function isLocal(host: string): boolean {
  const ip = parseIp(host);
  return host === "localhost" || ip?.text === "::1" || (ip?.family === "IPv4" && ip.bytes[0] === 127);
}

function isExcepted(host: string, port: string, exceptions: string): boolean {
  return exceptions.split(",").map((entry) => entry.trim().toLowerCase()).some((entry) =>
    entry === "*" || (entry !== "" && matches(entry, host, port))
  );
}

function matches(entry: string, host: string, port: string): boolean {
  const ip = parseIp(host);
  if (entry.includes("/")) {
    const cidr = parseCidr(entry);
    return cidr !== null && ip !== null && cidr.family === ip.family && cidrContains(cidr, ip);
  }
  // An IPv6 address without brackets has two colons at least, so it does not look like a name with a port.
  const withPort = /^(\[.*\]|[^:]*):(\d+)$/.exec(entry);
  if (withPort !== null && withPort[2] !== port) return false;
  const name = (withPort?.[1] ?? entry).replace(/^\[|\]$/g, "");
  const entryIp = parseIp(name);
  if (entryIp !== null || ip !== null) return entryIp !== null && entryIp.text === ip?.text;
  const domain = name.replace(/^\*(?=\.)/, "").replace(/\.$/, "");
  return domain.startsWith(".") ? host.endsWith(domain) : host === domain || host.endsWith(`.${domain}`);
}

/**
 * The URL of a server given as `host:port` or URL, without a slash at the end.
 *
 * @throws {DecodeError} with `field` if it is not an http or https URL, or carries a password
 */
export function serverUrl(text: string, field: string, scheme: "http" | "https" = "http"): string {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${scheme}://${text}`);
  if (url === null || !/^https?:$/.test(url.protocol) || url.search !== "" || url.hash !== "") {
    throw new DecodeError(field, `must be an http or https URL, found ${JSON.stringify(text)}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new DecodeError(field, "must not carry a user name or password");
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** Options of {@linkcode openCluster}. */
export interface ClusterOptions {
  /** The only Node that is read: whose zone, pod networks and addresses count. */
  readonly nodeName: string;
  /** A kubeconfig; `""`: the server alone or, without one, the service account of the pod. @default {""} */
  readonly kubeconfig?: string;
  /** The server's URL, instead of the kubeconfig's. @default {""} */
  readonly server?: string;
  /** Requests per second; 0: no limit. First lists do not wait. @default {5} */
  readonly qps?: number;
  /** Requests that may come at once. @default {10} */
  readonly burst?: number;
  /** The name that kproxy gives itself in requests. @default {"kproxy"} */
  readonly userAgent?: string;
  /** Logs lost connections and retries. @default {not reported} */
  readonly log?: Logger;
}

/**
 * Services, EndpointSlices, one Node and (if asked for) ServiceCIDRs of an API server, listed and watched: over losses of the
 * connection of any length, and by kube-proxy's selectors.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without one and without a server, the environment is not a pod's
 */
export async function openCluster(options: ClusterOptions): Promise<Source> {
  const { kubeconfig = "", server = "" } = options;
  // Programs that only need rules or packets do not load the API client's modules.
  const { KubeSource } = await import("./kube_source.ts");
  return new KubeSource({
    access: await apiAccess({ kubeconfig, master: server, env: Deno.env }),
    nodeName: options.nodeName,
    qps: options.qps ?? 5,
    burst: options.burst ?? 10,
    userAgent: options.userAgent ?? "kproxy",
    log: options.log ?? silentLogger,
  });
}
