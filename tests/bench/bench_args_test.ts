import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { isUserspace, parseBenchArgs } from "./bench_args.ts";
import { findPeer, peerConfiguration } from "./peer_process.ts";

Deno.test("a benchmark's arguments are numbers, a mode, and paths", { permissions: "none" }, () => {
  const { options, peer, program, isJson } = parseBenchArgs([
    ...["--mode", "nftables", "--services=5000", "--touches", "40", "--spacing-ms=300", "--rest-seconds=2"],
    ...["--peer", "/opt/kube-proxy", "--program=dist/kproxy-js/kproxy.js", "--json"],
  ]);
  assertEquals(options.size, { services: 5000, endpoints: 10 });
  assertEquals([options.mode.title, options.touches, options.spacingMs], ["nftables", 40, 300]);
  assertEquals([options.restMs, options.idleMs, options.rounds], [2000, 40_000, 3]);
  assertEquals([peer, program, isJson], ["/opt/kube-proxy", "dist/kproxy-js/kproxy.js", true]);
  assertEquals([["--mode=userspace"], ["--mode", "ipvs"], []].map(isUserspace), [true, false, false]);
  const plain = parseBenchArgs([]);
  assertEquals([plain.peer, plain.program, plain.isJson], [undefined, undefined, false]);
  assertEquals(plain.options.mode.title, "iptables (nft)");
});

Deno.test("a benchmark says which argument does not fit", { permissions: "none" }, () => {
  const cases: readonly (readonly [string[], string])[] = [
    [["--rounds=0"], "--rounds must be a number of 1 or more: got 0"],
    [["--services", "many"], "--services must be a number of 1 or more: got many"],
    [
      ["--mode=kernelspace"],
      "--mode must be iptables, nftables, ipvs or, of the bench task, userspace: got kernelspace",
    ],
    [["--variant=old"], "--variant must be nft or legacy: got old"],
    [["--fast"], "Unknown argument --fast"],
    [["--peer="], "--peer must be the path of a kube-proxy"],
    [["--peer=/opt/kube-proxy", "--mode=ipvs"], "--peer cannot be measured in mode ipvs"],
    [["--peer=/opt/kube-proxy", "--variant=legacy"], "--peer cannot be measured in mode iptables (legacy)"],
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

Deno.test("a peer is told mode, node and pace, and leaves the machine's settings alone", {
  permissions: "none",
}, () => {
  const options = { master: "http://127.0.0.1:1", mode: "nftables", folder: "/tmp" } as const;
  const configuration = JSON.parse(
    peerConfiguration({ ...options, minSyncPeriodMs: 150 }, "/tmp/kubeconfig"),
  );
  assertEquals([configuration.mode, configuration.nftables], ["nftables", { minSyncPeriod: "150ms" }]);
  assertEquals(configuration.clientConnection, { kubeconfig: "/tmp/kubeconfig" });
  assertEquals(configuration.conntrack, { maxPerCore: 0, min: 0 });
  const paced = JSON.parse(peerConfiguration({ ...options, minSyncPeriodMs: null }, "/tmp/kubeconfig"));
  assertEquals(paced.nftables, undefined);
});
