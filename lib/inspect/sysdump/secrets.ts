/**
 * Takes out of texts what looks like a secret. Nothing that is packed should have one in it; this is for what a user has put into a flag, an
 * address or a message all the same. Pure.
 *
 * @module
 */

const REMOVED = "[removed]";

/** What a secret is called, at the end of its name. */
const NAMES =
  "(?:token|password|passwd|passphrase|secret|api[-_]?key|access[-_]?key(?:[-_]?id)?|private[-_]?key" +
  "|client-key-data|client-certificate-data)";
/** Between a name and what it stands for; quotes in a text that is itself in JSON have a backslash. */
const STANDS_FOR = `\\\\?["']?\\s*[:=]\\s*`;

/** Each with what stays in front. Where a text repeats the beginning of one, every length has a bound, or it would take for ever. */
const SECRETS: readonly RegExp[] = [
  // PEM, as it is, or with the line ends of JSON; PGP's ends otherwise.
  /(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?(?=-----END|$)/g,
  // A token of a service account, or of OpenID Connect.
  /()\beyJ[\w-]{8,512}\.[\w-]{8,4096}\.[\w-]*/g,
  // PEM in base64, as kubeconfigs have it: "-----BEGIN " begins so.
  /()\bLS0tLS1CRUdJTi[\w+/=]*/g,
  // The name of a key of AWS.
  /()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  // Headers, to their end.
  /(\bauthorization["']?\s*[:=]\s*["']?(?:basic|bearer)?[ \t]*)[^\r\n"']+/gi,
  /(\b(?:set-)?cookie["']?\s*[:=]\s*["']?)[^\r\n"']+/gi,
  /(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}/gi,
  // In quotes, all that is between them; after a colon and a blank, the rest of the line; else a word.
  new RegExp(`(${NAMES}${STANDS_FOR}")(?:\\\\.|[^"\\\\])+`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}\\\\")[^"\\\\]+`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}')[^']+`, "gi"),
  new RegExp(`(${NAMES}:[ \\t]+)[^\\s"'][^\\r\\n"]*`, "gi"),
  new RegExp(`(${NAMES}${STANDS_FOR}(?:\\\\["'])?)[^\\s"',;&}\\\\]+`, "gi"),
  new RegExp(`(--[\\w-]{0,40}${NAMES}[ \\t]+)[^\\s"']+`, "gi"),
  // User and password in an address, also with an @ in them.
  /(\b[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/"']{1,512}(?=@)/gi,
];

export function withoutSecrets(text: string): string {
  return SECRETS.reduce(
    (rest, secret) => rest.replace(secret, (_, before: string) => before + REMOVED),
    text,
  );
}
