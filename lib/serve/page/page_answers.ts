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

/** No name, address or port is longer. */
const LONGEST_WORD = 600;
/** Most requests that may wait; further ones are refused. */
const MOST_WAITING = 8;

/** Handlers by path. */
export function pageAnswers(
  proxy: ProxyFacts,
  server: ServerFacts,
  page: PageFacts,
): ReadonlyMap<string, Handler> {
  const answers = new PageAnswers(proxy, server, page);
  return new Map<string, Handler>([
    [SERVICES_PATH, (request, _peer, stopping) => answers.services(request, stopping)],
    [SERVICE_PATH, (request, _peer, stopping) => answers.service(request, stopping)],
    [TRACE_PATH, (request, _peer, stopping) => answers.trace(request, stopping)],
  ]);
}

class PageAnswers {
  readonly #proxy: ProxyFacts;
  readonly #server: ServerFacts;
  readonly #page: PageFacts;
  /** Id of this proxy server; generations start again with the next one. */
  readonly #id: string;
  readonly #rowsPace = new Pace();
  readonly #pace = new Pace({ mostWaiting: MOST_WAITING });
  #loaded: Promise<Questions> | null = null;

  constructor(proxy: ProxyFacts, server: ServerFacts, page: PageFacts) {
    this.#proxy = proxy;
    this.#server = server;
    this.#page = page;
    this.#id = `${Deno.pid}-${Math.round(server.servingSinceMs)}`;
  }

  services(request: Request, stopping: AbortSignal): Response {
    const { record } = this.#proxy;
    const facts = { states: [...record.states.values()], quarantined: record.quarantined };
    const tag = `"${this.#version}"`;
    if (request.headers.get("if-none-match") === tag) return unchangedAnswer(tag);
    const head = { apiVersion: API_VERSION, kind: "ServiceRows" } as const;
    const pieces = rowPieces(serviceNames(facts.states), facts, head);
    return answerOf("application/json", pacedBody(pieces, this.#rowsPace, stopping), {
      headers: cached(tag),
    });
  }

  async service(request: Request, stopping: AbortSignal): Promise<Response> {
    const name = queryOf(request).get("name") ?? "";
    if (name.length > LONGEST_WORD) return problemAnswer(400, "the name is too long");
    // Destinations that are not served may change without a sync.
    const unserved = this.#proxy.unserved().reduce((sum, [, { size }]) => sum + size, 0);
    const tag = `"${this.#version}:${unserved}"`;
    if (request.headers.get("if-none-match") === tag) return unchangedAnswer(tag);
    return await this.#inTurn(stopping, async () => {
      const { service } = await this.#questions();
      const document = await service(this.#held(), name);
      if (document === null) return problemAnswer(404, `there is no Service ${name} with a cluster IP`);
      return jsonAnswer(`${JSON.stringify(document)}\n`, {
        headers: cached(tag),
      });
    });
  }

  async trace(request: Request, stopping: AbortSignal): Promise<Response> {
    const query = queryOf(request);
    const [from, to] = [query.get("from")?.trim() ?? "", query.get("to")?.trim() ?? ""];
    if (from === "" || to === "") return problemAnswer(400, "a source and a destination are needed");
    if (from.length > LONGEST_WORD || to.length > LONGEST_WORD) {
      return problemAnswer(400, "source or destination is too long");
    }
    return await this.#inTurn(stopping, async () => {
      const { trace } = await this.#questions();
      return jsonAnswer(`${JSON.stringify(await trace(this.#held(), from, to))}\n`);
    });
  }

  /** Version of the page's data; it changes whenever Services may look different. */
  get #version(): string {
    return `${this.#id}:${this.#proxy.record.generation}`;
  }

  #questions(): Promise<Questions> {
    return this.#loaded ??= this.#page.questions();
  }

  #held(): Held {
    const { record } = this.#proxy;
    const { node, serviceCidrs } = this.#page;
    const { mode, config } = this.#server;
    return {
      states: record.states,
      quarantined: record.quarantined,
      mode,
      config: config(),
      nodeName: this.#proxy.node,
      node: node(),
      serviceCidrs: serviceCidrs(),
      addresses: interfaceAddresses(),
      unserved: this.#proxy.unserved(),
      portals: this.#proxy.portals?.() ?? null,
    };
  }

  async #inTurn(stopping: AbortSignal, work: () => Promise<Response>): Promise<Response> {
    try {
      return await this.#pace.take(work, stopping);
    } catch (error) {
      if (error instanceof UsageError) return problemAnswer(400, error.message);
      if (error instanceof BusyError) return problemAnswer(503, error.message);
      throw error;
    }
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
