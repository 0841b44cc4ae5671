/**
 * What every simulator is to those who send packets.
 *
 * @module
 */
import type { Flow, Packet } from "./flow.ts";
import type { Surroundings } from "./packet_walk.ts";

/** Says what becomes of packets of its family under the rules that it was made of. */
export interface Simulator {
  /**
   * Says what becomes of the packet.
   *
   * @throws {RangeError} if an address of the packet is none
   */
  send(packet: Packet, surroundings: Surroundings): Flow;
}
