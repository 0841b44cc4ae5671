/**
 * Where an API server is.
 *
 * @module
 */
import { DecodeError } from "../decode/decode_values.ts";

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
