/** What kapi says in protobuf and JSON, in pages and as watches: of every object of the test corpus the same. */
import { assert, assertEquals, assertGreater } from "@std/assert";
import { parseAll } from "@std/yaml";
import { systemClock } from "../../lib/kernel/clock.ts";
import type { ApiObject } from "../../lib/model/objects.ts";
import { KubeSource } from "../../lib/source/kube/kube_source.ts";
import { apiAccess } from "../../lib/source/kube/api_access.ts";
import { acceptHeader } from "../../lib/source/kube/serializers.ts";
import { KubeClient } from "../../lib/source/kube/kube_client.ts";
import { KubeStore, Listing } from "../../lib/source/kube/store.ts";
import { REFLECTOR_TIMES } from "../../lib/source/kube/reflector.ts";
import { ListWatch } from "../../lib/source/kube/list_watch.ts";
import {
  ENDPOINT_SLICES,
  nodeResource,
  SERVICE_CIDRS,
  SERVICES,
  type WatchedResource,
} from "../../lib/source/kube/kube_source.ts";
import type { SourceEvent } from "../../lib/source/source.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { KAPI, Kapi } from "../support/kapi.ts";
import type { RawApiObject } from "../support/list_watch_server.ts";
import { rawNode, rawService, rawServiceCidr, rawSlice } from "../support/raw_objects.ts";
import { e2eTest } from "../support/skip.ts";
import { type RunningSource, runSource } from "../support/source_recorder.ts";

const PROTOBUF = "application/vnd.kubernetes.protobuf";
const GOLDEN = new URL("../golden/", import.meta.url);
const KINDS: readonly WatchedResource[] = [
  SERVICES,
  ENDPOINT_SLICES,
  nodeResource("any"),
  SERVICE_CIDRS,
].map((resource) => ({ ...resource, selectors: [{}] }));

/** The objects of the flow cases and of the golden ones, each by a name of its own. */
function corpus(): RawApiObject[] {
  const objects: unknown[] = FLOW_CASES.flatMap(({ objects }) => objects);
  for (const { name, isDirectory } of Deno.readDirSync(GOLDEN)) {
    if (!isDirectory || name === "ipvs") continue;
    objects.push(...parseAll(Deno.readTextFileSync(new URL(`${name}/objects.yaml`, GOLDEN))) as unknown[]);
  }
  const taints = [{ key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" }];
  objects.push(
    rawNode("n1"),
    { ...rawNode("tainted"), spec: { podCIDRs: ["fd00::/64", "10.0.0.0/24"], taints } },
    rawServiceCidr("x", ["10.96.0.0/16", "fd00::/108"]),
  );
  return (objects as RawApiObject[]).map((object, index) => ({
    ...object,
    metadata: { ...object.metadata, name: `c${index}-${object.metadata.name}`.slice(0, 63) },
  }));
}

interface Asking extends Disposable {
  readonly requests: (resource: WatchedResource) => ListWatch;
}

async function asking(kapi: Kapi, contentType: string): Promise<Asking> {
  const access = await apiAccess({ kubeconfig: kapi.kubeconfig, master: "", env: { get: () => undefined } });
  const clock = systemClock;
  const accept = acceptHeader({ contentType, acceptContentTypes: "" });
  const client = new KubeClient({ access, qps: -1, burst: 1, userAgent: "test", accept, clock });
  const options = { client, clock, times: REFLECTOR_TIMES, random: () => 0 };
  return {
    requests: (resource) => new ListWatch({ ...options, resource, connection: { streamsLists: false } }),
    [Symbol.dispose]: () => client.close(),
  };
}

/** What a list says, by a way of asking for it. */
type Way = (requests: ListWatch, listing: Listing) => Promise<void>;

const inPages = (version: string): Way => async (requests, listing) => {
  await requests.list({ version, paced: false }, (raws) => listing.take(raws), new AbortController().signal);
};

const asWatch: Way = async (requests, listing) => {
  const end = new AbortController();
  const { events } = await requests.watchList({ version: "", paced: false }, end.signal);
  try {
    for await (const batch of events) {
      for (const event of batch) {
        if (event.endsList) return;
        listing.takeEvent(event);
      }
    }
  } finally {
    end.abort();
  }
};

async function objectsBy(way: Way, from: Asking, resource: WatchedResource): Promise<Map<string, ApiObject>> {
  const listing = new Listing(new KubeStore(resource, "", () => {}));
  await way(from.requests(resource), listing);
  const added = (event: SourceEvent): ApiObject[] => event.type === "add" ? [event.object] : [];
  const objects = listing.finish(resource.path).flatMap(added);
  return new Map(
    objects.map((object) => [`${"namespace" in object ? object.namespace : ""}/${object.name}`, object]),
  );
}

/** Of `n1`, in that form; tells the statuses of its answers. */
async function sourceOf(kapi: Kapi, contentType: string, statuses: string[]): Promise<RunningSource> {
  const access = await apiAccess({ kubeconfig: kapi.kubeconfig, master: "", env: { get: () => undefined } });
  return runSource((log) =>
    new KubeSource({
      access,
      nodeName: "n1",
      qps: -1,
      burst: 10,
      contentTypes: { contentType, acceptContentTypes: "" },
      onRequest: ({ code }) => statuses.push(code),
      log,
    })
  );
}

e2eTest(
  "kapi says the same in protobuf and JSON, in pages and as watches",
  KAPI,
  async (t) => {
    await using kapi = await Kapi.start([], { streamsLists: true });

    for (const contentType of ["application/json", PROTOBUF]) {
      await t.step(
        `${contentType}: lists as watches, changes, a version that is gone, and no pages`,
        async () => {
          await kapi.clear();
          const objects = [rawNode("n1"), rawService("web"), rawSlice("web", ["10.1.0.1"])];
          for (const object of objects) await kapi.put(object);
          const statuses: string[] = [];
          await using source = await sourceOf(kapi, contentType, statuses);
          const { recorder } = source;
          await recorder.untilSynced();
          assertEquals(recorder.names(), ["EndpointSlice default/web-x", "Node n1", "Service default/web"]);
          // The lists go on as watches.
          assertEquals(statuses, ["200", "200", "200"]);
          await kapi.put(rawService("api"));
          await recorder.untilThere("Service default/api");
          await kapi.remove(rawService("api"));
          await recorder.untilThere("Service default/api", false);
          await kapi.restart();
          await kapi.remove(rawSlice("web", []));
          await kapi.put(rawService("later"));
          await kapi.compact();
          await kapi.restart();
          await kapi.put(rawService("last"));
          await recorder.untilThere("Service default/last");
          await recorder.untilThere("EndpointSlice default/web-x", false);
          assertEquals(recorder.names(), [
            "Node n1",
            ...["last", "later", "web"].map((name) => `Service default/${name}`),
          ]);
          assert(!source.lines.some((line) => line.includes("asking for pages")), source.lines.join(""));
          assertEquals(recorder.rejections, []);
        },
      );
    }

    await t.step("every object of the test corpus", async () => {
      await kapi.clear();
      const objects = corpus();
      for (const object of objects) await kapi.put(object);
      using json = await asking(kapi, "application/json");
      using protobuf = await asking(kapi, PROTOBUF);
      for (const resource of KINDS) {
        const expected = await objectsBy(inPages(""), json, resource);
        const wanted = objects.filter(({ kind }) => kind === resource.objectKind).length;
        assertGreater(wanted, 0);
        assertEquals(expected.size, wanted, resource.path);
        for (const way of [inPages("0"), inPages(""), asWatch]) {
          for (const from of [json, protobuf]) assertEquals(await objectsBy(way, from, resource), expected);
        }
      }
    });
  },
);
