/**
 * Checks of the API server, which is asked what a start would ask: whether it answers, what it grants, what it says of this node, and
 * what time it is.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { wallClockMs } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { NodeObject } from "../../model/objects.ts";
import { errorText } from "../../observe/log.ts";
import { openApiClient } from "../../node/api_client.ts";
import { decodeNode } from "../../source/decode/decode.ts";
import { readRefusal, readText } from "../../source/kube/kube_answer.ts";
import type { KubeClient } from "../../source/kube/kube_http.ts";
import {
  ENDPOINT_SLICES,
  nodeResource,
  SERVICE_CIDRS,
  SERVICES,
  type WatchedResource,
} from "../../source/kube/kube_resources.ts";
import { isRecord } from "../../text/record.ts";
import { failure, type Finding, ok, unknown, warning } from "./report.ts";

/** One right, as a SelfSubjectAccessReview asks for it. */
export interface ApiRight {
  readonly verb: "list" | "watch" | "create" | "patch";
  readonly group: string;
  readonly resource: string;
  /** Of the only object that is asked for; absent: any. */
  readonly name?: string;
  /** `""`: kproxy serves nothing without it. */
  readonly otherwise: string;
}

/** The rights that a configuration needs, which `deploy/` grants. Mode `auto` may become any. */
export function neededRights(
  { mode, kproxy: { serving } }: KubeProxyConfiguration,
  nodeName: string,
): readonly ApiRight[] {
  const reviews = {
    verb: "create",
    otherwise:
      "no client gets metrics: kproxy.serving.delegatedAuthentication needs the ClusterRole system:auth-delegator",
  } as const;
  const events = {
    group: "events.k8s.io",
    resource: "events",
    otherwise: "Events about Services and this node are only in the log",
  };
  return [
    ...watching(SERVICES, { otherwise: "" }),
    ...watching(ENDPOINT_SLICES, { otherwise: "" }),
    ...watching(nodeResource(nodeName), {
      name: nodeName,
      otherwise:
        "node ports, zones and local networks do not follow the Node, and no load balancer is told that it leaves",
    }),
    ...mode === "nftables" || mode === "auto"
      ? watching(SERVICE_CIDRS, {
        otherwise: "packets to addresses of no Service travel on instead of being dropped",
      })
      : [],
    { ...events, verb: "create" },
    { ...events, verb: "patch" },
    ...serving.delegatedAuthentication
      ? [
        { ...reviews, group: "authentication.k8s.io", resource: "tokenreviews" },
        { ...reviews, group: "authorization.k8s.io", resource: "subjectaccessreviews" },
      ]
      : [],
  ];
}

function watching(
  { path }: WatchedResource,
  more: Pick<ApiRight, "name" | "otherwise">,
): readonly ApiRight[] {
  const [, group = "", resource = ""] = /^\/(?:api|apis\/([^/]+))\/[^/]+\/(.+)$/.exec(path) ?? [];
  return (["list", "watch"] as const).map((verb) => ({ verb, group, resource, ...more }));
}

/** What the server answered with; each answer fails by itself. */
export interface ApiFacts {
  readonly server: string;
  /** Where the access comes from, e.g. the path of the kubeconfig. */
  readonly origin: string;
  /** What it says of its version; rejected if it does not answer. */
  readonly version: PromiseSettledResult<string>;
  /** How far this machine's clock is ahead of the server's, in milliseconds; null if it tells no time. */
  readonly aheadMs: PromiseSettledResult<number | null>;
  readonly rights: readonly (readonly [right: ApiRight, isAllowed: PromiseSettledResult<boolean>])[];
  /** Null if there is no Node of the name. */
  readonly node: PromiseSettledResult<NodeObject | null>;
  /** The Nodes that have one of this machine's addresses, if there is none of the name. */
  readonly namesakes: readonly string[];
  /** The pod CIDRs of all Nodes, up to 500 of them; empty if `clusterCIDR` is set or not what tells local traffic apart. */
  readonly podCIDRs: readonly string[];
}

/** What is asked, and with what. */
export interface ApiQuestions {
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  readonly nodeName: string;
  readonly ownIps: readonly string[];
  /** Starts credential plugins. */
  readonly exec: Exec;
  readonly signal: AbortSignal;
  /** Ends a wait at the doctor's limit. */
  readonly limited: <T>(read: () => Promise<T>) => Promise<T>;
}

/** @throws {ConfigError} if it cannot be told which server, or the credentials cannot be had */
export async function readApi(
  { config, master, nodeName, ownIps, exec, signal, limited }: ApiQuestions,
): Promise<ApiFacts> {
  const client = await limited(() => openApiClient(config, { master, exec }));
  try {
    await limited(() => client.checkCredentials(signal));
    const asks = new ApiAsks(client, signal);
    const isCidrMissing = config.detectLocalMode === "ClusterCIDR" && config.clusterCIDR.trim() === "";
    const ask = <T>(question: () => Promise<T>): Promise<PromiseSettledResult<T>> =>
      Promise.allSettled([limited(question)]).then(([answer]) => answer);
    const [version, node, podCIDRs, rights] = await Promise.all([
      ask(() => asks.get("/version")),
      ask(() => asks.node(nodeName)),
      isCidrMissing ? ask(() => asks.podCidrs()) : null,
      Promise.all(
        neededRights(config, nodeName).map(async (right) =>
          [right, await ask(() => asks.mayI(right))] as const
        ),
      ),
    ]);
    const isUnknown = node.status === "fulfilled" && node.value === null;
    const namesakes = isUnknown ? await ask(() => asks.nodesWith(ownIps)) : null;
    return {
      server: client.server,
      origin: client.origin,
      version: mapped(version, ({ text }) => versionText(text)),
      aheadMs: mapped(version, aheadMs),
      rights,
      node,
      namesakes: namesakes?.status === "fulfilled" ? namesakes.value : [],
      podCIDRs: podCIDRs?.status === "fulfilled" ? podCIDRs.value : [],
    };
  } finally {
    client.close();
  }
}

function mapped<T, U>(result: PromiseSettledResult<T>, map: (value: T) => U): PromiseSettledResult<U> {
  return result.status === "rejected" ? result : { status: "fulfilled", value: map(result.value) };
}

/** All Nodes of a large cluster are some tens of megabytes, which is too much for a hint. */
const MOST_NODES = 500;

interface Answer {
  readonly text: string;
  readonly date: string;
  /** The middle of the time in which it was made, by this machine's clock. */
  readonly atMs: number;
}

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
    const resourceAttributes = { verb, group, resource, ...(name === undefined ? {} : { name }) };
    const answer = await this.#client.send({
      method: "POST",
      path,
      contentType: "application/json",
      body: JSON.stringify({
        apiVersion: "authorization.k8s.io/v1",
        kind: "SelfSubjectAccessReview",
        spec: { resourceAttributes },
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
    const text = await readRefusal(answer, reading);
    // A proxy on the way that refuses may write anything.
    const reason = textField(text, "message", () => text.slice(0, 200)) ?? "";
    throw new Error(`${request}: status ${answer.status}${reason === "" ? "" : `: ${reason}`}`);
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

/** A text of JSON; undefined if there is none of the name, and `other` where it is no JSON. */
function textField<T>(json: string, name: string, other: () => T): string | undefined | T {
  try {
    const value = fieldOf(JSON.parse(json), name);
    return typeof value === "string" ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return other();
    throw error;
  }
}

function versionText(text: string): string {
  return textField(text, "gitVersion", () => undefined) ?? "of unknown version";
}

function aheadMs({ date, atMs }: Answer): number | null {
  const serverMs = Date.parse(date);
  // The header has whole seconds: half of one is the best guess.
  return Number.isNaN(serverMs) ? null : atMs - (serverMs + 500);
}

const CHECK = "API server";

/** @param reason why there are no facts: it cannot be told which server, or with which credentials */
export function checkNoApi(reason: string): readonly Finding[] {
  return [failure(
    CHECK,
    reason,
    "name it with --kubeconfig=FILE or --master=URL, or serve objects from files with --manifests=PATH",
  )];
}

export function checkApi(facts: ApiFacts): readonly Finding[] {
  const { server, origin, version, rights } = facts;
  if (version.status === "rejected") {
    if (rights.some(([, isAllowed]) => isAllowed.status === "fulfilled")) {
      return [unknown(`${CHECK} version`, version.reason), ...checkRights(facts)];
    }
    return [failure(
      CHECK,
      `${server} (${origin}) does not answer as it should: ${errorText(version.reason)}`,
      `try it: curl -k ${server}/version; then look at routes, firewalls and ${origin}`,
    )];
  }
  return [ok(CHECK, `${server} answers (${version.value}), by ${origin}`), ...checkRights(facts)];
}

function checkRights({ rights }: ApiFacts): readonly Finding[] {
  const check = "API rights";
  const findings: Finding[] = [];
  const granted: string[] = [];
  for (const [{ verb, group, resource, otherwise }, isAllowed] of rights) {
    const text = `${verb} ${resource}${group === "" ? "" : `.${group}`}`;
    if (isAllowed.status === "rejected") {
      const finding = unknown(check, isAllowed.reason);
      // One line for each right that nobody could ask about would only repeat itself.
      if (!findings.some(({ what }) => what === finding.what)) findings.push(finding);
    } else if (isAllowed.value) {
      granted.push(text);
    } else {
      const mend = `grant ${verb} on ${resource} of API group "${group}", as ClusterRole ` +
        "system:node-proxier has it, to the user of the access";
      findings.push(
        otherwise === ""
          ? failure(check, `may not ${text}: no Service can be served`, mend)
          : warning(check, `may not ${text}, which is optional: ${otherwise}`, mend),
      );
    }
  }
  if (granted.length > 0) findings.push(ok(check, `may ${granted.join(", ")}`));
  return findings;
}

const APART_MS = 5_000;

/** Certificates and tokens are valid by the clock, and logs are in its order. */
export function checkClock(aheadMs: number | null): readonly Finding[] {
  const check = "clock";
  if (aheadMs === null) return [ok(check, "the API server tells no time to compare with")];
  if (Math.abs(aheadMs) < APART_MS) return [ok(check, "agrees with the API server's to within seconds")];
  const seconds = Math.round(Math.abs(aheadMs) / 1000);
  const side = aheadMs > 0 ? "ahead of" : "behind";
  return [warning(
    check,
    `${seconds} s ${side} the API server's: tokens and certificates may count as expired`,
    "set it: timedatectl set-ntp true, or chronyc makestep",
  )];
}
