import { assertEquals } from "@std/assert";
import type { StatusDocument, SyncPoint } from "../status/status_document.ts";

/** By a name that is made: the types of what browsers load are checked by themselves (`tools/browser.json`). */
const { newestChanges }: {
  newestChanges(
    status: Pick<StatusDocument, "families">,
  ): readonly (SyncPoint & { readonly family: string })[];
} = await import(new URL("./browser/changes.js", import.meta.url).href);

function point(timeMs: number, change: Partial<SyncPoint> = {}): SyncPoint {
  return { timeMs, durationMs: 1, kind: "partial", ok: true, changed: 0, latencyMs: null, ...change };
}

function newest(families: Readonly<Record<string, readonly SyncPoint[]>>) {
  const shown = Object.entries(families).map(([family, recent]) => [family, { recent }]);
  return newestChanges({ families: Object.fromEntries(shown) });
}

Deno.test("changes are the syncs that looked at Services, wrote something or failed, newest first", () => {
  const changes = newest({
    IPv4: [
      point(1, { kind: "full" }),
      point(2),
      point(3, { written: { elements: 0 } }),
      point(4, { written: { chains: 0, elements: 2 } }),
      point(6, { changed: 1 }),
    ],
    IPv6: [point(5, { ok: false, error: "no" }), point(7, { changed: 1 })],
  });
  assertEquals(changes.map(({ timeMs, family }) => [timeMs, family]), [
    [7, "IPv6"],
    [6, "IPv4"],
    [5, "IPv6"],
    [4, "IPv4"],
    [1, "IPv4"],
  ]);
});

Deno.test("a hundred changes are listed at most", () => {
  const syncs = Array.from({ length: 120 }, (_, at) => point(at, { changed: 1 }));
  assertEquals(
    newest({ IPv4: syncs }).map(({ timeMs }) => timeMs),
    syncs.map((_, at) => 119 - at).slice(0, 100),
  );
});
