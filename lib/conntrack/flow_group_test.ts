import { assertEquals } from "@std/assert";
import { type FlowGroup, groupFlows } from "./stale_flows.ts";

/** `destination <- replySource xFlows [zone]` */
function texts(groups: readonly FlowGroup[]): string[] {
  return groups.map(({ destination, replySource, flows, zone }) =>
    [`${destination} <- ${replySource} x${flows}`, ...zone].join(" ")
  );
}

// Lines of conntrack 1.4.7 on kernel 6.18, as they came.
const REPLIED =
  "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.1.3 dst=10.0.0.5 sport=53 dport=40000 mark=0 use=1";
const LINES: readonly [name: string, line: string, group: string][] = [
  ["answered", REPLIED, "10.96.0.10:53 <- 10.244.1.3:53 x1"],
  [
    "never answered, never translated",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40001 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=40001 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1",
  ],
  [
    "assured, with counters",
    "udp      17 119 src=10.244.0.2 dst=10.96.0.10 sport=4000 dport=53 packets=3 bytes=93 src=10.244.0.3 dst=10.244.0.2 sport=5353 dport=4000 packets=3 bytes=90 [ASSURED] mark=0 use=1",
    "10.96.0.10:53 <- 10.244.0.3:5353 x1",
  ],
  [
    "in a zone",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=2 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=2 mark=0 zone=5 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --zone 5",
  ],
  [
    "in a zone of its original direction",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=3 dport=53 zone-orig=7 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=3 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --orig-zone 7",
  ],
  [
    "in a zone of its reply direction",
    "udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=4 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.5 sport=53 dport=4 zone-reply=8 mark=0 use=1",
    "10.96.0.10:53 <- 10.96.0.10:53 x1 --reply-zone 8",
  ],
  [
    "IPv6",
    "udp      17 299 src=fd00::6 dst=fd00:96::10 sport=40001 dport=53 [UNREPLIED] src=fd00:244::3 dst=fd00::6 sport=5353 dport=40001 mark=0 use=1",
    "[fd00:96::10]:53 <- [fd00:244::3]:5353 x1",
  ],
  [
    "with the names of layer 3 and 4 (-o extended)",
    "ipv4     2 udp      17 299 src=10.0.0.5 dst=10.96.0.10 sport=40000 dport=53 src=10.244.1.3 dst=10.0.0.5 sport=53 dport=40000 mark=0 use=1",
    "",
  ],
  [
    "of UDP-Lite",
    "udplite  136 299 src=10.0.0.6 dst=10.96.0.10 sport=40001 dport=53 [UNREPLIED] src=10.96.0.10 dst=10.0.0.6 sport=53 dport=40001 mark=0 use=1",
    "",
  ],
  [
    "of TCP",
    "tcp      6 431999 ESTABLISHED src=192.0.2.2 dst=192.0.2.1 sport=22 dport=53 src=192.0.2.1 dst=192.0.2.2 sport=53 dport=22 [ASSURED] mark=0 use=1",
    "",
  ],
];

Deno.test("a line of conntrack tells destination, reply source and zone", { permissions: "none" }, () => {
  for (const [name, line, group] of LINES) {
    assertEquals(texts(groupFlows(`${line}\n`)), group === "" ? [] : [group], name);
  }
});

Deno.test("flows to the same destination, answered from the same address, are one group", {
  permissions: "none",
}, () => {
  const others = [
    REPLIED.replaceAll("40000", "40001"),
    REPLIED.replaceAll("10.0.0.5", "10.0.0.6"),
    REPLIED.replace("dport=53", "dport=54"),
    REPLIED.replace("src=10.244.1.3", "src=10.244.1.4"),
    REPLIED.replace("sport=53", "sport=5353"),
    REPLIED.replace("mark=0", "mark=0 zone=1"),
  ];
  assertEquals(texts(groupFlows([REPLIED, ...others].join("\n"))), [
    "10.96.0.10:53 <- 10.244.1.3:53 x3",
    "10.96.0.10:54 <- 10.244.1.3:53 x1",
    "10.96.0.10:53 <- 10.244.1.4:53 x1",
    "10.96.0.10:53 <- 10.244.1.3:5353 x1",
    "10.96.0.10:53 <- 10.244.1.3:53 x1 --zone 1",
  ]);
});

Deno.test("a dump that was cut off yields its complete lines", { permissions: "none" }, () => {
  const cut = REPLIED.slice(0, REPLIED.indexOf("dport=40000"));
  assertEquals(texts(groupFlows(`${REPLIED}\n${cut}`)), ["10.96.0.10:53 <- 10.244.1.3:53 x1"]);
  assertEquals(groupFlows(""), []);
});
