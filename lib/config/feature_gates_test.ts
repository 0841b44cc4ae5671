import { assertEquals } from "@std/assert";
import { ALWAYS_ON, checkFeatureGates, isGateEnabled, LOCKED_ON } from "./feature_gates.ts";

const PURE = { permissions: "none" } as const;

Deno.test(
  "gates that decide something pass, locked ones cannot be switched off, others only warn",
  PURE,
  () => {
    assertEquals(checkFeatureGates({ ComponentFlagz: false, AllBeta: false, NFTablesProxyMode: true }), {
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
        message: 'feature gate TopologyAwareHint has no effect in kproxy, did you mean "TopologyAwareHints"?',
      },
      { gate: "Nonsense", message: "feature gate Nonsense has no effect in kproxy" },
    ]);
  },
);

Deno.test("a gate is on by its own setting, then by its stage's, then by default", PURE, () => {
  assertEquals(isGateEnabled({}, "LoggingAlphaOptions"), false);
  assertEquals(isGateEnabled({ AllAlpha: true }, "LoggingAlphaOptions"), true);
  assertEquals(isGateEnabled({ AllAlpha: true, LoggingAlphaOptions: false }, "LoggingAlphaOptions"), false);
  assertEquals(isGateEnabled({}, "LoggingBetaOptions"), true);
  assertEquals(isGateEnabled({ AllBeta: false }, "LoggingBetaOptions"), false);
  assertEquals(isGateEnabled({ AllAlpha: false }, "LoggingBetaOptions"), true);
});
