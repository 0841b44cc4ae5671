import { assertEquals } from "@std/assert";
import { recordingLog } from "../../tests/support/recording_log.ts";
import type { RefusedFamily } from "../kernel/ip_families.ts";
import type { NodeObject, Service } from "../model/objects.ts";
import { testNode, testService } from "../../tests/support/model_objects.ts";
import { UnservedFamilies } from "./unserved_families.ts";

const IPV6: RefusedFamily = { family: "IPv6", reason: "IPv6 is off", hasRules: false };
const V4_SERVICE = testService({ clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"] });
const DUAL_SERVICE = testService({ clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1", "fd00:96::1"] });
const HEADLESS = testService({ clusterIP: "None", clusterIPs: ["None"] });
const V4_NODE = testNode({ addresses: [{ type: "InternalIP", address: "192.0.2.1" }] });
const HOST_NODE = testNode({ addresses: [{ type: "Hostname", address: "node-a" }] });

/** Objects of the source, and the one use that is reported. */
const CASES: readonly [
  name: string,
  refused: readonly RefusedFamily[],
  said: readonly (Service | NodeObject)[],
  use: string | null,
][] = [
  ["nothing speaks of it", [IPV6], [V4_SERVICE, HEADLESS, V4_NODE, HOST_NODE], null],
  ["nothing is refused", [], [DUAL_SERVICE], null],
  [
    "Services, the first of them",
    [IPV6],
    [
      V4_SERVICE,
      DUAL_SERVICE,
      testService({ name: "b", clusterIP: "fd00:96::2", clusterIPs: ["fd00:96::2"] }),
    ],
    "Service shop/web has the cluster IP fd00:96::1",
  ],
  [
    "the Node's addresses",
    [IPV6],
    [V4_NODE, testNode({ addresses: [{ type: "InternalIP", address: "fd00::1" }] }), DUAL_SERVICE],
    "Node node-a has the address fd00::1",
  ],
  [
    "the Node's pod CIDRs",
    [IPV6],
    [testNode({ podCIDRs: ["10.244.0.0/24", "fd00:244::/64"] })],
    "Node node-a has the pod CIDR fd00:244::/64",
  ],
  [
    "rules of before",
    [{ ...IPV6, hasRules: true }],
    [DUAL_SERVICE],
    "rules of an earlier start are there, and no proxy updates them",
  ],
];
for (const [name, refused, said, use] of CASES) {
  Deno.test(`a family that cannot be served: ${name}`, { permissions: "none" }, () => {
    const { log, lines } = recordingLog();
    const notes: string[] = [];
    const uses: string[] = [];
    const unserved = new UnservedFamilies({
      refused,
      nodeName: "node-a",
      log,
      onEvent: ({ type, reason, note }) => notes.push(`${type} ${reason}: ${note}`),
      onUse: (family, told) => uses.push(`${family}: ${told}`),
    });
    for (const object of said) {
      if (object.kind === "Node") unserved.takeNode(object);
      else unserved.takeService(object);
    }
    assertEquals(lines.length, use === null ? 0 : 1);
    assertEquals(uses, use === null ? [] : [`IPv6: ${use}`]);
    const note = `Warning IPFamilyNotServed: cannot serve IPv6, although ${use}: IPv6 is off`;
    assertEquals(notes, use === null ? [] : [note]);
  });
}
