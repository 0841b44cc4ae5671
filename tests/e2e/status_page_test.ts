import { assertEquals, assertGreater, assertLess, assertMatch, assertStringIncludes } from "@std/assert";
import axe from "axe-core/axe.min.js" with { type: "text" };
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { testSlice, testSliceEndpoint, testSlicePort } from "../support/model_objects.ts";
import { withBrowser, withTab } from "../support/browser.ts";
import {
  clusterObjects,
  endpointsOf,
  HOSTILE,
  hostileObjects,
  shopObjects,
} from "../support/page_objects.ts";
import { type ServedPage, servingPage, type ServingPageOptions } from "../support/page_server.ts";
import { e2eTest, program } from "../support/skip.ts";
import { eventually } from "../support/until.ts";

const VIEWS: Readonly<Record<string, string>> = {
  overview: "#/",
  services: "#/services",
  service: "#/service/shop/checkout",
  path: "#/path?from=10.244.3.5&to=10.96.31.7:80",
  changes: "#/changes",
};
const PHONE = { width: 390, height: 844 };
const CART = {
  namespace: "shop",
  name: "cart-x1",
  serviceName: "cart",
  ports: [testSlicePort({ name: "http" })],
};

/** A page of the small shop in a tab, in which nothing may go wrong. */
async function shown(
  browser: Browser,
  work: (tab: { page: Page; served: ServedPage; show: (hash: string) => Promise<void> }) => Promise<void>,
  { serving = { objects: shopObjects() }, context = {}, expected = /^$/ }: {
    readonly serving?: ServingPageOptions;
    readonly context?: BrowserContextOptions;
    /** Faults that belong to the test. */
    readonly expected?: RegExp;
  } = {},
): Promise<void> {
  await servingPage(async (served) => {
    await withTab(browser, context, async ({ page, faults }) => {
      const show = async (hash: string): Promise<void> => {
        await page.goto(served.url + hash);
        await page.locator("main").waitFor();
      };
      await work({ page, served, show });
      assertEquals(faults.filter((fault) => !expected.test(fault)), []);
    });
  }, serving);
}

/** Makes the page ask now, instead of within three seconds. */
const askNow = (page: Page): Promise<unknown> =>
  page.evaluate(`document.dispatchEvent(new Event("visibilitychange"))`);

const text = (page: Page, selector = "main"): Promise<string> => page.locator(selector).first().innerText();

e2eTest("the status page in a real browser", [program("chromium")], async (t) => {
  await withBrowser(async (browser) => {
    const step = (name: string, work: () => Promise<void>) => t.step(name, work);
    await step("the overview tells how kproxy fares, and goes on telling", () => overview(browser));
    await step("Services are found, filtered, and opened without a mouse", () => serviceList(browser));
    await step(
      "10,000 Services: only what is in sight is there, and it stays up to date",
      () => manyServices(browser),
    );
    await step(
      "one Service shows why each endpoint is used or not, and what has changed",
      () => oneService(browser),
    );
    await step("a packet is followed, drawn and told", () => packetPath(browser));
    await step("changes and errors are told, newest first", () => changes(browser));
    await step("names that are markup are shown and never run", () => hostileNames(browser));
    await step("a kproxy that is gone leaves what it said, and is found again", () => restart(browser));
    await step("every view fits a phone, and is dark where that is requested", () => narrowAndDark(browser));
    await step("no view has a fault that axe finds, in light or dark", () => accessible(browser));
  });
});

async function overview(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, served, show }) => {
    await show(VIEWS.overview ?? "");
    await page.getByRole("heading", { level: 1, name: "Ready", exact: true }).waitFor();
    assertEquals(await page.title(), "Overview · kproxy on worker-3");
    assertMatch(await text(page, "[aria-label=Figures]"), /Services\s+10\s/);
    await page.locator(".plot-box canvas").first().waitFor();
    assertEquals(await page.locator(".empty-title").allInnerTexts(), ["No change of endpoints yet"]);
    // A change arrives, and is drawn without a reload.
    const cart = testSlice({ ...CART, endpoints: endpointsOf("10.244.2", 3) });
    served.change([cart], { latencyMs: 80, durationMs: 9 });
    await askNow(page);
    await page.locator("#latency-plot").locator("xpath=../..").locator("canvas").waitFor();
    assertMatch(await text(page, "[aria-label=Figures]"), /Syncs\s+3\s/);
    // What matters is said aloud, once.
    served.servers.health.sourceFailed("services", "connection refused");
    served.servers.health.restored = {
      isServed: true,
      savedAtMs: Date.now(),
      kinds: ["services"],
      expiresAtMs: 1,
    };
    await askNow(page);
    await page.getByRole("heading", { level: 1, name: "Not ready" }).waitFor();
    assertStringIncludes(await text(page, "[aria-live=polite]"), "kproxy is not ready");
  });
}

async function serviceList(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, show }) => {
    await show(VIEWS.services ?? "");
    const rows = page.locator("[role=grid] [role=row]:has([role=gridcell])");
    await rows.nth(9).waitFor();
    assertEquals(await page.locator("[role=grid]").getAttribute("aria-rowcount"), "11");
    await page.getByLabel("Search").fill("10.96.31 tcp");
    await page.getByText("1 of 10").waitFor();
    assertMatch(page.url(), /#\/services\?q=10\.96\.31/);
    await page.getByLabel("Search").fill("");
    await page.getByLabel("Problem").selectOption("some problem");
    await page.getByText("2 of 10").waitFor();
    assertEquals(await rows.locator(".service-name").allInnerTexts(), [
      "shop/inventory",
      "shop/recommendations",
    ]);
    await page.getByLabel("Namespace").selectOption("kube-system");
    await page.getByRole("button", { name: "Show all" }).click();
    // By keys: into the list, down, to the end, up, and into a Service.
    await page.getByRole("button", { name: "Problem" }).focus();
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowDown");
    assertStringIncludes(await focused(page), "kube-system/kube-dns");
    await page.keyboard.press("End");
    await page.keyboard.press("ArrowUp");
    assertStringIncludes(await focused(page), "shop/recommendations");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "recommendations" }).waitFor();
    assertEquals(await page.evaluate("document.activeElement?.id"), "main");
    // A link leads to the same list.
    await show("#/services?namespace=shop&problem=no+endpoints");
    await page.getByText("1 of 10").waitFor();
  });
}

const focused = (page: Page): Promise<string> => page.evaluate(`document.activeElement?.textContent ?? ""`);

/** The longest frame while a word is typed, and all rows are gone through for each letter. */
const SLOWEST_FRAME = `(async () => {
  const search = document.querySelector("input[type=search]");
  let slowest = 0;
  for (const word of ["b", "bi", "bil", "bill", "billing-042"]) {
    search.value = word;
    search.dispatchEvent(new Event("input", { bubbles: true }));
    for (let frame = 0, before = performance.now(); frame < 8; frame++) {
      await new Promise(requestAnimationFrame);
      slowest = Math.max(slowest, performance.now() - before);
      before = performance.now();
    }
  }
  return slowest;
})()`;

async function manyServices(browser: Browser): Promise<void> {
  const objects = clusterObjects(10_000);
  await shown(browser, async ({ page, served, show }) => {
    await show(VIEWS.services ?? "");
    await page.getByText("10,000\u00a0Services").waitFor();
    const rows = page.locator("[role=grid] [role=row]:has([role=gridcell])");
    assertLess(await rows.count(), 60);
    await page.evaluate(`document.querySelector(".grid-scroller").scrollTo(0, 1e9)`);
    await page.getByText("sessions-09999").waitFor();
    assertLess(await rows.count(), 60);
    assertEquals(await rows.last().getAttribute("aria-rowindex"), "10001");
    // Where the machine stood still meanwhile, it is typed again.
    await eventually(async () => assertLess(await page.evaluate<number>(SLOWEST_FRAME), 400), {
      limitMs: 60_000,
    });
    await page.getByText("10 of 10,000").waitFor();
    // The focus stays where it is while the list is changed around it.
    await rows.nth(3).focus();
    const before = await focused(page);
    const gone = objects.filter((one) => one.kind === "Service").slice(4200, 4230).filter(({ name }) =>
      name.startsWith("billing")
    );
    assertGreater(gone.length, 0);
    served.remove(gone.slice(0, 1));
    await askNow(page);
    await page.getByText("9 of 9,999").waitFor();
    assertEquals(await focused(page), before);
    // As long as nothing changes, the browser is not given the rows again.
    const lastBytes =
      `performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/services"))
      .map(({ transferSize }) => transferSize).at(-1)`;
    await Promise.all([
      page.waitForResponse((response) => response.url().endsWith("/services")),
      askNow(page),
    ]);
    await eventually(async () => assertLess(await page.evaluate<number>(lastBytes), 1_000));
  }, { serving: { objects } });
}

async function oneService(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, served, show }) => {
    await show(VIEWS.service ?? "");
    const row = (address: string): Promise<string> => text(page, `tr:has-text("${address}")`);
    await page.getByRole("heading", { name: "4 endpoints" }).waitFor();
    assertMatch(await row("10.244.3.31:8080"), /ready, on this node\s+.*used/s);
    assertMatch(await row("10.244.5.33:8080"), /not used\s+not ready/);
    assertMatch(await row("10.244.8.34:8080"), /not used\s+terminating, and others are ready/);
    await page.locator("summary").click();
    assertStringIncludes(await text(page, ".wanted"), "10.96.31.7 . tcp . 80 : goto");
    const slice = testSlice({
      ...CART,
      name: "checkout-x1",
      serviceName: "checkout",
      endpoints: [testSliceEndpoint("10.244.9.9")],
    });
    served.change([slice]);
    await askNow(page);
    await page.getByRole("heading", { name: "1 endpoint" }).waitFor();
    assertEquals(await page.locator("details.wanted").getAttribute("open"), "");
    served.remove(shopObjects().filter((one) => one.kind === "Service" && one.name === "checkout"));
    await askNow(page);
    await page.getByText("This Service is gone").waitFor();
    await show("#/service/shop/none");
    await page.getByText("There is no such Service here").waitFor();
    // Of a Service that is not there.
  }, { expected: /404/ });
}

async function packetPath(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, show }) => {
    await show("#/path");
    await page.getByText("Where does a packet go?").waitFor();
    await page.getByLabel("To", { exact: false }).first().fill("shop/checkout");
    await page.getByRole("button", { name: "Follow the packet" }).click();
    const drawing = page.getByRole("img", {
      name: /^From 198\.51\.100\.77 to 10\.96\.31\.7 port 80: Service shop\/checkout/,
    });
    await drawing.waitFor();
    assertMatch(page.url(), /from=world&to=shop%2Fcheckout/);
    const drawn = await drawing.textContent() ?? "";
    for (
      const part of [
        "50 %",
        "10.244.3.31:8080",
        "10.244.5.32:8080",
        "Not used",
        "not ready",
        "source becomes the node's",
      ]
    ) {
      assertStringIncludes(drawn, part);
    }
    assertGreater(await page.locator(".steps li").count(), 4);
    assertStringIncludes(await text(page, "#left-out >> xpath=../.."), "10.244.5.33:8080");
    await show("#/path?from=local&to=10.96.77.3:80");
    await page.getByText("does not pass").waitFor();
    await show("#/path?from=world&to=10.96.18.2:80");
    await page.getByText("to one of 24").waitFor();
    await page.getByText("17 more", { exact: true }).waitFor();
    const wrong = ["10.96.0.1", "not an address", `${"9".repeat(280)}:80`, "10.96.0.1:99999", "<b>x</b>"];
    for (const to of wrong) {
      await show(`#/path?from=world&to=${encodeURIComponent(to)}`);
      assertMatch(await text(page, "main [role=alert]"), /is no destination|names no port/);
    }
    // Answers to nonsense have status 400.
  }, { expected: /400/ });
}

async function changes(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, served, show }) => {
    await show(VIEWS.changes ?? "");
    await page.getByText("Nothing went wrong since the start").waitFor();
    served.change([testSlice({ ...CART, endpoints: endpointsOf("10.244.2", 1) })]);
    await askNow(page);
    await page.getByRole("link", { name: "shop/cart" }).waitFor();
    served.fail("IPv4", "nft: <b>no</b>");
    served.problems.add({
      severity: "E",
      message: "Sync failed",
      values: { err: new Error("nft: <b>no</b>") },
    });
    await askNow(page);
    await page.getByText("partial sync failed").waitFor();
    const first = await text(page, "[aria-label='Changes of rules'] tbody tr");
    assertStringIncludes(first, "nft: <b>no</b>");
    await page.getByText('err="nft: <b>no</b>"').waitFor();
  });
}

async function hostileNames(browser: Browser): Promise<void> {
  await shown(browser, async ({ page, served, show }) => {
    served.problems.add({ severity: "W", message: HOSTILE, values: { object: HOSTILE } });
    served.fail("IPv4", HOSTILE);
    served.change(hostileObjects().slice(0, 1), {
      quarantined: [{ service: `evil/${HOSTILE}`, problem: HOSTILE }],
    });
    const name = encodeURIComponent(HOSTILE);
    for (
      const hash of [
        "#/",
        "#/services",
        `#/service/evil/${name}`,
        "#/changes",
        `#/services?q=${name}`,
        `#/path?from=${name}&to=10.96.66.6:80`,
      ]
    ) {
      await show(hash);
      await page.getByText("onerror=", { exact: false }).first().waitFor({ state: "attached" });
      assertEquals(await page.locator("main script, main img, main svg svg").count(), 0, hash);
      assertEquals((await page.title()).includes("owned") && !hash.includes("service/evil"), false);
    }
    await show("#/");
    await page.getByText("is refused: spec.ports[0].port", { exact: false }).waitFor();
    // The source is refused.
  }, {
    serving: {
      objects: [...shopObjects(), ...hostileObjects()],
      refusals: [{ where: HOSTILE, object: `Service evil/${HOSTILE}`, message: "spec.ports[0].port: no" }],
    },
    expected: /400/,
  });
}

async function restart(browser: Browser): Promise<void> {
  let port = 0;
  await withTab(browser, {}, async ({ page, faults }) => {
    await servingPage(async (served) => {
      port = Number(new URL(served.url).port);
      await page.goto(`${served.url}#/services`);
      await page.getByText("10\u00a0Services").waitFor();
    }, { objects: shopObjects() });
    await page.getByText("kproxy does not answer").first().waitFor();
    assertMatch(await text(page, ".stale-note"), /What you see is what it said at \d\d:\d\d:\d\d/);
    assertStringIncludes(await text(page, ".top"), "Stale");
    assertStringIncludes(await text(page), "shop/checkout");
    await servingPage(async () => {
      await page.getByText("20\u00a0Services").waitFor();
      assertEquals(await page.locator(".stale-note").count(), 0);
    }, { objects: clusterObjects(20), port });
    assertEquals(faults.filter((fault) => !/ERR_CONNECTION|Failed to load resource/.test(fault)), []);
  });
}

async function narrowAndDark(browser: Browser): Promise<void> {
  const context = { viewport: PHONE, colorScheme: "dark", reducedMotion: "reduce" } as const;
  await shown(browser, async ({ page, show }) => {
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(hash);
      await page.locator("h1").first().waitFor();
      const { width, background } = await page.evaluate<{ width: number; background: string }>(`({
        width: document.documentElement.scrollWidth,
        background: getComputedStyle(document.documentElement).backgroundColor,
      })`);
      assertEquals([name, width, background], [name, PHONE.width, "rgb(14, 17, 22)"]);
    }
  }, { context });
}

interface AxeResult {
  readonly violations: readonly { id: string; nodes: readonly { html: string; failureSummary: string }[] }[];
}

async function accessible(browser: Browser): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    // axe is no script of the page's.
    await shown(browser, async ({ page, served, show }) => {
      served.fail("IPv4", "nft: no");
      served.problems.add({ severity: "E", message: "Sync failed", values: {} });
      for (const [name, hash] of Object.entries(VIEWS)) {
        await show(hash);
        await page.locator("h1").first().waitFor();
        await page.waitForTimeout(150);
        await page.evaluate(axe);
        const { violations } = await page.evaluate<AxeResult>(
          // Only colours differ.
          colorScheme === "light" ? "axe.run()" : "axe.run({ runOnly: ['color-contrast'] })",
        );
        assertEquals(
          violations.map((
            { id, nodes },
          ) => [name, id, nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`)]),
          [],
        );
      }
    }, { context: { colorScheme, bypassCSP: true } });
  }
}
