/**
 * Lets programs in a namespace reach a server of the machine at its own address, 127.0.0.1 and a port.
 *
 * @module
 */
import type { Netns } from "./netns.ts";

/** Forwards one port from a namespace's loopback to the machine's. */
export class LabGateway implements Disposable {
  readonly #worker: Worker;

  private constructor(worker: Worker) {
    this.#worker = worker;
  }

  static async open(netns: Netns, port: number): Promise<LabGateway> {
    const worker = new Worker(new URL("./lab_gateway_thread.ts", import.meta.url), { type: "module" });
    const { error } = await new Promise<{ error?: string }>((resolve) => {
      worker.onmessage = ({ data }: MessageEvent<{ error?: string }>) => resolve(data);
      worker.onerror = (event) => {
        event.preventDefault();
        resolve({ error: event.message });
      };
      worker.postMessage({ netns: netns.name, port });
    });
    if (error === undefined) return new LabGateway(worker);
    worker.terminate();
    throw new Error(`No way from ${netns.name} to port ${port}: ${error}`);
  }

  [Symbol.dispose](): void {
    this.#worker.terminate();
  }
}
