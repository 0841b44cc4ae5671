/**
 * What a proxy costs the API server, as tables.
 *
 * @module
 */
import type { ApiFigures, ListCost, ListWay, ProxyCost } from "./api_measure.ts";
import type { ProxyName } from "./api_proxies.ts";
import type { ClusterSize } from "./fake_objects.ts";
import { quantile } from "./figures.ts";

/** A Pod lives a day, on average: what is rolled out, scaled, moved and drained. */
const POD_LIFE_SECONDS = 24 * 3600;
/** Its endpoint comes, becomes ready, ends, and is gone; each is written once. */
const WRITES_OF_A_POD = 4;

/** How often the slices of a cluster change, by the endpoints there are. */
export function changesPerSecond({ services, endpoints }: ClusterSize): number {
  return services * endpoints * WRITES_OF_A_POD / POD_LIFE_SECONDS;
}

function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The median of the ratios of each round: what disturbs a round disturbs both sides of it. */
export function ratio(of: readonly number[], to: readonly number[]): number {
  return median(of.map((value, i) => value / to[i]!));
}

const kilobytes = (bytes: number): string =>
  (bytes / 1000).toLocaleString("en", { maximumFractionDigits: 0 });
const whole = (value: number): string => Math.round(value).toLocaleString("en");
const times = (value: number): string => Number.isFinite(value) ? `${value.toFixed(2)} ×` : "";

function wayName({ contentType, isStreamed }: ListWay): string {
  const form = contentType === "application/json" ? "JSON" : "protobuf";
  return `${form}, ${isStreamed ? "as watches" : "from memory"}`;
}

/** Each way packed beside itself not packed. */
export function compressionTable(lists: ApiFigures["lists"]): readonly string[] {
  if (lists.length === 0) return [];
  const value = (rounds: readonly ListCost[], key: keyof ListCost): readonly number[] =>
    rounds.map((one) => one[key]);
  const rows = lists.filter(({ way }) => !way.isPacked).map(({ way, rounds: plain }) => {
    const packed = lists.find((other) => other.way.isPacked && wayName(other.way) === wayName(way))?.rounds ??
      [];
    const cells = (["received", "serverMs", "ownCpuMs", "syncedMs"] as const).map((key) => {
      const [before, after] = [value(plain, key), value(packed, key)];
      const text = key === "received" ? kilobytes : whole;
      return `${text(median(before))} → ${text(median(after))} (${times(ratio(after, before))})`;
    });
    return `| ${wayName(way)} | ${cells.join(" | ")} |`;
  });
  return [
    "| lists, not packed → packed | KB received | server's CPU, ms | own CPU, ms | until synced, ms |",
    "| --- | --- | --- | --- | --- |",
    ...rows,
  ];
}

function sumOf(requests: ProxyCost["requests"]): number {
  return [...requests.values()].reduce((sum, count) => sum + count, 0);
}

/** What a proxy costs, a column each. */
const COSTS: readonly {
  readonly head: string;
  readonly of: (cost: ProxyCost) => number;
  readonly text: (value: number) => string;
}[] = [
  { head: "requests", of: ({ requests }) => sumOf(requests), text: whole },
  { head: "KB received", of: ({ received }) => received, text: kilobytes },
  { head: "KB sent", of: ({ sent }) => sent, text: kilobytes },
  { head: "server's CPU, ms", of: ({ serverMs }) => serverMs, text: whole },
  { head: "own CPU, ms", of: ({ ownMs }) => ownMs, text: whole },
  { head: "its programs', ms", of: ({ programsMs }) => programsMs, text: whole },
];
const COST_HEAD = [
  `| | ${COSTS.map(({ head }) => head).join(" | ")} |`,
  `| --- | ${COSTS.map(() => "---").join(" | ")} |`,
];

function costRow(what: string, name: string, rounds: readonly ProxyCost[]): string {
  const cells = COSTS.map(({ of, text }) => text(median(rounds.map(of))));
  return `| ${what}: ${name} | ${cells.join(" | ")} |`;
}

/** kproxy's share of what the peer costs, in each round. */
function shareRow(what: string, own: readonly ProxyCost[], peer: readonly ProxyCost[]): string {
  const cells = COSTS.map(({ of }) => times(ratio(own.map(of), peer.map(of))));
  return `| ${what}: ratio | ${cells.join(" | ")} |`;
}

/** Both proxies' starts and changes, with their ratios. `title` names the peer. */
export function costTable(
  { services, endpoints }: ClusterSize,
  { starts, changes, changed }: ApiFigures,
  title: string,
): readonly string[] {
  const size = `${services.toLocaleString("en")} × ${endpoints}`;
  const minutes = changed.seconds / 60;
  const parts: [string, ReadonlyMap<ProxyName, readonly ProxyCost[]>][] = [
    [`start, ${size}`, starts],
    [
      `${whole(changed.count)} changes in ${minutes} min, ${size}`,
      new Map([...changes].map(([name, cost]) => [name, [cost]])),
    ],
  ];
  const rows = parts.flatMap(([what, costs]) => {
    const [own, peer] = [costs.get("kproxy") ?? [], costs.get("peer") ?? []];
    return [
      ...(own.length === 0 ? [] : [costRow(what, "kproxy", own)]),
      ...(peer.length === 0 ? [] : [costRow(what, title, peer), shareRow(what, own, peer)]),
    ];
  });
  return rows.length === 0 ? [] : [...COST_HEAD, ...rows];
}

/** What the requests of a run were, by verb and resource; of several rounds the last one's. */
export function requestLines({ starts, changes }: ApiFigures, title: string): readonly string[] {
  const line = (what: string, name: ProxyName, cost: ProxyCost | undefined): readonly string[] =>
    cost === undefined ? [] : [
      `${what}, ${name === "peer" ? title : name}: ` +
      [...cost.requests].sort().map(([key, count]) => `${count} × ${key}`).join(", "),
    ];
  return [
    ...[...starts].flatMap(([name, costs]) => line("start", name, costs.at(-1))),
    ...[...changes].flatMap(([name, cost]) => line("changes", name, cost)),
  ];
}
