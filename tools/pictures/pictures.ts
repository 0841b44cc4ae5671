/**
 * All drawn pictures of the documentation.
 *
 * @module
 */
import { IPTABLES_WAY } from "./iptables_way.ts";
import { IPVS_WAY } from "./ipvs_way.ts";
import { NFTABLES_WAY } from "./nftables_way.ts";
import type { Picture } from "./picture.ts";
import { USERSPACE_WAY } from "./userspace_way.ts";

export const PICTURES: readonly Picture[] = [
  IPTABLES_WAY,
  NFTABLES_WAY,
  IPVS_WAY,
  USERSPACE_WAY,
];
