/**
 * Feature gates: configurations may have those of all components of Kubernetes; a few decide something here, and the others are a
 * warning.
 *
 * @module
 */
import { closestWord } from "./suggest.ts";

/** Gates of features that are always on in the newest kube-proxy, which refuses to switch them off. */
export const LOCKED_ON: readonly string[] = [
  "InOrderInformers",
  "MultiCIDRServiceAllocator",
  "NFTablesProxyMode",
  "PreferSameTrafficDistribution",
  "WinDSR",
  "WinOverlay",
];

/** Gates of proxy features that could once be switched off; kproxy has the feature always on. */
export const ALWAYS_ON: readonly string[] = [
  "ComponentSLIs",
  "EndpointSlice",
  "EndpointSliceProxying",
  "EndpointSliceTerminatingCondition",
  "IPv6DualStack",
  "KubeProxyDrainingTerminatingNodes",
  "LoadBalancerIPMode",
  "MinimizeIPTablesRestore",
  "ProxyTerminatingEndpoints",
  "SCTPSupport",
  "ServiceInternalTrafficPolicy",
  "ServiceTrafficDistribution",
  "SupportIPVSProxyMode",
  "TopologyAwareHints",
];

/** Gates that kproxy looks at, with their defaults. */
export const GATE_DEFAULTS = {
  ComponentFlagz: { default: true, stage: "beta" },
  ComponentStatusz: { default: true, stage: "beta" },
  LoggingAlphaOptions: { default: false, stage: "alpha" },
  LoggingBetaOptions: { default: true, stage: "beta" },
} as const satisfies Record<string, { default: boolean; stage: "alpha" | "beta" }>;

export type AskedGate = keyof typeof GATE_DEFAULTS;

const KNOWN: readonly string[] = [
  "AllAlpha",
  "AllBeta",
  ...LOCKED_ON,
  ...ALWAYS_ON,
  ...Object.keys(GATE_DEFAULTS),
];

/** True if a gate is on: as configured, else by `AllAlpha` or `AllBeta`, else by its default. */
export function isGateEnabled(gates: Readonly<Record<string, boolean>>, name: AskedGate): boolean {
  const gate = GATE_DEFAULTS[name];
  return gates[name] ?? gates[gate.stage === "alpha" ? "AllAlpha" : "AllBeta"] ?? gate.default;
}

export interface GateFinding {
  readonly gate: string;
  readonly message: string;
}

/** Findings about configured gates: `errors` must be corrected, `warnings` say that a setting has no effect. */
export function checkFeatureGates(
  gates: Readonly<Record<string, boolean>>,
): { errors: GateFinding[]; warnings: GateFinding[] } {
  const errors: GateFinding[] = [];
  const warnings: GateFinding[] = [];
  for (const [gate, enabled] of Object.entries(gates)) {
    if (!KNOWN.includes(gate)) {
      const nearest = closestWord(gate, KNOWN);
      const hint = nearest === undefined ? "" : `, did you mean ${JSON.stringify(nearest)}?`;
      warnings.push({ gate, message: `feature gate ${gate} has no effect in kproxy${hint}` });
    } else if (!enabled && LOCKED_ON.includes(gate)) {
      errors.push({
        gate,
        message: `cannot set feature gate ${gate} to false, feature is locked to true`,
      });
    } else if (!enabled && ALWAYS_ON.includes(gate)) {
      warnings.push({
        gate,
        message: `feature gate ${gate} can no longer be switched off; it has no effect`,
      });
    }
  }
  return { errors, warnings };
}
