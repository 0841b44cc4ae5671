/**
 * Credentials of requests: read again when files change, thrown away when the server refuses them.
 *
 * @module
 */
import { abortable } from "../../kernel/clock.ts";
import { type Exec, OWN_PROGRAMS, systemExec } from "../../kernel/exec.ts";
import { base64Of } from "../../text/bytes.ts";
import { OidcTokens } from "./oidc.ts";
import type { ClusterAccess, CredentialPlugin, Pem } from "./kubeconfig.ts";
import type { KubernetesObject } from "@kubernetes/client-node";
import type { Credential } from "@kubernetes/client-node/dist/exec_auth.js";
import { firstLine } from "../../text/lines.ts";
import { ExecError } from "../../errors.ts";
import { asObject, DecodeError, objectAt, textAt } from "../decode/decode_values.ts";

/** A client certificate with its key, PEM. */
export interface CertificatePair {
  readonly certificate: string;
  readonly key: string;
}

/** The credentials for a connection and a request. */
export interface Credentials {
  /** PEM of the certificate authority; null for those that the runtime knows. */
  readonly certificateAuthority: string | null;
  readonly clientCertificate: CertificatePair | null;
  /** Value of the Authorization header; null to send none. */
  readonly authorization: string | null;
}

/** Credential from a plugin or an issuer; at least one of the two fields is set. */
export interface IssuedCredential {
  readonly token: string | null;
  readonly clientCertificate: CertificatePair | null;
}

/** A plugin, or an issuer of tokens. */
export interface CredentialIssuer {
  /**
   * The credential to use now. Not called again before it has ended.
   *
   * @throws {CredentialError} if there is none to be had; shows no secret
   */
  credential(certificateAuthority: string | null): Promise<IssuedCredential>;
  /** Discards the credential: the server did not accept it. */
  invalidate(): void;
  /** Cancels a plugin or a request that is under way. */
  close(): void;
}

/** kubeadm's promise for token files: a new token is used within a minute. */
const TOKEN_FILE_MAX_AGE_MS = 60_000;
const CERTIFICATE = /^-----BEGIN CERTIFICATE-----/m;
const PRIVATE_KEY = /^-----BEGIN ([A-Z]+ )?PRIVATE KEY-----/m;

/** Reads and re-reads the credentials of one cluster. */
export class CredentialReader {
  readonly #access: ClusterAccess;
  readonly #nowMs: () => number;
  readonly #issuer: CredentialIssuer | null;
  #asking: Promise<IssuedCredential> | undefined;
  readonly #end = new AbortController();
  #token: { readonly text: string; readonly readMs: number } | undefined;
  /** Credentials of the last request. */
  #last: Credentials | undefined;

  /** `nowMs` is monotonic. */
  constructor(access: ClusterAccess, nowMs: () => number, exec: Exec = systemExec) {
    this.#access = access;
    this.#nowMs = nowMs;
    this.#issuer = this.#issuerOf(access, exec);
  }

  #issuerOf({ identity, origin }: ClusterAccess, exec: Exec): CredentialIssuer | null {
    if (identity.kind === "plugin") return new CredentialPluginRunner(identity.plugin, this.#access, exec);
    if (identity.kind !== "oidc") return null;
    const { provider } = identity;
    const certificateAuthority = async (): Promise<string | null> => {
      const { certificateAuthority: pem } = provider;
      if (pem === null) return null;
      return await readPem(pem, "idp-certificate-authority", CERTIFICATE, this.#end.signal);
    };
    return new OidcTokens({ provider, origin, certificateAuthority, nowMs: this.#nowMs });
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

  /** False if no file holds credentials. Those of a plugin or an issuer count as none: they may differ each time. */
  get canChange(): boolean {
    const { identity, certificateAuthority, clientCertificate } = this.#access;
    const pems = [certificateAuthority, clientCertificate?.certificate, clientCertificate?.key];
    return identity.kind !== "plugin" && identity.kind !== "oidc" &&
      (identity.kind === "tokenFile" || pems.some((pem) => pem?.kind === "file"));
  }

  /** True if files hold other credentials than were read last. */
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
    const { certificateAuthority: authority, clientCertificate: pair } = this.#access;
    const certificateAuthority = authority === null
      ? null
      : await readPem(authority, "certificate-authority", CERTIFICATE, signal);
    const own = pair === null ? null : {
      certificate: await readPem(pair.certificate, "client-certificate", CERTIFICATE, signal),
      key: await readPem(pair.key, "client-key", PRIVATE_KEY, signal),
    };
    const given = this.#issuer === null
      ? null
      : await this.#issued(this.#issuer, certificateAuthority, signal);
    return {
      certificateAuthority,
      clientCertificate: given?.clientCertificate ?? own,
      authorization: given === null ? await this.#authorization(signal) : bearer(given.token),
    };
  }

  /** Ends a plugin that runs, and a request to an issuer. */
  close(): void {
    this.#issuer?.close();
    this.#end.abort();
  }

  /** Reads everything again at the next call, because the server did not accept it. */
  invalidate(): void {
    if (this.#token !== undefined) this.#token = { ...this.#token, readMs: -Infinity };
    this.#issuer?.invalidate();
  }

  /** Concurrent requests share one call of the issuer, which may be costly; it goes on for the others when one gives up. */
  async #issued(
    issuer: CredentialIssuer,
    certificateAuthority: string | null,
    signal: AbortSignal,
  ): Promise<IssuedCredential> {
    this.#asking ??= issuer.credential(certificateAuthority).finally(() => this.#asking = undefined);
    return await abortable(this.#asking, signal);
  }

  async #authorization(signal: AbortSignal): Promise<string | null> {
    const { identity } = this.#access;
    if (identity.kind === "token") return bearer(identity.token);
    if (identity.kind === "tokenFile") return bearer(await this.#readToken(identity.path, signal));
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

function bearer(token: string | null): string | null {
  return token === null ? null : `Bearer ${token}`;
}

/** Reads a PEM and checks it: an authority without certificates would mean all that the runtime trusts. */
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
    // Before it is opened: opening a pipe waits for its writer.
    const { isFile } = await abortable(Deno.stat(path), signal);
    if (!isFile) throw new TypeError("it is not a regular file");
    return await abortable(Deno.readTextFile(path, { signal }), signal);
  } catch (cause) {
    signal.throwIfAborted();
    throw new CredentialError(`Cannot read ${path}`, { cause });
  }
}

function sameCredentials(one: Credentials | undefined, other: Credentials): boolean {
  return one !== undefined && one.authorization === other.authorization && sameCertificates(one, other);
}

/** True if a connection made with one serves for the other. */
export function sameCertificates(one: Credentials, other: Credentials): boolean {
  return one.certificateAuthority === other.certificateAuthority &&
    one.clientCertificate?.certificate === other.clientCertificate?.certificate &&
    one.clientCertificate?.key === other.clientCertificate?.key;
}

/** There are no credentials: a file cannot be read, or a plugin yields nothing. */
export class CredentialError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "CredentialError";
  }
}

/** The issuer of the credentials cannot be asked, or does not answer as it should: later it may. */
export class IssuerError extends CredentialError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "IssuerError";
  }
}

/** Credential that a plugin printed, with its expiry. */
export interface PluginCredential extends IssuedCredential {
  /** Milliseconds since the epoch; Infinity if it does not expire. */
  readonly expiresMs: number;
}

/** Document that a plugin prints. */
type ExecCredential = KubernetesObject & Credential;

const TIMEOUT_MS = 60_000;

/** Runs one plugin when its credential is needed and the one before has expired. */
class CredentialPluginRunner implements CredentialIssuer {
  readonly #plugin: CredentialPlugin;
  readonly #access: ClusterAccess;
  readonly #exec: Exec;
  #credential: PluginCredential | undefined;
  readonly #end = new AbortController();

  constructor(plugin: CredentialPlugin, access: ClusterAccess, exec: Exec) {
    this.#plugin = plugin;
    this.#access = access;
    this.#exec = exec;
  }

  async credential(certificateAuthority: string | null): Promise<PluginCredential> {
    const isGood = this.#credential !== undefined && this.#credential.expiresMs > Date.now();
    if (!isGood) this.#credential = await this.#run(certificateAuthority);
    return this.#credential!;
  }

  close(): void {
    this.#end.abort();
  }

  invalidate(): void {
    this.#credential = undefined;
  }

  async #run(certificateAuthority: string | null): Promise<PluginCredential> {
    const { command, args, env, apiVersion, provideClusterInfo, clusterConfig } = this.#plugin;
    const info = clusterInfo(this.#access, certificateAuthority, clusterConfig);
    const cluster = provideClusterInfo ? { cluster: info } : {};
    const request = { kind: "ExecCredential", apiVersion, spec: { interactive: false, ...cluster } };
    try {
      const own = ownProgram(command);
      if (own !== null) {
        throw new Error(
          `is the program ${own}, which kproxy may start for its own work and never for credentials; use one of ` +
            "its own, with a grant of its own (docs/permissions.md)",
        );
      }
      const { code, stdout, stderr } = await this.#exec.run([command, ...args], {
        env: { ...env, KUBERNETES_EXEC_INFO: JSON.stringify(request) },
        timeoutMs: TIMEOUT_MS,
        signal: this.#end.signal,
      });
      if (code !== 0) throw new Error(`ended with status ${code}: ${firstLine(stderr.trim())}`);
      return parseExecCredential(stdout, apiVersion);
    } catch (cause) {
      throw new CredentialError(
        `Credential plugin "${command}" of ${this.#access.origin}: ${this.#reason(cause)}`,
        {
          cause,
        },
      );
    }
  }

  #reason(error: unknown): string {
    if (error instanceof ExecError && error.isMissing()) {
      const { installHint } = this.#plugin;
      const isRefused = error.cause instanceof Deno.errors.NotCapable;
      if (!isRefused) return installHint === "" ? "is not installed" : `is not installed: ${installHint}`;
      return "is not among the programs kproxy may start (docs/permissions.md); it needs a grant " +
        `of its own: --allow-run=${this.#plugin.command}`;
    }
    // Its arguments may be secrets.
    if (error instanceof ExecError) return error.ending;
    return error instanceof Error ? error.message : String(error);
  }
}

/**
 * Reads what a plugin printed.
 *
 * @throws {Error} if it is not an ExecCredential of that version with a credential in it; never shows the text
 */
export function parseExecCredential(stdout: string, apiVersion: string): PluginCredential {
  try {
    const raw = asObject<ExecCredential>(JSON.parse(stdout), "its output");
    if (raw.kind !== "ExecCredential" || raw.apiVersion !== apiVersion) {
      throw new Error(`must print an ExecCredential of ${apiVersion}`);
    }
    const status = objectAt(raw, "status");
    const token = textAt(status, "token");
    const certificate = textAt(status, "clientCertificateData");
    const key = textAt(status, "clientKeyData");
    if (token === "" && (certificate === "" || key === "")) {
      throw new Error("must print a token, or clientCertificateData and clientKeyData");
    }
    const expires = textAt(status, "expirationTimestamp");
    const expiresMs = expires === "" ? Infinity : Date.parse(expires);
    if (Number.isNaN(expiresMs)) throw new Error("prints an expirationTimestamp that is no time");
    return {
      token: token === "" ? null : token,
      clientCertificate: certificate === "" || key === "" ? null : { certificate, key },
      expiresMs,
    };
  } catch (error) {
    // Neither the messages of these errors nor a cause: they quote the text, which may be the token.
    if (error instanceof SyntaxError) throw new Error("prints something else than JSON");
    if (error instanceof DecodeError) throw new Error(`prints ${error.path} that cannot be read`);
    throw error;
  }
}

/** The API's `Cluster` of client.authentication.k8s.io. */
function clusterInfo(
  access: ClusterAccess,
  certificateAuthority: string | null,
  config: unknown,
): Record<string, unknown> {
  return {
    server: access.server,
    ...(access.tlsServerName === "" ? {} : { "tls-server-name": access.tlsServerName }),
    ...(access.insecureSkipTlsVerify ? { "insecure-skip-tls-verify": true } : {}),
    ...(certificateAuthority === null ? {} : { "certificate-authority-data": btoa(certificateAuthority) }),
    ...(access.proxyUrl === "" ? {} : { "proxy-url": access.proxyUrl }),
    ...(config === null ? {} : { config }),
  };
}

/**
 * Name of the program of kproxy's own that `command` starts; null if it is none. The runtime starts only the very paths that it was granted,
 * not links to them, so the name is enough.
 */
function ownProgram(command: string): string | null {
  const name = command.slice(command.lastIndexOf("/") + 1);
  return OWN_PROGRAMS.includes(name) ? name : null;
}
