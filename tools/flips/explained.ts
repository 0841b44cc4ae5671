/**
 * Flips that no test can or need notice, each with its reason. What is not here and survives wants a test.
 *
 * @module
 */
import { IPTABLES } from "./explained/iptables.ts";
import { IPVS } from "./explained/ipvs.ts";
import { MODEL } from "./explained/model.ts";
import { NFTABLES } from "./explained/nftables.ts";

/**
 * - `equivalent`: nothing that kproxy does or says changes.
 * - `text`: only words of a log line or a message change.
 * - `performance`: the outcome is the same and costs more or less work.
 */
export type ExplanationKind = "equivalent" | "text" | "performance";

interface Explanation {
  readonly kind: ExplanationKind;
  readonly why: string;
}

/** Key of the flip → kind and reason. */
export type Explanations = Readonly<Record<string, readonly [kind: ExplanationKind, why: string]>>;

/** All of them. */
export const EXPLANATIONS: ReadonlyMap<string, Explanation> = new Map(
  Object.entries({ ...MODEL, ...IPTABLES, ...IPVS, ...NFTABLES }).map((
    [key, [kind, why]],
  ) => [key, { kind, why }]),
);
