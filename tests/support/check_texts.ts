/**
 * Runs `kproxy check` on output of the tools, for the node of `check_objects`.
 *
 * @module
 */
import { renderPlan } from "../../lib/backend/nftables/store/full_sync.ts";
import { assert } from "@std/assert";
import { planTexts } from "../../lib/backend/ipvs/store/store.ts";
import { checkNode, type Difference, type FamilyCheck } from "../../lib/inspect/check/check.ts";
import type { DesiredInput, RulesMode } from "../../lib/inspect/desired/desired.ts";
import { render as iptablesText } from "../../lib/inspect/modes/iptables.ts";
import { ipvsPlan } from "../../lib/inspect/modes/ipvs.ts";
import { nftablesPlan } from "../../lib/inspect/modes/nftables.ts";
import { liveOfTexts, type LiveText } from "../../lib/inspect/live/live.ts";
import { rules as userspaceRules } from "../../lib/inspect/modes/userspace.ts";
import { assignedPortals } from "./assigned_ports.ts";
import { inputOf } from "./check_objects.ts";
import { renderIptablesSave } from "./saved_texts.ts";

/** Output by tool. */
export type Texts = Readonly<Record<string, string>>;

/** Output of the tools on a sound node, by tool. */
export function printed(mode: RulesMode, input: DesiredInput): Texts {
  switch (mode) {
    case "iptables":
      return {
        iptables: iptablesText(input, "IPv4").replace(
          "*filter\n",
          "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
        ).replace("*nat\n", "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"),
      };
    case "nftables":
      return { nftables: renderPlan(nftablesPlan(input, "IPv4")) };
    case "ipvs": {
      const plan = ipvsPlan(input, "IPv4");
      const { iptables, ipset, ipvsadm } = planTexts(plan);
      const jumps = ["filter", "nat"].map((table) =>
        [
          `*${table}`,
          ...plan.base.jumps.filter((jump) => jump.table === table)
            .map(({ chain, args }) => `-I ${chain} ${args}`),
          "COMMIT",
          "",
        ].join("\n")
      );
      const whole = iptables.includes("-I ") ? iptables : `${iptables}${jumps.join("")}`;
      return { iptables: whole, ipset, ipvsadm };
    }
    case "userspace": {
      const [held] = userspaceRules(input, "IPv4").iptables;
      return { iptables: renderIptablesSave(held?.tables ?? new Map()) };
    }
  }
}

/** Result of `kproxy check` for texts. */
export async function checked(mode: RulesMode, texts: Texts, input = inputOf(mode)): Promise<FamilyCheck> {
  const list = Object.entries(texts).map(([name, text]): LiveText => ({ name, text, family: "IPv4" }));
  const live = liveOfTexts(list, { from: "texts", bound: null, problems: [] });
  const [check] = await checkNode({
    mode,
    desired: input,
    live,
    isKernel: false,
    nodeAddresses: ["192.0.2.10"],
    podInterface: "cni0",
    quarantined: null,
    ...(mode === "userspace" ? { portals: assignedPortals(input) } : {}),
  });
  assert(check !== undefined);
  return check;
}

/** One line per difference: Service, kind, place, cause, texts. */
export function all({ base, services, leftovers }: FamilyCheck): readonly string[] {
  const line = (of: string) => ({ kind, place, cause, wanted, found }: Difference): string =>
    [of, kind, place, cause, ...wanted.map((text) => `-${text}`), ...found.map((text) => `+${text}`)].join(
      " | ",
    );
  return [
    ...base.map(line("base")),
    ...[...services].flatMap(([name, differences]) => differences.map(line(name))),
    ...leftovers.map(line("leftover")),
  ];
}
