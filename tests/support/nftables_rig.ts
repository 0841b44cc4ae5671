/**
 * A proxier of nftables mode on a fake nft, and its resulting table.
 *
 * @module
 */
import { NftablesProxier } from "../../lib/backend/nftables/apply/proxier.ts";
import type { ApplyReport, SyncRequest } from "../../lib/backend/backend.ts";
import { isAffinitySet } from "../../lib/backend/nftables/plan/chains.ts";
import type { Exec } from "../../lib/kernel/exec.ts";
import { Nft } from "../../lib/kernel/nft.ts";
import type { ApiObject, NamespacedName } from "../../lib/model/objects.ts";
import { testService, testSlice, testSliceEndpoint } from "./model_objects.ts";
import { type ListedTable, parseTable } from "../../lib/netfilter/nft_listing.ts";
import { type Logger, silentLogger } from "../../lib/observe/log.ts";
import { FakeNft } from "./fake_nft.ts";
import { exampleState } from "./golden.ts";
import { exampleNftablesOptions } from "./golden_nftables.ts";

export const TABLE = "ip kproxy";
const { nodePortIps, family: _, ...settings } = exampleNftablesOptions("IPv4");
export const SETTINGS = settings;

/** A Service `shop/<name>` with these endpoints at 10.96.1.<number>, the number in its name. */
export function service(
  name: string,
  endpoints: readonly string[],
  fields: Parameters<typeof testService>[0] = {},
): ApiObject[] {
  const number = Number(/\d+/.exec(name)?.[0] ?? 0);
  return [
    testService({ name, clusterIP: `10.96.1.${number}`, ...fields }),
    testSlice({
      name: `${name}-1`,
      serviceName: name,
      endpoints: endpoints.map((ip) => testSliceEndpoint(ip, { nodeName: "node-b" })),
    }),
  ];
}

export const A = service("s1", ["10.244.1.1", "10.244.1.2"]);
export const B = service("s2", ["10.244.1.3"]);
export const STICKY = service("s3", ["10.244.1.5", "10.244.1.6"], { sessionAffinity: "ClientIP" });

/** A proxier with a clock that the test moves. */
export interface NftablesRig {
  readonly fake: FakeNft;
  readonly proxier: NftablesProxier;
  readonly clock: { nowMs: number };
  /** Syncs the named Services (all without names) to these objects. */
  sync(objects: readonly ApiObject[], changed?: readonly string[]): Promise<ApplyReport>;
}

/** A proxier that starts its programs by `exec`. */
export function nftablesProxier(
  exec: Exec,
  clock: { readonly nowMs: number } = { nowMs: 0 },
  elementsPerTransaction?: number,
  logger: Logger = silentLogger,
): NftablesProxier {
  return new NftablesProxier({
    family: "IPv4",
    nft: new Nft(exec),
    settings: SETTINGS,
    interfaceIps: () => nodePortIps,
    logger,
    nowMs: () => clock.nowMs,
    ...elementsPerTransaction === undefined ? {} : { elementsPerTransaction },
  });
}

/** A request to sync the named Services, by default of namespace `shop` (all without names), to these objects. */
export function syncRequest(objects: readonly ApiObject[], changed?: readonly string[]): SyncRequest {
  const names = changed?.map((name): NamespacedName => name.includes("/") ? name : `shop/${name}`);
  return {
    state: exampleState("IPv4", objects),
    changed: names === undefined ? "all" : new Set(names),
  };
}

/** A proxier on a fake kernel. */
export function nftablesRig(fake: FakeNft = new FakeNft(), elementsPerTransaction?: number): NftablesRig {
  const clock = { nowMs: 0 };
  const proxier = nftablesProxier(fake, clock, elementsPerTransaction);
  fake.runs.length = 0;
  return {
    fake,
    proxier,
    clock,
    sync: (objects, changed) => proxier.sync(syncRequest(objects, changed)),
  };
}

/** Contents of a table, by name. */
export interface EndState {
  readonly comment: string;
  readonly hooks: Readonly<Record<string, string>>;
  readonly chains: Readonly<Record<string, readonly string[]>>;
  readonly elements: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly affinitySets: Readonly<Record<string, number>>;
}

/** The table without handles, empty chains and order. */
export function endState(fake: FakeNft, table: string = TABLE): EndState {
  return endStateOf(parseTable(fake.listed(table)));
}

/** {@linkcode endState} of a listed table. */
export function endStateOf({ comment, chains, containers }: ListedTable): EndState {
  const sorted = <T>(entries: Iterable<readonly [string, T]>): Readonly<Record<string, T>> =>
    Object.fromEntries([...entries].sort(([a], [b]) => a < b ? -1 : 1));
  const [all, sets] = [[...chains.values()], [...containers]];
  return {
    comment,
    hooks: sorted(all.flatMap(({ name, hook }) => hook === undefined ? [] : [[name, hook]])),
    chains: sorted(all.filter(({ rules }) => rules.length > 0).map(({ name, rules }) => [name, rules])),
    elements: sorted(
      sets.filter(([name]) => !isAffinitySet(name)).map(([name, { elements }]) => [name, sorted(elements)]),
    ),
    affinitySets: sorted(
      sets.filter(([name]) => isAffinitySet(name)).map((
        [name, { timeoutSeconds = 0 }],
      ) => [name, timeoutSeconds]),
    ),
  };
}

/** The table that a first sync of these objects makes. */
export async function freshState(objects: readonly ApiObject[]): Promise<EndState> {
  const other = nftablesRig();
  await other.sync(objects);
  return endState(other.fake);
}
