/**
 * kproxy as the demo runs it: the program users run, with exactly its permissions, in the node's namespace.
 *
 * @module
 */
import { runtimeFlags } from "../permissions.ts";
import { ROOT } from "../project_files.ts";
import type { Child } from "./child.ts";
import type { World } from "./world.ts";

/** One log line. */
export interface LogLine {
  readonly msg: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The first sync of one IP family, as kproxy logs it. */
export interface FirstSync {
  readonly family: string;
  readonly rules: number;
  readonly took: string;
}

/** The command line of kproxy, as `deno task kproxy` has it. */
export function kproxyArgv(...args: readonly string[]): string[] {
  const runtime = [Deno.execPath(), "run", "-q", "--config", `${ROOT}/deno.json`, ...runtimeFlags()];
  return [...runtime, `${ROOT}/main.ts`, ...args];
}

/** A running `kproxy run`. */
export class KproxyProcess {
  readonly startedMs: number;
  readonly #child: Child;
  readonly #log: LogLine[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(world: World, args: readonly string[]) {
    this.startedMs = Date.now();
    this.#child = world.start("node", {
      name: "kproxy",
      // The default one is that of the machine's own kproxy.
      argv: kproxyArgv("run", "--socket=", ...args, "--logging-format", "json", "-v", "2"),
      onErrorLine: (line) => this.#take(line),
      showErrorLine: readableLine,
    });
  }

  /** The first sync of a family; resolves once it is done. */
  async firstSync(family: string): Promise<FirstSync> {
    const { fields } = await this.#when((line) =>
      line.msg.startsWith("First sync done") && line.fields.family === family
    );
    return { family, rules: Number(fields.rules), took: String(fields.took) };
  }

  /** The variant of iptables it has chosen, with its reason. */
  async variant(): Promise<string> {
    const { fields } = await this.#when((line) => line.msg === "Using iptables");
    return `${fields.variant} (${fields.reason})`;
  }

  /** Ends it as a node does when it stops a service. */
  stop(): Promise<Deno.CommandStatus> {
    return this.#child.stop("SIGTERM");
  }

  #when(matches: (line: LogLine) => boolean): Promise<LogLine> {
    return new Promise((resolve) => {
      const look = (): void => {
        const line = this.#log.find(matches);
        if (line === undefined) return;
        this.#waiting.delete(look);
        resolve(line);
      };
      this.#waiting.add(look);
      look();
    });
  }

  #take(line: string): void {
    const parsed = parseLogLine(line);
    if (parsed === undefined) return;
    this.#log.push(parsed);
    for (const look of [...this.#waiting]) look();
  }
}

/** Undefined for what is no log line: the runtime's own words. */
function parseLogLine(line: string): LogLine | undefined {
  if (!line.startsWith("{")) return undefined;
  const fields: Record<string, unknown> = JSON.parse(line);
  return { msg: String(fields.msg), fields };
}

function readableLine(line: string): string {
  const parsed = parseLogLine(line);
  if (parsed === undefined) return line;
  const values = Object.entries(parsed.fields).filter(([key]) => !["ts", "caller", "msg", "v"].includes(key));
  return [parsed.msg, ...values.map(([key, value]) => `${key}=${JSON.stringify(value)}`)].join(" ");
}
