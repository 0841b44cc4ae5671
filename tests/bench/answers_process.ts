/**
 * Whether Services answer: real connections in a network namespace, to sample Services of the cluster.
 *
 * @module
 */
import { signalChild } from "../../tools/end_programs.ts";
import type { Netns } from "../support/netns.ts";
import type { Sample } from "./answers.ts";
import { clusterIp, type ClusterSize, ENDPOINT_PORT, endpointIp, SERVICE_PORT } from "./fake_objects.ts";
import { LineReader } from "./line_reader.ts";

/** How many Services are asked, the first and the last one among them. */
const SAMPLES = 24;
/** Of the node; also where connections come from. */
const NODE_IP = "10.200.0.1";

/**
 * Makes every address of an endpoint one of the namespace, so that something can answer there, and every address of a Service one where
 * nothing listens: without a rule that leads to an endpoint, a connection is refused at once.
 */
export async function prepareAnswers(netns: Netns): Promise<void> {
  await netns.run(["ip", "addr", "add", `${NODE_IP}/32`, "dev", "lo"]);
  await netns.run(["ip", "route", "add", "local", "10.128.0.0/9", "dev", "lo"]);
  await netns.run(["ip", "route", "add", "local", "10.96.0.0/11", "dev", "lo", "src", NODE_IP]);
}

/** Numbers of the sample Services, spread evenly over all. */
function sampleIndexes(services: number): number[] {
  const count = Math.min(SAMPLES, services);
  return Array.from({ length: count }, (_, k) => Math.round(k * (services - 1) / Math.max(1, count - 1)));
}

function samplesOf(size: ClusterSize): Sample[] {
  return sampleIndexes(size.services).map((index) => ({
    ip: clusterIp(index),
    port: SERVICE_PORT,
    endpoints: Array.from(
      { length: size.endpoints },
      (_, endpoint) => endpointIp(index, endpoint, size, false),
    ),
  }));
}

/** What answers and asks in one namespace. */
export class Answers implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #lines: LineReader;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#lines = new LineReader(child.stdout);
  }

  /** Starts it in a namespace that {@linkcode prepareAnswers} has prepared. */
  static async start(netns: Netns): Promise<Answers> {
    const script = new URL("./answers.ts", import.meta.url).pathname;
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt", "--allow-net"],
        ...[script, String(ENDPOINT_PORT)],
      ],
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const answers = new Answers(child);
    if (await answers.#lines.next() === null) throw new Error("Nothing answers in the namespace");
    return answers;
  }

  /**
   * Resolves once every sample Service of the cluster has answered, with the time of that in milliseconds since the epoch.
   *
   * @throws {Error} if one leads to somewhere else, or this is disposed of before
   */
  async all(size: ClusterSize): Promise<number> {
    const writer = this.#child.stdin.getWriter();
    await writer.write(new TextEncoder().encode(`${JSON.stringify(samplesOf(size))}\n`));
    writer.releaseLock();
    const line = await this.#lines.next();
    if (line === null) throw new Error("The sample Services did not answer");
    return JSON.parse(line);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    signalChild(this.#child);
    await this.#child.status;
    await this.#child.stdin.close().catch(() => undefined);
    await this.#lines.cancel();
  }
}
