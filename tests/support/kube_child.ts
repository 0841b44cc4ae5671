/**
 * Runs the API server source as a separate program, under exactly kproxy's permissions.
 *
 * @module
 */
import { assertMatch } from "@std/assert";
import { signalChild } from "../../tools/end_programs.ts";
import { permissionFlags } from "../../tools/permissions.ts";
import { eventually } from "./until.ts";

/** The running program. */
export interface KubeChild extends AsyncDisposable {
  /** Log lines so far. */
  log(): string;
  /** Resolves when delivered events or log lines match. */
  until(pattern: RegExp, timeoutMs?: number): Promise<void>;
}

/** Options of {@linkcode startKubeChild}. */
export interface KubeChildOptions {
  readonly kubeconfig?: string;
  readonly master?: string;
  /** Added to the environment, from which proxy variables are removed first. */
  readonly env?: Readonly<Record<string, string>>;
  /** Permission flags beyond kproxy's. */
  readonly flags?: readonly string[];
}

const PROGRAM = new URL("kube_source_child.ts", import.meta.url).pathname;
const CONFIG = new URL("../../deno.json", import.meta.url).pathname;
const PROXIES = [
  "HTTPS_PROXY",
  "HTTP_PROXY",
  "NO_PROXY",
  "https_proxy",
  "http_proxy",
  "no_proxy",
  "ALL_PROXY",
];

/** See the module. */
export function startKubeChild(
  { kubeconfig = "", master = "", env = {}, flags = [] }: KubeChildOptions,
): KubeChild {
  const cleared = Object.fromEntries(PROXIES.map((name) => [name, ""]));
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--config", CONFIG, ...permissionFlags(), ...flags, PROGRAM, kubeconfig, master],
    // Once a day the runtime itself checks for newer versions, also through proxies.
    env: { ...cleared, DENO_NO_UPDATE_CHECK: "1", ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let output = "";
  let log = "";
  const reading = Promise.all([
    collect(child.stdout, (text) => output += text),
    collect(child.stderr, (text) => log += text),
  ]);
  return {
    log: () => log,
    async until(pattern, timeoutMs = 300_000) {
      await eventually(() => assertMatch(output + log, pattern), { limitMs: timeoutMs });
    },
    async [Symbol.asyncDispose]() {
      signalChild(child);
      await child.status;
      await reading;
    },
  };
}

async function collect(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  take: (text: string) => void,
): Promise<void> {
  for await (const text of stream.pipeThrough(new TextDecoderStream())) take(text);
}
