import { assertEquals, assertStringIncludes } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import { ChangeTracker } from "../model/change_tracker.ts";
import { testSlice, testSliceEndpoint } from "../../tests/support/model_objects.ts";
import { partlyUsableReport } from "./log.ts";

Deno.test("a slice that no family can use is reported once: not for each family, event and list", () => {
  const { log, lines } = recordingLog();
  const report = partlyUsableReport(log);
  const trackers = (["IPv4", "IPv6"] as const).map((family) =>
    new ChangeTracker({ family, node: { name: "n1", zone: "" }, report, startedAtMs: 0 })
  );
  const named = (...hosts: string[]) =>
    testSlice({
      name: "names",
      addressType: "FQDN",
      endpoints: hosts.map((host) => testSliceEndpoint(host)),
    });
  for (const hosts of [["a.example"], ["a.example", "b.example"], ["a.example"], []]) {
    for (const tracker of trackers) tracker.updateEndpointSlice(named(...hosts), false);
  }
  assertEquals(lines.length, 1, lines.join("\n"));
  assertStringIncludes(lines[0] ?? "", 'addressType \\"FQDN\\" is not supported');
});

Deno.test("what is remembered is bounded, and what is met again stays", () => {
  const { log, lines } = recordingLog();
  const report = partlyUsableReport(log, 2);
  for (const problem of ["a", "b", "a", "c", "a", "b"]) report(problem);
  assertEquals(lines.map((line) => line.at(-2) ?? ""), ["a", "b", "c", "b"]);
});
