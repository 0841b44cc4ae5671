/**
 * Judges the variants of iptables.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import { type Finding, ok, warning } from "../finding.ts";
import type { VariantFact } from "../read/variant.ts";

const CHECK = "iptables variant";

/** @param mode the one that runs here */
export function judgeVariant(fact: VariantFact | null, mode: ProxyMode): readonly Finding[] {
  // That iptables does not work is told with the mode, where it matters.
  if (fact === null) return [];
  const { chosen: { variant, reason }, systemDefault, otherHolds, unseen } = fact;
  const uses = mode === "iptables" || mode === "ipvs" || mode === "userspace";
  const findings: Finding[] = [
    ok(CHECK, `${variant}${uses ? "" : ", which this mode does not use"}: ${reason}`),
  ];
  if (systemDefault !== null && systemDefault.variant !== variant) {
    findings.push(
      warning(
        CHECK,
        `the program iptables is the ${systemDefault.variant} variant, and the rules of this node are in ${variant}: ` +
          `what is written by hand lands beside them`,
        `update-alternatives --set iptables /usr/sbin/iptables-${variant}`,
      ),
    );
  }
  for (const hidden of unseen) {
    findings.push(
      warning(
        CHECK,
        `this user may not list the rules of the ${hidden} variant: if there are some, of kubelet, of another proxy or of anybody, ` +
          "nothing here tells of them",
        "run kproxy doctor as root",
      ),
    );
  }
  if (otherHolds.length > 0) {
    const other = variant === "nft" ? "legacy" : "nft";
    findings.push(
      warning(
        CHECK,
        `a service proxy left rules in the ${other} variant (${
          otherHolds.join(", ")
        }): packets walk through both`,
        "end the other proxy, then: kproxy cleanup --only=iptables --only=ipvs && kproxy run",
      ),
    );
  }
  return findings;
}
