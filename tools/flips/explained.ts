import type { Flip } from "./source_flips.ts";
export interface Explanation {
  readonly kind: string;
  readonly why: string;
}
export function explain(_flip: Flip): Explanation | null {
  return null;
}
