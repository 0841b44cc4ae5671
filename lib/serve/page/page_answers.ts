/**
 * Answers for the status page beside the status: the list of Services, one Service, the path of a packet.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { interfaceAddresses } from "../../kernel/machine.ts";
import { answerOf, jsonAnswer } from "../http_answer.ts";
import type { Handler } from "../http_listener.ts";
import { BusyError, Pace, pacedBody } from "../pacing.ts";
import type { ProxyFacts, ServerFacts } from "../status/status_api.ts";
import { API_VERSION } from "../status/status_document.ts";
import { SERVICE_PATH, SERVICES_PATH, TRACE_PATH } from "./page_document.ts";
import type { Held, PageFacts, Questions } from "./page_document.ts";
import { rowPieces, serviceNames } from "./service_rows.ts";

/** Most characters of a parameter: no name, address or port is longer. */
const LONGEST_WORD = 600;
/** Most requests that may wait; further ones are refused. */
const MOST_WAITING = 8;

/** Handlers by path. */
export function pageAnswers(
  proxy: ProxyFacts,
  server: ServerFacts,
  page: PageFacts,
): ReadonlyMap<string, Handler> {
  const { record } = proxy;
  // Identifies this proxy server: the generations of the next one start anew.
  const id = `${Deno.pid}-${Math.round(server.servingSinceMs)}`;
  /** Version of the page's data; it changes whenever Services may look different. */
  const version = (): string => `${id}:${record.generation}`;
  const rowsPace = new Pace();
  const pace = new Pace({ mostWaiting: MOST_WAITING });
  let loaded: Promise<Questions> | null = null;
  const questions = (): Promise<Questions> => loaded ??= page.questions();
  const held = (): Held => ({
    states: record.states,
    quarantined: record.quarantined,
    mode: server.mode,
    config: server.config(),
    nodeName: proxy.node,
    node: page.node(),
    serviceCidrs: page.serviceCidrs(),
    addresses: interfaceAddresses(),
    unserved: proxy.unserved(),
    portals: proxy.portals?.() ?? null,
  });

  const services: Handler = (request, _peer, stopping) => {
    const facts = { states: [...record.states.values()], quarantined: record.quarantined };
    const tag = `"${version()}"`;
    if (request.headers.get("if-none-match") === tag) return unchangedAnswer(tag);
    const pieces = rowPieces(serviceNames(facts.states), facts, {
      apiVersion: API_VERSION,
      kind: "ServiceRows",
    });
    return answerOf("application/json", pacedBody(pieces, rowsPace, stopping), { headers: cached(tag) });
  };

  const service: Handler = async (request, _peer, stopping) => {
    const name = queryOf(request).get("name") ?? "";
    if (name.length > LONGEST_WORD) return problemAnswer(400, "the name is too long");
    // Destinations that are not served may change without a sync.
    const unserved = proxy.unserved().reduce((sum, [, { size }]) => sum + size, 0);
    const tag = `"${version()}:${unserved}"`;
    if (request.headers.get("if-none-match") === tag) return unchangedAnswer(tag);
    return await inTurn(pace, stopping, async () => {
      const document = await (await questions()).service(held(), name);
      if (document === null) return problemAnswer(404, `there is no Service ${name} with a cluster IP`);
      return jsonAnswer(`${JSON.stringify(document)}\n`, { headers: cached(tag) });
    });
  };

  const trace: Handler = async (request, _peer, stopping) => {
    const query = queryOf(request);
    const [from, to] = [query.get("from")?.trim() ?? "", query.get("to")?.trim() ?? ""];
    if (from === "" || to === "") return problemAnswer(400, "a source and a destination are needed");
    if (from.length > LONGEST_WORD || to.length > LONGEST_WORD) {
      return problemAnswer(400, "source or destination is too long");
    }
    return await inTurn(pace, stopping, async () => {
      const document = await (await questions()).trace(held(), from, to);
      return jsonAnswer(`${JSON.stringify(document)}\n`);
    });
  };

  return new Map([[SERVICES_PATH, services], [SERVICE_PATH, service], [TRACE_PATH, trace]]);
}

async function inTurn(pace: Pace, stopping: AbortSignal, work: () => Promise<Response>): Promise<Response> {
  try {
    return await pace.take(work, stopping);
  } catch (error) {
    if (error instanceof UsageError) return problemAnswer(400, error.message);
    if (error instanceof BusyError) return problemAnswer(503, error.message);
    throw error;
  }
}

function queryOf(request: Request): URLSearchParams {
  return new URL(request.url).searchParams;
}

/** Caching headers: a browser asks each time whether it still has the answer. */
function cached(tag: string): Readonly<Record<string, string>> {
  return { etag: tag, "cache-control": "no-cache" };
}

function unchangedAnswer(tag: string): Response {
  return new Response(null, { status: 304, headers: cached(tag) });
}

function problemAnswer(status: number, error: string): Response {
  return jsonAnswer(`${JSON.stringify({ error })}\n`, {
    status,
    headers: status === 503 ? { "retry-after": "1" } : {},
  });
}
