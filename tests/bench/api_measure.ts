/**
 * What one node's proxy costs kapi: its start, an hour's changes, and lists that come packed or not.
 *
 * @module
 */
import { engineFlag } from "../../tools/permissions.ts";
import { withNamespaces } from "../support/netns.ts";
import { countRequests, type LoggedRequest, loggedRequests } from "./api_log.ts";
import {
  type Cost,
  costBetween,
  look,
  type Meter,
  type ProxyName,
  type ProxyPlace,
  settled,
  startProxy,
} from "./api_proxies.ts";
import {
  type ApiServer,
  ApiServers,
  type ClientNetns,
  clientOf,
  kubeconfigFor,
  serverCpuMs,
  type Traffic,
  trafficOf,
} from "./api_servers.ts";
import type { SourceFigures } from "./api_source_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import type { Peer } from "./peer_process.ts";
import type { ProxyProcess } from "./proxy_process.ts";

/** What to measure. */
export interface ApiOptions {
  readonly size: ClusterSize;
  readonly rounds: number;
  /** Changes of slices. */
  readonly perSecond: number;
  /** Of changes; 0 for none. */
  readonly minutes: number;
  readonly parts: readonly ApiPart[];
  readonly peer: Peer | null;
  /** `kproxy.js` of a bundle; the source if undefined. */
  readonly program: string | undefined;
  readonly onProgress: (message: string) => void;
}

/** What can be measured by itself. */
export const API_PARTS = ["compression", "start", "changes"] as const;
export type ApiPart = typeof API_PARTS[number];

/** One way of asking for lists. */
export interface ListWay {
  readonly contentType: string;
  /** True: as watches; false: as lists from the server's memory. */
  readonly isStreamed: boolean;
  readonly isPacked: boolean;
}

/** One start of kproxy's source alone. */
export interface ListCost extends SourceFigures {
  readonly received: number;
  readonly serverMs: number;
}

/** What a proxy cost, and what it asked for: how often by verb and resource. */
export interface ProxyCost extends Cost {
  readonly requests: ReadonlyMap<string, number>;
}

/** All figures of one size; each list has one entry for each round. */
export interface ApiFigures {
  readonly lists: readonly { readonly way: ListWay; readonly rounds: readonly ListCost[] }[];
  readonly starts: ReadonlyMap<ProxyName, readonly ProxyCost[]>;
  /** Beside each other, once. */
  readonly changes: ReadonlyMap<ProxyName, ProxyCost>;
  /** How many changes those were, in how many seconds. */
  readonly changed: { readonly count: number; readonly seconds: number };
}

const JSON_TYPE = "application/json";
const PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf";
/** Until what a client gave up is in the log. */
const LOG_MS = 1_500;
/** Until a change has reached everybody. */
const ARRIVAL_MS = 5_000;
const SOURCE_TIMEOUT_MS = 300_000;

/** Every way, packed and not beside each other. */
export const LIST_WAYS: readonly ListWay[] = [JSON_TYPE, PROTOBUF_TYPE].flatMap((contentType) =>
  [false, true].flatMap((isStreamed) =>
    [false, true].map((isPacked) => ({ contentType, isStreamed, isPacked }))
  )
);

/** Measures in namespaces of its own, which are gone when it settles. */
export async function measureApi(options: ApiOptions): Promise<ApiFigures> {
  // Under this name the guard of the namespaces removes it, too, if this process is ended.
  const folder = await Deno.makeTempDir({ prefix: `kproxy-kapi-${Deno.pid}-` });
  try {
    return await withNamespaces(3, async ([netns, ...clients]) => {
      if (netns === undefined) throw new TypeError("No namespace was made");
      const servers = await ApiServers.prepare(netns, clients, folder);
      return await new Measurement(options, servers, clients.map(clientOf), folder).run();
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

class Measurement {
  readonly #options: ApiOptions;
  readonly #servers: ApiServers;
  readonly #clients: readonly ClientNetns[];
  readonly #folder: string;

  constructor(options: ApiOptions, servers: ApiServers, clients: readonly ClientNetns[], folder: string) {
    this.#options = options;
    this.#servers = servers;
    this.#clients = clients;
    this.#folder = folder;
  }

  async run(): Promise<ApiFigures> {
    const { size, parts, peer, program, onProgress } = this.#options;
    // The one that is written to and serves lists, then one that nobody asks, then one for each proxy.
    const [writer, idle, ...own] = [
      await this.#servers.start(),
      await this.#servers.start(),
      await this.#servers.start(),
      ...(peer === null ? [] : [await this.#servers.start()]),
    ] as [ApiServer, ApiServer, ...ApiServer[]];
    onProgress("filling");
    await this.#servers.fill(writer, size.services, size.endpoints);
    const names: readonly ProxyName[] = peer === null ? ["kproxy"] : ["kproxy", "peer"];
    const places = names.map((name, i): ProxyPlace => ({
      name,
      client: this.#clients[i]!,
      server: own[i]!,
      folder: this.#folder,
      peer,
      program,
    }));
    // The node is there before a proxy asks for it.
    await this.#change(writer, 0);
    const lists = parts.includes("compression") ? await this.#compression(writer, idle) : [];
    const starts = parts.includes("start") ? await this.#starts(places, idle) : new Map();
    const hour = parts.includes("changes") ? await this.#changes(places, writer, idle) : null;
    return {
      lists,
      starts,
      changes: hour?.costs ?? new Map(),
      changed: { count: hour?.count ?? 0, seconds: 60 * this.#options.minutes },
    };
  }

  /** A run may be ended before its tables are there. */
  #tell(what: string, round: number, figures: object): void {
    const when = round === 0 ? "to warm up" : `round ${round}`;
    this.#options.onProgress(`${what}, ${when}: ${JSON.stringify(figures)}`);
  }

  async #compression(writer: ApiServer, idle: ApiServer): Promise<ApiFigures["lists"]> {
    const older = await this.#servers.start({ streamsLists: false });
    const figures = LIST_WAYS.map((way) => ({ way, rounds: [] as ListCost[] }));
    for (let round = 0; round <= this.#options.rounds; round++) {
      // Every other round in the other order.
      for (const { way, rounds } of round % 2 === 0 ? figures : figures.toReversed()) {
        const cost = await this.#list(way, way.isStreamed ? writer : older, idle);
        this.#tell("lists", round, { ...way, ...cost });
        if (round > 0) rounds.push(cost);
      }
    }
    return figures;
  }

  async #list(way: ListWay, server: ApiServer, idle: ApiServer): Promise<ListCost> {
    const client = this.#clients[0]!;
    const kubeconfig = `${this.#folder}/lists.kubeconfig`;
    await Deno.writeTextFile(
      kubeconfig,
      await kubeconfigFor(client, server, { "disable-compression": !way.isPacked }),
    );
    const script = new URL("api_source_process.ts", import.meta.url).pathname;
    const flags = ["-A", "-q", "--no-check", engineFlag()];
    const from = await this.#serverLook(client, server, idle);
    const text = await client.netns.run(
      [Deno.execPath(), "run", ...flags, script, kubeconfig, way.contentType],
      { timeoutMs: SOURCE_TIMEOUT_MS },
    );
    const to = await this.#serverLook(client, server, idle);
    const { services } = this.#options.size;
    const figures = JSON.parse(text) as SourceFigures;
    // A Node and, with every Service, a slice.
    if (figures.objects < 2 * services) {
      throw new Error(`Only ${figures.objects} objects of ${services} Services`);
    }
    return { ...figures, received: to.received - from.received, serverMs: to.serverMs - from.serverMs };
  }

  async #serverLook(client: ClientNetns, server: ApiServer, idle: ApiServer) {
    const { received } = await trafficOf(client);
    return { received, serverMs: await serverCpuMs(server) - await serverCpuMs(idle) };
  }

  async #starts(
    places: readonly ProxyPlace[],
    idle: ApiServer,
  ): Promise<ReadonlyMap<ProxyName, readonly ProxyCost[]>> {
    const costs = new Map<ProxyName, ProxyCost[]>(places.map(({ name }) => [name, []]));
    for (let round = 0; round <= this.#options.rounds; round++) {
      for (const place of round % 2 === 0 ? places : places.toReversed()) {
        const cost = await this.#start(place, idle);
        this.#tell(`start of ${place.name}`, round, { ...cost, requests: Object.fromEntries(cost.requests) });
        if (round > 0) costs.get(place.name)?.push(cost);
      }
    }
    return costs;
  }

  async #start(place: ProxyPlace, idle: ApiServer): Promise<ProxyCost> {
    const from = await look(place, idle, null);
    let to: Meter;
    {
      await using process = await startProxy(place);
      await settled(place, process, from, this.#options.size.services);
      to = await look(place, idle, process);
      await process.stop();
    }
    return { ...costBetween(from, to), requests: await this.#requests(place, from, to) };
  }

  async #requests(place: ProxyPlace, from: Meter, to: Meter): Promise<ReadonlyMap<string, number>> {
    await new Promise((resolve) => setTimeout(resolve, LOG_MS));
    return countRequests(await logOf(place.server), place.client.ownAddress, [from.atMs, to.atMs]);
  }

  async #changes(places: readonly ProxyPlace[], writer: ApiServer, idle: ApiServer) {
    const { onProgress, minutes, size } = this.#options;
    await using stack = new AsyncDisposableStack();
    const running: { place: ProxyPlace; from: Traffic; process: ProxyProcess }[] = [];
    for (const place of places) {
      const from = await trafficOf(place.client);
      running.push({ place, from, process: stack.use(await startProxy(place)) });
    }
    for (const { place, process, from } of running) await settled(place, process, from, size.services);
    const looks = () => Promise.all(running.map(({ place, process }) => look(place, idle, process)));
    onProgress(`changes for ${minutes} min`);
    const before = await looks();
    const count = await this.#change(writer, 60 * minutes);
    await new Promise((resolve) => setTimeout(resolve, ARRIVAL_MS));
    const after = await looks();
    for (const { process } of running) {
      if (process.hasEnded) throw new Error(`${process.name} ended:\n${process.tail}`);
      await process.stop();
    }
    const costs = new Map<ProxyName, ProxyCost>();
    for (const [i, { place }] of running.entries()) {
      const [from, to] = [before[i]!, after[i]!];
      costs.set(place.name, {
        ...costBetween(from, to),
        requests: await this.#requests(place, from, to),
      });
    }
    return { costs, count };
  }

  /** Makes changes for a time; yields how many. */
  async #change(writer: ApiServer, seconds: number): Promise<number> {
    const { size, perSecond } = this.#options;
    const path = `${this.#folder}/changes.kubeconfig`;
    await Deno.writeTextFile(
      path,
      await kubeconfigFor({ ...this.#clients[0]!, address: "127.0.0.1" }, writer),
    );
    const args = [path, size.services, perSecond, seconds].map(String);
    const text = await this.#servers.script("api_changes.ts", args, 1000 * seconds + 120_000);
    return (JSON.parse(text) as { changes: number }).changes;
  }
}

async function logOf({ folder }: ApiServer): Promise<readonly LoggedRequest[]> {
  return loggedRequests(await Deno.readTextFile(`${folder}/kapi.log`), Date.now());
}
