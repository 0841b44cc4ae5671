/**
 * The ways on which requests reach an API server. Who lists and watches does not see which one it is.
 *
 * @module
 */
import type { HttpAnswer } from "./kube_answer.ts";
import type { Credentials } from "./kube_credentials.ts";

/** One request. */
export interface TransportRequest {
  readonly credentials: Credentials;
  readonly method: string;
  /** With query. */
  readonly path: string;
  /** Those with several values have a line for each. */
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body?: string;
}

/** Requests to one API server. */
export interface KubeTransport {
  /**
   * Sends a request and resolves when the headers are there. `signal` ends the connection as long as the body has not been read.
   *
   * @throws {Error} if the server, or the proxy on the way, cannot be reached or verified
   * @throws what `signal` was aborted with
   */
  send(request: TransportRequest, signal: AbortSignal): Promise<HttpAnswer>;
  /**
   * Looks whether connections can be made with these credentials, without making one.
   *
   * @throws {Error} if a certificate or key is broken, or the proxy must not be used
   */
  check(credentials: Credentials): void;
  /** Closes idle connections. */
  close(): void;
}
