import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { ENDPOINT_SLICES, nodeResource, SERVICE_CIDRS, SERVICES } from "../lib/source/kube/kube_source.ts";
import { ROOT } from "./project_files.ts";

interface Role {
  readonly kind: string;
  readonly rules: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

Deno.test("the role in docs/operations.md grants what is asked of the API server, and little more", async () => {
  const page = await Deno.readTextFile(`${ROOT}/docs/operations.md`);
  const [, yaml = ""] = /^```yaml\n(apiVersion: rbac.*?)^```$/ms.exec(page) ?? [];
  const role = parse(yaml) as Role;
  assertEquals(role.kind, "ClusterRole");
  const granted = role.rules.flatMap(({ apiGroups, resources, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}.${group}`))
    )
  );
  const watched = [SERVICES, ENDPOINT_SLICES, SERVICE_CIDRS, nodeResource("node-a")].flatMap(
    ({ path }) => {
      const [, , group = "", resource] = /^\/(api|apis\/([^/]+))\/[^/]+\/(.+)$/.exec(path) ?? [];
      assert(resource !== undefined, path);
      return ["list", "watch"].map((verb) => `${verb} ${resource}.${group}`);
    },
  );
  // The log message about a Node that may not be read asks for `get`, too, as kube-proxy's role has it.
  const others = ["create events.events.k8s.io", "patch events.events.k8s.io", "get nodes."];
  assertEquals(granted.toSorted(), [...watched, ...others].toSorted());
});
