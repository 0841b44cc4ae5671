/**
 * Interface of a proxy mode to the sync loop: syncs of one IP family, their reports, and damage that drift checks find.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Changed, ProxyState } from "../model/state.ts";

/**
 * A Service that is too large to be served, or of which the tools refuse something. Modes that know the refused part (an endpoint) leave out that
 * part; in others the Service keeps its former rules. Everything else is in force.
 */
export interface QuarantinedService {
  readonly service: NamespacedName;
  /** The tool's error message; it names the refused part. */
  readonly problem: string;
}

/** Result of one sync. */
export interface ApplyReport {
  /** Programs started. */
  readonly commands: number;
  /** Bytes written to those programs. */
  readonly bytes: number;
  /** Rules, elements or servers written, per table or kind. */
  readonly written: Readonly<Record<string, number>>;
  /** Rules, elements or servers owned after the sync, per table or kind. */
  readonly total: Readonly<Record<string, number>>;
  /** Milliseconds spent per phase (`read`, `plan`, `apply`), in order; absent ones took none. */
  readonly phasesMs?: Readonly<Record<string, number>>;
  /** All Services in quarantine after the sync, not only those of this one; absent where the mode has no quarantine. */
  readonly quarantined?: readonly QuarantinedService[];
  /** True if the change was refused, so that everything was written. */
  readonly isChangeRefused?: boolean;
  /** Failed deletions of unused objects; they harm nothing and are tried again. Absent: none. */
  readonly failedDeletions?: number;
}

/** Input of a sync. */
export interface SyncRequest {
  readonly state: ProxyState;
  readonly changed: Changed;
}

/**
 * Proxier of one mode for one IP family on one node, as the sync loop drives it. It remembers what it
 * committed, so that a change costs only what changed.
 */
export interface FamilyProxier {
  readonly family: IpFamily;
  /**
   * Brings the kernel to `request.state`. With `changed: "all"` it reads its rules, rewrites everything it
   * owns and removes what is stale; otherwise it writes the difference of the named Services. After a
   * rejection the next call must be a full one.
   *
   * @throws {SyncError} if the state was not reached
   */
  sync(request: SyncRequest): Promise<ApplyReport>;
  /**
   * Checks that our rules are as the last sync left them: false if they are, else the damage; null if that is
   * unknown now. Where there are too many to check in one sync period, some of them in turn.
   */
  findDamage(): Promise<false | null | Damage>;
  /**
   * True if facts of the node that the last sync took are outdated, so that the next one writes something even
   * if no Service changed. False in modes whose rules follow the node by themselves; absent counts as false.
   */
  isOutdated?(): boolean;
}

/** Missing or changed objects in the tool's names, e.g. `nat KUBE-SERVICES`; a few of many. A full sync repairs them. */
export type Damage = readonly string[];

/** How many damaged things a log line names. */
const NAMED = 5;

/** The damage to these objects; false if there are none. */
export function damageOf(found: readonly string[]): false | Damage {
  if (found.length === 0) return false;
  const rest = found.length - NAMED;
  return rest <= 0 ? found : [...found.slice(0, NAMED), `and ${rest} more`];
}
