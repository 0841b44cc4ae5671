import { assertEquals, assertRejects } from "@std/assert";
import { ExecError } from "../../../errors.ts";
import { type Exec, type ExecResult, wholeText } from "../../../kernel/exec.ts";
import { Nft } from "../../../kernel/nft.ts";
import { silentLogger } from "../../../observe/log.ts";
import { diffObjects, NftTransaction, NO_OBJECTS } from "../../../netfilter/nft_objects.ts";
import type { ServiceTransaction } from "../store/full_sync.ts";
import { type TableFilling, TableWriter } from "./table_writer.ts";

const NONE = { permissions: "none" } as const;
const DONE: ExecResult = { code: 0, stdout: "", stderr: "" };

/** Programs that run until a test ends them. */
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

function transactionOf(name: string): ServiceTransaction {
  const elements = [{ container: "cluster-ips", key: name, value: "" }];
  return { name: `default/${name}`, transaction: diffObjects({ ...NO_OBJECTS, elements }, NO_OBJECTS) };
}

/** A writer of one Service per transaction. */
function rig(): {
  writer: TableWriter;
  programs: HeldPrograms;
  made: string[];
  filling: TableFilling;
} {
  const programs = new HeldPrograms();
  const made: string[] = [];
  function* services(): Generator<ServiceTransaction> {
    for (const name of ["a", "b", "c", "d"]) {
      made.push(name);
      yield transactionOf(name);
    }
  }
  const writer = new TableWriter({
    nft: new Nft(programs),
    table: "ip kproxy",
    elementsPerTransaction: 1,
    logger: silentLogger,
    progress: { commands: 0, bytes: 0, written: { chains: 0, elements: 0, sets: 0 } },
  });
  const filling = { base: new NftTransaction(), services: services(), comment: "", isSmall: false };
  return { writer, programs, made, filling };
}

Deno.test(
  "two transactions of a full sync run at a time, and each is made when its turn comes",
  NONE,
  async () => {
    const { writer, programs, made, filling } = rig();
    const written = writer.fill(filling);
    await programs.start(2);
    assertEquals(programs.running.map(({ text }) => /\{ (\w) \}/.exec(text)?.[1]), ["a", "b"]);
    assertEquals(made, ["a", "b"]);
    programs.running[0]?.end(DONE);
    await programs.start(3);
    assertEquals(programs.running.map(({ text }) => /\{ (\w) \}/.exec(text)?.[1]), ["b", "c"]);
    programs.running[0]?.end(DONE);
    await programs.start(4);
    while (programs.running.length > 0) programs.running[0]?.end(DONE);
    await written;
    assertEquals(made, ["a", "b", "c", "d"]);
  },
);

Deno.test("a full sync that fails does so once none of its transactions runs any more", NONE, async () => {
  const { writer, programs, filling } = rig();
  let settled = false;
  const written = writer.fill(filling).finally(() => settled = true);
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
  const writer = new TableWriter({
    nft: new Nft(exec),
    table: "ip kproxy",
    elementsPerTransaction,
    logger: silentLogger,
    progress: { commands: 0, bytes: 0, written: { chains: 0, elements: 0, sets: 0 } },
  });
  const base = new NftTransaction();
  base.chains.push({ name: "services", rules: [] });
  const services = Array.from({ length: count }, (_, at) => transactionOf(`s${at}`));
  const isSmall = count < elementsPerTransaction;
  await writer.fill({ base, services, comment: "", isSmall });
  return texts.map((text) => text.split("add element").length - 1);
}

Deno.test(
  "of many Services a thousand elements go in with the table, and the others in groups",
  NONE,
  async () => {
    assertEquals(await servicesOfEach(9_999, 10_000), [9_999]);
    assertEquals(await servicesOfEach(31_001, 10_000), [1_000, 10_000, 10_000, 10_000, 1]);
    assertEquals(await servicesOfEach(5, 2), [2, 2, 1]);
    assertEquals(await servicesOfEach(0, 10), [0]);
  },
);
