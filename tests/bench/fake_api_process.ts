/**
 * The fake API server as a process in a network namespace, and the way to change what it serves.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import type { Change, Resource } from "./fake_api.ts";
import type { ClusterSize } from "./fake_objects.ts";

const PORT = 18080;

/** What can be changed. */
export type ChangePath = "/touch" | `/${"service" | "slice"}/${"add" | "delete"}`;

/** Lists that kproxy asks for, in pages of the size that it asks for. */
const LISTS = ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"];
const PAGE_SIZE = 500;

/** A running fake API server. */
export class FakeApi implements AsyncDisposable {
  /** What kproxy is given as `--master`. */
  readonly url = `http://127.0.0.1:${PORT}`;
  readonly #child: Deno.ChildProcess;
  readonly #client: Deno.HttpClient;

  private constructor(child: Deno.ChildProcess, socket: string) {
    this.#child = child;
    this.#client = Deno.createHttpClient({ proxy: { transport: "unix", path: socket } });
  }

  /**
   * Starts it and waits until it can be asked, and has answered every list once: others have asked the server of a cluster
   * before. `socket` is the path it makes its second listener at.
   */
  static async start(netns: Netns, size: ClusterSize, socket: string): Promise<FakeApi> {
    const script = new URL("./fake_api.ts", import.meta.url).pathname;
    const child = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", netns.name, Deno.execPath(), "run", "-q", "--no-prompt"],
        ...[
          `--allow-net=127.0.0.1:${PORT},unix:${socket}`,
          `--allow-read=${socket}`,
          `--allow-write=${socket}`,
        ],
        ...[script, String(PORT), socket, String(size.services), String(size.endpoints)],
      ],
      stdin: "null",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const reader = child.stdout.getReader();
    const { value } = await reader.read();
    await reader.cancel();
    if (value === undefined) throw new Error("The fake API server did not start");
    const api = new FakeApi(child, socket);
    for (const path of LISTS) await api.#list(path);
    return api;
  }

  async #list(path: string): Promise<void> {
    for (let next: string | undefined = ""; next !== undefined;) {
      const query: string = `limit=${PAGE_SIZE}${next === "" ? "" : `&continue=${next}`}`;
      const response: Response = await fetch(`http://api${path}?${query}`, { client: this.#client });
      const list: { metadata: { continue?: string } } = await response.json();
      next = list.metadata.continue;
    }
  }

  /** Changes the cluster. */
  async change(path: ChangePath, index: number): Promise<Change> {
    const response = await fetch(`http://api${path}?i=${index}`, { client: this.#client });
    return await response.json();
  }

  /** Makes or replaces an object by its text; removes it if that is empty. */
  async put(resource: Resource, index: number, text: string): Promise<Change> {
    const response = await fetch(`http://api/put/${resource}?i=${index}`, {
      client: this.#client,
      method: "POST",
      body: text,
    });
    return await response.json();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
    this.#child.kill("SIGKILL");
    await this.#child.status;
  }
}
