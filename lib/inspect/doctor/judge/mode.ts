/**
 * Judges what trying the mode showed.
 *
 * @module
 */
import { failure, type Finding, ok, warning } from "../finding.ts";
import type { ModeFact } from "../read/mode.ts";

/** @param wanted as configured, `auto` among them */
export function judgeMode(fact: ModeFact, wanted: string): readonly Finding[] {
  const check = "mode";
  if (fact.kind === "unusable") {
    const what = `mode ${wanted} cannot run here: ${fact.reason}`;
    return [failure(check, what, fact.lacksRights ? NEEDS_RIGHTS_MEND : unusableMend(wanted))];
  }
  const { mode, passedOver, refused, warnings } = fact;
  const why = passedOver.map((other) => `${other.mode}: ${other.reason}`).join("; ");
  const findings: Finding[] = [
    wanted === mode || wanted === "auto"
      ? ok(check, `${mode} works here${why === "" ? "" : `; passed over ${why}`}`)
      : warning(
        check,
        `mode ${wanted} cannot run here and gives way to ${mode}: ${why}`,
        unusableMend(wanted),
      ),
  ];
  for (const { family, reason } of refused) {
    findings.push(
      warning(
        check,
        `${family} is not served: ${reason}`,
        "mend that where the cluster uses it; else ignore it",
      ),
    );
  }
  for (const text of warnings) findings.push(warning(check, text, "see docs/operations.md"));
  if (mode === "ipvs") {
    findings.push(
      ok(
        check,
        "matches, sets and schedulers of ipvs are tried by the start only, since that writes for a moment",
      ),
    );
  }
  return findings;
}

const NEEDS_RIGHTS_MEND =
  "run kproxy doctor as root, or with CAP_NET_ADMIN (legacy iptables: CAP_NET_RAW, too)";

function unusableMend(wanted: string): string {
  const other = wanted === "iptables" ? "nftables" : "iptables";
  return `install or load what it names, or choose another mode: --proxy-mode=${other}`;
}
