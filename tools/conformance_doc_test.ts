import { assert, assertEquals } from "@std/assert";
import type { ConformanceRecord } from "../tests/cluster/record.ts";
import { conformanceRecords, conformanceTests, userspaceGap, worseThanKubeProxy } from "./conformance_doc.ts";

const RECORD: ConformanceRecord = {
  proxy: "kproxy",
  version: "kproxy 0.1.0",
  mode: "nftables",
  families: "IPv4, IPv6",
  date: "2026-11-25T23:00:00.000Z",
  nodes: 3,
  kubernetes: "v1.36.2",
  containerd: "1.6.20",
  kernel: "6.18",
  tests: {
    "[sig-network] a": { outcome: "failed", seconds: 1, why: "x" },
    "[sig-network] b": { outcome: "passed", seconds: 1 },
  },
  notRun: [],
  steps: {},
};

Deno.test("a test that kproxy fails and kube-proxy passes in the same mode is reported", () => {
  const passed = { outcome: "passed", seconds: 1 } as const;
  const control = { ...RECORD, proxy: "kube-proxy", tests: { "[sig-network] a": passed } };
  assertEquals(worseThanKubeProxy([RECORD, control]), ["nftables: [sig-network] a: x"]);
  assertEquals(worseThanKubeProxy([RECORD, { ...control, mode: "iptables" }]), []);
  assert(conformanceTests([RECORD, control]).includes("| a | failed | ok |\n| b | ok |  |"));
});

Deno.test("in the kept runs no test of Kubernetes' fails that kube-proxy passes in modes iptables and nftables", () => {
  const records = conformanceRecords();
  for (const mode of ["iptables", "nftables"]) {
    for (const proxy of ["kproxy", "kube-proxy"]) {
      const ofBoth = records.filter((one) => one.mode === mode && one.proxy === proxy);
      assert(ofBoth.some(({ tests }) => Object.keys(tests).length > 10), `${proxy} ${mode}`);
    }
  }
  assertEquals(worseThanKubeProxy(records), []);
});

Deno.test("in the kept run mode userspace fails only what it cannot do", () => {
  const [record] = conformanceRecords().filter(({ mode, tests }) =>
    mode === "userspace" && Object.keys(tests).length > 0
  );
  assert(record !== undefined);
  const failed = Object.entries(record.tests).filter(([, { outcome }]) => outcome === "failed");
  assertEquals(failed.filter(([name]) => userspaceGap(name) === undefined), []);
});
