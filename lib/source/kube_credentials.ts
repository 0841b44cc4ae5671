/**
 * What a request carries to be let in: read again when files change, thrown away when the server refuses it.
 *
 * @module
 */
import { type Exec, systemExec } from "../kernel/exec.ts";
import { CredentialPluginRunner } from "./kube_credential_plugin.ts";
import type { ClusterAccess, Pem } from "./kubeconfig.ts";

/** A client certificate with its key, PEM. */
export interface CertificatePair {
  readonly certificate: string;
  readonly key: string;
}

/** Everything a connection and a request need to know of credentials. */
export interface Credentials {
  /** PEM of the certificate authority; null for those that the runtime knows. */
  readonly certificateAuthority: string | null;
  readonly clientCertificate: CertificatePair | null;
  /** Value of the Authorization header; null to send none. */
  readonly authorization: string | null;
}

/** kubeadm's promise for token files: a new token is used within a minute. */
const TOKEN_FILE_MAX_AGE_MS = 60_000;
const CERTIFICATE = /^-----BEGIN CERTIFICATE-----/m;
const PRIVATE_KEY = /^-----BEGIN ([A-Z]+ )?PRIVATE KEY-----/m;

/** Reads and re-reads the credentials of one cluster. */
export class CredentialReader {
  readonly #access: ClusterAccess;
  readonly #nowMs: () => number;
  readonly #plugin: CredentialPluginRunner | undefined;
  #token: { readonly text: string; readonly readMs: number } | undefined;

  /** `nowMs` is monotonic. */
  constructor(access: ClusterAccess, nowMs: () => number, exec: Exec = systemExec) {
    this.#access = access;
    this.#nowMs = nowMs;
    const { identity } = access;
    this.#plugin = identity.kind === "plugin"
      ? new CredentialPluginRunner(identity.plugin, access.origin, exec)
      : undefined;
  }

  /**
   * The credentials as they are now. Certificates are read at every call, the token file at least every minute.
   *
   * @throws {Error} if a file cannot be read or a plugin yields nothing, naming it
   */
  async read(): Promise<Credentials> {
    const { clientCertificate } = this.#access;
    const certificateAuthority = await this.#readAuthority();
    const own = clientCertificate === null ? null : {
      certificate: await this.#readPem(clientCertificate.certificate, "client-certificate", CERTIFICATE),
      key: await this.#readPem(clientCertificate.key, "client-key", PRIVATE_KEY),
    };
    if (this.#plugin === undefined) {
      return { certificateAuthority, clientCertificate: own, authorization: await this.#authorization() };
    }
    const given = await this.#plugin.credential(this.#access, certificateAuthority);
    return {
      certificateAuthority,
      clientCertificate: given.clientCertificate ?? own,
      authorization: given.token === null ? null : `Bearer ${given.token}`,
    };
  }

  /** Reads everything again at the next call, because the server did not accept it. */
  invalidate(): void {
    if (this.#token !== undefined) this.#token = { ...this.#token, readMs: -Infinity };
    this.#plugin?.invalidate();
  }

  async #readAuthority(): Promise<string | null> {
    const { certificateAuthority } = this.#access;
    if (certificateAuthority === null) return null;
    return await this.#readPem(certificateAuthority, "certificate-authority", CERTIFICATE);
  }

  /** Without this check an authority without certificates would mean all that the runtime knows. */
  async #readPem(pem: Pem, field: string, wanted: RegExp): Promise<string> {
    const text = pem.kind === "text" ? pem.pem : await readFile(pem.path);
    if (wanted.test(text)) return text;
    const where = pem.kind === "text" ? `${field}-data` : pem.path;
    throw new Error(
      `${where} holds no ${wanted === CERTIFICATE ? "certificate" : "private key"} in PEM form`,
    );
  }

  async #authorization(): Promise<string | null> {
    const { identity } = this.#access;
    if (identity.kind === "token") return `Bearer ${identity.token}`;
    if (identity.kind === "tokenFile") return `Bearer ${await this.#readToken(identity.path)}`;
    if (identity.kind === "basic") return `Basic ${base64(`${identity.username}:${identity.password}`)}`;
    return null;
  }

  async #readToken(path: string): Promise<string> {
    const nowMs = this.#nowMs();
    if (this.#token !== undefined && nowMs - this.#token.readMs < TOKEN_FILE_MAX_AGE_MS) {
      return this.#token.text;
    }
    const text = (await readFile(path)).trim();
    // An empty or torn file is a moment of its being replaced: the token before it may still be good.
    if (/^[!-~]+$/.test(text)) this.#token = { text, readMs: nowMs };
    else if (this.#token === undefined) throw new Error(`${path} holds no token`);
    return this.#token.text;
  }
}

async function readFile(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (cause) {
    throw new Error(`Cannot read ${path}`, { cause });
  }
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
