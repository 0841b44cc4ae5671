/**
 * Judges what other modes left on the node.
 *
 * @module
 */
import type { ProxyMode } from "../../../config/types.ts";
import { unread } from "../fact.ts";
import { type Finding, ok, warning } from "../finding.ts";
import type { Leftovers } from "../read/leftovers.ts";
import { few } from "../../../text/words.ts";

const CHECK = "leftovers";
/** Mode ipvs has the addresses of Services on it. */
const IPVS_DEVICE = "kube-ipvs0";

/** @param devices names of all devices; undefined if they are not known */
export function judgeLeftovers(
  { found, modes, failed }: Leftovers,
  runs: ProxyMode,
  devices: readonly string[] | undefined,
): readonly Finding[] {
  const findings: Finding[] = failed.map((reason) => unread(CHECK, reason));
  if (found.length > 0) {
    const only = modes.map((mode) => `--only=${mode}`).join(" ");
    findings.push(
      warning(
        CHECK,
        `another mode left ${few(found)}; a start of kproxy removes it after its first sync`,
        `start kproxy, or: kproxy cleanup ${only}`,
      ),
    );
  }
  const hasDevice = devices?.includes(IPVS_DEVICE) === true && runs !== "ipvs" && !modes.includes("ipvs");
  if (hasDevice) {
    findings.push(
      warning(
        CHECK,
        `device ${IPVS_DEVICE} is there, which mode ipvs left: addresses on it are answered by this node`,
        "start kproxy, or: kproxy cleanup --only=ipvs",
      ),
    );
  }
  if (findings.length === 0) findings.push(ok(CHECK, "no other mode left anything that shows"));
  return findings;
}
