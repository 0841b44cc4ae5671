/**
 * The benchmark task: `deno task bench proxies|packets [--peer PATH] [--record] [--mode nftables|iptables]... [--services N]...
 * [--endpoints N] [--rounds N] [--changes N] [--peer-seconds N] [--program PATH]`. `proxies` measures first syncs, changes and memory (`measure`), `packets`
 * the way of packets through the rules (`packets`); both build the bundle and measure it beside a kube-proxy, which `--peer` names. With
 * `--record` what was measured becomes the record in `docs/figures`, of which `deno task docs` makes the documentation's tables. Needs
 * root; works in network namespaces of its own.
 *
 * @module
 */
import { buildBundle } from "../../tools/bundle.ts";
import { PACKETS_FILE, PROXIES_FILE } from "../../tools/figures/records.ts";
import { packetsTable, readmeTables } from "../../tools/figures/tables.ts";
import { writeErrorLine, writeLine } from "../../tools/output.ts";
import { ROOT } from "../../tools/project_files.ts";
import { buildCommit } from "../../tools/release/commit.ts";
import { type BenchArgs, parseBenchArgs } from "./bench_args.ts";
import { inBenchFolder } from "./bench_folder.ts";
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

/** All sizes of all modes. Once the peer is too slow at one size, it is not asked at larger ones of the mode. */
async function proxyRows(args: Args, program: string, folder: string) {
  const { modes, sizes, endpoints, rounds, changes, peerLimitMs, found } = args;
  const rows = [];
  for (const mode of modes) {
    let peer: Peer | string = found ?? NO_PEER;
    for (const services of sizes) {
      const onProgress = (message: string): void =>
        writeErrorLine(`${mode.title}, ${services} × ${endpoints}: ${message}`);
      const size = { services, endpoints };
      const own = `${folder}/${mode.proxyMode}-${services}`;
      await Deno.mkdir(own);
      const row = await measure({ size, mode, program, peer, peerLimitMs, rounds, changes, onProgress }, own);
      rows.push(row);
      if (typeof row.kubeProxy === "string" && found !== undefined) peer = "not tried";
    }
  }
  return rows;
}

async function builtProgram(folder: string): Promise<string> {
  writeErrorLine(await buildBundle(`${folder}/bundle`, await buildCommit()));
  return `${folder}/bundle/kproxy.js`;
}

async function bench(args: Args, folder: string): Promise<void> {
  const { subject, rounds, found, isRecorded } = args;
  const end = await beginRecord({ words: Deno.args, rounds, kubeProxy: found?.version ?? null });
  const program = args.program === undefined ? await builtProgram(folder) : await Deno.realPath(args.program);
  let text: string;
  let record;
  if (subject === "proxies") {
    const rows = await proxyRows(args, program, folder);
    record = { ...end(), rows };
    text = readmeTables({ record, code: record.code });
  } else {
    const [services = 1000] = args.sizes;
    const size = { services, endpoints: args.endpoints };
    const rows = await measurePackets({ ...args, size, program, peer: found }, folder);
    record = { ...end(), ...size, rows };
    text = packetsTable({ record, code: record.code });
  }
  writeLine(text);
  const file = subject === "proxies" ? PROXIES_FILE : PACKETS_FILE;
  if (!isRecorded) return;
  await Deno.writeTextFile(`${ROOT}/${file}`, recordText(record));
  writeErrorLine(`Written: ${file}. "deno task docs" makes the tables of it`);
}

if (import.meta.main) {
  const args = await readArgs();
  await inBenchFolder((folder) => bench(args, folder));
}
