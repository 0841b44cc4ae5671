import { assert, assertEquals } from "@std/assert";
import { testBundle } from "../support/bundle_folder.ts";
import { assertWithin } from "../support/busyness.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { HOSTILE_OBJECTS } from "./hostile_objects.ts";
import { type HostileMode, measureHostile } from "./hostile_times.ts";
import { tempFolder } from "../support/temp_files.ts";

const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft")];
const [PRODUCT, SLICE] = HOSTILE_OBJECTS;

for (const mode of ["nftables", "iptables", "userspace"] as const satisfies readonly HostileMode[]) {
  // A slice without a Service costs what decoding and model cost, in any mode.
  for (const objects of mode === "nftables" ? [PRODUCT!, SLICE!] : [PRODUCT!]) {
    e2eTest(
      `mode ${mode}: kproxy answers, stays small and serves the others in time beside a ${objects.title}`,
      NEEDS,
      async () => {
        await using temporary = await tempFolder();
        const folder = temporary.path;
        const size = { services: 50, endpoints: 3 };
        const program = testBundle();
        const options = { mode, size, folder, ...program === undefined ? {} : { program } };
        const figures = await measureHostile(objects, options);
        const { computingMs, residentMb, editMs, quarantined } = figures;
        assertEquals(quarantined, objects.service === null ? [] : ["default/hostile"]);
        assert(computingMs <= 200 && residentMb <= 300, JSON.stringify(figures));
        await assertWithin(editMs, 100, `an edit beside it: ${JSON.stringify(figures)}`);
      },
    );
  }
}
