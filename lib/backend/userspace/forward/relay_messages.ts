/**
 * What the thread that forwards and the thread that decides tell each other.
 *
 * @module
 */
import type { PortalEndpoint } from "../plan/ruleset.ts";
import type { Place } from "./open_portal.ts";
import type { AllRelayCounts } from "./relay_tally.ts";

/** What the thread is told to do. `request` comes back with the answer. */
export type RelayOrder =
  | {
    readonly kind: "open";
    readonly request: number;
    readonly portal: number;
    readonly place: Place;
    readonly udpIdleMs: number;
  }
  | {
    readonly kind: "update";
    readonly portal: number;
    readonly endpoints: readonly PortalEndpoint[];
    readonly stickySeconds: number;
  }
  | { readonly kind: "close"; readonly request: number; readonly portal: number }
  /** Answered once there is no session. */
  | { readonly kind: "drain"; readonly request: number };

/** What the thread says. */
export type RelayNews =
  | { readonly kind: "opened"; readonly request: number; readonly port: number }
  | { readonly kind: "done"; readonly request: number }
  | {
    readonly kind: "failed";
    readonly request: number;
    readonly message: string;
    readonly isDenied: boolean;
  }
  | { readonly kind: "problem"; readonly problem: string; readonly message: string }
  | { readonly kind: "counts"; readonly counts: AllRelayCounts };
