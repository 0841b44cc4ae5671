import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { Spec, Validation } from "@cyclonedx/cyclonedx-library";
import project from "../../deno.json" with { type: "json" };
import { ROOT } from "../project_files.ts";
import { billOfMaterials } from "./sbom.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";

interface Component {
  readonly "bom-ref": string;
  readonly group?: string;
  readonly name: string;
  readonly version: string;
  readonly scope?: string;
  readonly purl?: string;
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
  readonly licenses?: readonly unknown[];
  readonly properties?: readonly { readonly name: string; readonly value: string }[];
}
interface Bill {
  readonly metadata: {
    readonly component: Component;
  };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

Deno.test("the bill of materials follows CycloneDX's schema, and has every package of the lock file", async () => {
  const lock = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.lock`)) as {
    readonly npm: Readonly<Record<string, { readonly integrity: string }>>;
  };
  const text = await billOfMaterials(COMMIT);
  const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6);
  assertEquals(await validator.validate(text), null);
  assertNotEquals(await validator.validate(text.replace('"type": "library"', '"type": "book"')), null);
  assertEquals(await billOfMaterials(COMMIT), text);

  const { metadata, components, dependencies } = JSON.parse(text) as Bill;
  assertEquals([metadata.component.name, metadata.component.version], ["kproxy", project.version]);
  assertEquals(metadata.component.properties, [{ name: "kproxy:commit", value: COMMIT }]);
  const references = components.map((one) => one["bom-ref"]).toSorted();
  const wanted = [
    "deno",
    ...Object.keys(lock.npm).map((key) => `npm:${key}`),
    ...project.links.map((path) => path.slice(2)),
  ];
  assertEquals(references, wanted.toSorted());
  const named = (name: string): Component => {
    const found = components.find((one) =>
      (one.group === undefined ? one.name : `${one.group}/${one.name}`) === name
    );
    assert(found !== undefined, name);
    return found;
  };
  const yaml = named("yaml");
  assertEquals([yaml.purl, yaml.scope, yaml.licenses], [
    `pkg:npm/yaml@${yaml.version}`,
    "required",
    [{ license: { id: "ISC" } }],
  ]);
  // SHA-512 in hexadecimal digits, as the lock file has it in base 64.
  const [{ alg, content } = { alg: "", content: "" }] = yaml.hashes ?? [];
  const key = `yaml@${yaml.version}`;
  assertEquals([alg, Uint8Array.fromHex(content).toBase64()], [
    "SHA-512",
    lock.npm[key]?.integrity.slice("sha512-".length),
  ]);
  assertEquals(named("@kubernetes/client-node").purl, "pkg:npm/%40kubernetes/client-node@2.0.1");
  // A dependency of a dependency, what only tests use, and packages of this project.
  assertEquals(
    ["bintrees", "playwright-core", "kproxy-links-cli", "kproxy-links-assert"].map((name) =>
      named(name).scope
    ),
    ["required", "excluded", "required", "excluded"],
  );
  assertEquals(components.filter(({ licenses = [] }) => licenses.length === 0).map(({ name }) => name), []);
  const ofKproxy = dependencies.find(({ ref }) => ref === "kproxy")?.dependsOn ?? [];
  assertEquals(
    [ofKproxy.includes(`npm:${key}`), ofKproxy.includes("links/cli"), ofKproxy.includes("deno")],
    [true, true, true],
  );
  const known = new Set([...references, "kproxy"]);
  assertEquals(dependencies.flatMap(({ dependsOn = [] }) => dependsOn).filter((ref) => !known.has(ref)), []);
});

Deno.test("the bill does not take the stand-ins of links/ for the packages of others", async () => {
  const text = await billOfMaterials(COMMIT);
  const { components } = JSON.parse(text) as Bill;
  const standIns = components.filter((one) => one["bom-ref"].startsWith("links/"));
  assertEquals(standIns.length, project.links.length);
  for (const { group, name, version, purl, properties, ...one } of standIns) {
    const own = one["bom-ref"].replace("links/", "");
    assertEquals([group, name, version, purl, properties], [
      undefined,
      `kproxy-links-${own}`,
      project.version,
      undefined,
      [{ name: "kproxy:inPlaceOf", value: `jsr:@std/${own}` }],
    ]);
    // The name and a version that fits are what `links` of deno.json goes by; the version says of itself that it is none of theirs.
    const { default: linked } = await import(`../../links/${own}/deno.json`, { with: { type: "json" } });
    assertEquals([linked.name, linked.version], [`@std/${own}`, "1.0.0+kproxy"]);
  }
  assertEquals(components.filter(({ group }) => group === "@std"), []);
});
