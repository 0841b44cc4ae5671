/**
 * Many nodes' clients against one kapi, and what happens to all of them at once.
 *
 * @module
 */
import { systemClock } from "../../lib/kernel/clock.ts";
import type { ClusterAccess } from "../../lib/source/kube/kubeconfig.ts";
import { Kapi } from "../support/kapi.ts";
import { runClientGoClient } from "./herd_client_go.ts";
import { HerdCounts, type HerdFigures } from "./herd_counts.ts";
import { kindsOf, runKproxyClient } from "./herd_kproxy.ts";

/** Who the clients are. */
export type HerdKind = "kproxy" | "kproxy without jitter" | "client-go";

/** What may happen to a server. */
export const INCIDENTS = ["start", "restart", "expired", "tokens"] as const;
export type Incident = typeof INCIDENTS[number];

/** What to measure. */
export interface HerdOptions {
  readonly clients: number;
  readonly services: number;
  /** Of each Service. */
  readonly endpoints: number;
  readonly kind: HerdKind;
  readonly incidents: readonly Incident[];
  /** How long the server is away, in milliseconds. */
  readonly downMs: number;
  readonly onProgress: (message: string) => void;
  /** Told of each incident that is over. */
  readonly onIncident: (figures: IncidentFigures) => void;
}

/** One incident, and what it cost the server. */
export interface IncidentFigures extends HerdFigures {
  readonly incident: Incident;
  /** Processor time of the server from its start to the end of the recovery, in seconds. */
  readonly serverCpuSeconds: number;
}

const TIMEOUT_MS = 300_000;
/** A watch that lived for so long was a good one, and no backoff of before counts. */
const CALM_MS = 15_000;
/** How long what happens after a recovery still counts: connections that were late. */
const AFTER_MS = 2_000;
const TICK_MS = 10;

/** Fills a server, starts the clients, and lets everything happen to them, one after the other. */
export async function measureHerd(options: HerdOptions): Promise<void> {
  await using kapi = await Kapi.start([], { streamsLists: true });
  await kapi.fill(options.services, options.endpoints);
  await new Herd(options, kapi).run();
}

class Herd {
  readonly #options: HerdOptions;
  readonly #kapi: Kapi;
  readonly #counts: HerdCounts;
  readonly #end = new AbortController();
  readonly #tokenFile: string;
  #token = "herd-1";

  constructor(options: HerdOptions, kapi: Kapi) {
    this.#options = options;
    this.#kapi = kapi;
    this.#counts = new HerdCounts(options.clients, kindsOf(0).length);
    this.#tokenFile = `${kapi.folder}/herd-token`;
  }

  async run(): Promise<void> {
    const { incidents, onProgress, onIncident } = this.#options;
    await this.#kapi.admit(this.#token);
    await Deno.writeTextFile(this.#tokenFile, this.#token);
    const clients: Promise<void>[] = [];
    try {
      onProgress("start");
      const started = await this.#measure("start", async () => {
        clients.push(...await this.#start());
      });
      if (incidents.includes("start")) onIncident(started);
      for (const incident of incidents) {
        if (incident === "start") continue;
        await systemClock.sleep(CALM_MS);
        onProgress(incident);
        onIncident(await this.#measure(incident, () => this.#happens(incident)));
      }
    } finally {
      this.#end.abort();
      await Promise.all(clients);
    }
  }

  /** Lets it happen, and waits until all clients are in step again. */
  async #measure(incident: Incident, happens: () => Promise<void>): Promise<IncidentFigures> {
    this.#counts.begin();
    const cpuFrom = incident === "start" ? await this.#serverCpuSeconds() : 0;
    const beganMs = performance.now();
    await happens();
    const happenedMs = performance.now();
    await this.#counts.untilAllInStep(TIMEOUT_MS);
    // That the server is ready is learned some time after it is.
    const { backMs } = this.#counts;
    const endMs = incident === "start"
      ? beganMs
      : incident === "tokens"
      ? happenedMs
      : Math.min(happenedMs, backMs);
    const figures = this.#counts.figures(endMs);
    await systemClock.sleep(AFTER_MS);
    const serverCpuSeconds = await this.#serverCpuSeconds() - cpuFrom;
    return { ...this.#counts.figures(endMs), recovered: figures.recovered, incident, serverCpuSeconds };
  }

  async #start(): Promise<Promise<void>[]> {
    const certificate = await Deno.readTextFile(this.#kapi.ca);
    const access: ClusterAccess = {
      server: this.#kapi.url,
      insecureSkipTlsVerify: false,
      tlsServerName: "",
      proxyUrl: "",
      bypassProxy: false,
      asksForCompression: false,
      certificateAuthority: { kind: "text", pem: certificate },
      clientCertificate: null,
      identity: { kind: "tokenFile", path: this.#tokenFile },
      impersonation: null,
      origin: "herd",
      names: null,
    };
    const { clients, kind } = this.#options;
    const random = kind === "kproxy without jitter" ? (): number => 0 : Math.random;
    const run = kind === "client-go" ? runClientGoClient : runKproxyClient;
    return Array.from(
      { length: clients },
      (_, client) => run({ client, access, counts: this.#counts, random }, this.#end.signal),
    );
  }

  /** Resolves when it is over, for the server. */
  async #happens(incident: Exclude<Incident, "start">): Promise<void> {
    await this.#kapi.pause();
    this.#counts.away();
    await systemClock.sleep(this.#options.downMs);
    if (incident === "expired") await this.#kapi.compact();
    if (incident !== "tokens") return await this.#kapi.resume();
    // All tokens become invalid, and some time later all nodes have a new one.
    const old = this.#token;
    this.#token = `${old}x`;
    await this.#kapi.revoke(old);
    await this.#kapi.resume();
    await systemClock.sleep(this.#options.downMs);
    await this.#kapi.admit(this.#token);
    await Deno.writeTextFile(`${this.#tokenFile}.new`, this.#token);
    await Deno.rename(`${this.#tokenFile}.new`, this.#tokenFile);
  }

  async #serverCpuSeconds(): Promise<number> {
    const pid = (await Deno.readTextFile(`${this.#kapi.folder}/kapi.pid`)).trim();
    const stat = await Deno.readTextFile(`/proc/${pid}/stat`);
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS / 1000;
  }
}
