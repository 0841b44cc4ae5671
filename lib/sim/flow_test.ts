import {
  add,
  complement,
  type FlowOutcome,
  formatFlow,
  formatFraction,
  mergeOutcomes,
  multiply,
  ONE,
  type Packet,
  parsePacket,
  probabilityFraction,
} from "./flow.ts";
import { assertEquals, assertThrows } from "@std/assert";

function outcome(fields: Partial<FlowOutcome>): FlowOutcome {
  return {
    probability: { numerator: 1n, denominator: 1n },
    verdict: "accept",
    rejectWith: "",
    translatedTo: "",
    toNode: false,
    masquerade: false,
    mark: 0,
    remembered: [],
    hits: [],
    ...fields,
  };
}

const HALF = { numerator: 1n, denominator: 2n };

const FLOWS: readonly { outcomes: readonly Partial<FlowOutcome>[]; text: string }[] = [
  { outcomes: [{ verdict: "drop" }], text: "dropped" },
  { outcomes: [{ verdict: "reject", rejectWith: "tcp-reset" }], text: "rejected" },
  { outcomes: [{}], text: "untranslated" },
  { outcomes: [{ toNode: true }], text: "this node" },
  { outcomes: [{ masquerade: true }], text: "untranslated, masquerade yes" },
  { outcomes: [{ translatedTo: "10.0.0.1:80" }], text: "10.0.0.1:80, masquerade no" },
  {
    outcomes: [{ translatedTo: "10.0.0.1:80", masquerade: true, mark: 0x4000 }],
    text: "10.0.0.1:80, masquerade yes, mark 0x4000 left",
  },
  {
    outcomes: [
      { translatedTo: "10.0.0.1:80", probability: HALF },
      { translatedTo: "10.0.0.2:80", probability: HALF },
    ],
    text: "10.0.0.1:80 (1/2) | 10.0.0.2:80 (1/2), masquerade no",
  },
  {
    outcomes: [
      { translatedTo: "10.0.0.1:80", probability: HALF, masquerade: true },
      { translatedTo: "10.0.0.2:80", probability: HALF },
    ],
    text: "10.0.0.1:80 (1/2, masquerade yes) | 10.0.0.2:80 (1/2, masquerade no)",
  },
  {
    outcomes: [{ verdict: "drop", probability: HALF }, { translatedTo: "10.0.0.2:80", probability: HALF }],
    text: "dropped (1/2) | 10.0.0.2:80 (1/2, masquerade no)",
  },
];

for (const { outcomes, text } of FLOWS) {
  Deno.test(`a flow is reported as "${text}"`, { permissions: "none" }, () => {
    assertEquals(formatFlow({ outcomes: outcomes.map(outcome), problems: [] }), text);
  });
}

Deno.test("outcomes that end alike add up, others stay apart, in order of destination", {
  permissions: "none",
}, () => {
  const quarter = { numerator: 1n, denominator: 4n };
  const merged = mergeOutcomes([
    outcome({ translatedTo: "10.0.0.2:80", probability: HALF }),
    outcome({ translatedTo: "10.0.0.1:80", probability: quarter }),
    outcome({ translatedTo: "10.0.0.1:80", probability: quarter }),
  ]);
  assertEquals(merged.map((one) => [one.translatedTo, one.probability]), [
    ["10.0.0.1:80", HALF],
    ["10.0.0.2:80", HALF],
  ]);
});

const PACKETS: readonly { text: string; differs: Partial<Packet> }[] = [
  { text: "10.0.0.7@eth0 → 172.30.0.41:80", differs: {} },
  { text: "10.0.0.7 → 172.30.0.41:80", differs: {} },
  { text: "10.0.0.7@node → 172.30.0.41:53/udp", differs: { inInterface: "", protocol: "udp", port: 53 } },
  {
    text: "fd00::7@veth1 → [fd00::1]:2905/sctp",
    differs: {
      source: "fd00::7",
      inInterface: "veth1",
      destination: "fd00::1",
      port: 2905,
      protocol: "sctp",
    },
  },
  {
    text: "fd00::7@cni0 → fd00::1/icmp",
    differs: { source: "fd00::7", inInterface: "cni0", destination: "fd00::1", port: 0, protocol: "icmp" },
  },
  { text: "10.0.0.7@eth0 → 172.30.0.41:80 INVALID", differs: { state: "INVALID" } },
  {
    text: "10.0.0.7@eth0 → 172.30.0.41/icmp ESTABLISHED mark 0x4000",
    differs: { port: 0, protocol: "icmp", state: "ESTABLISHED", mark: 0x4000 },
  },
];

for (const { text, differs } of PACKETS) {
  Deno.test(`a packet is read from "${text}"`, { permissions: "none" }, () => {
    assertEquals(parsePacket(text), {
      source: "10.0.0.7",
      destination: "172.30.0.41",
      protocol: "tcp",
      port: 80,
      inInterface: "eth0",
      state: "NEW",
      mark: 0,
      ...differs,
    });
  });
}

for (const text of ["", "10.0.0.7", "10.0.0.7 → 10.0.0.1", "10.0.0.7 → 10.0.0.1:80/icmp", "a → b:80/tls"]) {
  Deno.test(`"${text}" is no packet`, { permissions: "none" }, () => {
    assertThrows(() => parsePacket(text), SyntaxError, "is not a packet");
  });
}

Deno.test("a written or saved 1/k is read as exactly 1/k", { permissions: "none" }, () => {
  for (const k of [1, 2, 3, 6, 7, 11, 100, 999, 2048, 5000, 20000]) {
    const expected = { numerator: 1n, denominator: BigInt(k) };
    assertEquals(probabilityFraction((1 / k).toFixed(10)), expected);
    assertEquals(probabilityFraction((Math.round(2 ** 31 / k) / 2 ** 31).toFixed(11)), expected);
  }
});

Deno.test("a probability that is no 1/k is read as the kernel keeps it", { permissions: "none" }, () => {
  assertEquals(formatFraction(probabilityFraction("0.75")), "3/4");
  assertEquals(formatFraction(probabilityFraction("0.6")), "1288490189/2147483648");
  assertEquals(formatFraction(probabilityFraction("0")), "0");
});

Deno.test("a chain of 1/n, 1/(n-1), …, 1 gives every endpoint 1/n", { permissions: "none" }, () => {
  let left = ONE;
  let sum = { numerator: 0n, denominator: 1n };
  for (let remaining = 7; remaining > 0; remaining--) {
    const chance = probabilityFraction((1 / remaining).toFixed(10));
    const share = multiply(left, chance);
    assertEquals(formatFraction(share), "1/7");
    sum = add(sum, share);
    left = multiply(left, complement(chance));
  }
  assertEquals(formatFraction(sum), "1");
  assertEquals(formatFraction(left), "0");
});
