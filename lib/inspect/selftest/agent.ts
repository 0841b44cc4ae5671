/**
 * Children that `kproxy selftest` starts inside its namespaces: how this program is started again, and what a child does. Each
 * child has one job, as JSON on its standard input: serve, send probes, or write the rules.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import { UsageError } from "../../errors.ts";
import { OWN_PROGRAMS } from "../../kernel/exec.ts";
import { joinHostPort, parseIp } from "../../model/ip.ts";
import type { IpFamily } from "../../model/objects.ts";
import type { ObjectJson } from "../../source/decode/api_json.ts";
import { createSocket } from "node:dgram";
import type { Attempt } from "./report.ts";

/** Permissions of a child: only the network, or those of `kproxy run`, without files but those of a bundle. */
export type ChildRights = "network" | "node";

/** Command that starts this program again, up to its own arguments. */
export type OwnProgram = (rights: ChildRights) => readonly string[];

const SYSTEM_FACTS = ["hostname", "cpus", "networkInterfaces", "osRelease", "uid"];

/**
 * Command of the running program.
 *
 * @param main the module that it was started with. @default {Deno.mainModule}
 */
export async function ownProgram(main: string = Deno.mainModule): Promise<OwnProgram> {
  const path = Deno.execPath();
  // A compiled program carries its permissions, which are those of `kproxy run`.
  if (Deno.build.standalone) return () => [path];
  const place = await placeOf(main);
  // `start.ts` reads the files that it loads, for which a child has no permission.
  const program = main.replace(/\/start\.ts$/, "/main.ts");
  return (rights) => [
    path,
    "run",
    "-q",
    "--no-prompt",
    "--ignore-env",
    // No module registry can be reached from inside a namespace.
    "--cached-only",
    ...place,
    "--allow-net",
    ...(rights === "network"
      ? []
      : [`--allow-run=${OWN_PROGRAMS.join(",")}`, `--allow-sys=${SYSTEM_FACTS.join(",")}`]),
    program,
  ];
}

/** Flags for the program's own files; without them the runtime looks for a configuration from the working folder on. */
async function placeOf(main: string): Promise<readonly string[]> {
  if (!main.startsWith("file:")) return [];
  const pathOf = (relative: string): string => decodeURIComponent(new URL(relative, main).pathname);
  const config = pathOf("./deno.json");
  try {
    await Deno.stat(config);
    return ["--config", config];
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  // A bundle needs no configuration, and reads its files on demand.
  return ["--no-config", `--allow-read=${pathOf(".")}`];
}

export interface TestServer {
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
}

/** Job: answers every client, until it is ended or its time is over. */
export interface ServeJob {
  readonly job: "serve";
  readonly servers: readonly TestServer[];
  /** Lifetime in milliseconds, for the case that the test ends without it. */
  readonly lifeMs: number;
}

/** Line that `serve` prints once all servers listen. */
export const READY_LINE = "ready";

export interface Question {
  readonly id: string;
  readonly protocol: "tcp" | "udp";
  readonly ip: string;
  readonly port: number;
  readonly count: number;
  readonly limitMs: number;
}

/** Job: sends questions in parallel; each opens its connections one by one, up to the first without an answer. */
export interface AskJob {
  readonly job: "ask";
  readonly questions: readonly Question[];
}

export interface AskAnswer {
  readonly attempts: Readonly<Record<string, readonly Attempt[]>>;
}

/** Job: prepares the node for a mode and writes the rules of these objects. */
export interface ApplyJob {
  readonly job: "apply";
  readonly mode: ProxyMode;
  readonly families: readonly IpFamily[];
  readonly objects: readonly ObjectJson[];
}

export interface ApplyAnswer {
  /** Mode that runs; null: none. */
  readonly mode: string | null;
  /** Families whose rules are in the kernel. */
  readonly served: readonly IpFamily[];
  /** Failures in sentences, each with its family, if it concerns one. */
  readonly failures: readonly { readonly family: IpFamily | null; readonly message: string }[];
  /** Families that this mode cannot serve here. */
  readonly refused: readonly { readonly family: IpFamily; readonly reason: string }[];
}

export type Job = ServeJob | AskJob | ApplyJob;

/**
 * Runs a child: reads its job, does it, and prints the result.
 *
 * @throws {UsageError} without a job: it was started by hand
 */
export async function runAgent(
  input: ReadableStream<Uint8Array<ArrayBuffer>>,
  print: (text: string) => Promise<void>,
): Promise<number> {
  const job = jobOf(await new Response(input).text());
  if (job.job === "serve") {
    await serve(job);
    return 0;
  }
  // Modules that write rules are only loaded by the child that needs them.
  const answer = job.job === "ask" ? await ask(job) : await (await import("./apply.ts")).apply(job);
  await print(`${JSON.stringify(answer)}\n`);
  return 0;
}

function jobOf(text: string): Job {
  try {
    const job = JSON.parse(text) as Job | null;
    if (job?.job === "serve" || job?.job === "ask" || job?.job === "apply") return job;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new UsageError(
    '"kproxy selftest agent" is what kproxy selftest starts itself; there is no job for it here',
  );
}

/** Interval at which `serve` checks that the test still reads its output. */
const PULSE_MS = 1_000;

/** Answers with its own address and the client's, until its time is over or the test is gone. */
async function serve({ servers, lifeMs }: ServeJob): Promise<void> {
  await Promise.all(servers.map((server) => server.protocol === "tcp" ? serveTcp(server) : serveUdp(server)));
  const endMs = performance.now() + lifeMs;
  const encoder = new TextEncoder();
  for (let text = `${READY_LINE}\n`; performance.now() < endMs; text = "\n") {
    try {
      await Deno.stdout.write(encoder.encode(text));
    } catch (error) {
      // The test that started the child is gone.
      if (error instanceof Deno.errors.BrokenPipe) return;
      throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, PULSE_MS));
  }
}

function answer({ ip, port }: TestServer, client: string): string {
  return `${joinHostPort(ip, port)} ${parseIp(client)?.text ?? client}\n`;
}

function serveTcp(server: TestServer): void {
  const listener = Deno.listen({ hostname: server.ip, port: server.port });
  void (async () => {
    for await (const connection of listener) {
      void connection.write(new TextEncoder().encode(answer(server, connection.remoteAddr.hostname)))
        // A client that is gone needs no answer.
        .catch((error) => void error)
        .finally(() => connection.close());
    }
  })();
}

function serveUdp(server: TestServer): Promise<void> {
  const socket = createSocket(server.ip.includes(":") ? "udp6" : "udp4");
  socket.on("message", (_, from) => socket.send(answer(server, from.address), from.port, from.address));
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.bind(server.port, server.ip, resolve);
  });
}

const MAX_ANSWER_BYTES = 512;

async function ask({ questions }: AskJob): Promise<AskAnswer> {
  const entries = await Promise.all(
    questions.map(async (question) => [question.id, await askAgain(question)] as const),
  );
  return { attempts: Object.fromEntries(entries) };
}

/** Repeats a question up to the first connection without an answer: further ones would only cost time. */
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
