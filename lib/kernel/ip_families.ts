/**
 * Which IP families a mode can serve on this node.
 *
 * @module
 */
import { UnsupportedError } from "../errors.ts";
import { FAMILIES, type IpFamily } from "../model/objects.ts";
import type { Logger } from "../observe/log.ts";
import { type NodeSysctls, requireIpv6 } from "./sysctl.ts";
import { isPermissionProblem } from "./tool_errors.ts";

/** Advice for a tool that needs more rights than the process has. */
export const NEEDS_RIGHTS = "run needs root or CAP_NET_ADMIN";

/** An IP family that cannot be served. */
export interface RefusedFamily {
  readonly family: IpFamily;
  readonly reason: string;
  /** True if rules of a service proxy are there all the same, which no proxy updates. */
  readonly hasRules: boolean;
}

/** Dependencies of {@linkcode servedFamilies}. */
export interface FamilyProbe<Found> {
  /** The family that must be served. */
  readonly primaryFamily: IpFamily;
  readonly sysctls: NodeSysctls;
  readonly log: Logger;
  /** Finds what serves a family; rejects with {@linkcode UnsupportedError} if nothing does. */
  readonly probe: (family: IpFamily) => Promise<Found>;
  /** True if rules of a service proxy are there. */
  readonly hasRules: (family: IpFamily) => Promise<boolean>;
}

/** The IP families of a node: what serves each, and which cannot be served. */
export interface ServedFamilies<Found> {
  readonly families: ReadonlyMap<IpFamily, Found>;
  readonly refused: readonly RefusedFamily[];
}

/**
 * Probes both families side by side, and logs which cannot be served.
 *
 * @throws {UnsupportedError} if the primary family cannot be served
 * @throws what else `probe` rejects with: then it is unknown
 */
export async function servedFamilies<Found>(
  { primaryFamily, sysctls, log, probe, hasRules }: FamilyProbe<Found>,
): Promise<ServedFamilies<Found>> {
  const probes = await Promise.allSettled(FAMILIES.map(async (family) => {
    if (family === "IPv6") requireIpv6(sysctls);
    return await probe(family);
  }));
  const families = new Map<IpFamily, Found>();
  const refusals = new Map<IpFamily, UnsupportedError>();
  for (const [at, family] of FAMILIES.entries()) {
    const outcome = probes[at]!;
    if (outcome.status === "fulfilled") families.set(family, outcome.value);
    else {
      const error: unknown = outcome.reason;
      if (!(error instanceof UnsupportedError)) throw error;
      log.info("IP family cannot be served", { family, reason: error.message });
      refusals.set(family, error);
    }
  }
  const cause = refusals.get(primaryFamily);
  if (cause !== undefined) throw primaryFamilyError(primaryFamily, cause);
  const refused = [...refusals].map(async ([family, { message }]): Promise<RefusedFamily> => ({
    family,
    reason: message,
    hasRules: await hasRules(family),
  }));
  return { families, refused: await Promise.all(refused) };
}

function primaryFamilyError(family: IpFamily, cause: UnsupportedError): UnsupportedError {
  const message = cause.message === NEEDS_RIGHTS || isPermissionProblem(cause.message)
    ? NEEDS_RIGHTS
    : `the primary IP family ${family} cannot be served: ${cause.message}`;
  return new UnsupportedError(`Primary IP family ${family}`, cause.needs, cause.found, { message, cause });
}
