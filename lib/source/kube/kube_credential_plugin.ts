/**
 * Exec credential plugins of a kubeconfig (client.authentication.k8s.io): a program prints a token or a client certificate.
 *
 * @module
 */
import type { KubernetesObject } from "@kubernetes/client-node";
import type { Credential } from "@kubernetes/client-node/dist/exec_auth.js";
import { firstLine } from "../../text/lines.ts";
import { ExecError } from "../../errors.ts";
import type { Exec } from "../../kernel/exec.ts";
import { abortable, CredentialError } from "./kube_credential_error.ts";
import { ownProgramBehind } from "./kube_plugin_program.ts";
import { asObject, DecodeError, objectAt, textAt } from "../decode/decode_values.ts";
import type { ClusterAccess, CredentialPlugin } from "./kubeconfig.ts";

/** What a plugin printed. */
export interface PluginCredential {
  readonly token: string | null;
  readonly clientCertificate: { readonly certificate: string; readonly key: string } | null;
  /** Milliseconds since the epoch; Infinity if it does not expire. */
  readonly expiresMs: number;
}

/** What a plugin prints. */
type ExecCredential = KubernetesObject & Credential;

const TIMEOUT_MS = 60_000;

/** Runs one plugin when its credential is needed and the one before has expired. */
export class CredentialPluginRunner {
  readonly #plugin: CredentialPlugin;
  readonly #origin: string;
  readonly #exec: Exec;
  #credential: PluginCredential | undefined;
  #running: Promise<PluginCredential> | undefined;
  readonly #end = new AbortController();

  /** `origin` is the kubeconfig, for messages. */
  constructor(plugin: CredentialPlugin, origin: string, exec: Exec) {
    this.#plugin = plugin;
    this.#origin = origin;
    this.#exec = exec;
  }

  /**
   * The credential to use now.
   *
   * @throws {CredentialError} if the plugin may not be started, fails or prints something else; never shows what it printed
   * @throws what `signal` was aborted with; the plugin goes on for those who wait with others
   */
  async credential(
    access: ClusterAccess,
    certificateAuthority: string | null,
    signal: AbortSignal,
  ): Promise<PluginCredential> {
    if (this.#credential !== undefined && this.#credential.expiresMs > Date.now()) return this.#credential;
    // Several requests at once share one run: a plugin may ask a server of its own.
    this.#running ??= this.#run(access, certificateAuthority).finally(() => this.#running = undefined);
    return await abortable(this.#running, signal);
  }

  /** Ends a run. */
  close(): void {
    this.#end.abort();
  }

  /** Runs the plugin again at the next call. */
  invalidate(): void {
    this.#credential = undefined;
  }

  async #run(access: ClusterAccess, certificateAuthority: string | null): Promise<PluginCredential> {
    const { command, args, env, apiVersion, provideClusterInfo, clusterConfig } = this.#plugin;
    const info = clusterInfo(access, certificateAuthority, clusterConfig);
    const cluster = provideClusterInfo ? { cluster: info } : {};
    const request = { kind: "ExecCredential", apiVersion, spec: { interactive: false, ...cluster } };
    try {
      const own = await ownProgramBehind(command);
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
      return this.#credential = parseExecCredential(stdout, apiVersion);
    } catch (cause) {
      throw new CredentialError(`Credential plugin "${command}" of ${this.#origin}: ${this.#reason(cause)}`, {
        cause,
      });
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
    return readExecCredential(stdout, apiVersion);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    // Neither its words nor a cause: they quote the value, which may be the token.
    throw new Error(`prints ${error.path} that cannot be read`);
  }
}

function readExecCredential(stdout: string, apiVersion: string): PluginCredential {
  const raw = asObject<ExecCredential>(parseJson(stdout), "its output");
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
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    // Without a cause: the error of the parser quotes the text, which may hold a token.
    if (cause instanceof SyntaxError) throw new Error("prints something else than JSON");
    throw cause;
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
