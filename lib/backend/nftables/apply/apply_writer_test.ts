import { assert, assertEquals, assertRejects } from "@std/assert";
import { ExecError } from "../../../errors.ts";
import { type Exec, type ExecResult, wholeText } from "../../../kernel/exec.ts";
import { Nft } from "../../../kernel/nft.ts";
import { silentLogger } from "../../../observe/log.ts";
import { Writer } from "./apply_writer.ts";
import type { BaseRules, ServiceOperations } from "../plan/ruleset.ts";

const NONE = { permissions: "none" } as const;
const NO_BASE: BaseRules = { comment: "", containers: [], chains: [], hookedChains: [], elements: [] };
const DONE: ExecResult = { code: 0, stdout: "", stderr: "" };

/** Programs that run until they are told how they ended. */
class HeldPrograms implements Exec {
  readonly running: { readonly text: string; end(result: ExecResult): void }[] = [];
  started = 0;
  #wake = Promise.withResolvers<void>();

  async run(_argv: readonly string[], options: { readonly stdin?: Parameters<typeof wholeText>[0] } = {}) {
    const { promise, resolve } = Promise.withResolvers<ExecResult>();
    const program = {
      text: wholeText(options.stdin ?? ""),
      end: (result: ExecResult) => {
        this.running.splice(this.running.indexOf(program), 1);
        resolve(result);
      },
    };
    this.running.push(program);
    this.started++;
    this.#wake.resolve();
    return await promise;
  }

  /** Resolves when so many have been started. */
  async start(count: number): Promise<void> {
    while (this.started < count) {
      this.#wake = Promise.withResolvers();
      await this.#wake.promise;
    }
  }
}

function operationsOf(name: string): ServiceOperations {
  return {
    name: `default/${name}`,
    others: [],
    deletedElements: [],
    writtenSets: [],
    writtenChains: [],
    addedElements: [{ container: "cluster-ips", key: name, value: "" }],
    staleChains: [],
    staleSets: [],
  };
}

/** A writer of one Service per transaction. */
function rig(): {
  writer: Writer;
  programs: HeldPrograms;
  made: string[];
  services: Iterable<ServiceOperations>;
} {
  const programs = new HeldPrograms();
  const made: string[] = [];
  function* services(): Generator<ServiceOperations> {
    for (const name of ["a", "b", "c", "d"]) {
      made.push(name);
      yield operationsOf(name);
    }
  }
  const writer = new Writer({
    nft: new Nft(programs),
    address: { table: "ip kproxy", addressType: "ipv4_addr" },
    elementsPerTransaction: 1,
    logger: silentLogger,
    progress: { commands: 0, bytes: 0, written: { chains: 0, elements: 0, sets: 0 } },
  });
  return { writer, programs, made, services: services() };
}

Deno.test("two transactions of a full sync run at a time, and one more is made ready", NONE, async () => {
  const { writer, programs, made, services } = rig();
  const written = writer.writeServices(services, NO_BASE);
  await programs.start(2);
  assertEquals(programs.running.map(({ text }) => /\{ (\w) \}/.exec(text)?.[1]), ["a", "b"]);
  assert(made.length <= 3, `${made} are made while the first two are written`);
  programs.running[0]?.end(DONE);
  await programs.start(3);
  assertEquals(programs.running.map(({ text }) => /\{ (\w) \}/.exec(text)?.[1]), ["b", "c"]);
  programs.running[0]?.end(DONE);
  await programs.start(4);
  while (programs.running.length > 0) programs.running[0]?.end(DONE);
  assertEquals(await written, []);
  assertEquals(made, ["a", "b", "c", "d"]);
});

Deno.test("a full sync that fails does so once none of its transactions runs any more", NONE, async () => {
  const { writer, programs, services } = rig();
  let settled = false;
  const written = writer.writeServices(services, NO_BASE).finally(() => settled = true);
  const rejected = assertRejects(() => written, ExecError);
  await programs.start(2);
  programs.running[0]?.end({ code: 1, stdout: "", stderr: "Operation not permitted (you must be root)\n" });
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  assertEquals([settled, programs.running.length], [false, 1]);
  programs.running[0]?.end(DONE);
  await rejected;
  assertEquals(programs.started, 2);
});

/** How many Services each transaction of a new table has. */
async function servicesOfEach(count: number, elementsPerTransaction: number): Promise<readonly number[]> {
  const texts: string[] = [];
  const exec: Exec = {
    run(_argv, { stdin = "" } = {}) {
      texts.push(wholeText(stdin));
      return Promise.resolve(DONE);
    },
  };
  const writer = new Writer({
    nft: new Nft(exec),
    address: { table: "ip kproxy", addressType: "ipv4_addr" },
    elementsPerTransaction,
    logger: silentLogger,
    progress: { commands: 0, bytes: 0, written: { chains: 0, elements: 0, sets: 0 } },
  });
  const base = {
    containers: [],
    chains: [{ name: "services", rules: [] }],
    hookedChains: [],
    deletedElements: [],
    addedElements: [],
    sharedChains: [],
  };
  const services = Array.from({ length: count }, (_, at) => operationsOf(`s${at}`));
  const table = { comment: "", hooked: true, weight: count };
  assertEquals(await writer.writeTable({ base, services }, NO_BASE, table), []);
  return texts.map((text) => text.split("add element").length - 1);
}

Deno.test(
  "of many Services a thousand elements go in with the table, and the others in groups of one size",
  NONE,
  async () => {
    assertEquals(await servicesOfEach(9_999, 10_000), [9_999]);
    // Two are written at a time: ten thousand and one would be as slow as ten thousand.
    assertEquals(await servicesOfEach(11_001, 10_000), [1_000, 5_001, 5_000]);
    assertEquals(await servicesOfEach(31_001, 10_000), [1_000, 7_501, 7_501, 7_501, 7_498]);
    assertEquals(await servicesOfEach(5, 2), [2, 2, 1]);
    assertEquals(await servicesOfEach(0, 10), [0]);
  },
);
