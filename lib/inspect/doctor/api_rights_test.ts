import { assertEquals } from "@std/assert";
import { neededRights } from "./api_rights.ts";

Deno.test(
  "rights to ask who clients are are missed only where that is configured",
  { permissions: "none" },
  () => {
    const common = { mode: "iptables", nodeName: "n" } as const;
    const reviews = (asksWhoClientsAre: boolean): string[] =>
      neededRights({ ...common, asksWhoClientsAre }).map(({ verb, group, resource }) =>
        `${verb} ${resource}.${group}`
      )
        .filter((right) => right.includes("reviews"));
    assertEquals(reviews(false), []);
    assertEquals(reviews(true), [
      "create tokenreviews.authentication.k8s.io",
      "create subjectaccessreviews.authorization.k8s.io",
    ]);
  },
);
