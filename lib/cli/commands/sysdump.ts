/**
 * `kproxy sysdump FILE`: what a bug report needs, as one archive.
 *
 * @module
 */
import { UsageError } from "../../errors.ts";
import { type PartOutcome, sysdump, sysdumpParts } from "../../inspect/sysdump/sysdump.ts";
import { wallClockMs } from "../../kernel/clock.ts";
import { type Exec, systemExec } from "../../kernel/exec.ts";
import { nodeName } from "../../kernel/machine.ts";
import { rawVersion, type VersionFacts, versionLine } from "../../node/version.ts";
import type { ParsedFlags } from "../flags/parse_args.ts";
import { EndedBySignals, type Io, OutputClosedError } from "../io.ts";
import { Activity } from "../terminal/drawing.ts";
import { escaped } from "../../text/quote.ts";
import { configurationWithWarnings } from "./output.ts";
import { versionFacts } from "./version.ts";

/** Limits of each part. Rules of 10,000 Services take a tool a second or two. */
const PART_LIMIT_MS = 10_000;
const PART_LIMIT_BYTES = 64 * 2 ** 20;
/** Longest name of the node in the name of the folder. */
const MAX_NAME_LENGTH = 40;

/** Packs; 0 if the archive is whole, even if parts could not be read. */
export async function sysdumpCommand(flags: ParsedFlags, io: Io, exec: Exec = systemExec): Promise<number> {
  const [target] = flags.operands;
  const isCompressed = formOf(target);
  const { config } = await configurationWithWarnings(flags, io);
  const name = nodeName(config).replaceAll(/[^A-Za-z0-9.-]/g, "_").slice(0, MAX_NAME_LENGTH);
  const time = new Date(wallClockMs()).toISOString().replaceAll(/[-:]/g, "").replace(/\.\d+/, "");
  const missing: PartOutcome[] = [];
  let count = 0;
  {
    using end = new EndedBySignals(undefined, new Error("sysdump was ended before it was done"));
    using activity = new Activity(io.terminal ?? null);
    const pieces = sysdump({
      parts: sysdumpParts({ exec, config, versions: versionsOf(await versionFacts()) }),
      folder: `kproxy-sysdump-${name}-${time}`,
      limits: { timeMs: PART_LIMIT_MS, bytes: PART_LIMIT_BYTES },
      signal: end.signal,
      nowMs: wallClockMs,
      say: (text) => activity.say(text),
      onOutcome: (outcome) => {
        count++;
        if (outcome.problem !== "") missing.push(outcome);
      },
    });
    const archive = ReadableStream.from(pieces);
    await write(isCompressed ? archive.pipeThrough(new CompressionStream("gzip")) : archive, target ?? "-");
  }
  for (const note of notesOf(missing)) io.err(`Note: ${escaped(note)}\n`);
  io.err(`Wrote ${count} parts, ${missing.length} of them not or not whole\n`);
  return 0;
}

/** One line for each reason: where no server listens, it is that of a dozen pages. */
function notesOf(missing: readonly PartOutcome[]): readonly string[] {
  return [...Map.groupBy(missing, ({ problem }) => problem)].map(([problem, parts]) =>
    `${parts.map(({ name }) => name).join(", ")}: ${problem}`
  );
}

/** True if the archive is to be compressed. @throws {UsageError} */
function formOf(target: string | undefined): boolean {
  if (target === undefined || target === "") {
    throw new UsageError(
      '"kproxy sysdump" needs a file: kproxy sysdump FILE.tar.gz, or - for standard output',
    );
  }
  if (target === "-") {
    if (!Deno.stdout.isTerminal()) return true;
    throw new UsageError("Standard output is a terminal: name a file, or lead it into a program");
  }
  if (/\.(tar\.gz|tgz)$/.test(target)) return true;
  if (target.endsWith(".tar")) return false;
  throw new UsageError(`"${target}" must end in .tar.gz, .tgz or .tar`);
}

function versionsOf(facts: VersionFacts): readonly string[] {
  return [
    versionLine(),
    rawVersion(facts),
    `V8 ${Deno.version.v8}, TypeScript ${Deno.version.typescript}, ${
      Deno.build.standalone ? "compiled" : "from source"
    }`,
    `Kernel ${Deno.osRelease()}`,
    `User ${Deno.uid()}`,
  ];
}

async function write(archive: ReadableStream<Uint8Array<ArrayBuffer>>, target: string): Promise<void> {
  if (target === "-") {
    try {
      await archive.pipeTo(Deno.stdout.writable, { preventClose: true });
    } catch (cause) {
      if (cause instanceof Deno.errors.BrokenPipe) {
        throw new OutputClosedError("the reader closed the output", { cause });
      }
      throw cause;
    }
    return;
  }
  // A file that is there, and a link, too, stays as it is.
  const file = await openNew(target);
  try {
    await archive.pipeTo(file.writable);
  } catch (error) {
    // Half an archive is of no use.
    await Deno.remove(target);
    throw error;
  }
}

/** @throws {UsageError} if something of this name is there; {Error} with the reason, if the file cannot be made */
async function openNew(target: string): Promise<Deno.FsFile> {
  try {
    return await Deno.open(target, { write: true, createNew: true, mode: 0o600 });
  } catch (cause) {
    if (cause instanceof Deno.errors.AlreadyExists) {
      throw new UsageError(`${target} is there already; sysdump replaces nothing`);
    }
    if (!(cause instanceof Error)) throw cause;
    const reason = cause.message.replace(/: open '[^]*$/, "");
    throw new Error(`Cannot write "${target}": ${reason}`);
  }
}
