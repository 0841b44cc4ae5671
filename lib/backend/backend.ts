/**
 * The two contracts a proxy mode fulfils: a pure planner and an applier that touches the node; and what the applier finds damaged.
 *
 * @module
 */
import type { IpFamily, NamespacedName } from "../model/objects.ts";
import type { Changed, ProxyState } from "../model/state.ts";

/**
 * A Service that is too large to be served, or of which the tools refuse something. Modes that know the refused part (an endpoint) leave out that
 * part; in others the Service keeps what it had. Everything else is in force.
 */
export interface QuarantinedService {
  readonly service: NamespacedName;
  /** In the tool's words; it names the refused part. */
  readonly problem: string;
}

/** How one apply went. */
export interface ApplyReport {
  /** Programs started. */
  readonly commands: number;
  /** Bytes written to them. */
  readonly bytes: number;
  /** Rules, elements or servers written, per table or kind. */
  readonly written: Readonly<Record<string, number>>;
  /** Rules, elements or servers owned after it, per table or kind. */
  readonly total: Readonly<Record<string, number>>;
  /** Milliseconds spent per phase (`read`, `plan`, `apply`), in order; absent ones took none. */
  readonly phasesMs?: Readonly<Record<string, number>>;
  /** All Services in quarantine after it, not only those of this sync; absent where the mode has no quarantine. */
  readonly quarantined?: readonly QuarantinedService[];
  /** True if what changed was refused, so that everything was written. */
  readonly isChangeRefused?: boolean;
  /** Deletions of what nothing uses any more that failed; they harm nothing and are tried again. Absent: none. */
  readonly failedDeletions?: number;
}

/** What a sync hands to the mode. */
export interface SyncRequest {
  readonly state: ProxyState;
  readonly changed: Changed;
}

/**
 * One mode for one IP family on one node, as the sync loop drives it. It remembers what it committed, so that a change
 * costs only what changed.
 */
export interface FamilyProxier {
  readonly family: IpFamily;
  /**
   * Brings the kernel to `request.state`. With `changed: "all"` it reads what is there, rewrites everything it owns and
   * removes what is stale; otherwise it writes the difference of the named Services.
   * After a rejection the next call must be a full one.
   *
   * @throws {SyncError} if the state was not reached
   */
  sync(request: SyncRequest): Promise<ApplyReport>;
  /**
   * Looks whether our rules are as the last sync left them: false if all is well, else what is damaged; null if that is unknown now.
   * Where there are too many to look at in one sync period, some of them in turn.
   */
  findDamage(): Promise<false | null | Damage>;
  /**
   * True if the node is not any more what the last sync took it for, so that the next one writes something even if no Service changed.
   * False in modes whose rules follow the node by themselves; absent counts as false.
   */
  isOutdated?(): boolean;
}

/** What is gone or changed, in the tool's names, e.g. `nat KUBE-SERVICES`; a few of many. The next full sync repairs it. */
export type Damage = readonly string[];

/** How many damaged things a log line names. */
const NAMED = 5;

/** Of everything that is damaged; false if nothing is. */
export function damageOf(found: readonly string[]): false | Damage {
  if (found.length === 0) return false;
  const rest = found.length - NAMED;
  return rest <= 0 ? found : [...found.slice(0, NAMED), `and ${rest} more`];
}
