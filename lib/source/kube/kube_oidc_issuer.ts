/**
 * Asks an issuer of OpenID Connect for new tokens, by the package `openid-client`, on which client-node stands, too.
 *
 * @module
 */
import type { CustomFetchOptions } from "openid-client";
import { readText } from "./kube_answer.ts";
import { IssuerError } from "./kube_credential_error.ts";

/** Who is asked, and as whom. */
export interface IssuerOptions {
  readonly issuer: string;
  readonly clientId: string;
  /** `""` for none. */
  readonly clientSecret: string;
  /** PEM; null for those that the runtime knows. */
  readonly certificateAuthority: string | null;
}

/** What client-node's `OpenIDConnectAuth` takes for the answer of an issuer. */
export interface IssuedTokens {
  readonly id_token: string;
  readonly refresh_token: string;
  /** Seconds since the epoch. */
  readonly expires_at: number;
}

/** What client-node's `OpenIDConnectAuth` asks for tokens. */
export interface IssuerClient {
  refresh(refreshToken: string): Promise<IssuedTokens>;
}

/** New tokens. */
export interface Answered {
  readonly idToken: string;
  /** Null: the one that was used stays good. */
  readonly refreshToken: string | null;
}

const TIMEOUT_SECONDS = 30;
/** Memory is not for whoever sends without an end. */
const MAX_BYTES = 1024 * 1024;

/**
 * Trades a refresh token for tokens.
 *
 * @throws {IssuerError} if the issuer cannot be reached or verified, or answers something else; later it may
 * @throws {Error} if it refuses, or kproxy may not connect to it; shows no tokens
 */
export async function askIssuer(
  { issuer, clientId, clientSecret, certificateAuthority }: IssuerOptions,
  refreshToken: string,
  signal: AbortSignal,
): Promise<Answered> {
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
  /** As the issuer wants to be told the secret; where it does not say, as its standard does. */
  const authentication: Parameters<typeof oidc.discovery>[3] = (server, client, body, headers) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"];
    const tell = clientSecret === ""
      ? oidc.None()
      : methods.includes("client_secret_basic")
      ? oidc.ClientSecretBasic(clientSecret)
      : oidc.ClientSecretPost(clientSecret);
    return tell(server, client, body, headers);
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
    : messages(error);
  return new IssuerError(`cannot ask the issuer at ${protocol}//${host}: ${reason}`);
}

/** Messages of an error and its causes. */
function messages(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${messages(error.cause)}` : error.message;
}

/** What the library says, without what it quotes of the answer, where tokens may stand. */
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
