/**
 * Judges the way to the API server and what it grants.
 *
 * @module
 */
import { rightText } from "../api_rights.ts";
import { judged, unread } from "../fact.ts";
import { failure, type Finding, ok, warning } from "../finding.ts";
import type { ApiFacts } from "../read/api.ts";

const CHECK = "API server";

/** @param reason why there are no facts: it cannot be told which server, or with which credentials */
export function judgeNoApi(reason: string): readonly Finding[] {
  return [failure(
    CHECK,
    reason,
    "name it with --kubeconfig=FILE or --master=URL, or serve objects from files with --manifests=PATH",
  )];
}

export function judgeApi(facts: ApiFacts): readonly Finding[] {
  const { server, origin, version, rights } = facts;
  if ("unread" in version && rights.every(({ isAllowed }) => "unread" in isAllowed)) {
    return [failure(
      CHECK,
      `${server} (${origin}) does not answer as it should: ${version.unread}`,
      `try it: curl -k ${server}/version; then look at routes, firewalls and ${origin}`,
    )];
  }
  const answered = "value" in version
    ? ok(CHECK, `${server} answers (${version.value}), by ${origin}`)
    : unread(`${CHECK} version`, version.unread);
  return [answered, ...judgeRights(facts)];
}

function judgeRights({ rights }: ApiFacts): readonly Finding[] {
  const check = "API rights";
  const findings: Finding[] = [];
  const granted: string[] = [];
  for (const { right, isAllowed } of rights) {
    const text = rightText(right);
    const found = judged(check, isAllowed, (allowed): readonly Finding[] => {
      if (allowed) {
        granted.push(text);
        return [];
      }
      const mend = `grant ${right.verb} on ${right.resource} of API group "${right.group}", as ClusterRole ` +
        "system:node-proxier has it, to the user of the access";
      return right.otherwise === ""
        ? [failure(check, `may not ${text}: no Service can be served`, mend)]
        : [warning(check, `may not ${text}, which is optional: ${right.otherwise}`, mend)];
    });
    // One line for each right that nobody could ask about would only repeat itself.
    const isRepeated = "unread" in isAllowed && findings.some(({ what }) => what === found[0]?.what);
    if (!isRepeated) findings.push(...found);
  }
  if (granted.length > 0) findings.push(ok(check, `may ${granted.join(", ")}`));
  return findings;
}

const APART_MS = 5_000;

/** Certificates and tokens are judged by the clock, and so is the order of events in logs. */
export function judgeClock(aheadMs: number | null): readonly Finding[] {
  const check = "clock";
  if (aheadMs === null) return [ok(check, "the API server tells no time to compare with")];
  const seconds = Math.round(Math.abs(aheadMs) / 1000);
  if (Math.abs(aheadMs) < APART_MS) return [ok(check, "agrees with the API server's to within seconds")];
  return [warning(
    check,
    `${seconds} s ${
      aheadMs > 0 ? "ahead of" : "behind"
    } the API server's: tokens and certificates may count as expired`,
    "set it: timedatectl set-ntp true, or chronyc makestep",
  )];
}
