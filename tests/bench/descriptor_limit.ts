/**
 * How many descriptors a program of a benchmark may have.
 *
 * @module
 */

/** Enough for ten thousand idle connections, of which each takes a forwarder two. */
const WANTED = 65_536;
/** What a forwarder needs beside its connections; kproxy leaves 96 to programs and files. */
const OTHERS = 200;

/** The words before a program that give it as many as can be had, and how many that are. */
export interface DescriptorLimit {
  readonly prefix: readonly string[];
  readonly count: number;
}

/** Raised if this process may, else the hard limit of this process. */
export async function descriptorLimit(): Promise<DescriptorLimit> {
  const hard = hardLimit(await Deno.readTextFile("/proc/self/limits"));
  for (const count of hard >= WANTED ? [hard] : [WANTED, hard]) {
    const prefix = ["prlimit", `--nofile=${count}:${count}`];
    const [program = "", ...args] = [...prefix, "true"];
    const { success } = await new Deno.Command(program, { args, stderr: "null" }).output();
    if (success) return { prefix, count };
  }
  throw new Error(`prlimit cannot set ${hard} descriptors`);
}

/** Of what `/proc/PID/limits` says; Infinity if there is none. */
export function hardLimit(limits: string): number {
  const hard = /^Max open files\s+\S+\s+(\S+)/m.exec(limits)?.[1];
  if (hard === undefined) throw new SyntaxError("No limit of open files");
  return hard === "unlimited" ? Infinity : Number(hard);
}

/** How many idle connections so many descriptors allow, of those that are wanted. */
export function connectionsWithin(wanted: number, { count }: Pick<DescriptorLimit, "count">): number {
  return Math.min(wanted, Math.max(0, Math.floor((count - OTHERS) / 2)));
}
