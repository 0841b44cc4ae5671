/** Programs that say that all is well and have written nothing: the next look sees it. */
import { assert, assertEquals } from "@std/assert";
import { ipvsRig } from "../../../../tests/support/ipvs_rig.ts";
import { A, B, service } from "../../../../tests/support/nftables_rig.ts";

const CHANGES = [
  ["an endpoint", service("s1", ["10.244.1.1", "10.244.1.9"])],
  ["the cluster IP", service("s1", ["10.244.1.1", "10.244.1.2"], { clusterIP: "10.96.1.99" })],
  ["the affinity", service("s1", ["10.244.1.1", "10.244.1.2"], { sessionAffinity: "ClientIP" })],
] as const;

for (const program of ["ipvsadm", "ipset"]) {
  for (const [what, after] of CHANGES) {
    if (program === "ipset" && what !== "the cluster IP") continue;
    Deno.test(`${program}: a change of ${what} that was not written is seen by the next look`, async () => {
      const rig = ipvsRig();
      const { fake, proxier, sync } = rig;
      await sync([...A, ...B]);
      assertEquals(await proxier.findDamage(), false);
      const run = fake.run.bind(fake);
      fake.run = (argv, options) =>
        argv[0] === program && options?.stdin !== undefined
          ? Promise.resolve({ code: 0, stdout: "", stderr: "" })
          : run(argv, options);
      await sync([...after, ...B], ["s1"]);
      fake.run = run;
      assert(await proxier.findDamage(), "nothing is seen");
      await sync([...after, ...B]);
      assertEquals(await proxier.findDamage(), false);
    });
  }
}
