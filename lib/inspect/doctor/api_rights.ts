/**
 * What kproxy asks of the API server, and what becomes of it where one of these is not granted.
 *
 * @module
 */
import type { ProxyMode } from "../../config/types.ts";
import {
  ENDPOINT_SLICES,
  nodeResource,
  SERVICE_CIDRS,
  SERVICES,
  type WatchedResource,
} from "../../source/kube/kube_resources.ts";

/** One right, as a SelfSubjectAccessReview asks for it. */
export interface ApiRight {
  readonly verb: "list" | "watch" | "create" | "patch";
  readonly group: string;
  readonly resource: string;
  /** Of the only object that is asked for; `""` for any. */
  readonly name: string;
  /** `""`: kproxy serves nothing without it. */
  readonly otherwise: string;
}

const REVIEWS = ["tokenreviews", "subjectaccessreviews"] as const;

/** The rights that a configuration needs. */
export function neededRights(
  { mode, nodeName, asksWhoClientsAre = false }: {
    /** `auto` where nobody could tell which it would be. */
    readonly mode: ProxyMode;
    readonly nodeName: string;
    /** `kproxy.serving.delegatedAuthentication`. */
    readonly asksWhoClientsAre?: boolean;
  },
): readonly ApiRight[] {
  return [
    ...watching(SERVICES, "", ""),
    ...watching(ENDPOINT_SLICES, "", ""),
    ...watching(
      nodeResource(nodeName),
      "node ports, zones and local networks do not follow the Node, and no load balancer is told that it leaves",
      nodeName,
    ),
    ...(mode === "nftables" || mode === "auto"
      ? watching(SERVICE_CIDRS, "packets to addresses of no Service travel on instead of being dropped", "")
      : []),
    ...(["create", "patch"] as const).map((verb): ApiRight => ({
      verb,
      group: "events.k8s.io",
      resource: "events",
      name: "",
      otherwise: "Events about Services and this node are only in the log",
    })),
    ...(asksWhoClientsAre ? REVIEWS : []).map((resource): ApiRight => ({
      verb: "create",
      group: resource === "tokenreviews" ? "authentication.k8s.io" : "authorization.k8s.io",
      resource,
      name: "",
      otherwise:
        "no client gets metrics: kproxy.serving.delegatedAuthentication needs the ClusterRole system:auth-delegator",
    })),
  ];
}

function watching({ path }: WatchedResource, otherwise: string, name: string): readonly ApiRight[] {
  const [, group = "", resource = ""] = /^\/(?:api|apis\/([^/]+))\/[^/]+\/(.+)$/.exec(path) ?? [];
  return (["list", "watch"] as const).map((verb) => ({ verb, group, resource, name, otherwise }));
}

/** `list services`, `create events.events.k8s.io`. */
export function rightText({ verb, group, resource }: ApiRight): string {
  return `${verb} ${resource}${group === "" ? "" : `.${group}`}`;
}
