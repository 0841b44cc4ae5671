/**
 * The flow cases with real packets: the same table that the simulators run, all of them in mode nftables, and in others those that a mode
 * decides. Mode ipvs: `ipvs_flows_test.ts`.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { runFlowCases, type Surface } from "../support/flow_lab.ts";
import { GAPS, labCases } from "../support/flow_lab_cases.ts";
import { e2eTest, program, ROOT_NAMESPACES } from "../support/skip.ts";

const SURFACES: readonly Surface[] = [
  { mode: "iptables", variant: "nft" },
  { mode: "iptables", variant: "legacy" },
  { mode: "nftables", variant: "nft" },
  { mode: "userspace", variant: "nft" },
];

/**
 * Mode iptables writes the same text for both variants (tests/recorded and tests/golden load it into both); of the cases that the nft
 * variant runs the legacy one runs one in so many.
 */
const LEGACY_EVERY = 8;

Deno.test("every gap of the cases with real packets is a case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map(({ name }) => name));
  assertEquals(GAPS.filter((name) => !names.has(name)), []);
});

for (const surface of SURFACES.filter(({ mode }) => IMPLEMENTED_MODES.includes(mode))) {
  const { mode, variant } = surface;
  const tools = [`iptables-${variant}`, `ip6tables-${variant}`, ...(mode === "nftables" ? ["nft"] : [])];
  const needs = [ROOT_NAMESPACES, ...["ip", "sysctl", "conntrack", ...tools].map(program)];
  const name = mode === "iptables" ? `iptables ${variant}` : mode;
  const cases = labCases(mode).filter((_, index) => variant === "nft" || index % LEGACY_EVERY === 0);
  e2eTest(`flow cases with real packets, ${name}`, needs, (t) => runFlowCases(t, cases, surface));
}
