/**
 * What goes wrong before a request can be sent, and how waiting for it ends.
 *
 * @module
 */

/** There is nothing to be let in with: a file cannot be read, or a plugin yields nothing. */
export class CredentialError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "CredentialError";
  }
}

/** Who gives out the credentials cannot be asked, or does not answer as it should: later it may. */
export class IssuerError extends CredentialError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "IssuerError";
  }
}

/**
 * Waits for `promise` until `signal` aborts: a disk that hangs cannot be interrupted, only left.
 *
 * @throws what `promise` or `signal` says
 */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
