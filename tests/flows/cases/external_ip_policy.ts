/** Flow cases of `kproxy.externalIPPolicy`: what a tenant's Service may take (CVE-2020-8554). */
import { EVERY_ADDRESS } from "../../../lib/model/address_policy.ts";
import type { FlowCase, FlowOptions } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

/** Takes a name server of the Internet, the node's SSH, and an address that the policies allow. */
const BY_EXTERNAL_IP = service("evil/external", {
  clusterIP: "10.96.66.1",
  clusterIPs: ["10.96.66.1", "fd00:10:96::6601"],
  ipFamilies: ["IPv4", "IPv6"],
  externalIPs: [
    "198.51.100.53",
    "192.0.2.10",
    "203.0.113.80",
    "2001:db8:53::53",
    "fd00:192::10",
    "2001:db8:80::80",
  ],
  ports: ["dns:53", "ssh:22"],
});
const BY_LOAD_BALANCER = service("evil/balanced", {
  type: "LoadBalancer",
  clusterIP: "10.96.66.2",
  ports: ["dns:53:31053", "kubelet:10250:31250"],
  ingress: [{ ip: "198.51.100.54" }, { ip: "192.0.2.10" }, { ip: "203.0.113.81" }],
});
const K3S = service("edge/traefik", {
  type: "LoadBalancer",
  clusterIP: "10.96.66.3",
  ports: ["web:80:31080"],
  ingress: [{ ip: "192.0.2.10" }],
});
const EVIL = [
  BY_EXTERNAL_IP,
  slice("evil/external.1", ["dns:5353", "ssh:2222"], ["10.244.1.66@node-b"]),
  slice("evil/external.2", ["dns:5353", "ssh:2222"], ["fd00:10:244:1::66@node-b"]),
];
const BALANCED = [
  BY_LOAD_BALANCER,
  slice("evil/balanced.1", ["dns:5353", "kubelet:2250"], ["10.244.1.67@node-b"]),
];
const CLIENT = "198.18.0.9@eth0";
const POD = "10.244.0.5@cni0";
const POD6 = "fd00:10:244::5@cni0";

function policy(externalIPPolicy: Partial<FlowOptions["externalIPPolicy"]>): Partial<FlowOptions> {
  return { externalIPPolicy: { ...EVERY_ADDRESS, ...externalIPPolicy } };
}

export const EXTERNAL_IP_POLICY_CASES: readonly FlowCase[] = [
  {
    name: "without a policy a Service takes any address, the node's own among them, as with kube-proxy",
    guards: ["kproxy.externalIPPolicy"],
    objects: [...EVIL, ...BALANCED],
    flows: [
      `${CLIENT} → 198.51.100.53:53 ⇒ 10.244.1.66:5353, masquerade yes`,
      `${CLIENT} → 192.0.2.10:22 ⇒ 10.244.1.66:2222, masquerade yes`,
      `${CLIENT} → 198.51.100.54:53 ⇒ 10.244.1.67:5353, masquerade yes`,
      `${CLIENT} → 192.0.2.10:10250 ⇒ 10.244.1.67:2250, masquerade yes`,
      {
        flow: `${POD6} → [2001:db8:53::53]:53 ⇒ [fd00:10:244:1::66]:5353, masquerade yes`,
        instead: { userspace: "untranslated" },
      },
    ],
  },
  {
    name: "external IPs outside of the policy's networks are not taken, nor is the node's own address",
    guards: ["kproxy.externalIPPolicy"],
    objects: EVIL,
    options: policy({ externalIPs: ["203.0.113.0/24", "192.0.2.0/24", "2001:db8:80::/64", "fd00:192::/64"] }),
    flows: [
      `${CLIENT} → 203.0.113.80:53 ⇒ 10.244.1.66:5353, masquerade yes`,
      `${CLIENT} → 10.96.66.1:53 ⇒ 10.244.1.66:5353, masquerade yes`,
      `${CLIENT} → 198.51.100.53:53 ⇒ untranslated`,
      `${POD} → 198.51.100.53:53 ⇒ untranslated`,
      "192.0.2.10@node → 198.51.100.53:53 ⇒ untranslated",
      `${CLIENT} → 192.0.2.10:22 ⇒ this node`,
      `${POD} → 192.0.2.10:22 ⇒ this node`,
      `${POD6} → [2001:db8:53::53]:53 ⇒ untranslated`,
      `${POD6} → [fd00:192::10]:22 ⇒ this node`,
    ],
  },
  {
    name: "load-balancer IPs outside of the policy's networks are not taken, nor is the node's own address",
    guards: ["kproxy.externalIPPolicy"],
    objects: [...EVIL, ...BALANCED],
    options: policy({ externalIPs: [], loadBalancerIPs: ["203.0.113.0/24", "192.0.2.0/24"] }),
    flows: [
      `${CLIENT} → 203.0.113.81:53 ⇒ 10.244.1.67:5353, masquerade yes`,
      `${CLIENT} → 198.51.100.54:53 ⇒ untranslated`,
      `${POD} → 198.51.100.54:53 ⇒ untranslated`,
      `${CLIENT} → 192.0.2.10:10250 ⇒ this node`,
      `${CLIENT} → 203.0.113.80:53 ⇒ untranslated`,
      `${CLIENT} → 192.0.2.10:31053 ⇒ 10.244.1.67:5353, masquerade yes`,
    ],
  },
  {
    name: "the node's own address is served where the policy allows it, as k3s' load balancer needs",
    guards: ["kproxy.externalIPPolicy"],
    objects: [K3S, slice("edge/traefik.1", ["web:8000"], ["10.244.1.68@node-b"]), ...EVIL],
    options: policy({ externalIPs: [], nodeAddresses: true }),
    flows: [
      `${CLIENT} → 192.0.2.10:80 ⇒ 10.244.1.68:8000, masquerade yes`,
      `${CLIENT} → 192.0.2.10:22 ⇒ this node`,
      `${CLIENT} → 198.51.100.53:53 ⇒ untranslated`,
    ],
  },
];
