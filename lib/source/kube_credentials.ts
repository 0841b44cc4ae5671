/**
 * What a request carries to be let in: read again when files change, thrown away when the server refuses it.
 *
 * @module
 */
import { ExecAuth } from "@kubernetes/client-node/dist/exec_auth.js";
import type { ClusterAccess, Pem } from "./kubeconfig.ts";

/** A client certificate with its key, PEM. */
export interface CertificatePair {
  readonly certificate: string;
  readonly key: string;
}

/** Everything a connection and a request need to know of credentials. */
export interface Credentials {
  /** PEM of the certificate authority; null for the system's. */
  readonly certificateAuthority: string | null;
  readonly clientCertificate: CertificatePair | null;
  /** Value of the Authorization header; null to send none. */
  readonly authorization: string | null;
}

/** kubeadm's promise for token files: a new token is used within a minute. */
const TOKEN_FILE_MAX_AGE_MS = 60_000;

/** Reads and re-reads the credentials of one cluster. */
export class CredentialReader {
  readonly #access: ClusterAccess;
  readonly #nowMs: () => number;
  readonly #exec = new ExecAuth();
  #token: { readonly text: string; readonly readMs: number } | null = null;

  constructor(access: ClusterAccess, nowMs: () => number) {
    this.#access = access;
    this.#nowMs = nowMs;
  }

  /**
   * The credentials as they are now. Certificates are read at every call, the token file at least every minute.
   *
   * @throws {Deno.errors.NotFound} and other errors of reading a file, naming it
   * @throws {Error} if an exec plugin fails or may not be started
   */
  async read(): Promise<Credentials> {
    const { certificateAuthority, clientCertificate } = this.#access;
    const fromPlugin = await this.#runPlugin();
    const pair = clientCertificate === null ? fromPlugin.pair : {
      certificate: await readPem(clientCertificate.certificate),
      key: await readPem(clientCertificate.key),
    };
    return {
      certificateAuthority: certificateAuthority === null ? null : await readPem(certificateAuthority),
      clientCertificate: pair,
      authorization: fromPlugin.authorization ?? await this.#authorization(),
    };
  }

  /** Forgets what was cached, because the server did not accept it. */
  invalidate(): void {
    this.#token = null;
    const { identity } = this.#access;
    // The plugin's cache is keyed by the user's name; without an entry it is run again.
    if (identity.kind === "exec") delete this.#exec["tokenCache"][identity.user.name];
  }

  async #authorization(): Promise<string | null> {
    const { identity } = this.#access;
    switch (identity.kind) {
      case "token":
        return `Bearer ${identity.token}`;
      case "basic":
        return `Basic ${btoa(`${identity.username}:${identity.password}`)}`;
      case "tokenFile":
        return `Bearer ${await this.#readToken(identity.path)}`;
      default:
        return null;
    }
  }

  async #readToken(path: string): Promise<string> {
    const nowMs = this.#nowMs();
    if (this.#token !== null && nowMs - this.#token.readMs < TOKEN_FILE_MAX_AGE_MS) return this.#token.text;
    const text = (await readFile(path)).trim();
    this.#token = { text, readMs: nowMs };
    return text;
  }

  async #runPlugin(): Promise<{ authorization: string | null; pair: CertificatePair | null }> {
    const { identity } = this.#access;
    if (identity.kind !== "exec") return { authorization: null, pair: null };
    const options: { headers: Record<string, string>; cert?: string; key?: string } = { headers: {} };
    try {
      await this.#exec.applyAuthentication(
        identity.user,
        options as Parameters<ExecAuth["applyAuthentication"]>[1],
      );
    } catch (cause) {
      const command = identity.user.exec?.command ?? "";
      const hint = cause instanceof Deno.errors.NotCapable
        ? `it is not among the programs kproxy may start (docs/permissions.md); from source, add --allow-run=${command}`
        : cause instanceof Error
        ? cause.message
        : String(cause);
      throw new Error(`Credential plugin "${command}" of ${this.#access.origin}: ${hint}`, { cause });
    }
    const { cert, key, headers } = options;
    return {
      authorization: headers["Authorization"] ?? null,
      pair: cert === undefined || key === undefined ? null : { certificate: cert, key },
    };
  }
}

function readPem(pem: Pem): Promise<string> {
  return pem.kind === "text" ? Promise.resolve(pem.pem) : readFile(pem.path);
}

async function readFile(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (cause) {
    throw new Error(`Cannot read ${path}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}
