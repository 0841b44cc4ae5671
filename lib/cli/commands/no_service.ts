/**
 * What is told of a Service that is not there.
 *
 * @module
 */
import { FAMILIES, type NamespacedName } from "../../model/objects.ts";
import { stateOf } from "../../inspect/desired/desired.ts";
import type { LookOptions } from "../../inspect/look.ts";
import { findObjects, type FoundObjects } from "../../inspect/objects.ts";
import { absenceReason } from "../../inspect/service/service_absence.ts";
import { didYouMean } from "../suggest.ts";

/** True if something of the Service is known: its ports, or that all of its destinations are another's. */
export function isKnown(name: NamespacedName, { state }: FoundObjects): boolean {
  return FAMILIES.some((family) => stateOf(state, family).services.has(name)) ||
    state.unserved.some(({ service }) => service === name);
}

/** The failure, with the reason or with the name that was meant, for which all Services are asked for. */
export async function noService(
  name: NamespacedName,
  objects: FoundObjects,
  options: LookOptions,
): Promise<Error> {
  const reason = absenceReason(name, objects);
  if (reason !== null) return new Error(reason);
  const all = await findObjects({ ...options, selection: {} });
  const known = [...new Set(FAMILIES.flatMap((family) => [...stateOf(all.state, family).services.keys()]))];
  // Whoever selects for the proxy does not tell of those.
  const unseen = options.config.kproxy.manifests.length > 0
    ? ""
    : "; headless ones and those with the label service.kubernetes.io/service-proxy-name are not seen here";
  return new Error(`There is no Service ${name} with a cluster IP${didYouMean(name, known) || unseen}`);
}
