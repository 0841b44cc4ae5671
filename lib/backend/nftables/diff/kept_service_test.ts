import { assertEquals } from "@std/assert";
import { exampleNftablesPlan } from "../../../../tests/support/golden_nftables.ts";
import { NftTable } from "../../../../tests/support/nft_table.ts";
import {
  testPort,
  testService,
  testSlice,
  testSliceEndpoint,
} from "../../../../tests/support/model_objects.ts";
import type { ApiObject } from "../../../model/objects.ts";
import { diffObserved, NO_TABLE } from "./diff_observed.ts";
import { keptService } from "./kept_service.ts";

const NONE = { permissions: "none" } as const;
const [A, B] = ["10.244.1.1", "10.244.1.2"] as const;

function web(nodePort: number, ips: readonly string[]): ApiObject[] {
  return [
    testService({ type: "NodePort", ports: [testPort({ nodePort })] }),
    testSlice({ endpoints: ips.map((ip) => testSliceEndpoint(ip)) }),
  ];
}

Deno.test(
  "a refused Service keeps the slots of those destinations that the kernel has, and of no others",
  NONE,
  () => {
    const table = new NftTable();
    table.apply(diffObserved(exampleNftablesPlan("IPv4", web(30080, [A, B])), NO_TABLE).operations);
    const kept = (nodePort: number, ips: readonly string[]) => {
      const rules = exampleNftablesPlan("IPv4", web(nodePort, ips)).services.get("shop/web")!;
      return keptService("shop/web", rules, table.observed());
    };
    const slots = [`${A} . 8080`, `${B} . 8080`];
    assertEquals(kept(30080, [A]).lists.map(({ destinations, slots }) => [destinations.length, slots]), [[
      2,
      slots,
    ]]);
    // Of the new node port there is nothing.
    const { lists, elements } = kept(30081, [A]);
    assertEquals(lists.map(({ destinations }) => destinations.map(({ container }) => container)), [[
      "endpoints-tcp",
    ]]);
    assertEquals(lists.map(({ slots }) => slots), [slots]);
    assertEquals(elements.map(({ container }) => container), ["service-ips"]);
    const nothing = keptService(
      "shop/web",
      exampleNftablesPlan("IPv4", web(30080, [A])).services.get("shop/web")!,
      NO_TABLE,
    );
    assertEquals([nothing.elements, nothing.sharedElements, nothing.lists], [[], [], []]);
  },
);
