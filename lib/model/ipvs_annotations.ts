/**
 * Annotations by which a Service sets options of IPVS mode. Other modes ignore them.
 *
 * @module
 */

import { own, type Sentence, sentence } from "../text/quote.ts";

/** Names a scheduler (`rr`, `lc`, …) to use for the Service instead of the configured one. */
export const SCHEDULER_ANNOTATION = "kproxy.io/ipvs-scheduler";
/** `false`: connections to an endpoint that leaves are cut at once instead of being left to end. */
export const GRACEFUL_ANNOTATION = "kproxy.io/ipvs-graceful-termination";

/** Schedulers of IPVS: the kernel's modules `ip_vs_NAME`. */
export const IPVS_SCHEDULERS: readonly string[] = [
  ...["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh", "sed", "nq", "fo", "ovf", "twos"],
];

/** Options of IPVS mode that the annotations of one Service set. */
export interface IpvsAnnotations {
  /** `""`: the configured scheduler. */
  readonly scheduler: string;
  /** True if connections to an endpoint that leaves may end by themselves. */
  readonly graceful: boolean;
}

export const NO_IPVS_ANNOTATIONS: IpvsAnnotations = { scheduler: "", graceful: true };

/** Reads the annotations; `reportProblem` gets the invalid values, which count as absent. */
export function ipvsAnnotations(
  annotations: Readonly<Record<string, string>>,
  reportProblem: (problem: Sentence) => void,
): IpvsAnnotations {
  const scheduler = annotations[SCHEDULER_ANNOTATION];
  const graceful = annotations[GRACEFUL_ANNOTATION];
  if (scheduler === undefined && graceful === undefined) return NO_IPVS_ANNOTATIONS;
  const known = scheduler === undefined || IPVS_SCHEDULERS.includes(scheduler);
  if (!known) {
    reportProblem(
      sentence`annotation ${own(SCHEDULER_ANNOTATION)} is ${scheduler}, which is none of ${
        own(IPVS_SCHEDULERS.join(", "))
      }; the configured scheduler is used`,
    );
  }
  if (graceful !== undefined && graceful !== "true" && graceful !== "false") {
    reportProblem(
      sentence`annotation ${own(GRACEFUL_ANNOTATION)} is ${graceful}, not true or false; it is ignored`,
    );
  }
  return { scheduler: known ? scheduler ?? "" : "", graceful: graceful !== "false" };
}
