import { assertEquals } from "@std/assert";
import { exampleState } from "../../../../tests/support/golden.ts";
import { ExecError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../../kernel/exec.ts";
import { Nft } from "../../../kernel/nft.ts";
import { testService } from "../../../../tests/support/model_objects.ts";
import { silentLogger } from "../../../observe/log.ts";
import { TrafficReader } from "./traffic_reader.ts";

const NONE = { permissions: "none" } as const;

/** A kernel that has counted some packets to 10.96.0.10:80, and how long it takes to say so. */
class CountingKernel implements Exec {
  packets = 0;
  tookMs = 0;
  nowMs = 0;
  lists = 0;
  forgets = false;
  broken: "" | "gone" | "refused" = "";

  run(argv: readonly string[]): Promise<ExecResult> {
    const [, , , family, table, name] = argv;
    assertEquals([argv.slice(0, 3), family, table], [["nft", "list", "set"], "ip", "kproxy"]);
    this.lists++;
    this.nowMs += this.tookMs / 4;
    if (this.broken !== "") {
      const stderr = this.broken === "gone"
        ? "Error: No such file or directory"
        : "Error: Operation not permitted";
      return Promise.resolve({ code: 1, stdout: "", stderr });
    }
    const element = name === "service-traffic-in"
      ? `\t\telements = { 10.96.0.10 . tcp . 80 counter packets ${this.packets} bytes ${
        this.packets * 60
      } }\n`
      : "";
    return Promise.resolve({
      code: 0,
      stdout: `table ip kproxy {\n\tset ${name} {\n${this.forgets ? "" : "\t\tcounter\n"}${element}\t}\n}\n`,
      stderr: "",
    });
  }
}

function rig(): {
  kernel: CountingKernel;
  warnings: readonly string[];
  packets: () => Promise<number | undefined>;
} {
  const kernel = new CountingKernel();
  const warnings: string[] = [];
  const state = exampleState("IPv4", [testService({ name: "web", clusterIP: "10.96.0.10" })]);
  const reader = new TrafficReader({
    nft: new Nft(kernel),
    family: "IPv4",
    state: () => state,
    logger: { ...silentLogger, warn: (message) => warnings.push(message) },
    nowMs: () => kernel.nowMs,
  });
  return { kernel, warnings, packets: async () => (await reader.read())[0]?.incoming.packets };
}

Deno.test(
  "counters are read once a second at most, and those who ask at the same time share it",
  NONE,
  async () => {
    const { kernel, packets } = rig();
    kernel.packets = 3;
    assertEquals(await Promise.all([packets(), packets()]), [3, 3]);
    assertEquals(kernel.lists, 4);
    kernel.packets = 4;
    kernel.nowMs = 999;
    assertEquals([await packets(), kernel.lists], [3, 4]);
    kernel.nowMs = 1_000;
    assertEquals([await packets(), kernel.lists], [4, 8]);
  },
);

Deno.test("a kernel that forgets that it is to count is reported, once", NONE, async () => {
  const { kernel, warnings, packets } = rig();
  await packets();
  assertEquals(warnings, []);
  kernel.forgets = true;
  for (kernel.nowMs of [2_000, 4_000]) await packets();
  assertEquals([kernel.lists, warnings], [12, [
    "Traffic is not counted: this kernel forgets counters of set elements",
  ]]);
});

Deno.test("reading takes a twentieth of the time at most", NONE, async () => {
  const { kernel, packets } = rig();
  kernel.tookMs = 600;
  await packets();
  kernel.nowMs = 11_999;
  await packets();
  assertEquals(kernel.lists, 4);
  kernel.nowMs = 12_000;
  await packets();
  assertEquals(kernel.lists, 8);
});

Deno.test("what cannot be read now is as it was", NONE, async () => {
  const { kernel, packets } = rig();
  kernel.packets = 3;
  await packets();
  for (const broken of ["gone", "refused"] as const) {
    kernel.nowMs += 2_000;
    kernel.broken = broken;
    assertEquals(await packets(), 3, broken);
  }
  kernel.broken = "";
  kernel.nowMs += 2_000;
  kernel.packets = 1;
  assertEquals(await packets(), 4);
});

Deno.test("an error of the program itself is no reason to fail", NONE, async () => {
  const missing: Exec = {
    run: (argv) => Promise.reject(new ExecError(argv, 127, "not found")),
  };
  const reader = new TrafficReader({
    nft: new Nft(missing),
    family: "IPv4",
    state: () => null,
    logger: silentLogger,
    nowMs: () => 0,
  });
  assertEquals(await reader.read(), []);
});
