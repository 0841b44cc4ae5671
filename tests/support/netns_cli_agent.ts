/**
 * A thread in a network namespace that runs kproxy's commands there, one per call: the programs that they
 * start are in that namespace, too.
 *
 * @module
 */
import { runCli } from "../../lib/cli/cli.ts";
import { systemIo } from "../../lib/cli/io.ts";
import type { Run } from "../cli/kproxy.ts";
import { enterNetns } from "./lab_sockets.ts";
import { ListWatchServer, type RawApiObject } from "./list_watch_server.ts";

/** Calls of the thread: the first enters a namespace, later ones run commands, or an API server there. */
export type CliCall =
  | { readonly netns: string }
  | { readonly args: readonly string[] }
  /** Null: ends the server. `out` of the reply is its address. */
  | { readonly api: ApiServer | null };

/** An API server with these objects, which denies the user these rights. */
export interface ApiServer {
  readonly objects: readonly RawApiObject[];
  readonly denied: readonly string[];
}

/** Reply to each call; to the first one an empty run. */
export type CliReply = Run | { readonly error: string };

interface WorkerScope {
  onmessage: ((event: MessageEvent<CliCall>) => void) | null;
  postMessage(message: CliReply): void;
}
const scope = globalThis as unknown as WorkerScope;

const NOTHING: Run = { code: 0, out: "", err: "" };

/** Namespace of the programs that this thread starts. */
function namespaceOfPrograms(): string {
  const { stdout } = new Deno.Command("readlink", { args: ["/proc/self/ns/net"], stdin: "null" })
    .outputSync();
  return new TextDecoder().decode(stdout).trim();
}

/** @throws {Error} if programs would start in another namespace, where a test must change nothing */
function enter(netns: string): Run {
  const before = namespaceOfPrograms();
  enterNetns(netns);
  if (namespaceOfPrograms() === before) throw new Error(`programs are not in ${netns}`);
  return NOTHING;
}

async function run(args: readonly string[]): Promise<Run> {
  let [out, err] = ["", ""];
  const code = await runCli(args, {
    out: (text) => {
      out += text;
      return Promise.resolve();
    },
    err: (text) => {
      err += text;
    },
    log: systemIo.log,
    terminal: null,
    screen: null,
  });
  return { code, out, err };
}

let server: ListWatchServer | null = null;

async function serveApi(api: ApiServer | null): Promise<Run> {
  await server?.[Symbol.asyncDispose]();
  server = null;
  if (api === null) return NOTHING;
  server = new ListWatchServer();
  for (const object of api.objects) server.put(object);
  for (const right of api.denied) server.denied.add(right);
  server.clockMs = Date.now();
  return { ...NOTHING, out: server.url };
}

async function answer(call: CliCall): Promise<Run> {
  if ("netns" in call) return enter(call.netns);
  return await ("api" in call ? serveApi(call.api) : run(call.args));
}

scope.onmessage = async ({ data }) => {
  try {
    scope.postMessage(await answer(data));
  } catch (error) {
    scope.postMessage({ error: error instanceof Error ? error.message : String(error) });
  }
};
