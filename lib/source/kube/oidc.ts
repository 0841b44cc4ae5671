/**
 * Tokens of OpenID Connect (`auth-provider: oidc` of a kubeconfig): used until they expire, then asked for anew by `openid-client`.
 *
 * Nothing of that package is loaded before a token has to be asked for.
 *
 * @module
 */
import type { CustomFetchOptions } from "openid-client";
import { ConfigError } from "../../errors.ts";
import { errorText } from "../../observe/log.ts";
import { readText } from "./response.ts";
import { CredentialError, type CredentialIssuer, type IssuedCredential, IssuerError } from "./credentials.ts";
import type { Identity, OidcProvider } from "./kubeconfig.ts";

/** Dependencies of {@linkcode OidcTokens}. */
export interface OidcTokensOptions {
  readonly provider: OidcProvider;
  /** Path of the kubeconfig. */
  readonly origin: string;
  /** The PEM of the issuer's authority as it is now. */
  readonly certificateAuthority: () => Promise<string | null>;
  /** Monotonic, in milliseconds. */
  readonly nowMs: () => number;
}

/** A token that was just given out is not the reason of a refusal: asking again would only cost the issuer. */
const MIN_REFRESH_MS = 30_000;

/** The tokens of one user. They are kept in memory; the kubeconfig stays as it is, and is read again when they no longer serve. */
export class OidcTokens implements CredentialIssuer {
  readonly #options: OidcTokensOptions;
  /** Provider as it was last read from the kubeconfig. */
  #read: OidcProvider;
  /** Tokens in force: the kubeconfig's, or those of the issuer's last answer. */
  #tokens: Tokens;
  #isRefused = false;
  #issuedMs = -Infinity;
  readonly #end = new AbortController();

  constructor(options: OidcTokensOptions) {
    this.#options = options;
    this.#read = this.#tokens = options.provider;
  }

  /** @throws {IssuerError} if the issuer cannot be reached, or answers something else than tokens or a refusal */
  async credential(): Promise<IssuedCredential> {
    const { user } = this.#read;
    try {
      return { token: await this.#valid(), clientCertificate: null };
    } catch (cause) {
      const { origin } = this.#options;
      const reason = cause instanceof Error ? cause.message : String(cause);
      const message = `OpenID Connect, user "${user}" of ${origin}: ${reason}`;
      // Without the cause of anything else: it may quote a token.
      if (cause instanceof IssuerError) throw new IssuerError(message);
      throw new CredentialError(message);
    }
  }

  invalidate(): void {
    if (this.#options.nowMs() - this.#issuedMs >= MIN_REFRESH_MS) this.#isRefused = true;
  }

  close(): void {
    this.#end.abort(new Error("not wanted any more"));
  }

  async #valid(): Promise<string> {
    if (this.#isRefused || isExpired(this.#tokens)) {
      const isNew = await this.#readAgain();
      const { refreshToken } = this.#tokens;
      if (isExpired(this.#tokens) || (this.#isRefused && !isNew && refreshToken !== "")) {
        if (refreshToken === "") throw new Error("the id-token has expired, and there is no refresh-token");
        await this.#refresh(refreshToken);
      }
      this.#isRefused = false;
    }
    return this.#tokens.idToken;
  }

  async #refresh(refreshToken: string): Promise<void> {
    const certificateAuthority = await this.#options.certificateAuthority();
    const provider = { ...this.#read, refreshToken };
    const issued = await askIssuer(provider, certificateAuthority, this.#end.signal);
    this.#issuedMs = this.#options.nowMs();
    this.#tokens = { idToken: issued.idToken, refreshToken: issued.refreshToken ?? refreshToken };
  }

  /** Takes tokens that another program has written into the kubeconfig; resolves to false if there are no others. */
  async #readAgain(): Promise<boolean> {
    const found = await providerIn(this.#options.origin);
    if (found === null || sameTokens(found, this.#read)) return false;
    this.#read = this.#tokens = found;
    return true;
  }
}

type Tokens = Pick<OidcProvider, "idToken" | "refreshToken">;

/** True for an expired token, and for none. One without an expiry is left to the server. */
function isExpired({ idToken }: Tokens): boolean {
  if (idToken === "") return true;
  const [, payload = "", ...signature] = idToken.split(".");
  if (signature.length !== 1) return true;
  try {
    const { exp } = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof exp === "number" && exp * 1000 <= Date.now();
  } catch (error) {
    // Its message quotes the token.
    if (error instanceof SyntaxError || error instanceof TypeError || error instanceof DOMException) {
      throw new Error("the id-token is no JWT");
    }
    throw error;
  }
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
    // Another program may be writing it: what was read before stays valid.
    if (error instanceof ConfigError) return null;
    throw error;
  }
  return identity.kind === "oidc" ? identity.provider : null;
}

const TIMEOUT_SECONDS = 30;
/** An endless answer must not fill the memory. */
const MAX_BYTES = 1024 * 1024;

/**
 * Trades a refresh token for tokens; a refresh token of null: the one that was used stays good.
 *
 * @param certificateAuthority PEM; null for those that the runtime knows
 * @throws {IssuerError} if the issuer cannot be reached or verified, or answers something else; later it may
 * @throws {Error} if it refuses, or kproxy may not connect to it; shows no tokens
 */
async function askIssuer(
  { issuer, clientId, clientSecret, refreshToken }: OidcProvider,
  certificateAuthority: string | null,
  signal: AbortSignal,
): Promise<{ readonly idToken: string; readonly refreshToken: string | null }> {
  const oidc = await import("openid-client");
  const http = Deno.createHttpClient(
    certificateAuthority === null ? {} : { caCerts: [certificateAuthority] },
  );
  let trouble: Error | undefined;
  const ask = async (
    url: string,
    { body, signal: limit, ...rest }: CustomFetchOptions,
  ): Promise<Response> => {
    const ending = AbortSignal.any(limit === undefined ? [signal] : [signal, limit]);
    try {
      const content = body instanceof URLSearchParams ? { body } : {};
      return await bounded(await fetch(url, { ...rest, ...content, signal: ending, client: http }), ending);
    } catch (error) {
      trouble = troubleAt(url, error);
      throw error;
    }
  };
  /** Client authentication as the issuer wants it; where it does not say, as its standard does. */
  const authentication: Parameters<typeof oidc.discovery>[3] = (server, client, body, headers) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"];
    const present = clientSecret === ""
      ? oidc.None()
      : methods.includes("client_secret_basic")
      ? oidc.ClientSecretBasic(clientSecret)
      : oidc.ClientSecretPost(clientSecret);
    return present(server, client, body, headers);
  };
  try {
    const settings = { [oidc.customFetch]: ask, timeout: TIMEOUT_SECONDS };
    const server = await oidc.discovery(new URL(issuer), clientId, undefined, authentication, settings);
    const tokens = await oidc.refreshTokenGrant(server, refreshToken);
    if (tokens.id_token === undefined) {
      throw new IssuerError("the issuer gives no id_token for the refresh-token");
    }
    return { idToken: tokens.id_token, refreshToken: tokens.refresh_token ?? null };
  } catch (error) {
    if (trouble !== undefined) throw trouble;
    if (error instanceof oidc.ResponseBodyError && error.status < 500) {
      throw new Error(`the issuer refuses the refresh-token: ${words(error.error, error.error_description)}`);
    }
    if (error instanceof IssuerError) throw error;
    throw new IssuerError(`the issuer ${issuer} gives no usable answer: ${answerText(error)}`);
  } finally {
    http.close();
  }
}

/** The answer with all of its body, which is short. */
async function bounded(response: Response, signal: AbortSignal): Promise<Response> {
  const { body, status, headers } = response;
  if (body === null) return response;
  const text = await readText({ body }, { signal, note: () => {} }, MAX_BYTES);
  return new Response([204, 205, 304].includes(status) ? null : text, { status, headers });
}

function troubleAt(url: string, error: unknown): Error {
  const { host, port, protocol } = new URL(url);
  if (error instanceof Deno.errors.NotCapable) {
    const place = port === "" ? `${host}:443` : host;
    return new Error(
      `kproxy may not connect to the issuer; it needs --allow-net=${place} (docs/permissions.md)`,
    );
  }
  const reason = error instanceof DOMException && error.name === "TimeoutError"
    ? `no answer within ${TIMEOUT_SECONDS} s`
    : errorText(error);
  return new IssuerError(`cannot ask the issuer at ${protocol}//${host}: ${reason}`);
}

/** Message of the library, without quotes of the answer, which may hold tokens. */
function answerText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Response) return `${error.message} (status ${cause.status})`;
  const isQuoting = !(cause instanceof Error) || cause instanceof SyntaxError ||
    cause.message === error.message;
  return isQuoting || cause.cause instanceof SyntaxError
    ? error.message
    : `${error.message}: ${cause.message}`;
}

/** Words of the issuer, in one short line. */
function words(...texts: readonly (string | undefined)[]): string {
  return texts.filter((text) => text !== undefined).join(": ").replace(/\s+/g, " ").slice(0, 300);
}
