import { assertEquals, assertGreater } from "@std/assert";
import { parsePacket } from "../../lib/sim/flow.ts";
import { FLOW_CASES } from "../flows/flow_cases.ts";
import { decodeObject } from "../../lib/source/decode/decode.ts";
import { withDefaults } from "../support/kube_proxy/proxy_api.ts";
import { type Observer, packetDifference } from "./compare_packets.ts";
import { FLOW_DIFFERENCES } from "./flow_differences.ts";
import { drawWorld } from "./worlds.ts";

Deno.test("worlds are what an API server would have, and the same from the same seed", {
  permissions: "none",
}, () => {
  for (let seed = 0; seed < 50; seed++) {
    const world = drawWorld(seed, { services: 40, packets: 80 });
    assertEquals(drawWorld(seed, { services: 40, packets: 80 }), world);
    assertEquals(world.packets.length, 80);
    world.packets.forEach(({ text }) => parsePacket(text));
    const rejected = world.objects.flatMap((one) => decodeObject(withDefaults(one), "world").rejections);
    assertEquals(rejected, []);
  }
});

/** Answers with these outcomes, one set for each round. */
class Scripted implements Observer {
  asked = 0;
  readonly #rounds: readonly string[][];

  constructor(...rounds: readonly string[][]) {
    this.#rounds = rounds;
  }

  observe(): Promise<string[]> {
    return Promise.resolve(this.#rounds[Math.min(this.asked++, this.#rounds.length - 1)]!);
  }
}

Deno.test("a packet that fares differently is found, one that was unlucky is not", async () => {
  const packet = { text: "10.244.0.5@cni0 → 10.96.0.10:80", isSticky: false };
  const [a, b] = ["10.244.0.11:8080, masquerade no", "10.244.1.11:8080, masquerade no"];
  const lucky = new Scripted([a], [a, b]);
  assertEquals(await packetDifference(packet, lucky, new Scripted([a, b])), null);
  assertEquals(lucky.asked, 2);
  const found = await packetDifference(packet, new Scripted([a, b]), new Scripted(["rejected"]));
  assertEquals(found, { packet: packet.text, kubeProxy: [a, b], kproxy: ["rejected"] });
  const sticky = { ...packet, isSticky: true };
  assertEquals(await packetDifference(sticky, new Scripted([a]), new Scripted([b])), null);
  const other = await packetDifference(sticky, new Scripted([a]), new Scripted([a, b]));
  assertGreater(other?.kproxy.length ?? 0, 1);
});

Deno.test("what differs as declared is a flow case", { permissions: "none" }, () => {
  const names = new Set(FLOW_CASES.map(({ name }) => name));
  assertEquals(Object.keys(FLOW_DIFFERENCES).filter((name) => !names.has(name)), []);
});
