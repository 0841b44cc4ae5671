/**
 * A soak: the one kproxy of a long run may take no more descriptors and no more memory as it goes.
 *
 * @module
 */
import { anonymousMemory } from "../bench/process_costs.ts";
import type { ChaosReport } from "./run.ts";

/** Faults that end the process, by their names: a soak is about one that goes on. */
export const ENDING_FAULTS = "and a start";

/** A process in a quiet moment. */
export interface SoakSample {
  readonly minute: number;
  readonly descriptors: number;
  readonly anonymousMb: number;
}

/** What is committed of a soak: what was run, where, and what came of it. */
export interface SoakRecord {
  readonly command: string;
  readonly commit: string;
  readonly date: string;
  readonly machine: {
    readonly kernel: string;
    readonly cpus: number;
    readonly memoryGb: number;
    /** Load averages at the end: how much else went on. */
    readonly load: readonly number[];
  };
  readonly report: Omit<ChaosReport, "faults" | "problems" | "repairMs"> & { readonly faults: number };
  readonly samples: readonly SoakSample[];
}

/** Medians of the second and of the last third of the time; the first third is that of filling up. */
export interface SoakTrend {
  readonly descriptors: readonly [number, number];
  readonly anonymousMb: readonly [number, number];
}

/** Fewer say nothing. */
const LEAST_SAMPLES = 9;
/** Connections come and go: so many more are none that were left open, of which each step would leave some. */
const MORE_DESCRIPTORS = 3;
const MORE_MEMORY = 0.1;

/** Looks at the process again and again. */
export class Soak {
  readonly samples: SoakSample[] = [];

  async look(pid: number, ms: number): Promise<void> {
    const descriptors = [...Deno.readDirSync(`/proc/${pid}/fd`)].length;
    const anonymousMb = await anonymousMemory(pid);
    this.samples.push({
      minute: Number((ms / 60_000).toFixed(2)),
      descriptors,
      anonymousMb: Number(anonymousMb.toFixed(1)),
    });
  }
}

/** How the process was in the second and in the last third of the time. */
export function soakTrend(samples: readonly SoakSample[]): SoakTrend {
  const third = Math.floor(samples.length / 3);
  const thirds = [samples.slice(third, samples.length - third), samples.slice(samples.length - third)];
  const of = (figure: "descriptors" | "anonymousMb"): [number, number] => [
    median(thirds[0]!.map((sample) => sample[figure])),
    median(thirds[1]!.map((sample) => sample[figure])),
  ];
  return { descriptors: of("descriptors"), anonymousMb: of("anonymousMb") };
}

/** What grew; nothing if all is flat. */
export function soakProblems(samples: readonly SoakSample[]): string[] {
  if (samples.length < LEAST_SAMPLES) return [`only ${samples.length} samples: a soak takes longer`];
  const { descriptors, anonymousMb } = soakTrend(samples);
  return [
    ...(descriptors[1] > descriptors[0] + MORE_DESCRIPTORS
      ? [`descriptors grew from ${descriptors.join(" to ")}`]
      : []),
    ...(anonymousMb[1] > anonymousMb[0] * (1 + MORE_MEMORY)
      ? [`memory grew from ${anonymousMb.join(" to ")} MB`]
      : []),
  ];
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** The sentence of docs/reliability.md. */
export function soakSentence({ command, commit, date, machine, report, samples }: SoakRecord): string {
  const { descriptors, anonymousMb } = soakTrend(samples);
  return `\`${command}\` of ${date}, commit ${commit}, ${machine.cpus} cores, Linux ${machine.kernel}, load ` +
    `${machine.load[0]?.toFixed(0)}: ${report.minutes.toFixed(1)} minutes, ${
      count(report.changes)
    } changes, ` +
    `${count(report.faults)} faults, ${
      count(report.connections)
    } connections. Medians of the second and of ` +
    `the last third of ${samples.length} samples: ${descriptors.join(" and ")} descriptors, ` +
    `${anonymousMb.map((one) => one.toFixed(1)).join(" and ")} MB.`;
}

function count(value: number): string {
  return value.toLocaleString("en-US");
}
