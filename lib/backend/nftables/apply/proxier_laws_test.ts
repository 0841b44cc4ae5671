/** Whatever happens in whatever order, the table ends as a fresh full sync makes it. */
import fc from "../../../../tests/support/fast_check.ts";
import { assertEquals } from "@std/assert";
import { offerChanges } from "../../../../tests/support/arbitrary_objects.ts";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import { exampleTracker } from "../../../../tests/support/golden.ts";
import {
  type EndState,
  endState,
  freshState,
  nftablesRig,
  service,
} from "../../../../tests/support/nftables_rig.ts";
import { SyncError } from "../../../errors.ts";
import { splitNamespacedName } from "../../../model/names.ts";
import type { ApiObject } from "../../../model/objects.ts";
import { testPort } from "../../../../tests/support/model_objects.ts";

/** What may happen: a Service comes, changes or goes; nft fails; others take something away; the process is another one. */
type Step =
  | {
    readonly kind: "change";
    readonly name: string;
    readonly pods: readonly string[];
    readonly shape: number;
  }
  | { readonly kind: "gone"; readonly name: string }
  | { readonly kind: "fail"; readonly after: number; readonly how: number }
  | { readonly kind: "others"; readonly what: number }
  | { readonly kind: "restart" }
  | { readonly kind: "pause" };

const NAMES = ["s1", "s2", "s3", "s4"];
const SHAPES: readonly Parameters<typeof service>[2][] = [
  {},
  { sessionAffinity: "ClientIP" },
  { type: "NodePort", ports: [testPort({ nodePort: 30080 })] },
  { externalIPs: ["198.51.100.1"] },
  { externalIPs: ["198.51.100.1"], externalTrafficPolicy: "Local" },
];
const FAILURES = [
  { code: 1, stdout: "", stderr: "netlink: Error: Could not process rule: No buffer space available\n" },
  { code: 137, stdout: "", stderr: "" },
];
const DAMAGES = [
  "delete table ip kproxy\n",
  "flush map ip kproxy service-ips\n",
  "flush chain ip kproxy services\n",
  "add element ip kproxy cluster-ips { 10.9.9.9 }\n",
];

const name = fc.constantFrom(...NAMES);
const steps = fc.array(
  fc.oneof(
    {
      weight: 8,
      arbitrary: fc.record({
        kind: fc.constant("change" as const),
        name,
        pods: fc.subarray(["10.244.1.1", "10.244.1.2", "10.244.1.3", "10.244.1.4"]),
        shape: fc.nat(SHAPES.length - 1),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("gone" as const), name }) },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant("fail" as const), after: fc.nat(3), how: fc.nat(1) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("others" as const), what: fc.nat(DAMAGES.length - 1) }),
    },
    { weight: 1, arbitrary: fc.constant({ kind: "restart" as const }) },
    { weight: 1, arbitrary: fc.constant({ kind: "pause" as const }) },
  ),
  { maxLength: 15 },
);

async function run(steps: readonly Step[]): Promise<void> {
  const fake = new FakeNft();
  let rig = nftablesRig(fake, 10);
  const objects = new Map<string, readonly ApiObject[]>();
  const current = () => [...objects.values()].flat();
  const tracker = exampleTracker("IPv4", []);
  let before: readonly ApiObject[] = [];
  const pending = new Set<string>();
  let isFull = true;
  /** As the loop does: what failed stays pending, and the next sync is a full one. */
  const sync = async (): Promise<boolean> => {
    offerChanges(tracker, before, current());
    before = current();
    for (const name of tracker.checkout().updatedServices) pending.add(splitNamespacedName(name).name);
    try {
      const { quarantined } = await rig.sync(current(), isFull ? undefined : [...pending]);
      assertEquals(quarantined, []);
      assertEquals(await rig.proxier.findDamage(), false, "what was just written is no damage");
      pending.clear();
      isFull = false;
      return true;
    } catch (error) {
      if (!(error instanceof SyncError)) throw error;
      isFull = true;
      return false;
    }
  };
  for (const step of steps) {
    if (step.kind === "change") {
      objects.set(step.name, service(step.name, step.pods, SHAPES[step.shape] ?? {}));
    } else if (step.kind === "gone") objects.delete(step.name);
    else if (step.kind === "fail") {
      let left = step.after;
      fake.fail = (argv) => argv.includes("-f") && left-- === 0 ? FAILURES[step.how] : undefined;
    } else if (step.kind === "others" && fake.listed("ip kproxy") !== "") {
      await fake.others(DAMAGES[step.what] ?? "");
      isFull = true;
    } else if (step.kind === "restart") {
      rig = nftablesRig(fake, 10);
      isFull = true;
    } else if (step.kind === "pause") rig.clock.nowMs += 2_000;
    await sync();
  }
  fake.fail = () => undefined;
  while (!await sync());
  const { chains: _, ...reached } = slotless(endState(fake));
  const { chains: __, ...wanted } = slotless(await freshState(current()));
  assertEquals(reached, wanted, "but for chains that Services share");
  isFull = true;
  assertEquals(await sync(), true);
  assertEquals(slotless(endState(fake)), slotless(await freshState(current())));
}

/** Which endpoint has which slot is a matter of history: here, slots count up and endpoints are sorted. */
function slotless({ elements, ...rest }: EndState): EndState {
  return {
    ...rest,
    elements: Object.fromEntries(
      Object.entries(elements).map(([container, members]) => {
        if (!container.includes("endpoints-")) return [container, members];
        const keys = Object.keys(members).sort();
        const prefix = (key: string): string => key.slice(0, key.lastIndexOf(" . "));
        const values = keys.map((key) => `${prefix(key)} : ${members[key]}`).sort();
        return [container, Object.fromEntries(keys.map((key, index) => [key, values[index] ?? ""]))];
      }),
    ),
  };
}

Deno.test("any events, failures, damages and restarts end in the table of a fresh full sync", {
  permissions: { env: true },
}, async () => {
  await fc.assert(fc.asyncProperty(steps, (steps) => run(steps)), { numRuns: 150 });
});
