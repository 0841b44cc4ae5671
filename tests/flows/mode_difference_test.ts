import { assertEquals } from "@std/assert";
import { FLOW_CASES } from "./flow_cases.ts";
import { IPVS_DIFFERENCES } from "./ipvs_differences.ts";
import { explainedSteps } from "./mode_difference.ts";
import { NFTABLES_DIFFERENCES } from "./nftables_differences.ts";
import { USERSPACE_DIFFERENCES } from "./userspace_differences.ts";

const DIFFERENCES = [
  ["ipvs", IPVS_DIFFERENCES],
  ["nftables", NFTABLES_DIFFERENCES],
  ["userspace", USERSPACE_DIFFERENCES],
] as const;

for (const [mode, differences] of DIFFERENCES) {
  const steps = explainedSteps(FLOW_CASES, mode);

  Deno.test(
    `every way that a packet takes only in ${mode} mode has a reason`,
    { permissions: "none" },
    () => {
      const unexplained = steps.filter((step) => !differences.some(({ explains }) => explains(step)));
      assertEquals(unexplained, []);
    },
  );

  Deno.test(`every reason explains some step of ${mode} mode`, { permissions: "none" }, () => {
    const idle = differences.filter(({ explains }) => !steps.some(explains)).map(({ reason }) => reason);
    assertEquals(idle, []);
  });
}
