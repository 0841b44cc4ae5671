/**
 * Objects from an API server: Services, EndpointSlices and the own Node, listed and watched.
 *
 * @module
 */
import { systemClock } from "../../kernel/clock.ts";
import type { ApiObject, NamespacedName } from "../../model/objects.ts";
import type { Logger } from "../../observe/log.ts";
import { KubeConnection } from "./connection_state.ts";
import { acceptHeader, type ContentTypes, PROTOBUF } from "./serializers.ts";
import { KubeClient, type KubeClientOptions } from "./kube_client.ts";
import { Reflector, REFLECTOR_TIMES, type ReflectorOptions } from "./reflector.ts";
import type { KubeStore } from "./store.ts";
import type { WatchedModels } from "../decode/api_json.ts";
import type { Rejection, ResourceEventHandler, ResourceKind, Source } from "../source.ts";

/** Options of {@linkcode KubeSource}. First lists do not wait for the limit of requests. */
export interface KubeSourceOptions
  extends
    Pick<KubeClientOptions, "access" | "qps" | "burst" | "onRequest" | "onAnswer" | "exec">,
    Partial<Pick<ReflectorOptions, "times" | "clock" | "random">> {
  /** The only Node that is watched. */
  readonly nodeName: string;
  /** The only Service that is watched, with its endpoints. @default {all} */
  readonly service?: NamespacedName;
  /** Serialization that is asked for; whichever the server answers in is read. @default {protobuf, else JSON} */
  readonly contentTypes?: ContentTypes;
  readonly log: Logger;
  /** @default {"kproxy"} */
  readonly userAgent?: string;
}

/**
 * Delivers the objects of an API server, and every change of them, over losses of the connection of any length.
 *
 * - Selects on the server, by kube-proxy's selectors.
 * - A Node that kproxy may not read counts as synced without an object; it is asked for again now and then.
 * - ServiceCIDRs, if the handler wants them, are read from servers that have them and allow it.
 */
export class KubeSource implements Source {
  readonly name: string;
  readonly #options: KubeSourceOptions;
  readonly #stores: KubeStore[] = [];

  constructor(options: KubeSourceOptions) {
    this.name = options.access.server;
    this.#options = options;
  }

  /** @throws {ConfigError} if the credentials cannot be read at start */
  async run(handler: ResourceEventHandler, signal: AbortSignal): Promise<void> {
    const { access, log, userAgent = "kproxy", clock = systemClock } = this.#options;
    const accept = acceptHeader(this.#options.contentTypes ?? PROTOBUF);
    const client = new KubeClient({ ...this.#options, userAgent, accept, clock });
    await client.checkCredentials(signal);
    log.info("Using the API server", { server: access.server, access: access.origin });
    const connection = new KubeConnection({
      server: access.server,
      log,
      clock,
      haveCredentialsChanged: client.credentialsCanChange
        ? (ending) => client.haveCredentialsChanged(ending)
        : null,
    });
    const reflect = (
      resource: WatchedResource,
      ifRefused: ReflectorOptions["ifRefused"],
    ): Promise<void> => {
      const { times = REFLECTOR_TIMES, random = Math.random } = this.#options;
      const options = { resource, client, connection, handler, log, times, clock, random, ifRefused };
      const reflector = new Reflector(options);
      this.#stores.push(reflector.store);
      return reflector.run(signal);
    };
    try {
      await Promise.all([
        reflect(this.#wanted(SERVICES), "retry"),
        reflect(this.#wanted(ENDPOINT_SLICES), "retry"),
        reflect(nodeResource(this.#options.nodeName), "empty"),
        handler.wantsServiceCidrs === true ? reflect(SERVICE_CIDRS, "optional") : Promise.resolve(),
      ]);
    } finally {
      client.close();
    }
  }

  *objects(): Generator<ApiObject> {
    for (const store of this.#stores) yield* store.objects();
  }

  *refusals(): Generator<Rejection> {
    for (const store of this.#stores) yield* store.refusals();
  }

  #wanted(resource: WatchedResource): WatchedResource {
    const { service } = this.#options;
    return service === undefined ? resource : resourceOfService(resource, service);
  }
}

/** One resource of the API and how its objects are read. */
export interface WatchedResource {
  readonly kind: ResourceKind;
  /** Kind of the objects; items of a list do not carry it. */
  readonly objectKind: keyof WatchedModels;
  /** e.g. `/api/v1/services`. */
  readonly path: string;
  /** Selectors to try in order; the next one is used when the server refuses one (400). */
  readonly selectors: readonly Selector[];
  /** How many times as long as other watches a watch of it may be silent before it is opened once more. @default {1} */
  readonly patience?: number;
}

/** Query parameters that select objects. */
export type Selector = Readonly<{ labelSelector?: string; fieldSelector?: string }>;

/** Services of another proxy and headless ones are left out: kube-proxy 1.36's selectors, then those it had before. */
export const SERVICES: WatchedResource = {
  kind: "services",
  objectKind: "Service",
  path: "/api/v1/services",
  selectors: [
    { labelSelector: "!service.kubernetes.io/service-proxy-name", fieldSelector: "spec.clusterIP!=None" },
    { labelSelector: "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name" },
  ],
};

const NOT_HEADLESS: readonly Selector[] = [{ labelSelector: "!service.kubernetes.io/headless" }];

/** EndpointSlices of Services that are not headless. */
export const ENDPOINT_SLICES: WatchedResource = {
  kind: "endpointslices",
  objectKind: "EndpointSlice",
  path: "/apis/discovery.k8s.io/v1/endpointslices",
  selectors: NOT_HEADLESS,
};

/**
 * ServiceCIDRs hardly ever change, some servers send no bookmarks of unchanged kinds, and readiness does not depend on
 * them, as it does on the Node: their connection need not be checked as often as the others'.
 */
const CIDR_PATIENCE = 4;

/** All ServiceCIDRs. Servers before 1.33 have none, and roles from before then do not grant them. */
export const SERVICE_CIDRS: WatchedResource = {
  kind: "servicecidrs",
  objectKind: "ServiceCIDR",
  path: "/apis/networking.k8s.io/v1/servicecidrs",
  selectors: [{}],
  patience: CIDR_PATIENCE,
};

/**
 * The part of a resource that one Service is made of: the Service itself, or what belongs to it. Within its namespace, by selectors, so
 * that an account that may list them all may list these.
 */
function resourceOfService(resource: WatchedResource, service: NamespacedName): WatchedResource {
  const [namespace = "", name = ""] = service.split("/");
  const at = resource.path.lastIndexOf("/");
  const isSlice = resource.objectKind === "EndpointSlice";
  const own: Selector = isSlice
    ? { labelSelector: `kubernetes.io/service-name=${name}` }
    : { fieldSelector: `metadata.name=${name}` };
  const joined = (...parts: readonly (string | undefined)[]): string =>
    parts.filter((part) => part !== undefined).join(",");
  return {
    ...resource,
    path: `${resource.path.slice(0, at)}/namespaces/${encodeURIComponent(namespace)}${
      resource.path.slice(at)
    }`,
    selectors: resource.selectors.map(({ labelSelector, fieldSelector }) => ({
      ...(labelSelector === undefined && !isSlice
        ? {}
        : { labelSelector: joined(labelSelector, own.labelSelector) }),
      ...(fieldSelector === undefined && isSlice
        ? {}
        : { fieldSelector: joined(fieldSelector, own.fieldSelector) }),
    })),
  };
}

/** The Node of that name. */
export function nodeResource(nodeName: string): WatchedResource {
  return {
    kind: "nodes",
    objectKind: "Node",
    path: "/api/v1/nodes",
    selectors: [{ fieldSelector: `metadata.name=${nodeName}` }],
  };
}
