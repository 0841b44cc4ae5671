import { assertEquals } from "@std/assert";
import { kubeProxyTable } from "../../../tests/support/kube_proxy_layout.ts";
import { testService, testSlice, testSliceEndpoint } from "../../../tests/support/model_objects.ts";
import { configForMode, defaultConfig } from "../../config/defaults.ts";
import { type DesiredInput, stateOf, stateOfObjects, UNKNOWN_MACHINE } from "../desired/desired.ts";
import { liveOfTexts } from "../live/live.ts";
import { checkNode } from "./check.ts";

const NONE = { permissions: "none" } as const;
const SERVICES = 12;

const INPUT: DesiredInput = {
  ...stateOfObjects(
    Array.from({ length: SERVICES }, (_, at) => [
      testService({ name: `s${at}`, clusterIP: `10.96.0.${at + 1}` }),
      testSlice({
        name: `s${at}-1`,
        serviceName: `s${at}`,
        endpoints: [1, 2, 3].map((slot) => testSliceEndpoint(`10.128.${slot}.${at}`, { nodeName: "node-b" })),
      }),
    ]).flat(),
    "node-a",
    () => {},
  ),
  config: configForMode({ ...defaultConfig(), clusterCIDR: "10.128.0.0/9" }, "nftables"),
  machine: UNKNOWN_MACHINE,
  warn: () => {},
};
const CHAIN = [...stateOf(INPUT, "IPv4").services.values()][7]?.[0]?.text ?? "";
const RULE = `service-${CHAIN} meta l4proto tcp dnat ip to numgen random mod`;
const OTHERS =
  "add table ip others\nadd chain ip others c { type filter hook forward priority 0 ; policy accept ; }\n";

const CASES:
  readonly (readonly [name: string, change: string, others: string, differing: readonly number[]])[] = [
    ["nothing", "", "", []],
    [
      "another order of endpoints",
      flushed("3 map { 0 : 10.128.3.7 . 8080, 1 : 10.128.1.7 . 8080, 2 : 10.128.2.7 . 8080 }"),
      "",
      [],
    ],
    [
      "another endpoint",
      flushed("3 map { 0 : 10.128.1.7 . 8080, 1 : 10.128.2.7 . 8080, 2 : 10.128.3.8 . 8080 }"),
      "",
      [7],
    ],
    [
      "another port",
      flushed("3 map { 0 : 10.128.1.7 . 8080, 1 : 10.128.2.7 . 8080, 2 : 10.128.3.7 . 8081 }"),
      "",
      [7],
    ],
    [
      "one endpoint twice",
      flushed("3 map { 0 : 10.128.1.7 . 8080, 1 : 10.128.2.7 . 8080, 2 : 10.128.2.7 . 8080 }"),
      "",
      [7],
    ],
    ["no element", "delete element ip kube-proxy service-ips { 10.96.0.8 . tcp . 80 }", "", [7]],
    [
      "refused besides",
      "add element ip kube-proxy no-endpoint-services { 10.128.2.7 . tcp . 8080 : drop }",
      "",
      [7],
    ],
    ["another program's rule for an endpoint", "", `${OTHERS}add rule ip others c ip daddr 10.128.2.7 drop`, [
      7,
    ]],
    [
      "another program's rule for some endpoints",
      "",
      `${OTHERS}add rule ip others c ip daddr 10.128.2.8/30 drop`,
      [
        8,
        9,
        10,
        11,
      ],
    ],
    [
      "another program's set",
      "",
      `${OTHERS}add set ip others bad { type ipv4_addr ; }\nadd rule ip others c ip daddr @bad drop\nadd element ip others bad { 10.128.2.3 }`,
      [3],
    ],
  ];

function flushed(rest: string): string {
  return `flush chain ip kube-proxy service-${CHAIN}\nadd rule ip kube-proxy ${RULE} ${rest}`;
}

for (const [name, change, others, differing] of CASES) {
  Deno.test(`kube-proxy's table by packets: ${name}`, NONE, async () => {
    const texts = [
      { name: "nft", text: await kubeProxyTable(INPUT, change) },
      ...(others === "" ? [] : [{ name: "others", text: others }]),
    ];
    const live = liveOfTexts(texts, { from: "texts", bound: null, problems: [] });
    const [check] = await checkNode({
      mode: "nftables",
      desired: INPUT,
      live,
      isKernel: false,
      nodeAddresses: ["192.0.2.10"],
      podInterface: "cni0",
      quarantined: null,
    });
    const behaving = [...check?.services ?? []].filter(([, found]) =>
      found.some(({ kind }) => kind === "behaviour")
    );
    assertEquals(
      behaving.map(([service]) => service).sort(),
      differing.map((at) => CHAIN.replace(/\/.*/, `/s${at}`)).sort(),
    );
  });
}
