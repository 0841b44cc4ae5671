/**
 * Tokens of OpenID Connect (`auth-provider: oidc` of a kubeconfig): used until they expire, then asked for anew.
 *
 * client-node's `OpenIDConnectAuth` decides when, and is given our own client of the issuer (`kube_oidc_issuer.ts`): what its own
 * one lacks is listed in `docs/architecture.md`. Nothing of it is loaded before the first token is wanted.
 *
 * @module
 */
import { ConfigError } from "../../errors.ts";
import { abortable, CredentialError, IssuerError } from "./kube_credential_error.ts";
import type { IssuedTokens, IssuerClient, IssuerOptions } from "./kube_oidc_issuer.ts";
import type { Identity } from "./kubeconfig.ts";
import type { OidcProvider } from "./oidc_provider.ts";

/** What {@linkcode OidcTokens} needs. */
export interface OidcTokensOptions {
  readonly provider: OidcProvider;
  /** The kubeconfig. */
  readonly origin: string;
  /** The PEM of the issuer's authority as it is now. */
  readonly certificateAuthority: () => Promise<string | null>;
  /** Monotonic, in milliseconds. */
  readonly nowMs: () => number;
}

/** A token that was just given out is not the reason of a refusal: asking again would only cost the issuer. */
const MIN_REFRESH_MS = 30_000;

/** The tokens of one user. They are kept in memory; the kubeconfig stays as it is, and is read again when they no longer serve. */
export class OidcTokens {
  readonly #options: OidcTokensOptions;
  /** What the kubeconfig said last. */
  #read: OidcProvider;
  /** As `OpenIDConnectAuth` knows it, which replaces tokens in it. */
  #config: Record<string, string>;
  #isRefused = false;
  #issuedMs = -Infinity;
  #running: Promise<string> | undefined;
  readonly #end = new AbortController();

  constructor(options: OidcTokensOptions) {
    this.#options = options;
    this.#read = options.provider;
    this.#config = configOf(options.provider);
  }

  /**
   * The token to use now. Several requests at once share one question to the issuer.
   *
   * @throws {IssuerError} if the issuer cannot be reached, or answers something else than tokens or a refusal
   * @throws {CredentialError} if there is no token to be had
   * @throws what `signal` was aborted with
   */
  async token(signal: AbortSignal): Promise<string> {
    this.#running ??= this.#token().finally(() => this.#running = undefined);
    return await abortable(this.#running, signal);
  }

  /** The server did not accept the token. */
  invalidate(): void {
    if (this.#options.nowMs() - this.#issuedMs >= MIN_REFRESH_MS) this.#isRefused = true;
  }

  /** Ends what is asked of the issuer. */
  close(): void {
    this.#end.abort(new Error("not wanted any more"));
  }

  async #token(): Promise<string> {
    const { user } = this.#read;
    try {
      return await this.#valid();
    } catch (cause) {
      const { origin } = this.#options;
      const reason = cause instanceof Error ? cause.message : String(cause);
      const message = `OpenID Connect, user "${user}" of ${origin}: ${reason}`;
      // Without the cause of anything else: it may quote a token.
      if (cause instanceof IssuerError) throw new IssuerError(message);
      throw new CredentialError(message);
    }
  }

  async #valid(): Promise<string> {
    // Loads much, and few need it.
    const { OpenIDConnectAuth } = await import("@kubernetes/client-node/dist/oidc_auth.js");
    const expiresMs = (token: string): number => expiryOf(() => OpenIDConnectAuth.expirationFromToken(token));
    const client: IssuerClient = { refresh: (refreshToken) => this.#refresh(refreshToken, expiresMs) };
    const isExpired = (): boolean => expiresMs(this.#config["id-token"]!) <= Date.now();
    if (this.#isRefused || isExpired()) {
      const isNew = await this.#readAgain();
      const refreshToken = this.#config["refresh-token"]!;
      if (refreshToken === "" && isExpired()) {
        throw new Error("the id-token has expired, and there is no refresh-token");
      }
      // A token that is missing, or looks good to us alone, is nothing that OpenIDConnectAuth would replace.
      const mustAsk = this.#config["id-token"] === "" || (this.#isRefused && !isNew);
      if (mustAsk && refreshToken !== "") this.#take(await client.refresh(refreshToken));
      this.#isRefused = false;
    }
    const headers: Record<string, string> = {};
    const user = { name: this.#read.user, authProvider: { name: "oidc", config: this.#config } };
    // A new one each time: it would take its own time of expiry for that of tokens that were replaced.
    await new OpenIDConnectAuth().applyAuthentication(user, { headers }, client);
    const token = headers["Authorization"]?.replace(/^Bearer /, "") ?? "";
    if (token === "") throw new Error("there is no token");
    return token;
  }

  async #refresh(refreshToken: string, expiresMs: (token: string) => number): Promise<IssuedTokens> {
    const { askIssuer } = await import("./kube_oidc_issuer.ts");
    const { issuer, clientId, clientSecret } = this.#read;
    const options: IssuerOptions = {
      issuer,
      clientId,
      clientSecret,
      certificateAuthority: await this.#options.certificateAuthority(),
    };
    const { idToken, refreshToken: next } = await askIssuer(options, refreshToken, this.#end.signal);
    this.#issuedMs = this.#options.nowMs();
    return { id_token: idToken, refresh_token: next ?? refreshToken, expires_at: expiresMs(idToken) / 1000 };
  }

  #take(tokens: IssuedTokens): void {
    this.#config["id-token"] = tokens.id_token;
    this.#config["refresh-token"] = tokens.refresh_token;
  }

  /** Takes tokens that somebody has written into the kubeconfig; resolves to false if there are no others. */
  async #readAgain(): Promise<boolean> {
    const found = await providerIn(this.#options.origin);
    if (found === null || sameTokens(found, this.#read)) return false;
    this.#read = found;
    this.#config = configOf(found);
    return true;
  }
}

/** The names are client-node's. */
function configOf({ issuer, clientId, idToken, refreshToken }: OidcProvider): Record<string, string> {
  return {
    "idp-issuer-url": issuer,
    "client-id": clientId,
    "id-token": idToken,
    "refresh-token": refreshToken,
  };
}

function sameTokens(one: OidcProvider, other: OidcProvider): boolean {
  return one.idToken === other.idToken && one.refreshToken === other.refreshToken &&
    one.issuer === other.issuer && one.clientId === other.clientId && one.clientSecret === other.clientSecret;
}

/** The provider in a kubeconfig as it is now; null if it cannot be read or names another way to log in. */
async function providerIn(path: string): Promise<OidcProvider | null> {
  const { loadKubeconfig } = await import("./kubeconfig.ts");
  let identity: Identity;
  try {
    ({ identity } = await loadKubeconfig(path));
  } catch (error) {
    // Somebody may be writing it: what was read before goes on.
    if (error instanceof ConfigError) return null;
    throw error;
  }
  return identity.kind === "oidc" ? identity.provider : null;
}

/** Milliseconds since the epoch; Infinity for a token that does not say: the server will. */
function expiryOf(seconds: () => number | undefined): number {
  let found: unknown;
  try {
    found = seconds();
  } catch (error) {
    // Its message quotes the token.
    if (error instanceof SyntaxError || error instanceof TypeError) throw new Error("the id-token is no JWT");
    throw error;
  }
  return typeof found === "number" ? found * 1000 : Infinity;
}
