import { assert, assertEquals } from "@std/assert";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";
import { withFolder } from "../support/temp_files.ts";
import { testBundle } from "../support/bundle_folder.ts";
import type { BenchMode } from "./mode.ts";
import { IPTABLES_MODE } from "./mode_iptables.ts";
import { NFTABLES_MODE } from "./mode_nftables.ts";
import { plannedSteps, record } from "./recording.ts";

const MODES: readonly BenchMode[] = [IPTABLES_MODE, NFTABLES_MODE];
const NEEDS = [ROOT_NAMESPACES, program("iptables"), program("nft")];

const SIZE = { services: 50, endpoints: 4 };

/** The first program that writes IPv4's rules is at most this one of a start. */
const MAX_WRITING_PROGRAM: Readonly<Record<string, number>> = { iptables: 19, nftables: 12 };

// That bytes do not depend on the number of Services: tests/cost.
for (const mode of MODES) {
  e2eTest(
    `${mode.title}: a change starts one program, and a start few before the first rule`,
    NEEDS,
    () =>
      withFolder(async (folder) => {
        const options = { size: SIZE, mode, program: testBundle() };
        const { start, fullSync, changes } = await record(options, plannedSteps(SIZE, 3, 1), folder);
        const at = fullSync[0] === undefined ? Infinity : start.indexOf(fullSync[0]);
        const programs = start.map(({ argv }) => argv.join(" ")).join("\n");
        assert(at < (MAX_WRITING_PROGRAM[mode.proxyMode] ?? 0), programs);
        const program = mode.proxyMode === "nftables" ? "nft" : "iptables-restore";
        // Three replaced endpoints, a Service added, the same deleted.
        const started = changes.map(({ runs }) => runs.map(({ argv }) => argv[0]));
        assertEquals(started, Array.from({ length: 5 }, () => [program]));
      }),
  );
}
