import { assertEquals, assertRejects } from "@std/assert";
import { ExecError, SyncError } from "../../errors.ts";
import type { NamespacedName } from "../../model/objects.ts";
import type { Damage } from "../damage.ts";
import { FamilySession, type Since } from "./family_session.ts";

const CHANGED: ReadonlySet<NamespacedName> = new Set<NamespacedName>(["shop/web"]);
const DAMAGE: Damage = { services: "all", found: ["nat KUBE-SERVICES"] };

function session(): FamilySession<{ readonly mark: number }, string> {
  return new FamilySession({ mode: "iptables", family: "IPv4", settings: { mark: 1 }, nowMs: () => 0 });
}

/** A sync that commits; yields what it began with. */
async function sync(of: ReturnType<typeof session>, committed: string): Promise<Since<string> | null> {
  const { since } = await of.sync(CHANGED, (since) => Promise.resolve({ committed, since }));
  return since;
}

Deno.test(
  "a session begins with a full sync and goes on from what is committed",
  { permissions: "none" },
  async () => {
    const of = session();
    assertEquals([await sync(of, "a"), await sync(of, "b")], [null, { changed: CHANGED, committed: "a" }]);
    await of.sync("all", (since) => Promise.resolve({ committed: "c", since: assertEquals(since, null) }));
    assertEquals((await sync(of, "d"))?.committed, "c");
  },
);

Deno.test(
  "after a failure nothing is committed, and nothing is damaged",
  { permissions: "none" },
  async () => {
    const of = session();
    await sync(of, "a");
    const failure = new ExecError(["iptables-restore"], 4, "line 2 failed\nand more");
    const failed = of.sync(CHANGED, () => of.run("apply", () => Promise.reject(failure)));
    const error = await assertRejects(() => failed, SyncError);
    assertEquals([error.phase, error.cause, error.message.endsWith("\nand more")], ["apply", failure, true]);
    assertEquals([of.isCommitted, await of.look(() => Promise.resolve(DAMAGE))], [false, false]);
    assertEquals(Object.keys(of.report({ commands: 0, bytes: 0, written: {}, total: {} }).phasesMs ?? {}), [
      "apply",
    ]);
    assertEquals(await sync(of, "b"), null);
  },
);

Deno.test("other settings make the next sync a full one, also when they come while one goes on", {
  permissions: "none",
}, async () => {
  const of = session();
  await sync(of, "a");
  assertEquals([of.configure({ mark: 1 }), of.isCommitted], [false, true]);
  assertEquals([of.configure({ mark: 2 }), of.isCommitted, of.settings], [true, false, { mark: 2 }]);
  await of.sync("all", () => {
    of.configure({ mark: 3 });
    return Promise.resolve({ committed: "b" });
  });
  assertEquals([of.isCommitted, await sync(of, "c"), of.isCommitted], [false, null, true]);
});

for (const answer of [false, null, DAMAGE] as const) {
  Deno.test(`a look's answer ${JSON.stringify(answer)} counts unless something came meanwhile`, {
    permissions: "none",
  }, async () => {
    const of = session();
    await sync(of, "a");
    assertEquals(await of.look((committed) => Promise.resolve(committed === "a" && answer)), answer);
    const disturbances = [() => sync(of, "b"), () => Promise.resolve(of.configure({ mark: 9 }))];
    for (const disturb of disturbances) {
      const told: boolean[] = [];
      const found = await of.look(async (_, isUndisturbed) => {
        told.push(isUndisturbed());
        await disturb();
        told.push(isUndisturbed());
        return answer;
      });
      assertEquals([found, told], [false, [true, false]]);
    }
  });
}
