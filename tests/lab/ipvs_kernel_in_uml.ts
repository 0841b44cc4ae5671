/**
 * What `lib/kernel` says and does about IPVS, sets and addresses, against a real kernel inside of the user-mode Linux:
 * `tests/lab/uml.sh 'deno test -A tests/lab/ipvs_kernel_in_uml.ts'`.
 *
 * @module
 */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { ExecError, UnsupportedError } from "../../lib/errors.ts";
import { type Exec, systemExec } from "../../lib/kernel/exec.ts";
import {
  deleteDevice,
  deviceAddresses,
  deviceKind,
  ensureDummy,
  readDevices,
  runIpBatch,
} from "../../lib/kernel/ip_address.ts";
import {
  destroySets,
  listSets,
  probeIpset,
  restoreSets,
  saveSets,
  setSizes,
} from "../../lib/kernel/ipset.ts";
import { ipvsAbsence, Ipvsadm } from "../../lib/kernel/ipvsadm.ts";
import { DEVICE, ipvs, ipvsTimeouts, real, server } from "./ipvs_table.ts";
import { addAddressLine, deleteAddressLine } from "../../lib/netfilter/ip_batch.ts";
import {
  addEntryLine,
  createSetLine,
  deleteEntryLine,
  type SetDefinition,
  swapSetsLine,
} from "../../lib/netfilter/ipset.ts";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteRealServerLine,
  deleteVirtualServerLine,
  type RealServer,
  updateRealServerLine,
  updateVirtualServerLine,
  type VirtualServer,
} from "../../lib/netfilter/ipvs.ts";
import type { Protocol } from "../../lib/model/objects.ts";
import { formatIpvsTable } from "../support/saved_texts.ts";

async function saved(): Promise<string> {
  return formatIpvsTable(await ipvs.save());
}

/** What the program says of lines that are carried out, or `done`. */
async function outcome(...lines: string[]): Promise<string> {
  try {
    await ipvs.restore(lines);
    return "done";
  } catch (error) {
    if (error instanceof ExecError) return error.stderr;
    throw error;
  }
}

Deno.test("virtual servers: added, changed, read, deleted", async () => {
  await ipvs.flush();
  const redis = server("10.96.0.2", 6379, { timeoutSeconds: 600 });
  const hashed = server("fd00:10:96::9", 443, { scheduler: "mh", flags: ["mh-fallback", "mh-port"] });
  assertEquals(await saved(), "");
  assertEquals(await outcome(updateVirtualServerLine(redis)), "No such service");
  assertEquals(await outcome(deleteVirtualServerLine(redis)), "No such service");
  assertEquals(await ipvs.listRealServers(redis), null);
  assertEquals(await outcome(addVirtualServerLine(redis)), "done");
  assertEquals(await outcome(addVirtualServerLine(redis)), "Service already exists");
  const others = [{ ...redis, protocol: "UDP" as const }, { ...redis, protocol: "SCTP" as const }, hashed];
  assertEquals(await outcome(...others.map(addVirtualServerLine)), "done");
  const read = async (): Promise<Record<string, VirtualServer>> =>
    Object.fromEntries([...(await ipvs.save()).virtualServers].map(([key, { server }]) => [key, server]));
  const wanted = {
    "10.96.0.2:6379/TCP": redis,
    "10.96.0.2:6379/UDP": others[0]!,
    "10.96.0.2:6379/SCTP": others[1]!,
    "[fd00:10:96::9]:443/TCP": hashed,
  };
  assertEquals(await read(), wanted);
  const changed = { ...redis, scheduler: "wlc", timeoutSeconds: 0 };
  assertEquals(await outcome(updateVirtualServerLine(changed)), "done");
  assertEquals(await read(), { ...wanted, "10.96.0.2:6379/TCP": changed });
  assertEquals(await outcome(deleteVirtualServerLine(redis)), "done");
  assertEquals(Object.keys(await read()).includes("10.96.0.2:6379/TCP"), false);
  await ipvs.flush();
  assertEquals(await saved(), "");
});

Deno.test("which schedulers the kernel has is found out, and leaves nothing behind", async () => {
  await ipvs.flush();
  const probe = server("198.51.100.0", 20_000);
  for (const [scheduler, isThere] of [["nosuch", false], ["rr", true], ["wlc", true]] as const) {
    assertEquals(await ipvs.hasScheduler(scheduler), isThere);
    assertEquals(await saved(), "");
  }
  assertStringIncludes(
    await outcome(addVirtualServerLine({ ...probe, scheduler: "nosuch" })),
    "Scheduler or persistence engine not found",
  );
  // What is there goes.
  assertEquals(await outcome(addVirtualServerLine(probe)), "done");
  assertEquals(await ipvs.hasScheduler("wlc"), true);
  assertEquals(await saved(), "");
});

for (
  const [protocol, address, target] of [
    ["TCP", "10.96.0.2", "10.244.0.7"],
    ["UDP", "fd00:10:96::2", "fd00:10:244::7"],
    ["SCTP", "10.96.0.2", "10.244.0.7"],
  ] satisfies [Protocol, string, string][]
) {
  Deno.test(`real servers of ${protocol}: added, changed, read, deleted`, async () => {
    await ipvs.flush();
    const virtual = server(address, 53, { protocol });
    const one = real(target, 8053);
    const lineOf = [addRealServerLine, updateRealServerLine, deleteRealServerLine];
    for (const line of lineOf) assertEquals(await outcome(line(virtual, one)), "Service not defined");
    assertEquals(await outcome(addVirtualServerLine(virtual)), "done");
    assertEquals(await ipvs.listRealServers(virtual), []);
    for (const line of lineOf.slice(1)) {
      assertEquals(await outcome(line(virtual, one)), "No such destination");
    }
    assertEquals(await outcome(addRealServerLine(virtual, one)), "done");
    assertEquals(await outcome(addRealServerLine(virtual, one)), "Destination already exists");
    const resting = { ...one, weight: 0 };
    assertEquals(await outcome(updateRealServerLine(virtual, resting)), "done");
    const load = { ...resting, activeConnections: 0, inactiveConnections: 0 };
    assertEquals(await ipvs.listRealServers(virtual), [load]);
    assertEquals([...(await ipvs.loads()).values()].flatMap(({ realServers }) => [...realServers.values()]), [
      load,
    ]);
    const { virtualServers } = await ipvs.save();
    assertEquals([...virtualServers.values()].flatMap(({ realServers }) => [...realServers.values()]), [
      resting,
    ]);
    assertEquals(await outcome(deleteRealServerLine(virtual, one)), "done");
    assertEquals(await ipvs.listRealServers(virtual), []);
    await ipvs.flush();
  });
}

Deno.test("a real server of another forwarding method is read, and translated once it is changed", async () => {
  const virtual = server("10.96.0.2", 80);
  const target = real("10.244.0.7", 80);
  const found = async (): Promise<RealServer | undefined> =>
    [...(await ipvs.save()).virtualServers.values()][0]?.realServers.get("10.244.0.7:80");
  await ipvs.restore([
    addVirtualServerLine(virtual),
    addRealServerLine(virtual, { ...target, otherOptions: "-g" }),
  ]);
  assertEquals((await found())?.otherOptions, "-g");
  await ipvs.restore([updateRealServerLine(virtual, target)]);
  assertEquals(await found(), target);
  await ipvs.flush();
});

Deno.test("a batch is carried out in order, and reported if a line of it fails", async () => {
  const virtual = server("10.96.0.2", 80);
  const lines = [addVirtualServerLine(virtual), addRealServerLine(virtual, real("10.244.0.7", 80))];
  await ipvs.restore(lines);
  const error = await assertRejects(
    () => ipvs.restore([...lines, ...lines, addVirtualServerLine(server("fd00::1", 80))]),
    ExecError,
  );
  assertEquals(error.stderr, "Service already exists (2 times); Destination already exists (2 times)");
  assertEquals((await ipvs.save()).virtualServers.size, 2);
  await ipvs.restore([deleteVirtualServerLine(virtual)]);
  await ipvs.restore([]);
  assertEquals([...(await ipvs.save()).virtualServers.keys()], ["[fd00::1]:80/TCP"]);
  await assertRejects(() => ipvs.restore(["nonsense"]), ExecError);
  await ipvs.flush();
});

Deno.test("the text of a table makes the same table", async () => {
  await ipvs.restore([
    "-A -t 10.1.0.1:80 -s mh -p 100 -b mh-fallback,mh-port",
    "-a -t 10.1.0.1:80 -r 10.2.0.1:8080 -m -w 0",
    "-a -t 10.1.0.1:80 -r 10.2.0.2:80 -g -w 7",
    "-A --sctp-service [fd00::1]:99 -s rr -p 10800 -M 64",
    "-A -f 33 -s rr",
    "-A -f 34 -6 -s rr",
  ]);
  const before = await ipvs.save();
  assertEquals(before.otherLines.length, 2);
  await ipvs.flush();
  await ipvs.restore(formatIpvsTable(before).trim().split("\n"));
  assertEquals(await ipvs.save(), before);
  await ipvs.flush();
});

Deno.test("timeouts: 0 keeps one", async () => {
  const before = await ipvsTimeouts();
  await ipvs.setTimeouts({ tcpSeconds: 0, tcpFinSeconds: 77, udpSeconds: 0 });
  assertEquals(await ipvsTimeouts(), { ...before, tcpFinSeconds: 77 });
});

Deno.test("what is missing for IPVS is named", async () => {
  const absence = async (exec: Exec): Promise<string | undefined> => {
    const error = await assertRejects(() => new Ipvsadm(exec).save(), ExecError);
    return ipvsAbsence(error)?.message;
  };
  const asNobody: Exec = {
    run: (argv, options) =>
      systemExec.run(["setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", ...argv], options),
  };
  const withoutProgram: Exec = { run: (argv) => systemExec.run([`${argv[0]}-of-nowhere`]) };
  assertStringIncludes(await absence(asNobody) ?? "", "root or CAP_NET_ADMIN");
  assertStringIncludes(await absence(withoutProgram) ?? "", "package ipvsadm");
  const setError = await assertRejects(() => probeIpset(asNobody), UnsupportedError);
  assertStringIncludes(setError.message, "root or CAP_NET_ADMIN");
  const noSet = await assertRejects(() => probeIpset(withoutProgram), UnsupportedError);
  assertStringIncludes(noSet.message, "package ipset");
});

Deno.test("sets: made, filled, saved, made larger under their name, destroyed", async () => {
  assertStringIncludes(await probeIpset(systemExec), "v");
  const definition: SetDefinition = { name: "KP-A", type: "hash:ip,port", family: "IPv4", maxElements: 2 };
  const create = createSetLine(definition);
  const text = (lines: readonly string[]): string => lines.map((line) => `${line}\n`).join("");
  const entries = ["10.0.0.1,tcp:80", "10.0.0.2,udp:80", "10.0.0.3,sctp:80"];
  await restoreSets(
    systemExec,
    text([create, ...entries.slice(0, 2).map((entry) => addEntryLine("KP-A", entry))]),
  );
  // The same once more is fine.
  await restoreSets(
    systemExec,
    text([create, addEntryLine("KP-A", entries[0]!), deleteEntryLine("KP-A", "10.0.0.9,tcp:1")]),
  );
  const full = await assertRejects(
    () => restoreSets(systemExec, text([addEntryLine("KP-A", entries[2]!)])),
    ExecError,
  );
  assertStringIncludes(full.stderr, "Hash is full");
  const larger = { ...definition, name: "KP-T", maxElements: 4 };
  await restoreSets(
    systemExec,
    text([
      createSetLine(larger),
      ...entries.map((entry) => addEntryLine("KP-T", entry)),
      swapSetsLine("KP-A", "KP-T"),
      "destroy KP-T",
    ]),
  );
  const sets = await saveSets(systemExec, (name) => name.startsWith("KP-"));
  assertEquals([...sets.keys()], ["KP-A"]);
  assertEquals(sets.get("KP-A")?.definition, { ...definition, maxElements: 4 });
  assertEquals([...sets.get("KP-A")?.entries ?? []].sort(), entries);
  assertEquals((await saveSets(systemExec, () => false)).size, 0);
  assertEquals([...await setSizes(systemExec)], [["KP-A", 3]]);
  await destroySets(systemExec, ["KP-A"]);
  assertEquals((await listSets(systemExec)).includes("KP-A"), false);
});

Deno.test("every type of set comes back from the kernel as it went in", async () => {
  const lines = [
    "create KP-1 hash:ip family inet6 hashsize 1024 maxelem 65536",
    "add KP-1 fd00::1",
    "create KP-2 hash:ip,port,ip family inet hashsize 1024 maxelem 70000",
    "add KP-2 10.0.0.1,tcp:80,10.0.0.1",
    "create KP-3 hash:ip,port,net family inet6 hashsize 1024 maxelem 65536",
    "add KP-3 fd00::1,tcp:80,fd00::7",
    "add KP-3 fd00::1,tcp:80,2001:db8::/32",
    "create KP-4 bitmap:port range 0-65535",
    "add KP-4 30000",
  ];
  await restoreSets(systemExec, `${lines.join("\n")}\n`);
  const sets = [...(await saveSets(systemExec, (name) => name.startsWith("KP-"))).values()];
  const again = sets.flatMap(({ definition, entries, name }) => [
    definition === null ? `${name} is not read` : createSetLine(definition),
    ...[...entries].map((entry) => addEntryLine(name, entry)),
  ]);
  assertEquals(again.sort(), lines.sort());
  await destroySets(systemExec, sets.map(({ name }) => name));
});

Deno.test("addresses of a dummy device: bound, found, removed; twice is fine", async () => {
  await deleteDevice(systemExec, DEVICE);
  assertEquals(await deviceKind(systemExec, DEVICE), null);
  assertEquals(await deviceAddresses(systemExec, DEVICE), null);
  assertEquals(await ensureDummy(systemExec, DEVICE), true);
  assertEquals(await ensureDummy(systemExec, DEVICE), false);
  assertEquals(await deviceKind(systemExec, DEVICE), "dummy");
  const { kinds } = await readDevices(systemExec);
  assertEquals([kinds.get(DEVICE), kinds.has("nowhere0")], ["dummy", false]);
  const own = async (): Promise<readonly string[]> =>
    (await readDevices(systemExec)).addresses.filter(({ device }) => device === DEVICE).map((
      { address, prefixLength },
    ) => `${address}/${prefixLength}`);
  const add = [addAddressLine(DEVICE, "10.96.0.1"), addAddressLine(DEVICE, "fd00:10:96::9")];
  await runIpBatch(systemExec, add);
  await runIpBatch(systemExec, [
    "link add kube-ipvs0 type dummy",
    ...add,
    addAddressLine(DEVICE, "10.96.0.2"),
  ]);
  assertEquals(await own(), ["10.96.0.1/32", "10.96.0.2/32", "fd00:10:96::9/128"]);
  assertEquals([...await deviceAddresses(systemExec, DEVICE) ?? []], [
    "10.96.0.1",
    "10.96.0.2",
    "fd00:10:96::9",
  ]);
  const remove = [deleteAddressLine(DEVICE, "10.96.0.1"), deleteAddressLine(DEVICE, "fd00:10:96::9")];
  await runIpBatch(systemExec, remove);
  await runIpBatch(systemExec, [...remove, deleteAddressLine(DEVICE, "10.96.0.2")]);
  assertEquals(await own(), []);
  const error = await assertRejects(
    () =>
      runIpBatch(systemExec, [addAddressLine("nowhere0", "10.96.0.1"), addAddressLine(DEVICE, "10.96.0.3")]),
    ExecError,
  );
  assertEquals(error.stderr, 'Cannot find device "nowhere0" (address add 10.96.0.1/32 dev nowhere0)');
  assertEquals(await own(), ["10.96.0.3/32"]);
  await runIpBatch(systemExec, []);
  await deleteDevice(systemExec, DEVICE);
  await deleteDevice(systemExec, DEVICE);
});

Deno.test("a device of our name that is none of ours is left alone", async () => {
  await systemExec.run(["ip", "link", "add", DEVICE, "type", "bridge"]);
  const error = await assertRejects(() => ensureDummy(systemExec, DEVICE), UnsupportedError);
  assertStringIncludes(error.message, "one of kind bridge");
  await deleteDevice(systemExec, DEVICE);
});
