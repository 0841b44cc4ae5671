/**
 * Which proxy stands between us and the API server, by the rules of Go programs, which the rest of a cluster follows.
 *
 * @module
 */
import { cidrContains, parseCidr, parseIp } from "../../model/ip.ts";

/** Variables of the environment, such as `Deno.env`. */
export interface Environment {
  /** The value of a variable; undefined if it is not set. */
  get(name: string): string | undefined;
}

/** What the environment's proxy means for one server. */
export interface ProxyChoice {
  /** URL of the proxy; `""` for none. */
  readonly proxyUrl: string;
  /** True if there is a proxy that must not be used for this server. */
  readonly bypassProxy: boolean;
}

/**
 * The proxy to use for `server`. Addresses of the machine itself never go through one.
 *
 * @throws {TypeError} if the variable does not hold a proxy's URL
 */
export function proxyFromEnvironment(server: string, env: Environment): ProxyChoice {
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
