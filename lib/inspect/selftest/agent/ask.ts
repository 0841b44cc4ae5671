/**
 * Asks servers through Services, from inside a namespace.
 *
 * @module
 */
import { createSocket } from "node:dgram";
import type { Attempt } from "../judge.ts";
import type { AskAnswer, AskJob, Question } from "./jobs.ts";

/** Nobody says more. */
const MAX_ANSWER_BYTES = 512;

export async function ask({ questions }: AskJob): Promise<AskAnswer> {
  const entries = await Promise.all(
    questions.map(async (question) => [question.id, await askAgain(question)] as const),
  );
  return { attempts: Object.fromEntries(entries) };
}

/** What is not answered once will not be, and the rest would only cost time. */
async function askAgain(question: Question): Promise<readonly Attempt[]> {
  const attempts: Attempt[] = [];
  while (attempts.length < question.count) {
    const attempt = await (question.protocol === "tcp" ? askTcp(question) : askUdp(question));
    attempts.push(attempt);
    if (attempt.kind === "silence" || attempt.kind === "error") break;
  }
  return attempts;
}

async function askTcp({ ip, port, limitMs }: Question): Promise<Attempt> {
  const signal = AbortSignal.timeout(limitMs);
  try {
    using connection = await Deno.connect({ hostname: ip, port, signal });
    const close = (): void => connection.close();
    signal.addEventListener("abort", close, { once: true });
    const bytes = new Uint8Array(MAX_ANSWER_BYTES);
    const count = await connection.read(bytes);
    signal.removeEventListener("abort", close);
    return answerOf(new TextDecoder().decode(bytes.subarray(0, count ?? 0)));
  } catch (error) {
    if (signal.aborted) return { kind: "silence" };
    return failureOf(error);
  }
}

function askUdp({ ip, port, limitMs }: Question): Promise<Attempt> {
  return new Promise((resolve) => {
    const socket = createSocket(ip.includes(":") ? "udp6" : "udp4");
    const end = (attempt: Attempt): void => {
      clearTimeout(timer);
      socket.removeAllListeners();
      socket.close();
      resolve(attempt);
    };
    const timer = setTimeout(() => end({ kind: "silence" }), limitMs);
    socket.on("error", (error: Error) => end(failureOf(error)));
    socket.on("message", (bytes: Uint8Array) => end(answerOf(new TextDecoder().decode(bytes))));
    socket.send("?", port, ip, (error: Error | null) => {
      if (error !== null && error !== undefined) end(failureOf(error));
    });
  });
}

function answerOf(text: string): Attempt {
  const [server, client] = text.trim().split(" ");
  if (server === undefined || client === undefined) {
    return { kind: "error", message: `a stranger answered: ${JSON.stringify(text)}` };
  }
  return { kind: "answer", server, client };
}

function failureOf(error: unknown): Attempt {
  const code = (error as { code?: unknown }).code;
  if (error instanceof Deno.errors.ConnectionRefused || code === "ECONNREFUSED") return { kind: "refused" };
  return { kind: "error", message: error instanceof Error ? error.message : String(error) };
}
