/**
 * Takes out of texts what looks like a secret. Nothing that is packed should have one in it; this is for what somebody has put into a flag, an
 * address or a message all the same. Pure.
 *
 * @module
 */

const REMOVED = "[removed]";

/** Each with what stays in front. Where a text repeats the beginning of one, every length has a bound, or it would take for ever. */
const SECRETS: readonly RegExp[] = [
  // PEM, as it is, or with the line ends of JSON.
  /(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?=-----END|$)/g,
  // A token of a service account, or of OpenID Connect.
  /()\beyJ[\w-]{8,512}\.[\w-]{8,4096}\.[\w-]*/g,
  // PEM in base64, as kubeconfigs have it: "-----BEGIN " begins so.
  /()\bLS0tLS1CRUdJTi[\w+/=]*/g,
  /(\bauthorization["']?\s*[:=]\s*["']?(?:basic|bearer)?\s*)[^\s"',;]+/gi,
  /(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}/gi,
  /((?:token|password|passwd|secret|client-key-data|client-certificate-data)["']?\s*[:=]\s*["']?)[^\s"',;&}]+/gi,
  // Whoever is named in an address.
  /(\b[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/@"']{1,512}(?=@)/gi,
];

/** The text, without what looks like a secret. */
export function withoutSecrets(text: string): string {
  return SECRETS.reduce(
    (rest, secret) => rest.replace(secret, (_, before: string) => before + REMOVED),
    text,
  );
}
