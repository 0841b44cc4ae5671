/**
 * An OpenID Connect issuer on 127.0.0.1 with TLS: discovery and token endpoint, which misbehave on demand.
 *
 * @module
 */
import { LOCAL_PAIR } from "./test_certificates.ts";

/** Behaviour of the token endpoint. */
export type IssuerManners =
  /** Trades the valid refresh token for new tokens. */
  | "well"
  /** Likewise, but the refresh token stays valid. */
  | "keeps"
  | "gives no id_token"
  | "garbage"
  | "endless"
  | "down"
  | "silent";

/** The issuer; see the module. */
export class FakeIssuer implements AsyncDisposable {
  manners: IssuerManners = "well";
  /** Lifetime of its id tokens, in seconds. */
  lifeSeconds = 3600;
  /** Client secret that it requires in the Authorization header; `""`: public clients only. */
  secret = "";
  /** The valid refresh token. */
  refreshToken = "refresh-1";
  /** Number of token requests. */
  asked = 0;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #end = new AbortController();

  constructor() {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, ...LOCAL_PAIR, onListen: () => {} },
      (request) => this.#answer(request),
    );
  }

  get url(): string {
    return `https://127.0.0.1:${this.#server.addr.port}`;
  }

  /** An id token for client `kproxy` that expires after so many seconds. */
  idToken(seconds: number, serial = 0): string {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: "kproxy", sub: "node", iat: now, exp: now + seconds, serial };
    return [{ alg: "ES256" }, claims, "signature"].map((part) =>
      btoa(JSON.stringify(part)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")
    ).join(".");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort();
    await this.#server.shutdown();
  }

  async #answer(request: Request): Promise<Response> {
    if (this.manners === "down") return new Response("no", { status: 503 });
    if (new URL(request.url).pathname === "/.well-known/openid-configuration") {
      return Response.json({
        issuer: this.url,
        token_endpoint: `${this.url}/token`,
        id_token_signing_alg_values_supported: ["ES256"],
      });
    }
    this.asked++;
    const form = new URLSearchParams(await request.text());
    if (this.manners === "silent") {
      await new Promise((resolve) => this.#end.signal.addEventListener("abort", resolve));
    }
    if (this.manners === "garbage") return new Response("secret-token <html>", { headers: JSON_TYPE });
    if (this.manners === "endless") return new Response(endless(), { headers: JSON_TYPE });
    return this.#trade(form, request.headers.get("authorization") ?? "");
  }

  #trade(form: URLSearchParams, authorization: string): Response {
    const isKnown = this.secret === ""
      ? form.get("client_id") === "kproxy" && authorization === ""
      : authorization === `Basic ${btoa(`kproxy:${this.secret}`)}`;
    if (!isKnown) return refusal(401, "invalid_client", "who are you");
    if (form.get("grant_type") !== "refresh_token" || form.get("refresh_token") !== this.refreshToken) {
      return refusal(400, "invalid_grant", "this token was used up");
    }
    if (this.manners !== "keeps") this.refreshToken = `refresh-${this.asked + 1}`;
    const next = this.manners === "keeps" ? {} : { refresh_token: this.refreshToken };
    const id = this.manners === "gives no id_token"
      ? {}
      : { id_token: this.idToken(this.lifeSeconds, this.asked) };
    return Response.json({
      access_token: "a",
      token_type: "Bearer",
      expires_in: this.lifeSeconds,
      ...next,
      ...id,
    });
  }
}

const JSON_TYPE = { "content-type": "application/json" };

function refusal(status: number, error: string, text: string): Response {
  return Response.json({ error, error_description: text }, { status });
}

function endless(): ReadableStream<Uint8Array> {
  return new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(65536).fill(32)) });
}
