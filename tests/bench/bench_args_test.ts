import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { parseBenchArgs } from "./bench_args.ts";
import { findPeer, peerConfiguration } from "./peer_process.ts";

Deno.test(
  "what is measured, modes, sizes and a peer are named; without them it is what the documentation shows",
  {
    permissions: "none",
  },
  () => {
    const { subject, modes, sizes, endpoints, rounds, peer, peerLimitMs, isRecorded } = parseBenchArgs([
      ...["proxies", "--mode=nftables", "--services=100", "--services", "5000", "--endpoints=3", "--record"],
      ...["--rounds=7", "--peer", "/opt/kube-proxy", "--peer-seconds=9"],
    ]);
    assertEquals([subject, endpoints, rounds, peer, peerLimitMs, isRecorded], [
      ...["proxies", 3, 7, "/opt/kube-proxy", 9_000, true],
    ]);
    assertEquals([modes.map(({ title }) => title), sizes], [["nftables"], [100, 5000]]);
    const plain = parseBenchArgs(["proxies"]);
    assertEquals([plain.peer, plain.isRecorded, plain.rounds], [undefined, false, 5]);
    assertEquals(plain.modes.map(({ proxyMode }) => proxyMode), ["nftables", "iptables"]);
    assertEquals(plain.sizes, [100, 1000, 5000, 10_000]);
    assertEquals(parseBenchArgs(["packets"]).sizes, [1000]);
  },
);

Deno.test("a benchmark says which argument does not fit", { permissions: "none" }, () => {
  const cases: readonly (readonly [string[], string])[] = [
    [["proxies", "--rounds=0"], "--rounds must be a number of 1 or more: got 0"],
    [["proxies", "--services", "many"], "--services must be a number of 1 or more: got many"],
    [["packets", "--mode=ipvs"], "--mode must be nftables or iptables: got ipvs"],
    [["packets", "--fast"], "Unknown argument --fast"],
    [["packets", "--record", "--program=kproxy.js"], "--record measures no other --program"],
    [["packets", "--peer="], "--peer must be the path of a kube-proxy"],
    [[], "One of proxies and packets can be measured: got nothing"],
    [["proxies", "packets"], "One of proxies and packets can be measured: got proxies packets"],
  ];
  for (const [words, message] of cases) assertThrows(() => parseBenchArgs(words), RangeError, message);
});

Deno.test("a peer that is missing, no program, or fails is told as such", async () => {
  const folder = await Deno.makeTempDir({ prefix: "kproxy-bench-test-" });
  const script = async (name: string, text: string, mode: number): Promise<string> => {
    await Deno.writeTextFile(`${folder}/${name}`, text, { mode });
    return `${folder}/${name}`;
  };
  try {
    const cases: readonly (readonly [string, string])[] = [
      [`${folder}/kube-proxy`, "there is no such file"],
      [folder, "cannot be run"],
      [await script("closed", "#!/bin/sh\necho v1\n", 0o600), "cannot be run"],
      [await script("broken", "#!/bin/sh\necho 'no libc' >&2\nexit 127\n", 0o700), "no libc"],
      [await script("silent", "#!/bin/sh\n", 0o700), `"--version" ended with 0 and no version`],
    ];
    for (const [path, message] of cases) {
      const error = await assertRejects(() => findPeer(path), RangeError, message);
      assertEquals(error.message.startsWith(`--peer ${path}: `), true, error.message);
    }
    const path = await script("good", "#!/bin/sh\necho Kubernetes v1.2.3\n", 0o700);
    assertEquals(await findPeer(path), { path: await Deno.realPath(path), version: "Kubernetes v1.2.3" });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a peer is told mode and node, and leaves the machine's settings alone", {
  permissions: "none",
}, () => {
  const options = { master: "http://127.0.0.1:1", mode: "nftables", folder: "/tmp", starter: [] } as const;
  const configuration = JSON.parse(peerConfiguration(options, "/tmp/kubeconfig"));
  assertEquals([configuration.mode, configuration.nftables], ["nftables", undefined]);
  assertEquals(configuration.clientConnection, { kubeconfig: "/tmp/kubeconfig" });
  assertEquals(configuration.conntrack, { maxPerCore: 0, min: 0 });
});
