/**
 * The benchmark task: `deno task bench proxies|packets [--peer PATH] [--record] [--mode nftables|iptables]... [--services N]...
 * [--endpoints N] [--rounds N] [--changes N] [--peer-seconds N] [--program PATH]`. `proxies` measures first syncs, changes and memory (`measure`), `packets`
 * the way of packets through the rules (`packets`); both build the bundle and measure it beside a kube-proxy, which `--peer` names. With
 * `--record` what was measured becomes the record in `docs/records`, of which `deno task docs` makes the documentation's tables. Needs
 * root; works in network namespaces of its own.
 *
 * @module
 */
import { buildBundle } from "../../tools/bundle.ts";
import { PACKETS_FILE, PROXIES_FILE, type ProxiesRow } from "../../tools/figures/records.ts";
import { costTables, packetsTable, readmeTables } from "../../tools/figures/tables.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";
import { type BenchArgs, parseBenchArgs } from "./bench_args.ts";
import { inBenchFolder } from "./bench_netns.ts";
import { measure } from "./measure.ts";
import { measurePackets } from "./packets.ts";
import { findPeer, type Peer } from "./peer_process.ts";
import { beginRecord, recordText } from "./record.ts";

const NO_PEER = "not measured";

/** The arguments, and what stands at the path of the peer; a mistake is a line, and ends the program with status 2. */
async function readArgs(): Promise<BenchArgs & { found: Peer | undefined }> {
  try {
    const args = parseBenchArgs(Deno.args);
    return { ...args, found: args.peer === undefined ? undefined : await findPeer(args.peer) };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    writeErrorLine(error.message);
    Deno.exit(2);
  }
}

type Args = Awaited<ReturnType<typeof readArgs>>;

/**
 * All sizes of all modes, one row after the other. Once the peer is too slow at one size, it is not asked at larger ones of the mode. What
 * fails is told and left out, and the program fails with it: the others took their time, too.
 */
async function* proxyRows(args: Args, program: string, folder: string): AsyncGenerator<ProxiesRow> {
  const { modes, sizes, endpoints, rounds, changes, peerLimitMs, found } = args;
  for (const mode of modes) {
    let peer: Peer | string = found ?? NO_PEER;
    for (const services of sizes) {
      const onProgress = (message: string): void =>
        writeErrorLine(`${mode.title}, ${services} × ${endpoints}: ${message}`);
      const size = { services, endpoints };
      const own = `${folder}/${mode.proxyMode}-${services}`;
      await Deno.mkdir(own);
      try {
        const row = await measure(
          { size, mode, program, peer, peerLimitMs, rounds, changes, onProgress },
          own,
        );
        if (typeof row.kubeProxy === "string" && found !== undefined) peer = "not tried";
        yield row;
      } catch (error) {
        onProgress(`failed: ${error instanceof Error ? error.message : String(error)}`);
        Deno.exitCode = 1;
      }
    }
  }
}

async function builtProgram(folder: string): Promise<string> {
  writeErrorLine(await buildBundle(`${folder}/bundle`, await buildCommit()));
  return `${folder}/bundle/kproxy.js`;
}

async function bench(args: Args, folder: string): Promise<void> {
  const { subject, rounds, found, isRecorded, endpoints } = args;
  const end = await beginRecord({
    words: ["deno", "task", "bench", ...Deno.args],
    rounds,
    kubeProxy: found?.version ?? null,
  });
  const program = args.program === undefined ? await builtProgram(folder) : await Deno.realPath(args.program);
  // After each row: what ends before the last one has not been for nothing.
  const keep = async (file: string, record: unknown): Promise<void> => {
    if (isRecorded) await Deno.writeTextFile(`${ROOT}/${file}`, recordText(record));
  };
  if (subject === "proxies") {
    const rows: ProxiesRow[] = [];
    for await (const row of proxyRows(args, program, folder)) {
      rows.push(row);
      await keep(PROXIES_FILE, { ...end(), rows });
    }
    const record = { ...end(), rows };
    writeLine(readmeTables(record));
    writeLine(costTables(record));
  } else {
    const [services = 1000] = args.sizes;
    const size = { services, endpoints };
    const rows = await measurePackets({ ...args, size, program, peer: found }, folder);
    const record = { ...end(), ...size, rows };
    await keep(PACKETS_FILE, record);
    writeLine(packetsTable(record));
  }
  if (isRecorded) writeErrorLine('Recorded. "deno task docs" makes the tables of it');
}

if (import.meta.main) {
  const args = await readArgs();
  await inBenchFolder((folder) => bench(args, folder));
}
