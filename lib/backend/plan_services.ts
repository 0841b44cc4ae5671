/**
 * What planning a Service has in common in all modes.
 *
 * @module
 */
import type { NamespacedName } from "../model/objects.ts";
import type { Endpoint, ProxyState, ServicePort, ServicePortKey } from "../model/state.ts";

/** What one Service with at least one port wants; null if it is to be left out. */
export type PlanService<Rules> = (
  ports: readonly ServicePort[],
  endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]> | undefined,
  name: NamespacedName,
) => Rules | null;

/** Plans the named Services in the order given. One that is gone, or has no port of this family, is null. */
export function planServices<Rules>(
  state: ProxyState,
  names: Iterable<NamespacedName>,
  planService: PlanService<Rules>,
): Map<NamespacedName, Rules | null> {
  return atOnce(planServicesInSteps(state, names, planService));
}

/**
 * As {@linkcode planServices}, with a step after each, so that others can have their turn: there are thousands, or one that is as large.
 */
export function* planServicesInSteps<Rules>(
  state: ProxyState,
  names: Iterable<NamespacedName>,
  planService: PlanService<Rules>,
): Steps<Map<NamespacedName, Rules | null>> {
  const services = new Map<NamespacedName, Rules | null>();
  for (const name of names) {
    const ports = state.services.get(name);
    services.set(
      name,
      ports === undefined || ports.length === 0 ? null : planService(ports, state.endpoints.get(name), name),
    );
    yield;
  }
  return services;
}

/** Work in steps. */
export type Steps<T> = Generator<void, T, void>;

/** All steps at once. */
export function atOnce<T>(steps: Steps<T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}
