/**
 * Alerts and dashboard of `deploy/`: they ask for metrics and labels that there are, Prometheus takes them, each alert fires when it
 * should and no sooner, each panel shows something, and each alert has its chapter.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { parse, stringify } from "@std/yaml";
import { metricsText } from "../../lib/observe/prom_client.ts";
import { anchorsOf } from "../../tools/links.ts";
import { metricRows } from "../../tools/metrics_doc.ts";
import { ROOT } from "../../tools/project_files.ts";
import { busyMetrics } from "../support/busy_metrics.ts";
import { e2eTest, program } from "../support/skip.ts";
import { ALERT_CASES, type AlertCase, type Series } from "./alert_cases.ts";
import { queriesOf, readDashboard, seriesOf, yieldsSomething } from "./dashboard.ts";
import { withYamlFile } from "../support/temp_files.ts";
import { failuresIn, promtool, type PromtoolTest } from "./promtool.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<string, string>>;
}

interface ScrapeConfig {
  readonly job_name: string;
  kubernetes_sd_configs?: unknown;
  static_configs?: unknown;
  readonly relabel_configs: readonly { readonly target_label?: string }[];
}

const PROMETHEUS = `${ROOT}/deploy/prometheus`;
const RULES_FILE = `${PROMETHEUS}/rules.yaml`;
const RULES = (parse(await Deno.readTextFile(RULES_FILE)) as { groups: { rules: Rule[] }[] }).groups
  .flatMap(({ rules }) => rules);
const SCRAPES = (parse(await Deno.readTextFile(`${PROMETHEUS}/scrape.yaml`)) as {
  scrape_configs: ScrapeConfig[];
}).scrape_configs;
const DASHBOARD = await readDashboard();
const QUERIES = queriesOf(DASHBOARD);

/** The labels of each series, beside those of the scrape. */
const LABELS_BY_NAME: ReadonlyMap<string, readonly string[]> = new Map([
  ["up", []],
  ...metricRows().flatMap(({ name, type, labels }): [string, readonly string[]][] => {
    if (type !== "histogram") return [[name, labels]];
    return [[`${name}_bucket`, [...labels, "le"]], [`${name}_count`, labels], [`${name}_sum`, labels]];
  }),
]);

Deno.test("alerts are tried with series that kproxy has, and ask kproxy only", () => {
  assert(RULES.length > 10);
  for (const { alert, expr } of RULES) assert(expr.includes('job="kproxy"'), alert);
  const series = ALERT_CASES.flatMap(({ fires, rests }) =>
    [...fires, ...rests].flatMap((one) => Object.keys(one))
  );
  const unknown = series.filter((text) => {
    const known = LABELS_BY_NAME.get(text.slice(0, text.indexOf("{")));
    const labels = [...text.matchAll(/(\w+)="/g)].map(([, label = ""]) => label);
    return !labels.every((label) => known?.includes(label) || ["job", "node"].includes(label)) ||
      known === undefined;
  });
  assertEquals(unknown, []);
});

Deno.test("panels ask kproxy only, and variables are labels that kproxy has", () => {
  assert(QUERIES.length > 30);
  for (const { panel, expr } of QUERIES) assert(expr.includes('job="kproxy"'), panel);
  for (const { name, definition = "" } of DASHBOARD.templating.list) {
    const [, metric = "", label = ""] = /^label_values\((\w+)\{.*\}, (\w+)\)$/.exec(definition) ?? [];
    const known = LABELS_BY_NAME.get(metric);
    if (name !== "datasource") assert(known !== undefined && [...known, "node"].includes(label), definition);
  }
});

Deno.test("each alert has its chapter, each chapter its alert, and each a command", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/alerts.md`);
  const anchors = anchorsOf(page);
  for (const { alert, annotations } of RULES) {
    const [path, anchor = ""] = (annotations.runbook ?? "").split("#");
    assertEquals([path, anchor], ["docs/alerts.md", alert.toLowerCase()]);
    assert(anchors.has(anchor), alert);
  }
  const chapters = [...page.matchAll(/^## (Kproxy\w+)\n([^]*?)(?=^## |$(?![^]))/gm)];
  assertEquals(chapters.map(([, name]) => name), RULES.map(({ alert }) => alert));
  assertEquals(chapters.filter(([, , text = ""]) => !/`(kproxy|kubectl|curl) /.test(text)), []);
});

Deno.test("panels stand side by side, each with a source and a name of its own", () => {
  const { panels } = DASHBOARD;
  assertEquals(new Set(panels.map(({ id }) => id)).size, panels.length);
  for (const [index, { title, type, gridPos: a, datasource }] of panels.entries()) {
    assert(title !== "" && a.x + a.w <= 24, title);
    if (type !== "row") assertEquals(datasource?.uid, "${datasource}", title);
    for (const { title: other, gridPos: b } of panels.slice(index + 1)) {
      const apart = a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
      assert(apart, `${title} lies on ${other}`);
    }
  }
});

e2eTest("Prometheus takes the rules, all queries, and what finds kproxy", [program("promtool")], async () => {
  const { code, out } = await promtool("check", "rules", RULES_FILE);
  assertEquals([code, out.includes(`${RULES.length} rules found`)], [0, true], out);
  const recorded = QUERIES.map(({ expr }, index) => ({ record: `panel:${index}`, expr }));
  const queries = stringify({ groups: [{ name: "panels", rules: recorded }] });
  const checked = await withYamlFile(queries, (path) => promtool("check", "rules", path));
  assertEquals(checked.code, 0, checked.out);
  // Debian's build knows no Kubernetes: everything but how targets are found.
  const scrapes = SCRAPES.map(({ kubernetes_sd_configs, ...rest }) => {
    assert(Array.isArray(kubernetes_sd_configs));
    return { ...rest, static_configs: [{ targets: ["127.0.0.1:10249"] }] };
  });
  const config = await withYamlFile(
    stringify({ scrape_configs: scrapes }),
    (path) => promtool("check", "config", path),
  );
  assertEquals(config.code, 0, config.out);
});

/** All that must fire, or all that must not, at once, each on a node of its own; alerts on no node have a test of their own. */
function alertTests(cases: readonly AlertCase[], part: "fires" | "rests"): PromtoolTest[] {
  const tried = cases.flatMap(({ alert, atMinute = 20, isOfAll = false, [part]: all }) => {
    assert(all.length > 0, alert);
    return all.map((series, index) => {
      const node = `${alert}-${index}`;
      const named = Object.entries(series).map((
        [name, values],
      ) => [name.replace('node="a"', `node="${node}"`), values]);
      // What the alert's words speak of must be there.
      const { annotations } = RULES.find((rule) => rule.alert === alert)!;
      const shown = [...JSON.stringify(annotations).matchAll(/\$labels\.(\w+)/g)].map(([, label]) =>
        `,${label}=~".+"`
      );
      const own = isOfAll ? "" : `,node="${node}"`;
      const labels = `alertname="${alert}",alertstate="firing"${own}${shown.join("")}`;
      const expr = `(count(ALERTS{${labels}}) > bool 0) or vector(0)`;
      return { isOfAll, series: Object.fromEntries(named) as Series, question: { expr, at: `${atMinute}m` } };
    });
  });
  const groups = [
    tried.filter(({ isOfAll }) => !isOfAll),
    ...tried.filter(({ isOfAll }) => isOfAll).map((one) => [one]),
  ];
  return groups.filter((group) => group.length > 0).map((group) => ({
    interval: "1m",
    series: Object.assign({}, ...group.map(({ series }) => series)) as Series,
    questions: group.map(({ question }) => ({ ...question, value: part === "fires" ? 1 : 0 })),
  }));
}

e2eTest("every alert fires when it should, and no sooner", [program("promtool")], async () => {
  assertEquals(ALERT_CASES.map(({ alert }) => alert), RULES.map(({ alert }) => alert));
  // Those that take hours are looked at less often.
  const isLong = ({ atMinute = 0 }: AlertCase): boolean => atMinute > 60;
  for (
    const [every, cases] of [["1m", ALERT_CASES.filter((one) => !isLong(one))], [
      "10m",
      ALERT_CASES.filter(isLong),
    ]] as const
  ) {
    const tests = [...alertTests(cases, "fires"), ...alertTests(cases, "rests")];
    assertEquals(await failuresIn(tests, { files: [RULES_FILE], every }), "");
  }
});

e2eTest(
  "every panel shows something of proxies to which everything has happened",
  [program("promtool")],
  async () => {
    const texts = await Promise.all(
      (["iptables", "ipvs", "nftables"] as const).map((mode) => metricsText(busyMetrics(mode).registry)),
    );
    const series = Object.assign(
      {},
      ...texts.map((text, index) => seriesOf(text, `node-${index}`)),
    ) as Series;
    const questions = QUERIES.map((query) => ({ expr: yieldsSomething(query), at: "2m", value: 1 }));
    const test = { interval: "15s", series, questions };
    assertEquals(await failuresIn([test]), "");
    // So it would be noticed: a panel that shows nothing, or names its lines by a label that is gone.
    const bytes = 'sum by (node) (rate(kproxy_service_bytes_total{job="kproxy",direction="DIRECTION"}[1m]))';
    for (const [direction, label] of [["up", "node"], ["in", "pod"]]) {
      const query = {
        panel: "",
        expr: bytes.replace("DIRECTION", `${direction}`),
        legendFormat: `{{${label}}}`,
      };
      const nothing = { ...test, questions: [{ expr: yieldsSomething(query), at: "2m", value: 1 }] };
      assert((await failuresIn([nothing])).includes("direction"));
    }
  },
);
