/** A connect loop shows something only if little was excused. */
import { assertEquals, AssertionError, assertRejects } from "@std/assert";
import { ConnectLoop } from "./connect_loop.ts";
import type { LabHost } from "./lab_host.ts";
import type { LoopReport } from "./lab_probe.ts";
import { ExcusedError } from "./skip.ts";

const UNBROKEN: LoopReport = {
  requests: 1_000,
  durationMs: 8_000,
  stalledMs: 0,
  failures: [],
  failuresAtMs: [],
  excused: 50,
  slowestMs: 3,
  byServer: { "10.244.0.11:8080": 1_000 },
};

/** A loop whose agent says this in the end. */
async function loopOf(report: Partial<LoopReport>): Promise<ConnectLoop> {
  const call = (method: string): Promise<unknown> =>
    Promise.resolve(method === "stopLoop" ? { ...UNBROKEN, ...report } : undefined);
  return await ConnectLoop.start({ call } as unknown as LabHost, { ip: "10.96.0.1", port: 80 });
}

Deno.test("up to 5 % of the requests may be excused, and what failed is never", async () => {
  assertEquals(await (await loopOf({})).stopUnbroken(), UNBROKEN);
  await assertRejects(
    async () => await (await loopOf({ excused: 51 })).stopUnbroken(),
    ExcusedError,
    "51 of 1000",
  );
  await assertRejects(
    async () => await (await loopOf({ excused: 51, failures: ["refused"] })).stopUnbroken(),
    AssertionError,
  );
});
