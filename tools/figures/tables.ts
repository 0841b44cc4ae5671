/**
 * The tables of measured figures in README and documentation, from the records of `docs/records/`.
 *
 * @module
 */
import {
  type HostileRecord,
  PACKETS_FILE,
  type PacketsRecord,
  type PacketsRow,
  PROXIES_FILE,
  type ProxiesRecord,
  type ProxiesRow,
  type RecordHead,
} from "./records.ts";
import { markdownTable } from "../markdown_table.ts";
import { isClearlyMore, isMeasured, spread } from "./samples.ts";

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return markdownTable(head, rows, (column) => column >= 2);
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(2);
}

function short(value: number): string {
  return value < 9.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

function sizeOf({ services, endpoints }: ProxiesRow): string {
  return `${services.toLocaleString("en")} × ${endpoints}`;
}

function loadWords({ load }: RecordHead): string {
  return load.map((value) => value.toFixed(1)).join(" before and ");
}

/** With what, when and where it was measured. */
function headLines(file: string, record: RecordHead): string[] {
  const { date, commit, machine, n, versions, command } = record;
  const { kproxy, kubeProxy, nft, iptables, deno } = versions;
  const from = `${commit.slice(0, 9)}${commit.endsWith("-dirty") ? " with changes" : ""}`;
  return [
    `Measured on ${date} by \`${command}\`, ${n} rounds in turns: kproxy ${kproxy} at commit ${from}`,
    `(the bundle, on Deno ${deno}), ${kubeProxy ?? "no kube-proxy"}, nft ${nft}, iptables ${iptables};`,
    `${machine}, load ${loadWords(record)} after. Medians, with the least and`,
    `the most of all rounds in brackets. All samples: [${file}](${file.replace("docs/", "")}).`,
  ];
}

/** The README's tables: kproxy beside kube-proxy, then beside the bare tool. */
export function readmeTables(record: ProxiesRecord): string {
  const pair = (
    { kproxy, kubeProxy }: ProxiesRow,
    of: "firstSyncMs" | "changeMs" | "residentMb",
    format: (value: number) => string,
  ): string[] => [
    spread(kproxy[of], format),
    // The first cell says why the others are empty.
    isMeasured(kubeProxy) ? spread(kubeProxy[of], format) : of === "firstSyncMs" ? kubeProxy : "–",
  ];
  const rows = record.rows.map((row) => [
    row.mode,
    sizeOf(row),
    ...pair(row, "firstSyncMs", seconds),
    ...pair(row, "changeMs", short),
    ...pair(row, "residentMb", whole),
  ]);
  const head = ["Mode", "Services × endpoints", "First sync, s: kproxy", "kube-proxy"];
  return [
    table([...head, "Change, ms: kproxy", "kube-proxy", "Memory, MB: kproxy", "kube-proxy"], rows),
    "",
    ...headLines(PROXIES_FILE, record).map((line) => line.replace("](records", "](docs/records")),
    "",
    "The floor is the bare tool (`nft -f -`, `iptables-restore`), fed with the text that kproxy wrote for IPv4. It reads no",
    "objects and looks at nothing on the node. For a change it is started before, as kproxy starts it, or with it:",
    "",
    floorTable(record.rows),
  ].join("\n");
}

function floorTable(rows: readonly ProxiesRow[]): string {
  return table(
    [
      "Mode",
      "Services × endpoints",
      "First sync, s: kproxy",
      "bare",
      "Change, ms: kproxy",
      "bare, started before",
      "bare, with its start",
    ],
    rows.map((row) => [
      row.mode,
      sizeOf(row),
      spread(row.kproxy.firstSyncMs, seconds),
      spread(row.bare.firstSyncMs, seconds),
      spread(row.kproxy.changeMs, short),
      spread(row.bare.changeMs, short),
      spread(row.bare.changeWithStartMs, short),
    ]),
  );
}

/** What a node needs: processor of a start, and memory of process and container. */
export function costTables(record: ProxiesRecord): string {
  const quantities = [
    ["startCpuMs", whole],
    ["anonymousMb", whole],
    ["peakMb", whole],
    ["chargedMb", whole],
    ["chargedPeakMb", whole],
  ] as const;
  const told = (samples: readonly number[], format: (value: number) => string): string =>
    samples.length === 0 ? "–" : spread(samples, format);
  const rows = record.rows.flatMap((row) => {
    const of = { kproxy: row.kproxy, "kube-proxy": row.kubeProxy };
    return Object.entries(of).map(([name, samples]) => [
      row.mode,
      sizeOf(row),
      name,
      ...typeof samples === "string"
        ? [samples, "", "", "", ""]
        : quantities.map(([key, format]) => told(samples[key], format)),
    ]);
  });
  return [
    table([
      "Mode",
      "Services × endpoints",
      "Proxy",
      "CPU of a start, ms",
      "anonymous, MB",
      "peak, MB",
      "container, MB",
      "container at most, MB",
    ], rows),
    "",
    ...headLines(PROXIES_FILE, record),
  ].join("\n");
}

/** Cells of one row of the packets' table. */
const PACKET_CELLS = [
  ["to a pod, µs", ({ connectUs }: PacketsRow["path"]) => connectUs.pod],
  ["first Service, µs", ({ connectUs }: PacketsRow["path"]) => connectUs.first],
  ["middle, µs", ({ connectUs }: PacketsRow["path"]) => connectUs.middle],
  ["last, µs", ({ connectUs }: PacketsRow["path"]) => connectUs.last],
  ["connections a second", ({ connectionsPerSecond }: PacketsRow["path"]) => connectionsPerSecond],
  ["node port, MB/s", ({ megabytesPerSecond }: PacketsRow["path"]) => megabytesPerSecond],
] as const;

/** How packets pass, and in which cells kproxy's rules are clearly slower than kube-proxy's. */
export function packetsTable(record: PacketsRecord): string {
  const rows = record.rows.map(({ mode, proxy, path }) => [
    mode ?? "–",
    proxy === "none" ? "no Services" : proxy,
    ...PACKET_CELLS.map(([, samples]) => spreadOr(samples(path))),
  ]);
  const slower = slowerCells(record.rows);
  return [
    table(["Mode", "Rules of", ...PACKET_CELLS.map(([title]) => title)], rows),
    "",
    slower.length === 0
      ? "In no cell is kproxy slower than kube-proxy by more than rounds differ."
      : `kproxy is slower than kube-proxy by more than rounds differ: ${slower.join("; ")}.`,
    "",
    ...headLines(PACKETS_FILE, record),
  ].join("\n");
}

function spreadOr(samples: readonly number[] | undefined): string {
  return samples === undefined ? "–" : spread(samples, whole);
}

/** Where every round of kproxy is worse than every one of kube-proxy's, `iptables, last, µs`. */
function slowerCells(rows: readonly PacketsRow[]): string[] {
  return rows.filter(({ proxy }) => proxy === "kproxy").flatMap(({ mode, path }) => {
    const peer = rows.find((row) => row.proxy === "kube-proxy" && row.mode === mode);
    if (peer === undefined) return [];
    return PACKET_CELLS.filter(([title, samples]) => {
      const [ours, theirs] = [samples(path) ?? [], samples(peer.path) ?? []];
      const [worse, better] = title.endsWith("µs") ? [ours, theirs] : [theirs, ours];
      return isClearlyMore(worse, better);
    }).map(([title]) => `mode ${mode}, ${title}`);
  });
}

/** What one object costs that was written to cost much. */
export function hostileTable(record: HostileRecord): string {
  const rows = record.rows.map(({ mode, object, worst }) => {
    const { livezMs, computingMs, residentMb, firstEditMs, editMs } = worst;
    return [mode, object, ...[livezMs, computingMs, residentMb, firstEditMs, editMs].map(whole)];
  });
  return [table(["mode", "object", ...HOSTILE_HEAD], rows), "", ...hostileWords(record)].join(
    "\n",
  );
}

const HOSTILE_HEAD = [
  "`/livez`, ms",
  "of that computing",
  "resident, MB",
  "edit beside it, ms",
  "edit later, ms",
];

/** Mode ipvs beside another mode on the same slow kernel: each figure, and how many times as much it is. */
export function hostileIpvsTable(record: HostileRecord): string {
  const rows = record.rows.filter(({ mode }) => mode === "ipvs").flatMap((ipvs) =>
    record.rows.filter(({ mode, object }) => mode !== "ipvs" && object === ipvs.object).map((other) => {
      const cell = (key: keyof typeof ipvs.worst): string =>
        `${whole(ipvs.worst[key])} / ${whole(other.worst[key])} (× ${
          short(ipvs.worst[key] / other.worst[key])
        })`;
      const keys = ["livezMs", "computingMs", "residentMb", "firstEditMs", "editMs"] as const;
      return [`ipvs / ${other.mode}`, ipvs.object, ...keys.map(cell)];
    })
  );
  return [table(["modes", "object", ...HOSTILE_HEAD], rows), "", ...hostileWords(record)].join(
    "\n",
  );
}

function hostileWords(record: HostileRecord): readonly string[] {
  const { date, commit, machine, n, command } = record;
  return [
    `Measured on ${date} by \`${command}\`, kproxy from source at commit ${commit.slice(0, 9)};`,
    `${machine}, load ${loadWords(record)} after. Of each figure the worst of ${n} rounds.`,
  ];
}
