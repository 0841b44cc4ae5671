/**
 * What a request carries to be let in: read again when files change, thrown away when the server refuses it.
 *
 * @module
 */
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { base64Of } from "../../text/base64.ts";
import { abortable, CredentialError } from "./kube_credential_error.ts";
import { CredentialPluginRunner } from "./kube_credential_plugin.ts";
import { OidcTokens } from "./kube_oidc.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import type { Pem } from "./kubeconfig_values.ts";

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
  readonly #oidc: OidcTokens | undefined;
  readonly #end = new AbortController();
  #token: { readonly text: string; readonly readMs: number } | undefined;
  /** What the last request was sent with. */
  #last: Credentials | undefined;

  /** `nowMs` is monotonic. */
  constructor(access: ClusterAccess, nowMs: () => number, exec: Exec = systemExec) {
    this.#access = access;
    this.#nowMs = nowMs;
    const { identity } = access;
    this.#plugin = identity.kind === "plugin"
      ? new CredentialPluginRunner(identity.plugin, access.origin, exec)
      : undefined;
    this.#oidc = identity.kind === "oidc"
      ? new OidcTokens({
        provider: identity.provider,
        origin: access.origin,
        certificateAuthority: () => this.#issuerAuthority(identity.provider.certificateAuthority),
        nowMs,
      })
      : undefined;
  }

  /**
   * The credentials as they are now. Certificates are read at every call, the token file at least every minute.
   *
   * @throws {CredentialError} if a file cannot be read or a plugin yields nothing, naming it
   * @throws what `signal` was aborted with
   */
  async read(signal: AbortSignal): Promise<Credentials> {
    return this.#last = await this.#read(signal);
  }

  /** False if no file holds them. What a plugin or an issuer yields counts as no file: each time it may be something else. */
  get canChange(): boolean {
    const { identity, certificateAuthority, clientCertificate } = this.#access;
    const pems = [certificateAuthority, clientCertificate?.certificate, clientCertificate?.key];
    return identity.kind !== "plugin" && identity.kind !== "oidc" &&
      (identity.kind === "tokenFile" || pems.some((pem) => pem?.kind === "file"));
  }

  /** True if files hold something else than what was read last. */
  async haveChanged(signal: AbortSignal): Promise<boolean> {
    const last = this.#last;
    try {
      this.invalidate();
      return !sameCredentials(last, await this.#read(signal));
    } catch (error) {
      if (signal.aborted || error instanceof CredentialError) return false;
      throw error;
    }
  }

  async #read(signal: AbortSignal): Promise<Credentials> {
    const { clientCertificate } = this.#access;
    const certificateAuthority = await this.#readAuthority(signal);
    const own = clientCertificate === null ? null : {
      certificate: await readPem(clientCertificate.certificate, "client-certificate", CERTIFICATE, signal),
      key: await readPem(clientCertificate.key, "client-key", PRIVATE_KEY, signal),
    };
    if (this.#plugin === undefined) {
      return {
        certificateAuthority,
        clientCertificate: own,
        authorization: await this.#authorization(signal),
      };
    }
    const given = await this.#plugin.credential(this.#access, certificateAuthority, signal);
    return {
      certificateAuthority,
      clientCertificate: given.clientCertificate ?? own,
      authorization: given.token === null ? null : `Bearer ${given.token}`,
    };
  }

  /** Ends a plugin that runs, and what is asked of an issuer. */
  close(): void {
    this.#plugin?.close();
    this.#oidc?.close();
    this.#end.abort();
  }

  /** Reads everything again at the next call, because the server did not accept it. */
  invalidate(): void {
    if (this.#token !== undefined) this.#token = { ...this.#token, readMs: -Infinity };
    this.#plugin?.invalidate();
    this.#oidc?.invalidate();
  }

  async #readAuthority(signal: AbortSignal): Promise<string | null> {
    const { certificateAuthority } = this.#access;
    if (certificateAuthority === null) return null;
    return await readPem(certificateAuthority, "certificate-authority", CERTIFICATE, signal);
  }

  async #issuerAuthority(pem: Pem | null): Promise<string | null> {
    return pem === null
      ? null
      : await readPem(pem, "idp-certificate-authority", CERTIFICATE, this.#end.signal);
  }

  async #authorization(signal: AbortSignal): Promise<string | null> {
    const { identity } = this.#access;
    if (identity.kind === "token") return `Bearer ${identity.token}`;
    if (identity.kind === "tokenFile") return `Bearer ${await this.#readToken(identity.path, signal)}`;
    if (this.#oidc !== undefined) return `Bearer ${await this.#oidc.token(signal)}`;
    if (identity.kind === "basic") return `Basic ${base64Of(`${identity.username}:${identity.password}`)}`;
    return null;
  }

  async #readToken(path: string, signal: AbortSignal): Promise<string> {
    const nowMs = this.#nowMs();
    if (this.#token !== undefined && nowMs - this.#token.readMs < TOKEN_FILE_MAX_AGE_MS) {
      return this.#token.text;
    }
    const text = (await readFile(path, signal)).trim();
    // An empty or torn file is a moment of its being replaced: the token before it may still be good.
    if (/^[!-~]+$/.test(text)) this.#token = { text, readMs: nowMs };
    else if (this.#token === undefined) throw new CredentialError(`${path} holds no token`);
    return this.#token.text;
  }
}

/** Without this check an authority without certificates would mean all that the runtime knows. */
async function readPem(pem: Pem, field: string, wanted: RegExp, signal: AbortSignal): Promise<string> {
  const text = pem.kind === "text" ? pem.pem : await readFile(pem.path, signal);
  if (wanted.test(text)) return text;
  const where = pem.kind === "text" ? `${field}-data` : pem.path;
  throw new CredentialError(
    `${where} holds no ${wanted === CERTIFICATE ? "certificate" : "private key"} in PEM form`,
  );
}

async function readFile(path: string, signal: AbortSignal): Promise<string> {
  try {
    // Before it is opened: a pipe would not open until somebody writes into it.
    const { isFile } = await abortable(Deno.stat(path), signal);
    if (!isFile) throw new TypeError("it is not a regular file");
    return await abortable(Deno.readTextFile(path, { signal }), signal);
  } catch (cause) {
    signal.throwIfAborted();
    throw new CredentialError(`Cannot read ${path}`, { cause });
  }
}

function sameCredentials(one: Credentials | undefined, other: Credentials): boolean {
  return one?.authorization === other.authorization &&
    one?.certificateAuthority === other.certificateAuthority &&
    one?.clientCertificate?.certificate === other.clientCertificate?.certificate &&
    one?.clientCertificate?.key === other.clientCertificate?.key;
}
