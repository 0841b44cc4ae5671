/**
 * Traffic counters of Services.
 *
 * @module
 */
import type { IpFamily } from "./objects.ts";
import type { ServicePort } from "./state.ts";

/** Values of a traffic counter. */
export interface Traffic {
  /** Packets counted. */
  readonly packets: number;
  /** Their bytes, IP headers included. */
  readonly bytes: number;
}

/** One ServicePort's traffic of one family, over all of its addresses and its node port. */
export interface ServiceTraffic
  extends Pick<ServicePort, "namespacedName" | "portName" | "port" | "protocol"> {
  readonly family: IpFamily;
  /** From clients to endpoints. */
  readonly incoming: Traffic;
  /** From endpoints to clients. */
  readonly outgoing: Traffic;
}
