/**
 * A connect loop: well over 100 new connections a second from fresh ports, each answer checked, each within 200 ms, so that a
 * retransmitted packet is a failure. Time in which the loop itself, or a server, had no CPU does not count; right after such time
 * only retransmitted packets are failures, as the client's kernel counts them.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { writeErrorLine } from "../../tools/output.ts";
import type { LabHost } from "./lab_host.ts";
import type { LoopReport, ProbeProtocol } from "./lab_probe.ts";
import type { SocketAddress } from "./lab_sockets.ts";
import { ExcusedError } from "./skip.ts";

const PER_SECOND = 130;
const LEAST_PER_SECOND = 100;
const LIMIT_MS = 200;

/** Share of excused requests above which a loop proves too little. */
const MOST_EXCUSED = 0.05;

/** Rate of a loop, and its limits. */
export interface LoopPace {
  readonly perSecond: number;
  /** Limit of an answer; above a second, only lost packets are failures (`LoopRequest`). */
  readonly limitMs: number;
  /** See `LoopRequest.freshPorts`. */
  readonly freshPorts?: boolean;
}

const PACE: LoopPace = { perSecond: PER_SECOND, limitMs: LIMIT_MS };

/** A loop that runs in one namespace until it is stopped. */
export class ConnectLoop {
  readonly #host: LabHost;
  readonly #pace: LoopPace;

  private constructor(host: LabHost, readonly to: SocketAddress, pace: LoopPace) {
    this.#host = host;
    this.#pace = pace;
  }

  static async start(
    host: LabHost,
    to: SocketAddress,
    protocol: ProbeProtocol = "tcp",
    pace: LoopPace = PACE,
  ): Promise<ConnectLoop> {
    await host.call("startLoop", { protocol, to, ...pace });
    return new ConnectLoop(host, to, pace);
  }

  /** Counters of the loop so far. */
  async report(): Promise<LoopReport> {
    return await this.#host.call("loopReport");
  }

  /** See `AgentMethods.longestGap`. */
  async longestGap(): Promise<number> {
    return await this.#host.call("longestGap");
  }

  /** Waits until this many more requests have been answered. */
  async answered(count: number): Promise<void> {
    const answers = async () =>
      Object.values((await this.report()).byServer).reduce((sum, one) => sum + one, 0);
    const goal = await answers() + count;
    const deadline = performance.now() + Math.max(180_000, 10_000 * count / this.#pace.perSecond);
    for (let left = count; left > 0; left = goal - await answers()) {
      assert(performance.now() < deadline, `${this.to.ip}:${this.to.port} does not answer`);
      // Not before they can be there: each call takes time from the loops.
      await new Promise((resolve) => setTimeout(resolve, Math.max(50, 1000 * left / this.#pace.perSecond)));
    }
  }

  /** Waits until as many more requests have been answered as the loop starts in this time. */
  async answeredFor(durationMs: number): Promise<void> {
    await this.answered(Math.ceil(this.#pace.perSecond * durationMs / 1000));
  }

  /** Runs `work` while no request of this loop is under way. */
  async resting(work: () => Promise<void>): Promise<void> {
    await this.#host.call("restLoop");
    await work();
    await this.#host.call("resumeLoop");
  }

  async stop(): Promise<LoopReport> {
    return await this.#host.call("stopLoop");
  }

  /**
   * Stops the loop, prints the number of excused requests, and fails unless every request was answered in time and there were enough.
   *
   * @throws {ExcusedError} if too many were excused
   */
  async stopUnbroken(): Promise<LoopReport> {
    const report = await this.stop();
    const { requests, excused, failures, durationMs, stalledMs } = report;
    const said =
      `connect loop to ${this.to.ip} ${this.to.port}: ${excused} of ${requests} requests were excused`;
    writeErrorLine(said);
    assertEquals(failures, [], `${failures.length} of ${requests} connections failed`);
    const perSecond = requests / (Math.max(1, durationMs - stalledMs) / 1000);
    const least = LEAST_PER_SECOND * this.#pace.perSecond / PER_SECOND;
    assert(perSecond >= least, `only ${perSecond.toFixed(0)} connections a second`);
    if (excused > MOST_EXCUSED * requests) throw new ExcusedError(said);
    return report;
  }
}
