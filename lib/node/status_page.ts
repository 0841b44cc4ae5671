/**
 * What a proxy server has for the status page.
 *
 * @module
 */
import { systemClock } from "../kernel/clock.ts";
import type { IpFamily, NodeObject } from "../model/objects.ts";
import { type PageFacts, PageRecord, type Questions } from "../serve/page/page_record.ts";

/** Collects while a proxy server goes on; made only if the page is wanted. */
export class StatusPageSource {
  readonly record: PageRecord;
  #serviceCidrs: readonly string[] = [];

  constructor(nowMs: () => number) {
    this.record = new PageRecord(nowMs);
  }

  /** @param node the own Node as it was last known */
  facts(node: () => NodeObject | null): PageFacts {
    return {
      record: this.record,
      node,
      serviceCidrs: () => this.#serviceCidrs,
      questions: loadQuestions,
    };
  }

  /** Notes the networks that are passed on to `next`. */
  watchServiceCidrs(
    next: (networks: readonly string[]) => readonly IpFamily[],
  ): (networks: readonly string[]) => readonly IpFamily[] {
    return (networks) => {
      this.#serviceCidrs = networks;
      return next(networks);
    };
  }
}

/** In steps, with room for everything else between them: all at once would hold the event loop. */
async function loadQuestions(): Promise<Questions> {
  const steps = [
    () => import("../sim/ruleset_snapshot.ts"),
    () => import("../sim/ruleset_simulator.ts"),
    () => import("../inspect/desired/desired.ts"),
    () => import("../inspect/trace/packet.ts"),
    () => import("../inspect/trace/trace_report.ts"),
  ];
  for (const load of steps) {
    await load();
    await systemClock.sleep(0);
  }
  return (await import("../inspect/page/page_questions.ts")).QUESTIONS;
}
