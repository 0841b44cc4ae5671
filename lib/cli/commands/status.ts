/**
 * `kproxy status`: the state of the kproxy that runs on this node.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { answerOf, NotRunningError } from "../../inspect/running/running.ts";
import { type Clock, systemClock } from "../../kernel/clock.ts";
import { joinHostPort, localHost, splitHostPort } from "../../model/ip.ts";
import {
  addressHolder,
  httpGet,
  NoConnectionError,
  StrangeAnswerError,
  textOf,
} from "../../serve/http_get.ts";
import { API_VERSION, type StatusDocument } from "../../serve/status/status_document.ts";
import { UsageError } from "../../errors.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { EndedBySignals, type Io, printableJson, type Terminal } from "../io.ts";
import { cut, escaped } from "../../text/quote.ts";
import { RedrawnScreen } from "../terminal/drawing.ts";
import { isWell, statusLines } from "./status_text.ts";
import { configurationWithWarnings } from "./output.ts";

const LEAST_INTERVAL_MS = 100;
const USUAL_INTERVAL_MS = 2_000;

/** Asks and reports; 0 if kproxy is ready, 1 if it is not or does not answer. */
export async function statusCommand(flags: ParsedFlags, io: Io): Promise<number> {
  const form = flags.outputForm("text");
  const intervalMs = flags.get("interval") ?? USUAL_INTERVAL_MS;
  const isWatching = flags.get("watch") === true;
  if (intervalMs < LEAST_INTERVAL_MS) throw new UsageError("--interval is too short: 100ms is the least");
  if (flags.get("interval") !== undefined && !isWatching) throw new UsageError("--interval needs --watch");
  const { config } = await configurationWithWarnings(flags, io);
  const ask = (): Promise<Answer> => answerOf(config, (running) => running.status());
  if (!isWatching) return await reportOnce(ask, form, io, () => othersWords(config));
  using end = new EndedBySignals(["SIGINT", "SIGTERM"]);
  await watchStatus({ ask, form, io, intervalMs, clock: systemClock, signal: end.signal });
  return 0;
}

/** Status of the running kproxy, or the reason why there is none. */
export type Answer = StatusDocument | NotRunningError;

async function reportOnce(
  ask: () => Promise<Answer>,
  form: "text" | "json",
  io: Io,
  askOthers: () => Promise<readonly string[]>,
): Promise<number> {
  const answer = await ask();
  if (form === "json") await io.out(`${printableJson(jsonOf(answer))}\n`);
  else if (answer instanceof NotRunningError) {
    io.err(`Error: ${escaped(answer.message)}\n`);
    for (const words of await askOthers()) io.err(`${escaped(words)}\n`);
  } else await io.out(`${statusLines(answer).join("\n")}\n`);
  return !(answer instanceof NotRunningError) && isWell(answer) ? 0 : 1;
}

/** Options of {@linkcode watchStatus}. */
export interface WatchOptions {
  readonly ask: () => Promise<Answer>;
  readonly form: "text" | "json";
  readonly io: Pick<Io, "out" | "screen">;
  readonly intervalMs: number;
  readonly clock: Clock;
  /** Ends the watch. */
  readonly signal: AbortSignal;
}

/** Reports repeatedly: text on a terminal in the same place, everything else one after the other, documents a line each. */
export async function watchStatus({ ask, form, io, intervalMs, clock, signal }: WatchOptions): Promise<void> {
  const terminal: Terminal | null = form === "text" ? io.screen ?? null : null;
  let last: readonly string[] = [];
  {
    using screen = terminal === null ? null : new RedrawnScreen(terminal);
    for (let isFirst = true; !signal.aborted; isFirst = false) {
      const answer = await ask();
      last = linesOf(answer);
      if (screen !== null) screen.show(last);
      else if (form === "json") await io.out(`${printableJson(jsonOf(answer), 0)}\n`);
      else await io.out(`${isFirst ? "" : "\n"}${last.join("\n")}\n`);
      await clock.sleep(intervalMs, signal);
    }
  }
  // The last answer stays to be read.
  if (terminal !== null && last.length > 0) await io.out(`${last.join("\n")}\n`);
}

const HEALTH_LIMIT_MS = 1_000;
const MAX_HEALTH_BYTES = 64 * 1024;
/** Characters of the answer that are shown: it is one line, and may be any user's. */
const MAX_HEALTH_WORDS = 200;

/** Programs that answer at a service proxy's ports, where its socket does not. Any user may own them: only a hint for people. */
async function othersWords(
  { metricsBindAddress, healthzBindAddress }: KubeProxyConfiguration,
): Promise<readonly string[]> {
  const words = await Promise.all([holderWords(metricsBindAddress), healthWords(healthzBindAddress)]);
  return words.filter((text) => text !== "");
}

async function holderWords(metricsBindAddress: string): Promise<string> {
  if (metricsBindAddress === "") return "";
  const [host, port] = splitHostPort(metricsBindAddress);
  const holder = await addressHolder({ host, port, signal: new AbortController().signal });
  return holder === "" ? "" : `On ${metricsBindAddress} ${holder}; who it is cannot be checked there`;
}

/** Line about the readiness that the health server reports; `""`: no answer. */
async function healthWords(healthzBindAddress: string): Promise<string> {
  if (healthzBindAddress === "") return "";
  const [bound, port] = splitHostPort(healthzBindAddress);
  const host = localHost(bound);
  const limits = { limitMs: HEALTH_LIMIT_MS, wholeMs: 2 * HEALTH_LIMIT_MS, maxBytes: MAX_HEALTH_BYTES };
  try {
    return await httpGet({ host, port, path: "/readyz", ...limits }, async (reply) => {
      const text = cut((await textOf(reply)).trim(), MAX_HEALTH_WORDS);
      return `The health server on ${joinHostPort(host, port)} answers with status ${reply.status}: ${text}`;
    });
  } catch (error) {
    if (error instanceof NoConnectionError || error instanceof StrangeAnswerError) return "";
    throw error;
  }
}

function linesOf(answer: Answer): readonly string[] {
  return answer instanceof NotRunningError ? [escaped(answer.message)] : statusLines(answer);
}

/** For programs: the document, or one that says why there is none. */
function jsonOf(answer: Answer): unknown {
  if (!(answer instanceof NotRunningError)) return answer;
  const { reason, message } = answer;
  return { apiVersion: API_VERSION, kind: "NotRunning", reason, message };
}
