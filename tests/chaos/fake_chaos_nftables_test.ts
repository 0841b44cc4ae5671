/** Any events, failures, damages and restarts end in the rules of a fresh full sync: nftables mode. */
import { testFakeChaos } from "./fake_chaos.ts";
import { fakeNftablesMachine } from "./fake_machines.ts";

testFakeChaos({ name: "nftables", create: fakeNftablesMachine }, { runs: 2_500 });
