/**
 * The bill of materials: what kproxy is made of, in CycloneDX's JSON, from `deno.lock`, `links/` and what the program loads. It holds no
 * time and no number of its own, so that the same sources yield the same text.
 *
 * @module
 */
import project from "../../deno.json" with { type: "json" };
import { ROOT } from "../project_files.ts";

const PROJECT_LICENSE = "Apache-2.0";

/** A package of `deno.lock`. */
interface LockedPackage {
  /** `sha512-…`, in base 64. */
  readonly integrity: string;
  /** By name, or by name and version where there are several. */
  readonly dependencies?: readonly string[];
  readonly optionalDependencies?: readonly string[];
}

/** `NAME@VERSION`, with what Deno puts behind it for peers → what is locked. */
type Packages = Readonly<Record<string, LockedPackage>>;

/** What `deno info` says of the program. */
interface ModuleGraph {
  readonly modules: readonly { readonly specifier: string; readonly npmPackage?: string }[];
  readonly npmPackages: Readonly<Record<string, { readonly localPath: string }>>;
}

/** A component of CycloneDX's JSON, and what it depends on. */
interface Component {
  readonly "bom-ref": string;
  readonly dependsOn?: readonly string[];
  readonly [field: string]: unknown;
}

/** The text of the bill. @throws {RangeError} for a package that `deno.lock` lacks */
export async function billOfMaterials(commit: string): Promise<string> {
  const [{ npm }, graph] = await Promise.all([
    readJson<{ readonly npm: Packages }>(`${ROOT}/deno.lock`),
    moduleGraph(),
  ]);
  const loaded = new Set(graph.modules.flatMap(({ npmPackage }) => npmPackage ?? []));
  const packages = await packageComponents(npm, loaded, graph);
  const standIns = await Promise.all(
    project.links.map((link) => standInComponent(link.replace("./", ""), graph)),
  );
  const runtime: Component = {
    type: "platform",
    "bom-ref": "deno",
    name: "deno",
    version: Deno.version.deno,
    scope: "required",
    licenses: licensesOf("MIT"),
    purl: `pkg:github/denoland/deno@v${Deno.version.deno}`,
  };
  const kproxy: Component = {
    type: "application",
    "bom-ref": "kproxy",
    name: "kproxy",
    version: project.version,
    licenses: licensesOf(PROJECT_LICENSE),
    properties: [{ name: "kproxy:commit", value: commit }],
    dependsOn: [
      runtime["bom-ref"],
      ...[...loaded].map(refOf),
      ...standIns.filter(({ scope }) => scope === "required").map((one) => one["bom-ref"]),
    ],
  };
  const components = [runtime, ...standIns, ...packages];
  const withoutDependencies = ({ dependsOn: _, ...component }: Component): unknown => component;
  const bill = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: withoutDependencies(kproxy) },
    components: components.map(withoutDependencies),
    dependencies: [kproxy, ...components].map(({ "bom-ref": ref, dependsOn = [] }) => ({
      ref,
      dependsOn: [...new Set(dependsOn)].sort(),
    })),
  };
  return `${JSON.stringify(bill, null, 2)}\n`;
}

/** Those that the program never loads, as what only tests use, count as excluded. */
async function packageComponents(
  packages: Packages,
  loaded: ReadonlySet<string>,
  { npmPackages }: ModuleGraph,
): Promise<Component[]> {
  const needed = new Set(loaded);
  for (const key of needed) {
    for (const dependency of dependenciesOf(packages, key)) needed.add(dependency);
  }
  return await Promise.all(
    Object.keys(packages).sort().map(async (key): Promise<Component> => {
      const { name, version } = partsOf(key);
      const [, group, ownName = name] = /^(@[^/]+)\/(.+)$/.exec(name) ?? [];
      const path = npmPackages[key]?.localPath;
      const { license } = path === undefined
        ? {}
        : await readJson<{ license?: unknown }>(`${path}/package.json`);
      const hash = Uint8Array.fromBase64(packages[key]!.integrity.slice("sha512-".length)).toHex();
      return {
        type: "library",
        "bom-ref": refOf(key),
        ...group === undefined ? {} : { group },
        name: ownName,
        version,
        scope: needed.has(key) ? "required" : "excluded",
        hashes: [{ alg: "SHA-512", content: hash }],
        ...typeof license === "string" ? { licenses: licensesOf(license) } : {},
        purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
        dependsOn: dependenciesOf(packages, key).map(refOf),
      };
    }),
  );
}

/**
 * A package of `links/`. It goes by a name and a version of this project's own, and carries no package address: what is known of the package
 * in whose place it is does not hold for it.
 */
async function standInComponent(path: string, { modules }: ModuleGraph): Promise<Component> {
  const { name } = await readJson<{ readonly name: string }>(`${ROOT}/${path}/deno.json`);
  const isLoaded = modules.some(({ specifier }) => specifier.startsWith(`file://${ROOT}/${path}/`));
  return {
    type: "library",
    "bom-ref": path,
    name: `kproxy-${path.replace("/", "-")}`,
    version: project.version,
    description: `Part of kproxy, in ${path}: what kproxy uses of the interface of ${name}`,
    scope: isLoaded ? "required" : "excluded",
    licenses: licensesOf(PROJECT_LICENSE),
    properties: [{ name: "kproxy:inPlaceOf", value: `jsr:${name}` }],
  };
}

/** Of a licence as SPDX writes it. */
function licensesOf(text: string): unknown[] {
  return [/ (?:AND|OR|WITH) /.test(text) ? { expression: text } : { license: { id: text } }];
}

/** Keys of what a package depends on. @throws {RangeError} for one that is not locked */
function dependenciesOf(packages: Packages, key: string): string[] {
  const { dependencies = [], optionalDependencies = [] } = packages[key] ?? lacking(key);
  return [...dependencies, ...optionalDependencies].map((name) =>
    name in packages ? name : Object.keys(packages).find((one) => partsOf(one).name === name) ?? lacking(name)
  );
}

function lacking(name: string): never {
  throw new RangeError(`deno.lock lacks ${name}`);
}

function refOf(key: string): string {
  return `npm:${key}`;
}

/** `@a/b@1.0.0_c@2.0.0` → `@a/b`, `1.0.0`. */
function partsOf(key: string): { readonly name: string; readonly version: string } {
  const [, name = key, version = ""] = /^(@?[^@]+)@([^_]+)/.exec(key) ?? [];
  return { name, version };
}

async function moduleGraph(): Promise<ModuleGraph> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--json", `--config=${ROOT}/deno.json`, `${ROOT}/main.ts`],
    env: { NO_COLOR: "1" },
  }).output();
  const decoder = new TextDecoder();
  if (!success) throw new Error(`Cannot learn what kproxy loads: ${decoder.decode(stderr).trim()}`);
  return JSON.parse(decoder.decode(stdout));
}

async function readJson<T>(path: string): Promise<T> {
  return JSON.parse(await Deno.readTextFile(path));
}
