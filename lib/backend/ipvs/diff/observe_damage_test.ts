import { assert, assertEquals } from "@std/assert";
import { exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import { testPort, testService } from "../../../../tests/support/model_objects.ts";
import { parseCidr } from "../../../model/ip.ts";
import { setNames } from "../plan/sets.ts";
import { CommittedIpvs } from "./committed.ts";
import { damagedServers, damagedSizes, rulesProbe } from "./observe_damage.ts";

const pure = { permissions: "none" } as const;
const COMMITTED = CommittedIpvs.of(
  exampleIpvsPlan("IPv4", [testService({ type: "NodePort", ports: [testPort({ nodePort: 30080 })] })]),
);

Deno.test(
  "the listing asks for each chain in its own table, in the order in which they are compared",
  pure,
  () => {
    const { text, wanted } = rulesProbe(COMMITTED, true);
    const asked = text.split("COMMIT\n").slice(0, -1).flatMap((block) => {
      const [table, ...lines] = block.trimEnd().split("\n");
      return lines.map((line) => `${table!.slice(1)} ${line.replace("-S ", "")}`);
    });
    assertEquals(asked, wanted.map(({ table, chain }) => `${table} ${chain}`));
    for (
      const chain of ["nat PREROUTING", "filter INPUT", "nat KUBE-SERVICES", "filter KUBE-IPVS-OUT-FILTER"]
    ) {
      assert(asked.includes(chain), chain);
    }
  },
);

Deno.test("a set of another size, or none, is damage; one whose size nobody knows is not", pure, () => {
  const sizes = new Map<string, number | null>(
    setNames("IPv4").map((set) => [set, COMMITTED.union.setSize(set)]),
  );
  assertEquals(damagedSizes(sizes, COMMITTED), []);
  assertEquals(damagedSizes(new Map([...sizes, ["KUBE-CLUSTER-IP", null]]), COMMITTED), []);
  assertEquals(damagedSizes(new Map([...sizes, ["KUBE-CLUSTER-IP", 7]]), COMMITTED), ["KUBE-CLUSTER-IP"]);
  sizes.delete("KUBE-CLUSTER-IP");
  assertEquals(damagedSizes(sizes, COMMITTED), ["KUBE-CLUSTER-IP"]);
});

Deno.test(
  "a virtual server of others on our address is damage, unless it is theirs by the configuration",
  pure,
  () => {
    const virtualServers = new Map(
      [...COMMITTED.union.servers()].map(({ key, server }) => [key, { server, realServers: new Map() }]),
    );
    const own = [...COMMITTED.union.servers()].find(({ server }) => server.address === "10.96.0.10")!.server;
    virtualServers.set("10.96.0.10:99/TCP", { server: { ...own, port: 99 }, realServers: new Map() });
    const found = (exclude: readonly string[]): string[] =>
      damagedServers({ virtualServers } as never, COMMITTED, exclude.map((text) => parseCidr(text)!));
    assertEquals(found([]), ["10.96.0.10:99/TCP"]);
    assertEquals(found(["10.97.0.0/16"]), ["10.96.0.10:99/TCP"]);
    assertEquals(found(["10.97.0.0/16", "10.96.0.0/16"]), []);
  },
);
