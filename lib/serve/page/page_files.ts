/**
 * The files that the status page is made of, as a browser is given them.
 *
 * @module
 */
import htm from "htm" with { type: "text" };
import preact from "preact" with { type: "text" };
import hooks from "preact/hooks" with { type: "text" };
import uplot from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import uplotStyle from "uplot/dist/uPlot.min.css" with { type: "text" };
import apiModule from "./browser/api.js" with { type: "text" };
import appModule from "./browser/app.js" with { type: "text" };
import changesModule from "./browser/changes.js" with { type: "text" };
import formatModule from "./browser/format.js" with { type: "text" };
import gridModule from "./browser/grid.js" with { type: "text" };
import icon from "./browser/icon.svg" with { type: "text" };
import html from "./browser/index.html" with { type: "text" };
import overviewModule from "./browser/overview.js" with { type: "text" };
import partsModule from "./browser/parts.js" with { type: "text" };
import pathDrawingModule from "./browser/path_drawing.js" with { type: "text" };
import pathModule from "./browser/path.js" with { type: "text" };
import pathStepsModule from "./browser/path_steps.js" with { type: "text" };
import plotsModule from "./browser/plots.js" with { type: "text" };
import routeModule from "./browser/route.js" with { type: "text" };
import serviceModule from "./browser/service.js" with { type: "text" };
import servicesModule from "./browser/services.js" with { type: "text" };
import style from "./browser/style.css" with { type: "text" };
import troubleModule from "./browser/trouble.js" with { type: "text" };

const SCRIPT = "text/javascript; charset=utf-8";
const STYLE = "text/css; charset=utf-8";

/** A file with its content type. */
export interface PageFile {
  readonly type: string;
  readonly text: string;
}

/** Replaces package names by file names: browsers need an import map for packages, which would have to be inline. */
function withFileNames(module: string): string {
  return module.replace(
    /(\bfrom\s*|\bimport\s*)"(?:preact\/)?(htm|hooks|preact|uplot)"/g,
    (_all, word, name) => `${word}"./${name}.js"`,
  );
}

const MODULES: Readonly<Record<string, string>> = {
  "api.js": apiModule,
  "app.js": appModule,
  "changes.js": changesModule,
  "format.js": formatModule,
  "grid.js": gridModule,
  "hooks.js": hooks,
  "htm.js": htm,
  "overview.js": overviewModule,
  "parts.js": partsModule,
  "path.js": pathModule,
  "path_drawing.js": pathDrawingModule,
  "path_steps.js": pathStepsModule,
  "plots.js": plotsModule,
  "preact.js": preact,
  "route.js": routeModule,
  "service.js": serviceModule,
  "services.js": servicesModule,
  "trouble.js": troubleModule,
  // uPlot is a script of its own, which defines a global variable.
  "uplot.js": `${uplot}\nexport default uPlot;\n`,
};

/** The page itself. */
export const PAGE: PageFile = { type: "text/html; charset=utf-8", text: html };

/** The page's files by name. */
export const FILES: ReadonlyMap<string, PageFile> = new Map([
  ["icon.svg", { type: "image/svg+xml", text: icon }],
  ["style.css", { type: STYLE, text: style }],
  ["uplot.css", { type: STYLE, text: uplotStyle }],
  ...Object.entries(MODULES).map(([name, text]): [string, PageFile] => [
    name,
    { type: SCRIPT, text: withFileNames(text) },
  ]),
]);
