/**
 * One API server for the proxies of several nodes, kube-proxy's and kproxy's alike: they get the same objects by construction.
 *
 * @module
 */
import type { ObjectJson } from "../../../lib/source/decode/api_json.ts";
import { service, slice } from "../../flows/objects.ts";
import { kubeconfigText } from "../kubeconfig_text.ts";
import { LabGateway } from "../lab_gateway.ts";
import { ListWatchServer, type RawApiObject } from "../list_watch_server.ts";
import type { Netns } from "../netns.ts";
import { raw } from "../raw_objects.ts";
import { until } from "../until.ts";

/** Markers have numbers of three digits, so that none begins with another one. */
const [FIRST_MARKER, MARKERS] = [100, 150];
const MARKER = "zz/marker";
const MARKER_IPS = ["10.111.0.1", "fd00:10:111::1"] as const;
const MARKER_ENDPOINTS = ["10.111.1.", "fd00:10:111:1::"] as const;
/** A look starts a program. */
const LOOK = { everyMs: 50, limitMs: 120_000 };
/** Mode → what lists its rules, of each family. */
const LISTS: Readonly<Record<string, readonly string[]>> = {
  iptables: ["iptables-save -t nat", "ip6tables-save -t nat"],
  nftables: ["nft list ruleset ip", "nft list ruleset ip6"],
  ipvs: ["ipvsadm -Sn", "ipvsadm -Sn"],
};

/** See the module; disposing of it ends the server. */
export class ProxyApi implements AsyncDisposable {
  /** A folder with a kubeconfig of it, and for what else a proxy is started with. */
  readonly folder: string;
  readonly #server = new ListWatchServer();
  readonly #gateways: LabGateway[] = [];
  #objects = new Map<string, string>();
  #marker = 0;
  #made = 0;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Starts it, within reach of programs in these namespaces. */
  static async open(namespaces: readonly Netns[]): Promise<ProxyApi> {
    // The lab's guard knows by the process id whose it is.
    const api = new ProxyApi(await Deno.makeTempDir({ prefix: `kproxy-manifests-${Deno.pid}-api-` }));
    try {
      const cluster = { server: api.#server.url };
      await Deno.writeTextFile(api.kubeconfig, kubeconfigText({ cluster, user: {} }));
      for (const netns of namespaces) api.#gateways.push(await LabGateway.open(netns, api.port));
      return api;
    } catch (error) {
      await api[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Where it is, at 127.0.0.1. */
  get port(): number {
    return Number(new URL(this.#server.url).port);
  }

  get kubeconfig(): string {
    return `${this.folder}/kubeconfig`;
  }

  /** Makes these the objects there are, and a marker that no proxy can serve before it has heard of all of them. */
  replace(objects: readonly ObjectJson[]): void {
    this.#marker = (this.#marker + 1) % MARKERS;
    const wanted = [...objects.map(withDefaults), ...markerObjects(FIRST_MARKER + this.#marker)];
    const before = this.#objects;
    this.#objects = new Map(wanted.map((object) => [keyOf(object), JSON.stringify(object)]));
    for (const [key, text] of before) {
      if (!this.#objects.has(key)) this.#server.remove(JSON.parse(text));
    }
    for (const object of wanted) {
      if (before.get(keyOf(object)) !== JSON.stringify(object)) this.#server.put(this.#born(object));
    }
  }

  /** Resolves when the proxy of this node has put all of that into force, in both families. */
  async inForce(netns: Netns, mode: string): Promise<void> {
    const endpoints = MARKER_ENDPOINTS.map((prefix) => `${prefix}${FIRST_MARKER + this.#marker}`);
    for (const [family, command] of (LISTS[mode] ?? []).entries()) {
      const isThere = async (text: string, argv: string): Promise<boolean> =>
        (await netns.exec.run(argv.split(" "))).stdout.includes(text);
      const endpoint = endpoints[family]!;
      await until(() => isThere(endpoint, command), `${netns.name} serves ${endpoint}`, LOOK);
      // There the first sync writes rules after all servers.
      const save = LISTS["iptables"]![family]!;
      if (mode === "ipvs") await until(() => isThere("-j MASQUERADE", save), "rules beside servers", LOOK);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const gateway of this.#gateways) gateway[Symbol.dispose]();
    await this.#server[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }

  #born(object: RawApiObject): RawApiObject {
    const creationTimestamp = "2026-01-01T00:00:00Z";
    return { ...object, metadata: { creationTimestamp, uid: `uid-${++this.#made}`, ...object.metadata } };
  }
}

function keyOf({ kind, metadata }: RawApiObject): string {
  return `${kind} ${metadata.namespace ?? ""}/${metadata.name}`;
}

function markerObjects(number: number): RawApiObject[] {
  return [
    service(MARKER, {
      clusterIP: MARKER_IPS[0],
      clusterIPs: MARKER_IPS,
      ipFamilies: ["IPv4", "IPv6"],
      ports: [`m${number}:1`],
    }),
    ...MARKER_ENDPOINTS.map((prefix, i) =>
      slice(`${MARKER}.${i}`, [`m${number}:1`], [`${prefix}${number}@node-a`])
    ),
  ].map(withDefaults);
}

/** Lines of a listing without those of the marker: its chains, rules, servers, entries and addresses. */
export function withoutMarker(lines: readonly string[]): string[] {
  const isMarked = (line: string): boolean => /zz\/marker|\b10\.111\.|fd00:10:111:/.test(line);
  const chains = new Set(
    lines.filter(isMarked).flatMap((line) => /-A (KUBE-(?:SVC|SEP)-\S+)/.exec(line)?.[1] ?? []),
  );
  return lines.filter((line) => !isMarked(line) && !chains.has(/^:(\S+)/.exec(line)?.[1] ?? ""));
}

/** The object with what an API server fills in and kube-proxy relies upon. */
function withDefaults(object: ObjectJson): RawApiObject {
  if (object.kind !== "Service") return raw(object);
  const { spec = {}, status, ...rest } = object as ObjectJson<"Service">;
  const clientIP = { timeoutSeconds: 10_800 };
  const ingress = status?.loadBalancer?.ingress?.map((one) =>
    one.ip === undefined ? one : { ipMode: "VIP", ...one }
  );
  return raw(
    {
      ...rest,
      spec: {
        internalTrafficPolicy: "Cluster",
        ...(spec.type === "ClusterIP" ? {} : { externalTrafficPolicy: "Cluster" }),
        ...(spec.sessionAffinity === "ClientIP" ? { sessionAffinityConfig: { clientIP } } : {
          sessionAffinity: "None",
        }),
        ...spec,
      },
      ...(ingress === undefined ? {} : { status: { loadBalancer: { ingress } } }),
    } as ObjectJson,
  );
}
