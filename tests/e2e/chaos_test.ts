/**
 * A minute of chaos in each of the modes that any kernel has, side by side (`deno task chaos` has all modes and as much of it as one
 * wants): changes and faults at random while clients connect, after which the rules are those of a fresh start and nothing is left.
 *
 * @module
 */
import { minuteOfChaos } from "../chaos/minute.ts";
import { WEB_NEEDS } from "../support/lab_web.ts";
import { e2eTest, program } from "../support/skip.ts";

e2eTest(
  "a minute of chaos in modes iptables and nftables",
  [...WEB_NEEDS, ...["iptables-nft", "nft", "curl", "prlimit"].map(program)],
  async () => {
    await Promise.all([minuteOfChaos("iptables", 84), minuteOfChaos("nftables", 31)]);
  },
);
