/**
 * Compares rules of another layout by what they do: one packet of each kind to each destination of a Service is walked through both.
 *
 * @module
 */
import type { IpFamily } from "../../model/objects.ts";
import type { ServicePort } from "../../model/state.ts";
import type { HeldRules } from "../../sim/held_rules.ts";
import { RulesetSimulator } from "../../sim/ruleset_simulator.ts";
import type { Surroundings } from "../../sim/packet_walk.ts";
import { differenceOf } from "../trace/compare.ts";
import { packetText } from "../trace/packet.ts";
import { placeOf } from "../trace/trace.ts";
import type { Difference } from "./difference.ts";
import { probesOf, type ProbeSources } from "./probes.ts";

/** Both sides, ready for packets. */
export class PacketComparison {
  readonly #desired: RulesetSimulator;
  readonly #live: RulesetSimulator;
  readonly #surroundings: Surroundings;
  readonly #family: IpFamily;
  readonly #sources: ProbeSources;

  constructor(desired: HeldRules, live: HeldRules, nodeAddresses: readonly string[], sources: ProbeSources) {
    this.#desired = new RulesetSimulator(desired);
    this.#live = new RulesetSimulator(live);
    this.#surroundings = { nodeAddresses, affinity: new Map(), nowSeconds: 0 };
    this.#family = desired.family;
    this.#sources = sources;
  }

  /** What becomes of packets to one port otherwise than it should. */
  port(port: ServicePort): readonly Difference[] {
    return probesOf(port, this.#sources).flatMap((packet): Difference[] => {
      const [desired, live] = [this.#desired, this.#live].map((one) => one.send(packet, this.#surroundings));
      if (desired === undefined || live === undefined) return [];
      const difference = differenceOf(desired, live, this.#family);
      if (difference === null) return [];
      const { liveStep, desiredStep } = difference;
      const step = liveStep ?? desiredStep;
      const where = step === null ? "" : `; they part at ${placeOf(step)}`;
      return [{
        kind: "behaviour",
        place: `packet ${packetText(packet)}`,
        cause: `it does not fare as it should${where}`,
        wanted: [difference.desired],
        found: [difference.live],
      }];
    });
  }
}
