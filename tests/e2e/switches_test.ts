/**
 * Connect loops over TCP and UDP through everything that may become of a running proxy: ended and started, killed and started, given
 * another configuration, given another mode. Not one connection may fail (asks row 7).
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { IMPLEMENTED_MODES } from "../../lib/backend/registry.ts";
import type { ProxyMode } from "../../lib/config/types.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, type Need, program } from "../support/skip.ts";
import { type Switch, SwitchLab, type SwitchWay } from "../support/switch_lab.ts";

/** What a mode needs beyond what iptables mode does. A mode is taken in here when it has a line in the registry. */
const MODES: readonly (readonly [mode: ProxyMode, needs: readonly Need[]])[] = [
  ["iptables", []],
  ["nftables", [program("nft")]],
];

const HERE = MODES.filter(([mode]) => IMPLEMENTED_MODES.includes(mode));
const WITHIN_MODE: readonly SwitchWay[] = ["SIGTERM", "SIGKILL", "live reload", "reload"];

for (const [mode, needs] of HERE) {
  e2eTest(
    `no connection fails while kproxy in mode ${mode} is ended, killed, or its configuration changes`,
    [...WEB_NEEDS, program("curl"), ...needs],
    (t) => walk(t, mode, WITHIN_MODE.map((by) => ({ to: mode, by }))),
  );
}

/** There by a kill and a start, and back by the configuration file. */
function thereAndBack(from: ProxyMode, to: ProxyMode): Switch[] {
  return [{ to, by: "SIGKILL" }, { to: from, by: "reload" }, { to, by: "reload" }, {
    to: from,
    by: "SIGKILL",
  }];
}

for (const [i, [from, fromNeeds]] of HERE.entries()) {
  for (const [to, toNeeds] of HERE.slice(i + 1)) {
    e2eTest(
      `no connection fails while kproxy goes from mode ${from} to mode ${to} and back`,
      [...WEB_NEEDS, program("curl"), ...fromNeeds, ...toNeeds],
      (t) => walk(t, from, thereAndBack(from, to)),
    );
  }
}

async function walk(t: Deno.TestContext, from: ProxyMode, switches: readonly Switch[]): Promise<void> {
  await using lab = await SwitchLab.create(from);
  for (const step of switches) {
    // What comes after a failed step begins elsewhere than it says.
    assert(await t.step(`to ${step.to} by ${step.by}`, () => lab.make(step)), `by ${step.by}`);
  }
  await lab.end();
}

Deno.test("every mode of the registry is switched to and from, or said why not", () => {
  const others = IMPLEMENTED_MODES.filter((mode) => !MODES.some(([known]) => known === mode));
  assertEquals(others, [], "give each a line in MODES, with what it needs");
});
