/**
 * Asks the API server what a start would: whether it answers, what it grants, what it says of this node, and what time it is.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../../config/types.ts";
import { systemClock, wallClockMs } from "../../../kernel/clock.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { NodeObject } from "../../../model/objects.ts";
import { decodeNode } from "../../../source/decode/decode.ts";
import { apiAccess } from "../../../source/kube/kube_access.ts";
import { readRefusal, readText } from "../../../source/kube/kube_answer.ts";
import { KubeClient } from "../../../source/kube/kube_http.ts";
import { isRecord } from "../../../text/record.ts";
import { USER_AGENT } from "../../../node/version.ts";
import type { ApiRight } from "../api_rights.ts";
import { type Fact, type FactLimit, readFact } from "../fact.ts";

/** What the server answered with. */
export interface ApiFacts {
  readonly server: string;
  /** Where the access comes from, e.g. the path of the kubeconfig. */
  readonly origin: string;
  /** What it says of its version; unread if it does not answer. */
  readonly version: Fact<string>;
  /** How far this machine's clock is ahead of the server's, in milliseconds; null if it tells no time. */
  readonly aheadMs: Fact<number | null>;
  readonly rights: readonly { readonly right: ApiRight; readonly isAllowed: Fact<boolean> }[];
  /** Null if there is no Node of the name. */
  readonly node: Fact<NodeObject | null>;
  /** The Nodes that have one of this machine's addresses, if there is none of the name. */
  readonly namesakes: readonly string[];
  /** The pod CIDRs of all Nodes, up to 500 of them; empty if `clusterCIDR` is set or not what tells local traffic apart. */
  readonly podCIDRs: Fact<readonly string[]>;
}

/** What the readers of the API server are given. */
export interface ApiQuestions {
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  readonly nodeName: string;
  readonly ownIps: readonly string[];
  readonly rights: readonly ApiRight[];
  /** Starts credential plugins. */
  readonly exec: Exec;
}

interface Answer {
  readonly text: string;
  readonly date: string;
  /** The middle of the time in which it was made, by this machine's clock. */
  readonly atMs: number;
}

/** @throws {ConfigError} if it cannot be told which server, or the credentials cannot be had */
export async function readApi(
  { config, master, nodeName, ownIps, rights, exec }: ApiQuestions,
  limit: FactLimit,
): Promise<ApiFacts> {
  const { signal } = limit;
  const access = await apiAccess({ kubeconfig: config.clientConnection.kubeconfig, master, env: Deno.env });
  const client = new KubeClient({
    access,
    qps: 0,
    burst: 0,
    userAgent: USER_AGENT,
    clock: systemClock,
    exec,
  });
  try {
    await client.checkCredentials(signal);
    const asks = new ApiAsks(client, signal);
    const version = readFact(() => asks.get("/version"), limit);
    const isCidrMissing = config.detectLocalMode === "ClusterCIDR" && config.clusterCIDR.trim() === "";
    const [answered, node, podCIDRs, ...allowed] = await Promise.all([
      version,
      readFact(() => asks.node(nodeName), limit),
      readFact(() => isCidrMissing ? asks.podCidrs() : Promise.resolve([]), limit),
      ...rights.map((right) => readFact(() => asks.mayI(right), limit)),
    ]);
    const isUnknown = "value" in node && node.value === null;
    const namesakes = isUnknown ? await readFact(() => asks.nodesWith(ownIps), limit) : { value: [] };
    return {
      server: client.server,
      origin: access.origin,
      version: "value" in answered ? { value: versionText(answered.value.text) } : answered,
      aheadMs: "value" in answered ? { value: aheadMs(answered.value) } : answered,
      rights: rights.map((right, index) => ({ right, isAllowed: allowed[index] ?? NEVER_ASKED })),
      node,
      namesakes: "value" in namesakes ? namesakes.value : [],
      podCIDRs,
    };
  } finally {
    client.close();
  }
}

const NEVER_ASKED: Fact<boolean> = { unread: "nobody asked" };
/** All Nodes of a large cluster are some tens of megabytes, which is too much for a hint. */
const MOST_NODES = 500;

/** The questions, one request each. */
class ApiAsks {
  readonly #client: KubeClient;
  readonly #signal: AbortSignal;

  constructor(client: KubeClient, signal: AbortSignal) {
    this.#client = client;
    this.#signal = signal;
  }

  async get(path: string): Promise<Answer> {
    const startMs = wallClockMs();
    const answer = await this.#client.get(path, this.#signal, { paced: false });
    const atMs = (startMs + wallClockMs()) / 2;
    const text = await this.#textOf(`GET ${path}`, answer);
    return { text, date: answer.date ?? "", atMs };
  }

  async mayI({ verb, group, resource, name }: ApiRight): Promise<boolean> {
    const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const attributes = { verb, group, resource, ...(name === "" ? {} : { name }) };
    const answer = await this.#client.send({
      method: "POST",
      path,
      contentType: "application/json",
      body: JSON.stringify({
        apiVersion: "authorization.k8s.io/v1",
        kind: "SelfSubjectAccessReview",
        spec: { resourceAttributes: attributes },
      }),
    }, this.#signal);
    const review: unknown = JSON.parse(await this.#textOf(`POST ${path}`, answer));
    const allowed = fieldOf(fieldOf(review, "status"), "allowed");
    if (typeof allowed !== "boolean") throw new SyntaxError("the answer says neither yes nor no");
    return allowed;
  }

  async node(name: string): Promise<NodeObject | null> {
    const fields = encodeURIComponent(`metadata.name=${name}`);
    const items = itemsOf((await this.get(`/api/v1/nodes?fieldSelector=${fields}`)).text);
    return items.length === 0 ? null : decodeNode(items[0]);
  }

  /** Names of Nodes that have one of these addresses; one that cannot be read is none of them. */
  async nodesWith(ips: readonly string[]): Promise<readonly string[]> {
    return (await this.#nodes()).flatMap((item) => {
      const addresses = fieldOf(fieldOf(item, "status"), "addresses");
      const name = fieldOf(fieldOf(item, "metadata"), "name");
      const isHere = Array.isArray(addresses) &&
        addresses.some((entry) => ips.includes(String(fieldOf(entry, "address"))));
      return isHere && typeof name === "string" ? [name] : [];
    });
  }

  async podCidrs(): Promise<readonly string[]> {
    return (await this.#nodes()).flatMap((item) => {
      const networks = fieldOf(fieldOf(item, "spec"), "podCIDRs");
      return Array.isArray(networks) ? networks.map(String) : [];
    });
  }

  async #nodes(): Promise<readonly unknown[]> {
    return itemsOf((await this.get(`/api/v1/nodes?limit=${MOST_NODES}`)).text);
  }

  async #textOf(request: string, answer: Awaited<ReturnType<KubeClient["get"]>>): Promise<string> {
    const reading = { signal: this.#signal, note: () => {} };
    if (answer.status >= 200 && answer.status < 300) return await readText(answer, reading);
    const { message } = statusOf(await readRefusal(answer, reading));
    throw new Error(`${request}: status ${answer.status}${message === "" ? "" : `: ${message}`}`);
  }
}

function statusOf(text: string): { readonly message: string } {
  try {
    const message = fieldOf(JSON.parse(text), "message");
    return { message: typeof message === "string" ? message : "" };
  } catch (error) {
    // Whoever refuses may write anything.
    if (error instanceof SyntaxError) return { message: text.slice(0, 200) };
    throw error;
  }
}

function itemsOf(text: string): readonly unknown[] {
  const items = fieldOf(JSON.parse(text), "items");
  if (!Array.isArray(items)) throw new SyntaxError("the answer is no list");
  return items;
}

function fieldOf(value: unknown, name: string): unknown {
  return isRecord(value) ? value[name] : undefined;
}

function versionText(text: string): string {
  try {
    const version = fieldOf(JSON.parse(text), "gitVersion");
    return typeof version === "string" ? version : "of unknown version";
  } catch (error) {
    if (error instanceof SyntaxError) return "of unknown version";
    throw error;
  }
}

function aheadMs({ date, atMs }: Answer): number | null {
  const serverMs = Date.parse(date);
  // The header has whole seconds: half of one is the best guess.
  return Number.isNaN(serverMs) ? null : atMs - (serverMs + 500);
}
