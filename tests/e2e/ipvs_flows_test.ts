/**
 * The flow cases with real packets in IPVS mode: TCP, UDP and SCTP, and Services of SCTP in mode iptables, with sockets of SCTP. The
 * kernels of most test machines have neither, so this runs in a user-mode Linux. Where there are no such sockets `flows_test.ts` makes
 * the first two packets of SCTP by hand, in all of its modes. "Same conformance matrix for all three backends".
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { flowOf } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { gapOf, labCases, SCTP_LAB_CASES } from "../support/flow_lab_cases.ts";
import { e2eTest } from "../support/skip.ts";
import { testInUml, UML_NEEDS } from "../support/uml.ts";

/** A few minutes where nothing else runs; many times that where much does. */
const LIMIT_MS = 2_700_000;

e2eTest(
  "flow cases with real packets in IPVS mode, and of SCTP in mode iptables, in a user-mode Linux",
  UML_NEEDS,
  () =>
    testInUml(
      ["tests/lab/flows_in_uml.ts"],
      `2 passed (${labCases("ipvs").length + SCTP_LAB_CASES.length} steps) | 0 failed`,
      LIMIT_MS,
    ),
);

/** Packets that fare otherwise in IPVS mode, and that no real one is sent for; `gapOf` and the gaps of cases say why. */
const UNSENT = [
  // tests/lab/ipvs_affinity_in_uml.ts has an address and a port that know nothing of another one's clients.
  "198.51.100.9@eth0 → 10.96.0.2:6379",
  "198.51.100.9@eth0 → 203.0.113.20:6379",
  // As with node ports on every address, and on the primary one, which are sent.
  "127.0.0.1@node → 127.0.0.1:30080",
  "127.0.0.1@node → 127.0.0.1:30080",
  "198.51.100.9@eth1 → 192.168.7.10:30080",
  "10.244.0.11@cni0 → 10.244.0.11:8080",
  "10.244.0.5@cni0 → 10.96.0.1:80 ESTABLISHED",
  "10.244.1.12@eth0 → 10.96.0.1:80",
  "192.0.2.10@node → 10.96.0.1:80",
  "198.51.100.9@eth0 → 127.0.0.1:22",
  "198.51.100.9@eth0 → 127.0.0.1:22",
  "198.51.100.9@eth0 → 127.8.8.8:22/udp",
];

Deno.test(
  "what fares otherwise in IPVS mode is a real packet, but for a few",
  { permissions: "none" },
  () => {
    const sent = labCases("ipvs");
    const unsent = FLOW_CASES.flatMap((one) =>
      one.flows.filter((step) => typeof step !== "string")
        .filter((step) => step.instead?.ipvs !== undefined)
        .filter((step) => !sent.includes(one) || gapOf("ipvs", step) !== undefined)
        .map((step) => flowOf(step, "ipvs").packet)
    );
    assertEquals(unsent.sort(), UNSENT.toSorted());
  },
);
