/**
 * Stale UDP flows: connection tracking leads them where rules led before.
 *
 * @module
 */
import { ExecError } from "../../../errors.ts";
import { Conntrack } from "../../../kernel/conntrack.ts";
import type { Exec } from "../../../kernel/exec.ts";
import type { IpFamily } from "../../../model/objects.ts";
import { errorText, type Logger } from "../../../observe/log.ts";
import type { UdpDestination } from "../plan/port_rules.ts";

/** Deletes tracked flows, so that they begin anew by the rules in force. */
export class StaleUdp {
  readonly #conntrack: Conntrack;
  readonly #family: IpFamily;
  readonly #log: Logger;
  #reportedProblem = "";

  constructor(exec: Exec, family: IpFamily, log: Logger) {
    this.#conntrack = new Conntrack(exec);
    this.#family = family;
    this.#log = log;
  }

  /** Deletes tracked flows. Never rejects: those that stay end by themselves once they are idle. */
  async remove(destinations: readonly UdpDestination[]): Promise<void> {
    if (destinations.length === 0) return;
    const [family, log] = [this.#family, this.#log];
    const of = family === "IPv4" ? "ipv4" : "ipv6";
    try {
      const deleted = await this.#conntrack.delete(destinations.map(({ ip, port }) => [
        ...["-f", of, "-p", "udp", "--orig-port-dst", `${port}`],
        ...(ip === null ? [] : ["--orig-dst", ip]),
      ]));
      if (deleted > 0) log.info("Removed tracked UDP flows that led elsewhere", { family, deleted }, 2);
      this.#reportedProblem = "";
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      const problem = errorText(error);
      if (problem !== this.#reportedProblem) {
        log.warn("Cannot remove tracked UDP flows that lead elsewhere; they end once they are idle", {
          family,
          problem,
        });
      }
      this.#reportedProblem = problem;
    }
  }
}
