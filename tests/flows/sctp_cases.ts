/**
 * Flow cases of SCTP for real packets only: to the simulators it is one more protocol with ports.
 *
 * @module
 */
import type { FlowCase } from "./flow_case.ts";
import { service, slice } from "./objects.ts";

const SIGNALLING = {
  type: "LoadBalancer",
  clusterIP: "10.96.0.20",
  ingress: [{ ip: "203.0.113.20" }],
  ports: ["m3ua:2905:30905/SCTP"],
} as const;
const PODS = slice("tel/sig.1", ["m3ua:2905/SCTP"], ["10.244.0.20@node-a", "10.244.1.20@node-b"]);

export const SCTP_CASES: readonly FlowCase[] = [
  {
    name: "SCTP: hairpin, and masqueraded or not",
    guards: [],
    objects: [service("tel/sig", SIGNALLING), PODS],
    flows: [
      {
        flow:
          "10.244.0.20@cni0 → 10.96.0.20:2905/sctp ⇒ 10.244.0.20:2905 (1/2, masquerade yes) | 10.244.1.20:2905 (1/2, masquerade no)",
        instead: { userspace: "untranslated" },
      },
      {
        flow:
          "198.51.100.9@eth0 → 203.0.113.20:2905/sctp ⇒ 10.244.0.20:2905 (1/2) | 10.244.1.20:2905 (1/2), masquerade yes",
        instead: { userspace: "untranslated" },
      },
    ],
  },
  {
    name: "SCTP: external policy Local keeps the client",
    guards: [],
    objects: [service("tel/sig", { ...SIGNALLING, externalTrafficPolicy: "Local" }), PODS],
    flows: [
      {
        flow: "198.51.100.9@eth0 → 192.0.2.10:30905/sctp ⇒ 10.244.0.20:2905, masquerade no",
        instead: { userspace: "this node" },
      },
      {
        flow: "198.51.100.9@eth0 → 203.0.113.20:2905/sctp ⇒ 10.244.0.20:2905, masquerade no",
        instead: { userspace: "untranslated" },
      },
    ],
  },
];
