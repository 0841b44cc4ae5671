/**
 * Why nothing is known of a Service that somebody asks for by its name.
 *
 * @module
 */
import { namespacedName } from "../../model/names.ts";
import type { NamespacedName, Service } from "../../model/objects.ts";
import type { FoundObjects } from "../objects.ts";

/** A sentence; null: there is no object of this name among them. */
export function absenceReason(
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
