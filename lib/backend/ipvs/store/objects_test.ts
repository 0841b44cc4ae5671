/** What a full sync writes where it finds other objects. */
import { assert, assertEquals } from "@std/assert";
import { exampleIpvsOptions, exampleIpvsPlan } from "../../../../tests/support/golden_ipvs.ts";
import { KernelModel } from "../../../../tests/support/ipvs_kernel.ts";
import { parseCidr } from "../../../model/ip.ts";
import type { ApiObject } from "../../../model/objects.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
  testSlicePort,
} from "../../../../tests/support/model_objects.ts";
import type { IpvsOptions, IpvsPlan } from "../plan/ruleset.ts";
import { type HeldTables, NOTHING_HELD } from "../../iptables/store/full_sync.ts";
import type { HeldObjects, Ownership } from "./objects.ts";
import { IpvsStore } from "./store.ts";
import type { IpvsTransaction } from "./transaction.ts";

const pure = { permissions: "none" } as const;
const OPTIONS = exampleIpvsOptions("IPv4");
const WEB = testService({ type: "NodePort", ports: [testPort({ nodePort: 30080 })] });
const PODS = testSlice({
  ports: [testSlicePort()],
  endpoints: [testSliceEndpoint("10.244.0.1", { nodeName: "node-a" }), testSliceEndpoint("10.244.1.1")],
});

function syncOver(
  plan: IpvsPlan,
  held: HeldObjects & Partial<HeldTables>,
  ownership: Ownership,
): IpvsTransaction {
  return new IpvsStore(plan).fullSync({ ...NOTHING_HELD, ...held }, ownership);
}

function synced(...objects: readonly ApiObject[]): KernelModel {
  return KernelModel.after(
    syncOver(exampleIpvsPlan("IPv4", objects), new KernelModel().observe(), OPTIONS),
  );
}

function sync(kernel: KernelModel, objects: readonly ApiObject[], options: IpvsOptions = OPTIONS): string {
  return syncOver(exampleIpvsPlan("IPv4", objects), kernel.observe(), options).text;
}

Deno.test("of a chain whose places are unknown, all jumps are made anew where one is missing", pure, () => {
  const plan = exampleIpvsPlan("IPv4", [WEB]);
  const kernel = synced(WEB);
  const edits = (): string[] => {
    const jumpsOnly = { nat: new Set<string>(), filter: new Set(["INPUT"]) };
    const text = syncOver(plan, { ...kernel.observe(), jumpsOnly }, OPTIONS).text;
    return [...text.matchAll(/^(-[ID] INPUT(?: \d)?) .*-j (\S+)$/gm)].map(([, edit, target]) =>
      `${edit} ${target}`
    );
  };
  assertEquals(edits(), []);
  kernel.edit("filter", "INPUT", (rules) => rules.splice(1, 1));
  const targets = ["KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL", "KUBE-IPVS-FILTER"];
  assertEquals(
    edits().sort(),
    [
      ...targets.filter((target) => target !== "KUBE-PROXY-FIREWALL").map((target) => `-D INPUT ${target}`),
      ...targets.map((target) => `-I INPUT ${target}`),
    ].sort(),
  );
});

Deno.test(
  "a set of another type is asked for and left alone, one that is too small is replaced once",
  pure,
  () => {
    const plan = exampleIpvsPlan("IPv4", [WEB]);
    const observed = synced(WEB).observe();
    const saved = observed.sets.get("KUBE-CLUSTER-IP")!;
    const linesWith = (definition: typeof saved.definition): string[] => {
      const sets = new Map([...observed.sets, ["KUBE-CLUSTER-IP", {
        ...saved,
        definition,
        entries: new Set<string>(),
      }]]);
      return syncOver(plan, { ...observed, sets }, OPTIONS).text.split("\n")
        .filter((line) => line.includes("KUBE-CLUSTER-IP")).map((line) =>
          line.split(" ").slice(0, 2).join(" ")
        );
    };
    assertEquals(linesWith({ ...saved.definition!, type: "hash:ip" } as typeof saved.definition), [
      "create KUBE-CLUSTER-IP",
      "add KUBE-CLUSTER-IP",
    ]);
    const small = linesWith({ ...saved.definition!, maxElements: 0 } as typeof saved.definition);
    assertEquals(small.filter((line) => line.startsWith("add")), []);
    assertEquals(small.some((line) => line.startsWith("swap")), true);
  },
);

Deno.test("unwanted entries, servers and addresses go, missing ones come", pure, () => {
  const kernel = synced(WEB);
  kernel.sets.get("KUBE-CLUSTER-IP")!.entries = new Set(["10.96.0.99,tcp:80"]);
  kernel.addresses = new Set(["10.96.0.99"]);
  kernel.servers.set("-t 10.96.0.99:80", { options: "-s rr", real: new Map() });
  kernel.servers.delete("-t 192.0.2.10:30080");
  assertEquals(
    sync(kernel, [WEB]),
    "### ipset restore\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\ndel KUBE-CLUSTER-IP 10.96.0.99,tcp:80\n" +
      "### ipvsadm -R\n-A -t 192.0.2.10:30080 -s rr\n-D -t 10.96.0.99:80\n" +
      "### ip -batch -\naddress del 10.96.0.99/32 dev kube-ipvs0\naddress add 10.96.0.10/32 dev kube-ipvs0\n",
  );
});

Deno.test("a server of which only its address tells that it is ours goes before the address", pure, () => {
  const kernel = synced(WEB);
  kernel.addresses!.add("198.51.100.1");
  kernel.servers.set("-t 198.51.100.1:80", { options: "-s rr", real: new Map() });
  const gone = "### ipvsadm -R\n-D -t 198.51.100.1:80\n";
  const unbound = "### ip -batch -\naddress del 198.51.100.1/32 dev kube-ipvs0\n";
  assertEquals(sync(kernel, [WEB]), gone + unbound);
  // Where its entry tells it, too, no packet comes to the address without its server.
  kernel.sets.get("KUBE-EXTERNAL-IP")!.entries = new Set(["198.51.100.1,tcp:80"]);
  assertEquals(
    sync(kernel, [WEB]),
    unbound + gone + "### ipset restore\ndel KUBE-EXTERNAL-IP 198.51.100.1,tcp:80\n",
  );
});

Deno.test("in a set without room for both, what goes makes room for what comes", pure, () => {
  const kernel = synced(WEB);
  const full = Array.from({ length: 65_536 }, (_, at) => `10.97.${at >> 8}.${at & 255},tcp:80`);
  kernel.sets.get("KUBE-CLUSTER-IP")!.entries = new Set(full);
  const [come, goes] = ["add KUBE-CLUSTER-IP 10.96.0.10,tcp:80", "del KUBE-CLUSTER-IP 10.97.0.1,tcp:80"];
  const isComeFirst = (): boolean => {
    const text = sync(kernel, [WEB]);
    assert(text.includes(come) && text.includes(goes), text.slice(0, 200));
    return text.indexOf(come) < text.indexOf(goes);
  };
  assertEquals(isComeFirst(), false);
  kernel.sets.get("KUBE-CLUSTER-IP")!.entries = new Set(full.slice(1));
  assertEquals(isComeFirst(), true);
});

Deno.test("a wanted real server gets weight and method back, a surplus one is asked to leave", pure, () => {
  const kernel = synced(WEB, PODS);
  const { real } = kernel.servers.get("-t 10.96.0.10:80")!;
  real.set("10.244.0.1:8080", "-m -w 0");
  real.set("10.244.1.1:8080", "-g -w 1");
  real.set("10.244.9.9:8080", "-m -w 0");
  assertEquals(
    sync(kernel, [WEB, PODS]),
    "### ipvsadm -R\n-e -t 10.96.0.10:80 -r 10.244.0.1:8080 -m -w 1\n" +
      "-e -t 10.96.0.10:80 -r 10.244.1.1:8080 -m -w 1\n-d -t 10.96.0.10:80 -r 10.244.9.9:8080\n",
  );
});

const FOREIGN: readonly (readonly [string, string, Partial<IpvsOptions>, boolean])[] = [
  ["on the node's address, an unknown port", "-t 192.0.2.10:8443", {}, false],
  ["on the node's address, another protocol of a node port", "-u 192.0.2.10:30080", {}, false],
  ["on an unknown address", "-t 198.51.100.99:80", {}, false],
  ["of the other family", "-t [2001:db8:2::10]:30080", {}, false],
  ["on an address of our device", "-t 10.96.0.10:8443", {}, true],
  ["on an address of our device, but excluded", "-t 10.96.0.10:8443", {
    excludeCIDRs: [parseCidr("10.96.0.0/24")!],
  }, false],
  ["a node port that is in our set", "-t 192.0.2.10:30080", {}, true],
];

for (const [name, server, options, ours] of FOREIGN) {
  Deno.test(`a virtual server ${name} is ${ours ? "ours" : "another program's"}`, pure, () => {
    const kernel = synced(WEB);
    kernel.servers.set(server, { options: "-s wlc", real: new Map([["10.9.9.9:80", "-m -w 5"]]) });
    const text = sync(kernel, [], { ...OPTIONS, ...options });
    assertEquals(text.includes(`-D ${server}\n`), ours, text);
  });
}

Deno.test("a server on an address that the node no longer has is ours if this process made it", pure, () => {
  const kernel = synced(WEB);
  const moved = { ...OPTIONS, hostIps: ["192.0.2.11"], nodePortIps: ["192.0.2.11"] };
  const plan = exampleIpvsPlan("IPv4", [], moved);
  const previous = new IpvsStore(exampleIpvsPlan("IPv4", [WEB])).servers();
  const goes = (known: ReadonlySet<string>): boolean =>
    syncOver(plan, kernel.observe(), { ...moved, known }).text.includes("-D -t 192.0.2.10:30080");
  assertEquals([goes(new Set()), goes(new Set(previous.map(({ key }) => key)))], [false, true]);
});

Deno.test("where iptables mode serves, its rules are replaced last", pure, () => {
  const kernel = new KernelModel();
  kernel.restore("nat", [
    ":KUBE-SVC-X - [0:0]",
    ":KUBE-SERVICES - [0:0]",
    "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-X",
  ]);
  const { steps } = syncOver(exampleIpvsPlan("IPv4", [WEB]), kernel.observe(), OPTIONS);
  assertEquals(steps.map(({ program }) => program), ["ipset", "ipvsadm", "ip", "iptables"]);
});

Deno.test("a set that is too small is replaced, a larger one than needed stays", pure, () => {
  const kernel = synced(WEB);
  const set = kernel.sets.get("KUBE-CLUSTER-IP")!;
  kernel.sets.set("KUBE-CLUSTER-IP", { ...set, definition: { ...set.definition, maxElements: 1024 } });
  kernel.sets.set("KPROXY-GROWING", { ...set, entries: new Set() });
  assertEquals(
    sync(kernel, [WEB]),
    "### ipset restore\ndestroy KPROXY-GROWING\n" +
      "create KPROXY-GROWING hash:ip,port family inet hashsize 1024 maxelem 65536\n" +
      "add KPROXY-GROWING 10.96.0.10,tcp:80\nswap KPROXY-GROWING KUBE-CLUSTER-IP\ndestroy KPROXY-GROWING\n",
  );
  kernel.apply(syncOver(exampleIpvsPlan("IPv4", [WEB]), kernel.observe(), OPTIONS));
  kernel.sets.set("KUBE-CLUSTER-IP", { ...set, definition: { ...set.definition, maxElements: 1_048_576 } });
  assertEquals(sync(kernel, [WEB]), "");
});

Deno.test("addresses of the other family stay on the device", pure, () => {
  const kernel = synced(WEB);
  kernel.addresses?.add("fd00:10:96::9");
  assertEquals(sync(kernel, [WEB]), "");
});
