import { assertEquals } from "@std/assert";
import { readJunit } from "./record.ts";

Deno.test(
  "what ginkgo writes is read: who passed, who failed and why, who left out its work, who was not asked and who was not let to an end",
  {
    permissions: "none",
  },
  () => {
    const text = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[ReportBeforeSuite]" classname="e2e" status="passed" time="0.01"></testcase>
<testcase name="[It] [sig-network] Services should serve a &quot;basic&quot; endpoint [Conformance]" status="passed" time="12.34">
  <system-err>&gt; Enter</system-err></testcase>
<testcase name="[It] [sig-network] Proxy broken" status="failed" time="3">
  <failure message="timed out&#xA;second line" type="failed">at x</failure></testcase>
<testcase name="[It] [sig-network] Services on GCE" status="skipped" time="0.5">
  <skipped message="skipped - Only supported for providers [gce]"></skipped></testcase>
<testcase name="[It] [sig-network] DNS other" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-network] Short" status="passed" time="1"/>
<testcase name="[It] [sig-network] Under way" status="interrupted" time="9"><error message="x" type="interrupted"></error></testcase>
<testcase name="[It] [sig-node] Pods" status="passed" time="1"></testcase>
</testsuite></testsuites>`;
    assertEquals(readJunit(text), {
      tests: {
        '[sig-network] Services should serve a "basic" endpoint [Conformance]': {
          outcome: "passed",
          seconds: 12.3,
        },
        "[sig-network] Proxy broken": { outcome: "failed", seconds: 3, why: "timed out" },
        "[sig-network] Services on GCE": {
          outcome: "skipped",
          seconds: 0.5,
          why: "Only supported for providers [gce]",
        },
        "[sig-network] Short": { outcome: "passed", seconds: 1 },
      },
      notRun: ["[sig-network] DNS other"],
    });
  },
);
