/**
 * A real headless Chromium, which connects to the tests only.
 *
 * @module
 */
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { findProgram } from "../../tools/setup.ts";

const QUIET: readonly string[] = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
  "--force-color-profile=srgb",
];

/** Limit of any wait in a page; several times what a busy machine needs. */
const LONGEST_WAIT_MS = 60_000;

/** Runs `work` with a browser, then closes it. */
export async function withBrowser(work: (browser: Browser) => Promise<void>): Promise<void> {
  const executablePath = findProgram("chromium");
  if (executablePath === undefined) throw new Error("There is no chromium on the PATH");
  const browser = await chromium.launch({ executablePath, args: [...QUIET] });
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}

/** A tab, and all faults in it. */
export interface Tab {
  readonly page: Page;
  /** Script exceptions, console errors, and violations of the Content-Security-Policy. */
  readonly faults: string[];
}

/** Runs `work` with a tab in a profile of its own, then closes it. */
export async function withTab(
  browser: Browser,
  options: BrowserContextOptions,
  work: (tab: Tab) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(LONGEST_WAIT_MS);
    const faults: string[] = [];
    page.on("pageerror", (error) => void faults.push(`thrown: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error" || /Content.Security.Policy/i.test(message.text())) {
        faults.push(`console: ${message.text()}`);
      }
    });
    page.on("dialog", async (dialog) => {
      faults.push(`dialog: ${dialog.message()}`);
      await dialog.dismiss();
    });
    await work({ page, faults });
  } finally {
    await context.close();
  }
}
