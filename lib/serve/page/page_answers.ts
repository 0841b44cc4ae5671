/**
 * What the status page gets beside the status: the list of Services, one Service, the path of a packet.
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
import { SERVICE_PATH, SERVICES_PATH, type ServicesDocument, TRACE_PATH } from "./page_document.ts";
import type { Held, PageFacts, Questions } from "./page_record.ts";
import { rowPieces, serviceNames, serviceRow } from "./service_rows.ts";

/** No name, address or port is longer. */
const LONGEST_WORD = 600;
/** So many questions may wait; further ones are refused. */
const MOST_WAITING = 8;

/** The answers, by path. */
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
  /** Of this proxy server; generations and ids start again with the next one. */
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
    const { record } = this.#page;
    const facts = { states: [...record.states.values()], quarantined: record.quarantined };
    const since = queryOf(request).get("since") ?? "";
    const head = { apiVersion: API_VERSION, kind: "ServiceRows", cursor: this.#cursor } as const;
    const changed = since.startsWith(`${this.#id}:`)
      ? record.changedSince(Number(since.slice(this.#id.length + 1)))
      : null;
    if (changed === null) {
      const pieces = rowPieces(serviceNames(facts.states), facts, { ...head, full: true });
      return answerOf("application/json", pacedBody(pieces, this.#rowsPace, stopping));
    }
    const looked = [...changed].map((name) => [name, serviceRow(name, facts)] as const);
    const document: ServicesDocument = {
      ...head,
      full: false,
      rows: looked.flatMap(([, row]) => row === null ? [] : [row]),
      gone: looked.flatMap(([name, row]) => row === null ? [name] : []),
    };
    return jsonAnswer(`${JSON.stringify(document)}\n`);
  }

  async service(request: Request, stopping: AbortSignal): Promise<Response> {
    const name = queryOf(request).get("name") ?? "";
    if (name.length > LONGEST_WORD) return problemAnswer(400, "the name is too long");
    // What is not served may change without a sync.
    const unserved = this.#proxy.unserved().reduce((sum, [, { size }]) => sum + size, 0);
    const tag = `"${this.#cursor}:${unserved}"`;
    if (request.headers.get("if-none-match") === tag) return unchangedAnswer(tag);
    return await this.#inTurn(stopping, async () => {
      const { service } = await this.#questions();
      const document = await service(this.#held(), name);
      if (document === null) return problemAnswer(404, `there is no Service ${name} with a cluster IP`);
      return jsonAnswer(`${JSON.stringify(document)}\n`, {
        headers: { etag: tag, "cache-control": "no-cache" },
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

  get #cursor(): string {
    return `${this.#id}:${this.#page.record.generation}`;
  }

  #questions(): Promise<Questions> {
    return this.#loaded ??= this.#page.questions();
  }

  #held(): Held {
    const { record, node, serviceCidrs } = this.#page;
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

function unchangedAnswer(tag: string): Response {
  return new Response(null, { status: 304, headers: { etag: tag, "cache-control": "no-cache" } });
}

function problemAnswer(status: number, error: string): Response {
  return jsonAnswer(`${JSON.stringify({ error })}\n`, {
    status,
    headers: status === 503 ? { "retry-after": "1" } : {},
  });
}
