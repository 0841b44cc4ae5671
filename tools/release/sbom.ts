/**
 * The bill of materials: what kproxy is made of, in CycloneDX's JSON, from `deno.lock`, `links/` and what the program loads. It holds no
 * time and no number of its own, so that the same sources yield the same text.
 *
 * @module
 */
import "./no_deprecations.ts";
import { Contrib, Enums, Models, Serialize, Spec } from "@cyclonedx/cyclonedx-library";
import { ROOT } from "../project_files.ts";

const { Component } = Models;
type Component = Models.Component;

const PROJECT_LICENSE = "Apache-2.0";

/** A package of `deno.lock`. */
interface LockedPackage {
  /** `sha512-…`, in base 64. */
  readonly integrity: string;
  /** By name, or by name and version where there are several. */
  readonly dependencies?: readonly string[];
  readonly optionalDependencies?: readonly string[];
}

/** What a bill is made from. */
export interface Materials {
  readonly version: string;
  readonly commit: string;
  readonly denoVersion: string;
  /** `NAME@VERSION`, with what Deno puts behind it for peers → what is locked. */
  readonly packages: Readonly<Record<string, LockedPackage>>;
  /** Keys of `packages` that the program itself loads, now or later. */
  readonly loaded: readonly string[];
  /** Licences by keys of `packages`, as SPDX writes them; where one is not known, none. */
  readonly licenses: ReadonlyMap<string, string>;
  readonly standIns: readonly StandIn[];
}

/** A package of `links/`. */
export interface StandIn {
  /** Of the package in whose place it is: `@std/cli`. */
  readonly name: string;
  /** `links/cli`. */
  readonly path: string;
  readonly isLoaded: boolean;
}

/** The text of the bill. */
export function billOfMaterials(materials: Materials): string {
  const { version, commit, denoVersion } = materials;
  const kproxy = new Component(Enums.ComponentType.Application, "kproxy", {
    bomRef: "kproxy",
    version,
    licenses: licensesOf(PROJECT_LICENSE),
    properties: new Models.PropertyRepository([new Models.Property("kproxy:commit", commit)]),
  });
  const packages = packageComponents(materials);
  const standIns = materials.standIns.map((standIn) => standInComponent(standIn, version));
  const runtime = new Component(Enums.ComponentType.Platform, "deno", {
    bomRef: "deno",
    version: denoVersion,
    scope: Enums.ComponentScope.Required,
    purl: `pkg:github/denoland/deno@v${denoVersion}`,
    licenses: licensesOf("MIT"),
  });
  kproxy.dependencies.add(runtime.bomRef);
  for (const key of materials.loaded) kproxy.dependencies.add(found(packages, key).bomRef);
  for (const [index, { isLoaded }] of materials.standIns.entries()) {
    const component = standIns[index];
    if (isLoaded && component !== undefined) kproxy.dependencies.add(component.bomRef);
  }
  const bom = new Models.Bom({
    metadata: new Models.Metadata({ component: kproxy }),
    components: new Models.ComponentRepository([runtime, ...packages.values(), ...standIns]),
  });
  const serializer = new Serialize.JsonSerializer(
    new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6),
  );
  return `${serializer.serialize(bom, { sortLists: true, space: 2 })}\n`;
}

/** By key: those that the program never loads, as what only tests use, count as excluded. */
function packageComponents(materials: Materials): Map<string, Component> {
  const { packages, loaded, licenses } = materials;
  const needed = new Set(loaded);
  for (const key of needed) {
    for (const name of dependenciesOf(packages[key])) needed.add(keyOf(packages, name));
  }
  const components = new Map<string, Component>();
  for (const [key, { integrity }] of Object.entries(packages)) {
    const { name, version } = partsOf(key);
    const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
    const [, group, ownName = name] = /^(@[^/]+)\/(.+)$/.exec(name) ?? [];
    components.set(
      key,
      new Component(Enums.ComponentType.Library, ownName, {
        ...(group === undefined ? {} : { group }),
        bomRef: `npm:${key}`,
        version,
        purl,
        scope: needed.has(key) ? Enums.ComponentScope.Required : Enums.ComponentScope.Excluded,
        hashes: new Models.HashDictionary([
          Contrib.FromNodePackageJson.Utils.parsePackageIntegrity(integrity),
        ]),
        licenses: licensesOf(licenses.get(key)),
      }),
    );
  }
  for (const [key, component] of components) {
    for (const name of dependenciesOf(packages[key])) {
      component.dependencies.add(found(components, keyOf(packages, name)).bomRef);
    }
  }
  return components;
}

/**
 * They go by names and versions of this project's own, and carry no package address: what is known of the packages in whose place they are
 * does not hold for them.
 */
function standInComponent({ name, path, isLoaded }: StandIn, version: string): Component {
  return new Component(Enums.ComponentType.Library, `kproxy-${path.replace("/", "-")}`, {
    bomRef: path,
    version,
    description: `Part of kproxy, in ${path}: what kproxy uses of the interface of ${name}`,
    properties: new Models.PropertyRepository([new Models.Property("kproxy:inPlaceOf", `jsr:${name}`)]),
    scope: isLoaded ? Enums.ComponentScope.Required : Enums.ComponentScope.Excluded,
    licenses: licensesOf(PROJECT_LICENSE),
  });
}

function licensesOf(text: string | undefined): Models.LicenseRepository {
  if (text === undefined) return new Models.LicenseRepository();
  if (/ (?:AND|OR|WITH) /.test(text)) {
    return new Models.LicenseRepository([new Models.LicenseExpression(text)]);
  }
  const factory = new Contrib.License.Factories.LicenseFactory(() => {
    throw new RangeError("not an expression");
  });
  return new Models.LicenseRepository([factory.makeDisjunctive(text)]);
}

function dependenciesOf(locked: LockedPackage | undefined): readonly string[] {
  return [...locked?.dependencies ?? [], ...locked?.optionalDependencies ?? []];
}

/** @throws {RangeError} for a package that is not locked */
function keyOf(packages: Materials["packages"], name: string): string {
  if (name in packages) return name;
  const key = Object.keys(packages).find((one) => partsOf(one).name === name);
  if (key === undefined) throw new RangeError(`deno.lock lacks ${name}`);
  return key;
}

function found(components: ReadonlyMap<string, Component>, key: string): Component {
  const component = components.get(key);
  if (component === undefined) throw new RangeError(`deno.lock lacks ${key}`);
  return component;
}

/** `@a/b@1.0.0_c@2.0.0` → `@a/b`, `1.0.0`. */
function partsOf(key: string): { readonly name: string; readonly version: string } {
  const [, name = key, version = ""] = /^(@?[^@]+)@([^_]+)/.exec(key) ?? [];
  return { name, version };
}

/** What this project's bill is made from. */
export async function projectMaterials(commit: string): Promise<Materials> {
  const [lock, project, graph] = await Promise.all([
    readJson<{ readonly npm: Materials["packages"]; readonly specifiers: Readonly<Record<string, string>> }>(
      `${ROOT}/deno.lock`,
    ),
    readJson<{ readonly version: string; readonly links: readonly string[] }>(`${ROOT}/deno.json`),
    moduleGraph(),
  ]);
  const loaded = new Set(
    graph.modules.flatMap(({ npmPackage }) => npmPackage === undefined ? [] : [npmPackage]),
  );
  const licenses = new Map<string, string>();
  for (const [key, { localPath }] of Object.entries(graph.npmPackages)) {
    const { license } = await readJson<{ readonly license?: unknown }>(`${localPath}/package.json`);
    if (typeof license === "string") licenses.set(key, license);
  }
  return {
    version: project.version,
    commit,
    denoVersion: Deno.version.deno,
    packages: lock.npm,
    loaded: [...loaded].toSorted(),
    licenses,
    standIns: await Promise.all(project.links.map((link) => readStandIn(link.replace("./", ""), graph))),
  };
}

interface ModuleGraph {
  readonly modules: readonly { readonly specifier: string; readonly npmPackage?: string }[];
  readonly npmPackages: Readonly<Record<string, { readonly localPath: string }>>;
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

async function readStandIn(path: string, graph: ModuleGraph): Promise<StandIn> {
  const { name } = await readJson<Pick<StandIn, "name">>(`${ROOT}/${path}/deno.json`);
  const isLoaded = graph.modules.some(({ specifier }) => specifier.startsWith(`file://${ROOT}/${path}/`));
  return { name, path, isLoaded };
}

async function readJson<T>(path: string): Promise<T> {
  return JSON.parse(await Deno.readTextFile(path));
}
