import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { soakProblems, type SoakRecord, type SoakSample, soakSentence, soakTrend } from "./soak.ts";

const NONE = { permissions: "none" } as const;

function samples(count: number, sample: (at: number) => Omit<SoakSample, "minute">): SoakSample[] {
  return Array.from({ length: count }, (_, at) => ({ minute: at, ...sample(at) }));
}

Deno.test(
  "a soak fails if descriptors or memory grow once all is filled up, and says by how much",
  NONE,
  () => {
    const flat = samples(
      30,
      (at) => ({ descriptors: 40 + at % 5, anonymousMb: at < 8 ? 40 + at : 50 + at % 4 }),
    );
    assertEquals([soakTrend(flat).descriptors, soakProblems(flat)], [[42, 42], []]);
    // One for each step.
    const leaking = samples(30, (at) => ({ descriptors: 40 + at, anonymousMb: 50 }));
    assertEquals(soakProblems(leaking), ["descriptors grew from 55 to 65"]);
    const growing = samples(30, (at) => ({ descriptors: 40, anonymousMb: 50 + at }));
    assertEquals(soakProblems(growing), ["memory grew from 65 to 75 MB"]);
    assertMatch(soakProblems(flat.slice(0, 5))[0]!, /^only 5 samples/);
  },
);

Deno.test(
  "the documentation says of the last soak what its record says",
  { permissions: { read: true } },
  async () => {
    const read = (name: string): Promise<string> =>
      Deno.readTextFile(new URL(`../../docs/${name}`, import.meta.url));
    const record: SoakRecord = JSON.parse(await read("records/soak-nftables.json"));
    assertStringIncludes(await read("reliability.md"), soakSentence(record));
    assertEquals(soakProblems(record.samples), []);
  },
);
