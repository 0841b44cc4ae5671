import { assert, assertEquals } from "@std/assert";
import { nftablesRig as rig, service } from "../../../../tests/support/nftables_rig.ts";

const NONE = { permissions: "none" } as const;
const MANY = Array.from({ length: 1_000 }, (_, i) => {
  const clusterIP = `10.97.${i >> 8}.${i & 255}`;
  const fields = { clusterIP, clusterIPs: [clusterIP] };
  return service(`s${i}`, [`10.244.${i >> 8}.${i & 255}`, `10.245.${i >> 8}.${i & 255}`], fields);
}).flat();

Deno.test("a set, and a chain that the kernel calls, may be gone", NONE, async () => {
  for (
    const [commands, found] of [
      ["delete set ip kproxy layout-1\n", "layout-1"],
      ["flush chain ip kproxy nat-output\ndelete chain ip kproxy nat-output\n", "nat-output"],
    ] as const
  ) {
    const { fake, proxier, sync } = rig();
    await sync(service("web", ["10.244.1.1"]));
    assertEquals(await proxier.checkCanary(), false);
    await fake.others(commands);
    const damage = await proxier.checkCanary();
    assert(damage !== false);
    assertEquals(damage.found, [found]);
  }
});

Deno.test(
  "a look at a large table lets others go first, and sees two endpoints that changed places",
  NONE,
  async () => {
    const { fake, proxier, sync } = rig();
    await sync(MANY);
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    try {
      assertEquals(await proxier.checkCanary(), false);
    } finally {
      clearInterval(timer);
    }
    assert(turns > 2, `${turns} turns of others`);
    const [first, second] = [0, 1].map((slot) => ({
      key: `10.97.3.7 . 80 . ${slot}`,
      value: `10.24${4 + slot}.3.7 . 8080`,
    }));
    assert(first !== undefined && second !== undefined);
    const map = "ip kproxy endpoints-tcp";
    await fake.others(
      `delete element ${map} { ${first.key}, ${second.key} }\n` +
        `add element ${map} { ${first.key} : ${second.value}, ${second.key} : ${first.value} }\n`,
    );
    const damage = await proxier.checkCanary();
    assert(damage !== false);
    assertEquals(damage.found, ["endpoints-tcp"]);
  },
);
