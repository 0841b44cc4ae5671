/** An nft that reports success and has written nothing: the next drift check sees it. */
import { assert, assertEquals } from "@std/assert";
import type { Exec } from "../../../kernel/exec.ts";
import { FakeNft } from "../../../../tests/support/fake_nft.ts";
import {
  A,
  B,
  endState,
  freshState,
  nftablesProxier,
  service,
  STICKY,
  syncRequest,
} from "../../../../tests/support/nftables_rig.ts";

const STICKIER = service("s3", ["10.244.1.5", "10.244.1.6"], {
  sessionAffinity: "ClientIP",
  affinityTimeoutSeconds: 60,
});
const CHANGES = [
  ["an affinity's timeout", STICKY, STICKIER, "s3"],
  ["an endpoint", A, service("s1", ["10.244.1.1", "10.244.1.9"]), "s1"],
  ["the cluster IP", A, service("s1", ["10.244.1.1", "10.244.1.2"], { clusterIP: "10.96.1.99" }), "s1"],
] as const;

for (const [what, before, after, name] of CHANGES) {
  Deno.test(
    `a change of ${what} that was not written is seen by the next look`,
    { permissions: "none" },
    async () => {
      const fake = new FakeNft();
      let lies = false;
      const exec: Exec = {
        run: (argv, options) =>
          lies && argv.includes("-f")
            ? Promise.resolve({ code: 0, stdout: "", stderr: "" })
            : fake.run(argv, options),
      };
      const proxier = nftablesProxier(exec);
      await proxier.sync(syncRequest([...before, ...B]));
      assertEquals(await proxier.findDamage(), false);
      lies = true;
      await proxier.sync(syncRequest([...after, ...B], [name]));
      lies = false;
      const damage = await proxier.findDamage();
      assert(damage, "nothing is seen");
      await proxier.sync({ ...syncRequest([...after, ...B]), changed: "all" });
      assertEquals(await proxier.findDamage(), false);
      assertEquals(endState(fake), await freshState([...after, ...B]));
    },
  );
}
