import { assertEquals } from "@std/assert";
import { ipvsRig } from "../../../../tests/support/ipvs_rig.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { stateOf } from "../../../../tests/support/fake_iptables_state.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";

const NONE = { permissions: "none" } as const;

Deno.test("Services that come and go with the same wish are warned of each time", NONE, async () => {
  const { log, lines } = recordingLog();
  const { fake, syncState } = ipvsRig(undefined, { log });
  fake.missingSchedulers.add("twos");
  const wishing = (...names: readonly string[]): ProxyState => {
    const state = stateOf("IPv4", Object.fromEntries(names.map((name) => [name, 1])));
    const services = [...state.services].map(([name, ports]) =>
      [name, ports.map((port) => ({ ...port, ipvs: { scheduler: "twos", graceful: true } }))] as const
    );
    return { ...state, services: new Map(services) };
  };
  const warnings = (): number =>
    lines.filter((line) => line.includes("does not get what it asks for")).length;
  const steps: readonly [names: readonly string[], changed: Changed, warnings: number][] = [
    [["s1"], "all", 1],
    [["s1"], "all", 1],
    [["s1", "s2"], new Set(["shop/s2"]), 2],
    [["s2"], new Set(["shop/s1"]), 2],
    [["s1", "s2"], new Set(["shop/s1"]), 3],
    [[], "all", 3],
    [["s1"], "all", 4],
  ];
  for (const [names, changed, wanted] of steps) {
    await syncState(wishing(...names), changed);
    assertEquals(warnings(), wanted);
  }
});
