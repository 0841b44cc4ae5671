import { assertEquals } from "@std/assert";
import {
  GRACEFUL_ANNOTATION,
  IPVS_SCHEDULERS,
  ipvsAnnotations,
  SCHEDULER_ANNOTATION,
} from "./ipvs_annotations.ts";
import { servicePorts } from "./service_port.ts";
import { testService } from "../../tests/support/model_objects.ts";

const pure = { permissions: "none" } as const;

const CASES:
  readonly (readonly [Record<string, string>, { scheduler: string; graceful: boolean }, number])[] = [
    [{}, { scheduler: "", graceful: true }, 0],
    [{ "example.com/other": "x" }, { scheduler: "", graceful: true }, 0],
    [{ [SCHEDULER_ANNOTATION]: "lc" }, { scheduler: "lc", graceful: true }, 0],
    [{ [SCHEDULER_ANNOTATION]: "fastest" }, { scheduler: "", graceful: true }, 1],
    [{ [SCHEDULER_ANNOTATION]: "rr -p 1" }, { scheduler: "", graceful: true }, 1],
    [{ [SCHEDULER_ANNOTATION]: "" }, { scheduler: "", graceful: true }, 1],
    [{ [GRACEFUL_ANNOTATION]: "false" }, { scheduler: "", graceful: false }, 0],
    [{ [GRACEFUL_ANNOTATION]: "true", [SCHEDULER_ANNOTATION]: "mh" }, { scheduler: "mh", graceful: true }, 0],
    [{ [GRACEFUL_ANNOTATION]: "no" }, { scheduler: "", graceful: true }, 1],
  ];

for (const [annotations, wishes, problemCount] of CASES) {
  Deno.test(`annotations ${JSON.stringify(annotations)} ask for ${JSON.stringify(wishes)}`, pure, () => {
    const problems: string[] = [];
    assertEquals(ipvsAnnotations(annotations, (problem) => problems.push(problem)), wishes);
    assertEquals(problems.length, problemCount, problems.join("\n"));
  });
}

Deno.test("every scheduler can be asked for", pure, () => {
  for (const scheduler of IPVS_SCHEDULERS) {
    const wishes = ipvsAnnotations({ [SCHEDULER_ANNOTATION]: scheduler }, (problem) => {
      throw new Error(problem);
    });
    assertEquals(wishes.scheduler, scheduler);
  }
});

Deno.test(
  "a Service's wishes hold for each of its ports, and a wrong one is reported with its Service",
  pure,
  () => {
    const lc = testService({ annotations: { [SCHEDULER_ANNOTATION]: "lc" } });
    assertEquals(servicePorts(lc, "IPv4").map(({ ipvs }) => ipvs.scheduler), ["lc"]);
    const problems: string[] = [];
    const wrong = testService({ annotations: { [SCHEDULER_ANNOTATION]: "fastest" } });
    const ports = servicePorts(wrong, "IPv4", (problem) => problems.push(problem));
    assertEquals(ports.map(({ ipvs }) => ipvs.scheduler), [""]);
    assertEquals(
      problems.map((problem) => problem.slice(0, 60)),
      ['Service shop/web: annotation kproxy.io/ipvs-scheduler is "fa'],
    );
  },
);
