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
import {
  ENDPOINT_SLICES,
  nodeResource,
  resourceOfService,
  SERVICE_CIDRS,
  SERVICES,
  type WatchedResource,
} from "./resources.ts";
import type { KubeStore } from "./store.ts";
import type { Rejection, ResourceEventHandler, Source } from "../source.ts";

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
