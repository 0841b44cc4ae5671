import { assertEquals, assertRejects } from "@std/assert";
import { exampleState } from "../../../tests/support/golden.ts";
import { ExecError, SyncError } from "../../errors.ts";
import type { NamespacedName } from "../../model/objects.ts";
import type { Changed, ProxyState } from "../../model/state.ts";
import { silentLogger } from "../../observe/log.ts";
import type { ApplyReport, Damage } from "../backend.ts";
import type { RefusedService } from "../quarantine.ts";
import { Proxier } from "./proxier.ts";

const NONE = { permissions: "none" } as const;
const CHANGED: ReadonlySet<NamespacedName> = new Set<NamespacedName>(["shop/web"]);
const DAMAGE: Damage = ["nat KUBE-SERVICES"];
const FAILURE = new ExecError(["iptables-restore"], 4, "line 2 failed\nand more");
const STATE = exampleState("IPv4", []);

/** A proxier that records its writes, with the outcome that a test sets. */
class TestProxier extends Proxier<{ readonly mark: number }, string[]> {
  readonly writes: string[] = [];
  /** Called while something is written. */
  meanwhile: () => void = () => {};
  fails = false;
  refusedOf: readonly string[] = [];
  answer: (isUndisturbed: () => boolean) => Promise<false | null | Damage> = () => Promise.resolve(false);

  constructor() {
    super({
      mode: "iptables",
      family: "IPv4",
      settings: { mark: 1 },
      logger: silentLogger,
      nowMs: () => 0,
      kinds: [],
    });
  }

  protected override async writeAll(_: ProxyState, refused: ReadonlySet<string>): Promise<string[]> {
    await this.#write(`all but ${[...refused].join() || "none"}`, refused);
    return ["all"];
  }

  protected override async writeChange(_: ProxyState, changed: ReadonlySet<string>, store: string[]) {
    await this.#write(`${[...changed].join()} after ${store.join("+")}`, new Set());
    store.push("change");
  }

  protected override checkDrift(_: string[], isUndisturbed: () => boolean): Promise<false | null | Damage> {
    return this.answer(isUndisturbed);
  }

  protected override total(store: string[]): Readonly<Record<string, number>> {
    return { writes: store.length };
  }

  protected override refusal(error: unknown): string | null {
    return error instanceof SyncError && error.cause instanceof RangeError ? "refused" : null;
  }

  protected override findRefused(): Promise<readonly RefusedService[]> {
    return Promise.resolve(this.refusedOf.map((service) => ({ service, problem: "refused" })));
  }

  #write(what: string, refused: ReadonlySet<string>): Promise<void> {
    this.writes.push(what);
    return this.run("apply", () => {
      this.meanwhile();
      if (this.fails) throw FAILURE;
      if (this.refusedOf.some((name) => !refused.has(name))) throw new RangeError("refused");
    });
  }

  change(changed: Changed = CHANGED): Promise<ApplyReport> {
    return this.sync({ state: STATE, changed });
  }
}

Deno.test("it begins with a full sync and goes on from what is known to be held", NONE, async () => {
  const proxier = new TestProxier();
  for (const changed of [CHANGED, CHANGED, CHANGED, "all", CHANGED] as const) await proxier.change(changed);
  assertEquals(proxier.writes, [
    "all but none",
    "shop/web after all",
    "shop/web after all+change",
    "all but none",
    "shop/web after all",
  ]);
});

Deno.test("after a failure nothing is known, and nothing is damaged", NONE, async () => {
  const proxier = new TestProxier();
  await proxier.change();
  proxier.fails = true;
  const error = await assertRejects(() => proxier.change(), SyncError);
  assertEquals([error.phase, error.cause, error.message.endsWith("\nand more")], ["apply", FAILURE, true]);
  proxier.answer = () => Promise.resolve(DAMAGE);
  assertEquals(await proxier.findDamage(), false);
  proxier.fails = false;
  const { phasesMs, total } = await proxier.change();
  assertEquals([Object.keys(phasesMs ?? {}), total], [["apply"], { writes: 1 }]);
  assertEquals(proxier.writes.at(-1), "all but none");
  assertEquals(await proxier.findDamage(), DAMAGE);
});

Deno.test(
  "other settings make the next sync a full one, also when they come while one goes on",
  NONE,
  async () => {
    const proxier = new TestProxier();
    await proxier.change();
    assertEquals(proxier.configure({ mark: 1 }), false);
    await proxier.change();
    assertEquals(proxier.configure({ mark: 2 }), true);
    proxier.meanwhile = () => void proxier.configure({ mark: 3 });
    await proxier.change();
    proxier.meanwhile = () => {};
    await proxier.change();
    await proxier.change();
    assertEquals(proxier.writes, [
      "all but none",
      "shop/web after all",
      "all but none",
      "all but none",
      "shop/web after all",
    ]);
  },
);

Deno.test(
  "a refused change is a full sync at once, without the Services that are to blame",
  NONE,
  async () => {
    const proxier = new TestProxier();
    await proxier.change();
    proxier.refusedOf = ["shop/web", "shop/cart"];
    const { quarantined, isChangeRefused } = await proxier.change();
    assertEquals(isChangeRefused, true);
    assertEquals(proxier.writes, [
      "all but none",
      "shop/web after all",
      "all but none",
      "all but shop/web,shop/cart",
    ]);
    assertEquals(quarantined?.map(({ service }) => service), ["shop/cart", "shop/web"]);
  },
);

for (const answer of [false, null, DAMAGE] as const) {
  Deno.test(
    `a drift check's answer ${JSON.stringify(answer)} counts unless something came meanwhile`,
    NONE,
    async () => {
      const proxier = new TestProxier();
      await proxier.change();
      proxier.answer = () => Promise.resolve(answer);
      assertEquals(await proxier.findDamage(), answer);
      const disturbances = [() => proxier.change(), () => Promise.resolve(proxier.configure({ mark: 9 }))];
      for (const disturb of disturbances) {
        const seen: boolean[] = [];
        proxier.answer = async (isUndisturbed) => {
          seen.push(isUndisturbed());
          await disturb();
          seen.push(isUndisturbed());
          return answer;
        };
        assertEquals([await proxier.findDamage(), seen], [false, [true, false]]);
      }
    },
  );
}
