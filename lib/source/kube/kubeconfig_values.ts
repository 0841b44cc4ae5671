/**
 * Values of a kubeconfig that need more than their type: certificates, secrets, paths.
 *
 * @module
 */
import { dirname, isAbsolute, join } from "node:path";
import { DecodeError, isAbsent, type RawObject, textAt } from "../decode/decode_values.ts";

/** PEM text, or a file that holds it and may be replaced while we run. */
export type Pem =
  | { readonly kind: "text"; readonly pem: string }
  | { readonly kind: "file"; readonly path: string };

/** The PEM in `<key>-data`, or else the file in `<key>`. */
export function pemAt(
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
export function requiredText(raw: RawObject, key: string): string {
  const text = textAt(raw, key);
  if (text === "") throw new DecodeError(key, "is required");
  return text;
}

/** Like {@linkcode textAt}, with an error that does not show the value. */
export function secretTextAt(raw: RawObject, key: string): string {
  const value = raw[key];
  if (typeof value === "string") return value;
  if (isAbsent(value)) return "";
  throw new DecodeError(key, "must be a string");
}

/** A text that a header can hold. @throws {DecodeError} if it is none, without showing it */
export function checkHeader(text: string, field: string): string {
  if (/^[!-~]+$/.test(text)) return text;
  throw new DecodeError(field, "must be of visible ASCII characters without spaces");
}

/** A path in the kubeconfig at `path`: relative ones are relative to its folder. */
export function besideKubeconfig(path: string, file: string): string {
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
