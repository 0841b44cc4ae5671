/**
 * Takes new pictures of `docs/status-page.md`, with a made-up past: `deno run -A tests/support/page_pictures.ts`. With pngquant on
 * the PATH they are small.
 *
 * @module
 */
import type { ApiObject, EndpointSlice } from "../../lib/model/objects.ts";
import { findProgram } from "../../tools/setup.ts";
import { withBrowser, withTab } from "./browser.ts";
import { clusterObjects, shopObjects } from "./page_objects.ts";
import { type ServedPage, servingPage } from "./page_server.ts";

interface Picture {
  readonly name: string;
  readonly hash: string;
  readonly objects: readonly ApiObject[];
  readonly width: number;
  readonly height: number;
  readonly colorScheme: "light" | "dark";
}

const WAY = "#/path?from=10.244.3.5&to=10.96.31.7:80";
const WIDE = { width: 1240, colorScheme: "light" } as const;

function pictures(): readonly Picture[] {
  const shop = shopObjects();
  const large = clusterObjects(10_000);
  return [
    { ...WIDE, name: "overview", hash: "#/", objects: large, height: 900 },
    { ...WIDE, name: "services", hash: "#/services?q=billing", objects: large, height: 640 },
    { ...WIDE, name: "path", hash: WAY, objects: shop, height: 760 },
    { name: "phone", hash: WAY, objects: shop, width: 390, height: 1290, colorScheme: "dark" },
  ];
}

/** Ninety changes in twenty minutes, always the same: most take some milliseconds, one fails. */
function live(served: ServedPage, slices: readonly EndpointSlice[]): void {
  let seed = 7;
  const random = (): number => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
  for (let i = 0; i < 90; i++) {
    served.pass(9_000 + random() * 9_000);
    const slice = slices[Math.floor(random() * slices.length)];
    if (slice === undefined) return;
    const [first, ...others] = slice.endpoints;
    if (first === undefined) continue;
    if (i === 40) served.fail("IPv4", "nft: Error: Could not process rule: Device or resource busy");
    served.change([{ ...slice, endpoints: [{ ...first, zoneHints: [String(i)] }, ...others] }], {
      durationMs: 3 + random() * 6 + (i % 17 === 0 ? 30 : 0),
      latencyMs: 18 + random() * 60 + (i === 41 ? 1_900 : 0),
      full: i === 41,
    });
    served.change([slice], { durationMs: 3 + random() * 5, latencyMs: 15 + random() * 40 });
  }
  served.pass(Number.POSITIVE_INFINITY);
}

async function shrink(path: string): Promise<void> {
  const program = findProgram("pngquant");
  if (program === undefined) return;
  const { success } = await new Deno.Command(program, {
    args: ["--force", "--skip-if-larger", "--output", path, "128", path],
  }).output();
  if (!success) throw new Error(`pngquant failed with ${path}`);
}

if (import.meta.main) {
  await withBrowser(async (browser) => {
    for (const { name, hash, objects, width, height, colorScheme } of pictures()) {
      await servingPage(async (served) => {
        live(served, objects.filter((one) => one.kind === "EndpointSlice"));
        const context = { colorScheme, viewport: { width, height }, locale: "en-GB" };
        await withTab(browser, context, async ({ page }) => {
          await page.goto(served.url + hash);
          await page.locator("h1").first().waitFor();
          await page.waitForTimeout(1_500);
          const path = new URL(`../../docs/status-page-${name}.png`, import.meta.url).pathname;
          await page.screenshot({ path });
          await shrink(path);
        });
      }, { objects, sinceMs: 25 * 60_000 });
    }
  });
}
