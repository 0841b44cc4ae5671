/**
 * The forms of answer that the servers share.
 *
 * @module
 */
import { escapedJson } from "../text/quote.ts";

const NO_SNIFF = ["x-content-type-options", "nosniff"] as const;

/** Plain text, exactly as given. */
export function textAnswer(
  body: string,
  { status = 200, headers = {} }: { status?: number; headers?: Readonly<Record<string, string>> } = {},
): Response {
  return new Response(body, {
    status,
    headers: { "content-type": "text/plain; charset=utf-8", [NO_SNIFF[0]]: NO_SNIFF[1], ...headers },
  });
}

/** JSON text, in which what a terminal would obey is escaped. */
export function jsonAnswer(
  body: string,
  { status = 200, headers = {} }: { status?: number; headers?: Readonly<Record<string, string>> } = {},
): Response {
  return new Response(escapedJson(body), {
    status,
    headers: { "content-type": "application/json", [NO_SNIFF[0]]: NO_SNIFF[1], ...headers },
  });
}

/** What Go's servers, and so kube-proxy's, answer for a path they do not have. */
export function notFoundAnswer(): Response {
  return textAnswer("404 page not found\n", { status: 404 });
}
