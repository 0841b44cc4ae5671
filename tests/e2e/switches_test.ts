/**
 * Connect loops over TCP and UDP through everything that may become of a running proxy: ended and started, killed and started, given
 * another configuration, given another mode. Not one connection may fail.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import type { ProxyMode } from "../../lib/config/types.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, type Need, program } from "../support/skip.ts";
import { thereAndBack, walk, within } from "../support/switch_lab.ts";

/** What a mode needs beyond what iptables mode does. A mode is taken in here when it has a line in the registry. */
const MODES: readonly (readonly [mode: ProxyMode, needs: readonly Need[]])[] = [
  ["iptables", []],
  ["nftables", [program("nft")]],
];

/**
 * Modes whose kernel most machines lack (see `ipvs_switches_test.ts`), or in which an end of the process is an end of connections (see
 * `userspace_test.ts`).
 */
const ELSEWHERE: readonly ProxyMode[] = ["ipvs", "userspace"];

const HERE = MODES.filter(([mode]) => IMPLEMENTED_MODES.includes(mode));

for (const [i, [from, fromNeeds]] of HERE.entries()) {
  for (const [to, toNeeds] of HERE.slice(i + 1)) {
    const [there, ...back] = thereAndBack(from, to);
    e2eTest(
      `no connection fails while kproxy in modes ${from} and ${to} is ended, killed, and its configuration or mode changes`,
      [...WEB_NEEDS, program("curl"), ...fromNeeds, ...toNeeds],
      (t) => walk(t, from, [...within(from), there, ...within(to), ...back]),
    );
  }
}

Deno.test("every mode of the registry is switched to and from, or said why not", () => {
  const others = IMPLEMENTED_MODES.filter((mode) =>
    !ELSEWHERE.includes(mode) && !MODES.some(([known]) => known === mode)
  );
  assertEquals(others, [], "give each a line in MODES, with what it needs");
});
