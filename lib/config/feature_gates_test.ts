import { assert, assertEquals } from "@std/assert";
import { ALWAYS_ON, checkFeatureGates, GATE_DEFAULTS, isGateEnabled, LOCKED_ON } from "./feature_gates.ts";
import { GATE_NAMES } from "./gate_names.ts";

const PURE = { permissions: "none" } as const;

Deno.test(
  "every gate that is treated in a special way is a known name, and names are listed once",
  PURE,
  () => {
    const known = new Set(GATE_NAMES);
    for (const gate of [...LOCKED_ON, ...ALWAYS_ON, ...Object.keys(GATE_DEFAULTS)]) {
      assert(
        known.has(gate),
        gate,
      );
    }
    assertEquals(GATE_NAMES.filter((name, index) => GATE_NAMES.indexOf(name) !== index), []);
  },
);

Deno.test("known gates pass, locked ones cannot be switched off, unknown ones only warn", PURE, () => {
  assertEquals(checkFeatureGates({ WatchListClient: false, AllBeta: false, NFTablesProxyMode: true }), {
    errors: [],
    warnings: [],
  });
  for (const gate of LOCKED_ON) {
    const message = `cannot set feature gate ${gate} to false, feature is locked to true`;
    assertEquals(checkFeatureGates({ [gate]: false }), { errors: [{ gate, message }], warnings: [] });
  }
  for (const gate of ALWAYS_ON) {
    const message = `feature gate ${gate} can no longer be switched off; it has no effect`;
    assertEquals(checkFeatureGates({ [gate]: false }), { errors: [], warnings: [{ gate, message }] });
    assertEquals(checkFeatureGates({ [gate]: true }).warnings, []);
  }
  assertEquals(checkFeatureGates({ TopologyAwareHint: true, Nonsense: false }).warnings, [
    {
      gate: "TopologyAwareHint",
      message: "unrecognized feature gate: TopologyAwareHint; it has no effect, did you mean " +
        '"TopologyAwareHints"?',
    },
    { gate: "Nonsense", message: "unrecognized feature gate: Nonsense; it has no effect" },
  ]);
});

Deno.test("a gate is on by its own setting, then by its stage's, then by default", PURE, () => {
  assertEquals(isGateEnabled({}, "LoggingAlphaOptions"), false);
  assertEquals(isGateEnabled({ AllAlpha: true }, "LoggingAlphaOptions"), true);
  assertEquals(isGateEnabled({ AllAlpha: true, LoggingAlphaOptions: false }, "LoggingAlphaOptions"), false);
  assertEquals(isGateEnabled({}, "LoggingBetaOptions"), true);
  assertEquals(isGateEnabled({ AllBeta: false }, "LoggingBetaOptions"), false);
  assertEquals(isGateEnabled({ AllAlpha: false }, "LoggingBetaOptions"), true);
});
