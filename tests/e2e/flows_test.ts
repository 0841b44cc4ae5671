/**
 * The flow cases with real packets: the same table that the simulators run, through `kproxy run` on manifest files, in a lab of
 * namespaces; all of them in mode nftables, and in others those that a mode decides. Each case is an edit of the files of the one
 * before it, so that all of them test changes as well. What the packets do is what `kproxy trace` predicts of the live rules.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { IMPLEMENTED_MODES } from "../../lib/backend/node/registry.ts";
import { type FlowCase, type FlowStep, optionsOf } from "../flows/flow_case.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import {
  CASE_GAPS,
  gapOf,
  groupsOf,
  isReal,
  isTraced,
  MODE_GAPS,
  prepareNode,
  type StartOptions,
  startOptions,
  type Surface,
} from "../support/flow_lab_cases.ts";
import { commonFlags, configuration, flag, hasPolicy, marker, nodeInZone } from "../support/flow_objects.ts";
import { KproxyProcess } from "../support/kproxy_process.ts";
import { LabFlowCase } from "../support/lab_flow.ts";
import { LabManifests } from "../support/lab_manifests.ts";
import { mispredictions } from "../support/lab_trace.ts";
import { NodeLab } from "../support/node_lab.ts";
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

function isChosen({ mode, variant }: Surface, flowCase: FlowCase, index: number): boolean {
  return isReal(mode, flowCase) && (variant === "nft" || index % LEGACY_EVERY === 0);
}

/** Modes iptables and userspace are configured by flags, mode nftables by a file: its mark has no flag, nor has a policy. */
function kproxyArgs(mode: Surface["mode"], options: StartOptions, configPath: string): string[] {
  if (mode === "nftables" || hasPolicy(options)) {
    return ["--hostname-override=node-a", `--config=${configPath}`];
  }
  return [
    ...(mode === "userspace" ? ["--proxy-mode=userspace"] : []),
    ...commonFlags(options),
    "--iptables-min-sync-period=0s",
    ...flag("iptables-localhost-nodeports", options.localhostNodePorts),
  ];
}

Deno.test("every gap of the cases with real packets is a case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map(({ name }) => name));
  const gaps = [CASE_GAPS, ...Object.values(MODE_GAPS)].flatMap((one) => Object.keys(one));
  assertEquals(gaps.filter((name) => !names.has(name)), []);
});

for (const surface of SURFACES.filter(({ mode }) => IMPLEMENTED_MODES.includes(mode))) {
  const { mode, variant } = surface;
  const tools = [`iptables-${variant}`, `ip6tables-${variant}`, ...(mode === "nftables" ? ["nft"] : [])];
  const needs = [ROOT_NAMESPACES, ...["ip", "sysctl", "conntrack", ...tools].map(program)];
  const name = mode === "iptables" ? `iptables ${variant}` : mode;
  e2eTest(`flow cases with real packets, ${name}`, needs, async (t) => {
    await using lab = await NodeLab.create();
    const configPath = await Deno.makeTempFile({ prefix: "kproxy-config-", suffix: ".json" });
    let index = 0;
    try {
      for (const cases of groupsOf(mode, (one, at) => isChosen(surface, one, at))) {
        const options = startOptions(optionsOf(cases[0]!));
        await prepareNode(lab, options, surface);
        await Deno.writeTextFile(configPath, JSON.stringify(configuration(mode, options)));
        await using manifests = await LabManifests.create();
        const args = [...kproxyArgs(mode, options, configPath), `--manifests=${manifests.folder}`];
        index = await runGroup(t, { lab, manifests, args, mode, zone: options.zone }, cases, index);
      }
    } finally {
      await Deno.remove(configPath);
    }
  });
}

interface Group {
  readonly lab: NodeLab;
  readonly manifests: LabManifests;
  readonly args: readonly string[];
  readonly mode: Surface["mode"];
  readonly zone: string;
}

/** Runs cases that one kproxy can serve; yields the number of the next case. */
async function runGroup(
  t: Deno.TestContext,
  { lab, manifests, args, mode, zone }: Group,
  cases: readonly FlowCase[],
  first: number,
): Promise<number> {
  let kproxy: KproxyProcess | undefined;
  try {
    for (const [index, flowCase] of cases.entries()) {
      await t.step(flowCase.name, async () => {
        const number = (first + index) % 250;
        const objects = [nodeInZone(zone), marker(number), ...flowCase.objects];
        const edit = () => manifests.replace("case.json", objects);
        if (kproxy === undefined) {
          await edit();
          kproxy = await KproxyProcess.start({ netns: lab.node.netns, args });
        } else {
          await kproxy.change(edit, `kp/marker-${number}`, 2);
        }
        const stepGap = (step: FlowStep): string | undefined => gapOf(mode, step);
        assertEquals(await new LabFlowCase(lab, flowCase, { mode }).run(stepGap), []);
        if (!isTraced(mode, flowCase)) return;
        assertEquals(
          await mispredictions(lab, flowCase, mode, stepGap),
          [],
          "kproxy trace on the live rules",
        );
      });
    }
  } finally {
    await kproxy?.[Symbol.asyncDispose]();
  }
  return first + cases.length;
}
