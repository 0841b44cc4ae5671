/**
 * Shows the status page to browsers of this machine.
 *
 * @module
 */
import { notFoundAnswer } from "../http_answer.ts";
import type { Handler } from "../http_listener.ts";
import { localOnly } from "../status/local_only.ts";
import type { ProxyFacts, ServerFacts } from "../status/status_api.ts";
import { FILES_PATH, PAGE_PATH, SERVICE_PATH, SERVICES_PATH, TRACE_PATH } from "./page_document.ts";
import type { PageFacts } from "./page_document.ts";
import type { PageFile } from "./page_files.ts";

/** Allows content of this server only; text of names and messages never runs as a script. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy": CONTENT_SECURITY_POLICY,
  "cross-origin-opener-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Browsers revalidate it each time, and get a few bytes if it is unchanged.
  "cache-control": "no-cache",
};

const ANSWERS: readonly string[] = [SERVICES_PATH, SERVICE_PATH, TRACE_PATH];

/** The page and all its requests, by path; the files and the modules that answer are loaded at the first request. */
export function statusPage(
  proxy: ProxyFacts,
  server: ServerFacts,
  page: PageFacts,
): (path: string) => Handler | undefined {
  let answers: Promise<ReadonlyMap<string, Handler>> | null = null;
  const answer = localOnly(async (request, peer, stopping) => {
    answers ??= import("./page_answers.ts").then(({ pageAnswers }) => pageAnswers(proxy, server, page));
    const handler = (await answers).get(new URL(request.url).pathname);
    return handler === undefined ? notFoundAnswer() : await handler(request, peer, stopping);
  });
  const files = localOnly(async (request) => {
    const { FILES, PAGE } = await import("./page_files.ts");
    const { pathname } = new URL(request.url);
    const file = pathname === PAGE_PATH ? PAGE : FILES.get(pathname.slice(FILES_PATH.length));
    return file === undefined ? notFoundAnswer() : await fileAnswer(file, request);
  });
  const toPage = localOnly(() => new Response(null, { status: 302, headers: { location: PAGE_PATH } }));
  return (path) => {
    if (ANSWERS.includes(path)) return answer;
    if (path === PAGE_PATH || path.startsWith(FILES_PATH)) return files;
    return path === PAGE_PATH.slice(0, -1) ? toPage : undefined;
  };
}

async function fileAnswer({ type, text }: PageFile, request: Request): Promise<Response> {
  const bytes = new TextEncoder().encode(text);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex().slice(0, 32);
  const headers = { ...HEADERS, "content-type": type, etag: `"${hash}"` };
  if (request.headers.get("if-none-match") === headers.etag) {
    return new Response(null, { status: 304, headers });
  }
  return new Response(bytes, { headers });
}
