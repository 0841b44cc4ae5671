/**
 * Runs kproxy's commands inside a namespace without a process for each: for tests that run hundreds.
 *
 * @module
 */
import type { Run } from "../cli/kproxy.ts";
import { askingIn, type Netns } from "./netns.ts";
import type { ApiServer, CliCall, CliReply } from "./netns_cli_agent.ts";

/** A thread in a namespace, which runs one command at a time. */
export class NetnsCli implements Disposable {
  readonly #worker = new Worker(new URL("./netns_cli_agent.ts", import.meta.url), { type: "module" });

  private constructor(readonly netns: string) {}

  static async start(netns: Netns): Promise<NetnsCli> {
    const cli = new NetnsCli(netns.name);
    await cli.#call({ netns: netns.name });
    return cli;
  }

  /** Runs a command as `kproxy` would with these arguments. */
  async run(args: readonly string[]): Promise<Run> {
    return await this.#call({ args: askingIn(this.netns, args) });
  }

  /** Starts an API server in the namespace; yields its address. */
  async serveApi(api: ApiServer): Promise<string> {
    return (await this.#call({ api })).out;
  }

  async endApi(): Promise<void> {
    await this.#call({ api: null });
  }

  async #call(call: CliCall): Promise<Run> {
    const { promise, resolve, reject } = Promise.withResolvers<Run>();
    this.#worker.onmessage = ({ data }: MessageEvent<CliReply>) =>
      "error" in data ? reject(new Error(data.error)) : resolve(data);
    this.#worker.onerror = (event) => {
      event.preventDefault();
      reject(new Error(event.message));
    };
    this.#worker.postMessage(call);
    return await promise;
  }

  [Symbol.dispose](): void {
    this.#worker.terminate();
  }
}
