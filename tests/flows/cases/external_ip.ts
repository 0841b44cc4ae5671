/** Flow cases of external IPs. */
import type { FlowCase } from "../flow_case.ts";
import { service, slice } from "../objects.ts";

const SPEC = {
  clusterIP: "10.96.0.4",
  // The second one is an address of the node itself.
  externalIPs: ["198.51.100.7", "192.168.7.10"],
  ports: ["tls:443"],
};
const WEB = service("edge/web", SPEC);
const LOCAL_WEB = service("edge/web", { ...SPEC, externalTrafficPolicy: "Local" });
const TWO = slice("edge/web.1", ["tls:8443"], ["10.244.0.41@node-a", "10.244.1.42@node-b"]);
const REMOTE = slice("edge/web.1", ["tls:8443"], ["10.244.1.42@node-b"]);
const EITHER = "10.244.0.41:8443 (1/2) | 10.244.1.42:8443 (1/2)";

export const EXTERNAL_IP_CASES: readonly FlowCase[] = [
  {
    name: "an external IP leads to the endpoints, masqueraded",
    guards: ["iptables 3", "iptables 13", "iptables 17"],
    objects: [WEB, TWO],
    flows: [
      `198.51.100.9@eth0 → 198.51.100.7:443 ⇒ ${EITHER}, masquerade yes`,
      `198.51.100.9@eth1 → 192.168.7.10:443 ⇒ ${EITHER}, masquerade yes`,
      {
        flow: `10.244.0.5@cni0 → 198.51.100.7:443 ⇒ ${EITHER}, masquerade yes`,
        instead: { userspace: "untranslated" },
      },
      {
        flow: `192.0.2.10@node → 198.51.100.7:443 ⇒ ${EITHER}, masquerade yes`,
        instead: { userspace: "untranslated" },
      },
      { flow: "198.51.100.9@eth0 → 198.51.100.7:80 ⇒ untranslated", instead: { ipvs: "rejected" } },
      { flow: "198.51.100.9@eth0 → 198.51.100.7:443/udp ⇒ untranslated", instead: { ipvs: "rejected" } },
      { flow: "198.51.100.9@eth0 → 198.51.100.7/icmp ⇒ untranslated", instead: { ipvs: "rejected" } },
    ],
  },
  {
    name:
      "an external IP without endpoints refuses clients outside, on the node's own addresses the node too",
    guards: ["iptables 4", "vector 14"],
    objects: [WEB],
    flows: [
      "198.51.100.9@eth0 → 198.51.100.7:443 ⇒ rejected",
      { flow: "10.244.0.5@cni0 → 198.51.100.7:443 ⇒ rejected", instead: { userspace: "untranslated" } },
      "198.51.100.9@eth1 → 192.168.7.10:443 ⇒ rejected",
      "192.0.2.10@node → 192.168.7.10:443 ⇒ rejected",
      { flow: "198.51.100.9@eth0 → 198.51.100.7:80 ⇒ untranslated", instead: { ipvs: "rejected" } },
    ],
  },
  {
    name: "an external IP under external policy Local keeps the client and to the node's endpoints",
    guards: ["iptables 3", "iptables 14", "iptables 15", "iptables 16", "iptables 17", "iptables 22"],
    objects: [LOCAL_WEB, TWO],
    flows: [
      "198.51.100.9@eth0 → 198.51.100.7:443 ⇒ 10.244.0.41:8443, masquerade no",
      {
        flow: `10.244.0.5@cni0 → 198.51.100.7:443 ⇒ ${EITHER}, masquerade no`,
        instead: { ipvs: "10.244.0.41:8443, masquerade no", userspace: "untranslated" },
      },
      {
        flow: `192.0.2.10@node → 198.51.100.7:443 ⇒ ${EITHER}, masquerade yes`,
        instead: { ipvs: "10.244.0.41:8443, masquerade no", userspace: "untranslated" },
      },
    ],
  },
  {
    name: "an external IP under external policy Local without an endpoint on the node drops clients outside",
    guards: ["iptables 4", "iptables 17"],
    objects: [LOCAL_WEB, REMOTE],
    flows: [
      {
        flow: "198.51.100.9@eth0 → 198.51.100.7:443 ⇒ dropped",
        instead: { ipvs: "10.244.1.42:8443, masquerade no", userspace: "closed" },
      },
      {
        flow: "198.51.100.9@eth1 → 192.168.7.10:443 ⇒ dropped",
        instead: { ipvs: "10.244.1.42:8443, masquerade no", userspace: "closed" },
      },
      {
        flow: "10.244.0.5@cni0 → 198.51.100.7:443 ⇒ 10.244.1.42:8443, masquerade no",
        instead: { userspace: "untranslated" },
      },
      {
        flow: "192.0.2.10@node → 198.51.100.7:443 ⇒ 10.244.1.42:8443, masquerade yes",
        instead: { ipvs: "10.244.1.42:8443, masquerade no", userspace: "untranslated" },
      },
    ],
  },
  {
    name: "external IPs are sorted out by family, and blanks and leading zeros are forgiven",
    guards: ["iptables 3", "iptables 4"],
    objects: [
      service("edge/web", { ...SPEC, externalIPs: ["fd00:198::7", "", "198.051.100.008"] }),
      TWO,
    ],
    flows: [
      `198.51.100.9@eth0 → 198.51.100.8:443 ⇒ ${EITHER}, masquerade yes`,
      "fd00:198::9@eth0 → [fd00:198::7]:443 ⇒ untranslated",
    ],
  },
  {
    name: "external policy Local means nothing to a Service that only has a cluster IP",
    guards: ["vector 13"],
    objects: [service("edge/web", { ...SPEC, externalIPs: [], externalTrafficPolicy: "Local" }), TWO],
    flows: [`10.244.0.5@cni0 → 10.96.0.4:443 ⇒ ${EITHER}, masquerade no`],
  },
];
