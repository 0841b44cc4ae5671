/**
 * A control group for memory: what a container is charged with, without a container.
 *
 * @module
 */
import { need } from "../support/skip.ts";

/** What the processes in a group are charged with, in megabytes (10⁶ bytes); with the kernel's share, and pages of files read first here. */
interface ChargedMemory {
  readonly nowMb: number;
  /** Of it the kernel's: rules, tables of pages, sockets. */
  readonly kernelMb: number;
  /** At most since the group was made. */
  readonly peakMb: number;
}

/** Where the kernel shows the figures of a group, and how. */
interface Figures {
  readonly now: string;
  readonly peak: string;
  readonly limit: string;
  /** Bytes of the kernel's, out of `file`'s text. */
  readonly kernel: { readonly file: string; readonly bytesIn: (text: string) => number };
}

const FIGURES: Readonly<Record<1 | 2, Figures>> = {
  1: {
    now: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    limit: "memory.limit_in_bytes",
    kernel: { file: "memory.kmem.usage_in_bytes", bytesIn: Number },
  },
  2: {
    now: "memory.current",
    peak: "memory.peak",
    limit: "memory.max",
    kernel: {
      file: "memory.stat",
      bytesIn: (text) => Number(/^kernel (\d+)$/m.exec(text)?.[1]),
    },
  },
};

/** Files in which a group's figures are. */
function figureFiles(version: 1 | 2): readonly string[] {
  const { now, peak, kernel } = FIGURES[version];
  return [now, peak, kernel.file];
}

/** The folder in which groups for memory are made, and which version of the kernel's interface it is. */
interface MemoryHierarchy {
  readonly folder: string;
  readonly version: 1 | 2;
}

/**
 * Finds the hierarchy in which this process is charged.
 *
 * @param mounts text of `/proc/self/mounts`
 * @param own text of `/proc/self/cgroup`
 * @throws {RangeError} if no hierarchy that is mounted counts memory
 */
function memoryHierarchy(mounts: string, own: string): MemoryHierarchy {
  const lines = mounts.split("\n").map((line) => line.split(" "));
  const one = lines.find(([, , type, options = ""]) =>
    type === "cgroup" && options.split(",").includes("memory")
  );
  if (one?.[1] !== undefined) {
    // Below the own group, so that its limits hold for what is measured, too.
    const path = /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/m.exec(own)?.[1] ?? "/";
    return { folder: `${one[1]}${path}`.replace(/\/$/, ""), version: 1 };
  }
  const two = lines.find(([, , type]) => type === "cgroup2");
  if (two?.[1] === undefined) throw new RangeError("No control group for memory is mounted");
  // At the root: elsewhere a group with processes, as the own one, can have none below it that counts memory.
  return { folder: two[1], version: 2 };
}

/** A kernel that lets this user make groups for memory. */
export const CONTROL_GROUPS = need("control groups", "a kernel that lets root make groups for memory", () => {
  try {
    const [mounts, own] = ["mounts", "cgroup"].map((name) => Deno.readTextFileSync(`/proc/self/${name}`));
    const { folder, version } = memoryHierarchy(mounts!, own!);
    const probe = `${folder}/kproxy-probe-${Deno.pid}`;
    Deno.mkdirSync(probe);
    try {
      for (const name of figureFiles(version)) Deno.readTextFileSync(`${probe}/${name}`);
    } finally {
      Deno.removeSync(probe);
    }
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
});

/** How long what is left in a group has to end. */
const END_TIMEOUT_MS = 30_000;

/** A group of its own. When it is disposed of, what ran in it must have been ended; programs that end by themselves are waited for. */
export class MemoryCgroup implements AsyncDisposable {
  readonly #folder: string;
  readonly #figures: Figures;

  private constructor(folder: string, figures: Figures) {
    this.#folder = folder;
    this.#figures = figures;
  }

  /** @throws {Error} if the kernel, or this user, cannot have one */
  static async create(): Promise<MemoryCgroup> {
    const [mounts, own] = await Promise.all(
      ["mounts", "cgroup"].map((name) => Deno.readTextFile(`/proc/self/${name}`)),
    );
    const { folder: parent, version } = memoryHierarchy(mounts!, own!);
    const folder = `${parent}/kproxy-bench-${Deno.pid}-${crypto.randomUUID().slice(0, 8)}`;
    await Deno.mkdir(folder);
    const cgroup = new MemoryCgroup(folder, FIGURES[version]);
    try {
      await cgroup.memory();
      return cgroup;
    } catch (error) {
      await cgroup[Symbol.asyncDispose]();
      throw new Error(`${folder} does not count memory`, { cause: error });
    }
  }

  /** Put in front of a command, it makes the command run in the group from its first byte on. */
  get starter(): readonly string[] {
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', `${this.#folder}/cgroup.procs`];
  }

  /** From now on the kernel ends the largest process rather than charge more megabytes, as it does in a container with such a limit. */
  async limit(megabytes: number): Promise<void> {
    await Deno.writeTextFile(`${this.#folder}/${this.#figures.limit}`, String(Math.round(megabytes * 1e6)));
  }

  async memory(): Promise<ChargedMemory> {
    const { now, peak, kernel } = this.#figures;
    // One after the other: where the first cannot be read, none of the others is left under way.
    const read = (name: string): Promise<string> => Deno.readTextFile(`${this.#folder}/${name}`);
    return {
      nowMb: Number(await read(now)) / 1e6,
      kernelMb: kernel.bytesIn(await read(kernel.file)) / 1e6,
      peakMb: Number(await read(peak)) / 1e6,
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const deadlineMs = performance.now() + END_TIMEOUT_MS;
    for (;;) {
      try {
        return await Deno.remove(this.#folder);
      } catch (error) {
        if (!isBusy(error) || performance.now() > deadlineMs) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && /os error 16\b/.test(error.message);
}
