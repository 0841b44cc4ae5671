import { assertEquals } from "@std/assert";
import { ROOT } from "../../tools/project_files.ts";
import { parseTranscripts, replaceOutputs, withoutVarying } from "./transcript.ts";

Deno.test("what varies is left out, what does not stays", { permissions: "none" }, () => {
  const cases: readonly [output: string, without: string][] = [
    [
      '{"lastUpdated":"2026-11-21T10:00:00.123456789Z","healthy":true}',
      '{"lastUpdated":"TIME","healthy":true}',
    ],
    ["date: Sat, 21 Nov 2026 17:00:00 GMT", "date: TIME"],
    ['kubeproxy_x{ip_family="IPv4"} 1.5e+9', 'kubeproxy_x{ip_family="IPv4"} NUMBER'],
    ["# TYPE kubeproxy_x gauge", "# TYPE kubeproxy_x gauge"],
    ["HTTP/1.1 503 Service Unavailable", "HTTP/1.1 503 Service Unavailable"],
    ['\t"localEndpoints": 2,', '\t"localEndpoints": 2,'],
    ["x-load-balancing-endpoint-weight: 2", "x-load-balancing-endpoint-weight: 2"],
  ];
  for (const [output, without] of cases) assertEquals(withoutVarying(output), without);
});

Deno.test("docs/transcripts.md is read whole, and writing what it says changes nothing", async () => {
  const text = await Deno.readTextFile(`${ROOT}/docs/transcripts.md`);
  const transcripts = parseTranscripts(text);
  assertEquals(transcripts.length, text.match(/^\$ /gm)?.length);
  assertEquals(
    new Set(transcripts.map(({ state }) => state)),
    new Set(["ready", "leaving", "unsynced", "stuck", "profiling"]),
  );
  assertEquals(replaceOutputs(text, transcripts.map(({ output }) => output)), text);
  // Every block is one that the test runs.
  assertEquals(text.match(/^```./gm)?.length, text.match(/^```console [a-z-]+$/gm)?.length);
});
