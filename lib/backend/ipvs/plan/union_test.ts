/** Who has a virtual server that several Services claim, and what is counted of servers, their rules and entries. */
import { assertEquals } from "@std/assert";
import type { NamespacedName } from "../../../model/objects.ts";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import type { IpvsPlan, ServiceClaims, WantedServer } from "./ruleset.ts";
import { ClaimUnion } from "./union.ts";

const pure = { permissions: "none" } as const;
const SET = "KUBE-IPVS-IPS";
const KEY = "tcp 192.0.2.10:30080";

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
function plan(services: Readonly<Record<string, readonly WantedServer[] | null>>): IpvsPlan {
  const claims = Object.entries(services).map(([name, servers]): [NamespacedName, ServiceClaims | null] => [
    name as NamespacedName,
    servers === null ? null : { servers, entries: [] },
  ]);
  return { all: false, base: BASE, services: new Map(claims), problems: new Map() };
}

const BASE = exampleIpvsPlan("IPv4", []).base;

function union(...plans: readonly IpvsPlan[]): ClaimUnion {
  const made = new ClaimUnion(SET);
  for (const one of plans) made.apply(one);
  return made;
}

function realServers(made: ClaimUnion): string[] {
  return [...made.servers()].flatMap((one) => one.realServers);
}

Deno.test("a server that two Services claim goes to the other one when the first leaves", pure, () => {
  const address = server(["10.244.0.1:80"]);
  const nodePort = server(["10.244.0.2:80"], { isNodePort: true });
  const both = plan({ "x/address": [address], "a/node-port": [nodePort] });
  const made = union(both);
  assertEquals([realServers(made), made.serverCount], [["10.244.0.1:80"], 1]);
  const leaves = plan({ "x/address": null });
  assertEquals(made.change(leaves).servers.get(KEY), { before: address, after: nodePort });
  made.apply(leaves);
  assertEquals([realServers(made), made.serverCount, made.realServerCount], [["10.244.0.2:80"], 1, 1]);
  made.apply(plan({ "a/node-port": null }));
  assertEquals([realServers(made), made.serverCount, made.realServerCount], [[], 0, 0]);
});

Deno.test("rules of servers are counted as they come and go", pure, () => {
  const rule = "-p tcp -d 203.0.113.5 --dport 80 -j DROP";
  const made = union(
    plan({
      "default/a": [server([], { key: "a", outFilter: rule })],
      "default/b": [server([], { key: "b" })],
    }),
  );
  assertEquals(made.outFilterCount, 1);
  made.apply(plan({ "default/b": [server([], { key: "b", outFilter: rule })] }));
  assertEquals(made.outFilterCount, 2);
  made.apply(plan({ "default/a": null }));
  assertEquals(made.outFilterCount, 1);
});

Deno.test("an entry stays while one server has it, and is counted once", pure, () => {
  const entry = `${SET} 203.0.113.5`;
  const made = union(
    plan({
      "default/a": [server([], { key: "a", entries: [entry] })],
      "default/b": [server([], { key: "b", entries: [entry] })],
    }),
  );
  assertEquals([made.setSize(SET), [...made.entries]], [1, [entry]]);
  assertEquals(made.change(plan({ "default/a": null })).removedEntries, []);
  made.apply(plan({ "default/a": null }));
  assertEquals([made.setSize(SET), made.has(entry)], [1, true]);
  assertEquals(made.change(plan({ "default/b": null })).removedEntries, [entry]);
  made.apply(plan({ "default/b": null }));
  assertEquals([made.setSize(SET), made.has(entry)], [0, false]);
});
