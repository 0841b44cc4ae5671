import { assertEquals } from "@std/assert";
import { ipvsRig } from "../../../../tests/support/ipvs_rig.ts";
import { recordingLog } from "../../../../tests/support/recording_log.ts";
import { stateOf } from "../../../../tests/support/fake_iptables_state.ts";
import type { NamespacedName } from "../../../model/objects.ts";
import type { Changed, ProxyState } from "../../../model/state.ts";
import { LoggedProblems } from "./schedulers.ts";

const NONE = { permissions: "none" } as const;

function plan(all: boolean, problems: Readonly<Record<NamespacedName, readonly string[]>>) {
  const services = new Map(Object.keys(problems).map((name) => [name as NamespacedName, null] as const));
  const found = Object.entries(problems).filter(([, list]) => list.length > 0);
  return { all, services, problems: new Map(found as [NamespacedName, readonly string[]][]) };
}

Deno.test("a problem is news once, and again when it comes back; no more is kept than there is", NONE, () => {
  const told = new LoggedProblems();
  assertEquals(told.news(plan(true, { "a/a": ["one"], "a/b": ["two"] })), ["one", "two"]);
  assertEquals(told.news(plan(true, { "a/a": ["one"], "a/b": ["two", "three"] })), ["three"]);
  // A plan of one Service says nothing of the other.
  assertEquals(told.news(plan(false, { "a/a": [] })), []);
  assertEquals(told.size, 1);
  assertEquals(told.news(plan(false, { "a/a": ["one"], "a/b": ["three"] })), ["one"]);
  assertEquals(told.news(plan(false, { "a/b": ["two", "three"] })), ["two"]);
  assertEquals(told.news(plan(true, { "a/b": ["two"] })), []);
  assertEquals(told.size, 1);
  assertEquals(told.news(plan(true, {})), []);
  assertEquals(told.size, 0);
});

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
