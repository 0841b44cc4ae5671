/**
 * What ipvsadm, ipset and ip refuse, and that all beside it is carried out, against a real kernel inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_refusals_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals, assertRejects } from "@std/assert";
import { ExecError } from "../../lib/errors.ts";
import { type Exec, systemExec } from "../../lib/kernel/exec.ts";
import { deleteDevice, deviceAddresses, ensureDummy, runIpBatchOthers } from "../../lib/kernel/ip_address.ts";
import { destroySets, restoreSetsOthers, saveSets } from "../../lib/kernel/ipset.ts";
import { FakeIpvs } from "../support/fake_ipvs.ts";
import { addAddressLine } from "../../lib/netfilter/ip_batch.ts";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteVirtualServerLine,
  type VirtualServer,
  virtualServerKey,
} from "../../lib/netfilter/ipvs.ts";
import { DEVICE, ipvs, real, server } from "./ipvs_table.ts";

async function realServersOf(name: VirtualServer): Promise<readonly string[]> {
  const { virtualServers } = await ipvs.save();
  return [...virtualServers.get(virtualServerKey(name))?.realServers.keys() ?? []].sort();
}

/** Lines that some of these tools refuse, and ones around them that they take. */
const REFUSED_LINES: readonly (readonly [argv: readonly string[], ...lines: readonly string[]])[] = [
  [
    ["ipset", "restore", "-exist"],
    "create KP-IP hash:ip family inet hashsize 1024 maxelem 65536",
    "create KP-IP6 hash:ip family inet6 hashsize 1024 maxelem 65536",
    "create KP-PORT hash:ip,port family inet hashsize 1024 maxelem 65536",
    "create KP-NET hash:ip,port,net family inet hashsize 1024 maxelem 65536",
    "create KP-SMALL hash:ip family inet hashsize 1024 maxelem 2",
    "add KP-PORT 0.0.0.0,tcp:80",
    "add KP-IP 239.1.1.1",
    "add KP-IP 255.255.255.255",
    "add KP-IP 10.0.0.1",
    "add KP-IP 0.0.0.0",
    "add KP-IP 10.0.0.2",
  ],
  [["ipset", "restore", "-exist"], "add KP-IP6 fd00::1", "add KP-IP6 ::", "add KP-IP6 fd00::2"],
  [
    ["ipset", "restore", "-exist"],
    "add KP-NET 10.0.0.1,tcp:80,10.0.0.0/8",
    "add KP-NET 10.0.0.1,tcp:80,0.0.0.0/0",
  ],
  [["ipset", "restore", "-exist"], "add KP-SMALL 10.0.0.1", "add KP-SMALL 10.0.0.2", "add KP-SMALL 10.0.0.3"],
  [["ipset", "restore", "-exist"], "add KP-NONE 10.0.0.1"],
  [["ipset", "restore", "-exist"], "del KP-IP 10.0.0.9", "del KP-IP 0.0.0.0"],
  [
    ["ipvsadm", "-R"],
    "-A -t 10.96.0.1:80 -s rr",
    ...["239.1.1.1", "224.0.0.1", "192.0.2.255", "255.255.255.255", "0.0.0.0"].flatMap((address) => [
      `-a -t 10.96.0.1:80 -r ${address}:8080 -m -w 1`,
      `-a -t 10.96.0.1:80 -r ${address.replace(/^\d+/, "10")}:8080 -m -w 1`,
    ]),
    "-a -t 10.96.0.1:80 -r 240.0.0.1:8080 -m -w 1",
    "-a -t 10.96.0.1:80 -r 0.1.1.1:8080 -m -w 1",
    "-a -t 10.96.0.1:80 -r 127.0.0.1:8080 -m -w 1",
    "-A -t [fd00:10:96::1]:80 -s rr",
    ...["ff05::1", "::", "fe80::1", "::ffff:10.0.0.1", "::1", "fd00::7"].map((address) =>
      `-a -t [fd00:10:96::1]:80 -r [${address}]:8080 -m -w 1`
    ),
    "-A -t 239.1.1.1:80 -s rr",
    "-A -t 0.0.0.0:80 -s rr",
    "-Z -t 198.51.100.0:20000",
    "-Z -t 10.96.0.1:80",
    "-A -t 10.96.0.1:80 -s wlc",
    "-E -t 10.96.0.9:80 -s wlc",
    "-e -t 10.96.0.1:80 -r 10.9.9.9:80 -m -w 0",
    "-d -t 10.96.0.9:80 -r 10.9.9.9:80",
    "-a -t 10.96.0.1:80 -r 10.1.1.1:8080 -m -w 1",
    "-D -t 10.96.0.9:80",
  ],
  [
    ["ipvsadm", "-R"],
    "-A -t 10.96.0.2:80 -s rr",
    "-a -t 10.96.0.9:80 -r 239.1.1.1:80 -m -w 1",
    "-A -t 10.96.0.3:80 -s rr",
  ],
  [["ipvsadm", "-R"], "-A -t 10.96.0.4:80 -s rr", "nonsense", "-A -t 10.96.0.5:80 -s rr"],
  [
    ["ip", "-force", "-batch", "-"],
    "address add 10.96.0.1/32 dev kube-ipvs0",
    ...["0.0.0.0/32", "239.1.1.1/32", "255.255.255.255/32", "127.0.0.7/32", "192.0.2.255/32"].map((address) =>
      `address add ${address} dev kube-ipvs0`
    ),
    ...["::/128", "::1/128", "ff05::1/128", "fd00::7/128", "fe80::7/128"].map((address) =>
      `address add ${address} dev kube-ipvs0`
    ),
    "address add 10.96.0.1/32 dev kube-ipvs0",
    "address del 10.96.0.9/32 dev kube-ipvs0",
    "address del 239.1.1.1/32 dev kube-ipvs0",
  ],
];

/** A node with this broadcast address and these lines carried out. */
async function toolsAfter(exec: Exec): Promise<unknown> {
  const results = [];
  for (const [argv, ...lines] of REFUSED_LINES) {
    const { code, stderr } = await exec.run(argv, { stdin: lines.map((line) => `${line}\n`).join("") });
    // The program says its own name as it was started.
    results.push({ argv, code, said: stderr.trim().replaceAll("/usr/sbin/", "").split("\n") });
  }
  const sets = await exec.run(["ipset", "save"]);
  return {
    results,
    servers: (await exec.run(["ipvsadm", "-Sn"])).stdout.trim().split("\n").map((line) => line.trim()).sort(),
    sets: sets.stdout.split("\n").filter((line) => line.startsWith("add KP-")).sort(),
    addresses: [...await deviceAddresses(exec, DEVICE) ?? []].sort(),
  };
}

Deno.test("what these tools refuse the fake ones refuse in the same words, and do the same beside", async () => {
  const fake = new FakeIpvs();
  fake.kernel.broadcasts.add("192.0.2.255");
  fake.kernel.addresses = new Set();
  for (
    const args of [
      "link add eth9 type dummy",
      "address add 192.0.2.10/24 broadcast 192.0.2.255 dev eth9",
      "link set eth9 up",
    ]
  ) {
    await systemExec.run(["ip", ...args.split(" ")]);
  }
  await ensureDummy(systemExec, DEVICE);
  await ipvs.flush();
  assertEquals(await toolsAfter(systemExec), await toolsAfter(fake));
  await ipvs.flush();
  await deleteDevice(systemExec, DEVICE);
  await systemExec.run(["ip", "link", "del", "eth9"]);
  await destroySets(systemExec, ["KP-IP", "KP-IP6", "KP-PORT", "KP-NET", "KP-SMALL"]);
});

Deno.test("lines that the kernel refuses are told apart, and all others are carried out", async () => {
  await ipvs.flush();
  const virtual = server("10.96.0.2", 80);
  const reals = ["10.244.0.7", "239.1.1.1", "10.244.0.8", "255.255.255.255"].map((address) =>
    addRealServerLine(virtual, real(address, 80))
  );
  const lines = [addVirtualServerLine(virtual), ...reals, deleteVirtualServerLine(server("10.96.0.3", 80))];
  await ipvs.restore([addVirtualServerLine(server("10.96.0.3", 80))]);
  const { refused, runs } = await ipvs.restoreOthers(lines);
  assertEquals([refused.map(({ index }) => index), runs], [[2, 4], 2]);
  assertEquals(await realServersOf(virtual), [
    "10.244.0.7:80",
    "10.244.0.8:80",
  ]);
  assertEquals((await ipvs.save()).virtualServers.size, 1);
  // A line that the program cannot read is one of them, and what is behind it counts, too.
  const other = server("10.96.0.4", 80);
  const more = [
    addVirtualServerLine(other),
    "-a -t 10.96.0.4:80 -r nobody:80 -m -w 1",
    ...reals.slice(1).map((line) => line.replace("10.96.0.2", "10.96.0.4")),
  ];
  assertEquals((await ipvs.restoreOthers(more)).refused.map(({ index }) => index), [1, 2, 4]);
  assertEquals(await realServersOf(other), ["10.244.0.8:80"]);
  // Real servers of one that is refused say nothing by themselves.
  const unknown = server("10.96.0.5", 80, { scheduler: "nosuch" });
  const follow = [addVirtualServerLine(unknown), addRealServerLine(unknown, real("10.244.0.7", 80))];
  assertEquals((await ipvs.restoreOthers(follow)).refused.map(({ index }) => index), [0]);
  // What is there already was made by another process.
  await assertRejects(() => ipvs.restoreOthers(lines.slice(0, 2)), ExecError, "already exists");
  await ipvs.flush();

  const entries = ["10.0.0.1", "0.0.0.0", "10.0.0.2", "nonsense", "10.0.0.3"].map((entry) =>
    `add KP-IP ${entry}`
  );
  const create = "create KP-IP hash:ip family inet hashsize 1024 maxelem 65536";
  const sets = await restoreSetsOthers(systemExec, [create, ...entries]);
  assertEquals(sets.refused.map(({ index }) => index).sort(), [2, 4]);
  const saved = await saveSets(systemExec, (name) => name === "KP-IP");
  assertEquals([...saved.get("KP-IP")?.entries ?? []].sort(), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
  await destroySets(systemExec, ["KP-IP"]);

  await ensureDummy(systemExec, DEVICE);
  const addresses = ["fd00::1", "ff05::1", "fd00::2"].map((address) => addAddressLine(DEVICE, address));
  assertEquals((await runIpBatchOthers(systemExec, addresses)).map(({ index }) => index), [1]);
  assertEquals((await deviceAddresses(systemExec, DEVICE))?.size, 2);
  await assertRejects(
    () => runIpBatchOthers(systemExec, [addAddressLine("nowhere0", "10.96.0.1")]),
    ExecError,
  );
  await deleteDevice(systemExec, DEVICE);
});
