/**
 * Judges the rights of this process.
 *
 * @module
 */
import { failure, type Finding, ok, warning } from "../finding.ts";
import type { ModeFact } from "../read/mode.ts";

/** A permission of the runtime that kproxy is started with. */
export interface RuntimePermission {
  /** As on the command line, e.g. `--allow-sys=hostname`. */
  readonly flag: string;
  readonly isGranted: boolean;
  /** What does not work without it. */
  readonly otherwise: string;
}

/** What this process may do. */
export interface RightsFact {
  /** Null where the runtime may not tell. */
  readonly uid: number | null;
  readonly permissions: readonly RuntimePermission[];
}

/** @param mode undefined if nobody could tell whether the mode works */
export function judgeRights(
  { uid, permissions }: RightsFact,
  mode: ModeFact | undefined,
): readonly Finding[] {
  const check = "rights";
  const who = uid === null ? "this user" : uid === 0 ? "root" : `user ${uid}`;
  const findings: Finding[] = [];
  if (mode?.kind === "unusable" && mode.lacksRights) {
    findings.push(
      failure(
        check,
        `${who} has no CAP_NET_ADMIN in this network namespace: rules can neither be read nor written`,
        "run as root, or: setpriv --ambient-caps=+net_admin,+net_raw --inh-caps=+net_admin,+net_raw",
      ),
    );
  } else if (mode?.kind === "works") {
    findings.push(ok(check, `${who} may read and write rules`));
  }
  const missing = permissions.filter(({ isGranted }) => !isGranted);
  for (const { flag, otherwise } of missing) {
    findings.push(
      warning(check, `the runtime does not grant ${flag}: ${otherwise}`, `start kproxy with ${flag}`),
    );
  }
  if (missing.length === 0) findings.push(ok(check, "the runtime grants all that kproxy asks for"));
  return findings;
}
