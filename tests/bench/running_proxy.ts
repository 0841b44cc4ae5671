/**
 * A proxy at work in a network namespace of its own, with what serves it, what asks its Services, and what watches the kernel.
 *
 * @module
 */
import type { Netns } from "../support/netns.ts";
import { Answers } from "./answers_process.ts";
import { inBenchNetns } from "./bench_netns.ts";
import { FakeApi } from "./fake_api_process.ts";
import type { ClusterSize } from "./fake_objects.ts";
import type { BenchMode } from "./mode.ts";
import type { ProxyProcess } from "./proxy_process.ts";

/** How a proxy is put to work. */
export interface ProxySetup<P extends ProxyProcess> {
  readonly mode: BenchMode;
  readonly size: ClusterSize;
  /** Where the API server makes a socket. */
  readonly socket: string;
  readonly timeoutMs: number;
  /** Starts it; `master` is the URL of the API server. */
  readonly start: (netns: Netns, master: string) => P | Promise<P>;
}

/** A proxy whose rules are in force. */
export interface RunningProxy<P extends ProxyProcess> {
  readonly netns: Netns;
  readonly api: FakeApi;
  readonly process: P;
  /** From its start until all sample Services answered. */
  readonly answeredMs: number;
}

/** A proxy whose Services did not all answer in time. */
export class TooSlow extends Error {}

/**
 * Starts a proxy in a fresh namespace, waits until Services answer, and runs `work`; all is gone when it settles.
 *
 * @throws {Error} if the proxy ends before, or as {@linkcode TooSlow} if it takes longer than `timeoutMs`, with the end of its log
 */
export async function withRunningProxy<P extends ProxyProcess, T>(
  setup: ProxySetup<P>,
  work: (running: RunningProxy<P>) => Promise<T>,
): Promise<T> {
  const { mode, size, socket, timeoutMs, start } = setup;
  return await inBenchNetns(mode, async (netns) => {
    await using api = await FakeApi.start(netns, size, socket);
    await using stack = new AsyncDisposableStack();
    const answers = stack.use(await Answers.start(netns));
    const answered = answers.all(size);
    // Told below, unless the start fails before.
    answered.catch(() => undefined);
    await using process = await start(netns, api.url);
    const allMs = await unlessEnded(process, answered, timeoutMs);
    // From here on there are no requests.
    await stack.disposeAsync();
    return await work({ netns, api, process, answeredMs: allMs - process.startedMs });
  });
}

async function unlessEnded(
  process: ProxyProcess,
  answered: Promise<number>,
  timeoutMs: number,
): Promise<number> {
  const { promise: timeout, resolve } = Promise.withResolvers<"late">();
  const timer = setTimeout(() => resolve("late"), timeoutMs);
  try {
    const first = await Promise.race([answered, process.end.then(() => "ended" as const), timeout]);
    if (first === "ended") {
      throw new Error(`${process.name} ended before Services answered:\n${process.tail}`);
    }
    if (first === "late") {
      throw new TooSlow(
        `${process.name} had not all Services answer after ${timeoutMs / 1000} s:\n${process.tail}`,
      );
    }
    return first;
  } finally {
    clearTimeout(timer);
  }
}
