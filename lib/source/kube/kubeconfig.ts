/**
 * Reads from a kubeconfig how to reach the API server.
 *
 * Own code instead of client-node's reader: that one reads a token file only once and under another key than kubeadm's, and
 * does not check what it reads. A test holds both equal where both know a field.
 *
 * @module
 */
import { firstLine } from "../../text/lines.ts";
import { toEnd } from "../../text/steps.ts";
import { ConfigError } from "../../errors.ts";
import { readSettings } from "../../config/file/load.ts";
import { readYamlValues } from "../decode/manifest_items.ts";
import { serverUrl } from "./api_access.ts";
import {
  asObject,
  booleanAt,
  choiceAt,
  DecodeError,
  decodeList,
  inside,
  isAbsent,
  objectAt,
  type RawObject,
  textAt,
  textsAt,
} from "../decode/decode_values.ts";
import { dirname, isAbsolute, join } from "node:path";

/** A program that yields credentials (client.authentication.k8s.io). */
export interface CredentialPlugin {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly apiVersion: string;
  readonly provideClusterInfo: boolean;
  /** The cluster's extension for plugins, which the plugin is given with the cluster; null for none. */
  readonly clusterConfig: unknown;
  /** Hint for people if the program is missing; `""` for none. */
  readonly installHint: string;
}

/** Identity that kproxy shows the API server, beside a client certificate. */
export type Identity =
  | { readonly kind: "anonymous" }
  | { readonly kind: "token"; readonly token: string }
  /** The file is read again at least every minute. */
  | { readonly kind: "tokenFile"; readonly path: string }
  | { readonly kind: "basic"; readonly username: string; readonly password: string }
  | { readonly kind: "plugin"; readonly plugin: CredentialPlugin }
  | { readonly kind: "oidc"; readonly provider: OidcProvider };

/** One API server and how to talk to it. */
export interface ClusterAccess {
  /** `https://host:port`, perhaps with a path, without a slash at the end. */
  readonly server: string;
  readonly insecureSkipTlsVerify: boolean;
  /** Name to verify the certificate against; `""` for the server's host. */
  readonly tlsServerName: string;
  /** URL of the proxy on the way; `""` for none. */
  readonly proxyUrl: string;
  /** True if the environment names a proxy that must not be used for this server. */
  readonly bypassProxy: boolean;
  /** True if answers may be packed by gzip: for a server that is far away. */
  readonly asksForCompression: boolean;
  /** Certificate authority; null for those that the runtime knows. */
  readonly certificateAuthority: Pem | null;
  readonly clientCertificate: { readonly certificate: Pem; readonly key: Pem } | null;
  readonly identity: Identity;
  /** User that requests impersonate; null for none. */
  readonly impersonation: Impersonation | null;
  /** File or place this came from, for messages. */
  readonly origin: string;
  /** Names of the cluster and the user in the kubeconfig; null without one. */
  readonly names: { readonly cluster: string; readonly user: string } | null;
}

const PLUGIN_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const INTERACTIVE_MODES = ["Never", "IfAvailable", "Always"] as const;
/** Name of the extension of a cluster that is meant for plugins. */
const PLUGIN_EXTENSION = "client.authentication.k8s.io/exec";
const MAX_HINT = 1000;

/**
 * Loads the access of the current context. `master`, unless empty, replaces the server.
 *
 * @throws {ConfigError} if the file cannot be read or a field is missing or wrong
 */
export async function loadKubeconfig(path: string, master = ""): Promise<ClusterAccess> {
  let text: string;
  try {
    text = new TextDecoder().decode(await readSettings(path));
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
  try {
    const parsed = parseYaml(text, path);
    // The text may be a token from another file, which must not come into the log.
    if (typeof parsed === "string") throw new DecodeError("", "must be a kubeconfig, found other text");
    return readAccess(asObject(parsed), path, master);
  } catch (cause) {
    if (!(cause instanceof DecodeError)) throw cause;
    throw new ConfigError([{ path: cause.path, message: cause.reason }], path, { cause });
  }
}

function parseYaml(text: string, path: string): unknown {
  const { values: [value], problem } = toEnd(readYamlValues(text));
  if (problem === undefined) return value?.raw;
  const { line, message } = problem;
  throw new ConfigError([{ path: "", message: firstLine(message), line: line + 1 }], path);
}

function readAccess(raw: RawObject, path: string, master: string): ClusterAccess {
  const current = requiredText(raw, "current-context");
  const context = entryOf(raw, "contexts", "context", current, "current-context");
  const contextField = `contexts[${current}].context`;
  const clusterName = inside(contextField, () => requiredText(context, "cluster"));
  const cluster = entryOf(raw, "clusters", "cluster", clusterName, `${contextField}.cluster`);
  const userName = inside(contextField, () => textAt(context, "user"));
  const clusterConfig = inside(`clusters[${clusterName}].cluster`, () => pluginConfigOf(cluster));
  const user = userName === "" ? {} : entryOf(raw, "users", "user", userName, `${contextField}.user`);
  return {
    ...inside(`clusters[${clusterName}].cluster`, () => readCluster(cluster, path, master)),
    ...inside(`users[${userName}].user`, () => readUser(userName, user, path, clusterConfig)),
    origin: path,
    names: { cluster: clusterName, user: userName },
  };
}

/** The body of the entry called `name`; `field` is where that name stands. */
function entryOf(raw: RawObject, list: string, key: string, name: string, field: string): RawObject {
  const entries = decodeList(raw, list, (entry) => ({ name: textAt(entry, "name"), entry }));
  const found = entries.find((candidate) => candidate.name === name);
  if (found === undefined) {
    throw new DecodeError(field, `names ${JSON.stringify(name)}, which is not among ${list}`);
  }
  return inside(`${list}[${name}]`, () => objectAt(found.entry, key));
}

function readCluster(raw: RawObject, path: string, master: string) {
  const certificateAuthority = pemAt(raw, "certificate-authority", path);
  const insecureSkipTlsVerify = booleanAt(raw, "insecure-skip-tls-verify", false);
  if (insecureSkipTlsVerify && certificateAuthority !== null) {
    throw new DecodeError("insecure-skip-tls-verify", "cannot be combined with certificate-authority");
  }
  const scheme = insecureSkipTlsVerify || certificateAuthority !== null ? "https" : "http";
  return {
    server: master === ""
      ? serverUrl(requiredText(raw, "server"), "server", scheme)
      : serverUrl(master, "--master", scheme),
    insecureSkipTlsVerify,
    tlsServerName: textAt(raw, "tls-server-name"),
    proxyUrl: proxyUrlAt(raw),
    bypassProxy: false,
    // Unlike in client-go, true by default: packing costs a server and a node processor time.
    asksForCompression: !booleanAt(raw, "disable-compression", true),
    certificateAuthority,
  };
}

function proxyUrlAt(raw: RawObject): string {
  const text = textAt(raw, "proxy-url");
  if (text === "" || ["http:", "https:", "socks5:"].includes(URL.parse(text)?.protocol ?? "")) return text;
  throw new DecodeError("proxy-url", "must be an http, https or socks5 URL");
}

/** The cluster's extension for plugins; of several the last one counts, as in client-go. */
function pluginConfigOf(cluster: RawObject): unknown {
  const extensions = decodeList(cluster, "extensions", (raw) => ({
    name: textAt(raw, "name"),
    extension: raw["extension"],
  }));
  return extensions.findLast(({ name }) => name === PLUGIN_EXTENSION)?.extension ?? null;
}

function readUser(name: string, raw: RawObject, path: string, clusterConfig: unknown) {
  const certificate = pemAt(raw, "client-certificate", path);
  const key = pemAt(raw, "client-key", path, secretTextAt);
  if (certificate !== null && key === null) {
    throw new DecodeError("client-key", "is required beside client-certificate");
  }
  if (key !== null && certificate === null) {
    throw new DecodeError("client-certificate", "is required beside client-key");
  }
  const clientCertificate = certificate === null || key === null ? null : { certificate, key };
  const identity = readIdentity(name, raw, path, clusterConfig);
  return { clientCertificate, identity, impersonation: readImpersonation(raw) };
}

function readIdentity(name: string, raw: RawObject, path: string, clusterConfig: unknown): Identity {
  const provider = isAbsent(raw["auth-provider"]) ? null : readAuthProvider(raw, name, path);
  if (provider !== null && !isAbsent(raw["exec"])) {
    throw new DecodeError("auth-provider", "cannot be combined with exec");
  }
  // kubeadm writes tokenFile, some tools token-file. As in client-go a file counts before a literal token.
  const tokenFile = textAt(raw, "tokenFile") || textAt(raw, "token-file");
  const token = secretTextAt(raw, "token");
  const username = textAt(raw, "username");
  const password = secretTextAt(raw, "password");
  if (username !== "" && (token !== "" || tokenFile !== "")) {
    throw new DecodeError("username", "cannot be combined with a token");
  }
  if (tokenFile !== "") return { kind: "tokenFile", path: besideKubeconfig(path, tokenFile) };
  if (token !== "") return { kind: "token", token: checkHeader(token, "token") };
  if (username !== "") return { kind: "basic", username, password };
  if (provider !== null) return { kind: "oidc", provider };
  if (isAbsent(raw["exec"])) return { kind: "anonymous" };
  const exec = objectAt(raw, "exec");
  return { kind: "plugin", plugin: inside("exec", () => readPlugin(exec, path, clusterConfig)) };
}

function readPlugin(raw: RawObject, path: string, clusterConfig: unknown): CredentialPlugin {
  const apiVersion = requiredText(raw, "apiVersion");
  if (!PLUGIN_VERSIONS.includes(apiVersion)) {
    throw new DecodeError("apiVersion", `must be ${PLUGIN_VERSIONS.join(" or ")}, found "${apiVersion}"`);
  }
  const command = requiredText(raw, "command");
  const interactiveMode = choiceAt(raw, "interactiveMode", INTERACTIVE_MODES, "IfAvailable");
  if (interactiveMode === "Always") {
    throw new DecodeError("interactiveMode", "must not be Always: kproxy has no terminal");
  }
  const env = decodeList(raw, "env", (entry) => [requiredText(entry, "name"), secretTextAt(entry, "value")]);
  return {
    // A bare name is looked up on the PATH, anything else is relative to the file, as in client-go.
    command: command.includes("/") ? besideKubeconfig(path, command) : command,
    args: textsAt(raw, "args"),
    env: Object.fromEntries(env),
    apiVersion,
    provideClusterInfo: booleanAt(raw, "provideClusterInfo", false),
    clusterConfig,
    installHint: textAt(raw, "installHint").replace(/\s+/g, " ").trim().slice(0, MAX_HINT),
  };
}

/** PEM text, or a file that holds it and may be replaced while kproxy runs. */
export type Pem =
  | { readonly kind: "text"; readonly pem: string }
  | { readonly kind: "file"; readonly path: string };

/** The PEM in `<key>-data`, or else the file in `<key>`. */
function pemAt(
  raw: RawObject,
  key: string,
  path: string,
  read: (raw: RawObject, key: string) => string = textAt,
): Pem | null {
  const inline = read(raw, `${key}-data`);
  if (inline !== "") return { kind: "text", pem: decodeBase64(inline, `${key}-data`) };
  const file = textAt(raw, key);
  return file === "" ? null : { kind: "file", path: besideKubeconfig(path, file) };
}

/** Like {@linkcode textAt}, of a text that has to be there. @throws {DecodeError} if it is empty or missing */
function requiredText(raw: RawObject, key: string): string {
  const text = textAt(raw, key);
  if (text === "") throw new DecodeError(key, "is required");
  return text;
}

/** Like {@linkcode textAt}, with an error that does not show the value. */
function secretTextAt(raw: RawObject, key: string): string {
  const value = raw[key];
  if (typeof value === "string") return value;
  if (isAbsent(value)) return "";
  throw new DecodeError(key, "must be a string");
}

/** A text that a header can hold. @throws {DecodeError} if it is none, without showing it */
function checkHeader(text: string, field: string): string {
  if (/^[!-~]+$/.test(text)) return text;
  throw new DecodeError(field, "must be of visible ASCII characters without spaces");
}

/** A path in the kubeconfig at `path`: relative ones are relative to its folder. */
function besideKubeconfig(path: string, file: string): string {
  return isAbsolute(file) ? file : join(dirname(path), file);
}

function decodeBase64(text: string, field: string): string {
  try {
    return atob(text.replace(/\s+/g, ""));
  } catch (cause) {
    if (!(cause instanceof DOMException)) throw cause;
    throw new DecodeError(field, "must be base64");
  }
}

/** The issuer of tokens, and the tokens that the kubeconfig has. */
export interface OidcProvider {
  /** Name of the user in the kubeconfig, for messages. */
  readonly user: string;
  /** https. */
  readonly issuer: string;
  readonly clientId: string;
  /** `""` for none. */
  readonly clientSecret: string;
  /** `""` for none: the first one is then asked for. */
  readonly idToken: string;
  /** `""` for none: the id-token then serves until it expires. */
  readonly refreshToken: string;
  /** Certificate authority of the issuer; null for those that the runtime knows. */
  readonly certificateAuthority: Pem | null;
}

/**
 * Reads `auth-provider` of the user called `user`; `path` is the kubeconfig.
 *
 * @throws {DecodeError} if it is of another sort than oidc, or a field is missing or wrong; shows no tokens
 */
function readAuthProvider(raw: RawObject, user: string, path: string): OidcProvider {
  const written = objectAt(raw, "auth-provider");
  return inside("auth-provider", () => {
    const name = textAt(written, "name");
    if (name !== "oidc") {
      throw new DecodeError("name", `must be oidc, found ${JSON.stringify(name)}: for others use exec`);
    }
    const config = objectAt(written, "config");
    return inside("config", () => ({ user, ...readConfig(config, path) }));
  });
}

function readConfig(config: RawObject, path: string): Omit<OidcProvider, "user"> {
  const issuer = requiredText(config, "idp-issuer-url");
  const url = URL.parse(issuer);
  if (url?.protocol !== "https:" || url.username !== "" || url.password !== "") {
    throw new DecodeError("idp-issuer-url", "must be an https URL without user and password");
  }
  const idToken = secretTextAt(config, "id-token");
  const refreshToken = secretTextAt(config, "refresh-token");
  if (idToken === "" && refreshToken === "") {
    throw new DecodeError("refresh-token", "is required where there is no id-token");
  }
  return {
    issuer,
    clientId: requiredText(config, "client-id"),
    clientSecret: secretTextAt(config, "client-secret"),
    idToken: idToken === "" ? "" : checkHeader(idToken, "id-token"),
    refreshToken,
    certificateAuthority: pemAt(config, "idp-certificate-authority", path),
  };
}

/** User that requests impersonate. The server allows that to users with the verb `impersonate` only. */
export interface Impersonation {
  readonly user: string;
  /** `""` for none. */
  readonly uid: string;
  readonly groups: readonly string[];
  /** Key → values. */
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/**
 * Reads `as`, `as-uid`, `as-groups` and `as-user-extra` of a user in a kubeconfig; null if there is none.
 *
 * @throws {DecodeError} if a field is wrong, or given without `as`
 */
function readImpersonation(raw: RawObject): Impersonation | null {
  const user = plainText(textAt(raw, "as"), "as");
  const uid = plainText(textAt(raw, "as-uid"), "as-uid");
  const groups = textsAt(raw, "as-groups", (group) => void plainText(group, ""));
  const extra = readExtra(raw);
  if (user !== "") return { user, uid, groups, extra };
  if (uid === "" && groups.length === 0 && Object.keys(extra).length === 0) return null;
  throw new DecodeError("as", "is required beside as-uid, as-groups and as-user-extra");
}

function readExtra(raw: RawObject): Impersonation["extra"] {
  const written = objectAt(raw, "as-user-extra");
  const check = (value: string): void => void plainText(value, "");
  const keys = Object.keys(written).filter((key) => !isAbsent(written[key]));
  return inside(
    "as-user-extra",
    () => Object.fromEntries(keys.map((key) => [key, textsAt(written, key, check)])),
  );
}

/** A header cannot hold control characters: a line break would begin another header. */
function plainText(text: string, field: string): string {
  // deno-lint-ignore no-control-regex
  if (!/[\x00-\x1f\x7f]/.test(text)) return text;
  throw new DecodeError(field, "must not contain control characters");
}
