/**
 * The files that serving over TLS needs, read and checked: what cannot be used is found here, not by the first client.
 *
 * @module
 */
import { createHash, createPrivateKey, X509Certificate } from "node:crypto";
import type { ServingConfig } from "../../config/types.ts";
import { ConfigError } from "../../errors.ts";
import { errorText } from "../../observe/log.ts";

/** Contents of the files. */
export interface ServingMaterial {
  /** Certificate chain, and its key, in PEM. */
  readonly cert: string;
  readonly key: string;
  /** Authorities of clients, PEM; null: clients need no certificate. */
  readonly ca: string | null;
  /** SHA-256 of each token; null: requests need none of a file. */
  readonly tokenHashes: readonly Uint8Array[] | null;
  /** Validity of the certificate, in milliseconds since the epoch. */
  readonly validFromMs: number;
  readonly validToMs: number;
  /** Hash of all files: the same for the same content. */
  readonly fingerprint: string;
  /** Files that others than their owner and group may read, though they hold secrets. */
  readonly openFiles: readonly string[];
}

type FileField = "tlsCertFile" | "tlsPrivateKeyFile" | "clientCAFile" | "bearerTokenFile";

const MAX_BYTES = 1024 * 1024;
const OTHERS = 0o007;
const PEM_REGEXP = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
/** Source: RFC 6750, b64token. */
const TOKEN_REGEXP = /^[A-Za-z0-9._~+/-]+=*$/;

/**
 * Reads the files.
 *
 * @throws {ConfigError} that names field and file
 */
export async function readServingFiles(config: ServingConfig): Promise<ServingMaterial> {
  const texts = new Map<FileField, string>();
  const openFiles: string[] = [];
  for (const field of ["tlsCertFile", "tlsPrivateKeyFile", "clientCAFile", "bearerTokenFile"] as const) {
    if (config[field] === "") continue;
    const { text, mode } = await checked(config, field, () => readSmallFile(config[field]));
    texts.set(field, text);
    const isSecret = field === "tlsPrivateKeyFile" || field === "bearerTokenFile";
    if (isSecret && (mode & OTHERS) !== 0) openFiles.push(config[field]);
  }
  const textOf = (field: FileField): string => texts.get(field) ?? "";
  const [leaf] = await checked(config, "tlsCertFile", () => certificatesOf(textOf("tlsCertFile")));
  await checked(config, "tlsPrivateKeyFile", () => checkKey(leaf, texts));
  const ca = texts.get("clientCAFile") ?? null;
  if (ca !== null) await checked(config, "clientCAFile", () => checkAuthorities(ca));
  const tokens = texts.get("bearerTokenFile");
  return {
    cert: textOf("tlsCertFile"),
    key: textOf("tlsPrivateKeyFile"),
    ca,
    tokenHashes: tokens === undefined
      ? null
      : await checked(config, "bearerTokenFile", () => tokensOf(tokens).map(tokenHash)),
    validFromMs: Date.parse(leaf.validFrom),
    validToMs: Date.parse(leaf.validTo),
    fingerprint: createHash("sha256").update(JSON.stringify([...texts])).digest("hex"),
    openFiles,
  };
}

/** Hash by which tokens are compared: the time it takes tells neither their length nor their beginning. */
export function tokenHash(token: string): Uint8Array {
  return createHash("sha256").update(token).digest();
}

async function checked<Result>(
  config: ServingConfig,
  field: FileField,
  work: () => Result | Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (cause) {
    const message = `${config[field]}: ${errorText(cause)}`;
    throw new ConfigError([{ path: `kproxy.serving.${field}`, message }], undefined, { cause });
  }
}

async function readSmallFile(path: string): Promise<{ readonly text: string; readonly mode: number }> {
  // A pipe would block its reader.
  const { isFile, size, mode } = await Deno.stat(path);
  if (!isFile) throw new TypeError("it is no regular file");
  if (size > MAX_BYTES) throw new RangeError(`it is larger than ${MAX_BYTES} bytes`);
  return { text: await Deno.readTextFile(path), mode: mode ?? 0 };
}

/** Certificates of a PEM file. The first one is the server's, or any authority. */
function certificatesOf(text: string): [X509Certificate, ...X509Certificate[]] {
  const [first, ...rest] = (text.match(PEM_REGEXP) ?? []).map((pem) => {
    try {
      return new X509Certificate(pem);
    } catch (cause) {
      throw new SyntaxError("it holds a certificate that cannot be read", { cause });
    }
  });
  if (first === undefined) throw new SyntaxError("it holds no certificate (PEM)");
  return [first, ...rest];
}

function checkKey(leaf: X509Certificate, texts: ReadonlyMap<FileField, string>): void {
  const [cert = "", key = ""] = [texts.get("tlsCertFile"), texts.get("tlsPrivateKeyFile")];
  if (/-----BEGIN ENCRYPTED|Proc-Type: 4,ENCRYPTED/.test(key)) throw new SyntaxError("the key is encrypted");
  let parsed: ReturnType<typeof createPrivateKey>;
  try {
    parsed = createPrivateKey(key);
  } catch (cause) {
    throw new SyntaxError("it holds no private key (PEM)", { cause });
  }
  if (!leaf.checkPrivateKey(parsed)) {
    throw new TypeError("it is not the key of the certificate in kproxy.serving.tlsCertFile");
  }
  // There are keys that this runtime reads and cannot serve with.
  Deno.createHttpClient({ cert, key }).close();
}

function checkAuthorities(text: string): void {
  if (!certificatesOf(text).some(({ ca }) => ca)) {
    throw new TypeError("it holds no certificate of an authority");
  }
}

function tokensOf(text: string): readonly string[] {
  const tokens = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  if (tokens.length === 0) throw new SyntaxError("it holds no token");
  const wrong = tokens.findIndex((token) => !TOKEN_REGEXP.test(token));
  if (wrong >= 0) throw new SyntaxError(`token ${wrong + 1} has characters that no Bearer token has`);
  return tokens;
}
