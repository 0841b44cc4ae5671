/** Which Service has a virtual server that several want, and what is counted of servers, their rules and entries. */
import { assertEquals } from "@std/assert";
import type { NamespacedName } from "../../../model/objects.ts";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import type { IpvsPlan, ServiceObjects, WantedServer } from "../plan/ruleset.ts";
import { IpvsStore } from "./store.ts";

const pure = { permissions: "none" } as const;
const SET = "KUBE-CLUSTER-IP";
const KEY = "192.0.2.10:30080/TCP";

function server(realServers: readonly string[], changes: Partial<WantedServer> = {}): WantedServer {
  return {
    key: KEY,
    server: {
      protocol: "TCP",
      address: "192.0.2.10",
      port: 30080,
      scheduler: "rr",
      flags: [],
      timeoutSeconds: 0,
    },
    realServers,
    graceful: true,
    bind: false,
    entries: [],
    isNodePort: false,
    outFilter: "",
    ...changes,
  };
}

/** A plan of some Services; null: it goes. */
function plan(services: Readonly<Record<string, readonly WantedServer[] | null>>, all = false): IpvsPlan {
  const objects = Object.entries(services).map(([name, servers]): [NamespacedName, ServiceObjects | null] => [
    name as NamespacedName,
    servers === null ? null : { servers, entries: [] },
  ]);
  return { all, base: BASE, services: new Map(objects), problems: new Map() };
}

const BASE = exampleIpvsPlan("IPv4", []).base;

function store(services: Readonly<Record<string, readonly WantedServer[]>>): IpvsStore {
  return IpvsStore.of(plan(services, true));
}

function realServers(made: IpvsStore): string[] {
  return [...made.servers()].flatMap((one) => one.realServers);
}

Deno.test("a server that two Services want goes to the other one when the first leaves", pure, () => {
  const made = store({
    "x/address": [server(["10.244.0.1:80"])],
    "a/node-port": [server(["10.244.0.2:80"], { isNodePort: true })],
  });
  const counts = (): number[] => [made.counts.virtualServers, made.counts.realServers];
  assertEquals([realServers(made), counts()], [["10.244.0.1:80"], [1, 1]]);
  const leaves = made.change(plan({ "x/address": null }));
  assertEquals(leaves.servers.map(({ kind }) => kind), ["addReal", "removeReal"]);
  assertEquals([realServers(made), counts()], [["10.244.0.2:80"], [1, 1]]);
  made.change(plan({ "a/node-port": null }));
  assertEquals([realServers(made), counts()], [[], [0, 0]]);
});

Deno.test("rules of servers are counted as they come and go", pure, () => {
  const rule = "-p tcp -d 203.0.113.5 --dport 80 -j DROP";
  const none = store({}).counts.filter;
  const made = store({
    "default/a": [server([], { key: "a", outFilter: rule })],
    "default/b": [server([], { key: "b" })],
  });
  const outFilters = (): number => made.counts.filter - none;
  assertEquals(outFilters(), 1);
  made.change(plan({ "default/b": [server([], { key: "b", outFilter: rule })] }));
  assertEquals(outFilters(), 2);
  made.change(plan({ "default/a": null }));
  assertEquals(outFilters(), 1);
});

Deno.test("an entry stays while one server has it, and is counted once", pure, () => {
  const entry = `${SET} 203.0.113.5,tcp:80`;
  const made = store({
    "default/a": [server([], { key: "a", entries: [entry] })],
    "default/b": [server([], { key: "b", entries: [entry] })],
  });
  const entries = (): readonly string[] => made.objects.sets.find(({ kind }) => kind === SET)?.entries ?? [];
  assertEquals([made.setSize(SET), entries()], [1, ["203.0.113.5,tcp:80"]]);
  const first = made.change(plan({ "default/a": null }));
  assertEquals(first.sets, []);
  assertEquals([made.setSize(SET), entries().length], [1, 1]);
  const second = made.change(plan({ "default/b": null }));
  assertEquals(second.sets.map(({ deletions }) => deletions), [[`del ${entry}`]]);
  assertEquals([made.setSize(SET), entries()], [0, []]);
});
