/**
 * Judges the lock that the programs of iptables share.
 *
 * @module
 */
import type { XtablesLock } from "../../../kernel/xtables_lock.ts";
import { type Finding, ok, warning } from "../finding.ts";

/** What surrounds the lock. */
export interface LockPlace {
  /** True if kproxy itself runs in a container. */
  readonly inContainer: boolean;
  /** False where the variant in use takes no lock. */
  readonly isUsed: boolean;
}

/** Whether it is the lock of everybody on the node, and whether somebody sits on it. */
export function judgeLock(
  { path, exists, isMounted, isHeld }: XtablesLock,
  { inContainer, isUsed }: LockPlace,
): readonly Finding[] {
  const check = "xtables lock";
  if (!isUsed) return [ok(check, "not used: the nft variant of iptables, and nft, need none")];
  const findings: Finding[] = [];
  if (inContainer && !isMounted) {
    findings.push(
      warning(
        check,
        `${path} looks like this container's own: kubelet and others on the node do not see who holds it`,
        `mount the host's ${path} into the container (hostPath, type FileOrCreate)`,
      ),
    );
  }
  if (isHeld === true) {
    findings.push(
      warning(
        check,
        `another program has held ${path} all the time it was looked at: rules cannot be written meanwhile`,
        `find it with: fuser -v ${path}`,
      ),
    );
  } else if (isHeld === null) {
    findings.push(
      warning(
        check,
        `this user may not open ${path}: legacy iptables cannot write rules`,
        `run as root, or give this user write access to ${path}`,
      ),
    );
  }
  if (findings.length === 0) {
    findings.push(
      ok(check, exists ? `${path} is free` : `${path} is not there yet; the first iptables makes it`),
    );
  }
  return findings;
}
