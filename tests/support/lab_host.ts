/**
 * One network namespace of a lab, with its agent.
 *
 * @module
 */
import type { AgentCall, AgentMethods, AgentReply, ProbeRequest, ProbeResult } from "./lab_probe.ts";
import type { Netns } from "./netns.ts";

type Method = keyof AgentMethods;
type Result<M extends Method> = Awaited<ReturnType<AgentMethods[M]>>;

/** See `AgentMethods.enter`. */
const SHARED = new Int32Array(new SharedArrayBuffer(8));

/** A thread inside a namespace, and its pending calls. */
class Agent implements Disposable {
  readonly #worker = new Worker(new URL("./lab_agent.ts", import.meta.url), { type: "module" });
  readonly #waiting = new Map<number, (reply: AgentReply) => void>();
  #nextId = 0;

  constructor(readonly label: string) {
    this.#worker.onmessage = ({ data }: MessageEvent<AgentReply>) => {
      this.#waiting.get(data.id)?.(data);
      this.#waiting.delete(data.id);
    };
    this.#worker.onerror = (event) => {
      event.preventDefault();
      for (const [id, settle] of this.#waiting) settle({ id, error: event.message });
      this.#waiting.clear();
    };
  }

  async call<M extends Method>(method: M, ...args: Parameters<AgentMethods[M]>): Promise<Result<M>> {
    const id = this.#nextId++;
    const reply = await new Promise<AgentReply>((resolve) => {
      this.#waiting.set(id, resolve);
      const call: AgentCall = { id, method, args };
      this.#worker.postMessage(call);
    });
    if (reply.error !== undefined) throw new Error(`${this.label}: ${method}: ${reply.error}`);
    return reply.result as Result<M>;
  }

  [Symbol.dispose](): void {
    this.#worker.terminate();
  }
}

/** A namespace with servers, clients and connect loops. */
export class LabHost implements Disposable {
  readonly #agent: Agent;

  private constructor(readonly netns: Netns, agent: Agent) {
    this.#agent = agent;
  }

  /** @param label name of its servers */
  static async start(netns: Netns, label: string): Promise<LabHost> {
    const agent = new Agent(label);
    await agent.call("enter", netns.name, label, SHARED);
    return new LabHost(netns, agent);
  }

  get label(): string {
    return this.#agent.label;
  }

  /** Calls a method of its agent. */
  call<M extends Method>(method: M, ...args: Parameters<AgentMethods[M]>): Promise<Result<M>> {
    return this.#agent.call(method, ...args);
  }

  /** One or more requests, each of at most 5 s by default. */
  probe(request: Omit<ProbeRequest, "timeoutMs" | "count"> & Partial<ProbeRequest>): Promise<ProbeResult[]> {
    return this.call("probe", { timeoutMs: 5_000, count: 1, ...request });
  }

  [Symbol.dispose](): void {
    this.#agent[Symbol.dispose]();
  }
}
