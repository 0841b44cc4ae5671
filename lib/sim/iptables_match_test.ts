import { assertEquals } from "@std/assert";
import { parsePacket } from "./flow.ts";
import { wordsHold } from "./iptables_match.ts";
import { startOfWalk } from "./packet_walk.ts";

const CASES: readonly (readonly [words: string, packet: string, holds: boolean | undefined])[] = [
  ["-m multiport --dports 80,8000:8099", "10.0.0.1 → 10.0.0.2:8042", true],
  ["-m multiport --dports 80,8000:8099", "10.0.0.1 → 10.0.0.2:8100", false],
  ["-m multiport ! --dports 80,443", "10.0.0.1 → 10.0.0.2:80", false],
  ["-m multiport ! --dports 80,443", "10.0.0.1 → 10.0.0.2:81", true],
  ["-m multiport --sports 80", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["-m iprange --src-range 10.0.0.1-10.0.0.9", "10.0.0.9 → 10.0.0.2:80", true],
  ["-m iprange --src-range 10.0.0.1-10.0.0.9", "10.0.0.10 → 10.0.0.2:80", false],
  [
    "-m iprange --src-range 10.0.0.1-10.0.0.9 ! --dst-range 10.0.0.2-10.0.0.3",
    "10.0.0.1 → 10.0.0.2:80",
    false,
  ],
  ["-m iprange --dst-range fd00::1-fd00::ff", "fd00::5 → [fd00::fe]:80", true],
  ["-m iprange --dst-range nowhere", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["--syn", "10.0.0.1 → 10.0.0.2:80", true],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80", true],
  ["--tcp-flags FIN,SYN,RST,ACK SYN,ACK", "10.0.0.1 → 10.0.0.2:80", false],
  ["! --tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80", false],
  ["--tcp-flags ALL NONE", "10.0.0.1 → 10.0.0.2:80", false],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80/udp", false],
  ["--tcp-flags FIN,SYN,RST,ACK SYN", "10.0.0.1 → 10.0.0.2:80 ESTABLISHED", undefined],
  ["-m connlimit --connlimit-above 20", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["-m quota", "10.0.0.1 → 10.0.0.2:80", undefined],
  ["frob", "10.0.0.1 → 10.0.0.2:80", undefined],
];

Deno.test("what is certain for the packet holds or does not, what is not is unknown", {
  permissions: "none",
}, () => {
  for (const [words, packet, holds] of CASES) {
    assertEquals(wordsHold(words.split(" "), startOfWalk(parsePacket(packet))), holds, `${words}: ${packet}`);
  }
});
