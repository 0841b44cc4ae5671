/**
 * Checks of the API server, by the requests of a start: whether it answers, what it authorizes, what it knows of this node, and
 * whether the clocks agree.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/types.ts";
import { wallClockMs } from "../../kernel/clock.ts";
import type { Exec } from "../../kernel/exec.ts";
import type { NodeObject } from "../../model/objects.ts";
import { errorText } from "../../observe/log.ts";
import { openApiClient } from "../../node/source.ts";
import { DecodeError, decodeNode } from "../../source/decode/decode.ts";
import { readRefusal, readText } from "../../source/kube/response.ts";
import type { KubeClient } from "../../source/kube/kube_client.ts";
import {
  ENDPOINT_SLICES,
  nodeResource,
  SERVICE_CIDRS,
  SERVICES,
  type WatchedResource,
} from "../../source/kube/kube_source.ts";
import { isRecord } from "../../text/record.ts";
import { failure, type Finding, ok, unknown, warning } from "./report.ts";

/** A right, as a SelfSubjectAccessReview names it. */
export interface ApiRight {
  readonly verb: "list" | "watch" | "create" | "patch";
  readonly group: string;
  readonly resource: string;
  /** Name of the only object that is needed; absent: any. */
  readonly name?: string;
  /** What does not work without the right; `""`: nothing works. */
  readonly otherwise: string;
}

/** Rights that a configuration needs, which `deploy/` grants. Mode `auto` needs those of every mode. */
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

/** Answers of the API server; each may fail by itself. */
export interface ApiFacts {
  readonly server: string;
  /** Source of the access, e.g. the path of the kubeconfig. */
  readonly origin: string;
  /** Answer to `/version`; rejected if the server does not answer. */
  readonly version: PromiseSettledResult<Answer>;
  readonly rights: readonly (readonly [right: ApiRight, isAllowed: PromiseSettledResult<boolean>])[];
  /** The node's own Node; null: there is none. */
  readonly node: PromiseSettledResult<NodeObject | null>;
  /** Up to 500 Nodes, for hints; none if the own Node exists, and local traffic is detected without pod CIDRs. */
  readonly allNodes: readonly NodeObject[];
}

interface Answer {
  readonly text: string;
  /** How far this machine's clock is ahead of the server's, in milliseconds; null if it sends no date. */
  readonly aheadMs: number | null;
}

export interface ApiQuestions {
  readonly config: KubeProxyConfiguration;
  readonly master: string;
  readonly nodeName: string;
  readonly exec: Exec;
  readonly signal: AbortSignal;
}

/** All Nodes of a large cluster are some tens of megabytes, which is too much for a hint. */
const ALL_NODES = "/api/v1/nodes?limit=500";

/** @throws {ConfigError} if no server is named, or there are no credentials */
export async function readApi(
  { config, master, nodeName, exec, signal }: ApiQuestions,
): Promise<ApiFacts> {
  const client = await openApiClient(config, { master, exec });
  const ask = async <T>(answer: Promise<T>): Promise<PromiseSettledResult<T>> =>
    (await Promise.allSettled([answer]))[0];
  const get = (path: string): Promise<Answer> => getAnswer(client, path, signal);
  try {
    await client.checkCredentials(signal);
    const isCidrMissing = config.detectLocalMode === "ClusterCIDR" && config.clusterCIDR.trim() === "";
    const ofName = `/api/v1/nodes?fieldSelector=${encodeURIComponent(`metadata.name=${nodeName}`)}`;
    const [version, node, rights] = await Promise.all([
      ask(get("/version")),
      ask(
        get(ofName).then(({ text }) => {
          const [first] = itemsOf(text);
          return first === undefined ? null : decodeNode(first);
        }),
      ),
      Promise.all(
        neededRights(config, nodeName).map(async (right) =>
          [right, await ask(reviewAccess(client, right, signal))] as const
        ),
      ),
    ]);
    const isUnknown = node.status === "fulfilled" && node.value === null;
    const allNodes = isUnknown || isCidrMissing
      ? await get(ALL_NODES).then(({ text }) => nodesIn(text)).catch(() => [])
      : [];
    return { server: client.server, origin: client.origin, version, rights, node, allNodes };
  } finally {
    client.close();
  }
}

async function getAnswer(client: KubeClient, path: string, signal: AbortSignal): Promise<Answer> {
  const startMs = wallClockMs();
  const answer = await client.get(path, signal, { paced: false });
  const serverMs = Date.parse(answer.date ?? "");
  // On average the answer was made halfway; the header has whole seconds, so half a second is the best guess.
  const aheadMs = (startMs + wallClockMs()) / 2 - (serverMs + 500);
  const text = await bodyOf(`GET ${path}`, answer, signal);
  return { text, aheadMs: Number.isNaN(aheadMs) ? null : aheadMs };
}

async function reviewAccess(client: KubeClient, right: ApiRight, signal: AbortSignal): Promise<boolean> {
  const { verb, group, resource, name } = right;
  const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  const resourceAttributes = { verb, group, resource, ...(name === undefined ? {} : { name }) };
  const body = JSON.stringify({
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes },
  });
  const answer = await client.send({ method: "POST", path, contentType: "application/json", body }, signal);
  const allowed = fieldOf(JSON.parse(await bodyOf(`POST ${path}`, answer, signal)), "status", "allowed");
  if (typeof allowed !== "boolean") throw new SyntaxError("the answer says neither yes nor no");
  return allowed;
}

async function bodyOf(
  request: string,
  answer: Awaited<ReturnType<KubeClient["get"]>>,
  signal: AbortSignal,
): Promise<string> {
  const reading = { signal, note: () => {} };
  if (answer.status >= 200 && answer.status < 300) return await readText(answer, reading);
  const text = new TextDecoder().decode(await readRefusal(answer, reading));
  // A proxy in between that refuses may send any text.
  const reason = textField(text, "message", text.slice(0, 200));
  throw new Error(`${request}: status ${answer.status}${reason === "" ? "" : `: ${reason}`}`);
}

/** Nodes of a list. One that cannot be read is skipped: the others are a hint, too. */
function nodesIn(text: string): readonly NodeObject[] {
  return itemsOf(text).flatMap((item) => {
    try {
      return [decodeNode(item)];
    } catch (error) {
      if (error instanceof DecodeError) return [];
      throw error;
    }
  });
}

function itemsOf(text: string): readonly unknown[] {
  const items = fieldOf(JSON.parse(text), "items");
  if (!Array.isArray(items)) throw new SyntaxError("the answer is no list");
  return items;
}

function fieldOf(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce((one, name) => isRecord(one) ? one[name] : undefined, value);
}

/** A field of a JSON text; `""` if it is missing, and `other` if the text is no JSON. */
function textField(json: string, name: string, other: string): string {
  try {
    const value = fieldOf(JSON.parse(json), name);
    return typeof value === "string" ? value : "";
  } catch (error) {
    if (error instanceof SyntaxError) return other;
    throw error;
  }
}

const CHECK = "API server";

/** @param reason why there are no facts: no server is named, or there are no credentials */
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
  const text = textField(version.value.text, "gitVersion", "") || "of unknown version";
  return [ok(CHECK, `${server} answers (${text}), by ${origin}`), ...checkRights(facts)];
}

function checkRights({ rights }: ApiFacts): readonly Finding[] {
  const check = "API rights";
  const findings: Finding[] = [];
  const granted: string[] = [];
  for (const [{ verb, group, resource, otherwise }, isAllowed] of rights) {
    const text = `${verb} ${resource}${group === "" ? "" : `.${group}`}`;
    if (isAllowed.status === "rejected") {
      const finding = unknown(check, isAllowed.reason);
      // One line per right that could not be reviewed would only repeat the error.
      if (!findings.some(({ what }) => what === finding.what)) findings.push(finding);
    } else if (isAllowed.value) {
      granted.push(text);
    } else {
      const fix = `grant ${verb} on ${resource} of API group "${group}", as ClusterRole ` +
        "system:node-proxier has it, to the user of the access";
      findings.push(
        otherwise === ""
          ? failure(check, `may not ${text}: no Service can be served`, fix)
          : warning(check, `may not ${text}, which is optional: ${otherwise}`, fix),
      );
    }
  }
  if (granted.length > 0) findings.push(ok(check, `may ${granted.join(", ")}`));
  return findings;
}

const APART_MS = 5_000;

/** Compares the clocks: certificates and tokens are valid by time, and logs are ordered by it. */
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
