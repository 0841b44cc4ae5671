/**
 * What is told of a Service that is not there.
 *
 * @module
 */
import { FAMILIES, type NamespacedName, type Service } from "../../model/objects.ts";
import { stateOf } from "../../inspect/desired/desired.ts";
import type { LookOptions } from "../../inspect/look.ts";
import { findObjects, type FoundObjects } from "../../inspect/objects.ts";
import { namespacedName } from "../../model/names.ts";
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

/** Why nothing is known of a Service, in a sentence; null: there is no object of this name among them. */
function absenceReason(
  name: NamespacedName,
  { state, rejected, excluded }: Pick<FoundObjects, "state" | "rejected" | "excluded">,
): string | null {
  const refused = rejected.find(({ object }) => object === `Service ${name}`);
  if (refused !== undefined) return `Service ${name} is refused: ${refused.message} (${refused.where})`;
  const others = excluded.find(({ object }) => object === `Service ${name}`);
  if (others !== undefined) return `Service ${name} ${others.message} (${others.where})`;
  const service = state.objects.find((object): object is Service =>
    object.kind === "Service" && namespacedName(object.namespace, object.name) === name
  );
  if (service === undefined) return null;
  if (service.type === "ExternalName") {
    return `Service ${name} is of type ExternalName: DNS answers for it, and no proxy`;
  }
  if (service.clusterIP === "None") {
    return `Service ${name} is headless: it has no cluster IP, and DNS answers with its endpoints`;
  }
  return service.clusterIP === ""
    ? `Service ${name} has no cluster IP`
    : `Service ${name} has nothing that can be served: no ports, or no address that is one`;
}
