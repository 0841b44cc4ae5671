/**
 * Impersonation: one user asks the API server to be treated as another one.
 *
 * @module
 */
import {
  DecodeError,
  inside,
  isAbsent,
  objectAt,
  type RawObject,
  textAt,
  textsAt,
} from "../decode/decode_values.ts";

/** Whom the requests are made as. The server lets only users with the verb `impersonate` do that. */
export interface Impersonation {
  readonly user: string;
  /** `""` for none. */
  readonly uid: string;
  readonly groups: readonly string[];
  /** Key → values. */
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

/**
 * Reads `as`, `as-uid`, `as-groups` and `as-user-extra` of a user in a kubeconfig; null if there is nobody to be.
 *
 * @throws {DecodeError} if one of them is wrong, or given without `as`
 */
export function readImpersonation(raw: RawObject): Impersonation | null {
  const user = checked(textAt(raw, "as"), "as");
  const uid = checked(textAt(raw, "as-uid"), "as-uid");
  const groups = textsAt(raw, "as-groups", (group) => void checked(group, ""));
  const extra = readExtra(raw);
  if (user !== "") return { user, uid, groups, extra };
  if (uid === "" && groups.length === 0 && Object.keys(extra).length === 0) return null;
  throw new DecodeError("as", "is required beside as-uid, as-groups and as-user-extra");
}

function readExtra(raw: RawObject): Impersonation["extra"] {
  const written = objectAt(raw, "as-user-extra");
  const check = (value: string): void => void checked(value, "");
  const keys = Object.keys(written).filter((key) => !isAbsent(written[key]));
  return inside(
    "as-user-extra",
    () => Object.fromEntries(keys.map((key) => [key, textsAt(written, key, check)])),
  );
}

/** A header cannot hold control characters: a line break would begin another header. */
function checked(text: string, field: string): string {
  // deno-lint-ignore no-control-regex
  if (!/[\x00-\x1f\x7f]/.test(text)) return text;
  throw new DecodeError(field, "must not contain control characters");
}

/**
 * The headers that say so, each with all its values: the server takes every value for one, commas and all.
 *
 * Source: client-go's transport (`Impersonate-User`, `-Uid`, `-Group`, `-Extra-<key>`).
 */
export function impersonationHeaders(
  { user, uid, groups, extra }: Impersonation,
): Record<string, readonly string[]> {
  const headers: Record<string, readonly string[]> = { "impersonate-user": [user].map(headerBytes) };
  if (uid !== "") headers["impersonate-uid"] = [uid].map(headerBytes);
  if (groups.length > 0) headers["impersonate-group"] = groups.map(headerBytes);
  for (const [key, values] of Object.entries(extra)) {
    if (values.length > 0) headers[`impersonate-extra-${escapedKey(key)}`] = values.map(headerBytes);
  }
  return headers;
}

/** UTF-8, a character for each byte: headers are bytes. */
function headerBytes(text: string): string {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

/** What cannot stand in the name of a header is written as `%XX`, and so is `%` itself: the server reads it back. */
function escapedKey(key: string): string {
  return [...new TextEncoder().encode(key)].map((byte) => {
    const character = String.fromCharCode(byte);
    return /[!#$&'*+.^_`|~0-9A-Za-z-]/.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }).join("");
}
